"""A model's features before and after each of its blocks, for the chosen frame."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor, nn

from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.iconvsr import IconVSR
from vsrkit.models.vsrt import VSRT, Layer
from vsrkit.models.vsrt_small import VSRTSmall
from vsrkit.research.inspect.hooks import Calls
from vsrkit.research.inspect.sample import Sample


@dataclass(frozen=True, slots=True)
class Block:
    """Features (C, H, W) that enter a block, if there are any, and those that leave it."""

    title: str
    words: str
    before: Tensor | None
    after: Tensor


# From what was watched: features of the chosen frame, (C, H, W).
Look: TypeAlias = Callable[[Calls, Sample], Tensor]


@dataclass(frozen=True, slots=True)
class Stage:
    """A block of a model, and where its features are found among the calls."""

    title: str
    words: str
    before: Look | None
    after: Look


def blocks(model: nn.Module, calls: Calls, sample: Sample) -> list[Block]:
    """Every stage of a model; of one that has no list of its own, its outermost modules."""
    if stages := _stages(model):
        return [
            Block(s.title, s.words, s.before and s.before(calls, sample), s.after(calls, sample))
            for s in stages
        ]
    return [block for name in feature_modules(model) for block in _plain(name, calls[name], sample)]


def feature_modules(model: nn.Module) -> dict[str, nn.Module]:
    """What must be watched for `blocks`, by name."""
    match model:
        case VSRT():
            named = dict(model.named_children())
            for number, layer in enumerate(model.layers, 1):
                assert isinstance(layer, Layer)
                named[f"layers.{number}"] = layer
                # What enters it is what attention left behind, normalised only after that.
                middle = layer.feed_forward if layer.post else layer.feed_forward_norm
                named[f"middle.{number}"] = middle
            return {k: v for k, v in named.items() if k not in ("flow", "layers")}
        case VSRTSmall() | BasicVSR() | IconVSR():
            return dict(model.named_children())
    return {name: part for name, part in model.named_children() if list(part.parameters())}


def _stages(model: nn.Module) -> list[Stage]:
    match model:
        case VSRT():
            return _paper_stages(model)
        case VSRTSmall():
            return _preset_stages(model)
        case BasicVSR():
            return [*_chain_stages("backward_trunk", "forward_trunk"), FUSION, *TAIL]
        case IconVSR():
            return [*_chain_stages("backward_trunk", "forward_trunk"), *TAIL]
    return []


def _paper_stages(model: VSRT) -> list[Stage]:
    words = (
        "Convolutions on each frame alone. After it the position code is added: waves, which show "
        "as stripes in what enters the first layer."
    )
    stages = [Stage("encoder", words, None, _out("encoder"))]
    for number, layer in enumerate(model.layers, 1):
        whole, middle = f"layers.{number}", _in(f"middle.{number}")
        if layer.attention is not None:
            words = "Attention adds what it found in the patches of all frames."
            stages.append(Stage(f"layer {number}, attention", words, _in(whole), middle))
        words = (
            "The feed-forward layer adds what its towers make of the frame and of its two "
            "neighbours, warped onto it."
        )
        stages.append(Stage(f"layer {number}, feed-forward", words, middle, _out(whole)))
    words = "Residual blocks on each frame alone, before it is enlarged."
    stages.append(Stage("reconstruction", words, _in("reconstruction"), _out("reconstruction")))
    return [*stages, *TAIL]


def _preset_stages(model: VSRTSmall) -> list[Stage]:
    stages = [*_chain_stages("backward_tower", "forward_tower"), FUSION]
    before = _leaky(_out("fusion"))
    if model.attention is not None:
        words = "Attention adds what it found in nearby patches of this and the next frames."
        stages.append(Stage("attention", words, before, _in("head")))
    words = "Residual blocks on each frame alone, before it is enlarged."
    stages.append(Stage("head", words, _in("head"), _out("head")))
    return [*stages, *TAIL]


def _chain_stages(backward: str, forward: str) -> list[Stage]:
    """Before: what comes from the neighbour, warped; the frame's own three channels left out."""
    return [
        Stage(
            "backward chain",
            "From the last frame to the first: each step gets the features of the frame after it, "
            "warped onto this one (left), and the frame itself.",
            lambda calls, sample: _call(calls, backward, sample, back=True).given[0][0, 3:].cpu(),
            lambda calls, sample: _call(calls, backward, sample, back=True).answer[0].cpu(),
        ),
        Stage(
            "forward chain",
            "The same from the first frame to the last; what comes from the frame before, warped, "
            "is at the left.",
            lambda calls, sample: _call(calls, forward, sample).given[0][0, 3:].cpu(),
            lambda calls, sample: _call(calls, forward, sample).answer[0].cpu(),
        ),
    ]


def _call(calls: Calls, name: str, sample: Sample, *, back: bool = False) -> Any:
    """The call for the chosen frame of a module that runs along time, one frame after another."""
    return calls[name][-1 - sample.centre if back else sample.centre]


def _in(name: str) -> Look:
    return lambda calls, sample: _of_frame([call.given[0] for call in calls[name]], sample)


def _out(name: str) -> Look:
    return lambda calls, sample: _of_frame([call.answer for call in calls[name]], sample)


def _leaky(look: Look) -> Look:
    return lambda calls, sample: nn.functional.leaky_relu(look(calls, sample), 0.1)


def _of_frame(tensors: list[Tensor], sample: Sample) -> Tensor:
    """The chosen frame of (B, T, C, H, W), of (T, C, H, W), or of one (1, C, H, W) per frame."""
    count = sample.clip.shape[1]
    if len(tensors) == count:
        return tensors[sample.centre][0].cpu()
    found = tensors[-1][0] if tensors[-1].dim() == 5 else tensors[-1]
    return found[sample.centre if len(found) == count else 0].cpu()


FUSION = Stage(
    "fusion",
    "Both directions joined by a 1x1 convolution.",
    None,
    _leaky(_out("fusion")),
)
TAIL = [
    Stage(
        "tail",
        "The detail that is added to the enlarged frame: grey is nothing, brighter and darker are "
        "added and taken away.",
        None,
        _out("tail"),
    )
]


def _plain(name: str, calls: list[Any], sample: Sample) -> list[Block]:
    """A module of a model without a list of stages, if it answers with features."""
    answers = [call.answer for call in calls]
    if not answers or not all(isinstance(x, Tensor) and x.dim() in (4, 5) for x in answers):
        return []
    if min(answers[-1].shape[-2:]) < 2:
        return []
    given = [call.given[0] for call in calls if call.given]
    fits = len(given) == len(answers) and all(
        isinstance(x, Tensor) and x.shape == y.shape for x, y in zip(given, answers, strict=True)
    )
    before = _of_frame(given, sample) if fits else None
    return [Block(name, "", before, _of_frame(answers, sample))]
