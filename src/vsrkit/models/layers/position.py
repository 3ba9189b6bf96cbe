"""Position codes of the VSR-Transformer: the paper's, and the one its released weights expect."""

import math

import torch
from torch import Tensor


def position_xyt(t: int, c: int, h: int, w: int) -> Tensor:
    """Sines and cosines of column, row and frame number, a third of the channels each.

    64 channels are not divisible by three and a third must hold pairs: x and y get 22 channels
    each and t the remaining 20; the frequencies are the paper's, 10000^(-2k / (c / 3)).
    Returns (T, C, H, W).
    """
    third = 2 * math.ceil(c / 6)
    k = torch.arange(third // 2)
    frequency = 10000.0 ** (-2 * k / (c / 3))

    def code(length: int) -> Tensor:  # (third, length)
        angle = torch.arange(length) * frequency[:, None]
        return torch.stack([angle.sin(), angle.cos()], 1).flatten(0, 1)

    x = code(w)[None, :, None, :].expand(t, third, h, w)
    y = code(h)[None, :, :, None].expand(t, third, h, w)
    time = code(t).T[:, :, None, None].expand(t, third, h, w)
    return torch.cat([x, y, time], 1)[:, :c]


def position_release(t: int, c: int, h: int, w: int, *, interleaved: bool) -> Tensor:
    """The position code that the released weights were trained with: (T, C, H, W).

    The release hands (B, T, C, H, W) to a package that expects channels where time is. So the
    frame number chooses a wave, and positions run over channel, row and column: there is no
    temporal position in it. Versions of that package differ in the order of waves (`interleaved`
    is 5.0.0 and later), which matters from seven frames on; the release used 4.0.0.
    """
    waves = 2 * math.ceil(t / 6)  # per axis
    frequency = 10000.0 ** (-2 * torch.arange(waves // 2) / waves)

    def code(length: int) -> Tensor:  # (waves, length)
        angle = torch.arange(length) * frequency[:, None]
        pairs = torch.stack([angle.sin(), angle.cos()], 1 if interleaved else 0)
        return pairs.flatten(0, 1)

    rows = torch.cat(
        [
            code(c)[:, :, None, None].expand(waves, c, h, w),
            code(h)[:, None, :, None].expand(waves, c, h, w),
            code(w)[:, None, None, :].expand(waves, c, h, w),
        ]
    )
    return rows[:t]
