"""Optical flow: `warp`, SPyNet (Ranjan and Black, 2017), and a light network for both directions.

Convention: a flow is (N, 2, H, W) in pixels, channel 0 = u (right), channel 1 = v (down).
`flow_to_prev[t]` says where each pixel of frame t is in frame t-1.
"""

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.layers.blocks import at_least_float32, conv3x3, memory_format_of, pad_to, resize

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
ROW_CHANNELS = 16  # from which on whole pixels are moved at once: a row of numbers must pay
LK_DAMPING = 1e-3  # of the squared slope: where there is no texture, nothing moves
LK_LIMIT = 1.0  # pixels: a step is good for about as far as a slope reaches


def warp(
    x: Tensor,
    flow: Tensor,
    *,
    padding: Literal["zeros", "border"] = "zeros",
    mode: Literal["bilinear", "nearest"] = "bilinear",
) -> Tensor:
    """Pull `x` backwards along `flow`: out[y, x] = x[y + v, x + u].

    x:    (N, C, H, W)
    flow: (N, 2, H, W), pixels, channel 0 = u (right), channel 1 = v (down)

    Never samples in less than float32: a bfloat16 grid cannot even name the columns of a wide
    frame, and `grid_sample` then reads outside of it. The result has the type and layout of `x`.
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
    if padding == "border":  # where PyTorch's backward pass reads outside of memory for NaN
        grid = grid.nan_to_num()
    out = F.grid_sample(wide, grid, mode=mode, padding_mode=padding, align_corners=True)
    return out.to(x.dtype).contiguous(memory_format=memory_format_of(x))


def _can_warp_rows(x: Tensor) -> bool:
    """Whether the values of a pixel lie side by side, and nobody asks for gradients."""
    few = x.shape[1] < ROW_CHANNELS
    return not (few or torch.is_grad_enabled() or memory_format_of(x) != torch.channels_last)


def _warp_rows(x: Tensor, flow: Tensor) -> Tensor:
    """`warp` for channels-last features: each pixel is a weighted sum of four rows of a table.

    `grid_sample` picks single values, which takes more than twice as long there.
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
    """The two places beside each position and their weights; places outside weigh nothing."""
    position = position.clamp(-1, size)  # further out nothing changes, and numbers stay small
    before = position.floor()
    share = position - before
    return [
        (place.clamp(0, size - 1).long(), weight * (place.clamp(0, size - 1) == place))
        for place, weight in ((before, 1 - share), (before + 1, share))
    ]


class SPyNet(nn.Module):
    """Coarse to fine: six levels, each a small network that mends the flow of the level below."""

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
        size = (math.ceil(h / step) * step, math.ceil(w / step) * step)
        # The convolutions may run in bfloat16, the flow itself stays float32: its unit is pixels.
        flow = self._coarse_to_fine(resize(reference, size), resize(neighbour, size))
        ratio = torch.tensor([w / size[1], h / size[0]], device=flow.device)
        return resize(flow, (h, w)) * ratio.view(1, 2, 1, 1)

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

    Each level looks at frames of twice its grid's size with 2x2 pixels stacked into channels, so
    that the finest grid, at half size, still sees every pixel. A level gets both frames, each
    also warped onto the other, and the flows so far; it answers with what to add to both flows.
    Before each level but the coarsest, and once more at full size, a step in closed form brings
    the flows most of the way (`lucas_kanade`), so that little is left to be learnt.
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
        """Both flows (N, 4, ., .) after each level, on and in pixels of that level's grid."""
        step = 2 ** len(self.levels)
        size = [math.ceil(side / step) * step for side in a.shape[-2:]]
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
    """Flow on a grid of twice the size: twice as many pixels, each half as wide."""
    return 2 * F.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=False)


def _small_motions(a: Tensor, b: Tensor, flows: Tensor) -> Tensor:
    """`lucas_kanade` in both directions, on grey frames: flows (N, 4, H, W) -> the same."""
    a, b = (x.mean(1, keepdim=True) for x in (a, b))
    both = lucas_kanade(torch.cat([a, b]), torch.cat([b, a]), torch.cat(flows.chunk(2, 1)))
    return torch.cat(both.chunk(2), 1)


@torch.no_grad()
def lucas_kanade(reference: Tensor, neighbour: Tensor, flow: Tensor, steps: int = 2) -> Tensor:
    """Lucas and Kanade's small motions (1981), in closed form: what to add to `flow`.

    `flow` says where each pixel of `reference` is in `neighbour`. Has no weights and passes no
    gradient on. Frames (N, C, H, W), flow (N, 2, H, W) in pixels -> the same.
    """
    mended = flow
    for _ in range(steps):
        warped = warp(neighbour, mended, padding="border")
        mended = mended + _lucas_kanade_step(reference, warped)
    return _box(mended, 3) - flow


def _lucas_kanade_step(a: Tensor, b: Tensor) -> Tensor:
    """Least squares over a window, one equation per pixel: slope . motion = a - b."""
    middle = F.pad((a + b) / 2, (1, 1, 1, 1), mode="replicate")
    x = (middle[..., 1:-1, 2:] - middle[..., 1:-1, :-2]) / 2
    y = (middle[..., 2:, 1:-1] - middle[..., :-2, 1:-1]) / 2
    t = a - b
    products = torch.stack([(p * q).sum(1) for p, q in ((x, x), (x, y), (y, y), (x, t), (y, t))], 1)
    # Twice, because two boxes make a window without hard edges.
    xx, xy, yy, xt, yt = _box(_box(products, 5), 5).unbind(1)
    xx, yy = xx + LK_DAMPING, yy + LK_DAMPING
    determinant = xx * yy - xy * xy
    u = (yy * xt - xy * yt) / determinant
    v = (xx * yt - xy * xt) / determinant
    return torch.stack([u, v], 1).clamp(-LK_LIMIT, LK_LIMIT)


def _box(x: Tensor, size: int) -> Tensor:
    """The mean over a box around each pixel, of odd size; edges repeat.

    Shifted sums, rows then columns: on a CPU many times faster than average pooling.
    """
    padded = F.pad(x, (size // 2,) * 4, mode="replicate")
    return _shifted_sum(_shifted_sum(padded, size, -2), size, -1).div_(size**2)


def _shifted_sum(x: Tensor, size: int, dim: int) -> Tensor:
    """Each value and the `size` - 1 after it; pairs first, which the sum of five uses twice."""
    length = x.shape[dim] - size + 1
    pairs = x.narrow(dim, 0, length + size - 2) + x.narrow(dim, 1, length + size - 2)
    total = pairs.narrow(dim, 0, length) + x.narrow(dim, size - 1, length)
    for shift in range(2, size - 1, 2):
        total += pairs.narrow(dim, shift, length)
    return total


def flow_networks(model: nn.Module) -> list[nn.Module]:
    """The parts of a model that find motion, if it has any."""
    return [part for part in model.modules() if isinstance(part, (SPyNet, LightFlow))]
