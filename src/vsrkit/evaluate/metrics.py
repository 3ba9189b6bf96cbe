"""Quality of frames against their ground truth, computed as in the papers.

Frames are prepared by `measured`: (C, H, W) float64 in 0..255.
"""

from collections.abc import Collection, Iterable
from functools import lru_cache
from math import inf, log10
from typing import Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.models.layers.resample import resample, tap_matrix

Channel: TypeAlias = Literal["rgb", "y"]
Metric: TypeAlias = Literal[
    "psnr",
    "ssim",
    "ms_ssim",
    "warping_error",
    "warped_flicker",
    "tof",
    "flicker",
    "consistency",
    "grid",
    "lpips",
    "lpips_vgg",
    "tlpips",
    "dists",
    "niqe",
    "vmaf",
]
METRICS: tuple[Metric, ...] = get_args(Metric)
DEFAULT_METRICS: tuple[Metric, ...] = ("psnr", "ssim")

# MATLAB's rgb2ycbcr: BT.601 in 16..235, from RGB in 0..255; not rounded.
Y_OF_RGB = torch.tensor([65.481, 128.553, 24.966], dtype=torch.float64) / 255
Y_SHARES = Y_OF_RGB / Y_OF_RGB.sum()

SSIM_SIZE, SSIM_SIGMA = 11, 1.5
C1, C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
MS_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # Wang et al. 2003, finest scale first
LPIPS_SMALLEST = 31  # AlexNet's last features of smaller frames are empty
NIQE_BLOCK = 96
GRID_NEIGHBOURS = (*range(-6, -2), *range(3, 7))  # bins around a peak of the spectrum
INVISIBLE = 0.05  # amplitude of a pattern of which eyes see nothing, of 255
GRID_PERIODS = 16  # of the grid that a frame must hold in each direction
MS_SMALLEST = (SSIM_SIZE - 1) * 2 ** (len(MS_WEIGHTS) - 1) + 1


def measured(frame: Tensor, *, channel: Channel, border: int = 0, rounded: bool = True) -> Tensor:
    """Prepare a frame for comparison: (3, H, W) in [0, 1] -> (3 or 1, H', W') float64 in 0..255.

    The steps are, in this order: clip, round to 8 bits, crop the border, convert to luma.

    Args:
        frame: RGB.
        channel: compare RGB or luma.
        border: pixels to crop from every side.
        rounded: round to 8 bits, halves to the even neighbour.
    """
    x = frame.double().clamp(0, 1) * 255
    if rounded:
        x = x.round()
    if border:
        x = x[..., border:-border, border:-border]
    return luma(x) if channel == "y" else x


def smallest_side(metrics: Collection[Metric], scale: int) -> int:
    """The smallest side of a frame in pixels for which all these metrics are defined.

    Args:
        metrics: names of metrics.
        scale: the factor by which the frames were enlarged.
    """
    sides = {"ms_ssim": MS_SMALLEST, "niqe": NIQE_BLOCK, "grid": GRID_PERIODS * scale}
    sides |= dict.fromkeys(("lpips", "lpips_vgg", "tlpips", "dists"), LPIPS_SMALLEST)
    return max((sides.get(metric, SSIM_SIZE) for metric in metrics), default=SSIM_SIZE)


def luma(rgb: Tensor) -> Tensor:
    """Compute MATLAB's Y of (3, H, W) RGB in 0..255: (1, H, W) in 16..235, not rounded."""
    return (torch.einsum("c,chw->hw", Y_OF_RGB.to(rgb), rgb) + 16)[None]


def psnr(a: Tensor, b: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of two (C, H, W) in 0..255; infinite if they are equal."""
    error = float((a - b).square().mean())
    return inf if error == 0 else 10 * log10(255**2 / error)


def mean_psnr_y(sr: Iterable[Tensor], hr: Iterable[Tensor]) -> float:
    """Mean PSNR of luma in dB over pairs of frames (3, H, W), RGB in [0, 1]."""
    pairs = zip(sr, hr, strict=True)
    scores = [psnr(measured(a, channel="y"), measured(b, channel="y")) for a, b in pairs]
    return sum(scores) / len(scores)


def worst_crop(error: Tensor, height: int, width: int, *, step: int) -> tuple[int, int]:
    """Find the crop with the largest mean error; returns its top and left.

    Args:
        error: error of each pixel, (H, W).
        height: height of the crop, at most H.
        width: width of the crop, at most W.
        step: pixels between the candidates.
    """
    means = F.avg_pool2d(error[None, None], (height, width), stride=step)[0, 0]
    row, column = divmod(int(means.argmax()), means.shape[1])
    return step * row, step * column


def grid(y: Tensor, scale: int) -> float:
    """How much a frame shows a grid of `scale` pixels, in dB; about 0 for natural pictures.

    Networks that enlarge by a pixel shuffle can leave a pattern that repeats every `scale` pixels.
    The mean over all rows, and that over all columns, keep the pattern and little else. Their
    spectra then have peaks at the multiples of 1 / scale cycles per pixel: the result is the mean
    height of these peaks above the neighbouring frequencies.

    Args:
        y: (1, H, W) luma in [0, 255]; each side at least 16 * scale pixels.
        scale: period in pixels, at least 2.
    """
    heights = []
    for lines in (y[0].double(), y[0].double().T):
        line = lines.mean(0)[: lines.shape[1] // scale * scale]  # the peaks fall on a bin
        window = torch.hann_window(len(line), dtype=line.dtype, device=line.device)
        amplitude = 2 * torch.fft.rfft((line - line.mean()) * window).abs() / window.sum()
        power = amplitude.square() + INVISIBLE**2
        for peak in range(len(line) // scale, len(line) // 2 + 1, len(line) // scale):
            # The window spreads a peak over three bins, which are not neighbours.
            near = [peak + d for d in GRID_NEIGHBOURS if peak + d < len(power)]
            heights.append(10 * (power[peak] / power[near].mean()).log10())
    return float(torch.stack(heights).mean())


def ssim(a: Tensor, b: Tensor) -> float:
    """Structural similarity of two (C, H, W) in 0..255, mean over pixels and channels.

    Uses a Gaussian window of 11 x 11 pixels and sigma 1.5, at positions where it fits inside.
    """
    # Channel by channel, which needs a third of the memory and fits the CPU cache better.
    channels = zip(a.split(1), b.split(1), strict=True)
    return float(torch.stack([_ssim_maps(x, y)[0].mean() for x, y in channels]).mean())


def ms_ssim(a: Tensor, b: Tensor) -> float:
    """Multi-scale structural similarity over five scales; both sides must exceed 160 pixels."""
    if min(a.shape[-2:]) < MS_SMALLEST:
        raise ValueError(f"MS-SSIM needs at least {MS_SMALLEST} pixels a side, got {a.shape[-2:]}")
    total = torch.ones(a.shape[0], dtype=a.dtype)
    for weight in MS_WEIGHTS[:-1]:
        _, contrast = _ssim_maps(a, b)
        total = total * contrast.mean((1, 2)).clamp(min=0) ** weight
        a, b = _halve(a), _halve(b)
    similarity, _ = _ssim_maps(a, b)
    total = total * similarity.mean((1, 2)).clamp(min=0) ** MS_WEIGHTS[-1]
    return float(total.mean())


def _halve(x: Tensor) -> Tensor:
    """Average 2 x 2 pixels; odd sides are padded by zeros, as in the reference code."""
    return F.avg_pool2d(x, 2, padding=[side % 2 for side in x.shape[-2:]])


def _ssim_maps(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Compute similarity and its contrast-structure part: two (C, H - 10, W - 10)."""
    height, width = a.shape[-2:]
    if min(height, width) < SSIM_SIZE:
        raise ValueError(f"SSIM needs at least {SSIM_SIZE} pixels a side, got {width}x{height}")
    rows, columns = _gaussian(height), _gaussian(width)
    mean_a, mean_b = resample(a, rows, columns), resample(b, rows, columns)
    square_a, square_b = resample(a * a, rows, columns), resample(b * b, rows, columns)
    product = resample(a * b, rows, columns)
    contrast = (2 * (product - mean_a * mean_b) + C2) / (
        square_a - mean_a**2 + square_b - mean_b**2 + C2
    )
    brightness = (2 * mean_a * mean_b + C1) / (mean_a**2 + mean_b**2 + C1)
    return brightness * contrast, contrast


@lru_cache(maxsize=32)
@torch.inference_mode(False)
def _gaussian(length: int) -> Tensor:
    """Matrix of SSIM's Gaussian window along one axis: (length - 10, length)."""
    offsets = torch.arange(SSIM_SIZE, dtype=torch.float64) - SSIM_SIZE // 2
    weights = torch.exp(-(offsets**2) / (2 * SSIM_SIGMA**2))
    taps = torch.arange(length - SSIM_SIZE + 1)[:, None] + torch.arange(SSIM_SIZE)
    return tap_matrix(taps, weights.expand(len(taps), -1), length, "replicate")
