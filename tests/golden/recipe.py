"""Weights and clips that follow from names and seeds, so that goldens need not store them."""

import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# How strongly weights whose public name contains the text are scaled; the first match counts.
GAINS = (
    ("spynet.basic_module.", 1.3),
    (".conv1.", 0.4),
    (".conv2.", 0.4),
    ("conv_last", 0.1),
)


def tensor_for(name: str, shape: tuple[int, ...]) -> Tensor:
    """The weight with this public name: noise seeded by the name, scaled by its role."""
    seed = zlib.crc32(name.encode()) & 0xFFFFFFFF
    noise = np.random.RandomState(seed).standard_normal(tuple(shape)).astype(np.float32)
    if name.endswith("norm.weight"):
        return torch.from_numpy(np.float32(1) + np.float32(0.1) * noise)
    if name.endswith("norm.bias"):
        return torch.from_numpy(np.float32(0.1) * noise)
    if name.endswith(".bias"):
        return torch.from_numpy(np.float32(0.05) * noise)
    gain = next((gain for text, gain in GAINS if text in name), 1.0)
    fan_in = int(np.prod(shape[1:]))
    return torch.from_numpy((noise * np.float32(gain / np.sqrt(fan_in))).astype(np.float32))


def noise(seed: int, *shape: int) -> Tensor:
    """Standard normal noise."""
    values = np.random.RandomState(seed).standard_normal(shape)
    return torch.from_numpy(values.astype(np.float32))


def video(seed: int, b: int, t: int, h: int, w: int) -> Tensor:
    """A clip (B, T, 3, H, W) in [0, 1]: smooth blobs that move by (1, 2) pixels, and some noise."""
    random = np.random.RandomState(seed)
    coarse = random.uniform(0, 1, (b, 3, h // 4 + 8, w // 4 + 8)).astype(np.float32)
    fine = F.interpolate(
        torch.from_numpy(coarse), scale_factor=4, mode="bicubic", align_corners=False
    ).clamp(0, 1)
    clip = torch.stack(
        [fine[:, :, 4 + 2 * i : 4 + 2 * i + h, 6 + i : 6 + i + w] for i in range(t)], 1
    )
    grain = random.uniform(-0.03, 0.03, clip.shape).astype(np.float32)
    return (clip + torch.from_numpy(grain)).clamp(0, 1).contiguous()
