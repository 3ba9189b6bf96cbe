"""Faults of real footage, each of random strength: what happens between a lens and an encoder.

A fault maps an LR clip (T, 3, H, W) of RGB in [0, 1] and a random generator to a clip of the same
shape. The faults keep the picture where it is and, except for a loss of contrast in fine detail, do
not change its mean colour. Values may leave [0, 1] slightly and are not rounded.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.data.recompress import CODECS, MATRIX, MPEG2, MPEG4, VP9, X264, X265, recompress

Fault: TypeAlias = Callable[[Tensor, np.random.Generator], Tensor]

# Qualities in which footage is met: from hardly visible artefacts to the worst that is watched.
USUAL_QUALITY = {X264: (16, 33), X265: (18, 34), VP9: (22, 46), MPEG2: (2, 9), MPEG4: (2, 9)}
_YUV = (MATRIX / 255).float()
_RGB = torch.linalg.inv(MATRIX / 255).float()


def encoded(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Encode a clip at a random quality and decode it again; half of the clips with x264."""
    codec = X264 if rng.random() < 0.5 else CODECS[rng.integers(1, len(CODECS))]
    best, worst = USUAL_QUALITY[codec]
    return torch.stack(
        list(recompress(clip.clamp(0, 1), int(rng.integers(best, worst + 1)), codec))
    )


def encoded_at_another_size(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Encode a clip at 0.7 to 1.6 times its size and resize it back, as of a video shared twice."""
    height, width = clip.shape[-2:]
    factor = Fraction(float(rng.uniform(0.7, 1.6))).limit_denominator(64)
    size = [max(16, 2 * round(side * factor / 2)) for side in (height, width)]
    return _resized(encoded(_resized(clip, *size), rng), height, width)


def _resized(clip: Tensor, height: int, width: int) -> Tensor:
    if clip.shape[-2:] == (height, width):
        return clip
    size = (height, width)
    return F.interpolate(clip, size, mode="bicubic", antialias=True).clamp(0, 1)


def out_of_focus(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Blur with a Gaussian of random direction, up to three times as long as wide.

    The long ones resemble the motion of a hand-held camera.
    """
    narrow = float(rng.uniform(0.3, 0.9))  # standard deviation in LR pixels
    wide = narrow * float(rng.uniform(1, 3)) ** float(rng.integers(2))
    angle = float(rng.uniform(0, math.pi))
    reach = math.ceil(2.5 * wide)
    y, x = torch.meshgrid(*(torch.arange(-reach, reach + 1.0),) * 2, indexing="ij")
    along, across = (
        x * math.cos(angle) + y * math.sin(angle),
        y * math.cos(angle) - x * math.sin(angle),
    )
    kernel = torch.exp(-0.5 * ((along / wide) ** 2 + (across / narrow) ** 2))
    return _filtered(clip, kernel / kernel.sum())


def sensor_noise(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Add the noise of a sensor: independent in each frame, stronger in the dark.

    Shot noise grows with the root of the light, and a gamma of 2.2 makes it nearly equal for all
    values; noise of the readout is constant before the gamma, so its slope raises it in the dark.
    """
    shot, readout = rng.uniform(0.002, 0.03), rng.uniform(0, 0.03)
    softness, colour = rng.uniform(0, 0.6), rng.uniform(0.3, 1)  # cameras smooth it, and its colour
    slope = (0.25 / (clip.clamp(0, 1) + 0.1)).pow(1.2).clamp(max=1.5)
    deviation = (shot**2 + (readout * slope) ** 2).sqrt()
    return clip + deviation * _noise(clip, rng, softness, colour)


def film_grain(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Add the grain of film: soft, almost without colour, strongest in the middle of the range."""
    strength, softness = float(rng.uniform(0.015, 0.06)), rng.uniform(0.4, 1.0)
    middle = 1 - (2 * clip.clamp(0, 1) - 1).pow(2)
    return clip + strength * (0.3 + 0.7 * middle) * _noise(clip, rng, softness, 0.15)


def _noise(clip: Tensor, rng: np.random.Generator, softness: float, colour: float) -> Tensor:
    """Normal noise of standard deviation 1 in each channel.

    softness: standard deviation in pixels of a blur of the noise.
    colour:   share of the amplitude that differs between the channels.
    """
    frames, _, height, width = clip.shape
    grey = rng.standard_normal((frames, 1, height, width), dtype=np.float32)
    own = rng.standard_normal((frames, 3, height, width), dtype=np.float32)
    noise = torch.from_numpy((1 - colour) * grey + colour * own)
    noise = noise / math.hypot(1 - colour, colour)
    if softness < 0.3:  # narrower kernels change nothing
        return noise
    taps = _gaussian(softness)
    kernel = taps[:, None] * taps
    return _filtered(noise, kernel / kernel.square().sum().sqrt())


def halos(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Sharpen until edges have bright and dark borders; sometimes only sideways, as on tape."""
    amount, radius = float(rng.uniform(0.4, 1.6)), rng.uniform(0.6, 1.8)
    taps = _gaussian(radius)
    kernel = taps[None] if rng.random() < 0.3 else taps[:, None] * taps
    return (clip + amount * (clip - _filtered(clip, kernel))).clamp(0, 1)


def interlaced(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Weave every second line from the next or the last frame, then deinterlace badly or not.

    What remains is combing, the blend of both fields, or one field with lines between its own, that
    shimmers up and down by half a line.
    """
    frames = len(clip)
    neighbour = (torch.arange(frames) + int(rng.choice([-1, 1]))).clamp(0, frames - 1)
    woven = clip.clone()
    woven[:, :, 1::2] = clip[neighbour][:, :, 1::2]
    match rng.integers(3):
        case 0:
            return woven
        case 1:
            return _filtered(woven, torch.tensor([[0.25], [0.5], [0.25]]))
    for parity in (0, 1):
        woven[parity::2] = _resized(clip[parity::2, :, parity::2], *clip.shape[-2:])
    return woven


def colour_fault(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Smear and displace the colour against the luminance, as tapes and wrong conversions do."""
    yuv = torch.einsum("yc,tchw->tyhw", _YUV, clip)
    chroma = yuv[:, 1:]
    across = _gaussian(float(rng.uniform(0.4, 3)), float(rng.uniform(-1.5, 1.5)))
    down = _gaussian(float(rng.uniform(0.3, 1)), float(rng.uniform(-0.7, 0.7)))
    if rng.random() < 0.3:  # 4:2:0 enlarged by repetition
        even = chroma[..., : chroma.shape[-2] // 2 * 2, : chroma.shape[-1] // 2 * 2]
        chroma = F.interpolate(F.avg_pool2d(even, 2), chroma.shape[-2:], mode="nearest")
    smeared = _filtered(_filtered(chroma, across[None]), down[:, None])
    return torch.einsum("cy,tyhw->tchw", _RGB, torch.cat([yuv[:, :1], smeared], 1))


def _gaussian(sigma: float, shift: float = 0.0) -> Tensor:
    """The taps of a Gaussian that displaces by `shift` pixels; their sum is 1."""
    reach = math.ceil(2.5 * sigma + abs(shift))
    taps = torch.exp(-0.5 * ((torch.arange(-reach, reach + 1.0) - shift) / sigma) ** 2)
    return taps / taps.sum()


def _filtered(clip: Tensor, kernel: Tensor) -> Tensor:
    """Filter every plane of (T, C, H, W) with a kernel of odd sides; edge pixels are repeated."""
    rows, columns = (side // 2 for side in kernel.shape)
    planes = F.pad(clip, (columns, columns, rows, rows), mode="replicate").flatten(0, 1)[:, None]
    return F.conv2d(planes, kernel.to(clip)[None, None]).view_as(clip)
