"""RBPN (Haris et al., 2019): back-projection of each neighbour onto the centre."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Flow
from vsrkit.models.layers.blocks import check_frames
from vsrkit.models.layers.flow import horn_schunck
from vsrkit.models.spec import Spec, Window
from vsrkit.models.weights import count_matching


@dataclass(frozen=True, slots=True, kw_only=True)
class RBPNConfig:
    """The defaults are the paper's."""

    frames: int = 7
    base_channels: int = 256  # at LR size
    channels: int = 64  # at HR size
    blocks: int = 5  # residual blocks in each of the three towers


class RBPN(nn.Module):
    """Flow from the centre to each neighbour, then the projections.

    The authors compute the flow outside of the network, by a variational method (pyflow); here it
    is Horn-Schunck, a related method. Other flows can be passed.
    """

    anatomy = Anatomy(flow=Flow(between=horn_schunck, targets="window"))

    def __init__(self, config: RBPNConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Window(config.frames))
        self.net = Projections(config)

    def forward(self, clip: Tensor, flows: Tensor | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, 1, 3, 4H, 4W): the centre frame.

        flows: (B, T - 1, 2, H, W) from the centre to each neighbour, in pixels.
        """
        check_frames(clip, self.config.frames)
        middle = self.config.frames // 2
        centre = clip[:, middle]
        neighbours = torch.cat([clip[:, :middle], clip[:, middle + 1 :]], 1)
        if flows is None:
            flows = torch.stack([horn_schunck(centre, each) for each in neighbours.unbind(1)], 1)
        return self.net(centre, neighbours, flows)[:, None]


class Projections(nn.Module):
    """The network: centre, neighbours and flows to the enlarged centre."""

    def __init__(self, config: RBPNConfig) -> None:
        super().__init__()
        base, c, blocks = config.base_channels, config.channels, config.blocks
        self.feat0 = Conv(3, base, 3, 1, 1)
        self.feat1 = Conv(8, base, 3, 1, 1)
        self.DBPN = SingleImage(base, c)  # the public name
        self.res_feat1 = _tower(base, blocks, Deconv(base, c))
        self.res_feat2 = _tower(c, blocks, Conv(c, c, 3, 1, 1))
        self.res_feat3 = _tower(c, blocks, Conv(c, base))
        self.output = Conv((config.frames - 1) * c, 3, 3, 1, 1, activate=False)

    def forward(self, centre: Tensor, neighbours: Tensor, flows: Tensor) -> Tensor:
        """(B, 3, H, W), (B, N, 3, H, W), (B, N, 2, H, W) -> (B, 3, 4H, 4W)."""
        low = self.feat0(centre)
        every = []
        for neighbour, flow in zip(neighbours.unbind(1), flows.unbind(1), strict=True):
            alone = self.DBPN(low)
            together = self.res_feat1(self.feat1(torch.cat([centre, neighbour, flow], 1)))
            high = alone + self.res_feat2(alone - together)
            every.append(high)
            low = self.res_feat3(high)
        return self.output(torch.cat(every, 1))


def _tower(channels: int, blocks: int, last: nn.Module) -> nn.Sequential:
    return nn.Sequential(*(Residual(channels) for _ in range(blocks)), last)


class Conv(nn.Module):
    """A convolution and a PReLU with one slope; by default 8x8 with stride 4."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int = 8,
        stride: int = 4,
        padding: int = 2,
        *,
        activate: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding)
        self.act = nn.PReLU() if activate else None

    def forward(self, x: Tensor) -> Tensor:  # (N, inputs, H, W) -> (N, outputs, H', W')
        x = self.conv(x)
        return x if self.act is None else self.act(x)


class Deconv(nn.Module):
    """A transposed 8x8 convolution with stride 4, and a PReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.deconv = nn.ConvTranspose2d(inputs, outputs, 8, 4, 2)
        self.act = nn.PReLU()

    def forward(self, x: Tensor) -> Tensor:  # (N, inputs, H, W) -> (N, outputs, 4H, 4W)
        return self.act(self.deconv(x))


class Residual(nn.Module):
    """act(x + conv(act(conv(x)))), one slope for both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.act = nn.PReLU()

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> same
        return self.act(self.conv2(self.act(self.conv1(x))) + x)


class Up(nn.Module):
    """Enlarge, reduce again, and correct by the difference."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.up_conv1 = Deconv(channels, channels)
        self.up_conv2 = Conv(channels, channels)
        self.up_conv3 = Deconv(channels, channels)

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, C, 4H, 4W)
        high = self.up_conv1(x)
        return high + self.up_conv3(self.up_conv2(high) - x)


class Down(nn.Module):
    """Reduce, enlarge again, and correct by the difference."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down_conv1 = Conv(channels, channels)
        self.down_conv2 = Deconv(channels, channels)
        self.down_conv3 = Conv(channels, channels)

    def forward(self, x: Tensor) -> Tensor:  # (N, C, 4H, 4W) -> (N, C, H, W)
        low = self.down_conv1(x)
        return low + self.down_conv3(self.down_conv2(low) - x)


class SingleImage(nn.Module):
    """Deep back-projection (DBPN): up and down three times, all HR stages joined."""

    def __init__(self, base: int, channels: int) -> None:
        super().__init__()
        self.feat1 = Conv(base, channels, 1, 1, 0)
        self.up1, self.up2, self.up3 = Up(channels), Up(channels), Up(channels)
        self.down1, self.down2 = Down(channels), Down(channels)
        self.output = Conv(3 * channels, channels, 1, 1, 0, activate=False)

    def forward(self, x: Tensor) -> Tensor:  # (N, base, H, W) -> (N, C, 4H, 4W)
        first = self.up1(self.feat1(x))
        second = self.up2(self.down1(first))
        third = self.up3(self.down2(second))
        return self.output(torch.cat([third, second, first], 1))


# Public weight files.


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in the authors' files."""
    return name.removeprefix("net.")


def detect(tensors: Mapping[str, Tensor]) -> RBPNConfig | None:
    """The configuration of the tensors of an authors' file; None if it is not RBPN."""
    narrow, output = tensors.get("DBPN.feat1.conv.weight"), tensors.get("output.conv.weight")
    if narrow is None or output is None:
        return None
    return RBPNConfig(
        frames=output.shape[1] // narrow.shape[0] + 1,
        base_channels=narrow.shape[1],
        channels=narrow.shape[0],
        blocks=count_matching(tensors, r"res_feat1\.\d+\.conv1\.weight"),
    )
