"""Residual blocks and convolutions in 8-bit integers, by oneDNN's operators inside PyTorch.

Weights have a scale for each output channel, activations a scale and a zero point for each tensor,
from a calibration: `observed` records ranges, `quantised` uses them. Channels are balanced first:
those with large values are divided by a factor, which the weights take up, so that one scale fits
all of them better.

The sum that runs through residual blocks either stays in 8 bits, which is fastest, or in float32,
which rounds only what the convolutions read. In the second case only chains of blocks run in 8
bits: other convolutions add half of the error and save a tenth of the time.

Sums of integers are exact, and what follows is computed value by value: results depend neither on
threads nor on how frames are divided.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from vsrkit.models.layers.blocks import ResidualBlock, ResidualBlocks, computed_in

LARGEST = 255  # of an unsigned byte
BALANCE = 0.5  # power of a channel's largest value that it is divided by
LEAST_BALANCE = 0.05  # smallest such value, as a share of the mean of all channels


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of the values inside of residual blocks, or of what a convolution reads.

    stream: smallest and largest value before the first block and after each; of a convolution, of
        its input
    inner: largest value between the convolutions of each block
    balance: by channel, what the stream of residual blocks is divided by
    """

    stream: tuple[tuple[float, float], ...]
    inner: tuple[float, ...] = ()
    balance: tuple[float, ...] = ()

    def widened(self, factor: float) -> "Ranges":
        """The same for values that are larger by a factor."""
        stream = tuple((low * factor, high * factor) for low, high in self.stream)
        return Ranges(stream, tuple(high * factor for high in self.inner), self.balance)


class Scale(NamedTuple):
    """A byte `q` stands for `(q - zero) * step`."""

    step: float
    zero: int

    @classmethod
    def of(cls, low: float, high: float) -> "Scale":
        """The scale that has zero and all values from `low` to `high`."""
        low, high = min(low, 0.0), max(high, 0.0)
        step = max(high - low, 1e-6) / LARGEST
        return cls(step, round(-low / step))


class Packed(NamedTuple):
    """The arguments of an operator: weights with their scales and zero points; the others."""

    weights: tuple[Tensor, Tensor, Tensor]
    settings: tuple[Any, ...]  # bias, stride, padding, dilation, groups


# Packed weights cannot be copied to other processes: they are made again where they are missing.
_packed: WeakKeyDictionary[nn.Module, list[Packed]] = WeakKeyDictionary()


def to_bytes(x: Tensor, scale: Scale) -> Tensor:
    """Round (N, C, H, W) to bytes; values outside of the range are clamped."""
    quantised = torch.quantize_per_tensor(x.float(), *scale, torch.quint8)
    # The same memory as plain bytes; `int_repr` would copy it, which takes four times as long.
    bare = torch.empty(0, dtype=torch.uint8)
    return bare.set_(quantised.untyped_storage(), 0, quantised.size(), quantised.stride())


def from_bytes(q: Tensor, scale: Scale) -> Tensor:
    """The float32 values of bytes."""
    return q.float().sub_(scale.zero).mul_(scale.step)


def _pack(weight: Tensor, bias: Tensor, scale: Scale) -> Packed:
    """Pack weights (O, I, 3, 3) for inputs of a scale."""
    steps = weight.abs().amax((1, 2, 3)).clamp_min(1e-12) / 127
    rounded = _rounded(weight / steps[:, None, None, None]).to(torch.int8)
    one, border = [1, 1], [weight.shape[-1] // 2] * 2
    packed = torch.ops.onednn.qconv_prepack(
        rounded.contiguous(), steps, *scale, one, border, one, 1, None
    )
    zeros = torch.zeros(len(steps), dtype=torch.int64)
    return Packed((packed, steps, zeros), (bias, one, border, one, 1))


def _rounded(kernels: Tensor) -> Tensor:
    """Round (O, I, 3, 3) so that the sum of each kernel changes by at most half a step.

    Neighbouring pixels are similar, so that mostly the sum counts. The values that are changed are
    those nearest to the middle between two steps.
    """
    rounded = kernels.round()
    rest = (kernels - rounded).flatten(2)
    missing = rest.sum(-1, keepdim=True).round()
    sign = missing.sign()
    rank = (rest * sign).argsort(dim=-1, descending=True, stable=True).argsort(-1)
    rounded += (sign * (rank < missing.abs())).view_as(rounded)
    return rounded.clamp_(-127, 127)


def _convolve(
    q: Tensor, scale: Scale, packed: Packed, out: Scale | torch.dtype, activation: str = "none"
) -> Tensor:
    """Convolution of bytes, to bytes of the scale `out` or to floats."""
    run = torch.ops.onednn.qconv2d_pointwise.default
    to, dtype = (out, torch.uint8) if isinstance(out, Scale) else (Scale(1.0, 0), out)
    return run(q, *scale, *packed.weights, *packed.settings, *to, dtype, activation, [], "")


def _add(q: Tensor, scale: Scale, packed: Packed, onto: Tensor, before: Scale, to: Scale) -> Tensor:
    """Add the convolution of bytes `q` to `onto`, in place; bytes change their scale to `to`."""
    run = torch.ops.onednn.qconv2d_pointwise.binary
    weights, settings = packed
    done: Tensor = run(
        q, *scale, *weights, onto, *settings, *to, onto.dtype, *before, "sum", 1.0, "none", [], ""
    )
    return done


FLOATS = Scale(1.0, 0)  # for the operators: values are not scaled


class Int8Blocks(nn.Module):
    """Residual blocks with ReLU whose convolutions run in 8 bits: (N, C, H, W) -> same.

    exact: whether the sum through the blocks is float32 instead of bytes
    """

    balance: Tensor

    def __init__(self, blocks: ResidualBlocks, ranges: Ranges, *, exact: bool) -> None:
        super().__init__()
        self.blocks, self.exact = blocks, exact
        self.stream = [Scale.of(*pair) for pair in ranges.stream]
        self.inner = [Scale.of(0, high) for high in ranges.inner]
        balance = torch.tensor(ranges.balance).view(1, -1, 1, 1)
        self.register_buffer("balance", balance, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        packed = _packed.get(self)
        if packed is None:
            packed = _packed[self] = list(self._pack())
        # A new tensor, into which the sum is written.
        balanced = (x.float() / self.balance).contiguous(memory_format=torch.channels_last)
        return self._run(balanced, packed).mul_(self.balance).to(x.dtype)

    def _run(self, x: Tensor, packed: list[Packed]) -> Tensor:
        total = x if self.exact else to_bytes(x, self.stream[0])
        for number, inner in enumerate(self.inner):
            before, after = self.stream[number : number + 2]
            read = to_bytes(total, before) if self.exact else total
            hidden = _convolve(read, before, packed[2 * number], inner, "relu")
            if self.exact:
                before = after = FLOATS
            total = _add(hidden, inner, packed[2 * number + 1], total, before, after)
        return total if self.exact else from_bytes(total, self.stream[-1])

    def _pack(self) -> Iterable[Packed]:
        balance = self.balance.flatten()
        for block, before, inner in zip(self.blocks, self.stream[:-1], self.inner, strict=True):
            assert isinstance(block, ResidualBlock)
            first, second = block.conv1, block.conv2
            assert first.bias is not None
            assert second.bias is not None
            weight = first.weight.detach() * balance[:, None, None]
            yield _pack(weight, first.bias.detach(), before)
            weight = second.weight.detach() / balance[:, None, None, None]
            yield _pack(weight, second.bias.detach() / balance, inner)


class Int8Conv(nn.Module):
    """A 3x3 convolution in 8 bits: (N, C, H, W) -> (N, C', H, W)."""

    def __init__(self, conv: nn.Conv2d, ranges: Ranges) -> None:
        super().__init__()
        self.conv, self.scale = conv, Scale.of(*ranges.stream[0])

    def forward(self, x: Tensor) -> Tensor:
        packed = _packed.get(self)
        if packed is None:
            assert self.conv.bias is not None
            weight, bias = self.conv.weight.detach(), self.conv.bias.detach()
            packed = _packed[self] = [_pack(weight, bias, self.scale)]
        x = x.contiguous(memory_format=torch.channels_last)
        return _convolve(to_bytes(x, self.scale), self.scale, packed[0], computed_in(x))


class Extremes:
    """Smallest and largest value of each channel, of all tensors that were added."""

    def __init__(self) -> None:
        self.low = self.high = torch.zeros(1)

    def add(self, x: Tensor) -> None:
        """Take (N, C, H, W) into account. Zero always belongs to the range."""
        self.low = torch.minimum(self.low, x.float().amin((0, 2, 3)))
        self.high = torch.maximum(self.high, x.float().amax((0, 2, 3)))


class ObservedBlocks(nn.Module):
    """Residual blocks that record ranges: (N, C, H, W) -> same."""

    def __init__(self, blocks: ResidualBlocks) -> None:
        super().__init__()
        self.blocks = blocks
        self.stream = [Extremes() for _ in range(len(blocks) + 1)]
        self.inner = [Extremes() for _ in blocks]

    def forward(self, x: Tensor) -> Tensor:
        self.stream[0].add(x)
        for block, inner, after in zip(self.blocks, self.inner, self.stream[1:], strict=True):
            assert isinstance(block, ResidualBlock)
            hidden = torch.relu(block.conv1(x))
            inner.add(hidden)
            x = x + block.conv2(hidden)
            after.add(x)
        return x

    @property
    def ranges(self) -> Ranges:
        """What was recorded."""
        largest = torch.stack([torch.maximum(-e.low, e.high) for e in self.stream]).amax(0)
        share = largest / largest.mean().clamp_min(1e-12)
        balance = share.clamp_min(LEAST_BALANCE) ** BALANCE
        stream = (
            (float((e.low / balance).min()), float((e.high / balance).max())) for e in self.stream
        )
        return Ranges(
            tuple(stream), tuple(float(e.high.max()) for e in self.inner), tuple(balance.tolist())
        )


class ObservedConv(nn.Module):
    """A convolution that records the range of its input."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv, self.input = conv, Extremes()

    def forward(self, x: Tensor) -> Tensor:
        self.input.add(x)
        return self.conv(x)

    @property
    def ranges(self) -> Ranges:
        """What was recorded."""
        return Ranges(((float(self.input.low.min()), float(self.input.high.max())),))


def quantisable(model: nn.Module) -> list[str]:
    """The names of the modules that can run in 8 bits, in the order of the model."""
    names = []
    for name, module in model.named_modules():
        if isinstance(module, ResidualBlocks) and len(module) and all(map(_is_plain, module)):
            names.append(name)
        for child in getattr(module, "int8_convolutions", ()):
            if getattr(module, child) is not None:
                names.append(f"{name}.{child}".removeprefix("."))
    return names


def _is_plain(block: nn.Module) -> bool:
    return isinstance(block, ResidualBlock) and block.slope == 0


def observed(model: nn.Module) -> tuple[nn.Module, dict[str, ObservedBlocks | ObservedConv]]:
    """A copy of a model that records ranges, and its recording parts by name."""
    parts: dict[str, ObservedBlocks | ObservedConv] = {}
    for name in quantisable(model):
        part = model.get_submodule(name)
        if isinstance(part, ResidualBlocks):
            parts[name] = ObservedBlocks(part)
        elif isinstance(part, nn.Conv2d):
            parts[name] = ObservedConv(part)
    return _with_parts(model, parts), parts


def quantised(model: nn.Module, ranges: Mapping[str, Ranges], *, exact: bool) -> nn.Module:
    """A copy of a model that computes in 8 bits where ranges are known.

    The copy shares all weights with the model; their memory layout should be channels-last.

    exact: keep the stream of blocks in float32, and single blocks and convolutions in floats
    """
    parts: dict[str, Int8Blocks | Int8Conv] = {}
    for name in quantisable(model):
        part = model.get_submodule(name)
        if name not in ranges:
            continue
        is_chain = isinstance(part, ResidualBlocks) and len(part) > 1
        if exact and not is_chain:
            continue
        if isinstance(part, ResidualBlocks):
            # A single block gains nothing from bytes, which would be converted back at once.
            parts[name] = Int8Blocks(part, ranges[name], exact=exact or not is_chain)
        elif isinstance(part, nn.Conv2d):
            parts[name] = Int8Conv(part, ranges[name])
    return _with_parts(model, parts)


def _with_parts(model: nn.Module, parts: Mapping[str, nn.Module]) -> nn.Module:
    """A copy of a model that shares its tensors, with some modules replaced."""
    tensors = [*model.parameters(), *model.buffers()]
    copy = deepcopy(model, {id(tensor): tensor for tensor in tensors})
    for name, part in parts.items():
        parent, _, child = name.rpartition(".")
        copy.get_submodule(parent).register_module(child, part)
    return copy
