"""Measure the speed of models as ratios within one run, and their share of the peak speed.

    python benchmarks/speed.py precision      vsrt-reds at 5x64x64: layouts, types, centre frame;
                                              vsrt-s and vsrt-m at 180x320: floats and int8
    python benchmarks/speed.py int8           only the second part of it
    python benchmarks/speed.py small          vsrt-s at three sizes: time, memory, share of the peak
    python benchmarks/speed.py zoo            every entry at 180x320 (some: --models NAME ...)
    python benchmarks/speed.py windows        overlapping windows with and without the window cache
    python benchmarks/speed.py deform         deformable and plain convolution of the same shapes

Each prints a table and writes benchmarks/results/speed-<suite>.json. Times are the best of a few
interleaved rounds, because other processes on the machine only make a run slower. On a busy
machine, `zoo --cpu-time` uses one thread and counts processor time; the file of `zoo` holds a run
of either kind, in which a measured entry replaces its old row.
"""

import argparse
import json
import multiprocessing
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from int8 import int8_rows
from timing import best_seconds
from vsrkit import __version__
from vsrkit.hardware.device import (
    CANDIDATES,
    Convolution,
    Precision,
    describe_processor,
    inference_context,
    measure_speeds,
    resolve_precision,
    set_memory_layout,
)
from vsrkit.hardware.memory import keep_freed_memory
from vsrkit.inference.engine import Engine, make_engine
from vsrkit.models.layers.deform import deform_conv
from vsrkit.models.spec import Carried, Piece, Segments, Window
from vsrkit.models.vsrt import REDS, VSRT
from vsrkit.models.zoo import build_model, list_models
from vsrkit.models.zoo.listing import CountOnly

RESULTS = Path(__file__).parent / "results"
CENTRE = slice(2, 3)


def gflop_of(run: Callable[[], Any]) -> float:
    """Return the arithmetic of one run in GFLOP."""
    with torch.no_grad(), CountOnly() as counter:
        run()
    return counter.flop / 1e9


def precision_suite(rounds: int) -> dict[str, Any]:
    """Time vsrt-reds on one window of 64x64 by memory layout, number type and frames returned.

    "plain" is unmodified PyTorch in its own process and the reference of all ratios: float32,
    channels-first, one operation after another, freed memory returned to the system. The others
    run as in vsrkit (`inference_context`, `keep_freed_memory`): both towers of a layer in parallel.
    """
    torch.manual_seed(0)
    released = VSRT(REDS).eval()
    clip = torch.rand(1, REDS.frames, 3, 64, 64)
    auto = resolve_precision("auto", released)
    speeds = measure_speeds(Convolution(64, 64, 3, 1), torch.device("cpu"))

    def run(precision: Precision, keep: slice | None = None) -> Callable[[], Tensor]:
        model = deepcopy(released)
        set_memory_layout(model, precision)

        def forward() -> Tensor:
            with inference_context(precision, "cpu"):
                return model(clip, keep=keep)

        return forward

    # Leaves out precisions that crash here (speed 0) and emulated bfloat16 (minutes per run).
    usable = [c for c in CANDIDATES if speeds[c] >= 0.2 * max(speeds.values())]

    keep_freed_memory()
    cases = {str(c): run(c) for c in usable} | {f"{auto}, centre frame": run(auto, CENTRE)}
    with plain_runner() as run_plainly:
        seconds = best_seconds({"plain": run_plainly} | cases, rounds)
    plain = seconds.pop("plain")
    whole, centre = seconds[str(auto)], seconds[f"{auto}, centre frame"]
    fastest = min(seconds[str(c)] for c in usable)
    print("vsrt-reds, 5x64x64, all frames unless noted; plain float32 channels-first = 1.00")
    for name, value in ({"plain": plain} | seconds).items():
        print(f"  {name:40} {value:8.2f} s  {plain / value:5.2f} x")
    for candidate in set(CANDIDATES) - set(usable):
        print(f"  {candidate!s:40} not run: {speeds[candidate]:.0f} GFLOP/s in a convolution")
    print(
        f"  auto is {auto}: {fastest / whole:.3f} of the best, {plain / whole:.2f} x the plain one"
    )
    print(f"  the centre frame alone: {whole / centre:.2f} x on top")
    return {
        "int8": int8_rows(rounds),
        "seconds": {"plain": plain} | seconds,
        "convolution_gflops": {str(c): speeds[c] for c in CANDIDATES},
        "auto": str(auto),
        "auto_over_plain": plain / whole,
        "auto_of_best": fastest / whole,
        "centre_over_all": whole / centre,
    }


@contextmanager
def plain_runner() -> Iterator[Callable[[], None]]:
    """Yield a function that runs vsrt-reds once, as plain PyTorch, in another process."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_run_plainly, args=(there,))
    process.start()
    here.recv()  # "ready"

    def run() -> None:
        here.send("run")
        here.recv()

    yield run
    here.send("end")
    process.join()


def _run_plainly(pipe: Any) -> None:
    torch.manual_seed(0)
    model, clip = VSRT(REDS).eval(), torch.rand(1, REDS.frames, 3, 64, 64)
    pipe.send("ready")
    while pipe.recv() == "run":
        with torch.inference_mode():
            model(clip)
        pipe.send("done")


def small_suite(rounds: int) -> dict[str, Any]:
    """Time, share of a convolution's peak speed, and memory of vsrt-s, per frame of a segment."""
    keep_freed_memory()
    model = build_model("vsrt-s").eval()
    precision = resolve_precision("auto", model)
    set_memory_layout(model, precision)
    sizes = [(90, 160), (180, 320), (360, 640)]
    length = 4
    runs: dict[str, Callable[[], Any]] = {}
    gflop: dict[str, float] = {}
    for h, w in sizes:
        clip = torch.rand(1, length, 3, h, w)
        runs[f"{h}x{w}"] = lambda clip=clip: _forward(model, clip, precision)
        gflop[f"{h}x{w}"] = gflop_of(lambda clip=clip: model(clip)) / length
        runs[f"peak {h}x{w}"] = usual_convolution(h, w, precision)
    seconds = best_seconds(runs, rounds)
    rows = []
    print(f"vsrt-s in {precision}, {length} frames at once")
    for h, w in sizes:
        name = f"{h}x{w}"
        frame = seconds[name] / length
        peak = 2 * h * w * 64 * 64 * 9 / seconds[f"peak {name}"] / 1e9
        share = gflop[name] / frame / peak
        memory = peak_memory(h, w, "vsrt-s", 20, 20)
        rows.append(
            {"size": name, "seconds": frame, "gflop": gflop[name], "peak_gflops": peak}
            | {"share_of_peak": share, "peak_memory_mb": memory}
        )
        print(
            f"  {name:8} {frame:7.3f} s/frame  {gflop[name]:6.1f} GFLOP  "
            f"{gflop[name] / frame:6.1f} GFLOP/s = {share:4.0%} of the convolution's {peak:.0f}  "
            f"{memory:.0f} MB"
        )
    for a, b in pairwise(rows):
        doubling = (b["seconds"] / a["seconds"]) ** 0.5
        print(f"  {a['size']} -> {b['size']}: {doubling:.2f} x the time per doubling of pixels")
        b["time_per_doubling"] = doubling
    return {"precision": str(precision), "rows": rows}


def usual_convolution(h: int, w: int, precision: Precision) -> Callable[[], Any]:
    """Return a function that runs a 3x3 convolution of 64 channels on one frame."""
    layer = nn.Conv2d(64, 64, 3, padding=1)
    set_memory_layout(layer, precision)
    layout = torch.channels_last if precision.channels_last else torch.contiguous_format
    x = torch.rand(1, 64, h, w).to(getattr(torch, precision.dtype), memory_format=layout)
    return lambda: _forward(layer, x, precision)


def _forward(model: nn.Module, clip: Tensor, precision: Precision) -> Any:
    with inference_context(precision, "cpu"):
        return model(clip)


MEMORY = """
import re, sys, torch
from itertools import islice
from pathlib import Path
from vsrkit.models.zoo import build_model
from vsrkit.inference.engine import make_engine, upscale_frames

def highest():  # MB since the last reset
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024

name, h, w, frames, wanted = sys.argv[1], *map(int, sys.argv[2:])
engine = make_engine(build_model(name))
Path("/proc/self/clear_refs").write_text("5")
before = highest()
for _ in islice(upscale_frames((torch.rand(3, h, w) for _ in range(frames)), engine), wanted):
    pass
print(highest() - before)
"""


def peak_memory(h: int, w: int, name: str, frames: int, wanted: int) -> float:
    """Return the MB that a separate process needs in addition to the loaded model.

    wanted: number of output frames after which the process ends
    """
    arguments = [sys.executable, "-c", MEMORY, name, *map(str, (h, w, frames, wanted))]
    return float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)


def zoo_suite(rounds: int, names: Sequence[str] = (), *, cpu_time: bool = False) -> dict[str, Any]:
    """Time every entry at 180x320 with random weights, in the precision that `auto` chooses.

    names: the entries to time; empty for all
    cpu_time: processor time of one thread instead of the time that passes

    Each entry runs in turn with vsrt-s: on a busy machine the ratio means more than the seconds.
    One frame of a window model costs one window. Recurrent models run four frames, without
    warm-up. A network of more than 2 TFLOP per frame is timed on 64x64 pixels and scaled up.
    Memory is that of the whole size for all, with tiles where a model or the machine needs them.
    """
    keep_freed_memory()
    h, w = 180, 320
    rows = []
    reference = build_model("vsrt-s").eval()
    reference_precision = resolve_precision("auto", reference)
    set_memory_layout(reference, reference_precision)
    reference_clip = torch.rand(1, 3, 3, h, w)
    print(f"{'model':28} {'s/frame':>8} {'/ vsrt-s':>8} {'GFLOP':>9} {'GFLOP/s':>8} {'MB':>7}")
    for name in names or list_models():
        model: Any = build_model(name).eval()
        precision = resolve_precision("auto", model)
        set_memory_layout(model, precision)
        frames, kept = _clip_length(model)
        side = model.spec.tile or 64
        gflop = gflop_of(lambda m=model, f=frames, s=side: m(torch.rand(1, f, 3, s, s))) / kept
        per_frame = gflop * h * w / side**2
        if per_frame < 2000 and model.spec.tile is None:
            clip = torch.rand(1, frames, 3, h, w)[..., : _fit(h, model), : _fit(w, model)]
        else:
            clip = torch.rand(1, frames, 3, side, side)
        share = clip.shape[-2] * clip.shape[-1] / (h * w)
        seconds = best_seconds(
            {
                "this": lambda m=model, c=clip, p=precision: _forward(m, c, p),
                "vsrt-s": lambda: _forward(reference, reference_clip, reference_precision),
            },
            rounds,
            time.process_time if cpu_time else time.perf_counter,
        )
        frame = seconds["this"] / kept / share
        ratio = frame / (seconds["vsrt-s"] / reference_clip.shape[1])
        memory = peak_memory(h, w, name, frames, kept)
        rows.append(
            {"model": name, "seconds": frame, "times_vsrt_s": ratio, "gflop": per_frame}
            | {"scaled": share < 1, "gflops": per_frame / frame, "peak_memory_mb": memory}
        )
        print(
            f"{name:28} {frame:8.2f} {ratio:8.2f} {per_frame:9.1f} "
            f"{per_frame / frame:8.1f} {memory:7.0f}"
        )
    return {"size": f"{h}x{w}", "cpu_time": cpu_time, "rows": rows}


def merge_runs(path: Path, run: dict[str, Any]) -> dict[str, Any]:
    """Return the runs of a results file, with one row replaced for every row of `run`.

    A file has at most two runs: of the time that passes, and of processor time.
    """
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []
    measured = {row["model"] for row in run["rows"]}
    for old in runs:
        if old["cpu_time"] == run["cpu_time"]:
            kept = [row for row in old["rows"] if row["model"] not in measured]
            run = {**run, "rows": kept + run["rows"]}
    return {"runs": [r for r in runs if r["cpu_time"] != run["cpu_time"]] + [run]}


def _clip_length(model: Any) -> tuple[int, int]:
    """Return the number of frames to run, and how many of them are output."""
    match model.spec.context:
        case Window(size=size):
            return size, 1
        case Segments() | Carried():
            frames = max(4, model.spec.min_frames)  # RVRT works on pairs
            return frames, frames
    raise TypeError(model.spec.context)


def _fit(side: int, model: Any) -> int:
    return side // model.spec.multiple * model.spec.multiple


def windows_suite(rounds: int) -> dict[str, Any]:
    """Time consecutive windows at 64x64 with and without the window cache."""
    rows = []
    print(f"{'model':>12} {'uncached':>8} {'cached':>8} {'ratio':>6}   seconds per window")
    for name in ("vsrt-reds", "vsrt-vimeo", "edvr-m", "tdan"):
        cached = make_engine(build_model(name))
        uncached = replace(cached, window_caches=None)
        size, count = cached.spec.context.size, 3  # type: ignore[union-attr]
        frames = torch.rand(size + count, 3, 64, 64)
        middle = slice(size // 2, size // 2 + 1)

        def run(engine: Engine, first: int, last: int) -> None:
            for i in range(first, last):
                list(engine.run(Piece(frames[i : i + size], middle)))  # noqa: B023  used at once

        with_cache, without_cache = [], []
        for _ in range(rounds):
            for engine, times in ((cached, with_cache), (uncached, without_cache)):
                run(engine, 0, 1)
                begin = time.perf_counter()
                run(engine, 1, count + 1)
                times.append((time.perf_counter() - begin) / count)
        slow, fast = min(without_cache), min(with_cache)
        row = {"model": name, "uncached_s": slow, "cached_s": fast, "ratio": slow / fast}
        rows.append(row)
        print(f"{name:>12} {slow:8.3f} {fast:8.3f} {slow / fast:6.2f}")
    return {"rows": rows}


def deform_suite(rounds: int) -> dict[str, Any]:
    """Time deformable convolution (8 groups, with masks, as in EDVR) and a plain 3x3 one."""
    rows = []
    print(f"{'shape':>16} {'plain':>8} {'deform':>8} {'ratio':>6}")
    for channels, h, w in ((64, 64, 64), (64, 180, 320), (128, 180, 320)):
        x, weight = torch.rand(1, channels, h, w), torch.rand(channels, channels, 3, 3)
        offset, mask = torch.randn(1, 2 * 8 * 9, h, w), torch.rand(1, 8 * 9, h, w)
        with torch.inference_mode():
            seconds = best_seconds(
                {
                    "plain": lambda a=x, k=weight: nn.functional.conv2d(a, k, padding=1),
                    "deform": lambda a=x, o=offset, m=mask, k=weight: deform_conv(a, o, m, k),
                },
                rounds,
            )
        ratio = seconds["deform"] / seconds["plain"]
        rows.append({"channels": channels, "height": h, "width": w, **seconds, "ratio": ratio})
        shape = f"{channels}x{h}x{w}"
        print(f"{shape:>16} {seconds['plain']:8.4f} {seconds['deform']:8.4f} {ratio:6.1f}")
    return {"rows": rows}


SUITES: dict[str, Callable[[int], dict[str, Any]]] = {
    "deform": deform_suite,
    "int8": lambda rounds: {"rows": int8_rows(rounds)},
    "precision": precision_suite,
    "small": small_suite,
    "windows": windows_suite,
    "zoo": zoo_suite,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=(), help="entries of the suite zoo")
    parser.add_argument("--cpu-time", action="store_true", help="of one thread, for the suite zoo")
    arguments = parser.parse_args()
    if arguments.cpu_time:
        torch.set_num_threads(1)
    if arguments.suite == "zoo":
        result = zoo_suite(arguments.rounds, arguments.models, cpu_time=arguments.cpu_time)
    else:
        result = SUITES[arguments.suite](arguments.rounds)
    machine = {
        "processor": describe_processor(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "vsrkit": __version__,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"speed-{arguments.suite}.json"
    result = {"machine": machine, **result}
    if arguments.suite == "zoo":
        result = merge_runs(path, result)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
