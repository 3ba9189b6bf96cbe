"""The perceptual term: the difference of the features of VGG16."""

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.evaluate.perceptual import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    LPIPS_SCALE,
    LPIPS_SHIFT,
    VGG16,
    load_lpips,
    normalised,
)
from vsrkit.train.losses import Output, Term, Terms
from vsrkit.train.settings import NAMED_LAYERS, VGG16_LAYERS, Losses

PERIOD = 16  # pixels after which the grids of VGG16's poolings repeat
STAGE_ENDS = ("conv1_2", "conv2_2", "conv3_3", "conv4_3", "conv5_3")


class Perceptual(Term):
    """The difference of VGG16's features of one frame of each clip, in a window.

    The frame and the window are drawn in each step, the same for all clips. Its poolings see every
    second pixel from a fixed origin, so the same window each time would teach the model a pattern
    with their period.

    Args:
        losses: weight, layers and window.
    """

    def __init__(self, losses: Losses) -> None:
        super().__init__()
        self.weight, self.window = losses.perceptual, losses.window
        lpips = load_lpips("vgg16")
        assert isinstance(lpips.network, VGG16)
        self.network = VGG16()
        self.network.load_state_dict(lpips.network.state_dict())  # the loaded one is shared
        self.distance: LpipsDistance | LayerDistance
        match losses.perceptual_layers:
            case "lpips":
                self.distance = LpipsDistance([head.detach() for head in lpips.heads])
            case str(name):
                self.distance = LayerDistance(NAMED_LAYERS[name])
            case layers:
                self.distance = LayerDistance(layers)
        self.requires_grad_(False)

    def forward(self, output: Output) -> Terms:
        """The term `perceptual`."""
        frame = int(torch.randint(output.sr.shape[1], ()))
        window = draw_window(output.sr, self.window)
        sr, hr = (x[:, frame, :, window[0], window[1]] for x in (output.sr, output.target))
        distance = self.distance(self.network, sr.float(), hr.float())
        return {"perceptual": self.weight * distance}


def draw_window(frames: Tensor, side: int) -> tuple[slice, slice]:
    """Rows and columns of a random window of frames (..., H, W), the same in all processes.

    side: of the window; 0: as large as it can be for any shift by up to a period of the poolings.
    """
    found = []
    for length in frames.shape[-2:]:
        wanted = side or (length - PERIOD if length >= 3 * PERIOD else length)
        size = min(wanted, length)
        start = int(torch.randint(length - size + 1, ()))
        found.append(slice(start, start + size))
    return found[0], found[1]


class LpipsDistance(nn.Module):
    """LPIPS (Zhang et al. 2018) with VGG16, mean over the frames.

    heads: weights of the channels of each of the five layers.
    """

    def __init__(self, heads: list[Tensor]) -> None:
        super().__init__()
        self.heads = nn.ParameterList(heads)

    def forward(self, network: VGG16, sr: Tensor, hr: Tensor) -> Tensor:
        """Distance of (N, 3, H, W) RGB in [0, 1]: a scalar."""
        with torch.no_grad():
            wanted = list(self._features(network, hr))
        found = self._features(network, sr)
        pairs = zip(self.heads, found, wanted, strict=True)
        return sum(
            (torch.einsum("c,nchw->nhw", w, (x - y).square()).mean() for w, x, y in pairs),
            start=sr.new_zeros(()),
        )

    @staticmethod
    def _features(network: VGG16, x: Tensor) -> Iterator[Tensor]:
        x = normalised(2 * x - 1, LPIPS_SHIFT, LPIPS_SCALE)
        for _, features in convolved(network, x, STAGE_ENDS):
            active = F.relu(features.float())
            yield active / (active.square().sum(1, keepdim=True) + 1e-10).sqrt()


class LayerDistance(nn.Module):
    """The absolute difference of features before their activation, as in ESRGAN.

    layers: weights by name, conv1_1 to conv5_3.
    """

    def __init__(self, layers: Mapping[str, float]) -> None:
        super().__init__()
        self.layers = dict(layers)

    def forward(self, network: VGG16, sr: Tensor, hr: Tensor) -> Tensor:
        """Distance of (N, 3, H, W) RGB in [0, 1]: a scalar."""
        with torch.no_grad():
            wanted = dict(self._features(network, hr))
        return sum(
            (
                self.layers[name] * (features.float() - wanted[name].float()).abs().mean()
                for name, features in self._features(network, sr)
            ),
            start=sr.new_zeros(()),
        )

    def _features(self, network: VGG16, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        return convolved(network, normalised(x, IMAGENET_MEAN, IMAGENET_STD), self.layers)


def convolved(
    network: VGG16, x: Tensor, layers: Mapping[str, float] | tuple[str, ...]
) -> Iterator[tuple[str, Tensor]]:
    """The outputs of some convolutions before their activation; stops after the last of them.

    Args:
        network: VGG16.
        x: (N, 3, H, W), normalised.
        layers: names, conv1_1 to conv5_3.
    """
    left = set(layers)
    for name, conv in zip(VGG16_LAYERS, network.convs, strict=True):
        if name.endswith("_1") and name != "conv1_1":
            x = F.max_pool2d(x, 2)
        features = conv(x)
        if name in left:
            yield name, features
            left.discard(name)
        if not left:
            return
        x = F.relu(features)
