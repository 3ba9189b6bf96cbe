"""Convolutions with what follows them as one operation of oneDNN: the same sums, less memory.

PyTorch brings a convolution's weights into the order that the processor likes at every call, and
runs ReLU and addition over the whole feature map once more. oneDNN, which computes the convolution,
can keep such weights and do the rest on the way out. The operations are those that
`torch.compile` uses; where they are missing, or gradients are wanted, nobody asks for them here.
In float32 every bit is that of the plain block; in bfloat16 it is rounded once less.
"""

from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

PADDING, STRIDE, DILATION, GROUPS = [1, 1], [1, 1], [1, 1], 1


class Packed(NamedTuple):
    """Weights in oneDNN's order, their bias in the same type, and what they were made of."""

    weight: Tensor
    bias: Tensor
    origin: tuple[int, int, int, torch.dtype]


_packed: WeakKeyDictionary[nn.Module, Packed] = WeakKeyDictionary()


def can_fuse(x: Tensor, weight: Tensor) -> bool:
    """Whether blocks can run on (N, C, H, W) here: on a CPU, channels-last, no gradients."""
    autocast = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if autocast else torch.float32
    return (
        not torch.is_grad_enabled()
        and x.device.type == "cpu"
        and weight.dtype == torch.float32
        and x.dtype == dtype
        and (dtype == torch.float32 or _has_fused_bfloat16(dtype))
        and not weight.is_inference()  # those cannot say whether they have changed
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
    """Elsewhere PyTorch emulates bfloat16, and the fused operations refuse it."""
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

    overwrite: `x` becomes the result, which spares the cache a third map of features.
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
    """Its weights as oneDNN wants them for `x`, made anew where they have changed."""
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
