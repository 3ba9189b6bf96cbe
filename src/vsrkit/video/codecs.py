"""Choose how a video is encoded: codec, options, pixel format, colours, memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import av

from vsrkit.errors import VideoError
from vsrkit.video.colour import (
    BT601_625,
    BT709,
    FULL,
    LIMITED,
    Colour,
    Layout,
    bytes_per_pixel,
    layout_of,
    planar_format,
)
from vsrkit.video.probe import VideoInfo
from vsrkit.video.side_data import Hdr

RGB = 0  # H.273 code of the identity matrix

LARGEST_CRF = 63  # of all encoders
# Bytes of a picture beyond which encoders use settings that hold fewer pictures in memory.
LARGE = 4096 * 2304 * 3 // 2
HUGE = 64 << 20


@dataclass(frozen=True, slots=True)
class CodecRule:
    """Default settings of an encoder.

    options: default options, by FFmpeg's names.
    threads: fixed, because with some encoders their number changes the bytes.
    held, base: memory of the encoder, measured and rounded up: the number of pictures it holds and
        MiB besides.
    alone: use a new encoder for each picture, because one encoder would keep all pictures.
    disabled: encoder features that are switched off, for messages.
    large, huge: the rules for pictures of more than LARGE and HUGE bytes.
    """

    options: Mapping[str, str]
    threads: int = 1
    held: float = 120
    base: int = 100
    alone: bool = False
    disabled: str = ""
    large: "CodecRule | None" = None
    huge: "CodecRule | None" = None


def _rule_for(codec: str, picture: float) -> CodecRule:
    """The rule for pictures of this many bytes; it affects the output, so only size counts."""
    rule = RULES.get(codec, CodecRule({}))
    if rule.huge and picture > HUGE:
        return rule.huge
    return rule.large if rule.large and picture > LARGE else rule


# Options of x264 for large pictures, of which it may hold few.
X264_LARGE = {"crf": "17", "preset": "faster", "bf": "0", "refs": "1"}


RULES = {
    "libx264": CodecRule(
        {"crf": "17", "preset": "faster", "rc-lookahead": "20"},
        threads=2,
        held=86,
        base=0,
        large=CodecRule({**X264_LARGE, "rc-lookahead": "2"}, held=16),
        # No look-ahead and full-pixel motion: planes of half pixels need most of the memory.
        huge=CodecRule(
            {**X264_LARGE, "rc-lookahead": "0", "mbtree": "0", "subq": "0", "weightp": "none"},
            held=9,
            disabled="look-ahead and half-pixel motion",
        ),
    ),
    "libx265": CodecRule(
        {
            "crf": "18",
            "preset": "fast",
            "x265-params": "log-level=none:frame-threads=1:rc-lookahead=15",
        },
        held=96,
    ),
    "libsvtav1": CodecRule(
        {"crf": "22", "preset": "8", "svtav1-params": "lp=2"}, held=135, base=210
    ),
    "libvpx-vp9": CodecRule(
        {"crf": "20", "b": "0", "deadline": "good", "cpu-used": "4", "row-mt": "1"},
        threads=2,
        held=82,
    ),
    "ffv1": CodecRule(  # its slices have at most 8 million pixels or so
        {"level": "3", "slices": "4", "slicecrc": "1"},
        held=30,
        base=0,
        large=CodecRule({"level": "3", "slices": "16", "slicecrc": "1"}, held=30, base=0),
        huge=CodecRule({"level": "3", "slices": "144", "slicecrc": "1"}, held=30, base=0),
    ),
    "prores_ks": CodecRule({"profile": "3"}, held=0.3),
    "mjpeg": CodecRule(  # quality 2 of 31, the best useful one, in units of 1/118
        {"flags": "+qscale", "global_quality": "236", "huffman": "default"},
        held=2.4,
        base=50,
        alone=True,
    ),
    "rawvideo": CodecRule({}, held=4, base=0),
}


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """The pictures that an encoder takes; sides in pixels, of pictures with even sides."""

    width: int
    height: int
    least: int = 2  # of each side

    def allows(self, width: int, height: int) -> bool:
        """Whether the encoder takes pictures of this size."""
        fits = self.least <= width <= self.width and self.least <= height <= self.height
        return fits and is_possible(width, height)


# Measured with the encoders themselves, see tests/video/test_codecs.py. FFmpeg's own limit is that
# of `is_possible`.
UNLIMITED = 1 << 24
SIZE_LIMITS = {
    "libx264": SizeLimit(16384, 16384),
    "libx265": SizeLimit(UNLIMITED, UNLIMITED, least=16),  # 32 if the other side is above 4000
    "libsvtav1": SizeLimit(16384, 8704, least=4),
    "libvpx-vp9": SizeLimit(65536, 65536),
    "mjpeg": SizeLimit(65500, 65500),
    "ffv1": SizeLimit(UNLIMITED, UNLIMITED, least=4),
}
NO_LIMIT = SizeLimit(UNLIMITED, UNLIMITED)


def is_possible(width: int, height: int) -> bool:
    """Whether FFmpeg processes pictures of this size at all, as `av_image_check_size2` does."""
    return (8 * width + 1024) * (height + 128) < 2**31


# FFmpeg's format of a file, by suffix.
CONTAINERS = {".mkv": "matroska", ".webm": "webm", ".mp4": "mp4", ".m4v": "mp4", ".mov": "mov"}
CONTAINERS |= {".y4m": "yuv4mpegpipe"}
DEFAULT_CODECS = dict.fromkeys(CONTAINERS, "libx264")
DEFAULT_CODECS |= {".webm": "libvpx-vp9", ".y4m": "rawvideo"}
# Alternatives for sizes that the default codec does not take.
OTHER_SIZES = {
    ".mkv": ("libx265", "ffv1"),
    ".mp4": ("libx265", "mjpeg"),
    ".mov": ("libx265", "mjpeg"),
}
OTHER_SIZES |= {".m4v": OTHER_SIZES[".mp4"], ".webm": ("libvpx-vp9", "libsvtav1")}
# Alternatives if the default codec does not fit into memory.
LOW_MEMORY_CODECS: dict[str, tuple[str, ...]] = {
    ".mkv": ("prores_ks", "mjpeg"),
    ".mov": ("prores_ks", "mjpeg"),
    ".mp4": ("mjpeg",),
    ".m4v": ("mjpeg",),
}
ALIASES = {"h264": "libx264", "x264": "libx264", "hevc": "libx265", "h265": "libx265"}
ALIASES |= {"x265": "libx265", "av1": "libsvtav1", "vp9": "libvpx-vp9", "prores": "prores_ks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """All settings that affect the packets of a video."""

    codec: str
    options: tuple[tuple[str, str], ...]
    threads: int
    height: int
    width: int
    pix_fmt: str
    rate: Fraction
    colour: Colour
    sample_aspect: Fraction


def choose_encoding(
    info: VideoInfo,
    *,
    suffix: str,
    height: int,
    width: int,
    codec: str | None = None,
    crf: int | None = None,
    pix_fmt: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Encoding:
    """Choose the encoding of a new video.

    Bit depth, chroma resolution, colours and range are kept as far as the encoder supports them.

    info: the source video.
    suffix: suffix of the output file.
    height, width: size of the new frames.
    codec: FFmpeg's name or an alias such as `hevc`; by default chosen by suffix.
    crf: quality, lower is better; by default that of the codec's rule.
    pix_fmt: pixel format; by default the one nearest to the source.
    options: further options of the encoder, by FFmpeg's names.
    """
    name = _codec_name(codec, suffix, info)
    if codec is None:
        name = _codec_for_size(name, suffix, width + width % 2, height + height % 2)
    form = _pix_fmt(name, pix_fmt, info)
    rule = _rule_for(name, height * width * bytes_per_pixel(form))
    chosen = dict(rule.options)
    if crf is not None:
        if not 0 <= crf <= LARGEST_CRF:
            raise VideoError(f"--crf must be 0 (best) to {LARGEST_CRF}, not {crf}")
        if name in RULES and "crf" not in rule.options:
            raise VideoError(f"{name} has no crf; leave --crf out or use another --codec")
        chosen["crf"] = str(crf)
    chosen |= options or {}
    for key, value in _hdr_options(name, info.hdr).items():
        chosen[key] = f"{chosen[key]}:{value}" if chosen.get(key) else value
    layout = layout_of(form)
    assert layout is not None
    even_height, even_width = (
        -(-side // 2**halvings) * 2**halvings
        for side, halvings in zip((height, width), layout.halvings, strict=True)
    )
    _check_limit(name, even_width, even_height)
    return Encoding(
        codec=name,
        options=tuple(sorted(chosen.items())),
        threads=rule.threads,
        height=even_height,
        width=even_width,
        pix_fmt=form,
        # Never 0, the nearest such fraction to the rate of a frame that is shown for days.
        rate=max(info.frame_rate.limit_denominator(100_000), Fraction(1, 100_000)),
        colour=_output_colour(info, layout, name),
        sample_aspect=info.sample_aspect,
    )


def encoder_memory(encoding: Encoding) -> int:
    """Estimated bytes that an encoder needs, including its input picture."""
    picture, rule = _picture_bytes(encoding), rule_of(encoding)
    return round(picture * (rule.held + 1)) + (rule.base << 20)


def disabled_features(encoding: Encoding) -> str:
    """Encoder features that are switched off because the pictures are large; usually empty."""
    return rule_of(encoding).disabled


def rule_of(encoding: Encoding) -> CodecRule:
    """The default settings that apply to an encoding."""
    return _rule_for(encoding.codec, _picture_bytes(encoding))


def _picture_bytes(encoding: Encoding) -> float:
    return encoding.height * encoding.width * bytes_per_pixel(encoding.pix_fmt)


def _codec_name(codec: str | None, suffix: str, info: VideoInfo) -> str:
    name = ALIASES.get(codec, codec) if codec else DEFAULT_CODECS.get(suffix.lower())
    if name is None:
        raise VideoError(
            f"cannot write {suffix or 'files without a suffix'}; "
            f"name the output *{', *'.join(sorted(DEFAULT_CODECS))} or a folder for PNG files"
        )
    deep = info.bits if info.container != "images" else 8  # see _pix_fmt
    if codec is None and name == "libx264" and deep > 10:
        name = "libx265"  # H.264 has at most ten bits
    if codec is None and name == "libvpx-vp9" and deep > 8:
        name = "libsvtav1"  # this build of VP9 has only eight bits
    try:
        kind = av.Codec(name, "w").type
    except ValueError as error:
        raise VideoError(f"no encoder is called {codec!r}; try {', '.join(RULES)}") from error
    if kind != "video":
        raise VideoError(f"{codec!r} encodes {kind}, not video; try {', '.join(RULES)}")
    return name


def _codec_for_size(codec: str, suffix: str, width: int, height: int) -> str:
    """The default codec of a container, or another one that takes pictures of this size."""
    for name in (codec, *OTHER_SIZES.get(suffix.lower(), ())):
        if SIZE_LIMITS.get(name, NO_LIMIT).allows(width, height):
            return name
    return codec


def _check_limit(codec: str, width: int, height: int) -> None:
    """Raise VideoError if an encoder does not take pictures of this size."""
    limit = SIZE_LIMITS.get(codec, NO_LIMIT)
    if limit.allows(width, height):
        return
    if min(width, height) < limit.least:
        raise VideoError(
            f"{codec} takes pictures of at least {limit.least}x{limit.least}, not {width}x{height};"
            " use a larger --scale or --height, or name a folder for PNG files as the output"
        )
    raise VideoError(
        f"{codec} takes pictures of up to {limit.width}x{limit.height}, not {width}x{height}; "
        "use another --codec (ffv1 in mkv), or a smaller --scale or --height"
    )


def _pix_fmt(codec: str, named: str | None, info: VideoInfo) -> str:
    """The format the user named, else the format of the encoder that is nearest to the source."""
    formats = av.Codec(codec, "w").video_formats
    names = [form.name for form in formats] if formats else None
    if named:
        if layout_of(named) is None or (names is not None and named not in names):
            usable = [name for name in names or () if layout_of(name)]
            raise VideoError(f"{codec} does not support {named!r}; use one of {', '.join(usable)}")
        return named
    if info.container == "images" and codec not in ("ffv1", "rawvideo"):
        wanted = Layout("yuv", 8, (1, 1))  # supported by every player
    else:
        found = layout_of(planar_format(info.pix_fmt))
        assert found is not None
        wanted = found
        if wanted.kind == "grey" or (wanted.kind == "rgb" and codec == "rawvideo"):
            wanted = replace(
                wanted, kind="yuv", halvings=(1, 1) if wanted.kind == "grey" else (0, 0)
            )
    if names is None:  # rawvideo takes any format, y4m only YUV
        names = [
            f"yuv{ratio}p{depth}" for ratio in (420, 422, 444) for depth in ("", "10le", "12le")
        ]
    # Grey would lose colours, yuvj is deprecated, and there is no alpha channel.
    excluded = ("gray", "yuvj", "yuva")
    usable = [name for name in names if layout_of(name) and not name.startswith(excluded)]
    if not usable:
        raise VideoError(f"vsrkit supports no pixel format of {codec}; use another --codec")
    return min(usable, key=lambda name: _distance(layout_of(name), wanted))


def _distance(layout: Layout | None, wanted: Layout) -> tuple[int, ...]:
    """Sort key: first what a format would lose, then what it would waste."""
    assert layout is not None
    finer = [have - want for have, want in zip(layout.halvings, wanted.halvings, strict=True)]
    same_kind = layout.kind == wanted.kind
    return (
        max(0, wanted.bits - layout.bits),
        sum(max(0, step) for step in finer),
        not same_kind,
        max(0, layout.bits - wanted.bits),
        sum(max(0, -step) for step in finer),
    )


def _output_colour(info: VideoInfo, layout: Layout, codec: str) -> Colour:
    """The source's colours; RGB becomes BT.709 in limited range when it is written as YUV.

    JPEG has only one matrix and range; decoders ignore its tags.
    """
    if codec == "mjpeg":
        return replace(info.colour, matrix=BT601_625, range=FULL, siting="center")
    source = layout_of(planar_format(info.pix_fmt))
    if layout.kind == "rgb":
        return replace(info.colour, matrix=RGB, range=FULL)
    if source is not None and source.kind == "rgb":
        return replace(info.colour, matrix=BT709, range=LIMITED, siting="left")
    return info.colour


def _hdr_options(codec: str, hdr: Hdr | None) -> dict[str, str]:
    """HDR10 metadata as options of an encoder; empty for encoders without such options."""
    if hdr is None or codec not in ("libx264", "libx265", "libsvtav1"):
        return {}
    parts = []
    av1 = codec == "libsvtav1"
    if hdr.display:
        # x264 and x265 use units of 1/50000 and 1/10000, SVT-AV1 decimal numbers.
        red, green, blue, white = (
            ",".join(_number(value, 1 if av1 else 50000) for value in hdr.display[i : i + 2])
            for i in (0, 2, 4, 6)
        )
        dark, bright = (_number(value, 1 if av1 else 10000) for value in hdr.display[8:])
        name = "master-display" if codec == "libx265" else "mastering-display"
        parts.append(f"{name}=G({green})B({blue})R({red})WP({white})L({bright},{dark})")
    if hdr.light:
        name = {"libx264": "cll", "libx265": "max-cll"}.get(codec, "content-light")
        parts.append(f"{name}={hdr.light[0]},{hdr.light[1]}")
    return {codec.removeprefix("lib") + "-params": ":".join(parts)}


def _number(value: Fraction, steps: int) -> str:
    return f"{float(value):.5f}" if steps == 1 else str(round(value * steps))
