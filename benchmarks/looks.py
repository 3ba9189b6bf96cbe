"""Show models side by side: python benchmarks/looks.py OUTPUT.png VIDEO.

One row for each detail. The first rows are frames of the video reduced to a quarter and compressed
with x264 (CRF 26), beside the original; the last ones a part of the video as it is. With the
packages that real_esrgan.py names, Real-ESRGAN x4plus is shown too.
"""

import sys
from itertools import islice
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

import real_esrgan
from vsrkit.data.degrade import CRF, degrade
from vsrkit.inference.engine import make_engine, upscale_frames
from vsrkit.models.zoo import load_model
from vsrkit.video.read import read_video

MODELS = ("bicubic", "vsrt-s-web", "vsrt-s-vivid")
FRAMES, SHOWN = 9, 4
SIDE = 200  # pixels of a detail
REDUCED = ((330, 60), (90, 190))  # left and top of details, in pixels of the original
PART = (slice(110, 230), slice(220, 420))  # rows and columns of the video that are enlarged
WHOLE = ((420, 30), (560, 240))  # left and top of details, in pixels of the enlarged part
GAP, TITLE = 4, 20


def main() -> None:
    target, path = Path(sys.argv[1]), Path(sys.argv[2])
    frames = torch.stack(list(islice(read_video(path), FRAMES)))
    frames = frames[..., : frames.shape[-2] // 4 * 4, : frames.shape[-1] // 4 * 4]
    engines = [make_engine(load_model(name)) for name in MODELS]
    rows = []
    for lr, details in ((degrade(frames, CRF(26)), REDUCED), (frames[..., *PART], WHOLE)):
        shown = [next(islice(upscale_frames(lr, engine), SHOWN, None)) for engine in engines]
        if real_esrgan.available():
            shown.append(real_esrgan.upscale(lr[SHOWN]))
        if details is REDUCED:
            shown.append(frames[SHOWN])
        rows += [[crop(frame, *corner) for frame in shown] for corner in details]
    page(rows).save(target, optimize=True)


def crop(frame: Tensor, left: int, top: int) -> Image.Image:
    """A detail of a frame (3, H, W) in [0, 1]."""
    part = frame[:, top : top + SIDE, left : left + SIDE].float().clamp(0, 1)
    return Image.fromarray((part * 255).round().byte().permute(1, 2, 0).numpy())


def page(rows: list[list[Image.Image]]) -> Image.Image:
    """All details under the names of the models."""
    peers = ("Real-ESRGAN x4plus",) if real_esrgan.available() else ()
    titles = (*MODELS, *peers, "original")
    picture = Image.new(
        "RGB", (len(titles) * (SIDE + GAP), TITLE + len(rows) * (SIDE + GAP)), "white"
    )
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(13)
    for column, title in enumerate(titles):
        pen.text((column * (SIDE + GAP) + GAP, 3), title, "black", font)
    for number, row in enumerate(rows):
        for column, detail in enumerate(row):
            picture.paste(detail, (column * (SIDE + GAP), TITLE + number * (SIDE + GAP)))
    return picture


if __name__ == "__main__":
    main()
