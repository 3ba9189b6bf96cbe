"""DUF (Jo et al., 2018): a 3D dense network that predicts a filter for every HR pixel."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy
from vsrkit.models.layers.blocks import check_frames
from vsrkit.models.spec import Spec, Window
from vsrkit.models.weights import count_matching

FRAMES = 7  # three reductions by two frames leave one frame
TAPS = 5  # side of the predicted filters


@dataclass(frozen=True, slots=True, kw_only=True)
class DUFConfig:
    """The defaults are DUF-52L."""

    channels: int = 64
    growth: int = 16
    blocks: int = 21
    head_channels: int = 256
    filter_channels: int = 512
    norm_eps: float = 1e-3  # of the authors' weights; tensors do not determine it

    @property
    def dense_channels(self) -> int:
        """Channels after all dense blocks, before the head."""
        return self.channels + (self.blocks + 3) * self.growth


L16 = DUFConfig(growth=32, blocks=3)
L28 = DUFConfig(blocks=9)
L52 = DUFConfig()


class DUF(nn.Module):
    """Dense 3D blocks, then two branches: filters for the centre frame, and a residual."""

    anatomy = Anatomy()  # no flow, no attention, no switches

    def __init__(self, config: DUFConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Window(FRAMES))
        head, filters = config.head_channels, config.filter_channels
        self.conv3d1 = _flat_conv(3, config.channels, 3)
        self.dense = nn.ModuleList(
            _dense_block(config.channels + i * config.growth, config, keep_frames=True)
            for i in range(config.blocks)
        )
        before = config.channels + config.blocks * config.growth
        self.reduce = nn.ModuleList(
            _dense_block(before + i * config.growth, config, keep_frames=False) for i in range(3)
        )
        self.bn3d2 = _norm(config.dense_channels, config)
        self.conv3d2 = _flat_conv(config.dense_channels, head, 3)
        self.conv3d_r1, self.conv3d_r2 = _flat_conv(head, head, 1), _flat_conv(head, 3 * 16, 1)
        self.conv3d_f1 = _flat_conv(head, filters, 1)
        self.conv3d_f2 = _flat_conv(filters, TAPS**2 * 16, 1)

    def forward(self, clip: Tensor) -> Tensor:
        """(B, 7, 3, H, W) -> (B, 1, 3, 4H, 4W): the centre frame."""
        check_frames(clip, FRAMES)
        x = self.conv3d1(clip.transpose(1, 2))  # (B, C, T, H, W)
        for block in self.dense:
            x = torch.cat([x, block(x)], 1)
        for block in self.reduce:
            x = torch.cat([x[:, :, 1:-1], block(x)], 1)
        x = F.relu(self.conv3d2(F.relu(self.bn3d2(x))))  # one frame is left
        residual = self.conv3d_r2(F.relu(self.conv3d_r1(x)))[:, :, 0]
        filters = self.conv3d_f2(F.relu(self.conv3d_f1(x)))[:, :, 0]
        filters = filters.unflatten(1, (TAPS**2, 16)).softmax(1)
        return F.pixel_shuffle(_apply_filters(clip[:, FRAMES // 2], filters) + residual, 4)[:, None]


def _apply_filters(frame: Tensor, filters: Tensor) -> Tensor:
    """Apply 16 filters per pixel, (B, 25, 16, H, W), to (B, 3, H, W).

    Returns (B, 48, H, W), ready for a pixel shuffle.
    """
    b, _, h, w = frame.shape
    patches = F.unfold(frame, TAPS, padding=TAPS // 2).view(b, 3, TAPS**2, 1, h, w)
    # Tap by tap: all products at once would take 25 times the memory of the output.
    out = sum(patches[:, :, k] * filters[:, None, k] for k in range(TAPS**2))
    assert isinstance(out, Tensor)
    return out.flatten(1, 2)


def _flat_conv(inputs: int, outputs: int, size: int) -> nn.Conv3d:
    """A convolution of each frame alone."""
    return nn.Conv3d(inputs, outputs, (1, size, size), padding=(0, size // 2, size // 2))


def _norm(channels: int, config: DUFConfig) -> nn.BatchNorm3d:
    return nn.BatchNorm3d(channels, eps=config.norm_eps, momentum=1e-3)


def _dense_block(inputs: int, config: DUFConfig, *, keep_frames: bool) -> nn.Sequential:
    """A dense block, whose output is joined to its input; `keep_frames` pads it in time."""
    return nn.Sequential(
        _norm(inputs, config),
        nn.ReLU(inplace=True),
        nn.Conv3d(inputs, inputs, 1),
        _norm(inputs, config),
        nn.ReLU(inplace=True),
        nn.Conv3d(inputs, config.growth, 3, padding=(int(keep_frames), 1, 1)),
    )


# Public weight files.


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in BasicSR's files."""
    if name.startswith("dense."):
        return "dense_block1.dense_blocks." + name.removeprefix("dense.")
    if name.startswith("reduce."):
        _, number, rest = name.split(".", 2)
        return f"dense_block2.temporal_reduce{int(number) + 1}.{rest}"
    return name


def detect(tensors: Mapping[str, Tensor]) -> DUFConfig | None:
    """The configuration of the tensors of a BasicSR file; None if it is not DUF."""
    first = tensors.get("conv3d1.weight")
    grown = tensors.get("dense_block1.dense_blocks.0.5.weight")
    head, filters = tensors.get("conv3d2.weight"), tensors.get("conv3d_f1.weight")
    if first is None or grown is None or head is None or filters is None:
        return None
    return DUFConfig(
        channels=first.shape[0],
        growth=grown.shape[0],
        blocks=count_matching(tensors, r"dense_block1\.dense_blocks\.\d+\.5\.weight"),
        head_channels=head.shape[0],
        filter_channels=filters.shape[0],
    )
