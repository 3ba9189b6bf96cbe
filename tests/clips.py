"""Small videos made with PyAV, of every kind that people have."""

from fractions import Fraction

import av
import numpy as np
from av.video.frame import VideoFrame

from vsrkit.video.colour import Colour, layout_of, set_colour_tags
from vsrkit.video.streams import PLAIN_STYLE


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
            set_colour_tags(stream.codec_context, colour)
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
                set_colour_tags(picture, colour)
            picture.pts = times[number] if times else number
            picture.time_base = base
            file.mux(stream.encode(picture))
        file.mux(stream.encode(None))
    return path


__all__ = ["Colour", "noise_picture", "write_clip"]


def write_rich_clip(
    path,
    *,
    frames=12,
    audio="aac",
    subtitle="srt",
    attachment=True,
    words=("Hello", "Two\nlines"),
):
    """A video with sound, two subtitles, chapters, an attachment and words about itself."""
    with av.open(str(path), "w") as file:
        video = file.add_stream("libx264", rate=25, options={"qp": "0"})
        video.width, video.height, video.pix_fmt = 32, 24, "yuv420p"
        video.metadata["title"] = "the picture"
        sound = file.add_stream(audio, rate=48000)
        sound.codec_context.layout = "stereo"
        sound.metadata["language"] = "fre"
        text = file.add_stream(subtitle) if subtitle else None
        if text:
            text.metadata["language"] = "ger"
            text.codec_context.subtitle_header = PLAIN_STYLE
        if attachment:
            file.add_attachment("font.ttf", "application/x-truetype-font", b"not a font" * 10)
        file.metadata["title"] = "A film"
        file.set_chapters(
            [
                {"id": 1, "start": 0, "end": 200, "time_base": Fraction(1, 1000),
                 "metadata": {"title": "first"}},
                {"id": 2, "start": 200, "end": 480, "time_base": Fraction(1, 1000),
                 "metadata": {"title": "second"}},
            ]
        )  # fmt: skip
        file.start_encoding()
        for number in range(frames):
            file.mux(video.encode(noise_picture(number, 32, 24, smooth=True)))
        file.mux(video.encode(None))
        for packet in _tone(sound, frames / 25):
            file.mux(packet)
        if text:
            for number, line in enumerate(words):
                data = line.encode()
                if subtitle == "mov_text":
                    data = len(data).to_bytes(2, "big") + data
                packet = av.Packet(data)
                packet.stream, packet.time_base = text, Fraction(1, 1000)
                packet.pts = packet.dts = 40 + 200 * number
                packet.duration = 120
                file.mux(packet)
    return path


def _tone(stream, seconds):
    rate = stream.rate
    size = stream.codec_context.frame_size or 1024
    form = stream.format.name
    for start in range(0, int(seconds * rate), size):
        wave = 0.2 * np.sin(np.arange(start, start + size) / 20)
        if form == "fltp":
            frame = av.AudioFrame.from_ndarray(
                np.stack([wave, wave]).astype(np.float32), format=form, layout="stereo"
            )
        else:
            pair = np.stack([wave, wave], 1).reshape(1, -1) * 32767
            frame = av.AudioFrame.from_ndarray(pair.astype(np.int16), format="s16", layout="stereo")
        frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
        yield from stream.encode(frame)
    yield from stream.encode(None)
