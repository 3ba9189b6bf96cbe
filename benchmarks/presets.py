"""Time a whole `vsrkit upscale` with each preset, bicubic and BasicVSR.

    python benchmarks/presets.py [--frames 60] [--rounds 2]

A 320x180 video (the bundled clip, downscaled) is upscaled from file to file, with the models in
turn. GFLOP include the warm-up frames of every segment; their share of the speed of a single
convolution of BasicVSR's shape, measured in the same run, is printed.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline import HEIGHT, WIDTH, write_source
from speed import best_seconds, usual_convolution
from vsrkit import UpscaleOptions, __version__, load_model, upscale_video
from vsrkit.hardware.device import resolve_precision
from vsrkit.hardware.memory import keep_freed_memory
from vsrkit.models.zoo import build_model
from vsrkit.models.zoo.listing import gflop_per_megapixel

RESULT = Path(__file__).parent / "results" / "presets.json"
TEACHER = "basicvsr-vimeo90k-bi"
MODELS = ("bicubic", "vsrt-s", "vsrt-s-web", "vsrt-m", TEACHER)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--frames", type=int, default=60)
    options.add_argument("--rounds", type=int, default=2)
    given = options.parse_args()
    keep_freed_memory()
    peak = convolution_peak()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), given.frames, given.rounds, peak)
    result = {"vsrkit": __version__, "frames": given.frames, "size": f"{HEIGHT}x{WIDTH}"}
    content = result | {"threads": torch.get_num_threads(), "peak_gflops": peak, "rows": rows}
    RESULT.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def convolution_peak() -> float:
    """Return GFLOP/s of a 3x3 convolution of 64 channels on one frame, in precision `auto`."""
    precision = resolve_precision("auto", nn.Conv2d(64, 64, 3))
    seconds = best_seconds({"peak": usual_convolution(HEIGHT, WIDTH, precision)}, 30)["peak"]
    return 2 * 9 * 64 * 64 * HEIGHT * WIDTH / seconds / 1e9


def measure(folder: Path, count: int, rounds: int, peak: float) -> list[dict[str, Any]]:
    """Return seconds and GFLOP per frame of each model, and its speed relative to BasicVSR."""
    source = write_source(folder, count)
    models = {name: load_model(name) for name in MODELS}
    runs = {
        name: lambda m=model: upscale_video(
            source, folder / "out.mkv", options=UpscaleOptions(model=m, overwrite=True)
        )
        for name, model in models.items()
    }
    seconds = best_seconds(runs, rounds)
    rows = []
    print(
        f"{'model':22} {'s/frame':>8} {'x BasicVSR':>11} {'GFLOP':>7} {'GFLOP/s':>8} {'share':>6}"
    )
    for name in MODELS:
        frame = seconds[name] / count
        faster = seconds[TEACHER] / seconds[name]
        gflop = gflop_per_megapixel(lambda n=name: build_model(n)) * HEIGHT * WIDTH / 1e6
        share = gflop / frame / peak
        rows.append(
            {"model": name, "seconds": round(frame, 4), "times_faster": round(faster, 2)}
            | {"gflop": round(gflop, 1), "gflops": round(gflop / frame, 1)}
            | {"share_of_peak": round(share, 3)}
        )
        print(
            f"{name:22} {frame:8.3f} {faster:11.2f} {gflop:7.1f} {gflop / frame:8.1f} {share:6.0%}"
        )
    return rows


if __name__ == "__main__":
    main()
