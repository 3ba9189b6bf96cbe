"""Optical flow: `warp`, SPyNet (Ranjan and Black, 2017), `LightFlow`, and flow without weights.

Convention: a flow is (N, 2, H, W) in pixels, channel 0 = u (right), channel 1 = v (down).
`flow_to_prev[t]` is where each pixel of frame t is in frame t-1.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.layers.blocks import at_least_float32, conv3x3, memory_format_of, resize
from vsrkit.models.spec import pad_to

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
ROW_CHANNELS = 16  # fewest channels for which `_warp_rows` is faster than `grid_sample`
LK_DAMPING = 1e-3  # added to the squared slopes: no motion where there is no texture
LK_REACH = 5  # rows that a step sees in each direction: one of the slopes, two of each box
LK_BAND = 25_000  # values of a frame that are processed at once
LK_LIMIT = 1.0  # largest step in pixels: about as far as a slope is valid
HS_SMOOTHNESS = 0.1  # weight of a change of the flow, against a change of brightness (0 ... 1)
HS_COARSEST = 16  # shortest side of the coarsest pyramid level, in pixels
HS_WARPS = 3  # per level
HS_ITERATIONS = 20  # per warp


def warp(
    x: Tensor,
    flow: Tensor,
    *,
    padding: Literal["zeros", "border"] = "zeros",
    mode: Literal["bilinear", "nearest"] = "bilinear",
) -> Tensor:
    """Backward warp: out[y, x] = x[y + v, x + u].

    x:    (N, C, H, W)
    flow: (N, 2, H, W), pixels, channel 0 = u (right), channel 1 = v (down)

    Samples in float32 or wider: bfloat16 cannot represent the columns of a wide frame, and
    `grid_sample` would read outside of it. The result has the dtype and memory format of `x`.
    """
    if (padding, mode) == ("zeros", "bilinear") and _can_warp_rows(x):
        return _warp_rows(x, flow)
    h, w = flow.shape[-2:]
    wide = at_least_float32(x)
    u, v = flow.to(wide.dtype).unbind(1)
    columns = torch.arange(w, device=flow.device, dtype=wide.dtype)
    rows = torch.arange(h, device=flow.device, dtype=wide.dtype)[:, None]
    grid = torch.stack(
        [2 * (columns + u) / max(w - 1, 1) - 1, 2 * (rows + v) / max(h - 1, 1) - 1], dim=-1
    )
    if padding == "border":  # with NaN, PyTorch's backward pass reads out of bounds
        grid = grid.nan_to_num()
    out = F.grid_sample(wide, grid, mode=mode, padding_mode=padding, align_corners=True)
    return out.to(x.dtype).contiguous(memory_format=memory_format_of(x))


def _can_warp_rows(x: Tensor) -> bool:
    """Whether `x` is channels-last with enough channels, and no gradients are needed."""
    few = x.shape[1] < ROW_CHANNELS
    return not (few or torch.is_grad_enabled() or memory_format_of(x) != torch.channels_last)


def _warp_rows(x: Tensor, flow: Tensor) -> Tensor:
    """`warp` for channels-last features: each output pixel is a weighted sum of four pixels.

    `embedding_bag` reads whole pixels; `grid_sample` reads single values and takes over twice as
    long.
    """
    n, c, h, w = x.shape
    wide = at_least_float32(x)
    u, v = flow.to(wide.dtype).nan_to_num().unbind(1)
    numbers, weights = [], []
    for row, row_weight in _neighbours(torch.arange(h, device=x.device)[:, None] + v, h):
        for column, column_weight in _neighbours(torch.arange(w, device=x.device) + u, w):
            numbers.append(row * w + column)
            weights.append(row_weight * column_weight)
    first = torch.arange(n, device=x.device).view(n, 1, 1, 1) * (h * w)
    out = F.embedding_bag(
        (torch.stack(numbers, -1) + first).view(-1, 4),
        wide.permute(0, 2, 3, 1).reshape(-1, c),
        per_sample_weights=torch.stack(weights, -1).view(-1, 4),
        mode="sum",
    )
    return out.view(n, h, w, c).to(x.dtype).permute(0, 3, 1, 2)


def _neighbours(position: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    """The two integer positions around each position and their weights; 0 outside of the frame."""
    position = position.clamp(-1, size)  # further out the weights are 0 as well
    before = position.floor()
    share = position - before
    return [
        (place.clamp(0, size - 1).long(), weight * (place.clamp(0, size - 1) == place))
        for place, weight in ((before, 1 - share), (before + 1, share))
    ]


def compose_flows(first: Tensor, second: Tensor) -> Tensor:
    """The flow over two steps of time, from the flows of each: (N, 2, H, W) twice -> (N, 2, H, W).

    first: where each pixel of frame a is in frame b
    second: where each pixel of frame b is in frame c

    Returns where each pixel of a is in c. The second step counts as 0 where the first one leaves
    the frame, as in BasicVSR++ and the networks that followed it.
    """
    return first + warp(second, first)


class SPyNet(nn.Module):
    """Coarse to fine: six levels, each a small network that corrects the upsampled coarser flow."""

    mean: Tensor
    std: Tensor

    def __init__(self, levels: int = 6) -> None:
        super().__init__()
        self.levels = nn.ModuleList(_spynet_level() for _ in range(levels))
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1))

    def forward(self, reference: Tensor, neighbour: Tensor) -> Tensor:
        """Where each pixel of `reference` is in `neighbour`: (N, 3, H, W) twice -> (N, 2, H, W)."""
        h, w = reference.shape[-2:]
        step = 2 ** (len(self.levels) - 1)
        size = (h + -h % step, w + -w % step)
        # The convolutions may run in bfloat16; the flow, in pixels, stays float32.
        flow = self._coarse_to_fine(resize(reference, size), resize(neighbour, size))
        u, v = resize(flow, (h, w)).unbind(1)
        return torch.stack([u * (w / size[1]), v * (h / size[0])], 1)

    def to_neighbours(self, frames: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Flows from each frame (N, 3, H, W) but the last to the next one, and back."""
        pairs = list(pairwise(frames))
        return [self(a, b) for a, b in pairs], [self(b, a) for a, b in pairs]

    def _coarse_to_fine(self, reference: Tensor, neighbour: Tensor) -> Tensor:
        references = self._pyramid(reference)
        neighbours = self._pyramid(neighbour)
        n, _, h, w = references[0].shape
        flow = torch.zeros(n, 2, h, w, device=reference.device)
        for level, ref, near in zip(self.levels, references, neighbours, strict=True):
            if ref.shape[-2:] != flow.shape[-2:]:
                flow = 2 * F.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=True)
            warped = warp(near, flow, padding="border")
            flow = flow + level(torch.cat([ref, warped, flow], 1)).float()
        return flow

    def _pyramid(self, frame: Tensor) -> list[Tensor]:
        """The normalised frame at 1/32, 1/16 ... 1 of its size (for six levels)."""
        pyramid = [(frame - self.mean) / self.std]
        for _ in range(len(self.levels) - 1):
            pyramid.append(F.avg_pool2d(pyramid[-1], 2, count_include_pad=False))
        return pyramid[::-1]


def _spynet_level() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((8, 32, 64, 32, 16, 2)):
        conv = nn.Conv2d(inputs, outputs, 7, padding=3)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        layers += [conv, nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


def spynet_public_name(name: str) -> str:
    """Our tensor name in the style of mmediting and the VSR-Transformer release."""
    return re.sub(
        r"levels\.(\d+)\.(\d+)\.",
        lambda m: f"basic_module.{m[1]}.basic_module.{int(m[2]) // 2}.conv.",
        name,
    )


def spynet_basicsr_name(name: str) -> str:
    """Our tensor name in the style of BasicSR."""
    return re.sub(r"levels\.(\d+)\.(\d+)\.", r"basic_module.\1.basic_module.\2.", name)


def spynet_translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Public tensors in which SPyNet is named in BasicSR's style -> mmediting's."""
    return {
        re.sub(
            r"(basic_module\.\d+\.basic_module)\.(\d+)\.(weight|bias)$",
            lambda m: f"{m[1]}.{int(m[2]) // 2}.conv.{m[3]}",
            name,
        ): value
        for name, value in tensors.items()
    }


class LightFlow(nn.Module):
    """Flow in both directions of a pair in one pass, on a grid of half the frame's size.

    Each level takes frames of twice its grid's size with 2x2 pixels stacked into channels, so that
    the finest grid, at half size, still sees every pixel. Its input is both frames, each frame
    warped onto the other, and the flows so far; its output is added to both flows. Before each
    level but the coarsest, and once more at full size, `lucas_kanade` refines the flows in closed
    form, which leaves less to be learnt.
    """

    def __init__(self, channels: int = 48, levels: int = 4) -> None:
        super().__init__()
        self.levels = nn.ModuleList(_light_level(channels) for _ in range(levels))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Flows a -> b and b -> a: (N, 3, H, W) twice -> (N, 2, H, W) twice."""
        h, w = a.shape[-2:]
        flows = _double(self.coarse_to_fine(a, b)[-1])[..., :h, :w]
        to_b, to_a = (flows + _small_motions(a, b, flows)).chunk(2, 1)
        return to_b, to_a

    def coarse_to_fine(self, a: Tensor, b: Tensor) -> list[Tensor]:
        """Both flows (N, 4, H', W') after each level, in pixels of that level's grid."""
        step = 2 ** len(self.levels)
        size = [side + -side % step for side in a.shape[-2:]]
        a_levels, b_levels = self._pyramid(pad_to(a, *size)), self._pyramid(pad_to(b, *size))
        n, _, grid_h, grid_w = a_levels[0].shape
        flows = torch.zeros(n, 4, grid_h, grid_w, device=a.device)
        results = []
        for level, ua, ub in zip(self.levels, a_levels, b_levels, strict=True):
            if ua.shape[-2:] != flows.shape[-2:]:
                flows = _double(flows)
                flows = flows + _small_motions(ua, ub, flows)
            to_b, to_a = flows.chunk(2, 1)
            b_on_a = warp(ub, to_b, padding="border")
            a_on_b = warp(ua, to_a, padding="border")
            flows = flows + level(torch.cat([ua, ub, b_on_a, a_on_b, flows], 1)).float()
            results.append(flows)
        return results

    def _pyramid(self, frame: Tensor) -> list[Tensor]:
        """2x2 pixels in channels, coarsest first: grids of 1/16, 1/8, 1/4, 1/2 for four levels."""
        frames = [frame - 0.5]
        for _ in range(len(self.levels) - 1):
            frames.append(F.avg_pool2d(frames[-1], 2))
        return [F.pixel_unshuffle(f, 2) for f in frames[::-1]]


def _light_level(channels: int) -> nn.Sequential:
    """52 = both frames and both warped ones (12 each) and two flows; the last layer starts at 0."""
    sizes = (52, channels, channels, channels, channels)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [conv3x3(inputs, outputs), nn.LeakyReLU(0.1, inplace=True)]
    last = conv3x3(channels, 4)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)  # type: ignore[arg-type]
    return nn.Sequential(*layers, last)


def _double(flow: Tensor) -> Tensor:
    """Flow on a grid of twice the size, in pixels of that grid."""
    return 2 * F.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=False)


def _small_motions(a: Tensor, b: Tensor, flows: Tensor) -> Tensor:
    """`lucas_kanade` in both directions, on grey frames: flows (N, 4, H, W) -> what to add."""
    a, b = (x.mean(1, keepdim=True) for x in (a, b))
    both = lucas_kanade(torch.cat([a, b]), torch.cat([b, a]), torch.cat(flows.chunk(2, 1)))
    return torch.cat(both.chunk(2), 1)


@torch.no_grad()
def lucas_kanade(reference: Tensor, neighbour: Tensor, flow: Tensor, steps: int = 2) -> Tensor:
    """Lucas and Kanade's small motions (1981), in closed form; no weights, no gradients.

    reference, neighbour: (N, C, H, W)
    flow: (N, 2, H, W) in pixels, where each pixel of `reference` is in `neighbour`
    steps: how often to warp and estimate the rest

    Returns what to add to `flow`, (N, 2, H, W).
    """
    refined = flow
    for _ in range(steps):
        warped = warp(neighbour, refined, padding="border")
        refined = refined + _lucas_kanade_bands(reference, warped)
    return box_mean(refined, 3) - flow


def _lucas_kanade_bands(a: Tensor, b: Tensor) -> Tensor:
    """`_lucas_kanade_step` on a few rows at a time, whose sums stay in the processor's cache.

    The result is the same bit by bit: a step sees `LK_REACH` rows above and below, and what a band
    has in place of more is cut off. Takes less than half of the time of whole frames.
    """
    n, _, height, width = a.shape
    rows = max(LK_REACH, LK_BAND // (n * width))
    bands = []
    for first in range(0, height, rows):
        start, stop = max(0, first - LK_REACH), min(height, first + rows + LK_REACH)
        band = _lucas_kanade_step(a[..., start:stop, :], b[..., start:stop, :])
        bands.append(band[..., first - start :, :][..., : min(rows, height - first), :])
    return torch.cat(bands, -2)


def _lucas_kanade_step(a: Tensor, b: Tensor) -> Tensor:
    """Least squares over a window, one equation per pixel: slope . motion = a - b."""
    x, y = _slopes((a + b) / 2)
    t = a - b
    products = torch.stack([(p * q).sum(1) for p, q in ((x, x), (x, y), (y, y), (x, t), (y, t))], 1)
    # Two boxes in sequence make a window without hard edges.
    xx, xy, yy, xt, yt = box_mean(box_mean(products, 5), 5).unbind(1)
    xx, yy = xx + LK_DAMPING, yy + LK_DAMPING
    determinant = xx * yy - xy * xy
    u = (yy * xt - xy * yt) / determinant
    v = (xx * yt - xy * xt) / determinant
    return torch.stack([u, v], 1).clamp(-LK_LIMIT, LK_LIMIT)


def _slopes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Central differences along x and along y; edges are repeated."""
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    along_x = (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) / 2
    along_y = (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) / 2
    return along_x, along_y


def box_mean(x: Tensor, size: int) -> Tensor:
    """The mean over a box of odd size around each pixel; edges are repeated.

    Shifted sums, rows then columns: many times faster on a CPU than average pooling.
    """
    padded = F.pad(x, (size // 2,) * 4, mode="replicate")
    return _shifted_sum(_shifted_sum(padded, size, -2), size, -1).div_(size**2)


def _shifted_sum(x: Tensor, size: int, dim: int) -> Tensor:
    """Sum of each value and the `size` - 1 after it; sums of pairs are shared."""
    length = x.shape[dim] - size + 1
    pairs = x.narrow(dim, 0, length + size - 2) + x.narrow(dim, 1, length + size - 2)
    total = pairs.narrow(dim, 0, length) + x.narrow(dim, size - 1, length)
    for shift in range(2, size - 1, 2):
        total += pairs.narrow(dim, shift, length)
    return total


@torch.no_grad()
def horn_schunck(reference: Tensor, neighbour: Tensor) -> Tensor:
    """Horn and Schunck's flow (1981), coarse to fine with warping; no weights, no gradients.

    Minimises the squared change of brightness along the flow and of the flow itself, which
    `HS_SMOOTHNESS` weighs. Returns where each pixel of `reference` is in `neighbour`:
    (B, 3, H, W) twice -> (B, 2, H, W) in pixels.
    """
    grey = torch.tensor([0.299, 0.587, 0.114], device=reference.device).view(1, 3, 1, 1)
    pyramid = [tuple(_blur((x.float() * grey).sum(1, True)) for x in (reference, neighbour))]
    while min(pyramid[-1][0].shape[-2:]) >= 2 * HS_COARSEST:
        pyramid.append(tuple(F.avg_pool2d(_blur(x), 2, ceil_mode=True) for x in pyramid[-1]))
    coarsest = pyramid[-1][0]
    flow = torch.cat([torch.zeros_like(coarsest)] * 2, 1)
    for here, there in reversed(pyramid):
        if flow.shape[-2:] != here.shape[-2:]:
            flow = 2 * F.interpolate(flow, here.shape[-2:], mode="bilinear", align_corners=False)
        for _ in range(HS_WARPS):
            flow = _horn_schunck_step(here, there, flow)
    return flow.to(reference.dtype)


def _horn_schunck_step(here: Tensor, there: Tensor, flow: Tensor) -> Tensor:
    """Linearise brightness around `flow` and iterate towards the best smooth flow."""
    warped = warp(there, flow, padding="border")
    slope = torch.cat(_slopes((here + warped) / 2), 1)  # (B, 2, H, W), along x and along y
    rest = warped - here - (slope * flow).sum(1, True)
    cost = HS_SMOOTHNESS**2 + (slope**2).sum(1, True)
    for _ in range(HS_ITERATIONS):
        mean = _neighbour_mean(flow)
        flow = mean - slope * ((slope * mean).sum(1, True) + rest) / cost
    return flow


def _neighbour_mean(flow: Tensor) -> Tensor:
    """Mean of the eight neighbours of each pixel, the diagonal ones at half weight."""
    kernel = torch.tensor([[1.0, 2.0, 1.0], [2.0, 0.0, 2.0], [1.0, 2.0, 1.0]]) / 12
    return _filter(flow, kernel)


def _blur(x: Tensor) -> Tensor:
    kernel = torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]) / 16
    return _filter(x, kernel)


def _filter(x: Tensor, kernel: Tensor) -> Tensor:
    channels = x.shape[1]
    weight = kernel.to(x).expand(channels, 1, 3, 3)
    return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), weight, groups=channels)


def flow_networks(model: nn.Module) -> list[nn.Module]:
    """The flow networks inside a model."""
    return [part for part in model.modules() if isinstance(part, (SPyNet, LightFlow))]
