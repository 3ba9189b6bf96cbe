"""How a model describes its own parts, so that tools such as `inspect` need not know its class.

Modules are named as in `model.named_modules()`; `model.get_submodule(name)` returns them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

# (positional arguments of a call, its output) -> the output to use instead.
Replacement: TypeAlias = Callable[[tuple[Any, ...], Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Optical flow of a model.

    between: (a, b), RGB frames (1, 3, H, W) in [0, 1] of a size that the spec allows ->
        (1, 2, H, W) in pixels: where each pixel of `a` is in `b`
    targets: the frames that a frame's flow leads to: the previous one, the previous and the next,
        or all others of the window; "from window" is flow from all others to the frame
    """

    between: Callable[[Tensor, Tensor], Tensor]
    targets: Literal["previous", "adjacent", "window", "from window"] = "adjacent"

    def pairs(self, frame: int, count: int) -> list[tuple[int, int]]:
        """The flows that the result of one of `count` frames uses, as (from, to)."""
        others = [other for other in range(count) if other != frame]
        match self.targets:
            case "previous":
                near = {frame - 1}
            case "adjacent":
                near = {frame - 1, frame + 1}
            case "window":
                near = set(others)
            case "from window":
                return [(other, frame) for other in others]
        return [(frame, other) for other in others if other in near]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the attention of one frame is computed.

    call: number of the call of the module
    frames: the frames of its tokens, by number in the clip
    query: which of them is the frame itself
    """

    call: int
    frames: tuple[int, ...]
    query: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One attention module of a model.

    kind: what the module's `weights` returns
        "patches": `weights(x, keep)` for x (B, T, C, H, W) -> (B, heads, N, M): every patch of the
            frames in `keep` attends to every patch of all frames; `patch` and `stride` in pixels
        "span": a `SpanAttention`, called once per frame, in order
        "frames": `weights(aligned)` for (B, T, C, H, W) -> (B, T, 1, H, W): at every pixel, a
            weight in [0, 1] for each frame
        "window": a `SwinBlock` that is not shifted, called with (1, D, H, W, C);
            `place(frame, count)` says for which frames of a clip of `count`
    """

    title: str
    module: str
    kind: Literal["patches", "span", "frames", "window"]
    patch: int = 1
    stride: int = 1
    place: Callable[[int, int], Place] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap:
    """Features at the input (first argument) or the output of a module.

    A module takes and returns (B, T, C, H, W), (T, C, H, W), one frame (1, C, H, W) per call, or
    `frames` frames (frames, C, H, W) per call.

    skip: leading channels that are not features (the RGB frame joined to them)
    slope: of the LeakyReLU that the model applies to them; None for none
    backward: the module is called once per frame, from the last frame to the first
    frames: of each call; with `backward`, these are in reverse order as well
    """

    module: str
    side: Literal["input", "output"] = "output"
    skip: int = 0
    slope: float | None = None
    backward: bool = False
    frames: int = 1


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of the forward pass: features before it, if they can be compared, and after it."""

    title: str
    description: str
    before: Tap | None
    after: Tap

    @classmethod
    def chains(cls, backward: str, forward: str, skip: int = 3) -> tuple["Stage", "Stage"]:
        """The two recurrent passes of a model whose towers take (frame, warped features) joined.

        skip: channels of the frame
        """
        words = (
            "From the {} frame to the {}: each step gets the features of the {} frame, warped onto "
            "this one (left), and the frame itself."
        )
        return (
            cls(
                "backward chain",
                words.format("last", "first", "next"),
                Tap(module=backward, side="input", skip=skip, backward=True),
                Tap(module=backward, backward=True),
            ),
            cls(
                "forward chain",
                words.format("first", "last", "previous"),
                Tap(module=forward, side="input", skip=skip),
                Tap(module=forward),
            ),
        )

    @classmethod
    def fusion(cls) -> "Stage":
        """Features of both directions, joined by the module `fusion` and a LeakyReLU."""
        words = "Features of both directions, joined by a 1x1 convolution."
        return cls("fusion", words, None, Tap(module="fusion", slope=0.1))

    @classmethod
    def residual(cls, module: str) -> "Stage":
        """Residual blocks at LR size, before the tail."""
        words = "Residual blocks on each frame alone, before it is enlarged."
        return cls(module, words, Tap(module=module, side="input"), Tap(module=module))

    @classmethod
    def tail(cls) -> "Stage":
        """The module `tail`, whose output is added to the enlarged frame."""
        words = (
            "The detail that is added to the enlarged frame: grey is zero, brighter and darker are "
            "positive and negative."
        )
        return cls("tail", words, None, Tap(module="tail"))


def zero(args: tuple[Any, ...], output: Any) -> Any:
    """Replace the output (a tensor or a tuple of tensors) by zeros."""
    if isinstance(output, tuple):
        return tuple(torch.zeros_like(part) for part in output)
    return torch.zeros_like(output)


def passthrough(args: tuple[Any, ...], output: Any) -> Any:
    """Replace the output by the first argument."""
    return args[0]


@dataclass(frozen=True, slots=True)
class Switch:
    """A part that can be switched off: the output of each of `modules` is replaced."""

    title: str
    description: str  # of the model with the part switched off
    modules: tuple[str, ...]
    replace: Replacement = zero

    @classmethod
    def flow(cls, module: str) -> "Switch":
        """All flow is zero."""
        return cls("flow", "All flow is zero: neighbours are joined without warping.", (module,))

    @classmethod
    def chains(cls, backward: Sequence[str], forward: Sequence[str]) -> tuple["Switch", "Switch"]:
        """The two directions in which features move between frames."""
        words = "The branch that reads the {} frame outputs zeros."
        return (
            cls("backward chain", words.format("next"), tuple(backward)),
            cls("forward chain", words.format("previous"), tuple(forward)),
        )

    @classmethod
    def residual(cls, module: str) -> "Switch":
        """Residual blocks, replaced by the identity."""
        return cls(module, "Its residual blocks return their input.", (module,), passthrough)

    @classmethod
    def tail(cls) -> "Switch":
        """Everything that the network adds to the enlarged frame."""
        words = "The network adds no detail: the output is the frame, enlarged bilinearly."
        return cls("the whole network", words, ("tail",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """The parts of a model.

    flow: None if the model estimates no optical flow
    attention: attention over places or frames, in the order of the forward pass
    stages: in the order of the forward pass; a model that lists none has features at the outputs
        of its outermost modules
    switches: parts that can be switched off for an ablation
    """

    flow: Flow | None = None
    attention: tuple[Attention, ...] = ()
    stages: tuple[Stage, ...] = ()
    switches: tuple[Switch, ...] = ()

    @property
    def modules(self) -> set[str]:
        """The names of all modules that the parts refer to."""
        taps = {tap for stage in self.stages for tap in (stage.before, stage.after) if tap}
        return (
            {part.module for part in self.attention}
            | {tap.module for tap in taps}
            | {name for switch in self.switches for name in switch.modules}
        )

    def within(self, module: str) -> "Anatomy":
        """The same parts, named as parts of a model of which this one is the module `module`."""

        def moved(tap: Tap) -> Tap:
            return replace(tap, module=f"{module}.{tap.module}")

        return Anatomy(
            flow=self.flow,
            attention=tuple(replace(a, module=f"{module}.{a.module}") for a in self.attention),
            stages=tuple(
                replace(s, before=s.before and moved(s.before), after=moved(s.after))
                for s in self.stages
            ),
            switches=tuple(
                replace(s, modules=tuple(f"{module}.{name}" for name in s.modules))
                for s in self.switches
            ),
        )
