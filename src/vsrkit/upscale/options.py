"""Options of an upscaling job, as given and as resolved for the manifest; and its progress."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from vsrkit.errors import VideoError, VsrkitError
from vsrkit.hardware.device import Precision, PrecisionName
from vsrkit.hardware.memory import free_memory, parse_size
from vsrkit.inference.calibration import Calibration
from vsrkit.inference.memory import SHARE
from vsrkit.models.spec import Spec, Window
from vsrkit.video.codecs import is_possible
from vsrkit.video.colour import Colour
from vsrkit.video.probe import VideoInfo
from vsrkit.video.read import Span, parse_span

Quality: TypeAlias = Literal["best", "balanced", "fast"]
Deinterlace: TypeAlias = Literal["auto", "always", "never", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpscaleOptions:
    """What to make of a video and which resources to use. None leaves a choice to vsrkit.

    model: name of a preset or zoo entry, path of a checkpoint, or a loaded model; None takes the
        best preset whose weights are installed.
    sharpness: from 0, closest to the source, to 1, sharpest to the eye; for models that have a
        sharper companion, such as the default one. None takes the model as it is.
    scale: integer factor from 1 to the model's own; smaller ones are resampled from its output.
    height: lines of the displayed result, for factors that are no integers; excludes `scale`.
    quality: how much the windows of a model that returns whole windows overlap.
    start: first second of the source to upscale, counted from its first frame.
    end: second to stop before; None runs to the end of the source.
    frame_rate: frames per second of image files; videos have their own.
    deinterlace: `auto` deinterlaces video that is flagged as interlaced, `always` deinterlaces
        every frame, `never` treats all frames as progressive, `refuse` raises an error for
        video that is flagged as interlaced.
    codec: video codec or FFmpeg encoder; None chooses by container and memory.
    crf: constant rate factor of the encoder; lower is better and makes larger files.
    pix_fmt: pixel format of the output; None keeps that of the source where the codec has it.
    encoder_options: further options of the FFmpeg encoder, by name.
    device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
    precision: `auto` measures which number type is fastest on this machine; it takes `int8` or
        `int8-exact` only at a negligible loss of quality, see `docs/precision.md`.
    workers: processes that share the work; the output does not depend on it.
    max_memory: bytes, or text such as "2G", for all processes together; None takes a safe share
        of the free memory.
    tile: side of the tiles in pixels of the source, 0 for whole frames, None to choose by memory.
    chunk: frames buffered between decoding, model and encoding; 0 runs them in turns.
    follow_references: whether an input that names other files or addresses, such as a playlist,
        may make FFmpeg open them.
    overwrite: whether an existing output may be replaced.
    restart: whether to discard what an unfinished job with other options has done.
    """

    model: str | Path | nn.Module | None = None
    sharpness: float | None = None
    scale: int | None = None
    height: int | None = None
    quality: Quality = "best"
    start: Fraction | float = Fraction(0)
    end: Fraction | float | None = None
    frame_rate: Fraction | float = Fraction(25)
    deinterlace: Deinterlace = "auto"
    codec: str | None = None
    crf: int | None = None
    pix_fmt: str | None = None
    encoder_options: Mapping[str, str] = field(default_factory=dict)
    device: str = "auto"
    precision: PrecisionName = "auto"
    workers: int = 1
    max_memory: int | str | None = None
    tile: int | None = None
    chunk: int | None = None
    follow_references: bool = False
    overwrite: bool = False
    restart: bool = False

    def __post_init__(self) -> None:
        for name, value, kind in (
            ("quality", self.quality, Quality),
            ("deinterlace", self.deinterlace, Deinterlace),
            ("precision", self.precision, PrecisionName),
        ):
            if value not in get_args(kind):
                raise VsrkitError(f"--{name} is {', '.join(get_args(kind))}, not {value!r}")
        self._check_types()
        if self.scale is not None and self.height is not None:
            raise VsrkitError("give --scale or --height, not both")
        if self.workers < 1:
            raise VsrkitError(f"--workers is at least 1, not {self.workers}")
        if self.chunk is not None and self.chunk < 0:
            raise VsrkitError(f"--chunk is 0 or more frames, not {self.chunk}")
        if self.tile is not None and self.tile < 0:
            raise VsrkitError(f"--tile is 0 for whole frames or a side in pixels, not {self.tile}")
        if isinstance(self.max_memory, str):
            parse_size(self.max_memory)
        parse_span(self.start, self.end)

    def _check_types(self) -> None:
        """Raise an error for values from Python whose type would fail in the middle of a job."""
        for name in ("scale", "height", "crf", "workers", "tile", "chunk"):
            value = getattr(self, name)
            optional = name != "workers"
            if not (isinstance(value, int) or (optional and value is None)):
                raise VsrkitError(f"--{name} is a whole number, not {value!r}")
        for name in ("codec", "pix_fmt"):
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise VsrkitError(f"--{name.replace('_', '-')} is a name, not {value!r}")
        if not isinstance(self.encoder_options, Mapping):
            raise VsrkitError(
                f"encoder_options maps names to values, such as {{'preset': 'slow'}}, "
                f"not {self.encoder_options!r}"
            )
        sharpness: object = self.sharpness
        if not (sharpness is None or (isinstance(sharpness, int | float) and 0 <= sharpness <= 1)):
            raise VsrkitError(f"--sharpness is a number from 0 to 1, not {sharpness!r}")
        if sharpness is not None and isinstance(self.model, nn.Module):
            raise VsrkitError("--sharpness is for models by name; load_model also takes it")
        rate: object = self.frame_rate
        if not (isinstance(rate, Fraction | int | float) and 0 < rate < math.inf):
            raise VsrkitError(f"--frame-rate is a number above 0, not {rate!r}")

    @property
    def exact_frame_rate(self) -> Fraction:
        """The frame rate of image files as a fraction: 29.97 becomes 2997/100."""
        return Fraction(str(self.frame_rate))

    @property
    def span(self) -> Span:
        """Start and end in exact seconds."""
        return parse_span(self.start, self.end)

    @property
    def memory_limit(self) -> int:
        """Bytes that all processes may use together."""
        if isinstance(self.max_memory, str):
            return parse_size(self.max_memory)
        return round(SHARE * free_memory()) if self.max_memory is None else self.max_memory


DEFAULT_OPTIONS = UpscaleOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is. `shot` is the one of the frame that was finished last, from 1.

    workers: that compute parts, and `parts` in flight; 0 for a job in one process.
    """

    stage: Literal["scan", "upscale", "write"]
    done: int
    total: int | None  # None during the scan of a source whose header has no number of frames
    shot: int = 0
    shots: int = 0
    workers: int = 0
    parts: int = 0


OnProgress: TypeAlias = Callable[[Progress], None]


class ResolvedOptions(BaseModel):
    """Everything that decides the bytes of a job's output, as the manifest stores it.

    A job is resumed only with the same values. `tile_too_large` is the tile that the job began
    with if memory did not suffice for it and `tile` replaced it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: str = Field(description="hash of the source")
    model: str
    weights: str = Field(description="hash of the model's configuration and weights")
    precision: Precision
    calibration: Calibration | None = Field(None, title="ranges of int8")
    device: str
    sharpness: float | None = None
    tile: int = Field(description="side in pixels, 0 for whole frames")
    tile_too_large: int | None = Field(title="tile too large for memory")
    quality: Quality
    size: tuple[int, int] = Field(description="(height, width) of the output")
    start: Fraction
    end: Fraction | None
    frame_rate: Fraction = Field(title="frame rate")
    deinterlaced: Literal["none", "flagged frames", "all frames"]
    output: str = Field(description="suffix of the video, or the pattern of the images")
    codec: str | None = None
    encoder_options: tuple[tuple[str, str], ...] = Field((), title="encoder options")
    pix_fmt: str | None = Field(None, title="pixel format")
    colour: Colour | None = None
    instructions: str | None = Field(None, title="instruction sets of --same-bits")
    vsrkit: str = Field(title="version of vsrkit")
    torch: str = Field(title="version of torch")
    pyav: str = Field(title="version of PyAV")

    def tile_for(self, requested: int | None) -> int | None:
        """The tile to continue with: the job's own unless another one is requested."""
        return self.tile if requested in (None, self.tile_too_large) else requested

    def precision_for(self, requested: PrecisionName) -> PrecisionName | Precision:
        """The precision to continue with: `auto` keeps the one that was measured first."""
        return self.precision if requested in ("auto", self.precision.name) else requested

    def with_smaller_tile(self, tile: int) -> "ResolvedOptions":
        """The same after memory did not suffice for the tile."""
        first = self.tile if self.tile_too_large is None else self.tile_too_large
        return self.model_copy(update={"tile": tile, "tile_too_large": first})

    def differences(self, new: "ResolvedOptions") -> list[str]:
        """A phrase for each field that differs in `new`, such as `size: was 96x64, now 48x32`."""
        phrases = []
        for name, about in ResolvedOptions.model_fields.items():
            before, now = getattr(self, name), getattr(new, name)
            if before != now and name == "input":
                phrases.append("the input has changed")
            elif before != now:
                phrases.append(f"{about.title or name}: was {_show(before)}, now {_show(now)}")
        return phrases


def _show(value: Any) -> str:
    match value:
        case None | ():
            return "not set"
        case (int(height), int(width)):
            return f"{width}x{height}"
        case tuple():
            return " ".join(f"{key}={setting}" for key, setting in value)
    return str(value)


def output_size(
    info: VideoInfo, spec: Spec, *, scale: int | None, height: int | None
) -> tuple[int, int]:
    """(height, width) of the output as it is stored, before a rotation for display.

    scale: factor; None for that of the model.
    height: lines of the displayed picture, in place of a factor.
    """
    if height is not None:
        # With a rotation by 90 degrees the stored width is displayed as the height.
        sideways = bool(info.rotation % 180)
        lines, across = (info.width, info.height) if sideways else (info.height, info.width)
        if not 16 <= height <= 16 * lines:
            raise VsrkitError(
                f"--height {height} is out of range: 16 to {16 * lines} for a source of {lines}"
            )
        width = max(2, 2 * round(across * height / lines / 2))
        return (width, height) if sideways else (height, width)
    if scale is not None and not 1 <= scale <= spec.scale:
        raise VsrkitError(
            f"--scale {scale} is not possible: this model upscales by 1 to {spec.scale}"
        )
    factor = scale or spec.scale
    return info.height * factor, info.width * factor


def check_possible(info: VideoInfo, spec: Spec, height: int, width: int) -> None:
    """Raise VideoError for an output that FFmpeg cannot process, with a size that it can."""
    if is_possible(width, height):
        return
    scales = [s for s in range(1, spec.scale) if is_possible(s * info.width, s * info.height)]
    advice = "upscale a smaller input"
    if scales:
        best = scales[-1]
        advice = f"use --scale {best} for {best * info.width}x{best * info.height}"
    raise VideoError(
        f"{width}x{height} is larger than FFmpeg supports (about 268 million pixels); {advice}"
    )


def wanted_factor(info: VideoInfo, options: UpscaleOptions) -> float | None:
    """How many times larger the output will be; None for the scale of the model."""
    if options.height is not None:
        return options.height / (info.width if info.rotation % 180 else info.height)
    return options.scale


def stride_of(spec: Spec, quality: Quality) -> int:
    """Frames to keep of each window; 1 for models that do not return whole windows."""
    if not isinstance(spec.context, Window) or spec.context.emits != "all":
        return 1
    size = spec.context.size
    return {"best": 1, "balanced": (size + 1) // 2, "fast": size}[quality]
