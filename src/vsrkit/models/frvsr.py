"""FRVSR (Sajjadi et al., 2018): the last result, warped, is part of the next input.

Follows TecoGAN-PyTorch, whose generator it is; docs/zoo.md lists possible differences to the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Flow, Switch
from vsrkit.models.layers.blocks import conv3x3, step_through, upsample_bilinear
from vsrkit.models.layers.flow import warp
from vsrkit.models.spec import Carried, Spec, check_size
from vsrkit.models.weights import count_matching

MAX_FLOW = 24  # pixels
State: TypeAlias = tuple[Tensor, Tensor]  # the last frame (B, 3, H, W) and its result


@dataclass(frozen=True, slots=True, kw_only=True)
class FRVSRConfig:
    """The defaults are FRVSR 10-128, the paper's best."""

    channels: int = 128
    blocks: int = 10
    degradation: Literal["BD", "BI"] = "BD"  # of the LR frames; determines the upsampling


class FRVSR(nn.Module):
    """Flow to the last frame, its result warped, a network on the frame and that result."""

    def __init__(self, config: FRVSRConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Carried(), minimum=8)
        self.fnet = FlowNet()
        self.srnet = DetailNet(config)
        self.upsample_func = _upsampling(config)

    @property
    def anatomy(self) -> Anatomy:
        """Flow to the previous frame."""
        return Anatomy(
            flow=Flow(between=self.fnet, targets="previous"), switches=(Switch.flow("fnet"),)
        )

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`."""
        return step_through(self.step, clip, keep, None)

    def step(self, frame: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One frame (B, 3, H, W) -> its result (B, 3, 4H, 4W) and the next state."""
        check_size(frame, self.spec)
        if state is None:
            b, _, h, w = frame.shape
            before = frame.new_zeros(b, 48, h, w)
        else:
            flow = 4 * self.upsample_func(self.fnet(frame, state[0]))
            before = space_to_depth(warp(state[1], flow, padding="border"))
        sr = self.srnet(frame, before)
        return sr, (frame, sr)


class FlowNet(nn.Module):
    """Encoder and decoder without skips: flow from a frame to the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder1, self.encoder2, self.encoder3 = _pair(6, 32), _pair(32, 64), _pair(64, 128)
        self.decoder1, self.decoder2 = _pair(128, 256), _pair(256, 128)
        self.decoder3 = _pair(128, 64)
        self.flow = nn.Sequential(conv3x3(64, 32), nn.LeakyReLU(0.2, inplace=True), conv3x3(32, 2))

    def forward(self, frame: Tensor, before: Tensor) -> Tensor:
        """(B, 3, H, W) twice -> (B, 2, H, W) in pixels."""
        h, w = frame.shape[-2:]
        x = torch.cat([frame, before], 1)
        for encoder in (self.encoder1, self.encoder2, self.encoder3):
            x = F.max_pool2d(encoder(x), 2)
        for decoder in (self.decoder1, self.decoder2, self.decoder3):
            x = upsample_bilinear(decoder(x), 2)
        flow = MAX_FLOW * torch.tanh(self.flow(x))
        # Pooling rounds down: restore sides that are not multiples of 8.
        return F.pad(flow, (0, w - flow.shape[-1], 0, h - flow.shape[-2]), mode="reflect")


def _pair(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        conv3x3(inputs, outputs),
        nn.LeakyReLU(0.2, inplace=True),
        conv3x3(outputs, outputs),
        nn.LeakyReLU(0.2, inplace=True),
    )


class DetailNet(nn.Module):
    """Frame and warped last result to the new result."""

    def __init__(self, config: FRVSRConfig) -> None:
        super().__init__()
        c = config.channels
        self.conv_in = nn.Sequential(conv3x3(3 + 48, c), nn.ReLU(inplace=True))
        self.resblocks = nn.Sequential(*(_Block(c) for _ in range(config.blocks)))
        self.conv_up = nn.Sequential(
            nn.ConvTranspose2d(c, c, 3, 2, 1, output_padding=1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(c, c, 3, 2, 1, output_padding=1),
            nn.ReLU(inplace=True),
        )
        self.conv_out = conv3x3(c, 3)
        self.upsample_func = _upsampling(config)

    def forward(self, frame: Tensor, before: Tensor) -> Tensor:
        """(B, 3, H, W) and (B, 48, H, W) -> (B, 3, 4H, 4W)."""
        x = self.resblocks(self.conv_in(torch.cat([frame, before], 1)))
        return self.conv_out(self.conv_up(x)) + self.upsample_func(frame)


class _Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            conv3x3(channels, channels), nn.ReLU(inplace=True), conv3x3(channels, channels)
        )

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> same
        return x + self.conv(x)


def space_to_depth(x: Tensor) -> Tensor:
    """(B, 3, 4H, 4W) -> (B, 48, H, W) in TensorFlow's order: position before colour."""
    return rearrange(x, "b c (h p) (w q) -> b (p q c) h w", p=4, q=4)


def _upsampling(config: FRVSRConfig) -> nn.Module:
    return ShiftedBicubic() if config.degradation == "BD" else Bilinear()


class Bilinear(nn.Module):
    """x4, bilinear."""

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, C, 4H, 4W)
        return upsample_bilinear(x, 4)


class ShiftedBicubic(nn.Module):
    """x4 for frames subsampled by 4: HR pixel 4i is LR pixel i.

    Cubic convolution with a = -0.75 at the phases 0, 1/4, 1/2 and 3/4; edges are repeated.
    """

    kernels: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernels", _cubic_phases(-0.75))  # (phase, tap)

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, C, 4H, 4W)
        flat = F.pad(x.flatten(0, 1)[:, None], (1, 2, 1, 2), mode="replicate")
        weight = torch.einsum("ai,bj->abij", self.kernels, self.kernels).flatten(0, 1)[:, None]
        return F.pixel_shuffle(F.conv2d(flat, weight.to(x.dtype)), 4).view(
            *x.shape[:2], 4 * x.shape[2], 4 * x.shape[3]
        )


def _cubic_phases(a: float) -> Tensor:
    """Weights of the pixels -1, 0, 1, 2 for positions 0, 1/4, 1/2, 3/4: (4, 4)."""
    distance = (torch.arange(4)[:, None] / 4 - torch.arange(-1, 3)).abs()
    near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
    return torch.where(distance <= 1, near, far)


# Public weight files; vsrkit's tensor names are TecoGAN-PyTorch's.


def detect(tensors: Mapping[str, Tensor]) -> FRVSRConfig | None:
    """The configuration of the tensors of a TecoGAN-PyTorch file; None for other files."""
    first = tensors.get("srnet.conv_in.0.weight")
    if first is None or "fnet.flow.2.weight" not in tensors:
        return None
    return FRVSRConfig(
        channels=first.shape[0],
        blocks=count_matching(tensors, r"srnet\.resblocks\.\d+\.conv\.0\.weight"),
        degradation="BD" if "upsample_func.kernels" in tensors else "BI",
    )
