"""Which places of which frames a model's attention looks at, for the patch of one pixel."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vsrkit.models.edvr import EDVR, AttentionFusion
from vsrkit.models.layers.patch_attention import ConvAttention, LinearAttention
from vsrkit.models.layers.span_attention import BLOCK, SpanAttention, Tokens
from vsrkit.models.vsrt import VSRT, Layer
from vsrkit.models.vsrt_small import VSRTSmall
from vsrkit.research.inspect.hooks import Call, Calls
from vsrkit.research.inspect.sample import Sample

ALL_PATCHES = (
    "The paper's spatial-temporal convolutional self-attention (STCSA). Each frame is cut into "
    "patches; the marked patch compares itself with every patch of every frame and takes from "
    "each as much as they are alike (the weights sum to one). Bright patches are those it takes "
    "most from. A trained network finds the same texture in other frames, and repeats of it in "
    "the same frame; an untrained one looks about everywhere, or only at itself."
)
NEARBY = (
    "The paper's attention (STCSA) over a bounded span: the marked patch looks at the patches "
    "around it, in its own frame and in those next to it, and takes from each as much as they are "
    "alike and as their distance allows, for which there is a learnt number (the weights sum to "
    "one). Outside of the span nothing is seen, which is why the cost grows with the pixels and "
    "not with their square. The picture is the mean over the heads, whose grids of patches are "
    "shifted against each other."
)
EVERY_PLACE = (
    "Not attention over places, but over frames: at every pixel, each aligned neighbour passes as "
    "far as it is like the centre there. Dark places of a neighbour are those that did not align, "
    "because they were covered or moved too far."
)


@dataclass(frozen=True, slots=True)
class Attention:
    """Where one attention layer looks; the mean over its heads."""

    title: str
    places: list[int]  # of the frames in the clip
    maps: Tensor  # (frames, H, W): a patch's weight at each of its pixels
    shares: list[float]  # of each frame
    patch: tuple[int, int, int, int]  # x, y, width, height of the query
    patches: float  # how many it looks at: the exponential of the weights' entropy
    of: int  # how many it could look at
    words: str


def attention_modules(model: nn.Module) -> dict[str, nn.Module]:
    """What must be watched for `attentions`, by name."""
    match model:
        case VSRT():
            layers = enumerate((x for x in model.layers if isinstance(x, Layer)), 1)
            return {f"layer {n}": x.attention for n, x in layers if x.attention is not None}
        case VSRTSmall(attention=SpanAttention() as module):
            return {"attention": module}
        case EDVR() if isinstance(model.front.fusion, AttentionFusion):
            return {"fusion": model.front.fusion}
    return {}


def attentions(modules: Mapping[str, nn.Module], calls: Calls, sample: Sample) -> list[Attention]:
    """One entry for each layer that was watched."""
    found = []
    for name, module in modules.items():
        match module:
            case ConvAttention() | LinearAttention():
                found.append(_over_everything(name, module, calls[name][0], sample))
            case AttentionFusion():
                found.append(_of_frames(name, module, calls[name][0], sample))
            case SpanAttention():
                found.append(_over_span(name, module, calls[name][sample.centre], sample))
    return found


def _over_everything(
    title: str, module: ConvAttention | LinearAttention, call: Call, sample: Sample
) -> Attention:
    """The paper's attention: each patch of each frame may look at each patch of all frames."""
    x, keep = call.given
    _, t, _, h, w = x.shape
    size = module.patch
    stride = module.stride if isinstance(module, ConvAttention) else size
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
    return _described(title, list(range(t)), maps, weights.flatten(1).cpu(), patch, ALL_PATCHES)


def _over_span(title: str, module: SpanAttention, call: Call, sample: Sample) -> Attention:
    """Our presets' attention: nearby patches of nearby frames. Each head has its own grid."""
    near: Mapping[int, Tokens] = call.given[1]
    height, width = call.given[0].size
    size, side, seen = module.patch, BLOCK + 2 * module.span, 1 + 2 * module.span
    maps = torch.zeros(len(near), height, width)
    every = []
    for head in range(module.heads):
        shift = module.shift(head)
        column, row = ((place + shift) // size for place in sample.pixel)
        band = next(w for n, w in enumerate(module.weights(head, *call.given)) if n == row // BLOCK)
        i, j = row % BLOCK, column % BLOCK
        weights = band[0, column // BLOCK, i * BLOCK + j].cpu()
        weights = weights.unflatten(0, (len(near), side, side))[:, i : i + seen, j : j + seen]
        top, left = ((place - module.span) * size - shift for place in (row, column))
        spread = weights.repeat_interleave(size, 1).repeat_interleave(size, 2) / module.heads
        inside = _inside(maps, spread, top, left)
        maps[:, *inside[0]] += spread[:, *inside[1]]
        every.append(weights.flatten(1))
    shift = module.shift(0)
    x, y = ((place + shift) // size * size - shift for place in sample.pixel)
    places = [sample.centre + distance for distance in near]
    weights = torch.stack(every).mean(0)
    return _described(title, places, maps, weights, (x, y, size, size), NEARBY)


def _inside(
    maps: Tensor, spread: Tensor, top: int, left: int
) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Where a picture laid on `maps` at (left, top) lies in them, and which part of it does."""
    there, here = [], []
    for start, length, limit in zip((top, left), spread.shape[1:], maps.shape[1:], strict=True):
        first, stop = max(start, 0), min(start + length, limit)
        there.append(slice(first, stop))
        here.append(slice(first - start, stop - start))
    return (there[0], there[1]), (here[0], here[1])


def _described(
    title: str,
    places: list[int],
    maps: Tensor,
    weights: Tensor,
    patch: tuple[int, int, int, int],
    words: str,
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
        words=words,
    )


def _of_frames(title: str, module: AttentionFusion, call: Call, sample: Sample) -> Attention:
    """EDVR's: how much of each aligned frame passes, at every place, by likeness to the centre."""
    maps = module.weights(*call.given)[0, :, 0].cpu()
    x, y = sample.pixel
    here = maps[:, y, x]
    weights = (here / here.sum())[:, None]
    return _described(title, list(range(len(maps))), maps, weights, (x, y, 1, 1), EVERY_PLACE)
