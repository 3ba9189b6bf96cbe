"""What a cluster costs and gains: overhead of a part, two workers against one, 64 simulated ones.

Run: python benchmarks/cluster.py [--frames 40] [--parts 4] [--sleep 1.0]

The first two figures are given in wall time, which is right on an idle machine, and in processor
time, which a busy machine stretches less; the one process and each of the two workers are kept on
one core (Linux only). The third figure is wall time of threads that sleep. Writes
benchmarks/results/cluster.json.
"""

import argparse
import json
import os
import sys
import tempfile
import time
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
from vsrkit.hardware.executors import LocalPool
from vsrkit.upscale import executors, job, produce
from vsrkit.upscale.executors import PartAnswer, PartTask

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


def cpu_of_tree() -> float:
    """Seconds of the processor that this process and its children have used."""
    total, own = 0.0, psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        times = process.cpu_times()
        total += times.user + times.system
    return total


def pin(core: int) -> None:
    """Keep this process and the processes that it starts on one core.

    One PyTorch thread is not one core: x264 and the decoder have threads of their own.
    """
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


class Measuring(DaskExecutor):
    """Measures each part, and the seconds between its submission and its result."""

    parts: list[tuple[Timed, float]]

    def submit(self, call: object, /, *arguments: object) -> Future:
        outer: Future = Future()
        begin = time.monotonic()

        def pass_on(inner: Future) -> None:
            timed = inner.result()
            self.parts.append((timed, time.monotonic() - begin))
            outer.set_result(timed.answer)

        super().submit(timed_part, *arguments).add_done_callback(pass_on)
        return outer


@dataclass
class Cost:
    """Seconds until all parts are written: of the processor in all processes, and of wall."""

    processor: float
    wall: float


def upscale_timed(film: Path, target: Path, executor: DaskExecutor | None = None) -> Cost:
    plain, cost = job.produce_missing, Cost(0, 0)

    def timed(*arguments: object) -> None:
        cpu, wall = cpu_of_tree(), time.monotonic()
        plain(*arguments)  # type: ignore[arg-type]
        cost.processor, cost.wall = cpu_of_tree() - cpu, time.monotonic() - wall

    job.produce_missing = timed  # type: ignore[assignment]
    options = UpscaleOptions(model="vsrt-s", precision="float32")
    upscale_video(film, target, options=options, executor=executor)
    job.produce_missing = plain
    return cost


def measure_cluster(film: Path, target: Path, workers: int) -> tuple[Measuring, Cost]:
    with connect(f"local:{workers}") as executor:
        for core, address in enumerate(executor._alive()):
            executor._client.run(pin, core, workers=[address])
        executor.__class__ = Measuring
        executor.parts = []
        return executor, upscale_timed(film, target, executor)


def measure_one(film: Path, target: Path, frames: int) -> Cost:
    """In a process with one thread, as the children of workers are."""
    produce.PART_FRAMES = frames
    torch.set_num_threads(1)
    return upscale_timed(film, target)


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
        for address in executor._alive():
            executor._workers[address] = _Worker(address, THREADS, WorkerFacts())
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
        default=40,
        help="of a part: whole segments of 20 frames, so that both workers get the same",
    )
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--sleep", type=float, default=1.0)
    options = parser.parse_args()
    produce.PART_FRAMES = options.frames
    os.environ["OMP_NUM_THREADS"] = "1"
    result: dict[str, object] = {"torch": torch.__version__, "dask": distributed.__version__}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        film = write_film(folder / "film.mkv", options.frames * options.parts)
        with LocalPool(1, pin, 0) as pool:
            one = pool.submit(measure_one, film, folder / "one.mkv", options.frames).result()
        many, two = measure_cluster(film, folder / "two.mkv", 2)
        same = (folder / "one.mkv").read_bytes() == (folder / "two.mkv").read_bytes()
        inside = sum(timed.inside for timed, _ in many.parts)
        outside = two.processor - inside
        turnaround = sum(seconds - timed.wall for timed, seconds in many.parts)
        whole = sum(seconds for _, seconds in many.parts)  # from submission to result
        inside_wall = sum(timed.inside_wall for timed, _ in many.parts)
        size = max(sum(len(c) for _, c in t.answer.files) for t, _ in many.parts)
        result |= {
            "model": "vsrt-s, 320x180, float32, each process on one core",
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
            "one process: wall seconds": round(one.wall, 2),
            "two workers: wall seconds": round(two.wall, 2),
            "two workers against one process": round(one.wall / two.wall, 3),
            "one process: processor seconds": round(one.processor, 2),
            "two workers: processor seconds of all processes": round(two.processor, 2),
            "two workers against one process, by processor time": round(
                2 * one.processor / two.processor, 3
            ),
            "bytes of a part": size,
        }
    result["simulation"] = simulate(options.sleep, size)
    print(json.dumps(result, indent=1))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    # Workers import the functions by the name of a module, which `__main__` is not.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import_module("benchmarks.cluster").main()
