"""Narrow a trained BasicVSR into a vsrt-s or vsrt-m, by least squares instead of training.

    a block     x + conv2(relu(conv1(x))), 64 channels inside
    narrowed    the same with 16, 32 or 48 of them, or left out (width 0)

The inner channels that are removed are those whose removal the others compensate best
(`prune_channels`). The rest of `conv2` is then fitted so that the features after the block equal
the teacher's, which also corrects errors of the blocks before it. Both use only the normal
equations of the features over a few clips.
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
from vsrkit.train.distill.refit import Fit, fit, normal_equations, prune_channels

Direction: TypeAlias = Literal["backward", "forward"]
Widths: TypeAlias = dict[Direction, tuple[int, ...]]
Errors: TypeAlias = dict[tuple[Direction, int], dict[int, float]]  # by block, then by width
DIRECTIONS: tuple[Direction, Direction] = ("backward", "forward")
SAMPLES = 24_000  # pixels in the normal equations
WRONG_STUDENT = (
    "only vsrt-s and vsrt-m can learn the features of a teacher; "
    'for other models set teacher_mode = "frames"'
)


@torch.no_grad()
def narrow(teacher: BasicVSR, config: object, lr: Tensor) -> VSRTSmall:
    """A student whose weights are fitted to the features of its teacher.

    Args:
        teacher: a trained BasicVSR.
        config: of a vsrt-s or vsrt-m, with one width for each block of the teacher.
        lr: clips (B, T, 3, H, W) on which features are compared.
    """
    if not isinstance(config, SmallConfig):
        raise VsrkitError(WRONG_STUDENT)
    student = VSRTSmall(config).eval()
    widths: Widths = {"backward": config.backward_widths, "forward": config.forward_widths}
    for direction, given in widths.items():
        if len(given) != teacher.config.blocks:
            raise VsrkitError(
                f"the teacher has {teacher.config.blocks} blocks per direction, the student "
                f"{len(given)} {direction} widths; give one for each block, 0 leaves a block out"
            )
    frames = list(lr.unbind(1))
    teacher_ends, student_ends = {}, {}  # features at the end of the towers
    for direction in DIRECTIONS:
        trunk = getattr(teacher, f"{direction}_trunk")
        inputs = _inputs(trunk, frames, *_flows_and_order(student, frames, direction))
        tower = getattr(student, f"{direction}_tower")
        ends = _narrow_tower(trunk, tower, widths[direction], inputs)
        teacher_ends[direction], student_ends[direction] = ends
    student.fusion.load_state_dict(teacher.fusion.state_dict())
    fused = _fused(teacher.fusion, teacher_ends, len(frames))
    if isinstance(student.tail, DirectTail):
        target = F.pixel_unshuffle(teacher.tail(fused), 4)
        features = _fused(student.fusion, student_ends, len(frames))
        equations = normal_equations(features, target, SAMPLES)
        _copy_fit(student.tail.conv, fit(equations, list(range(equations.channels))))
    else:
        _narrow_tail(teacher.tail, student.tail, fused)
    for block in student.head:
        nn.init.zeros_(cast(ResidualBlock, block).conv2.weight)
    return student


@torch.no_grad()
def choose_widths(
    teacher: BasicVSR, config: SmallConfig, lr: Tensor, budget: int, step: int = 16
) -> Widths:
    """Choose the widths of the blocks that reduce the error most.

    Args:
        teacher: a trained BasicVSR.
        config: the student, whose flow is used.
        lr: clips (B, T, 3, H, W) on which features are compared.
        budget: sum of all widths.
        step: multiple of which each width is; 16 float32 values fill one vector register.
    """
    student, frames = VSRTSmall(config).eval(), list(lr.unbind(1))
    sizes = range(0, teacher.config.channels + 1, step)
    errors: Errors = {}
    for direction in DIRECTIONS:
        trunk = getattr(teacher, f"{direction}_trunk")
        inputs = _inputs(trunk, frames, *_flows_and_order(student, frames, direction))
        first, activation, blocks = trunk.main
        x = activation(first(inputs))
        for number, block in enumerate(blocks):
            inner = F.relu(block.conv1(x))
            added = block.conv2(inner)
            fits = prune_channels(normal_equations(inner, added, SAMPLES), sizes)
            errors[direction, number] = {size: found.error for size, found in fits.items()}
            x = x + added
    widths = distribute(errors, budget)
    return {
        d: tuple(widths[d, number] for number in range(teacher.config.blocks)) for d in DIRECTIONS
    }


def distribute(errors: Errors, budget: int) -> dict[tuple[Direction, int], int]:
    """Choose widths greedily by the largest reduction of the error per channel.

    errors: by block and width; budget: sum of all widths.
    """
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
    trunk: Tower, tower: Tower, widths: Sequence[int], inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """Fit a tower of the student; returns the teacher's and the student's features at its end."""
    first, activation, blocks = trunk.main
    tower.main[0].load_state_dict(first.state_dict())
    x = target = activation(first(inputs))
    own_blocks = iter(cast(Iterable[ResidualBlock], tower.main[2]))
    for block, width in zip(cast(Iterable[ResidualBlock], blocks), widths, strict=True):
        target = block(target)
        if width:
            own = next(own_blocks)
            inner = F.relu(block.conv1(x))
            equations = normal_equations(inner, target - x, SAMPLES)
            found = prune_channels(equations, [width])[width]
            _copy_rows(own.conv1, block.conv1.weight, block.conv1.bias, found.channels)
            _copy_fit(own.conv2, found)
            x = own(x)
    return target, x


def _narrow_tail(teacher: TwoStageTail, student: TwoStageTail, x: Tensor) -> None:
    """Fit a tail with fewer channels at 2x and 4x size; x: its input features (N, C, H, W)."""
    assert teacher.conv_hr is not None
    assert student.conv_hr is not None

    def enlarged(conv: nn.Conv2d, x: Tensor) -> Tensor:
        return F.leaky_relu(F.pixel_shuffle(conv(x), 2), teacher.slope)

    # Each layer is fitted to the teacher's output, given the remaining channels of its input.
    first = teacher.upconv1
    middle = enlarged(first, x)
    found = _kept(middle, teacher.upconv2, student.upconv2.in_channels)
    _copy_rows(student.upconv1, first.weight, first.bias, _shuffled(found.channels))
    second = _conv_of(found)
    hidden = enlarged(second, middle[:, found.channels])
    found = _kept(hidden, teacher.conv_hr, student.conv_hr.in_channels)
    _copy_rows(student.upconv2, second.weight, second.bias, _shuffled(found.channels))
    third = _conv_of(found)
    last = F.leaky_relu(third(hidden[:, found.channels]), teacher.slope)
    found = _kept(last, teacher.conv_last, student.conv_last.in_channels)
    _copy_rows(student.conv_hr, third.weight, third.bias, found.channels)
    _copy_fit(student.conv_last, found)


def _kept(x: Tensor, conv: nn.Conv2d, count: int) -> Fit:
    """Fit the output of a convolution by the `count` most important channels of x."""
    return prune_channels(normal_equations(x, conv(x), SAMPLES), [count])[count]


def _shuffled(channels: list[int]) -> list[int]:
    """The input channels of a pixel shuffle by 2 that become these output channels."""
    return [4 * channel + part for channel in channels for part in range(4)]


def _conv_of(found: Fit) -> nn.Conv2d:
    """A fit as a convolution layer."""
    conv = conv3x3(len(found.channels), len(found.weight))
    _copy_fit(conv, found)
    return conv


def _copy_rows(conv: nn.Conv2d, weight: Tensor, bias: Tensor | None, rows: list[int]) -> None:
    """Copy some output channels of another convolution."""
    assert bias is not None
    conv.weight.copy_(weight[rows])
    conv.get_parameter("bias").copy_(bias[rows])


def _copy_fit(conv: nn.Conv2d, found: Fit) -> None:
    conv.weight.copy_(found.weight)
    conv.get_parameter("bias").copy_(found.bias)


def _fused(fusion: nn.Module, ends: dict[Direction, Tensor], count: int) -> Tensor:
    """Features of both directions, fused frame by frame: (T * B, C, H, W)."""
    backward = torch.cat(ends["backward"].chunk(count)[::-1])
    return F.leaky_relu(fusion(torch.cat([backward, ends["forward"]], 1)), 0.1)


def _flows_and_order(
    student: VSRTSmall, frames: list[Tensor], direction: Direction
) -> tuple[Flows, range]:
    """The flows to the neighbours that a direction propagates from, and its order of frames."""
    to_prev, to_next = student.flows(frames)
    if direction == "forward":
        return to_prev, range(len(frames))
    return to_next, range(len(frames) - 1, -1, -1)


def _inputs(trunk: Tower, frames: Sequence[Tensor], flows: Flows, order: range) -> Tensor:
    """The inputs of a trunk for all frames, in its order: (T * B, 3 + C, H, W)."""
    return torch.cat([inputs for inputs, _ in trunk_steps(trunk, frames, flows, order)])


def trunk_steps(
    trunk: Tower, frames: Sequence[Tensor], flows: Flows, order: range
) -> Iterator[tuple[Tensor, Tensor]]:
    """The input (B, 3 + C, H, W) and the output (B, C, H, W) of a BasicVSR trunk for each frame."""
    b, colours, h, w = frames[0].shape
    first = cast(nn.Conv2d, trunk.main[0])
    features = frames[0].new_zeros(b, first.in_channels - colours, h, w)
    for t in order:
        flow = flows[t]
        inputs = torch.cat([frames[t], features if flow is None else warp(features, flow)], 1)
        features = trunk(inputs)
        yield inputs, features
