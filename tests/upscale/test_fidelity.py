"""The report finds and measures defects of the output and is self-contained."""

from dataclasses import replace

import pytest
import torch
from tests.pages import HOSTILE, constant_of, texts_of
from tests.scenes import scene

from vsrkit.errors import VideoError
from vsrkit.models.layers.resample import imresize
from vsrkit.upscale.fidelity import compare_videos, write_report
from vsrkit.video.images import write_image
from vsrkit.video.probe import Orientation
from vsrkit.video.read import open_source, orient


def lr_frames():
    """Two moving shots of four frames each."""
    return [scene(seed, 48, 80, 8)[:, :, n : n + 80] for seed in (1, 2) for n in range(4)]


def folder(path, frames):
    for number, frame in enumerate(frames):
        write_image(path / f"{number:04d}.png", frame.clamp(0, 1))
    return path


@pytest.fixture
def videos(tmp_path):
    """A source of eight frames and a faithful output."""
    lr = lr_frames()
    return folder(tmp_path / "lr", lr), [imresize(frame, 4) for frame in lr]


def compared(source, sr, tmp_path):
    return compare_videos(open_source(source), open_source(folder(tmp_path / "sr", sr)))


def test_faithful_output_scores_well(videos, tmp_path):
    fidelity = compared(*videos, tmp_path)
    assert [(shot.first, shot.frames) for shot in fidelity.shots] == [(0, 4), (4, 4)]
    assert fidelity.size == (48, 80)
    assert fidelity.output_size == (192, 320)
    assert fidelity.missing == 0
    for shot in fidelity.shots:
        assert shot.consistency > 40
        assert shot.flicker < 0.5  # rounding to 8 bits only
        assert max(map(abs, shot.drift)) < 0.1


def test_finds_the_damaged_frame(videos, tmp_path):
    source, sr = videos
    sr[5][:, 100:140, 200:260] = 0
    fidelity = compared(source, sr, tmp_path)
    assert fidelity.worst[0].frame == 5
    assert fidelity.worst[0].shot == 1
    assert fidelity.shots[1].lowest_frame == 5
    assert fidelity.shots[1].lowest < fidelity.shots[0].lowest - 5
    assert fidelity.curve.index(min(fidelity.curve)) == 5


def test_measures_drift_and_flicker(videos, tmp_path):
    source, sr = videos
    lighter = [frame * 0.9 + 0.02 * (n % 2) for n, frame in enumerate(sr[:4])]
    redder = [torch.cat([frame[:1] * 0.9 + 4 / 255, frame[1:] * 0.9]) for frame in sr[4:]]
    plain, other = compared(source, [*lighter, *redder], tmp_path).shots
    assert plain.flicker > other.flicker + 3  # 0.02 of 219 steps, up and down
    assert other.drift[0] - plain.drift[0] > 1
    lost = [float(frame.mean()) * 25.5 for frame in lr_frames()[4:]]
    assert other.drift[1] == pytest.approx(-sum(lost) / 4, abs=8)


@pytest.mark.parametrize(("kept", "missing"), [(6, 2), (8, 0)])
def test_counts_missing_frames(videos, tmp_path, kept, missing):
    source, sr = videos
    fidelity = compared(source, sr[:kept], tmp_path)
    assert (fidelity.frames, fidelity.missing) == (kept, missing)


def test_counts_extra_frames(videos, tmp_path):
    source, sr = videos
    assert compared(source, [*sr, sr[-1]], tmp_path).missing == -1


def test_smaller_output_is_refused(videos, tmp_path):
    source, sr = videos
    with pytest.raises(VideoError, match="40x24, smaller than the input"):
        compared(source, [frame[:, :24, :40] for frame in sr], tmp_path)


def test_scales_that_are_not_whole_numbers(videos, tmp_path):
    source, _ = videos
    small = [imresize(frame, 3)[:, :100] for frame in lr_frames()]
    fidelity = compared(source, small, tmp_path)
    assert fidelity.output_size == (100, 240)
    assert fidelity.frames == 8


def test_upright_images_of_a_rotated_video(videos, tmp_path):
    source, sr = videos
    lying = open_source(source)
    lying = replace(lying, info=replace(lying.info, rotation=90))
    upright = open_source(folder(tmp_path / "sr", [orient(frame, Orientation(90)) for frame in sr]))
    fidelity = compare_videos(lying, upright)
    assert fidelity.output_size == (320, 192)
    assert min(fidelity.curve) > 40


def test_page_is_self_contained(videos, tmp_path):
    source, sr = videos
    sr[2][:, :50, :50] = 1
    page = tmp_path / "deep" / "report.html"
    name = HOSTILE.replace("/", "")
    write_report(source, folder(tmp_path / name, sr), page)
    text = page.read_text(encoding="utf-8")
    assert texts_of(text).count(f"Fidelity of {name} to lr") == 2  # title and heading
    report = constant_of(text, "report")
    assert report["worst"][0]["frame"] == 2
    assert report["worst"][0]["before"].startswith("data:image/png;base64,")
    assert len(report["shots"]) == 2
    assert len(report["curve"]) == 8


def test_page_says_how_many_frames_are_missing(videos, tmp_path):
    source, sr = videos
    pages = []
    for number, frames in enumerate((sr, sr[:6])):
        pages.append(tmp_path / f"{number}.html")
        write_report(source, folder(tmp_path / f"sr{number}", frames), pages[-1])
    assert ["2 frames fewer" in page.read_text() for page in pages] == [False, True]
