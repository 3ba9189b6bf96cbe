"""Which pixels of which frames the attention of a model uses, for the patch of one pixel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vsrkit.models import anatomy
from vsrkit.models.layers.span_attention import BLOCK, Tokens
from vsrkit.research.inspect.clip_sample import Sample
from vsrkit.research.inspect.features import Call, Calls

DESCRIPTIONS = {
    "patches": (
        "The paper's spatial-temporal convolutional self-attention (STCSA). Each frame is cut into "
        "patches. The marked patch is compared with every patch of every frame, and takes from "
        "each in proportion to their similarity (the weights sum to one). Bright patches have the "
        "largest weights. A trained network finds the same texture in other frames, and repeats "
        "of it in the same frame; an untrained one has similar weights everywhere, or only its "
        "own patch."
    ),
    "span": (
        "The paper's attention (STCSA) over a bounded span: the marked patch is compared with the "
        "patches around it, in its own frame and in the adjacent frames, and takes from each in "
        "proportion to their similarity and to a learnt factor for their distance (the weights "
        "sum to one). Patches outside the span have no weight, so the cost grows with the number "
        "of pixels and not with its square. The picture is the mean over the heads, whose grids "
        "of patches are shifted against each other."
    ),
    "frames": (
        "Attention over frames instead of places: at every pixel, each aligned neighbour is "
        "weighted by its similarity to the centre frame. Dark areas of a neighbour could not be "
        "aligned, because they were covered or moved too far."
    ),
    "window": (
        "Attention inside a window: the marked pixel is compared with all pixels of its window, in "
        "its own frame and in aligned neighbours, and takes from each in proportion to their "
        "similarity and to a learnt factor for their distance (the weights sum to one). The next "
        "block has its windows elsewhere, so that information crosses their borders. The picture "
        "is the mean over the heads."
    ),
}


@dataclass(frozen=True, slots=True)
class Attention:
    """The weights of one attention layer for one patch; the mean over its heads."""

    title: str
    places: list[int]  # indices of the frames in the clip
    maps: Tensor  # (frames, H, W): the weight of a patch at each of its pixels
    shares: list[float]  # of the weights, for each frame
    patch: tuple[int, int, int, int]  # x, y, width, height of the query
    patches: float  # effective number of patches: the exponential of the entropy of the weights
    of: int  # number of patches with a weight above 0
    description: str


def attention_modules(model: nn.Module, parts: anatomy.Anatomy) -> dict[str, nn.Module]:
    """The modules that must be recorded for `attentions`, by title."""
    return {part.title: model.get_submodule(part.module) for part in parts.attention}


def attentions(
    parts: anatomy.Anatomy, modules: Mapping[str, nn.Module], calls: Calls, sample: Sample
) -> list[Attention]:
    """The weights of each attention layer for the chosen pixel.

    parts: the parts of the model.
    modules: its attention modules, by title.
    calls: the recorded calls of these modules.
    sample: the chosen frame and pixel.
    """
    found = []
    for part in parts.attention:
        module, recorded = modules[part.title], calls[part.title]
        match part.kind:
            case "patches":
                found.append(_over_patches(part, module, recorded[0], sample))
            case "span":
                found.append(_over_span(part.title, module, recorded[sample.centre], sample))
            case "frames":
                found.append(_over_frames(part.title, module, recorded[0], sample))
            case "window":
                found.append(_over_window(part, module, recorded, sample))
    return found


def _over_patches(part: anatomy.Attention, module: Any, call: Call, sample: Sample) -> Attention:
    """Attention of each patch of each frame to each patch of all frames."""
    x, keep = call.args
    _, t, _, h, w = x.shape
    size, stride = part.patch, part.stride
    rows, columns = ((side - size) // stride + 1 for side in (h, w))
    row, column = (
        min(max((place - size // 2 + stride // 2) // stride, 0), count - 1)
        for place, count in ((sample.pixel[1], rows), (sample.pixel[0], columns))
    )
    query = (sample.centre - keep.start) * rows * columns + row * columns + column
    weights = module.weights(x, keep)[0, :, query].mean(0).unflatten(0, (t, rows, columns))
    maps = torch.zeros(t, h, w)
    for i in range(rows):
        for j in range(columns):
            place = (slice(i * stride, i * stride + size), slice(j * stride, j * stride + size))
            maps[:, *place] += weights[:, i, j, None, None].cpu()
    patch = (column * stride, row * stride, size, size)
    return _attention(part.title, list(range(t)), maps, weights.flatten(1).cpu(), patch, "patches")


def _over_span(title: str, module: Any, call: Call, sample: Sample) -> Attention:
    """Attention to nearby patches of nearby frames. Each head has its own grid of patches."""
    near: Mapping[int, Tokens] = call.args[1]
    height, width = call.args[0].size
    size, side, seen = module.patch, BLOCK + 2 * module.span, 1 + 2 * module.span
    maps = torch.zeros(len(near), height, width)
    every = []
    for head in range(module.heads):
        shift = module.shift(head)
        column, row = ((place + shift) // size for place in sample.pixel)
        band = next(w for n, w in enumerate(module.weights(head, *call.args)) if n == row // BLOCK)
        i, j = row % BLOCK, column % BLOCK
        weights = band[0, column // BLOCK, i * BLOCK + j].cpu()
        weights = weights.unflatten(0, (len(near), side, side))[:, i : i + seen, j : j + seen]
        top, left = ((place - module.span) * size - shift for place in (row, column))
        spread = weights.repeat_interleave(size, 1).repeat_interleave(size, 2) / module.heads
        _add_at(maps, spread, top, left)
        every.append(weights.flatten(1))
    shift = module.shift(0)
    x, y = ((place + shift) // size * size - shift for place in sample.pixel)
    places = [sample.centre + distance for distance in near]
    weights = torch.stack(every).mean(0)
    return _attention(title, places, maps, weights, (x, y, size, size), "span")


def _add_at(maps: Tensor, values: Tensor, top: int, left: int) -> None:
    """Add `values` to `maps` with their corner at (left, top); parts outside are dropped."""
    target, source = [], []
    for start, length, limit in zip((top, left), values.shape[1:], maps.shape[1:], strict=True):
        first, stop = max(start, 0), min(start + length, limit)
        target.append(slice(first, stop))
        source.append(slice(first - start, stop - start))
    maps[:, *target] += values[:, *source]


def _over_frames(title: str, module: Any, call: Call, sample: Sample) -> Attention:
    """A weight for each aligned frame at every pixel, by its similarity to the centre frame."""
    maps = module.weights(*call.args)[0, :, 0].cpu()
    x, y = sample.pixel
    here = maps[:, y, x]
    weights = (here / here.sum())[:, None]
    return _attention(title, list(range(len(maps))), maps, weights, (x, y, 1, 1), "frames")


def _over_window(
    part: anatomy.Attention, module: Any, recorded: Sequence[Call], sample: Sample
) -> Attention:
    """Attention to the pixels of a window, in the frames that the module gets for this one."""
    assert part.place is not None
    place = part.place(sample.centre, sample.clip.shape[1])
    x = recorded[place.call].args[0]
    column, row = sample.pixel
    weights, top, left = module.weights(x, place.query, row, column)
    weights = weights.mean(0).cpu()
    maps = torch.zeros(x.shape[1], *x.shape[2:4])
    _add_at(maps, weights, top, left)
    pixel = (column, row, 1, 1)
    return _attention(part.title, list(place.frames), maps, weights.flatten(1), pixel, "window")


def _attention(
    title: str,
    places: list[int],
    maps: Tensor,
    weights: Tensor,
    patch: tuple[int, int, int, int],
    kind: str,
) -> Attention:
    """weights: (frames, patches), summing to one."""
    positive = weights[weights > 0].double()
    return Attention(
        title=title,
        places=places,
        maps=maps,
        shares=[float(share) for share in weights.sum(1)],
        patch=patch,
        patches=float(torch.exp(-(positive * positive.log()).sum())),
        of=int((weights > 0).sum()),
        description=DESCRIPTIONS[kind],
    )
