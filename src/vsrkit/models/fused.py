"""A residual block as two operations of oneDNN: the same numbers, with fewer ways to memory.

PyTorch brings a convolution's weights into the order that the processor likes at every call, and
runs ReLU and addition over the whole feature map once more. oneDNN, which computes the convolution,
can keep such weights and do the rest on the way out. The operations are those that
`torch.compile` uses; where they are missing, or gradients are wanted, nobody asks for them here.
"""

from functools import cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

PADDING, STRIDE, DILATION, GROUPS = [1, 1], [1, 1], [1, 1], 1


class Packed(NamedTuple):
    """Weights in oneDNN's order, and which they were made of."""

    weight: Tensor
    origin: tuple[int, int]


_packed: WeakKeyDictionary[nn.Module, Packed] = WeakKeyDictionary()


def can_fuse(x: Tensor, weight: Tensor) -> bool:
    """Whether blocks can run on (N, C, H, W) here: float32, channels-last, no gradients."""
    return (
        not torch.is_grad_enabled()
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
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


def fused_residual(x: Tensor, first: nn.Conv2d, second: nn.Conv2d, slope: float) -> Tensor:
    """Compute x + second(act(first(x))), ReLU or with a slope LeakyReLU: (N, C, H, W) -> same."""
    run = torch.ops.mkldnn._convolution_pointwise
    act, numbers = ("leaky_relu", [slope]) if slope else ("relu", [])
    settings = (PADDING, STRIDE, DILATION, GROUPS)
    y = run(x, _pack(first, x), first.bias, *settings, act, numbers, "")
    done: Tensor = run.binary(
        y, x, _pack(second, y), second.bias, *settings, "add", 1.0, None, [], None
    )
    return done


def _pack(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """Its weights as oneDNN wants them, made anew where they have changed."""
    origin = conv.weight.data_ptr(), conv.weight._version
    known = _packed.get(conv)
    if known is None or known.origin != origin:
        weight = torch.ops.aten.mkldnn_reorder_conv2d_weight(
            conv.weight.detach().to_mkldnn(), PADDING, STRIDE, DILATION, GROUPS, list(x.shape)
        )
        known = _packed[conv] = Packed(weight, origin)
    return known.weight
