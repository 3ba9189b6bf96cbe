"""VESPCN (Caballero et al., 2017): two neighbours warped onto the centre, then a small network.

The authors published no code. This follows the paper; docs/zoo.md lists what is a guess.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Flow, Switch
from vsrkit.models.layers.blocks import check_frames, conv3x3, reflect_to_multiple
from vsrkit.models.layers.flow import warp
from vsrkit.models.layers.resample import imresize
from vsrkit.models.spec import Spec, Window, check_size
from vsrkit.models.weights import count_matching

# BT.601, studio range.
_YCBCR_OFFSET = (16 / 255, 128 / 255, 128 / 255)
_YCBCR_FROM_RGB = (
    (65.481 / 255, 128.553 / 255, 24.966 / 255),
    (-37.797 / 255, -74.203 / 255, 112.0 / 255),
    (112.0 / 255, -93.786 / 255, -18.214 / 255),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VESPCNConfig:
    """The defaults are the paper's."""

    channels: int = 24
    layers: int = 9
    luma: bool = True  # the network enlarges luma only, bicubic interpolation chroma


class VESPCN(nn.Module):
    """Motion compensation, early fusion, sub-pixel convolution."""

    def __init__(self, config: VESPCNConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Window(3), minimum=4)
        pixels = 1 if config.luma else 3
        self.motion = Motion(pixels)
        sizes = [3 * pixels, *[config.channels] * (config.layers - 1), 16 * pixels]
        self.sr = nn.ModuleList(conv3x3(a, b) for a, b in pairwise(sizes))

    @property
    def anatomy(self) -> Anatomy:
        """Flow from the centre to both neighbours."""
        flow = Flow(between=self._flow_between, targets="window")
        return Anatomy(flow=flow, switches=(Switch.flow("motion"),))

    def _flow_between(self, a: Tensor, b: Tensor) -> Tensor:
        if self.config.luma:
            a, b = rgb_to_ycbcr(a)[:, :1], rgb_to_ycbcr(b)[:, :1]
        return self.motion.padded(a, b)

    def forward(self, clip: Tensor) -> Tensor:
        """(B, 3, 3, H, W) -> (B, 1, 3, 4H, 4W): the centre frame."""
        check_frames(clip, 3)
        check_size(clip, self.spec)
        if not self.config.luma:
            return self.enlarge(clip)[:, None]
        return enlarge_luma(clip, self.enlarge)

    def enlarge(self, clip: Tensor) -> Tensor:
        """(B, 3, P, H, W), luma or RGB -> the centre (B, P, 4H, 4W)."""
        h, w = clip.shape[-2:]
        before, centre, after = reflect_to_multiple(clip, 4).unbind(1)
        x = torch.cat([self._onto(centre, before), centre, self._onto(centre, after)], 1)
        for layer in self.sr[:-1]:
            x = F.relu(layer(x))
        return F.pixel_shuffle(self.sr[-1](x), 4)[..., : 4 * h, : 4 * w]

    def _onto(self, centre: Tensor, neighbour: Tensor) -> Tensor:
        return warp(neighbour, self.motion(centre, neighbour), padding="border")


class Motion(nn.Module):
    """Flow in two stages, at a quarter and at half size; SPMC uses it too."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.coarse = nn.ModuleList(
            [
                nn.Conv2d(2 * pixels, 24, 5, 2, 2),
                conv3x3(24, 24),
                nn.Conv2d(24, 24, 5, 2, 2),
                conv3x3(24, 24),
                conv3x3(24, 32),
            ]
        )
        self.fine = nn.ModuleList(
            [
                nn.Conv2d(3 * pixels + 2, 24, 5, 2, 2),
                *(conv3x3(24, 24) for _ in range(3)),
                conv3x3(24, 8),
            ]
        )

    def forward(self, centre: Tensor, neighbour: Tensor) -> Tensor:
        """Flow from centre to neighbour in pixels: (B, P, H, W) twice -> (B, 2, H, W).

        Inside, the unit of flow is half the frame, the range of tanh.
        """
        h, w = centre.shape[-2:]

        def in_pixels(flow: Tensor) -> Tensor:
            u, v = flow.unbind(1)
            return torch.stack([u * ((w - 1) / 2), v * ((h - 1) / 2)], 1)

        coarse = F.pixel_shuffle(_run(self.coarse, torch.cat([centre, neighbour], 1)), 4)
        warped = warp(neighbour, in_pixels(coarse), padding="border")
        seen = torch.cat([centre, neighbour, coarse, warped], 1)
        return in_pixels(coarse + F.pixel_shuffle(_run(self.fine, seen), 2))

    def padded(self, centre: Tensor, neighbour: Tensor) -> Tensor:
        """`forward` for frames of any size."""
        flow = self(reflect_to_multiple(centre, 4), reflect_to_multiple(neighbour, 4))
        return flow[..., : centre.shape[-2], : centre.shape[-1]]


def _run(layers: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in layers[:-1]:
        x = F.relu(layer(x))
    return torch.tanh(layers[-1](x))


def rgb_to_ycbcr(frames: Tensor) -> Tensor:
    """(..., 3, H, W) RGB in [0, 1] -> Y in 16/255 ... 235/255, Cb and Cr around 128/255."""
    matrix, offset = _ycbcr_matrix(frames)
    return torch.einsum("ij,...jhw->...ihw", matrix, frames) + offset


def ycbcr_to_rgb(frames: Tensor) -> Tensor:
    """The inverse of `rgb_to_ycbcr`: (..., 3, H, W) -> same."""
    matrix, offset = _ycbcr_matrix(frames)
    return torch.einsum("ij,...jhw->...ihw", matrix.double().inverse().to(frames), frames - offset)


def enlarge_luma(clip: Tensor, enlarge: Callable[[Tensor], Tensor]) -> Tensor:
    """Enlarge the luma of the centre frame by a network and its chroma by bicubic interpolation.

    clip: (B, T, 3, H, W) RGB
    enlarge: luma of all frames (B, T, 1, H, W) -> luma of the centre (B, 1, 4H, 4W)

    Returns the centre frame (B, 1, 3, 4H, 4W).
    """
    y, chroma = rgb_to_ycbcr(clip).split([1, 2], 2)
    chroma = imresize(chroma[:, clip.shape[1] // 2], 4)
    return ycbcr_to_rgb(torch.cat([enlarge(y), chroma], 1))[:, None]


def _ycbcr_matrix(like: Tensor) -> tuple[Tensor, Tensor]:
    return torch.tensor(_YCBCR_FROM_RGB).to(like), torch.tensor(_YCBCR_OFFSET).to(like).view(
        3, 1, 1
    )


# There are no public weight files.


def detect(tensors: Mapping[str, Tensor]) -> VESPCNConfig | None:
    """The configuration of a state dict; None if it is not VESPCN."""
    first, motion = tensors.get("sr.0.weight"), tensors.get("motion.coarse.0.weight")
    if first is None or motion is None:
        return None
    return VESPCNConfig(
        channels=first.shape[0],
        layers=count_matching(tensors, r"sr\.\d+\.weight"),
        luma=motion.shape[1] == 2,
    )
