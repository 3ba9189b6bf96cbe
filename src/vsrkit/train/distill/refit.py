"""Fitting 3x3 convolutions by least squares, and refitting the last one of a trained model.

Training uses short clips, small crops and a target that is smoother than HR. The last convolution
can be corrected for whole clips and HR itself in one pass over the clips: the output is linear in
its weights, so that the best ones follow from the normal equations. `narrow` uses the same
equations to choose the channels that a student keeps.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.data.clips import Clip
from vsrkit.data.degrade import Degrader
from vsrkit.errors import VsrkitError
from vsrkit.evaluate.metrics import Y_SHARES
from vsrkit.hardware.device import Precision
from vsrkit.models.layers.blocks import upsample_bilinear
from vsrkit.models.vsrt_small import SMALLEST_SIDE, DirectTail, VSRTSmall
from vsrkit.train.losses import FLOOR
from vsrkit.train.training_data import ClipPair, middle_of

TAPS = 9  # of a 3x3 convolution
PRUNING_DAMPING = 1e-4  # ridge penalty, relative to the mean square of the features
FRAMES = 20  # of each clip, as many as are upscaled at once
CROP = 144  # side of the centre crop in LR pixels, small enough to need little memory
SAMPLES = 3000  # pixels of each frame
# Ridge penalty of a refit: keeps the weights close to their old values where the clips give little
# evidence. The best value between 1e-4 and 0.1 on clips that were not fitted.
REFIT_DAMPING = 0.1
BLOCK = 16  # side in LR pixels of the blocks whose means show a pattern
GRID_STEP = 4  # every fourth frame; the ones between hardly differ
# Weight of other changes of the output when a pattern is removed. With less (0.01), blocks lose
# more of their patterns, but flat areas get dots, because details differ from the means of blocks.
GRID_DAMPING = 0.1
# Share of the fitted change that is applied to luma, because the full change flickers more. This
# share keeps half of the gain in PSNR. Chroma, whose flicker is hardly visible, changes fully.
LUMA_STEP = 0.3


@dataclass(frozen=True, slots=True)
class NormalEquations:
    """Sums over pixels of products of the inputs (3x3 features and 1) and the targets."""

    gram: Tensor  # (9C + 1, 9C + 1): inputs with inputs
    cross: Tensor  # (9C + 1, outputs): inputs with targets
    square: float  # targets with themselves

    @property
    def channels(self) -> int:
        """Number of input channels C."""
        return (len(self.gram) - 1) // TAPS

    def __add__(self, other: "NormalEquations") -> "NormalEquations":
        return NormalEquations(
            self.gram + other.gram, self.cross + other.cross, self.square + other.square
        )

    def __mul__(self, factor: float) -> "NormalEquations":
        return NormalEquations(self.gram * factor, self.cross * factor, self.square * factor)


@dataclass(frozen=True, slots=True)
class Fit:
    """A 3x3 convolution of some of the channels, and its square error."""

    channels: list[int]
    weight: Tensor  # (outputs, channels, 3, 3)
    bias: Tensor
    error: float


def prune_channels(equations: NormalEquations, sizes: Sequence[int]) -> dict[int, Fit]:
    """Fit convolutions of fewer and fewer channels; returns them by number of channels.

    Channels are removed as in "optimal brain surgeon" (Hassibi and Stork, 1993), but whole
    channels: those whose removal raises the square error least when the others are fitted again.

    Args:
        equations: sums over pixels for all channels.
        sizes: the numbers of channels to return.
    """
    remaining = list(range(equations.channels))
    found: dict[int, Fit] = {}
    while True:
        if len(remaining) in sizes:
            found[len(remaining)] = fit(equations, remaining)
        smaller = [size for size in sizes if size < len(remaining)]
        if not smaller:
            return found
        count = min(len(remaining) - max(smaller), max(1, len(remaining) // 12))
        cost = _removal_costs(equations, remaining)
        removed = set(cost.argsort()[:count].tolist())
        remaining = [channel for number, channel in enumerate(remaining) if number not in removed]


def _removal_costs(equations: NormalEquations, remaining: list[int]) -> Tensor:
    """Growth of the square error without each channel, the others fitted again: (channels,)."""
    inverse, weight = _solve(equations, remaining)
    n = len(remaining)
    weight = weight[:-1].unflatten(0, (n, TAPS))
    blocks = torch.stack([inverse[i : i + TAPS, i : i + TAPS] for i in range(0, n * TAPS, TAPS)])
    return (weight * torch.linalg.solve(blocks, weight)).sum((1, 2))


def fit(equations: NormalEquations, channels: list[int], damping: float = PRUNING_DAMPING) -> Fit:
    """The convolution of these channels with the least square error.

    damping: ridge penalty, relative to the mean square of the features.
    """
    _, solution = _solve(equations, channels, damping)
    error = equations.square - float((solution * equations.cross[_rows(equations, channels)]).sum())
    weight = solution[:-1].unflatten(0, (len(channels), 3, 3)).permute(3, 0, 1, 2)
    return Fit(channels, weight.float(), solution[-1].float(), error)


def _solve(
    equations: NormalEquations, channels: list[int], damping: float = PRUNING_DAMPING
) -> tuple[Tensor, Tensor]:
    rows = _rows(equations, channels)
    gram = equations.gram[rows][:, rows]
    inverse = torch.linalg.inv(
        gram + damping * equations.gram.diagonal().mean() * torch.eye(len(gram))
    )
    return inverse, inverse @ equations.cross[rows]


def _rows(equations: NormalEquations, channels: list[int]) -> Tensor:
    taps = torch.tensor(channels, dtype=torch.long)[:, None] * TAPS + torch.arange(TAPS)
    return torch.cat([taps.flatten(), torch.tensor([len(equations.gram) - 1])])


def normal_equations(
    features: Tensor, target: Tensor, samples: int, seed: int = 0
) -> NormalEquations:
    """Sums over random pixels of features (N, C, H, W) and targets (N, outputs, H, W).

    samples: number of pixels; seed: of their positions.
    """
    random = torch.Generator().manual_seed(seed)
    n, _, h, w = target.shape
    i, y, x = (torch.randint(side, (samples,), generator=random) for side in (n, h, w))
    padded = F.pad(features, (1, 1, 1, 1)).permute(0, 2, 3, 1)
    near = [padded[i, y + dy, x + dx] for dy in range(3) for dx in range(3)]
    a = torch.cat([torch.stack(near, 2).flatten(1), torch.ones(samples, 1)], 1)
    b = target.permute(0, 2, 3, 1)[i, y, x]
    # In float64, because the sums are inverted and features differ by orders of magnitude.
    return NormalEquations(
        (a.mT @ a).double(), (a.mT @ b).double(), float(b.double().square().sum())
    )


@torch.no_grad()
def refit(model: nn.Module, clips: Iterable[ClipPair], precision: Precision, device: str) -> None:
    """Fit the last convolution of a model to HR, in place.

    Args:
        model: a vsrt-s or vsrt-m on `device`.
        clips: clips in both resolutions; the errors of each are divided by its mean square error.
        precision: number type of the forward pass.
        device: device of the model.
    """
    conv = last_convolution(model)
    equations = reduce(add, (_clip_equations(model, clip, precision, device) for clip in clips))
    found = fit(equations, list(range(equations.channels)), damping=REFIT_DAMPING)
    conv.weight += damp_luma(found.weight).to(conv.weight)
    conv.bias += damp_luma(found.bias).to(conv.weight)  # type: ignore[operator]


@torch.no_grad()
def remove_grid(
    model: nn.Module, clips: Iterable[ClipPair], precision: Precision, device: str
) -> None:
    """Change the last convolution so that no subpixel is brighter on average, in place.

    A network trained for perceptual losses can add a pattern that repeats every LR pixel. In the
    mean of a block, all that the last convolution adds to it is a linear function of the mean
    features. This function is fitted to the patterns of many blocks and subtracted; other changes
    of the output count as errors of the fit, with the weight `GRID_DAMPING`.

    Args:
        model: a vsrt-s or vsrt-m on `device`.
        clips: clips in both resolutions.
        precision: number type of the forward pass.
        device: device of the model.
    """
    conv = last_convolution(model)
    if conv.out_channels == 3:
        raise VsrkitError('refit_goal = "no-grid" is only for models whose tail is one convolution')
    means, patterns, gram = list[Tensor](), list[Tensor](), torch.zeros(())
    for clip in clips:
        for features, error in _last_errors(model, clip, precision, device)[::GRID_STEP]:
            size = [side // BLOCK * BLOCK for side in error.shape[-2:]]
            columns = F.unfold(features, 3, padding=1).unflatten(2, error.shape[-2:])
            columns = columns[..., : size[0], : size[1]].double()
            mean = F.avg_pool2d(columns, BLOCK)
            change = (columns - F.interpolate(mean, scale_factor=BLOCK)).flatten(2)[0]
            gram = gram + change @ change.mT / change.shape[1]
            means.append(F.pad(mean.flatten(2)[0].mT, (0, 1), value=1.0))
            places = F.avg_pool2d(error.double(), BLOCK).flatten(2)[0].mT.unflatten(1, (3, -1))
            patterns.append((places - places.mean(-1, keepdim=True)).flatten(1))
    mean, pattern = torch.cat(means), torch.cat(patterns)
    normal = mean.mT @ mean / len(mean) + GRID_DAMPING * F.pad(gram / len(means), (0, 1, 0, 1))
    change = torch.linalg.lstsq(normal, mean.mT @ pattern / len(mean), driver="gelsd").solution
    conv.weight += change[:-1].mT.reshape(conv.weight.shape).to(conv.weight)
    conv.bias += change[-1].to(conv.weight)


def damp_luma(change: Tensor) -> Tensor:
    """A change of RGB (3 x n outputs in the first axis) with its luma multiplied by `LUMA_STEP`."""
    colours = change.unflatten(0, (3, -1))
    luma = torch.tensordot(Y_SHARES.to(change), colours, dims=1)
    return (colours - (1 - LUMA_STEP) * luma).flatten(0, 1)


def last_convolution(model: nn.Module) -> nn.Conv2d:
    """The convolution whose output is added to the enlarged LR frame."""
    if not isinstance(model, VSRTSmall):
        raise VsrkitError("refit is only for vsrt-s and vsrt-m; leave it empty for other models")
    return model.tail.conv if isinstance(model.tail, DirectTail) else model.tail.conv_last


def refit_clips(clips: Sequence[Clip], degradation: Degrader) -> Iterator[ClipPair]:
    """The middle of each clip in both resolutions; clips too small for the models are left out."""
    for number, clip in enumerate(clips):
        if min(clip.shape[1:3]) >= 4 * SMALLEST_SIDE:
            yield middle_of(clip, number, degradation, FRAMES, CROP)


def _clip_equations(
    model: nn.Module, clip: ClipPair, precision: Precision, device: str
) -> NormalEquations:
    """Normal equations of the remaining error of a clip, divided by its mean square error."""
    found = [
        normal_equations(features, error, SAMPLES, seed=number)
        for number, (features, error) in enumerate(_last_errors(model, clip, precision, device))
    ]
    total = reduce(add, found)
    mean_square = total.square / (len(found) * SAMPLES * total.cross.shape[1])
    return total * (1 / (mean_square + FLOOR))


def _last_errors(
    model: nn.Module, clip: ClipPair, precision: Precision, device: str
) -> list[tuple[Tensor, Tensor]]:
    """Input of the last convolution and what its output lacks to HR, of each frame of a clip."""
    conv, found = last_convolution(model), list[tuple[Tensor, Tensor]]()
    detail = clip.hr - upsample_bilinear(clip.lr, clip.hr.shape[-1] // clip.lr.shape[-1])

    def add_frame(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        target = detail[len(found)][None]
        if conv.out_channels != target.shape[1]:
            target = F.pixel_unshuffle(target, 4)
        found.append((inputs[0].float().cpu(), target - output.float().cpu()))

    handle = conv.register_forward_hook(add_frame)
    try:  # outside of `allow_parallel`, so that frames are computed one by one in order
        kind = torch.device(device).type
        with torch.autocast(kind, torch.bfloat16, enabled=precision.dtype == "bfloat16"):
            model(clip.lr[None].to(device))
    finally:
        handle.remove()
    return found
