"""The claim of Theorems 1 and 2 for real layers, trained on k-patterns laid out as small videos.

The theorems are about two-layer networks, because their attention is over one token
(docs/theory.md). Here one spatial-temporal convolutional attention layer (STCSA) and one fully
connected attention layer, both as the networks use them, replace W in Definition 2:

    h(x) = <u, relu(layer(x) + b)>

x are videos of random signs, repeated over the channels of the layer. The target is the product of
k neighbouring signs of one frame. u starts at zero, and u, b and the layer are trained together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models.layers.patch_attention import ConvAttention, LinearAttention
from vsrkit.research.theory.gradient import OnProgress

LayerKind: TypeAlias = Literal["STCSA", "fully connected"]
KINDS: tuple[LayerKind, ...] = ("STCSA", "fully connected")
CHANNELS = 8
BATCH = 128  # new videos at every step
TEST_VIDEOS = 4096
GRADIENT_VIDEOS = 4096  # in each of the two halves
PATTERN_WIDTH = 3  # patterns fill the rows of a 3x3 square, the reach of a convolution
LARGEST_K = PATTERN_WIDTH**2


@dataclass(frozen=True, slots=True)
class VideoLayout:
    """The sizes of the videos, their tokens, and the place of the pattern in the middle frame."""

    name: str
    frames: int
    side: int  # of a frame in pixels
    patch: int  # side of a token
    column: int  # of the first pixel of the pattern; its row is the middle one

    @property
    def bits(self) -> int:
        """Number of pixels of a video, the n of the theorems."""
        return self.frames * self.side**2

    @property
    def tokens(self) -> int:
        """Number of patches of a video."""
        return self.bits // self.patch**2


LAYOUTS = (
    VideoLayout("one token", frames=1, side=6, patch=6, column=1),
    VideoLayout("pattern inside a token", frames=3, side=6, patch=3, column=0),
    VideoLayout("pattern across tokens", frames=3, side=6, patch=3, column=2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """One trained predictor."""

    layout: VideoLayout
    k: int
    kind: LayerKind
    seed: int
    losses: NDArray[np.float64]  # hinge loss of the batch before each step
    accuracy: float  # share of new videos with the right sign, after the last step
    signal: float  # share of the first gradient that is not noise; see `gradient_signal`


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStudy:
    """All runs of `train_layers`, and their settings."""

    runs: Sequence[LayerRun]
    steps: int
    learning_rate: float
    scaled: bool


class LayerPredictor(nn.Module):
    """h(x) = sum over all positions of u relu(layer(x) + b)."""

    def __init__(self, kind: LayerKind, layout: VideoLayout, *, scaled: bool) -> None:
        super().__init__()
        self.layer: nn.Module
        if kind == "STCSA":
            self.layer = ConvAttention(
                CHANNELS, patch=layout.patch, scaled=scaled, inner_residual=False
            )
        else:  # as many features per token
            width = CHANNELS * layout.patch**2
            self.layer = LinearAttention(CHANNELS, patch=layout.patch, width=width, scaled=scaled)
        # Without a bias no odd product can be represented (docs/theory.md). The fully connected
        # layer has none of its own.
        self.bias = nn.Parameter(torch.empty(CHANNELS, 1, 1).uniform_(-0.3, 0.3))
        self.u = nn.Parameter(torch.zeros(layout.frames, CHANNELS, layout.side, layout.side))

    def forward(self, bits: Tensor) -> Tensor:
        """(B, T, H, W) of signs -> (B,)."""
        x = bits[:, :, None].expand(-1, -1, CHANNELS, -1, -1)
        features = torch.relu(self.layer(x, slice(0, bits.shape[1])) + self.bias)
        return (features * self.u).sum((1, 2, 3, 4))


def train_layers(
    ks: Sequence[int],
    *,
    seeds: int = 3,
    steps: int = 600,
    learning_rate: float = 5e-3,
    scaled: bool = False,
    seed: int = 0,
    on_progress: OnProgress = lambda what, done, total: None,
) -> LayerStudy:
    """Train both layers on every layout of the videos.

    ks: numbers of pixels of the pattern.
    seeds: runs of each layer, layout and k.
    steps: of Adam.
    learning_rate: of Adam, the same for both layers.
    scaled: divide similarities by the root of the token's length; the paper prints no scale.
    seed: the first seed.
    on_progress: called with a description, the number of finished runs, and of all runs.
    """
    if max(ks) > LARGEST_K:
        raise VsrkitError(f"k may be at most {LARGEST_K}, the pixels of a kernel, got {max(ks)}")
    jobs = [
        (layout, k, kind, seed + number)
        for layout in LAYOUTS
        for k in ks
        for kind in KINDS
        for number in range(seeds)
    ]
    runs: list[LayerRun] = []
    for layout, k, kind, number in jobs:
        on_progress(f"{layout.name}, k = {k}, {kind}", len(runs), len(jobs))
        torch.manual_seed(number)
        predictor = LayerPredictor(kind, layout, scaled=scaled)
        signal = gradient_signal(predictor, layout, k)
        losses = descend(predictor, layout, k, steps, learning_rate)
        runs.append(
            LayerRun(
                layout=layout,
                k=k,
                kind=kind,
                seed=number,
                losses=np.array(losses),
                accuracy=accuracy(predictor, layout, k),
                signal=signal,
            )
        )
    return LayerStudy(runs=runs, steps=steps, learning_rate=learning_rate, scaled=scaled)


def draw_videos(count: int, layout: VideoLayout, k: int) -> tuple[Tensor, Tensor]:
    """Videos of random signs (count, T, H, W), and the product of the pattern of each (count,)."""
    shape = (count, layout.frames, layout.side, layout.side)
    bits = torch.randint(0, 2, shape).float() * 2 - 1
    top, left = layout.side // 2, layout.column
    square = bits[:, layout.frames // 2, top : top + PATTERN_WIDTH, left : left + PATTERN_WIDTH]
    return bits, square.flatten(1)[:, :k].prod(1)


def descend(
    predictor: LayerPredictor, layout: VideoLayout, k: int, steps: int, learning_rate: float
) -> list[float]:
    """Train a predictor on the hinge loss of new videos; returns the loss before each step."""
    optimizer = torch.optim.Adam(predictor.parameters(), learning_rate)
    losses = []
    for _ in range(steps):
        bits, target = draw_videos(BATCH, layout, k)
        loss = (1 - predictor(bits) * target).clamp(min=0).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def accuracy(predictor: LayerPredictor, layout: VideoLayout, k: int) -> float:
    """The share of new videos for which the predictor has the sign of the target."""
    bits, target = draw_videos(TEST_VIDEOS, layout, k)
    return float((predictor(bits) * target > 0).float().mean())


def gradient_signal(predictor: LayerPredictor, layout: VideoLayout, k: int) -> float:
    """||E g||^2 / E||g||^2 for the gradient g of the layer's weights by one video.

    As in Theorem 1: u is random signs, and h is in [-1, 1], so the loss is 1 - h f. The theorem
    bounds ||E g||^2; the ratio does not depend on the scale of u, weights and features. The
    product of the gradients of two independent halves is an unbiased estimate of ||E g||^2; it can
    be negative where there is no signal.
    """
    weights = list(predictor.layer.parameters())
    start = predictor.u.detach().clone()
    with torch.no_grad():
        predictor.u.copy_(torch.randint(0, 2, start.shape).float() * 2 - 1)
    halves = []
    for _ in range(2):
        bits, target = draw_videos(GRADIENT_VIDEOS, layout, k)
        loss = -(predictor(bits) * target).mean()
        found = torch.autograd.grad(loss, weights)
        halves.append(torch.cat([g.flatten() for g in found]).double())
    with torch.no_grad():
        predictor.u.copy_(start)
    first, second = halves
    signal = float(first @ second)
    # The mean of N gradients has ||E g||^2 plus a share 1/N of the rest of E||g||^2.
    rest = GRADIENT_VIDEOS * (float(first @ first + second @ second) / 2 - signal)
    return signal / max(signal + rest, 1e-30)
