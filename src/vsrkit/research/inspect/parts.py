"""What each part of a model is good for: the output without it, beside the output with it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from vsrkit.evaluate.metrics import psnr
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.edvr import EDVR
from vsrkit.models.frvsr import FRVSR
from vsrkit.models.iconvsr import IconVSR
from vsrkit.models.spmc import SPMC
from vsrkit.models.tdan import TDAN
from vsrkit.models.toflow import TOFlow
from vsrkit.models.vespcn import VESPCN
from vsrkit.models.vsrt import VSRT, FlowFeedForward, Layer
from vsrkit.models.vsrt_small import VSRTSmall
from vsrkit.research.inspect.hooks import answering, upscale_one
from vsrkit.research.inspect.sample import Sample


@dataclass(frozen=True, slots=True)
class Part:
    """Something that can be switched off while a model runs."""

    title: str
    words: str
    off: Callable[[], AbstractContextManager[None]]
    still: bool = False  # the clip is replaced by copies of the chosen frame


@dataclass(frozen=True, slots=True)
class Contribution:
    """The output without a part, and how far it is from the output with it."""

    title: str
    words: str
    without: Tensor  # (3, sH, sW)
    difference: Tensor  # with - without
    psnr: float  # of both, in dB: infinite if the part changes nothing
    rms: float  # in steps of 1/255


def contributions(
    model: nn.Module, sample: Sample, sr: Tensor, on_progress: Callable[[str, int, int], None]
) -> list[Contribution]:
    """Run the model once for each of its parts, without it; `sr` is its whole output."""
    found = []
    switchable = parts(model, sample)
    still = sample.frame.expand_as(sample.clip)
    for number, part in enumerate(switchable):
        on_progress(f"without {part.title}", number, len(switchable))
        with part.off():
            without = upscale_one(model, still if part.still else sample.clip, sample.centre)
        difference = sr - without
        decibels = psnr(255 * sr.double(), 255 * without.double())
        rms = 255 * sqrt(float(difference.double().square().mean()))
        shown = (without.cpu(), difference.cpu())
        found.append(Contribution(part.title, part.words, *shown, decibels, rms))
    return found


def parts(model: nn.Module, sample: Sample) -> list[Part]:
    """The parts of a model; the other frames are one of every model that looks at several."""
    found = list(_own_parts(model))
    if sample.clip.shape[1] > 1:
        words = (
            "Every other frame is replaced by a copy of the chosen one: what the network can do "
            "with a still picture. The difference is what it gains from motion."
        )
        found.insert(0, Part("the other frames", words, nullcontext, still=True))
    return found


def _own_parts(model: nn.Module) -> Iterator[Part]:
    match model:
        case VSRT():
            yield from _paper_parts(model)
        case VSRTSmall():
            yield from _preset_parts(model)
        case BasicVSR():
            yield _still_flow(model.spynet)
            yield from _chains([model.backward_trunk], [model.forward_trunk])
            yield _detail(model.tail)
        case IconVSR():
            yield _still_flow(model.spynet)
            yield from _chains([model.backward_trunk], [model.forward_trunk])
            yield _silent("refill", "Key frames get nothing from their neighbourhood.", model.edvr)
            yield _detail(model.tail)
        case EDVR():
            words = "Neighbours are fused where they are, not where they belong."
            align = model.front.pcd_align
            yield Part("alignment", words, lambda: answering([align], lambda g, _: g[0]["l1"]))
            yield _passing("reconstruction", model.reconstruction)
            yield _detail(model.tail)
        case TDAN():
            yield _passing("reconstruction", model.reconstruction)
        case FRVSR():
            yield _still_flow(model.fnet)
        case TOFlow():
            yield _still_flow(model.spynet)
        case VESPCN() | SPMC():
            yield _still_flow(model.motion)


def _paper_parts(model: VSRT) -> Iterator[Part]:
    layers = [layer for layer in model.layers if isinstance(layer, Layer)]
    if attention := [layer.attention for layer in layers if layer.attention is not None]:
        words = "No patch looks at any other (the paper's w/o STCSA, but without training again)."
        yield _silent("attention", words, *attention)
    if model.flow is not None:
        yield _still_flow(model.flow)
    towers = [x.feed_forward for x in layers if isinstance(x.feed_forward, FlowFeedForward)]
    if towers:
        yield from _chains([x.from_next for x in towers], [x.from_prev for x in towers])
    words = "Only attention moves anything between frames."
    yield _silent("feed-forward layers", words, *(layer.feed_forward for layer in layers))
    yield _passing("reconstruction", model.reconstruction)
    yield _detail(model.tail)


def _preset_parts(model: VSRTSmall) -> Iterator[Part]:
    if model.attention is not None:
        yield _silent("attention", "No patch looks at any other.", model.attention)
    if model.config.flow != "none":
        yield _still_flow(model.flow)
    yield from _chains([model.backward_tower], [model.forward_tower])
    yield _passing("head", model.head)
    yield _detail(model.tail)


def _still_flow(network: nn.Module) -> Part:
    words = "Nothing is taken to move: neighbours are joined where they are, not warped."
    return _silent("flow", words, network)


def _chains(backward: list[nn.Module], forward: list[nn.Module]) -> list[Part]:
    """The two directions in which frames inform each other."""
    words = "The branch that reads the frame {} answers nothing."
    return [
        _silent("backward chain", words.format("after"), *backward),
        _silent("forward chain", words.format("before"), *forward),
    ]


def _detail(tail: nn.Module) -> Part:
    words = "All detail that the network adds: what is left is the enlarged frame, bilinear."
    return _silent("the whole network", words, tail)


def _silent(title: str, words: str, *modules: nn.Module) -> Part:
    """A part that answers zero."""
    return Part(title, words, lambda: answering(list(modules), lambda _, usual: _zero(usual)))


def _passing(title: str, module: nn.Module) -> Part:
    """A part that hands on what it is given."""
    words = "Its residual blocks hand their input on."
    return Part(title, words, lambda: answering([module], lambda given, _: given[0]))


def _zero(value: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    if isinstance(value, tuple):
        return tuple(torch.zeros_like(part) for part in value)
    return torch.zeros_like(value)
