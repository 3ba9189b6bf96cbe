"""Measure training: overhead of the loop, speed of convolutions, one step of `vsrt-reds`, data.

    python benchmarks/training.py [--threads N] [--rounds N] [--json FILE]
    python benchmarks/training.py supply [--folder DIR] [--rounds N] [--json FILE]

The step of `vsrt-reds` (batch 1, five frames of 64x64) runs in four processes in turn: plain
(unmodified PyTorch: float32, channels-first), as in vsrkit's training (the precision that `auto`
chooses, freed memory kept), the same in float32, and plain with activation checkpointing. Needs
16 GB of memory and some minutes.

`supply` measures how many training clips a worker prepares in a second, with the decoded frames in
the page cache (warm) and on disk only (cold), against what an A100 needs. It writes 4 GB of decoded
frames to DIR, a folder on the disk to measure, and removes them.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from vsrkit.data.clips import Clip
from vsrkit.data.degrade import degrader_named
from vsrkit.hardware.device import (
    Precision,
    largest_convolution,
    measure_speeds,
    resolve_precision,
    set_memory_layout,
)
from vsrkit.hardware.memory import UNLIMITED, keep_freed_memory
from vsrkit.models.zoo import build_model
from vsrkit.train.config import Source, TrainConfig
from vsrkit.train.loop import train
from vsrkit.train.losses import charbonnier
from vsrkit.train.run_setup import recompute_activations, set_training_layout
from vsrkit.train.training_data import Batches, TrainingSource
from vsrkit.video.images import write_image

CASES = ("plain", "auto", "float32", "recomputed")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedData:
    """A published training set, as many of its clips as are written, and its model."""

    model: str
    frames: int  # of a training clip
    shape: tuple[int, int, int]  # frames, height and width of a clip of the set
    clips: int
    files: int


SUPPLY = {
    "REDS": PublishedData(model="vsrt-reds", frames=5, shape=(100, 720, 1280), clips=266, files=10),
    "Vimeo-90K": PublishedData(
        model="vsrt-vimeo", frames=7, shape=(7, 256, 448), clips=64_548, files=500
    ),
}
# FLOP/s of an A100 (NVIDIA's data sheet); half of it is taken as the most that training reaches.
A100 = {"float32": 19.5e12, "TF32": 156e12}
CROP = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("steps", "supply"), default="steps")
    parser.add_argument("--folder", type=Path, help="for the frames of supply")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="steps of vsrt-reds, each case")
    parser.add_argument("--loop-steps", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": args.threads,
        "load average": os.getloadavg()[0],
        "processors": os.cpu_count(),
    }
    if args.what == "supply":
        needs = {name: cards_need(data) for name, data in SUPPLY.items()}
        torch.set_num_threads(1)  # as in the workers of PyTorch's loader
        for name, data in SUPPLY.items():
            with tempfile.TemporaryDirectory(dir=args.folder) as folder:
                results[name] = supply(data, Path(folder), args.rounds) | needs[name]
    else:
        results["convolutions"] = convolution_speed()
        results["loop"] = loop_share(args.loop_steps)
        results["vsrt-reds step"] = steps_of_reds(args.threads, args.rounds)
    print(json.dumps(results, indent=2))
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def supply(data: PublishedData, folder: Path, rounds: int, pairs: int = 40) -> dict[str, Any]:
    """Measure the training clips that one worker makes in a second, warm and cold.

    Each round of `pairs` clips is read in both states, after each other. The file of a clip stands
    for several clips of the set, so that the draw is from as many clips as the set has.
    """
    t, h, w = data.shape
    noise = np.random.default_rng(0).integers(0, 256, (t, h, w, 3), np.uint8)
    paths = [folder / f"{number}.rgb" for number in range(data.files)]
    for number, path in enumerate(paths):
        path.write_bytes(np.roll(noise, number).tobytes())
    names = [f"{number}" for number in range(data.clips)]
    clips = [Clip(n, paths[i % data.files], (t, h, w, 3)) for i, n in enumerate(names)]
    batches = Batches(
        sources=[TrainingSource(clips=clips, weight=1.0, degradation=degrader_named("bi"))],
        seed=0, batch_size=1, accumulate=1, frames=data.frames, crop=CROP, flips=True,
        reversal=True,
    )  # fmt: skip
    batches.pair(0)
    speeds: dict[str, list[float]] = {"warm": [], "cold": []}
    busy: dict[str, list[float]] = {"warm": [], "cold": []}
    megabytes = []
    for number in range(rounds):
        todo = range(number * pairs, (number + 1) * pairs)
        for state in ("cold", "warm"):  # the first leaves its frames in memory for the second
            if state == "cold":
                for path in paths:
                    drop_from_memory(path)
            start, cpu, read = time.perf_counter(), time.process_time(), bytes_read()
            for pair in todo:
                batches.pair(pair)
            speeds[state].append(pairs / (time.perf_counter() - start))
            busy[state].append(pairs / (time.process_time() - cpu))
            if state == "cold":
                megabytes.append((bytes_read() - read) / pairs / 1e6)
    return {
        "clips per second of a worker": {
            state: {"median": float(np.median(s)), "least": min(s), "most": max(s)}
            for state, s in speeds.items()
        },
        # What a worker makes on a core of its own, if the disk does not keep it waiting.
        "clips per second of processor time": {s: float(np.median(b)) for s, b in busy.items()},
        "MB read for a cold clip": float(np.median(megabytes)),
    }


def drop_from_memory(path: Path) -> None:
    """Remove a file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())  # pages that are not written yet stay
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_read() -> int:
    """Bytes that this process has read from disk."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def cards_need(data: PublishedData) -> dict[str, Any]:
    """Count the arithmetic of a training clip, and the clips that an A100 takes in a second."""
    model = build_model(data.model)
    counter = FlopCounterMode(display=False)
    with FakeTensorMode(allow_non_fake_inputs=True), counter:  # only shapes are computed
        model(torch.rand(1, data.frames, 3, CROP, CROP)).sum().backward()
    flop = counter.get_total_flops()
    return {
        "TFLOP per clip, forward and backward": flop / 1e12,
        "clips per second of an A100 at half its peak": {
            kind: peak / 2 / flop for kind, peak in A100.items()
        },
    }


def loop_share(steps: int) -> dict[str, float]:
    """Return seconds per step of `vsrt-s` in the training loop, and the share outside the model."""
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder) / "clip.rgb"
        noise = np.random.default_rng(0).integers(0, 256, (400, 412, 3), np.uint8)
        # A picture that moves by one pixel per frame.
        pixels = np.stack([noise[:, shift : shift + 400] for shift in range(12)])
        _write_frames(clip, pixels)
        config = TrainConfig(
            run_dir=f"{folder}/run", cache_dir=folder, data=(Source(path=f"{folder}/clip"),),
            model="vsrt-s", validation_share=0.0, steps=steps, batch_size=3, frames=7, crop=48,
            optimizer="muon", clip_gradients=0.5, ema_decay=0.998, log_every=steps,
            save_every=steps,
        )  # fmt: skip
        train(config)
        row = json.loads((Path(folder) / "run" / "log.jsonl").read_text().splitlines()[0])
    return {"seconds per step": row["seconds"], "share outside": row["outside"]}


def _write_frames(path: Path, pixels: np.ndarray) -> None:
    """Write the frames as a folder of PNG files."""
    folder = path.with_suffix("")
    folder.mkdir()
    for number, frame in enumerate(pixels):
        write_image(folder / f"{number:03}.png", torch.from_numpy(frame).permute(2, 0, 1) / 255)


def convolution_speed() -> dict[str, float]:
    """Return GFLOP/s of the convolutions of a training step of `vsrt-s`, and of the fastest one."""
    model = build_model("vsrt-s")
    precision = resolve_precision("auto", model)
    set_memory_layout(model, precision)
    lr, hr = torch.rand(3, 7, 3, 48, 48), torch.rand(3, 7, 3, 192, 192)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, precision.dtype == "bfloat16"):
            loss = charbonnier(model(lr), hr)
        loss.backward()

    step()
    counter = FlopCounterMode(display=False)
    with counter:
        step()
    counts = counter.get_flop_counts()["Global"]
    flop = sum(n for op, n in counts.items() if "convolution" in str(op))
    names = ("aten::mkldnn_convolution", "aten::convolution_backward", "aten::_slow_conv2d_forward")
    times = []
    for _ in range(3):  # the best counts: other processes only make a run slower
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            step()
        rows = seen.key_averages()
        times.append(sum(row.self_cpu_time_total for row in rows if row.key in names))
    convolution = largest_convolution(model)
    assert convolution is not None
    peak = measure_speeds(convolution, torch.device("cpu"))[precision]
    speed = flop / min(times) / 1e3
    return {"GFLOP/s": speed, "best measured": peak, "share": speed / peak}


def steps_of_reds(threads: int, rounds: int) -> dict[str, dict[str, float]]:
    """Run each case in its own process, in turn, so that a slow phase affects all of them."""
    with tempfile.TemporaryDirectory() as folder:
        runners = {case: Runner(case, threads, Path(folder)) for case in CASES}
        for _ in range(1 + rounds):  # the first warms up
            for runner in runners.values():
                runner.run()
        results = {case: runner.end() for case, runner in runners.items()}
        gradients = {case: load_file(runner.file) for case, runner in runners.items()}
    for case, result in results.items():
        result["gradients differ by"] = difference(gradients["plain"], gradients[case])
    plain = results["plain"]
    results["ratios"] = {
        "time of auto": results["auto"]["seconds"] / plain["seconds"],
        "processor time of auto": results["auto"]["cpu seconds"] / plain["cpu seconds"],
        "time of float32": results["float32"]["seconds"] / plain["seconds"],
        "memory of recomputed": results["recomputed"]["peak MB"] / plain["peak MB"],
    }
    return results


class Runner:
    """A process that runs one training step of a case on request."""

    def __init__(self, case: str, threads: int, folder: Path) -> None:
        self.file = folder / f"{case}.safetensors"
        self.pipe, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(
            target=run_steps_of_reds, args=(there, case, threads, self.file)
        )
        self.process.start()

    def run(self) -> None:
        """Run one step and wait until it is done."""
        self.pipe.send("step")
        self.pipe.recv()

    def end(self) -> dict[str, float]:
        """End the process and return its measurements; the gradients are in `file`."""
        self.pipe.send("end")
        result: dict[str, float] = self.pipe.recv()
        self.process.join()
        return result


def run_steps_of_reds(pipe: Any, case: str, threads: int, gradients: Path) -> None:
    """Measure the best time, after one warm-up step, and peak memory of forward and backward."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = build_model("vsrt-reds")
    precision = Precision("float32", False)
    if case in ("auto", "float32"):
        precision = resolve_precision(case, model)
        keep_freed_memory(UNLIMITED)
    set_training_layout(model, precision)
    if case == "recomputed":
        recompute_activations(model)
    lr, hr = torch.rand(1, 5, 3, 64, 64), torch.rand(1, 5, 3, 256, 256)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    while pipe.recv() == "step":
        model.zero_grad()
        start, cpu = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, precision.dtype == "bfloat16"):
            sr = model(lr)
        charbonnier(sr, hr).backward()
        times.append((time.perf_counter() - start, time.process_time() - cpu))
        pipe.send("done")
    seconds, cpu_seconds = min(times[1:])
    kept = {n: p.grad.contiguous() for n, p in model.named_parameters() if p.grad is not None}
    save_file(kept, gradients)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send({"seconds": seconds, "cpu seconds": cpu_seconds, "peak MB": (peak - before) / 1024})


def difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Return the norm of a - b relative to the norm of a."""
    apart = sum(float((a[n] - b[n]).double().square().sum()) for n in a) ** 0.5
    return apart / sum(float(a[n].double().square().sum()) for n in a) ** 0.5


if __name__ == "__main__":
    main()
