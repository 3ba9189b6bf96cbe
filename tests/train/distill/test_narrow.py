"""Narrowing a teacher: which channels are kept, and how well least squares compensates."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.train.conftest import small_teacher
from torch import nn

from vsrkit.errors import VsrkitError
from vsrkit.models.vsrt_small import SmallConfig
from vsrkit.train.distill.narrow import choose_widths, distribute, narrow

BLOCKS = 3
FULL = SmallConfig(
    channels=8, backward_widths=(8,) * BLOCKS, forward_widths=(8,) * BLOCKS, head_blocks=0,
    attention=False, flow="none", tail="two-stage",
)  # fmt: skip


@pytest.fixture(scope="module")
def teacher():
    net = small_teacher(BLOCKS)
    nn.init.zeros_(net.spynet.levels[0][-1].weight)
    return net.requires_grad_(False)


@pytest.fixture(scope="module")
def clips():
    torch.manual_seed(1)
    return torch.rand(3, 3, 3, 16, 16)


def test_channels_are_given_to_the_blocks_they_help_most():
    errors = {
        ("backward", 0): {0: 10.0, 16: 1.0, 32: 0.0},
        ("backward", 1): {0: 3.0, 16: 2.5, 32: 0.0},
        ("forward", 0): {0: 0.1, 16: 0.0, 32: 0.0},
    }
    assert distribute(errors, 16) == {("backward", 0): 16, ("backward", 1): 0, ("forward", 0): 0}
    assert distribute(errors, 48) == {("backward", 0): 16, ("backward", 1): 32, ("forward", 0): 0}
    assert sum(distribute(errors, 96).values()) <= 96


def test_a_student_as_wide_as_its_teacher_equals_it(teacher, clips):
    student = narrow(teacher, replace(FULL, flow="none"), clips)
    assert student.config == replace(FULL, flow="none")
    with torch.no_grad():
        apart = (student(clips[:, :1]) - teacher(clips[:, :1])).abs().max()
    assert apart < 2e-3  # one frame needs no flow; the rest is the damping


def test_least_squares_is_better_than_removing_channels(teacher, clips):
    config = replace(FULL, backward_widths=(8, 4, 4), forward_widths=(4, 0, 4))
    student = narrow(teacher, config, clips)
    cut = narrow(teacher, config, clips)
    for direction in ("backward", "forward"):  # the same channels with unchanged weights
        theirs = [
            b for b, w in zip(
                getattr(teacher, f"{direction}_trunk").main[2],
                getattr(config, f"{direction}_widths"), strict=True,
            ) if w
        ]  # fmt: skip
        for block, its in zip(getattr(cut, f"{direction}_tower").main[2], theirs, strict=True):
            kept = [
                int((its.conv1.weight - w).flatten(1).norm(dim=1).argmin())
                for w in block.conv1.weight
            ]
            block.conv2.weight.data = its.conv2.weight[:, kept]
            block.conv2.bias.data = its.conv2.bias
    with torch.no_grad():
        target = teacher(clips[:, :1])
        fitted, plain = (F.mse_loss(m(clips[:, :1]), target) for m in (student, cut))
    assert fitted < 0.7 * plain


def test_a_direct_tail_is_fitted_and_the_head_changes_nothing(teacher, clips):
    config = replace(FULL, tail="direct", head_blocks=1)
    student = narrow(teacher, config, clips)
    assert student.tail.conv.weight.abs().sum() > 0
    x = torch.rand(1, 8, 16, 16)
    torch.testing.assert_close(student.head(x), x)


def test_widths_add_up_to_the_budget(teacher, clips):
    widths = choose_widths(teacher, FULL, clips, budget=24, step=4)
    assert sum(widths["backward"]) + sum(widths["forward"]) == 24
    assert all(len(w) == BLOCKS and set(w) <= {0, 4, 8} for w in widths.values())


def test_a_width_for_each_block_is_required(teacher, clips):
    with pytest.raises(VsrkitError, match="3 blocks per direction, the student 2 backward widths"):
        narrow(teacher, replace(FULL, backward_widths=(8, 8)), clips)
