"""Layers that several papers share: residual blocks, towers, tails, padding, resizing.

On a CPU a convolution and its activation or addition run as one oneDNN operation, with weights
that are packed once instead of at every call. These are the operations that `torch.compile` uses;
without them, or if gradients are needed, the plain operations run. In float32 the results are equal
bit by bit; in bfloat16 the fused ones are rounded once less.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.errors import VsrkitError

S = TypeVar("S")  # state of a recurrent model
PADDING, STRIDE, DILATION, GROUPS = [1, 1], [1, 1], [1, 1], 1  # of fused convolutions


class Packed(NamedTuple):
    """Weights in oneDNN's layout, the bias in the same dtype, and the state they were made from."""

    weight: Tensor
    bias: Tensor
    origin: tuple[int, int, int, torch.dtype]


_packed: WeakKeyDictionary[nn.Module, Packed] = WeakKeyDictionary()


def can_fuse(x: Tensor, weight: Tensor) -> bool:
    """Whether fused operations can run on (N, C, H, W): CPU, channels-last, no gradients."""
    autocast = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if autocast else torch.float32
    return (
        not torch.is_grad_enabled()
        and x.device.type == "cpu"
        and weight.dtype == torch.float32
        and x.dtype == dtype
        and (dtype == torch.float32 or _has_fused_bfloat16(dtype))
        and not weight.is_inference()  # these have no version counter, which `_pack` needs
        and x.is_contiguous(memory_format=torch.channels_last)
        and bool(torch.backends.mkldnn.enabled)
        and _has_fused_operations()
    )


@cache
def _has_fused_operations() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(
        torch.ops.mkldnn, "_convolution_pointwise"
    )


@cache
def _has_fused_bfloat16(dtype: torch.dtype) -> bool:
    """Without hardware support PyTorch emulates bfloat16, and the fused operations reject it."""
    return dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def fused_activation(x: Tensor, conv: nn.Conv2d, slope: float) -> Tensor:
    """Compute LeakyReLU(conv(x)): (N, C, H, W) -> (N, C', H, W)."""
    packed = _pack(conv, x)
    settings = (PADDING, STRIDE, DILATION, GROUPS)
    done: Tensor = torch.ops.mkldnn._convolution_pointwise(
        x, packed.weight, packed.bias, *settings, "leaky_relu", [slope], ""
    )
    return done


def fused_residual(
    x: Tensor, first: nn.Conv2d, second: nn.Conv2d, slope: float, *, overwrite: bool
) -> Tensor:
    """Compute x + second(act(first(x))), ReLU or with a slope LeakyReLU: (N, C, H, W) -> same.

    overwrite: write the result into `x`, so that only two feature maps compete for the CPU cache
    """
    run = torch.ops.mkldnn._convolution_pointwise
    add: tuple[Any, ...] = ("add", 1.0, None, [], None)
    act, numbers = ("leaky_relu", [slope]) if slope else ("relu", [])
    settings = (PADDING, STRIDE, DILATION, GROUPS)
    one, two = _pack(first, x), _pack(second, x)
    y = run(x, one.weight, one.bias, *settings, act, numbers, "")
    if overwrite:
        onto = torch.ops.mkldnn._convolution_pointwise_.binary
        onto(x, y, two.weight, two.bias, *settings, *add)
        return x
    done: Tensor = run.binary(y, x, two.weight, two.bias, *settings, *add)
    return done


def _pack(conv: nn.Conv2d, x: Tensor) -> Packed:
    """The weights in oneDNN's layout for `x`, packed again if they have changed."""
    assert conv.bias is not None
    origin = conv.weight.data_ptr(), conv.weight._version, conv.bias._version, x.dtype
    known = _packed.get(conv)
    if known is None or known.origin != origin:
        weight = torch.ops.aten.mkldnn_reorder_conv2d_weight(
            conv.weight.detach().to(x.dtype).to_mkldnn(),
            PADDING, STRIDE, DILATION, GROUPS, [len(x), conv.in_channels, *x.shape[-2:]],
        )  # fmt: skip
        known = _packed[conv] = Packed(weight, conv.bias.detach().to(x.dtype), origin)
    return known


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in float32 or wider, the precision that positions in pixels need."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def memory_format_of(x: Tensor) -> torch.memory_format:
    """The memory format of (N, C, H, W): contiguous or channels-last."""
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format


def joined(frame: Tensor, features: Tensor) -> Tensor:
    """Concatenate (N, 3, H, W) and (N, C, H, W) to (N, 3 + C, H, W) for the next convolution.

    The result has the dtype in which that convolution runs and the features' memory format: with
    mixed formats `cat` is slow, and the convolution has to convert the result.
    """
    dtype, layout = computed_in(features), memory_format_of(features)
    return torch.cat([frame.to(dtype, memory_format=layout), features.to(dtype)], 1)


def computed_in(x: Tensor) -> torch.dtype:
    """The dtype in which a convolution of `x` runs, under autocast or not."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size (at stride 1)."""
    return nn.Conv2d(inputs, outputs, 3, stride, 1)


def activated(conv: nn.Module, x: Tensor, slope: float) -> Tensor:
    """LeakyReLU(conv(x)) for a 3x3 convolution of (N, C, H, W), fused if possible.

    conv: an `nn.Conv2d`, or what replaces one, such as `Int8Conv`
    """
    if isinstance(conv, nn.Conv2d) and can_fuse(x, conv.weight):
        return fused_activation(x, conv, slope)
    return F.leaky_relu_(conv(x), slope)


class ResidualBlock(nn.Module):
    """x + conv(act(conv(x))); its initial weights make it nearly the identity.

    slope: of the LeakyReLU; 0 is ReLU
    width: channels between the two convolutions; None: `channels`
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
        # In place, as nothing else reads the convolution's output: saves a tenth of the time.
        y = F.leaky_relu_(y, self.slope) if self.slope else F.relu_(y)
        return self.conv2(y).add_(x)


class ResidualBlocks(nn.Sequential):
    """Residual blocks in sequence; blocks reuse their input's buffer unless a hook is attached."""

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> same
        owned = False  # whether `x` is a buffer that only this loop refers to
        for block in self:
            hooked = bool(block._forward_hooks)
            x = block(x, overwrite=owned and not hooked)
            owned = not hooked
        return x


def residual_blocks(count: int, channels: int, slope: float = 0.0) -> ResidualBlocks:
    """`count` residual blocks in sequence."""
    return ResidualBlocks(*(ResidualBlock(channels, slope) for _ in range(count)))


class Tower(nn.Module):
    """3x3 convolution from `inputs` to `channels`, LeakyReLU, `count` residual blocks.

    slope, block_slope: of the LeakyReLU after the convolution, and of those inside the blocks
    widths: inner channels of each block instead of `count`; a block of width 0 is left out

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

    Runs channel by channel: PyTorch's code path for three channels rounds differently with another
    number of threads, and the output must not depend on the number of workers.
    """
    if x.shape[-2:] == size:
        return x
    single = x.flatten(0, 1)[:, None]
    out = F.interpolate(single, size=size, mode=mode, align_corners=False)
    return out[:, 0].unflatten(0, x.shape[:2])


def upsample_bilinear(frames: Tensor, scale: int) -> Tensor:
    """(N, 3, H, W) -> (N, 3, sH, sW), the base to which most networks add detail."""
    h, w = frames.shape[-2:]
    return resize(frames, (h * scale, w * scale))


def reflect_to_multiple(x: Tensor, multiple: int) -> Tensor:
    """Reflect the right and bottom of (..., C, H, W) until both sides are multiples."""
    h, w = x.shape[-2:]
    flat = x.reshape(-1, *x.shape[-3:])
    padded = F.pad(flat, (0, -w % multiple, 0, -h % multiple), mode="reflect")
    return padded.view(*x.shape[:-2], *padded.shape[-2:])


class FrameNorm(nn.LayerNorm):
    """LayerNorm over (C, H, W) that preserves the memory format.

    PyTorch's own returns channels-first tensors, which slows down the layers after it.
    """

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> same
        if x.is_contiguous() or not x.is_contiguous(memory_format=torch.channels_last):
            return super().forward(x)
        weight, bias = self.weight.permute(1, 2, 0), self.bias.permute(1, 2, 0)
        y = F.layer_norm(x.permute(0, 2, 3, 1), weight.shape, weight, bias, self.eps)
        return y.permute(0, 3, 1, 2)


class TwoStageTail(nn.Module):
    """Features to RGB at x4: two pixel-shuffle stages, one or two convolutions at full size."""

    int8_convolutions = ("upconv1", "upconv2", "conv_hr")

    def __init__(
        self,
        channels: int,
        *,
        middle: int | None = None,  # channels at 2x size; None: `channels`
        hidden: int = 64,  # channels at 4x size
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


def step_through(
    step: Callable[..., tuple[Tensor, S]],
    clip: Tensor,
    keep: slice | None,
    state: S,
    *,
    look_ahead: int = 0,
) -> Tensor:
    """Run a model with a carried state: (B, T, 3, H, W) -> (B, T', 3, sH, sW).

    step: (frame, state) -> (result, next state)
    keep: the frames to return; None for all
    state: before the first frame
    look_ahead: 1 to call `step` with the next frame too, with the last one again at the end
    """
    last = clip.shape[1] - 1
    start, stop, _ = (keep or slice(None)).indices(clip.shape[1])
    results = []
    for i in range(stop):
        after = [clip[:, min(i + 1, last)]] if look_ahead else []
        sr, state = step(clip[:, i], state, *after)
        if i >= start:
            results.append(sr)
    return torch.stack(results, 1)


def check_frames(clip: Tensor, frames: int) -> None:
    """Raise an error unless the clip (B, T, 3, H, W) has `frames` frames."""
    if clip.shape[1] != frames:
        raise VsrkitError(
            f"this model takes {frames} frames at once, got {clip.shape[1]}; "
            "upscale_frames cuts such windows"
        )
