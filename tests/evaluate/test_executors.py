"""Clips on the workers of an executor: the same scores and frames as in one process."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.clips import noise_picture

from vsrkit.evaluate.benchmark import evaluate_models


class Copying(ThreadPoolExecutor):
    """Threads that get copies of the tasks, as other processes do."""

    def submit(self, fn, task):
        return super().submit(fn, pickle.loads(pickle.dumps(task)))


@pytest.fixture
def clips(tmp_path):
    for name in ("a", "b", "c"):
        folder = tmp_path / "set" / name
        folder.mkdir(parents=True)
        for number in range(4):
            picture = noise_picture(ord(name) * 10 + number, 64, 48, "yuv420p", smooth=True)
            picture.to_image().save(folder / f"{number:04d}.png")
    return tmp_path / "set"


@pytest.mark.parametrize(("model", "views"), [("bicubic", 1), ("vsrt-s", 2)])
def test_scores_and_frames_are_those_of_one_process(clips, tmp_path, model, views):
    (one,) = evaluate_models([model], clips, views=views, save_frames=tmp_path / "one")
    with Copying(2) as executor:
        (many,) = evaluate_models(
            [model], clips, views=views, save_frames=tmp_path / "many", executor=executor
        )
    timed = {"seconds_per_frame": 0.0, "peak_memory_mb": 0.0}
    assert replace(many, **timed) == replace(one, **timed)
    frames = {
        folder: {p.relative_to(tmp_path / folder): p.read_bytes() for p in files(tmp_path / folder)}
        for folder in ("one", "many")
    }
    assert len(frames["one"]) == 12
    assert frames["many"] == frames["one"]


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_clip_that_changes_meanwhile_is_refused(clips):
    class Changing(Copying):
        def submit(self, fn, task):
            task.hr.paths[0].write_bytes(b"other")
            return super().submit(fn, task)

    with Changing(1) as executor, pytest.raises(Exception, match="has another content"):
        evaluate_models(["bicubic"], clips, executor=executor)
