"""Learning from a teacher: groups of blocks, and features that come nearer to its own."""

from itertools import combinations, pairwise

import pytest
import torch

from vsrkit.errors import VsrkitError
from vsrkit.models import load_model, save_model
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.train.lesson import (
    WORTH,
    Lesson,
    divide,
    feature_distance,
    heads_of,
    learn,
    pupil_of,
    teach,
    teacher_named,
    through,
)
from vsrkit.train.loop import train
from vsrkit.train.losses import charbonnier

TINY = SmallConfig(channels=8, tower_blocks=3, attention_channels=8, flow="none")


@pytest.fixture(scope="module")
def teacher():
    torch.manual_seed(0)
    net = BasicVSR(BasicVSRConfig(channels=8)).eval()
    for block in (*net.backward_trunk.main[2], *net.forward_trunk.main[2]):
        for conv in (block.conv1, block.conv2):  # each is to change something
            torch.nn.init.normal_(conv.weight, std=0.04)
    return net.requires_grad_(False)


@pytest.fixture
def pair():
    torch.manual_seed(1)
    return torch.rand(2, 4, 3, 16, 16), torch.rand(2, 4, 3, 64, 64)


def loss_of(worth, groups):
    return sum((sum(worth[i] for i in g) - max(worth[i] for i in g)) ** 1.5 for g in groups)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
def test_the_division_loses_least_of_all(count):
    worth = (0.3, 0.1, 0.0, 0.4, 0.2, 0.1, 0.5)
    groups = divide(worth, count)
    assert [i for group in groups for i in group] == list(range(7))
    every = []
    for cuts in combinations(range(1, 7), count - 1):
        ends = (0, *cuts, 7)
        every.append([range(a, b) for a, b in pairwise(ends)])
    assert len(groups) == count
    assert loss_of(worth, groups) == pytest.approx(min(loss_of(worth, e) for e in every))
    assert all(
        worth[h] == max(worth[i] for i in g)
        for h, g in zip(heads_of(worth, groups), groups, strict=True)
    )


@pytest.mark.parametrize("count", [0, 31])
def test_an_impossible_division_is_refused(count):
    with pytest.raises(VsrkitError, match="cannot be divided"):
        divide(WORTH["forward"], count)


def test_a_pupil_with_everything_of_its_teacher_has_nothing_to_learn(teacher, pair):
    config = SmallConfig(
        channels=8, tower_blocks=30, attention=False, flow="spynet", tail="two-stage",
        head_blocks=0,
    )  # fmt: skip
    pupil = pupil_of(teacher, config).eval()
    lr, hr = pair
    true = charbonnier(teacher(lr), hr)
    for led in (0.0, 1.0):
        loss = Lesson(pupil, teacher, weight=1.0, led=led)(lr, hr)
        # Flows of all pairs at once and of one at a time round differently.
        torch.testing.assert_close(loss, true, atol=1e-6, rtol=0)


def test_led_the_pupil_goes_on_from_its_teachers_features(teacher, pair):
    frames = list(pair[0].unbind(1))
    tower = pupil_of(teacher, TINY).backward_tower
    flows = [torch.zeros(2, 2, 16, 16)] * 3 + [None]
    goals = teach(teacher.backward_trunk, frames, flows, range(3, -1, -1))
    led = torch.tensor([True, False]).view(2, 1, 1, 1)
    features = learn(tower, frames, flows, range(3, -1, -1), goals, led)
    after_teacher = through(tower, torch.cat([frames[1], goals[2][-1]], 1))[-1]
    after_itself = through(tower, torch.cat([frames[1], features[2][-1]], 1))[-1]
    torch.testing.assert_close(features[1][-1][0], after_teacher[0])
    torch.testing.assert_close(features[1][-1][1], after_itself[1])
    assert not torch.allclose(after_teacher[1], after_itself[1])


def test_on_its_own_the_pupil_learns_for_the_frames_to_come(teacher, pair):
    frames = list(pair[0].unbind(1))
    tower = pupil_of(teacher, TINY).forward_tower
    flows = [None] + [torch.zeros(2, 2, 16, 16)] * 3
    goals = teach(teacher.forward_trunk, frames, flows, range(4))
    for led, reaches in ((1.0, False), (0.0, True)):
        first = [frames[0].clone().requires_grad_(), *frames[1:]]
        shares = torch.full((2, 1, 1, 1), led) > 0.5
        learn(tower, first, flows, range(4), goals, shares)[3][-1].sum().backward()
        assert (first[0].grad is not None and bool(first[0].grad.any())) == reaches


def test_lessons_bring_the_features_nearer(teacher, pair):
    torch.manual_seed(2)
    pupil = pupil_of(teacher, TINY)
    lesson = Lesson(pupil, teacher, weight=100.0)  # the frames hardly count
    optimizer = torch.optim.Adam([p for p in pupil.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = lesson(*pair)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert all(p.grad is None for p in teacher.parameters())


def test_every_part_but_the_flow_learns(teacher, pair):
    pupil = pupil_of(teacher, SmallConfig(channels=8, tower_blocks=3, attention_channels=8))
    torch.nn.init.normal_(pupil.tail.conv.weight, std=0.1)  # zero lets nothing through
    for parameter in pupil.attention.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    Lesson(pupil, teacher, weight=0.5)(*pair).backward()
    for name, parameter in pupil.named_parameters():
        has = parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
        assert has != name.startswith("flow."), name


def test_distance_is_relative_to_the_goal():
    goals = [torch.ones(1, 2, 4, 4), 2 * torch.ones(1, 2, 4, 4)]
    assert feature_distance(goals, goals) == 0
    assert feature_distance([goals[0], 0 * goals[1]], goals) == 1
    assert feature_distance([0 * goals[0], goals[1]], goals) == pytest.approx(0.3 / 4)
    assert feature_distance(goals[1:], [0 * goals[1] + 4]) == 0.25


def test_others_can_be_neither_pupil_nor_teacher(teacher, tmp_path):
    with pytest.raises(VsrkitError, match="only our own presets"):
        Lesson(RRN(RRNConfig(channels=4, blocks=1)), teacher, weight=1.0)
    with pytest.raises(VsrkitError, match="only our own presets"):
        pupil_of(teacher, RRNConfig())
    hop = VSRTSmall(SmallConfig(channels=8, tower_blocks=1, propagation="hop"))
    with pytest.raises(VsrkitError, match="only our own presets"):
        Lesson(hop, teacher, weight=1.0)
    short = tmp_path / "short.safetensors"
    save_model(short, BasicVSR(BasicVSRConfig(channels=8, blocks=2)))
    with pytest.raises(VsrkitError, match="30 blocks"):
        teacher_named(str(short))


def test_a_run_with_a_teacher(config, tmp_path, teacher):
    file, start = tmp_path / "teacher.safetensors", tmp_path / "start.safetensors"
    save_model(file, teacher)
    save_model(start, pupil_of(teacher, TINY))
    c = config(model=str(start), teacher=str(file), teacher_leads=0.5, steps=4)
    assert train(c).step == 4
    assert load_model(f"{c.run_dir}/last.safetensors").config == TINY
