"""What the pipeline must know to run a model."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from vsrkit.models.anatomy import Anatomy


@dataclass(frozen=True, slots=True)
class Window:
    """A fixed number of frames around a centre; a single-image model is `Window(1, "all")`.

    size: number of frames
    emits: "centre", or "all" for every frame of the window, of which the pipeline uses the centre
    """

    size: int
    emits: Literal["centre", "all"] = "centre"

    def __post_init__(self) -> None:
        if self.size < 1 or (self.size % 2 == 0 and self.emits == "centre"):
            raise ValueError(f"a window needs a centre: its size must be odd, got {self.size}")


@dataclass(frozen=True, slots=True)
class Carried:
    """A state passed from frame to frame, forward in time, reset at every cut.

    needs_second_frame: the state before a shot's first frame is made from its second: the model
        has `start(second) -> state`, called with the first frame if the shot has only one
    look_ahead: 1 if every step also takes the next frame, `step(frame, state, after)`, which is
        the same frame again at the end of a shot
    """

    needs_second_frame: bool = False
    look_ahead: Literal[0, 1] = 0


@dataclass(frozen=True, slots=True)
class Segments:
    """Pieces of `length` frames at multiples of `length` from the start of the shot.

    `warmup` frames on either side (fewer at the ends of the shot) are run with each piece and
    dropped. Positions depend on the model alone, so that the output does not depend on how a job is
    divided.
    """

    length: int
    warmup: int

    def __post_init__(self) -> None:
        if self.length < 1 or self.warmup < 0:
            raise ValueError(f"segments need length >= 1 and warmup >= 0, got {self}")


Context: TypeAlias = Window | Carried | Segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The facts a model declares."""

    scale: int
    context: Context
    tile: int | None = None  # height and width of the only crop it accepts; None for any size
    minimum: int = 1  # smallest height and width; smaller frames are padded
    multiple: int = 1  # height and width must be divisible by this; others are padded
    min_frames: int = 1  # shortest clip it can run; shorter shots are padded by their last frame
    features_per_frame: int = 1  # feature maps that it holds for each frame of a call
    uses_window_cache: bool = False  # takes `cache`, a `WindowCache` of per-frame results


@runtime_checkable
class VideoModel(Protocol):
    """An `nn.Module` with a `spec`, an `anatomy` and a frozen config dataclass.

    Call: (B, T, 3, H, W) float RGB in [0, 1] -> (B, T', 3, sH, sW), not clamped. T' is 1 for
    `Window(emits="centre")`, else T. Models that emit every frame take `keep`, a slice of the
    frames to return, and skip what only the others need: `model(clip, keep=k)` equals
    `model(clip)[:, k]`. `Carried` models also have `step(frame, state) -> (sr, state)` with
    frames (B, 3, H, W) and `state=None` at the start of a shot. Models with `uses_window_cache`
    take `cache`, a `WindowCache`, and compute features and flows of overlapping windows once.
    """

    spec: Spec
    config: Any

    @property
    def anatomy(self) -> Anatomy: ...

    def __call__(self, clip: Tensor, keep: slice | None = None) -> Tensor: ...
