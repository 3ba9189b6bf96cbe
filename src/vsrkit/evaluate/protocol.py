"""What a number means: all that must be equal before two PSNRs may be compared."""

from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

from torch import Tensor

from vsrkit.data.degrade import BD, BI, CRF, Degradation
from vsrkit.data.layouts import LrKind, SetName
from vsrkit.errors import VsrkitError
from vsrkit.evaluate.metrics import Channel, measured
from vsrkit.inference.windows import Padding

# Frames that count: every one, the middle one, or all but the first two and the last two.
Scored: TypeAlias = Literal["all", "centre", "inner"]


BI_X4 = BI(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a set is measured. Scores are means over the frames of a clip, then over clips."""

    name: str
    channel: Channel
    border: int = 0  # pixels cut from every side before measuring
    scored: Scored = "all"
    padding: Padding = "reflection_circle"  # of windows at the ends of a clip
    rounded: bool = True  # output to 8 bits before measuring, a half to the even neighbour
    degradation: Degradation = BI_X4
    tile: int | None = None  # run on tiles of this side, overlapping by half, hard edges

    @property
    def lr_kind(self) -> LrKind | None:
        """Which LR files of a set fit; None if LR must always be made."""
        match self.degradation:
            case BI():
                return "bi"
            case BD():
                return "bd"
            case CRF():
                return None

    def at_scale(self, scale: int) -> "Protocol":
        """The same measurement for a model of another factor."""
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
        """What of a frame (3, H, W) is compared."""
        return measured(frame, channel=self.channel, border=self.border, rounded=self.rounded)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; the degradation in words."""
        return {**asdict(self), "degradation": str(self.degradation)}

    def __str__(self) -> str:
        channel = "RGB" if self.channel == "rgb" else "Y (MATLAB BT.601)"
        depth = "8-bit frames" if self.rounded else "unrounded frames"
        frames = {
            "all": "every frame",
            "centre": "centre frame only",
            "inner": "without first and last 2 frames",
        }[self.scored]
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
        # As the authors of the VSR-Transformer measured what they released.
        replace(_REDS4, name="reds4-release", tile=64),
        replace(_VID4, name="vid4-release", tile=64),
        replace(_VIMEO, name="vimeo90k-t-release", tile=64),
        # For any other set.
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
    """A protocol of the table; an error names the nearest."""
    if name not in PROTOCOLS:
        nearest = get_close_matches(name, PROTOCOLS, n=1, cutoff=0)[0]
        raise VsrkitError(
            f"no protocol called {name!r}; did you mean {nearest!r}? "
            f"There are {', '.join(PROTOCOLS)}"
        )
    return PROTOCOLS[name]
