"""Whether PyTorch has quantised convolutions, and whether they are right on this processor."""

import warnings
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

CLOSE = 0.02  # largest error that is accepted, relative to the largest value of the result


@cache
def int8_fault() -> str | None:
    """What prevents int8 convolutions in this process, in a few words; None if they work.

    The operators are not part of PyTorch's public interface. Processors without instructions for
    products of bytes add pairs of them in 16 bits, which can overflow: full ranges are tried.
    """
    try:
        with warnings.catch_warnings():  # announces once that the type of its result will go
            warnings.simplefilter("ignore")
            error = _error_of_trial()
    except (RuntimeError, AttributeError, NotImplementedError, TypeError) as failure:
        return f"PyTorch {torch.__version__} has no int8 convolutions here ({_line(failure)})"
    return None if error <= CLOSE else "int8 convolutions are wrong on this processor"


def _line(error: Exception) -> str:
    return str(error).splitlines()[0][:80] if str(error) else type(error).__name__


def _error_of_trial() -> float:
    """The error of a convolution of large bytes, relative to its largest value."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(192, 256, (1, 64, 12, 12), generator=generator)
    weights = torch.randint(64, 128, (16, 64, 3, 3), generator=generator, dtype=torch.int8)
    weights[8:] = -weights[8:]
    steps = torch.full((16,), 0.01)
    quantised = torch.quantize_per_tensor(values.float(), 1.0, 0, torch.quint8).int_repr()
    done = _convolution(quantised.contiguous(memory_format=torch.channels_last), weights, steps)
    expected = F.conv2d(values.double(), weights.double() * 0.01, padding=1)
    return float((done - expected).abs().max() / expected.abs().max())


def _convolution(values: Tensor, weights: Tensor, steps: Tensor) -> Tensor:
    one, zeros = [1, 1], torch.zeros(len(steps), dtype=torch.int64)
    packed = torch.ops.onednn.qconv_prepack(weights, steps, 1.0, 0, one, one, one, 1, None)
    done: Tensor = torch.ops.onednn.qconv2d_pointwise(
        values, 1.0, 0, packed, steps, zeros, None, one, one, one, 1,
        1.0, 0, torch.float32, "none", [], "",
    )  # fmt: skip
    return done
