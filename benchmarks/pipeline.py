"""Measure the overhead of the pipeline: a whole `vsrkit upscale` compared with the model alone.

    python benchmarks/pipeline.py [--frames 64] [--model vsrt-s]

Both run on the same 320x180 frames (the bundled clip, downscaled), in turn and several times; the
best of each counts. Wall time and processor time are printed: on a shared machine, only the second
is reproducible.
"""

import argparse
import json
import tempfile
import time
from fractions import Fraction
from importlib.resources import as_file, files
from itertools import cycle, islice
from pathlib import Path

import torch

from vsrkit import UpscaleOptions, __version__, load_model, upscale_frames, upscale_video
from vsrkit.hardware.device import resolve_precision
from vsrkit.inference.engine import make_engine
from vsrkit.models.layers.resample import fitted
from vsrkit.video.encode import write_video
from vsrkit.video.read import open_source

RESULT = Path(__file__).parent / "results" / "pipeline.json"
HEIGHT, WIDTH = 180, 320


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--frames", type=int, default=64)
    options.add_argument("--model", default="vsrt-s")
    options.add_argument("--repeat", type=int, default=2)
    options.add_argument("--save", action="store_true", help=f"write {RESULT.name}")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), given.model, given.frames, given.repeat)
    print(json.dumps(result, indent=2))
    if given.save:
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def write_source(folder: Path, count: int) -> Path:
    """Write a video of `count` frames of 320x180 into `folder`."""
    source = folder / "in.mp4"
    with as_file(files("vsrkit").joinpath("assets", "city.mp4")) as path:
        bundled = [fitted(frame, HEIGHT, WIDTH) for frame in open_source(path).frames()]
    there_and_back = [*bundled, *bundled[-2:0:-1]]  # repeats without a cut
    write_video(source, islice(cycle(there_and_back), count), frames_per_second=Fraction(25))
    return source


def measure(folder: Path, name: str, count: int, repeat: int) -> dict[str, object]:
    """Return seconds per frame of both, and their ratio."""
    source = write_source(folder, count)
    frames = list(open_source(source).frames())
    model = load_model(name)
    engine = make_engine(model, precision=resolve_precision("auto", model))
    bare: list[tuple[float, float]] = []
    whole: list[tuple[float, float]] = []
    list(upscale_frames(frames[:4], engine))  # the first call is slower
    for _ in range(repeat):
        with stopwatch(bare):
            for _ in upscale_frames(frames, engine):
                pass
        with stopwatch(whole):
            options = UpscaleOptions(model=model, overwrite=True)
            upscale_video(source, folder / "out.mkv", options=options)
    best_bare = [min(times) / count for times in zip(*bare, strict=True)]
    best_whole = [min(times) / count for times in zip(*whole, strict=True)]
    return {
        "vsrkit": __version__,
        "model": name,
        "frames": count,
        "threads": torch.get_num_threads(),
        "precision": str(engine.precision),
        "model_wall_s": round(best_bare[0], 4),
        "pipeline_wall_s": round(best_whole[0], 4),
        "wall_ratio": round(best_whole[0] / best_bare[0], 3),
        "model_cpu_s": round(best_bare[1], 4),
        "pipeline_cpu_s": round(best_whole[1], 4),
        "cpu_ratio": round(best_whole[1] / best_bare[1], 3),
    }


class stopwatch:  # noqa: N801  used like contextlib.suppress
    """Context manager that appends (wall, processor) seconds of its block to a list."""

    def __init__(self, times: list[tuple[float, float]]) -> None:
        self.times = times

    def __enter__(self) -> None:
        self.begin = time.perf_counter(), time.process_time()

    def __exit__(self, *exception: object) -> None:
        self.times.append(
            (time.perf_counter() - self.begin[0], time.process_time() - self.begin[1])
        )


if __name__ == "__main__":
    main()
