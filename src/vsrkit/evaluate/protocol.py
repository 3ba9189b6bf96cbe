"""Evaluation protocols: the settings that must be equal for two scores to be comparable."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

from torch import Tensor

from vsrkit.data.degrade import BD, BI, CRF, Degradation, degrade_frames
from vsrkit.data.layouts import LrKind, SetName
from vsrkit.errors import VsrkitError
from vsrkit.evaluate.metric_weights import metric_available
from vsrkit.evaluate.metrics import (
    METRICS,
    Channel,
    Metric,
    grid,
    measured,
    ms_ssim,
    psnr,
    ssim,
)
from vsrkit.evaluate.perceptual import PERCEPTUAL_METRICS, PerceptualScores
from vsrkit.evaluate.temporal import TEMPORAL_METRICS, Temporal
from vsrkit.evaluate.vmaf import VMAF_MISSING, VmafClip, vmaf_available
from vsrkit.models.spec import Padding

# Which frames are scored: all, the centre one, or all but the first two and the last two.
Scored: TypeAlias = Literal["all", "centre", "inner"]
BI_X4 = BI(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a set is evaluated. Scores are means over the frames of a clip, then over clips."""

    name: str
    channel: Channel
    border: int = 0  # pixels cropped from every side before comparing
    scored: Scored = "all"
    padding: Padding = "reflection_circle"  # of temporal windows at the ends of a clip
    rounded: bool = True  # round the output to 8 bits before comparing
    degradation: Degradation = BI_X4
    tile: int | None = None  # run on tiles of this many LR pixels, overlapping by half
    length: int | None = None  # frames of each clip that are used, from the first; None for all
    # Whether the degradation's scale is that of the comparison: the output of a model with a larger
    # one is reduced to it, as `upscale --scale` does. Otherwise the scale is that of the model.
    fixed_scale: bool = False

    @property
    def lr_kind(self) -> LrKind | None:
        """The kind of LR files this protocol can use; None if LR is always made from HR."""
        if self.fixed_scale:
            return None
        match self.degradation:
            case BI():
                return "bi"
            case BD():
                return "bd"
            case CRF():
                return None

    def at_scale(self, scale: int) -> "Protocol":
        """Return the same protocol for a model of another scale."""
        if self.fixed_scale:
            if scale < self.degradation.scale:
                raise VsrkitError(
                    f"the protocol {self.name} compares at scale {self.degradation.scale}, this "
                    f"model upscales by {scale}; choose another protocol or model"
                )
            return self
        return replace(self, degradation=replace(self.degradation, scale=scale))

    def counts(self, number: int, length: int) -> bool:
        """Whether frame `number` of a clip of `length` frames is scored."""
        match self.scored:
            case "all":
                return True
            case "centre":
                return number == length // 2
            case "inner":
                return 2 <= number < length - 2

    def measured(self, frame: Tensor) -> Tensor:
        """Prepare a frame (3, H, W) for comparison; see `metrics.measured`."""
        return measured(frame, channel=self.channel, border=self.border, rounded=self.rounded)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, with the degradation as text."""
        return {**asdict(self), "degradation": str(self.degradation)}

    def __str__(self) -> str:
        channel = "RGB" if self.channel == "rgb" else "Y (MATLAB BT.601)"
        depth = "8-bit frames" if self.rounded else "unrounded frames"
        frames = {
            "all": "every frame",
            "centre": "centre frame only",
            "inner": "without first and last 2 frames",
        }[self.scored]
        if self.length is not None:
            frames += f" of the first {self.length}"
        tiles = f", {self.tile}-pixel tiles overlapping by half, hard edges" if self.tile else ""
        return (
            f"{self.name}: {channel} of {depth}, border {self.border}, {frames}, "
            f"windows padded by {self.padding}{tiles}; mean over frames, then over clips"
        )


_REDS4 = Protocol(name="reds4", channel="rgb")
_VID4 = Protocol(name="vid4", channel="y")
_VIMEO = Protocol(name="vimeo90k-t", channel="y", scored="centre")
PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        _REDS4,
        _VID4,
        _VIMEO,
        replace(_VIMEO, name="vimeo90k-t-rgb", channel="rgb"),
        replace(_VID4, name="vid4-crop8", border=8, scored="inner"),
        replace(_VID4, name="vid4-bd", degradation=BD()),
        replace(_VID4, name="vid4-bd-matlab12", degradation=BD(4, "matlab12")),
        replace(_VID4, name="vid4-crf15", degradation=CRF(15)),
        replace(_VID4, name="vid4-crf25", degradation=CRF(25)),
        replace(_VID4, name="vid4-crf35", degradation=CRF(35)),
        replace(_VID4, name="vid4-x2", degradation=BI(2), fixed_scale=True, length=10),
        # The settings of the VSR-Transformer authors for their released weights.
        replace(_REDS4, name="reds4-release", tile=64),
        replace(_VID4, name="vid4-release", tile=64),
        replace(_VIMEO, name="vimeo90k-t-release", tile=64),
        # For other sets.
        Protocol(name="rgb", channel="rgb"),
        Protocol(name="y", channel="y"),
    )
}
DEFAULTS: dict[SetName, str] = {
    "vid4": "vid4",
    "reds4": "reds4",
    "reds-train": "reds4",
    "vimeo90k-t": "vimeo90k-t",
    "vimeo90k-train": "vimeo90k-t",
    "folder": "rgb",
}


def protocol_named(name: str) -> Protocol:
    """Return a protocol by name; the error for an unknown name suggests the nearest."""
    if name not in PROTOCOLS:
        nearest = get_close_matches(name, PROTOCOLS, n=1, cutoff=0)[0]
        raise VsrkitError(
            f"no protocol called {name!r}; did you mean {nearest!r}? "
            f"Known protocols: {', '.join(PROTOCOLS)}"
        )
    return PROTOCOLS[name]


def metrics_named(names: Sequence[str]) -> list[Metric]:
    """Return metrics by name; `all` stands for every one that can be computed here."""
    if "all" in names:
        return [metric for metric in METRICS if _missing(metric) is None]
    spelt = [name.strip().lower().replace("-", "_") for name in names]
    if unknown := [name for name in spelt if name not in METRICS]:
        raise VsrkitError(f"no metric called {unknown[0]!r}; use {', '.join(METRICS)} or all")
    chosen = [metric for metric in METRICS if metric in spelt]
    if missing := next(filter(None, map(_missing, chosen)), None):
        raise VsrkitError(missing)
    return chosen


def _missing(metric: Metric) -> str | None:
    """What must be installed to compute a metric; None if it can be computed."""
    if metric == "vmaf":
        return None if vmaf_available() else VMAF_MISSING
    if metric not in PERCEPTUAL_METRICS:
        return None
    weights = {"lpips_vgg": "lpips", "tlpips": "lpips"}.get(metric, metric)
    if metric_available(weights):
        return None
    return f"{metric} needs weights: run `vsrkit weights get {weights}`"


@dataclass
class ClipScores:
    """Scores of the frames of one clip under a protocol.

    Use as a context manager: VMAF keeps temporary files.
    """

    protocol: Protocol
    metrics: Sequence[Metric]
    frames: int = field(default=0, init=False)  # scored so far
    values: dict[str, list[float]] = field(default_factory=dict, init=False)  # per frame

    def __post_init__(self) -> None:
        temporal = frozenset(self.metrics) & TEMPORAL_METRICS
        self._temporal = Temporal(temporal) if temporal else None
        perceptual = frozenset(self.metrics) & PERCEPTUAL_METRICS
        self._perceptual = PerceptualScores(perceptual) if perceptual else None
        self._vmaf = VmafClip() if "vmaf" in self.metrics else None

    def __enter__(self) -> "ClipScores":
        return self

    def __exit__(self, *_: object) -> None:
        if self._vmaf:
            self._vmaf.__exit__()

    def add(self, sr: Tensor, hr: Tensor, lr: Tensor) -> None:
        """Score the next frame: output and ground truth (3, sH, sW), input (3, H, W)."""
        self.frames += 1
        a, b = self.protocol.measured(sr), self.protocol.measured(hr)
        functions = {"psnr": psnr, "ssim": ssim, "ms_ssim": ms_ssim}
        found = {name: score(a, b) for name, score in functions.items() if name in self.metrics}
        if "consistency" in self.metrics:
            found["consistency"] = consistency(sr, lr, self.protocol)
        if "grid" in self.metrics:
            found["grid"] = grid(measured(sr, channel="y"), self.protocol.degradation.scale)
        if self._temporal:
            found |= self._temporal.measure(sr, hr)
        if self._perceptual:
            rgb = replace(self.protocol, channel="rgb")
            found |= self._perceptual.measure(*(rgb.measured(x) / 255 for x in (sr, hr)))
        if self._vmaf:
            self._vmaf.add(sr, hr)
        for name, value in found.items():
            self.values.setdefault(name, []).append(value)

    def means(self) -> dict[str, float]:
        """Return the mean of each metric over the frames so far."""
        means = {name: sum(values) / len(values) for name, values in self.values.items()}
        if self._vmaf and self.frames:
            means["vmaf"] = self._vmaf.score()
        return means


def consistency(sr: Tensor, lr: Tensor, protocol: Protocol) -> float:
    """PSNR in dB between the model's input and its output reduced again.

    Needs no ground truth. The output is reduced by the protocol's degradation, but without the
    compression of a CRF protocol.

    Args:
        sr: output (3, sH, sW).
        lr: input (3, H, W).
        protocol: defines the degradation and the channel.
    """
    how = protocol.degradation if isinstance(protocol.degradation, BD) else BI()
    small = next(degrade_frames([sr], replace(how, scale=protocol.degradation.scale)))
    a, b = (measured(x, channel=protocol.channel) for x in (small, lr))
    return psnr(a, b)
