"""Frames to packets: which encoder, which samples, and the same bytes every time."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import av
import torch
import torch.nn.functional as F
from av.codec.context import CodecContext
from av.video.codeccontext import VideoCodecContext
from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.video.colour import (
    BT601_625,
    BT709,
    FULL,
    LIMITED,
    Colour,
    Layout,
    layout_of,
    picture_bytes,
    picture_of,
    planar_format,
    tag,
)
from vsrkit.video.hdr import hdr_options
from vsrkit.video.probe import VideoInfo
from vsrkit.video.rows import Rows, whole_of

os.environ.setdefault("SVT_LOG", "1")  # errors only: this encoder talks past FFmpeg's log

RGB = 0  # the code of "no matrix"

LARGEST_CRF = 63  # that any encoder has
# Bytes of a picture: beyond, an encoder must do with few of them, or with as few as it can.
LARGE = 4096 * 2304 * 3 // 2
HUGE = 64 << 20


@dataclass(frozen=True, slots=True)
class CodecRule:
    """What an encoder is told unless the user says otherwise.

    Threads are pinned: with some encoders their number changes the bytes.
    """

    options: Mapping[str, str]
    threads: int = 1
    # Memory of the encoder (measured, rounded up): so many pictures as they are stored, and MiB.
    held: float = 120
    base: int = 100
    alone: bool = False  # an encoder for each picture: one for all would keep those before it
    spares: str = ""  # what it does without, for people
    large: "CodecRule | None" = None  # for pictures of more than LARGE bytes
    huge: "CodecRule | None" = None  # for those of more than HUGE bytes


def rule_of(codec: str, picture: float) -> CodecRule:
    """The rule for pictures of so many bytes: it decides the result, so nothing else chooses it."""
    rule = RULES.get(codec, CodecRule({}))
    if rule.huge and picture > HUGE:
        return rule.huge
    return rule.large if rule.large and picture > LARGE else rule


# What x264 is told of pictures of which it may hold few.
FEW = {"crf": "17", "preset": "faster", "bf": "0", "refs": "1"}


RULES = {
    "libx264": CodecRule(
        {"crf": "17", "preset": "faster", "rc-lookahead": "20"},
        threads=2,
        held=86,
        base=0,
        large=CodecRule({**FEW, "rc-lookahead": "2"}, held=16),
        # No look-ahead, and whole pixels of motion: planes of half pixels take more than the rest.
        huge=CodecRule(
            {**FEW, "rc-lookahead": "0", "mbtree": "0", "subq": "0", "weightp": "none"},
            held=9,
            spares="look-ahead and half pixels of motion",
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
    "ffv1": CodecRule({"level": "3", "slices": "4", "slicecrc": "1"}, held=30, base=0),
    "prores_ks": CodecRule({"profile": "3"}, held=0.3),
    "mjpeg": CodecRule(  # quality 2 of 31, the best that is of use, in units of 1/118
        {"flags": "+qscale", "global_quality": "236", "huffman": "default"},
        held=2.4,
        base=50,
        alone=True,
    ),
    "rawvideo": CodecRule({}, held=4, base=0),
}
CODEC_OF = {".webm": "libvpx-vp9", ".mkv": "libx264", ".mp4": "libx264", ".mov": "libx264"}
CODEC_OF |= {".m4v": "libx264", ".y4m": "rawvideo"}
# What to take instead where the codec is left to us and does not fit into memory.
LEAN_CODECS: dict[str, tuple[str, ...]] = {
    ".mkv": ("prores_ks", "mjpeg"),
    ".mov": ("prores_ks", "mjpeg"),
    ".mp4": ("mjpeg",),
    ".m4v": ("mjpeg",),
}
NAMES = {"h264": "libx264", "x264": "libx264", "hevc": "libx265", "h265": "libx265"}
NAMES |= {"x265": "libx265", "av1": "libsvtav1", "vp9": "libvpx-vp9", "prores": "prores_ks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """Everything that decides the packets of a video, but its frames."""

    codec: str
    options: tuple[tuple[str, str], ...]
    threads: int
    height: int
    width: int
    pix_fmt: str
    rate: Fraction
    colour: Colour
    sample_aspect: Fraction


@dataclass(frozen=True, slots=True)
class EncodedPacket:
    """A packet, in the order of decoding; `number` is that of its frame in the order of time."""

    number: int
    keyframe: bool
    data: bytes


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
    """The encoding for frames of this size made from a video like `info`, in a file `*suffix`.

    Samples stay what they were: as many bits, chroma as fine, the same colours and range, as far
    as the encoder can.
    """
    name = _codec_name(codec, suffix, info)
    form = _pix_fmt(name, pix_fmt, info)
    rule = rule_of(name, height * width * picture_bytes(form))
    chosen = dict(rule.options)
    if crf is not None:
        if not 0 <= crf <= LARGEST_CRF:
            raise VideoError(f"--crf is 0 (best) to {LARGEST_CRF}, not {crf}")
        if name in RULES and "crf" not in rule.options:
            raise VideoError(f"{name} has no crf; leave --crf out or use another --codec")
        chosen["crf"] = str(crf)
    chosen |= options or {}
    for key, words in hdr_options(name, info.hdr).items():
        chosen[key] = f"{chosen[key]}:{words}" if chosen.get(key) else words
    layout = layout_of(form)
    assert layout is not None
    even_height, even_width = (
        -(-side // 2**halvings) * 2**halvings
        for side, halvings in zip((height, width), layout.halvings, strict=True)
    )
    return Encoding(
        codec=name,
        options=tuple(sorted(chosen.items())),
        threads=rule.threads,
        height=even_height,
        width=even_width,
        pix_fmt=form,
        rate=info.frame_rate.limit_denominator(100_000),
        colour=_output_colour(info, layout, name),
        sample_aspect=info.sample_aspect,
    )


class Encoder:
    """One encoder, from its first frame to its last packet."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self._frames = 0
        self._alone = _rule(encoding).alone
        self._context = open_encoder(encoding)

    def encode(self, frame: Tensor | Rows) -> list[EncodedPacket]:
        """Take a frame (3, H, W); give the packets that are ready."""
        encoding = self.encoding
        missing = (encoding.width - frame.shape[-1], encoding.height - frame.shape[-2])
        if any(missing):  # chroma is halved, so a last line of its own must be there twice
            frame = F.pad(whole_of(frame)[None], (0, missing[0], 0, missing[1]), "replicate")[0]
        picture = picture_of(frame, encoding.pix_fmt, encoding.colour)
        picture.pts = self._frames
        picture.time_base = 1 / encoding.rate
        self._frames += 1
        packets = [_plain(packet) for packet in self._context.encode(picture)]
        if self._alone:
            packets += self.finish()
            self._context = open_encoder(encoding)
        return packets

    def finish(self) -> list[EncodedPacket]:
        """The packets that the encoder still held."""
        return [_plain(packet) for packet in self._context.encode(None)]


def encode_all(frames: Iterable[Tensor | Rows], encoding: Encoding) -> Iterator[EncodedPacket]:
    """The packets of frames (3, H, W), from the first to the last."""
    encoder = Encoder(encoding)
    for frame in frames:
        yield from encoder.encode(frame)
        del frame  # or it would be there while the next one is made
    yield from encoder.finish()


def encoder_memory(encoding: Encoding) -> int:
    """Bytes that an encoder takes, estimated, with the picture that it is given."""
    picture, rule = _picture(encoding), _rule(encoding)
    return round(picture * (rule.held + 1)) + (rule.base << 20)


def what_is_spared(encoding: Encoding) -> str:
    """What an encoder does without for the size of its pictures; nothing for most."""
    return _rule(encoding).spares


def _rule(encoding: Encoding) -> CodecRule:
    return rule_of(encoding.codec, _picture(encoding))


def _picture(encoding: Encoding) -> float:
    """Bytes of a picture."""
    return encoding.height * encoding.width * picture_bytes(encoding.pix_fmt)


def open_encoder(encoding: Encoding) -> VideoCodecContext:
    """An encoder that is ready; an option or a size that it refuses is a VideoError."""
    context = CodecContext.create(encoding.codec, "w")
    assert isinstance(context, VideoCodecContext)
    set_up(context, encoding)
    known = context.supported_options
    names = {option.name for option in (*known.generic, *known.private)}
    if unknown := [key for key, _ in encoding.options if key not in names]:
        raise VideoError(f"{encoding.codec} has no option {unknown[0]!r}")
    try:
        context.open()
    except (av.FFmpegError, ValueError) as error:
        raise VideoError(
            f"{encoding.codec} refuses {encoding.width}x{encoding.height} {encoding.pix_fmt} with "
            f"{dict(encoding.options)}: {getattr(error, 'strerror', None) or error}"
        ) from error
    return context


def set_up(context: VideoCodecContext, encoding: Encoding) -> None:
    """Tell an encoder all it must know before it is opened."""
    context.width, context.height = encoding.width, encoding.height
    context.pix_fmt = encoding.pix_fmt
    context.framerate, context.time_base = encoding.rate, 1 / encoding.rate
    context.sample_aspect_ratio = encoding.sample_aspect
    context.thread_count = encoding.threads
    # Not by slices, as PyAV has it: those of x264 race, and now and then the bytes are others.
    context.thread_type = "FRAME"
    context.flags |= av.codec.context.Flags.global_header | av.codec.context.Flags.bitexact
    options = dict(encoding.options)
    layout = layout_of(encoding.pix_fmt)
    if layout and layout.halvings == (1, 1):
        options["chroma_sample_location"] = encoding.colour.siting
    if encoding.codec == "libx264" and torch.backends.cpu.get_cpu_capability() == "AVX512":
        # Its AVX-512 code for mbtree reads memory that nobody wrote: other bytes in each run.
        given = options.get("x264-params")
        options["x264-params"] = f"{given}:asm=avx2" if given else "asm=avx2"
    context.options = options
    tag(context, encoding.colour)


def _plain(packet: "av.Packet[av.video.stream.VideoStream]") -> EncodedPacket:
    assert packet.pts is not None
    return EncodedPacket(packet.pts, packet.is_keyframe, bytes(packet))


def _codec_name(codec: str | None, suffix: str, info: VideoInfo) -> str:
    name = NAMES.get(codec, codec) if codec else CODEC_OF.get(suffix.lower())
    if name is None:
        raise VideoError(
            f"cannot write {suffix or 'files without an ending'}; "
            f"name the output *{', *'.join(sorted(CODEC_OF))} or a folder for PNG files"
        )
    deep = info.bits if info.container != "images" else 8  # see _pix_fmt
    if codec is None and name == "libx264" and deep > 10:
        name = "libx265"  # H.264 ends at ten bits
    if codec is None and name == "libvpx-vp9" and deep > 8:
        name = "libsvtav1"  # this build of VP9 has eight bits only
    try:
        kind = av.Codec(name, "w").type
    except ValueError as error:
        raise VideoError(f"no encoder is called {codec!r}; try {', '.join(RULES)}") from error
    if kind != "video":
        raise VideoError(f"{codec!r} encodes {kind}, not video; try {', '.join(RULES)}")
    return name


def _pix_fmt(codec: str, demanded: str | None, info: VideoInfo) -> str:
    """What was demanded, or else the format of the encoder that comes nearest to the source."""
    formats = av.Codec(codec, "w").video_formats
    names = [form.name for form in formats] if formats else None
    if demanded:
        if layout_of(demanded) is None or (names is not None and demanded not in names):
            usable = [name for name in names or () if layout_of(name)]
            raise VideoError(f"{codec} cannot write {demanded!r}; it can {', '.join(usable)}")
        return demanded
    if info.container == "images" and codec not in ("ffv1", "rawvideo"):
        wanted = Layout("yuv", 8, (1, 1))  # what every player shows
    else:
        found = layout_of(planar_format(info.pix_fmt))
        assert found is not None
        wanted = found
        if wanted.kind == "grey" or (wanted.kind == "rgb" and codec == "rawvideo"):
            wanted = replace(
                wanted, kind="yuv", halvings=(1, 1) if wanted.kind == "grey" else (0, 0)
            )
    if names is None:  # rawvideo takes any; y4m is for YUV
        names = [
            f"yuv{ratio}p{depth}" for ratio in (420, 422, 444) for depth in ("", "10le", "12le")
        ]
    # Grey would lose the colours, JPEG's forms are no longer used, and there is no transparency.
    unfit = ("gray", "yuvj", "yuva")
    usable = [name for name in names if layout_of(name) and not name.startswith(unfit)]
    if not usable:
        raise VideoError(f"{codec} takes no samples that vsrkit can make; use another --codec")
    return min(usable, key=lambda name: _distance(layout_of(name), wanted))


def _distance(layout: Layout | None, wanted: Layout) -> tuple[int, ...]:
    """What a format would lose, before what it would waste."""
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
    """The source's colours; RGB that becomes YUV is BT.709 in limited range.

    JPEG has one matrix and one range, and decoders look no further.
    """
    if codec == "mjpeg":
        return replace(info.colour, matrix=BT601_625, range=FULL, siting="center")
    source = layout_of(planar_format(info.pix_fmt))
    if layout.kind == "rgb":
        return replace(info.colour, matrix=RGB, range=FULL)
    if source is not None and source.kind == "rgb":
        return replace(info.colour, matrix=BT709, range=LIMITED, siting="left")
    return info.colour
