"""Resuming: a job that was killed at any moment continues and gives the same bytes."""

import multiprocessing
import os
import random
import re
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.clips import noise_picture, write_clip
from tests.upscale import upscaled

from vsrkit.errors import StoppedError, VideoError, VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.models.bicubic import Bicubic
from vsrkit.models.zoo import build_model
from vsrkit.upscale import prepare as prepare_module
from vsrkit.upscale import produce
from vsrkit.upscale.options import Progress
from vsrkit.upscale.work_folder import WorkFolder
from vsrkit.video import read
from vsrkit.video.seek import EMPTY_TABLE

KILLS = 24


def upscale(source, target, **options):
    given = {"precision": "float32", "max_memory": "4G", **options}
    return upscaled.upscale(source, target, **given)


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """Three shots, variable times, more frames than a part has."""
    pictures = [
        noise_picture(n // 40 * 1000 + n % 40, 24, 16, "yuv420p", smooth=True) for n in range(120)
    ]
    times = [40 * n + n % 2 for n in range(120)]
    folder = tmp_path_factory.mktemp("film")
    return write_clip(
        folder / "in.mkv", width=24, height=16, pictures=pictures, times=times, time_base="1/1000"
    )


@pytest.fixture(scope="module")
def whole(film):
    upscale(film, film.with_name("whole.mkv"))
    return film.with_name("whole.mkv").read_bytes()


def _run_slowly(source, target, options):
    """In a child process: leave time between the frames, so that the blow falls anywhere."""
    torch.set_num_threads(1)
    upscale(source, target, on_progress=lambda _: time.sleep(0.001), **options)


def kill_until_done(source, target, seed, **options):
    """Start again and again, kill at random moments; how often it was killed."""
    fork = multiprocessing.get_context("fork")  # torch is imported already: no second per start
    moments = random.Random(seed)
    kills = 0
    while not target.exists():
        child = fork.Process(target=_run_slowly, args=(source, target, options))
        child.start()
        child.join(moments.uniform(0.02, 0.6) * (1 + kills / 8))
        if child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
            kills += 1
            child.join()
        else:
            assert child.exitcode == 0
        assert kills < 200
    return kills


def test_kill_9_at_any_moment_changes_no_byte(film, whole, tmp_path):
    kills = run = 0
    while kills < KILLS:
        target = tmp_path / f"out{run}.mkv"
        kills += kill_until_done(film, target, seed=run)
        assert target.read_bytes() == whole
        run += 1


@pytest.mark.parametrize("name", ["rrn-5l", "animesr-v2"])
def test_a_carried_state_is_resumed(film, tmp_path, monkeypatch, name):
    """A resumed job continues with the stored state of a recurrent model."""
    monkeypatch.setattr(produce, "PART_FRAMES", 8)
    torch.manual_seed(0)
    model = build_model(name)
    upscale(film, tmp_path / "whole.mkv", model=model, end=1)

    def stop(progress: Progress) -> None:
        if progress.stage == "upscale" and progress.done == 20:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        upscale(film, tmp_path / "out.mkv", model=model, end=1, on_progress=stop)
    done = upscale(film, tmp_path / "out.mkv", model=model, end=1)
    assert done.resumed == 16
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()


@pytest.mark.parametrize("options", [{"chunk": 0}, {"chunk": 1}, {"chunk": 80}])
def test_chunks_change_no_byte(film, whole, tmp_path, options):
    upscale(film, tmp_path / "out.mkv", **options)
    assert (tmp_path / "out.mkv").read_bytes() == whole


@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
def test_other_containers_have_the_same_bytes_each_time(film, tmp_path, suffix):
    for name in ("a", "b"):
        upscale(film, tmp_path / f"{name}{suffix}", end=1)
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_chunks_and_workers_change_no_byte_of_our_own_model(film, tmp_path):
    outputs = []
    for number, options in enumerate([{}, {"chunk": 2, "workers": 2}]):
        upscale(film, tmp_path / f"{number}.mkv", model="vsrt-s", end=2, **options)
        outputs.append((tmp_path / f"{number}.mkv").read_bytes())
    assert outputs[0] == outputs[1]


def _interrupted(film, target, at=60):
    """Run until frame `at`, then as if Ctrl-C was pressed."""

    def press(progress):
        if progress.stage == "upscale" and progress.done == at:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(StoppedError) as stopped:
        upscale(film, target, on_progress=press)
    return str(stopped.value)


def test_ctrl_c_finishes_the_part_and_explains_how_to_resume(film, whole, tmp_path, caplog):
    target = tmp_path / "out.mkv"
    said = _interrupted(film, target)
    wait = r"finishing the current part, \d+ more frames, about \d+ s; Ctrl-C again .* discards \d+"
    assert re.search(wait, caplog.text)
    assert "of 120 frames are finished, run the same command to resume" in said
    assert not target.exists()
    done = upscale(film, target)
    assert done.resumed >= 48
    assert target.read_bytes() == whole
    assert not WorkFolder.beside(target).path.exists()


@pytest.fixture(scope="module")
def long_film(tmp_path_factory):
    """Open groups of 24 pictures, with B frames; its first three parts of four are finished."""
    folder = tmp_path_factory.mktemp("long")
    options = {"x264-params": "keyint=24:min-keyint=24:scenecut=0:open-gop=1:bframes=3"}
    film = write_clip(folder / "in.mp4", width=24, height=16, frames=190, options=options)
    upscale(film, folder / "whole.mkv")
    _interrupted(film, folder / "out.mkv", at=140)
    return folder


def resume_copy(folder, tmp_path, monkeypatch):
    """Resume a copy of the interrupted job; the numbers of decoded pictures and seeks."""
    shutil.copytree(folder / ".out.mkv.vsrkit", tmp_path / ".out.mkv.vsrkit")
    counts = {"pictures": 0, "seeks": 0}
    original = read.Source._read_video

    def counting(self, on_damaged, entry=None):
        counts["seeks"] += entry is not None
        for picture in original(self, on_damaged, entry):
            counts["pictures"] += 1
            yield picture

    monkeypatch.setattr(read.Source, "_read_video", counting)
    assert upscale(folder / "in.mp4", tmp_path / "out.mkv").resumed == 144
    assert (tmp_path / "out.mkv").read_bytes() == (folder / "whole.mkv").read_bytes()
    return counts


def test_a_resumed_job_does_not_decode_what_is_finished(long_film, tmp_path, monkeypatch):
    counts = resume_copy(long_film, tmp_path, monkeypatch)
    assert counts["seeks"] == 1
    assert counts["pictures"] <= 190 - 144 + 24 + 3  # a group, and leading pictures


def rewrite(folder, **fields):
    """Change fields of a manifest, as if the job had begun with those."""
    before = folder.read()
    after = before.model_copy(update=fields)
    folder.write(after)
    for record in folder.path.glob("part-*.json"):
        record.write_text(record.read_text().replace(before.identity, after.identity))


def test_a_job_without_a_seek_table_is_decoded_from_the_start(long_film, tmp_path, monkeypatch):
    shutil.copytree(long_film, tmp_path / "earlier")
    folder = WorkFolder(tmp_path / "earlier" / ".out.mkv.vsrkit")
    index = folder.read().index
    assert len(index.seek_table.checksums) == 190
    rewrite(folder, index=replace(index, seek_table=EMPTY_TABLE))
    counts = resume_copy(tmp_path / "earlier", tmp_path, monkeypatch)
    assert counts == {"pictures": 190, "seeks": 0}


def test_a_seek_to_a_wrong_place_changes_no_byte(long_film, tmp_path, monkeypatch):
    monkeypatch.setattr(read, "seek", lambda container, stream, entry: container.seek(7_000_000))
    counts = resume_copy(long_film, tmp_path, monkeypatch)
    assert counts["seeks"] > 1
    assert counts["pictures"] >= 190


def test_ctrl_c_twice_stops_at_once_and_loses_only_the_current_part(film, whole, tmp_path):
    target = tmp_path / "out.mkv"

    def press(progress):
        if progress.stage == "upscale" and progress.done >= 60:
            assert progress.done <= 61
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        upscale(film, target, on_progress=press)
    done = upscale(film, target)
    assert 48 <= done.resumed <= 60
    assert target.read_bytes() == whole


def test_killed_after_the_rename_and_before_the_cleanup(film, whole, tmp_path, monkeypatch):
    target = tmp_path / "out.mkv"
    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "remove", lambda self: None)
        upscale(film, target)
    assert WorkFolder.beside(target).path.exists()
    assert upscale(film, target).resumed == 120
    assert not WorkFolder.beside(target).path.exists()
    assert target.read_bytes() == whole


def test_restart_repeats_a_job_that_only_needed_cleanup(film, tmp_path, monkeypatch):
    target, other = tmp_path / "out.mkv", write_clip(tmp_path / "other.mkv", frames=3)
    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "remove", lambda self: None)
        upscale(film, target)
    with pytest.raises(VideoError, match="--restart"):
        upscale(other, target, overwrite=True)
    done = upscale(other, target, overwrite=True, restart=True)
    assert (done.frames, done.resumed) == (3, 0)
    upscale(other, tmp_path / "wanted.mkv")
    assert target.read_bytes() == (tmp_path / "wanted.mkv").read_bytes()


def test_killed_before_the_rename(film, whole, tmp_path, monkeypatch):
    target = tmp_path / "out.mkv"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", _stop_at_whole(Path.replace))
        with pytest.raises(KeyboardInterrupt):
            upscale(film, target)
    assert not target.exists()
    assert upscale(film, target).resumed == 120
    assert target.read_bytes() == whole


def _stop_at_whole(plain):
    def replace(self, target):
        if self.name.startswith("whole"):
            raise KeyboardInterrupt
        return plain(self, target)

    return replace


def test_a_changed_setting_or_input_is_explained(film, tmp_path):
    source = tmp_path / "in.mkv"
    source.write_bytes(film.read_bytes())
    target = tmp_path / "out.mkv"
    _interrupted(source, target)
    with pytest.raises(VideoError, match=r"encoder options: was crf=17.*now crf=30.*--restart"):
        upscale(source, target, crf=30)
    with pytest.raises(VideoError, match="size: was 96x64, now 48x32"):
        upscale(source, target, scale=2)
    write_clip(source, width=24, height=16)
    with pytest.raises(VideoError, match="the input has changed"):
        upscale(source, target)
    assert upscale(source, target, restart=True).resumed == 0


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1, "settings": {}}'])
def test_finished_parts_are_kept_if_the_manifest_cannot_be_read(film, tmp_path, content):
    """A damaged manifest, or one of version 0.1.0: only --restart discards the parts."""
    target = tmp_path / "out.mkv"
    _interrupted(film, target)
    folder = WorkFolder.beside(target).path
    (folder / "manifest.json").write_text(content)
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(VideoError, match=r"manifest.json is damaged or .*--restart"):
        upscale(film, target)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert any(name.startswith("part-") for name in before)
    assert upscale(film, target, restart=True).resumed == 0


def test_choices_of_auto_are_kept_when_resuming(film, tmp_path, monkeypatch):
    """Precision and tile were chosen by the first run; a later one keeps them."""
    target = tmp_path / "out.mkv"
    _interrupted(film, target)
    folder = WorkFolder.beside(target)
    chosen = {"precision": Precision("float32", channels_last=True), "tile": 64}
    rewrite(folder, options=folder.read().options.model_copy(update=chosen))
    done = upscale(film, target, precision="auto", tile=None)
    assert done.resumed > 0


def test_a_second_process_on_the_same_output_is_refused(film, tmp_path):
    target = tmp_path / "out.mkv"
    with WorkFolder.beside(target).locked(), pytest.raises(VsrkitError, match="another vsrkit"):
        upscale(film, target)


def test_an_allocation_that_fails_halves_the_tile(film, tmp_path, monkeypatch, caplog):
    source = write_clip(tmp_path / "in.mkv", width=200, height=160, frames=3)
    plain = Bicubic.forward

    def forward(self, clip, keep=None):
        if max(clip.shape[-2:]) > 64:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")
        return plain(self, clip, keep)

    monkeypatch.setattr(Bicubic, "forward", forward)
    done = upscale(source, tmp_path / "out.mkv")
    assert done.frames == 3
    assert "continuing with tiles of 64 pixels" in " ".join(caplog.messages)


@pytest.mark.parametrize("tile", [None, 0, 128])
def test_a_job_with_a_halved_tile_is_resumed_by_the_same_command(
    tmp_path, monkeypatch, caplog, tile
):
    source = write_clip(tmp_path / "in.mkv", width=136, height=32, frames=80)
    plain = Bicubic.forward
    calls = []

    def forward(self, clip, keep=None):
        if max(clip.shape[-2:]) > 64:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")
        calls.append(clip.shape)
        if len(calls) == 200:  # three tiles a frame
            raise KeyboardInterrupt
        return plain(self, clip, keep)

    monkeypatch.setattr(Bicubic, "forward", forward)
    target = tmp_path / "out.mkv"
    with pytest.raises(KeyboardInterrupt):
        upscale(source, target, tile=tile)
    options = WorkFolder.beside(target).read().options
    assert (options.tile, options.tile_too_large) == (64, tile or 0)
    caplog.clear()
    done = upscale(source, target, tile=tile)
    assert done.frames == 80
    assert done.resumed > 0
    assert "out of memory" not in " ".join(caplog.messages)


def test_the_library_can_be_used_from_another_thread(film, tmp_path):
    """No signal handler can be set there, and none is needed."""
    results = []
    thread = threading.Thread(
        target=lambda: results.append(upscale(film, tmp_path / "out.mkv", end=1))
    )
    thread.start()
    thread.join()
    assert results[0].frames == 25
    assert Path(results[0].path).exists()


def test_the_tile_of_another_video_is_not_reused(film, tmp_path, monkeypatch):
    """It was chosen for other frames; this one may not even have the memory for it."""
    target = tmp_path / "out.mkv"
    _interrupted(film, target)
    folder = WorkFolder.beside(target)
    rewrite(folder, options=folder.read().options.model_copy(update={"tile": 96}))
    asked = []
    plan = prepare_module.plan_memory
    monkeypatch.setattr(
        prepare_module, "plan_memory", lambda *a, **k: (asked.append(k["tile"]), plan(*a, **k))[1]
    )
    other = write_clip(tmp_path / "other.mkv", width=96, height=64, frames=2)
    with pytest.raises(VideoError, match="the input has changed"):
        upscale(other, target)
    assert asked == [None]
