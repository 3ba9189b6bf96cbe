"""NIQE: how far a frame's statistics are from those of natural photographs; needs no reference.

Mittal, Soundararajan, Bovik 2013, with the parameters of the authors' release.
"""

from fractions import Fraction

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.errors import DataError
from vsrkit.evaluate.metric_weights import load_metric_weights
from vsrkit.evaluate.metrics import NIQE_BLOCK as BLOCK
from vsrkit.evaluate.metrics import measured
from vsrkit.models.layers.resample import imresize

SHAPES = torch.arange(0.2, 10.001, 0.001, dtype=torch.float64)  # candidates for a shape parameter
NEIGHBOURS = ((0, 1), (1, 0), (1, 1), (1, -1))  # rows down, columns right


def niqe(frame: Tensor) -> float:
    """NIQE of a frame (3, H, W), RGB in [0, 1]; lower is more natural.

    The frame is cropped to whole blocks of 96 x 96 pixels, of which it must have at least two.
    """
    luma = measured(frame, channel="y")[0].round()
    rows, columns = luma.shape[0] // BLOCK, luma.shape[1] // BLOCK
    if rows * columns < 2:
        raise DataError(
            f"NIQE needs two blocks of {BLOCK}x{BLOCK} pixels, "
            f"the frame is {luma.shape[1]}x{luma.shape[0]}"
        )
    luma = luma[: rows * BLOCK, : columns * BLOCK]
    features = []
    for side in (BLOCK, BLOCK // 2):
        blocks = _contrast_normalised(luma).reshape(rows, side, columns, side)
        features.append(_features(blocks.transpose(1, 2).flatten(0, 1)))
        luma = imresize(luma, Fraction(1, 2))
    natural = load_metric_weights("niqe")
    return float(_distance(torch.cat(features, 1), natural["mean"], natural["covariance"]))


def _distance(features: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """Distance between two Gaussians: that of the blocks' features (N, 36) and the given one."""
    usable = features[~features.isnan().any(1)]
    if len(usable) < 2:  # flat frames have no statistics
        return features.new_tensor(torch.nan)
    difference = mean - features.nanmean(0)
    middle = (covariance + usable.T.cov()) / 2
    return (difference @ torch.linalg.pinv(middle, hermitian=True) @ difference).sqrt()


def _contrast_normalised(luma: Tensor) -> Tensor:
    """Subtract the local mean of (H, W) and divide by the local deviation."""
    offsets = torch.arange(-3, 4, dtype=luma.dtype)
    taps = torch.exp(-(offsets**2) / (2 * (7 / 6) ** 2))
    window = (taps[:, None] * taps / taps.sum() ** 2)[None, None]
    both = torch.stack([luma, luma * luma])[:, None]
    mean, squares = F.conv2d(F.pad(both, (3, 3, 3, 3), mode="replicate"), window)[:, 0]
    return (luma - mean) / ((squares - mean * mean).abs().sqrt() + 1)


def _features(blocks: Tensor) -> Tensor:
    """18 parameters of the distributions of values and of products of neighbours: (N, 18)."""
    shape, left, right = _fit(blocks)
    found = [shape, (left + right) / 2]
    for shift in NEIGHBOURS:
        shape, left, right = _fit(blocks * blocks.roll(shift, (1, 2)))
        ratio = torch.exp(torch.lgamma(2 / shape) - torch.lgamma(1 / shape))
        found += [shape, (right - left) * ratio, left, right]
    return torch.stack(found, 1)


def _fit(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Fit an asymmetric generalised Gaussian to each block: shape, left and right scale, (N,)."""
    values = blocks.flatten(1)
    squares = values * values
    left = _root_mean(squares, values < 0)
    right = _root_mean(squares, values > 0)
    skew = left / right
    ratio = values.abs().mean(1) ** 2 / squares.mean(1)
    ratio = ratio * (skew**3 + 1) * (skew + 1) / (skew**2 + 1) ** 2
    shape = SHAPES[(_RATIOS - ratio[:, None]).abs().nan_to_num(0).argmin(1)]
    scale = torch.exp((torch.lgamma(1 / shape) - torch.lgamma(3 / shape)) / 2)
    return shape, left * scale, right * scale


def _root_mean(squares: Tensor, mask: Tensor) -> Tensor:
    return ((squares * mask).sum(1) / mask.sum(1)).sqrt()


def _moment_ratio(shape: Tensor) -> Tensor:
    """Squared mean magnitude over mean square of a generalised Gaussian of this shape."""
    logs = 2 * torch.lgamma(2 / shape) - torch.lgamma(1 / shape) - torch.lgamma(3 / shape)
    return logs.exp()


_RATIOS = _moment_ratio(SHAPES)
