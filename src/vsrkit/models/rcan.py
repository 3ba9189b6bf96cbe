"""RCAN (Zhang et al., 2018): very deep residual groups with channel attention, frame by frame."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy
from vsrkit.models.layers.blocks import conv3x3
from vsrkit.models.spec import Spec, Window
from vsrkit.models.weights import Rules, count_matching, rename

DIV2K_MEAN = (0.4488, 0.4371, 0.4040)  # RGB


@dataclass(frozen=True, slots=True, kw_only=True)
class RCANConfig:
    """The defaults are the paper's."""

    channels: int = 64
    groups: int = 10  # residual groups
    blocks: int = 20  # in each group
    squeeze: int = 16  # channel attention has channels / squeeze hidden channels


class RCAN(nn.Module):
    """A single-image network: every frame alone."""

    mean: Tensor
    anatomy = Anatomy()  # no flow, no attention, no switches

    def __init__(self, config: RCANConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Window(1, "all"))
        c = config.channels
        self.conv_first = conv3x3(3, c)
        self.body = nn.Sequential(*(ResidualGroup(config) for _ in range(config.groups)))
        self.conv_after_body = conv3x3(c, c)
        self.upsample = nn.Sequential(
            conv3x3(c, 4 * c), nn.PixelShuffle(2), conv3x3(c, 4 * c), nn.PixelShuffle(2)
        )
        self.conv_last = conv3x3(c, 3)
        self.register_buffer("mean", torch.tensor(DIV2K_MEAN).view(3, 1, 1), persistent=False)

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`."""
        frames = clip if keep is None else clip[:, keep]
        x = (frames.flatten(0, 1) - self.mean) * 255  # the authors' range is 0 ... 255
        x = self.conv_first(x)
        x = self.conv_after_body(self.body(x)) + x
        sr = self.conv_last(self.upsample(x)) / 255 + self.mean
        return sr.unflatten(0, frames.shape[:2])


class ResidualGroup(nn.Module):
    """Attention blocks and a convolution, with a skip connection."""

    def __init__(self, config: RCANConfig) -> None:
        super().__init__()
        self.residual_group = nn.Sequential(
            *(AttentionBlock(config.channels, config.squeeze) for _ in range(config.blocks))
        )
        self.conv = conv3x3(config.channels, config.channels)

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> same
        return x + self.conv(self.residual_group(x))


class AttentionBlock(nn.Module):
    """Residual block whose output is scaled by channel attention."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.rcab = nn.Sequential(
            conv3x3(channels, channels),
            nn.ReLU(inplace=True),
            conv3x3(channels, channels),
            ChannelAttention(channels, squeeze),
        )

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> same
        return x + self.rcab(x)


class ChannelAttention(nn.Module):
    """Scale every channel by a factor computed from the means of all channels."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // squeeze, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels // squeeze, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> same
        return x * self.attention(x)


# Public weight files; vsrkit's tensor names are BasicSR's.

_AUTHORS_RULES: Rules = (
    (r"^head\.0\.", "conv_first."),
    (r"^body\.(\d+)\.body\.(\d+)\.body\.([02])\.", r"body.\1.residual_group.\2.rcab.\3."),
    (
        r"^body\.(\d+)\.body\.(\d+)\.body\.3\.conv_du\.([02])\.",
        lambda m: f"body.{m[1]}.residual_group.{m[2]}.rcab.3.attention.{int(m[3]) + 1}.",
    ),
    (r"^body\.(\d+)\.body\.\d+\.(weight|bias)$", r"body.\1.conv.\2"),
    (r"^body\.\d+\.(weight|bias)$", r"conv_after_body.\1"),
    (r"^tail\.0\.([02])\.", r"upsample.\1."),
    (r"^tail\.1\.", "conv_last."),
)


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the authors' tensors as in BasicSR; their two constant mean shifts are dropped."""
    kept = {n: v for n, v in tensors.items() if not n.startswith(("sub_mean.", "add_mean."))}
    return rename(kept, _AUTHORS_RULES)


def detect(tensors: Mapping[str, Tensor]) -> RCANConfig | None:
    """The configuration of the tensors of a BasicSR file; None if it is not RCAN."""
    squeezed = tensors.get("body.0.residual_group.0.rcab.3.attention.1.weight")
    if squeezed is None:
        return None
    return RCANConfig(
        channels=squeezed.shape[1],
        groups=count_matching(tensors, r"body\.\d+\.conv\.weight"),
        blocks=count_matching(tensors, r"body\.0\.residual_group\.\d+\.rcab\.0\.weight"),
        squeeze=squeezed.shape[1] // squeezed.shape[0],
    )
