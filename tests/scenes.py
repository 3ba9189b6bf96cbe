"""Pictures that behave like photographs, made here so that none need be kept."""

from functools import cache

import torch
import torch.nn.functional as F


@cache
def scene(seed, height=90, width=160, margin=0):
    """Soft shapes of many sizes and colours, as photographs have; `margin` more columns."""
    generator = torch.Generator().manual_seed(seed)
    picture = torch.zeros(3, height, width + margin)
    for cells in (3, 6, 12, 24):
        coarse = torch.rand(1, 3, cells, cells * (width + margin) // height, generator=generator)
        picture += F.interpolate(coarse, picture.shape[1:], mode="bicubic")[0] / cells**0.5
    picture -= picture.amin()
    return 0.05 + 0.85 * picture / picture.amax()


def in_8_bits(frame):
    return (frame.clamp(0, 1) * 255).round() / 255
