"""Parts that several papers share: residual blocks, the tower, the two-stage upsampling tail."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models.layers.fused import can_fuse, fused_activation, fused_residual


def at_least_float32(x: Tensor) -> Tensor:
    """`x`, widened if it is narrower than float32: positions in pixels need that much."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def memory_format_of(x: Tensor) -> torch.memory_format:
    """How the values of (N, C, H, W) lie in memory."""
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format


def joined(frame: Tensor, features: Tensor) -> Tensor:
    """(N, 3, H, W), (N, C, H, W) -> (N, 3 + C, H, W), as the convolution after it takes them.

    In its type, and in the features' layout: where layouts differ, joining is slow, and the
    convolution has to change the layout of the result.
    """
    dtype, layout = computed_in(features), memory_format_of(features)
    return torch.cat([frame.to(dtype, memory_format=layout), features.to(dtype)], 1)


def computed_in(x: Tensor) -> torch.dtype:
    """The type that a convolution of `x` runs in here."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size (at stride 1)."""
    return nn.Conv2d(inputs, outputs, 3, stride, 1)


def activated(conv: nn.Conv2d, x: Tensor, slope: float) -> Tensor:
    """LeakyReLU of a 3x3 convolution, in one go where the processor can: (N, C, H, W)."""
    if can_fuse(x, conv.weight):
        return fused_activation(x, conv, slope)
    return F.leaky_relu_(conv(x), slope)


class ResidualBlock(nn.Module):
    """x + conv(act(conv(x))), ReLU unless a slope is given; starts near the identity.

    width: channels between the two convolutions, None as many as outside
    """

    def __init__(self, channels: int, slope: float = 0.0, width: int | None = None) -> None:
        super().__init__()
        self.slope = slope
        self.conv1 = conv3x3(channels, width or channels)
        self.conv2 = conv3x3(width or channels, channels)
        for conv in (self.conv1, self.conv2):
            nn.init.kaiming_normal_(conv.weight)
            conv.weight.data.mul_(0.1)
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, *, overwrite: bool = False) -> Tensor:  # (N, C, H, W) -> same
        if can_fuse(x, self.conv1.weight):
            return fused_residual(x, self.conv1, self.conv2, self.slope, overwrite=overwrite)
        y = self.conv1(x)
        # In place where the convolution's output is ours alone: a tenth of the time on a CPU.
        y = F.leaky_relu_(y, self.slope) if self.slope else F.relu_(y)
        return self.conv2(y).add_(x)


class ResidualBlocks(nn.Sequential):
    """Residual blocks in a row; what one answers the next may overwrite, where nobody watches."""

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> same
        ours = False
        for block in self:
            watched = bool(block._forward_hooks)
            x = block(x, overwrite=ours and not watched)
            ours = not watched
        return x


def residual_blocks(count: int, channels: int, slope: float = 0.0) -> ResidualBlocks:
    """`count` residual blocks in a row."""
    return ResidualBlocks(*(ResidualBlock(channels, slope) for _ in range(count)))


class Tower(nn.Module):
    """3x3 convolution to `channels`, LeakyReLU, `count` residual blocks (or those of given widths).

    `main` keeps the public key names: `main.0` is the convolution, `main.2` the blocks.
    """

    def __init__(
        self,
        inputs: int,
        channels: int,
        count: int,
        *,
        slope: float = 0.1,
        block_slope: float = 0.0,
        widths: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.slope = slope
        self.main = nn.Sequential(
            conv3x3(inputs, channels),
            nn.LeakyReLU(slope, inplace=True),
            ResidualBlocks(
                *(
                    ResidualBlock(channels, block_slope, w)
                    for w in widths or [channels] * count
                    if w
                )
            ),
        )

    def forward(self, x: Tensor) -> Tensor:  # (N, inputs, H, W) -> (N, C, H, W)
        first, _, blocks = self.main
        assert isinstance(first, nn.Conv2d)
        done: Tensor = blocks(activated(first, x, self.slope))
        return done


def resize(x: Tensor, size: tuple[int, int], mode: str = "bilinear") -> Tensor:
    """Enlarge or shrink (N, C, H, W), pixel edges aligned.

    Channel by channel: PyTorch has a path for three channels that rounds differently with another
    number of threads, and output must not depend on how many workers share the cores.
    """
    if x.shape[-2:] == size:
        return x
    single = x.flatten(0, 1)[:, None]
    out = F.interpolate(single, size=size, mode=mode, align_corners=False)
    return out[:, 0].unflatten(0, x.shape[:2])


def upsample_bilinear(frames: Tensor, scale: int) -> Tensor:
    """(N, 3, H, W) -> (N, 3, sH, sW), the base that most networks add their detail to."""
    h, w = frames.shape[-2:]
    return resize(frames, (h * scale, w * scale))


def pad_to(x: Tensor, height: int, width: int) -> Tensor:
    """Repeat the right and bottom edges of (N, C, H, W) until it has the given size."""
    h, w = x.shape[-2:]
    if (h, w) == (height, width):
        return x
    return F.pad(x, (0, width - w, 0, height - h), mode="replicate")


def reflect_to_multiple(x: Tensor, multiple: int) -> Tensor:
    """Mirror the right and bottom edges of (..., C, H, W) until both sides divide by `multiple`."""
    h, w = x.shape[-2:]
    flat = x.reshape(-1, *x.shape[-3:])
    padded = F.pad(flat, (0, -w % multiple, 0, -h % multiple), mode="reflect")
    return padded.view(*x.shape[:-2], *padded.shape[-2:])


class FrameNorm(nn.LayerNorm):
    """LayerNorm over (C, H, W) that answers in the memory layout it is given.

    PyTorch's own turns channels-last into channels-first, and what follows is slower for it.
    """

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> same
        if x.is_contiguous() or not x.is_contiguous(memory_format=torch.channels_last):
            return super().forward(x)
        weight, bias = self.weight.permute(1, 2, 0), self.bias.permute(1, 2, 0)
        y = F.layer_norm(x.permute(0, 2, 3, 1), weight.shape, weight, bias, self.eps)
        return y.permute(0, 3, 1, 2)


class TwoStageTail(nn.Module):
    """x4 in two pixel-shuffle stages and one or two convolutions at full size: features to RGB."""

    def __init__(
        self,
        channels: int,
        *,
        middle: int | None = None,  # channels at twice the size; None: as many as given
        hidden: int = 64,  # channels at four times the size
        slope: float = 0.1,
        full_size_conv: bool = True,
    ) -> None:
        super().__init__()
        self.slope = slope
        self.upconv1 = conv3x3(channels, (middle or channels) * 4)
        self.upconv2 = conv3x3(middle or channels, hidden * 4)
        self.conv_hr = conv3x3(hidden, hidden) if full_size_conv else None
        self.conv_last = conv3x3(hidden, 3)

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, 3, 4H, 4W)
        x = F.pixel_shuffle(activated(self.upconv1, x, self.slope), 2)
        x = F.pixel_shuffle(activated(self.upconv2, x, self.slope), 2)
        if self.conv_hr is not None:
            x = activated(self.conv_hr, x, self.slope)
        return self.conv_last(x)


def check_frames(clip: Tensor, frames: int) -> None:
    """Say clearly that a windowed model was given a clip (B, T, 3, H, W) of another length."""
    if clip.shape[1] != frames:
        raise VsrkitError(
            f"this model takes {frames} frames at once, got {clip.shape[1]}; "
            "upscale_frames cuts such windows"
        )
