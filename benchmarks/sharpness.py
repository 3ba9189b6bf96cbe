"""Measure the models between `vsrt-s-web` and `vsrt-s-vivid` on Vid4.

    vsrkit weights get lpips
    python benchmarks/sharpness.py --data Vid4 [--sharpness 0,0.5,1]

Frames 10, 20 and 30 of each clip (counted from 0) in their clip, clean and encoded by x264 at CRF
25. Prints a table and writes results/sharpness.json.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import islice, tee
from pathlib import Path

import torch
from torch import Tensor

from vsrkit import __version__, load_model
from vsrkit.data.degrade import BI, CRF, degrade_frames
from vsrkit.data.sets import FrameSet, find_root, open_set, set_named
from vsrkit.evaluate.metrics import grid, measured, psnr
from vsrkit.evaluate.perceptual import load_lpips
from vsrkit.evaluate.temporal import Temporal
from vsrkit.inference.engine import Engine, make_engine, upscale_frames

RESULT = Path(__file__).parent / "results" / "sharpness.json"
FRAMES = (10, 20, 30)
SCALE = 4
METRICS = ("psnr_y", "lpips", "warping_error", "grid", "colour")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--sharpness", default="0,0.25,0.5,0.75,1")
    given = options.parse_args()
    vid4 = set_named("vid4")
    clips = open_set(vid4, find_root(vid4, given.data), lr=None)
    rows = []
    for sharpness in map(float, given.sharpness.split(",")):
        engine = make_engine(load_model("vsrt-s-web", sharpness=sharpness))
        for name, how in (("clean", BI(SCALE)), ("crf25", CRF(25, SCALE))):
            row = {"sharpness": sharpness, "lr": name, **measure(engine, clips, how)}
            print("  ".join(f"{k} {v:.4f}" if k in METRICS else f"{k} {v}" for k, v in row.items()))
            rows.append(row)
    content = {"vsrkit": __version__, "frames": FRAMES, "rows": rows}
    RESULT.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def measure(engine: Engine, clips: FrameSet, how: BI | CRF) -> dict[str, float]:
    """The means over frames and clips.

    The warping error is times 10,000; the colour is the largest shift of the mean of a channel, of
    255.
    """
    found: dict[str, list[float]] = {name: [] for name in METRICS}
    for clip in clips.clips:
        shifts = []
        for sr, hr, before_sr, before_hr in pairs(engine, clip.hr.read(), how):
            temporal = Temporal(frozenset({"warping_error"}))
            temporal.measure(before_sr, before_hr)
            found["warping_error"].append(1e4 * temporal.measure(sr, hr)["warping_error"])
            a, b = (measured(x, channel="rgb").float() / 255 for x in (sr, hr))
            found["lpips"].append(float(load_lpips()(a[None], b[None])))
            y = [measured(x, channel="y") for x in (sr, hr)]
            found["psnr_y"].append(psnr(y[0], y[1]))
            found["grid"].append(grid(y[0], SCALE))
            shifts.append(255 * (a - b).mean((1, 2)))
        found["colour"].append(float(torch.stack(shifts).mean(0).abs().max()))
    return {name: sum(values) / len(values) for name, values in found.items()}


@torch.inference_mode()
def pairs(engine: Engine, hr: Iterator[Tensor], how: BI | CRF) -> Iterator[tuple[Tensor, ...]]:
    """Output and HR of each measured frame, and of the frame before it."""
    to_lr, truth = tee(hr)
    before: tuple[Tensor, Tensor] | None = None
    outputs = upscale_frames(degrade_frames(to_lr, how), engine)
    for number, (sr, frame) in enumerate(islice(zip(outputs, truth, strict=True), FRAMES[-1] + 1)):
        now = (sr.clone(), frame[:, : sr.shape[-2], : sr.shape[-1]])
        if number in FRAMES and before:
            yield *now, *before
        before = now


if __name__ == "__main__":
    main()
