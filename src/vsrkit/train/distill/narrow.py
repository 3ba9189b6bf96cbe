"""Narrow a trained BasicVSR into one of our presets, by least squares instead of training.

    a block     x + conv2(relu(conv1(x))), 64 channels inside
    narrowed    the same with 16, 32 or 48 of them, or left out (width 0)

Those inner channels go whose absence the others can make up for best (`least_squares`). What is
left of `conv2` is then fitted so that the features after the block are again the teacher's, errors
of the blocks before it included. Both need only the sums of products of features over a few clips.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.layers.blocks import ResidualBlock, Tower, TwoStageTail, conv3x3
from vsrkit.models.layers.flow import warp
from vsrkit.models.vsrt_small import DirectTail, Flows, SmallConfig, VSRTSmall
from vsrkit.train.distill.least_squares import Fit, eliminate, fit, sums_of

Direction: TypeAlias = Literal["backward", "forward"]
Widths: TypeAlias = dict[Direction, tuple[int, ...]]
Errors: TypeAlias = dict[tuple[Direction, int], dict[int, float]]  # by block, then by width
DIRECTIONS: tuple[Direction, Direction] = ("backward", "forward")
SAMPLES = 24_000  # pixels that sums run over


@torch.no_grad()
def narrow(teacher: BasicVSR, config: SmallConfig, lr: Tensor) -> VSRTSmall:
    """The preset `config` with what it can take of its teacher; lr: clips (B, T, 3, H, W)."""
    pupil = VSRTSmall(config).eval()
    widths: Widths = {"backward": config.backward_widths, "forward": config.forward_widths}
    for direction, named in widths.items():
        if len(named) != teacher.config.blocks:
            raise VsrkitError(
                f"the teacher has {teacher.config.blocks} blocks per direction, the preset "
                f"{len(named)} {direction} widths; one each is wanted, 0 leaves a block out"
            )
    frames = list(lr.unbind(1))
    taught, learnt = {}, {}
    for direction in DIRECTIONS:
        trunk = getattr(teacher, f"{direction}_trunk")
        inputs = _inputs(trunk, frames, *_way(pupil, frames, direction))
        tower = getattr(pupil, f"{direction}_tower")
        ends = _narrow_tower(trunk, tower, widths[direction], inputs)
        taught[direction], learnt[direction] = ends
    pupil.fusion.load_state_dict(teacher.fusion.state_dict())
    given = _fused(teacher.fusion, taught, len(frames))
    if isinstance(pupil.tail, DirectTail):
        goal = F.pixel_unshuffle(teacher.tail(given), 4)
        sums = sums_of(_fused(pupil.fusion, learnt, len(frames)), goal, SAMPLES)
        _put(pupil.tail.conv, fit(sums, list(range(sums.channels))))
    else:
        narrow_tail(teacher.tail, pupil.tail, given)
    for block in pupil.head:
        nn.init.zeros_(cast(ResidualBlock, block).conv2.weight)
    return pupil


@torch.no_grad()
def choose_widths(
    teacher: BasicVSR, config: SmallConfig, lr: Tensor, budget: int, step: int = 16
) -> Widths:
    """Widths of all blocks, `budget` channels in all, where they take most error away.

    `step` is what processors like: 16 numbers are one register.
    """
    pupil, frames = VSRTSmall(config).eval(), list(lr.unbind(1))
    sizes = range(0, teacher.config.channels + 1, step)
    errors: Errors = {}
    for direction in DIRECTIONS:
        trunk = getattr(teacher, f"{direction}_trunk")
        given = _inputs(trunk, frames, *_way(pupil, frames, direction))
        first, activation, blocks = trunk.main
        x = activation(first(given))
        for number, block in enumerate(blocks):
            inner = F.relu(block.conv1(x))
            added = block.conv2(inner)
            fits = eliminate(sums_of(inner, added, SAMPLES), sizes)
            errors[direction, number] = {size: found.error for size, found in fits.items()}
            x = x + added
    widths = spend(errors, budget)
    return {
        d: tuple(widths[d, number] for number in range(teacher.config.blocks)) for d in DIRECTIONS
    }


def spend(
    errors: dict[tuple[Direction, int], dict[int, float]], budget: int
) -> dict[tuple[Direction, int], int]:
    """By block, its width: always on to what takes most error away for each channel."""
    widths = dict.fromkeys(errors, 0)
    left = budget
    while options := [
        ((errors[block][widths[block]] - error) / (size - widths[block]), block, size)
        for block in errors
        for size, error in errors[block].items()
        if 0 < size - widths[block] <= left
    ]:
        _, block, size = max(options)
        left -= size - widths[block]
        widths[block] = size
    return widths


def _narrow_tower(
    trunk: Tower, tower: Tower, widths: Sequence[int], given: Tensor
) -> tuple[Tensor, Tensor]:
    """Fill the pupil's tower; the teacher's and the pupil's features at its end."""
    first, activation, blocks = trunk.main
    tower.main[0].load_state_dict(first.state_dict())
    x = theirs = activation(first(given))
    own_blocks = iter(cast(Iterable[ResidualBlock], tower.main[2]))
    for block, width in zip(cast(Iterable[ResidualBlock], blocks), widths, strict=True):
        theirs = block(theirs)
        if width:
            own = next(own_blocks)
            inner = F.relu(block.conv1(x))
            found = eliminate(sums_of(inner, theirs - x, SAMPLES), [width])[width]
            _put_rows(own.conv1, block.conv1.weight, block.conv1.bias, found.channels)
            _put(own.conv2, found)
            x = own(x)
    return theirs, x


@torch.no_grad()
def narrow_tail(theirs: TwoStageTail, own: TwoStageTail, x: Tensor) -> None:
    """Fill a tail of fewer channels at 2x and at 4x size; x: features (N, C, H, W)."""
    assert theirs.conv_hr is not None
    assert own.conv_hr is not None

    def enlarged(conv: nn.Conv2d, x: Tensor) -> Tensor:
        return F.leaky_relu(F.pixel_shuffle(conv(x), 2), theirs.slope)

    # Each layer is fitted to what the teacher's answers to the features that are left of it.
    middle = enlarged(theirs.upconv1, x)
    found = _kept(middle, theirs.upconv2, own.upconv2.in_channels)
    _put_rows(own.upconv1, theirs.upconv1.weight, theirs.upconv1.bias, _shuffled(found.channels))
    second = conv_of(found)
    hidden = enlarged(second, middle[:, found.channels])
    found = _kept(hidden, theirs.conv_hr, own.conv_hr.in_channels)
    _put_rows(own.upconv2, second.weight, second.bias, _shuffled(found.channels))
    third = conv_of(found)
    last = F.leaky_relu(third(hidden[:, found.channels]), theirs.slope)
    found = _kept(last, theirs.conv_last, own.conv_last.in_channels)
    _put_rows(own.conv_hr, third.weight, third.bias, found.channels)
    _put(own.conv_last, found)


def _kept(x: Tensor, conv: nn.Conv2d, count: int) -> Fit:
    """The `count` channels of x from which the convolution's answer is found best."""
    return eliminate(sums_of(x, conv(x), SAMPLES), [count])[count]


def _shuffled(channels: list[int]) -> list[int]:
    """The channels that a pixel shuffle makes these of."""
    return [4 * channel + part for channel in channels for part in range(4)]


def conv_of(found: Fit) -> nn.Conv2d:
    """A fit as a layer."""
    conv = conv3x3(len(found.channels), len(found.weight))
    _put(conv, found)
    return conv


def _put_rows(conv: nn.Conv2d, weight: Tensor, bias: Tensor | None, rows: list[int]) -> None:
    """Take some of the outputs of another convolution."""
    assert bias is not None
    conv.weight.copy_(weight[rows])
    conv.get_parameter("bias").copy_(bias[rows])


def _put(conv: nn.Conv2d, found: Fit) -> None:
    conv.weight.copy_(found.weight)
    conv.get_parameter("bias").copy_(found.bias)


def _fused(fusion: nn.Module, ends: dict[Direction, Tensor], count: int) -> Tensor:
    """Features of both directions joined, frame by frame: (T * B, C, H, W)."""
    backward = torch.cat(ends["backward"].chunk(count)[::-1])
    return F.leaky_relu(fusion(torch.cat([backward, ends["forward"]], 1)), 0.1)


def _way(pupil: VSRTSmall, frames: list[Tensor], direction: Direction) -> tuple[Flows, range]:
    """The flows to a frame's neighbour, and the order in which the frames are gone through."""
    to_prev, to_next = pupil.flows(frames)
    if direction == "forward":
        return to_prev, range(len(frames))
    return to_next, range(len(frames) - 1, -1, -1)


def _inputs(trunk: Tower, frames: Sequence[Tensor], flows: Flows, order: range) -> Tensor:
    """What a trunk is given at all frames, in the order in which it goes: (T * B, 3 + C, H, W)."""
    return torch.cat([given for given, _ in trunk_steps(trunk, frames, flows, order)])


def trunk_steps(
    trunk: Tower, frames: Sequence[Tensor], flows: Flows, order: range
) -> Iterator[tuple[Tensor, Tensor]]:
    """What a trunk of BasicVSR is given at each frame (B, 3 + C, H, W), and what it answers."""
    b, colours, h, w = frames[0].shape
    first = cast(nn.Conv2d, trunk.main[0])
    features = frames[0].new_zeros(b, first.in_channels - colours, h, w)
    for t in order:
        flow = flows[t]
        given = torch.cat([frames[t], features if flow is None else warp(features, flow)], 1)
        features = trunk(given)
        yield given, features
