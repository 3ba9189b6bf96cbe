"""Small videos made with PyAV, of every kind that people have."""

from fractions import Fraction

import av
import numpy as np
from av.video.frame import VideoFrame

from vsrkit.video.colour import Colour, layout_of, tag


def noise_picture(number, width, height, pix_fmt="yuv420p", *, smooth=False):
    """Random samples, the same for the same number; `smooth` looks like a picture that moves."""
    bits = layout_of(pix_fmt).bits
    picture = VideoFrame(width, height, pix_fmt)
    random = np.random.default_rng(number)
    for plane in picture.planes:
        kind = np.uint8 if bits == 8 else np.uint16
        rows = np.frombuffer(plane, kind).reshape(plane.height, -1)
        if smooth:
            y, x = np.mgrid[: plane.height, : plane.width]
            wave = 0.5 + 0.2 * np.sin((x + number) / 5) + 0.2 * np.cos((y - number) / 7)
            rows[:, : plane.width] = wave * (2**bits - 1)
        else:
            rows[:, : plane.width] = random.integers(0, 2**bits, (plane.height, plane.width))
    return picture


def write_clip(
    path,
    *,
    frames=6,
    width=32,
    height=24,
    codec="libx264",
    pix_fmt="yuv420p",
    times=None,
    time_base=None,
    rate=25,
    colour=None,
    options=None,
    rotation=None,
    aspect=None,
    smooth=True,
    pictures=None,
    format=None,
):
    """A video of one stream. times: of each frame, in units of `time_base`."""
    with av.open(str(path), "w", format=format) as file:
        lossless = {"libx264": {"qp": "0"}, "libx265": {"x265-params": "lossless=1:log-level=none"}}
        stream = file.add_stream(codec, rate=rate, options=options or lossless.get(codec, {}))
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        base = Fraction(time_base) if time_base else 1 / Fraction(rate)
        stream.time_base = stream.codec_context.time_base = base
        if colour:
            tag(stream.codec_context, colour)
        if rotation is not None:
            stream.set_display_rotation(rotation)
        if aspect:
            stream.codec_context.sample_aspect_ratio = Fraction(aspect)
        count = len(times) if times else frames
        pictures = pictures or (
            noise_picture(n, width, height, pix_fmt, smooth=smooth) for n in range(count)
        )
        for number, picture in enumerate(pictures):
            if colour:
                tag(picture, colour)
            picture.pts = times[number] if times else number
            picture.time_base = base
            file.mux(stream.encode(picture))
        file.mux(stream.encode(None))
    return path


__all__ = ["Colour", "noise_picture", "write_clip"]
