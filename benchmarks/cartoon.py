"""Compare models on a drawn clip: python benchmarks/cartoon.py OUTPUT.png [VIDEO].

Draws a cartoon of moving figures, reduces it to a quarter of its size, compresses it with x264
(CRF 26), upscales it and writes a picture of enlarged details. VIDEO adds a row with frames of a
real film of at least 1280x720, treated in the same way.
"""

import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import av
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from vsrkit.inference.engine import make_engine, upscale_frames
from vsrkit.models.zoo import load_model

WIDTH, HEIGHT, FRAMES, SHOWN = 960, 544, 9, 6
FINE = 4  # drawn at this multiple of the size, then reduced: smooth edges
MODELS = ("bicubic", "vsrt-s-web", "animesr-v2")
INK = (28, 22, 34)


def draw(t: float) -> Image.Image:
    """Return one frame at time `t`: a sky, hills, a title and two figures."""
    picture = Image.new("RGB", (WIDTH * FINE, HEIGHT * FINE), (156, 205, 236))
    pen = ImageDraw.Draw(picture)

    def at(*points: float) -> list[float]:
        return [FINE * value for value in points]

    for i in range(5):
        x, y = 110 + 210 * i - 9 * t, 70 + 28 * math.sin(i)
        for dx, dy, r in ((-44, 8, 28), (0, -8, 40), (46, 6, 30)):
            pen.ellipse(at(x + dx - r, y + dy - r, x + dx + r, y + dy + r), (244, 248, 252))
    hills = [(x, 380 + 34 * math.sin(x / 130 - t / 30)) for x in range(0, WIDTH + 8, 8)]
    outline = at(*(value for point in hills for value in point))
    pen.polygon(at(0, HEIGHT) + outline + at(WIDTH, HEIGHT), (126, 190, 112))
    pen.line(outline, INK, 3 * FINE)
    for i in range(24):
        x = 30 + 40 * i
        pen.line(at(x, 470, x + 6, 450, x + 9, 470), (70, 130, 70), 2 * FINE)
    font = ImageFont.load_default(30 * FINE)
    pen.text(at(34, 490), "The drawn clip, frame by frame", INK, font)
    _figure(pen, 300 + 4 * t, 270 + 6 * math.sin(t), (228, 96, 84), (250, 214, 186), t)
    _figure(pen, 660 - 3 * t, 285 + 5 * math.cos(t), (84, 110, 200), (240, 196, 160), -t)
    return picture.resize((WIDTH, HEIGHT), Image.Resampling.BOX)


def _figure(
    pen: ImageDraw.ImageDraw, x: float, y: float, hair: tuple[int, ...], skin: tuple[int, ...],
    t: float,
) -> None:  # fmt: skip
    """Draw a head with hair, eyes and a mouth on a striped shirt."""

    def box(cx: float, cy: float, rx: float, ry: float) -> list[float]:
        return [FINE * value for value in (cx - rx, cy - ry, cx + rx, cy + ry)]

    line = 3 * FINE
    pen.rounded_rectangle(box(x, y + 150, 74, 66), 40 * FINE, (250, 240, 220), INK, line)
    for k in range(5):
        cy = y + 112 + 20 * k
        pen.line(np.multiply([x - 66, cy, x + 66, cy + 6], FINE).tolist(), hair, 5 * FINE)
    pen.ellipse(box(x, y - 8, 92, 100), hair, INK, line)
    pen.ellipse(box(x, y + 16, 74, 82), skin, INK, line)
    for k in range(-4, 5):  # strands over the forehead
        tip = (x + 17 * k + 4 * math.sin(t + k), y - 8 + 10 * (k % 2))
        left, right = (x + 19 * k - 12, y - 76 + abs(4 * k)), (x + 19 * k + 12, y - 76 + abs(4 * k))
        pen.polygon([FINE * v for p in (left, tip, right) for v in p], hair, INK, FINE)
    for side in (-1, 1):
        pen.ellipse(box(x + 28 * side, y + 24, 16, 22), (255, 255, 255), INK, 2 * FINE)
        pen.ellipse(box(x + 28 * side + 3 * math.sin(t), y + 28, 9, 13), (60, 90, 140), INK, FINE)
        pen.ellipse(box(x + 28 * side - 3, y + 22, 3, 4), (255, 255, 255))
        pen.arc(box(x + 28 * side, y + 4, 20, 10), 200, 340, INK, 2 * FINE)
    pen.arc(box(x, y + 58, 22, 12 + 4 * math.sin(2 * t)), 10, 170, INK, line)


def film(path: Path) -> Iterator[Image.Image]:
    """Yield frames of a video, cut to the size of the drawn ones, from its middle."""
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            left, top = (frame.width - WIDTH) // 2, (frame.height - HEIGHT) // 2
            yield frame.to_image().crop((left, top, left + WIDTH, top + HEIGHT))


def compressed(frames: list[Image.Image], path: Path) -> list[Image.Image]:
    """Return the frames at a quarter of their size, after x264."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", Fraction(25), options={"crf": "26"})
        stream.width, stream.height, stream.pix_fmt = WIDTH // 4, HEIGHT // 4, "yuv420p"
        for frame in frames:
            small = frame.resize((WIDTH // 4, HEIGHT // 4), Image.Resampling.BICUBIC)
            container.mux(stream.encode(av.VideoFrame.from_image(small)))
        container.mux(stream.encode())
    with av.open(str(path)) as container:
        return [frame.to_image() for frame in container.decode(video=0)]


def upscaled(name: str, frames: list[Image.Image]) -> Image.Image:
    """Return the shown frame, upscaled by a model together with the others."""
    lr = [torch.from_numpy(np.array(f)).permute(2, 0, 1) / 255 for f in frames]
    sr = next(islice(upscale_frames(lr, make_engine(load_model(name))), SHOWN, None))
    return Image.fromarray((sr.permute(1, 2, 0) * 255).round().byte().numpy())


def main() -> None:
    target, clips = Path(sys.argv[1]), [[draw(t) for t in range(FRAMES)]]
    clips += [list(islice(film(Path(path)), FRAMES)) for path in sys.argv[2:3]]
    boxes = ((250, 180, 490, 380), (130, 150, 370, 350))
    rows = []
    for frames, box in zip(clips, boxes, strict=False):
        with TemporaryDirectory() as folder:
            lr = compressed(frames, Path(folder) / "lr.mp4")
        row = [*(upscaled(name, lr) for name in MODELS), frames[SHOWN]]
        rows.append([picture.crop(box) for picture in row])
    width, height = rows[0][0].size
    page = Image.new("RGB", (4 * width + 12, len(rows) * (height + 4) + 20), "white")
    pen = ImageDraw.Draw(page)
    for column, title in enumerate((*MODELS, "original")):
        pen.text((column * (width + 4) + 4, 3), title, "black", ImageFont.load_default(13))
        for number, row in enumerate(rows):
            page.paste(row[column], (column * (width + 4), 20 + number * (height + 4)))
    page.save(target, optimize=True)


if __name__ == "__main__":
    main()
