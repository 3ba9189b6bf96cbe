"""Distillation: the loss of a student, and training that brings it closer to its teacher."""

from dataclasses import replace

import pytest
import torch
from tests.train.conftest import small_teacher

from vsrkit.errors import VsrkitError
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.models.zoo import load_model, save_model
from vsrkit.train import run_setup
from vsrkit.train.distill import teacher_outputs
from vsrkit.train.distill.distillation import Distillation, relative_error
from vsrkit.train.distill.narrow import narrow
from vsrkit.train.distill.teacher_outputs import load_teacher
from vsrkit.train.loop import train

TINY = SmallConfig(
    channels=8, backward_widths=(8, 0, 4), forward_widths=(4, 4, 0), attention_channels=8,
    flow="none",
)  # fmt: skip


@pytest.fixture(scope="module")
def teacher():
    return small_teacher(3).requires_grad_(False)


@pytest.fixture
def pair():
    torch.manual_seed(1)
    return torch.rand(2, 4, 3, 16, 16), torch.rand(2, 4, 3, 64, 64)


def test_a_student_with_the_weights_of_its_teacher_has_no_loss(teacher, pair):
    config = SmallConfig(
        channels=8, backward_widths=(8,) * 3, forward_widths=(8,) * 3, attention=False,
        flow="spynet", tail="two-stage", head_blocks=0,
    )  # fmt: skip
    student = VSRTSmall(config).eval()
    student.flow.load_state_dict(teacher.spynet.state_dict())
    student.backward_tower.load_state_dict(teacher.backward_trunk.state_dict())
    student.forward_tower.load_state_dict(teacher.forward_trunk.state_dict())
    student.fusion.load_state_dict(teacher.fusion.state_dict())
    student.tail.load_state_dict(teacher.tail.state_dict())
    terms = Distillation(student, teacher, weight=1.0)(*pair)
    assert terms.keys() == {"features", "frames"}
    assert sum(terms.values()) < 1e-10


def test_the_teachers_frames_do_not_depend_on_the_student(teacher, pair):
    loss_of = Distillation(narrow(teacher, TINY, pair[0]), teacher, weight=1.0)
    outputs = loss_of.teacher_outputs(pair[0])
    torch.testing.assert_close(outputs["sr"], teacher(pair[0]))
    assert outputs["backward"].shape == outputs["forward"].shape == (2, 4, 8, 16, 16)
    last = torch.cat([pair[0][:, 3], torch.zeros(2, 8, 16, 16)], 1)
    torch.testing.assert_close(outputs["backward"][:, 3], teacher.backward_trunk(last))


def test_training_brings_the_student_closer(teacher, pair):
    torch.manual_seed(2)
    student = narrow(teacher, TINY, pair[0]).train()
    loss_of = Distillation(student, teacher, weight=1.0)
    optimizer = torch.optim.Adam([p for p in student.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = sum(loss_of(*pair).values())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert all(p.grad is None for p in teacher.parameters())


def test_every_part_but_the_flow_has_gradients(teacher, pair):
    config = replace(TINY, flow="light", flow_channels=8)
    student = narrow(teacher, config, pair[0])
    for block in student.head:
        torch.nn.init.normal_(block.conv2.weight, std=0.1)  # zero weights would pass no gradient
    for parameter in student.attention.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    sum(Distillation(student, teacher, weight=0.5)(*pair).values()).backward()
    for name, parameter in student.named_parameters():
        has = parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
        assert has != name.startswith("flow."), name


def test_the_error_is_relative_to_the_target():
    target = 2 * torch.ones(1, 2, 4, 4)
    assert relative_error(target, target) == 0
    assert relative_error(0 * target, target) == 1
    assert relative_error(target, 2 * target) == 0.25


def test_other_models_are_refused_as_student_or_teacher(teacher, pair, tmp_path):
    with pytest.raises(VsrkitError, match="only vsrt-s and vsrt-m"):
        Distillation(RRN(RRNConfig(channels=4, blocks=1)), teacher, weight=1.0)
    with pytest.raises(VsrkitError, match="only vsrt-s and vsrt-m"):
        narrow(teacher, RRNConfig(), pair[0])
    hop = VSRTSmall(SmallConfig(channels=8, tower_blocks=1, propagation="hop"))
    with pytest.raises(VsrkitError, match="only vsrt-s and vsrt-m"):
        Distillation(hop, teacher, weight=1.0)
    other = tmp_path / "other.safetensors"
    save_model(other, hop)
    with pytest.raises(VsrkitError, match="must be a BasicVSR"):
        load_teacher(str(other))


def test_the_outputs_for_each_distinct_clip_are_kept(config, tmp_path, teacher, pair):
    file, initial = tmp_path / "teacher.safetensors", tmp_path / "initial.safetensors"
    save_model(file, teacher)
    save_model(initial, narrow(teacher, TINY, pair[0]))
    c = config(model=str(initial), teacher=str(file), steps=4, batch_size=2, distinct_clips=3)
    assert train(c).step == 4
    assert load_model(f"{c.run_dir}/last.safetensors").config == TINY
    assert len(list((tmp_path / c.run_dir / "teacher_outputs").iterdir())) == 3


def test_the_teacher_is_loaded_once(config, tmp_path, teacher, pair, monkeypatch):
    """Even if the student is narrowed from it before the training."""
    file, loaded = tmp_path / "teacher.safetensors", []
    save_model(file, teacher)
    load = teacher_outputs.load_model
    monkeypatch.setattr(
        teacher_outputs, "load_model", lambda name: loaded.append(name) or load(name)
    )
    monkeypatch.setattr(run_setup, "build_model", lambda name: VSRTSmall(TINY))
    c = config(model="vsrt-s", teacher=str(file), steps=1, crop=24)
    assert train(c).step == 1
    assert loaded == [str(file)]


def test_a_teacher_without_weights_names_the_command_that_downloads_them(monkeypatch, tmp_path):
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path))
    with pytest.raises(VsrkitError, match="vsrkit weights get basicvsr-reds4"):
        load_teacher("basicvsr-reds4")
