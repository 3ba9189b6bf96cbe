"""Muon, the choice of an optimizer for each weight, learning rates and the average of weights."""

import json

import pytest
import torch
from tests import paths
from torch import nn

from vsrkit.models.layers.flow import LightFlow
from vsrkit.train.config import TrainConfig
from vsrkit.train.optimizers import (
    Ema,
    Muon,
    inner_matrices,
    learning_rate,
    make_optimizers,
    orthogonal,
)

GOLDEN = json.loads((paths.GOLDEN / "lr_schedule.json").read_text())
RUNS = {
    "REDS": {"periods": (300_000,) * 4, "restart_weights": (1.0, 0.5, 0.5, 0.5)},
    "Vimeo": {"periods": (200_000,) * 6, "restart_weights": (1.0, *(0.5,) * 5)},
}


def test_orthogonal_brings_all_singular_values_near_one():
    torch.manual_seed(0)
    for shape in ((3, 64, 576), (2, 96, 32)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_muon_equals_pytorchs_on_matrices():
    torch.manual_seed(0)
    start = torch.randn(32, 48)
    ours, theirs = (nn.Parameter(start.clone()) for _ in range(2))
    optimizers = (
        Muon([ours], lr=0.02),
        torch.optim.Muon(
            [theirs], lr=0.02, weight_decay=0.0, adjust_lr_fn="match_rms_adamw", momentum=0.95
        ),
    )
    for _ in range(3):
        gradient = torch.randn(32, 48)
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    moved = (ours - start).norm()
    # PyTorch iterates in bfloat16, which has three digits.
    assert (ours - theirs).norm() < 0.03 * moved


def test_muon_does_not_depend_on_the_memory_layout():
    torch.manual_seed(0)
    start, gradient = torch.randn(2, 16, 32, 3, 3)
    moved = []
    for layout in (torch.contiguous_format, torch.channels_last):
        weight = nn.Parameter(start.clone(memory_format=layout))
        weight.grad = gradient.contiguous(memory_format=layout)
        optimizer = Muon([weight], lr=0.1)
        optimizer.step()
        optimizer.step()
        assert weight.is_contiguous(memory_format=layout)
        moved.append(weight.detach().contiguous())
    assert torch.equal(*moved)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.flow = LightFlow(16, 1)
        self.first = nn.Conv2d(19, 16, 3)
        self.inner = nn.Conv2d(16, 32, 3)
        self.last = nn.Conv2d(32, 48, 3)


def test_each_weight_has_one_optimizer():
    net = Net()
    adam, muon = make_optimizers(net, name="muon", betas=(0.9, 0.99), flow_scale=0.25)
    assert muon.param_groups[0]["params"] == [net.inner.weight]
    taken = [p for o in (adam, muon) for g in o.param_groups for p in g["params"]]
    assert {id(p) for p in taken} == {id(p) for p in net.parameters()}
    assert len(taken) == len(list(net.parameters()))
    flow = next(g for g in adam.param_groups if g.get("flow"))
    assert len(flow["params"]) == len(list(net.flow.parameters()))
    assert flow["scale"] == 0.25


def test_layers_that_read_or_write_pixels_are_not_inner():
    net = Net()
    assert [w is net.inner.weight for w in inner_matrices(net)][-1]
    assert all(w is not net.last.weight for w in inner_matrices(net))
    assert all(w is not net.first.weight for w in inner_matrices(net))


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_a_step_lowers_a_loss(name):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 1), nn.Conv2d(16, 3, 1))
    x = torch.rand(2, 3, 8, 8)
    optimizers = make_optimizers(net, name=name, betas=(0.9, 0.99), flow_scale=1.0)
    losses = []
    for _ in range(10):
        loss = (net(x) - x).square().mean()
        losses.append(loss.item())
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 5e-3
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("name", GOLDEN)
def test_restarts_equal_the_release(name):
    config = TrainConfig(run_dir="r", steps=1_200_000, schedule="restarts", **RUNS[name])
    found = {i: learning_rate(config, int(i) - 1) for i in GOLDEN[name]}
    assert found == GOLDEN[name]


def test_warmup_rises_to_the_cosine():
    config = TrainConfig(run_dir="r", steps=1000, warmup_steps=10, learning_rate=1.0)
    rates = [learning_rate(config, step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.1)
    assert rates.index(max(rates)) == 9
    assert rates[-1] == pytest.approx(config.minimum_learning_rate, abs=1e-5)


def test_the_average_follows_the_weights_by_its_decay():
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    ema = Ema(model, 0.5)
    nn.init.ones_(model.weight)
    for _ in range(2):
        ema.update(model, step=1000)
    assert ema.model.weight.item() == pytest.approx(0.75)
    at_once = Ema(model, 0.0)
    nn.init.constant_(model.weight, 3.0)
    at_once.update(model, step=0)
    assert at_once.model.weight.item() == 3.0
