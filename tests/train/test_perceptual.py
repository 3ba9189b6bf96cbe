"""The perceptual term, with random weights of VGG16."""

import pytest
import torch
from tests.train.conftest import random_vgg_lpips

from vsrkit.train import perceptual
from vsrkit.train.losses import Output
from vsrkit.train.perceptual import Perceptual, convolved, draw_window
from vsrkit.train.settings import NAMED_LAYERS, VGG16_LAYERS, Losses


@pytest.fixture(autouse=True)
def lpips(monkeypatch):
    metric = random_vgg_lpips()
    monkeypatch.setattr(perceptual, "load_lpips", lambda network: metric)
    return metric


def output(sr, hr):
    return Output(sr, hr, None, None)


def test_lpips_layers_give_lpips_of_the_window(lpips):
    torch.manual_seed(3)
    sr, hr = torch.rand(2, 2, 1, 3, 48, 48)  # one frame: none to choose
    term = Perceptual(Losses(perceptual=2.0, window=48))
    found = term(output(sr, hr))["perceptual"]
    torch.testing.assert_close(found, 2 * lpips(sr[:, 0], hr[:, 0]).mean(), rtol=1e-4, atol=0)


def test_layers_are_compared_before_their_activation(lpips):
    sr, hr = torch.rand(2, 1, 3, 32, 32)
    network = lpips.network
    found = dict(convolved(network, sr, VGG16_LAYERS))
    assert list(found) == list(VGG16_LAYERS)
    after = list(network(sr))
    for name, features in zip(NAMED_LAYERS["real-esrgan"], after, strict=True):
        torch.testing.assert_close(found[name].relu(), features)
    other = dict(convolved(network, hr, VGG16_LAYERS))
    expected = sum(
        weight * (found[name] - other[name]).abs().mean()
        for name, weight in {"conv2_1": 0.5, "conv3_3": 2.0}.items()
    )
    distance = perceptual.LayerDistance({"conv2_1": 0.5, "conv3_3": 2.0})
    shift, scale = perceptual.IMAGENET_MEAN, perceptual.IMAGENET_STD
    raw = [x * torch.tensor(scale).view(3, 1, 1) + torch.tensor(shift).view(3, 1, 1)
           for x in (sr, hr)]  # fmt: skip
    torch.testing.assert_close(distance(network, *raw), expected, rtol=1e-4, atol=0)


def test_convolutions_after_the_last_wanted_one_do_not_run(lpips, monkeypatch):
    ran = []
    for number, conv in enumerate(lpips.network.convs):
        conv.register_forward_hook(lambda *_, number=number: ran.append(number))
    dict(convolved(lpips.network, torch.rand(1, 3, 32, 32), ("conv2_2",)))
    assert ran == [0, 1, 2, 3]


def test_windows_move_over_all_positions_of_the_poolings():
    frames = torch.zeros(1, 3, 64, 80)
    torch.manual_seed(0)
    windows = [draw_window(frames, 0) for _ in range(400)]
    rows, columns = ({w[axis].start for w in windows} for axis in (0, 1))
    assert rows == columns == set(range(17))
    assert {w[0].stop - w[0].start for w in windows} == {48}
    assert {w[1].stop - w[1].start for w in windows} == {64}
    assert draw_window(frames[..., :40, :40], 0) == (slice(0, 40), slice(0, 40))  # no room
    assert draw_window(frames, 128) == (slice(0, 64), slice(0, 80))


def test_the_networks_weights_are_not_trained():
    term = Perceptual(Losses(perceptual=1.0))
    sr = torch.rand(1, 2, 3, 64, 64, requires_grad=True)
    term(output(sr, torch.rand(1, 2, 3, 64, 64)))["perceptual"].backward()
    assert sr.grad.abs().sum() > 0
    assert not any(p.requires_grad for p in term.parameters())
