"""What a cluster costs and gains: overhead of a part, two workers against one, 64 simulated ones.

Run: python benchmarks/cluster.py [--frames 60] [--parts 2] [--sleep 1.0]

The first two figures are given in wall time, which is right on an idle machine, and in processor
time, which a busy machine stretches less; the third one is wall time of threads that sleep. Writes
benchmarks/results/cluster.json.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import av
import distributed
import numpy as np
import psutil
import torch

from vsrkit import UpscaleOptions, upscale_video
from vsrkit.cluster import executor as executor_module
from vsrkit.cluster.connect import connect
from vsrkit.cluster.executor import DaskExecutor, _Worker
from vsrkit.cluster.worker import WorkerFacts
from vsrkit.upscale import executors, produce
from vsrkit.upscale.executors import PartAnswer, PartTask
from vsrkit.upscale.options import Progress

RESULTS = Path(__file__).parent / "results" / "cluster.json"
WORKERS, THREADS, PARTS = 8, 8, 3600


def write_film(path: Path, frames: int, width: int = 320, height: int = 180) -> Path:
    """A drifting texture."""
    rng = np.random.default_rng(0)
    scene = rng.integers(0, 255, (height + frames, width + frames, 3), dtype=np.uint8)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=25, options={"crf": "20"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for n in range(frames):
            crop = scene[n : n + height, n : n + width].copy()
            file.mux(stream.encode(av.VideoFrame.from_ndarray(crop, "rgb24")))
        file.mux(stream.encode(None))
    return path


@dataclass
class Timed:
    """A part, and the seconds of its process inside and outside of decoding, model and encoding."""

    answer: PartAnswer
    inside: float  # of the processor
    inside_wall: float
    wall: float


def timed_part(task: PartTask) -> Timed:
    """`run_part` in a process of a worker, with the time of `produce` measured."""
    plain, inside, inside_wall = executors.produce, 0.0, 0.0

    def timed(*arguments: object, **options: object) -> None:
        nonlocal inside, inside_wall
        begin, wall = time.process_time(), time.monotonic()
        plain(*arguments, **options)  # type: ignore[arg-type]
        inside += time.process_time() - begin
        inside_wall += time.monotonic() - wall

    executors.produce = timed  # type: ignore[assignment]
    wall = time.monotonic()
    try:
        answer = executors.run_part(task)
    finally:
        executors.produce = plain
    return Timed(answer, inside, inside_wall, time.monotonic() - wall)


def cpu_of_tree(processes: list[psutil.Process]) -> float:
    """Seconds of the processor that processes and their children have used."""
    total = 0.0
    for process in processes:
        for each in [process, *process.children(recursive=True)]:
            times = each.cpu_times()
            total += times.user + times.system
    return total


class Measuring(DaskExecutor):
    """Measures each part, and the processor time of the whole cluster while parts run."""

    parts: list[tuple[Timed, float]]
    begun: float

    def submit(self, call: object, /, *arguments: object) -> Future:
        if not self.begun:
            self.begun = cpu_of_tree([psutil.Process()])
            self.began = time.monotonic()
        outer: Future = Future()
        begin = time.monotonic()

        def pass_on(inner: Future) -> None:
            timed = inner.result()
            self.parts.append((timed, time.monotonic() - begin))
            self.used = cpu_of_tree([psutil.Process()]) - self.begun
            self.took = time.monotonic() - self.began
            outer.set_result(timed.answer)

        super().submit(timed_part, *arguments).add_done_callback(pass_on)
        return outer


def measure_cluster(film: Path, folder: Path, workers: int) -> Measuring:
    options = UpscaleOptions(model="vsrt-s", precision="float32")
    with connect(f"local:{workers}") as executor:
        executor.__class__ = Measuring
        executor.parts, executor.begun = [], 0.0
        upscale_video(film, folder / f"{workers}.mkv", options=options, executor=executor)
    return executor


def measure_one(film: Path, folder: Path) -> tuple[float, float]:
    """Processor and wall seconds of the parts in one process with one thread."""
    plain, used, took = produce.upscale_pieces, 0.0, 0.0
    torch.set_num_threads(1)
    begin = wall = 0.0

    def timed(*arguments: object, **options: object) -> Iterator[object]:
        nonlocal begin, wall
        begin, wall = time.process_time(), time.monotonic()
        return plain(*arguments, **options)

    produce.upscale_pieces = timed
    options = UpscaleOptions(model="vsrt-s", precision="float32", chunk=0)
    seen = []

    def on_progress(progress: Progress) -> None:
        nonlocal used, took
        if progress.stage == "upscale" and progress.done:
            used, took = time.process_time() - begin, time.monotonic() - wall
            seen.append(progress.done)

    upscale_video(film, folder / "one.mkv", options=options, on_progress=on_progress)
    produce.upscale_pieces = plain
    return used, took


def sleeping_call(
    settings: object, call: object, arguments: tuple[float, int]
) -> tuple[float, float, bytes]:
    """In place of `run_call`: sleeps in the thread of the worker, returns as much as a part."""
    seconds, size = arguments
    begin = time.monotonic()
    time.sleep(seconds)
    return begin, time.monotonic(), b"\0" * size


def simulate(seconds: float, size: int) -> dict[str, float]:
    """Parts that sleep on 64 threads: how long these are busy."""
    plain = executor_module.run_call
    executor_module.run_call = sleeping_call
    with (
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=THREADS, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = DaskExecutor(client)
        for address, about in executor._alive().items():
            executor._workers[address] = _Worker(address, about["host"], THREADS, WorkerFacts())
            executor._known.add(address)
        cpu, begin = time.process_time(), time.monotonic()
        waiting, done, results = set(), 0, []
        while done < PARTS or waiting:
            while done < PARTS and len(waiting) < executor.slots:
                waiting.add(executor.submit(None, seconds, size))
                done += 1
            finished, waiting = wait(waiting, return_when="FIRST_COMPLETED")
            results += [future.result()[:2] for future in finished]
        took = time.monotonic() - begin
        cpu = time.process_time() - cpu
        executor.shutdown()
    executor_module.run_call = plain
    busy = sum(end - start for start, end in results) / (took * WORKERS * THREADS)
    return {
        "parts": PARTS,
        "threads": WORKERS * THREADS,
        "seconds of a part": seconds,
        "bytes of a part": size,
        "busy": round(busy, 4),
        "scheduler, workers and client, ms of processor for a part": round(1000 * cpu / PARTS, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--frames",
        type=int,
        default=60,
        help="of a part: whole segments of 20 frames, so that both workers get the same",
    )
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--sleep", type=float, default=1.0)
    options = parser.parse_args()
    produce.PART_FRAMES = options.frames
    os.environ["OMP_NUM_THREADS"] = "1"
    result: dict[str, object] = {"torch": torch.__version__, "dask": distributed.__version__}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        film = write_film(folder / "film.mkv", options.frames * options.parts)
        one, one_wall = measure_one(film, folder)
        many = measure_cluster(film, folder, 2)
        same = (folder / "one.mkv").read_bytes() == (folder / "2.mkv").read_bytes()
        inside = sum(timed.inside for timed, _ in many.parts)
        outside = many.used - inside
        turnaround = sum(seconds - timed.wall for timed, seconds in many.parts)
        whole = sum(seconds for _, seconds in many.parts)  # from submission to result
        inside_wall = sum(timed.inside_wall for timed, _ in many.parts)
        size = max(sum(len(c) for _, c in t.answer.files) for t, _ in many.parts)
        result |= {
            "model": "vsrt-s, 320x180, float32, one thread",
            "frames of a part": options.frames,
            "same bytes": same,
            "processor seconds of a part": round(inside / options.parts, 2),
            "overhead: processor time outside of decoding, model and encoding": round(
                outside / inside, 4
            ),
            "overhead: wall time outside of decoding, model and encoding": round(
                (whole - inside_wall) / whole, 4
            ),
            "overhead: wait between submission and result, s per part": round(
                turnaround / options.parts, 3
            ),
            "one process: wall seconds": round(one_wall, 2),
            "two workers: wall seconds": round(many.took, 2),
            "two workers against one process": round(one_wall / many.took, 3),
            "one process: processor seconds": round(one, 2),
            "two workers: processor seconds of all processes": round(many.used, 2),
            "two workers against one process, by processor time": round(2 * one / many.used, 3),
            "bytes of a part": size,
        }
    result["simulation"] = simulate(options.sleep, size)
    print(json.dumps(result, indent=1))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    # Workers import the functions by the name of a module, which `__main__` is not.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import_module("benchmarks.cluster").main()
