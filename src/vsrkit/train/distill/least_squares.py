"""Convolutions fitted by least squares, from as few channels as one likes.

Which channels go is what "optimal brain surgery" asks (Hassibi and Stork, 1993), for whole
channels: the next to go is the one whose absence the others can make up for best.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

DAMPING = 1e-4  # of the mean square feature, lest products that hardly occur decide
TAPS = 9  # of a 3x3 convolution


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of products: of unfolded features and 1 with themselves, and with what is wanted."""

    own: Tensor  # (9C + 1, 9C + 1)
    wanted: Tensor  # (9C + 1, outputs)
    square: float  # of what is wanted

    @property
    def channels(self) -> int:
        """C."""
        return (len(self.own) - 1) // TAPS

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.own + other.own, self.wanted + other.wanted, self.square + other.square)

    def __mul__(self, factor: float) -> "Sums":
        return Sums(self.own * factor, self.wanted * factor, self.square * factor)


@dataclass(frozen=True, slots=True)
class Fit:
    """A 3x3 convolution from some of the channels, and the square error that it leaves."""

    channels: list[int]
    weight: Tensor  # (outputs, channels, 3, 3)
    bias: Tensor
    error: float


def eliminate(sums: Sums, sizes: Sequence[int]) -> dict[int, Fit]:
    """The best convolution from each number of channels, those that matter least left out."""
    alive = list(range(sums.channels))
    found: dict[int, Fit] = {}
    while True:
        if len(alive) in sizes:
            found[len(alive)] = fit(sums, alive)
        smaller = [size for size in sizes if size < len(alive)]
        if not smaller:
            return found
        count = min(len(alive) - max(smaller), max(1, len(alive) // 12))
        cost = _cost_of_each(sums, alive)
        gone = set(cost.argsort()[:count].tolist())
        alive = [channel for number, channel in enumerate(alive) if number not in gone]


def _cost_of_each(sums: Sums, alive: list[int]) -> Tensor:
    """What the square error grows by without each channel, all others fitted anew: (channels,)."""
    inverse, weight = _solved(sums, alive)
    n = len(alive)
    weight = weight[:-1].unflatten(0, (n, TAPS))
    own = torch.stack([inverse[i : i + TAPS, i : i + TAPS] for i in range(0, n * TAPS, TAPS)])
    return (weight * torch.linalg.solve(own, weight)).sum((1, 2))


def fit(sums: Sums, channels: list[int], damping: float = DAMPING) -> Fit:
    """The convolution from these channels that leaves the least square error."""
    _, solution = _solved(sums, channels, damping)
    error = sums.square - float((solution * sums.wanted[_rows(sums, channels)]).sum())
    weight = solution[:-1].unflatten(0, (len(channels), 3, 3)).permute(3, 0, 1, 2)
    return Fit(channels, weight.float(), solution[-1].float(), error)


def _solved(sums: Sums, channels: list[int], damping: float = DAMPING) -> tuple[Tensor, Tensor]:
    rows = _rows(sums, channels)
    own = sums.own[rows][:, rows]
    inverse = torch.linalg.inv(own + damping * sums.own.diagonal().mean() * torch.eye(len(own)))
    return inverse, inverse @ sums.wanted[rows]


def _rows(sums: Sums, channels: list[int]) -> Tensor:
    taps = torch.tensor(channels, dtype=torch.long)[:, None] * TAPS + torch.arange(TAPS)
    return torch.cat([taps.flatten(), torch.tensor([len(sums.own) - 1])])


def sums_of(features: Tensor, wanted: Tensor, samples: int, seed: int = 0) -> Sums:
    """Over pixels drawn by lot: features (N, C, H, W), wanted (N, outputs, H, W)."""
    lots = torch.Generator().manual_seed(seed)
    n, _, h, w = wanted.shape
    i, y, x = (torch.randint(side, (samples,), generator=lots) for side in (n, h, w))
    padded = F.pad(features, (1, 1, 1, 1)).permute(0, 2, 3, 1)
    near = [padded[i, y + dy, x + dx] for dy in range(3) for dx in range(3)]
    a = torch.cat([torch.stack(near, 2).flatten(1), torch.ones(samples, 1)], 1)
    b = wanted.permute(0, 2, 3, 1)[i, y, x]
    # In double: the sums are inverted, and features differ by orders of magnitude.
    return Sums((a.mT @ a).double(), (a.mT @ b).double(), float(b.double().square().sum()))
