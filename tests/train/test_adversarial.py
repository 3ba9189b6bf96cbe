"""The adversarial term and its discriminator."""

import pytest
import torch
import torch.nn.functional as F

from vsrkit.models.weights import write_checkpoint
from vsrkit.train.adversarial import Adversarial, Discriminator
from vsrkit.train.losses import Output
from vsrkit.train.settings import ConfigError, Losses


@pytest.fixture
def clips():
    torch.manual_seed(0)
    flow = torch.zeros(2, 2, 2, 8, 8)
    sr = torch.rand(2, 3, 3, 32, 32, requires_grad=True)
    return Output(sr, torch.rand(2, 3, 3, 32, 32), flow, flow)


def term(**options):
    torch.manual_seed(1)
    return Adversarial(Losses(gan=0.5, discriminator_channels=8, **options))


@pytest.mark.parametrize("kind", ["relativistic", "hinge"])
def test_each_term_trains_one_network(clips, kind):
    adversarial = term(gan_kind=kind)
    terms = adversarial(clips)
    terms["gan"].backward(retain_graph=True)
    assert clips.sr.grad.abs().sum() > 0
    assert all(p.grad is None for p in adversarial.discriminator.parameters())
    clips.sr.grad = None
    terms["discriminator"].backward()
    assert clips.sr.grad is None
    gradients = {n: p.grad.abs().sum() for n, p in adversarial.discriminator.named_parameters()}
    del gradients["last.2.bias"]  # the hinge of both halves cancels in the beginning
    assert all(size > 0 for size in gradients.values())


def test_losses_are_those_of_the_papers():
    fake, real = torch.tensor([0.5, -2.0]), torch.tensor([3.0, 0.25])
    hinge, paired = term(gan_kind="hinge"), term(gan_kind="relativistic")
    assert float(hinge._discriminator_loss(fake, real)) == pytest.approx((1.5 + 0.75) / 4)
    assert float(hinge._model_loss(fake, real)) == pytest.approx(0.75)
    expected = F.softplus(torch.tensor([-2.5, -2.25])).mean()
    torch.testing.assert_close(paired._discriminator_loss(fake, real), expected)
    expected = F.softplus(torch.tensor([2.5, 2.25])).mean()
    torch.testing.assert_close(paired._model_loss(fake, real), expected)


def test_judgements_of_a_batch_are_the_mean_of_those_of_its_clips(clips):
    adversarial = term()
    adversarial.start_step(0)
    parts = []
    for part in (slice(0, 1), slice(1, 2)):
        torch.manual_seed(7)
        found = [x[part] for x in (clips.sr, clips.target, clips.to_prev, clips.to_next)]
        parts.append(adversarial(Output(*found)))
    torch.manual_seed(7)
    whole = adversarial(clips)
    for name, value in whole.items():
        torch.testing.assert_close((parts[0][name] + parts[1][name]) / 2, value)


def test_before_its_first_step_only_the_discriminator_learns(clips):
    adversarial = term(gan_from=3)
    for step, names in ((2, {"discriminator"}), (3, {"discriminator", "gan"})):
        adversarial.start_step(step)
        assert set(adversarial(clips)) == names


def test_three_frames_are_aligned_along_the_flow():
    """A clip that moves by one LR pixel a frame looks still to the discriminator."""
    torch.manual_seed(0)
    picture = torch.rand(3, 32, 64)
    clip = torch.stack([picture[..., 4 * t : 4 * t + 32] for t in range(3)])[None]
    to_prev, to_next = torch.zeros(2, 1, 2, 2, 8, 8)
    to_prev[:, :, 0], to_next[:, :, 0] = 1.0, -1.0
    adversarial = term(gan_frames=3, window=32)
    sr, hr = adversarial._seen(Output(clip, clip, to_prev, to_next))
    assert torch.equal(sr, hr)
    before, now, after = sr.chunk(3, 1)
    inside = slice(4, 28)  # the other columns are outside of one of the neighbours
    # Positions are rounded to float32.
    torch.testing.assert_close(before[..., inside], now[..., inside], atol=1e-4, rtol=0)
    torch.testing.assert_close(after[..., inside], now[..., inside], atol=1e-4, rtol=0)


def test_shimmer_can_be_told_from_a_still_clip_in_a_few_steps():
    torch.manual_seed(0)
    still = torch.rand(1, 1, 3, 32, 32).repeat(4, 3, 1, 1, 1)
    flicker = still + 0.2 * torch.tensor([1.0, -1, 1]).view(3, 1, 1, 1)
    flow = torch.zeros(4, 2, 2, 8, 8)
    adversarial = term(gan_frames=3, window=32)
    optimizer = torch.optim.Adam(adversarial.discriminator.parameters(), 1e-3)
    losses = []
    for _ in range(30):
        terms = adversarial(Output(flicker, still, flow, flow))
        optimizer.zero_grad()
        terms["discriminator"].backward()
        optimizer.step()
        losses.append(float(terms["discriminator"].detach()))
    assert losses[-1] < 0.7 * losses[0]


def test_no_layer_stretches_its_input():
    adversarial = term()
    for _ in range(30):
        adversarial.start_step(0)
    convs = [m for m in adversarial.discriminator.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convs) == 9
    for conv in convs:
        # After convergence; one iteration runs at each step of a training.
        assert float(torch.linalg.matrix_norm(conv.weight.detach().flatten(1), 2)) == pytest.approx(
            1, abs=0.05
        )


def test_it_judges_every_pixel_of_any_size():
    assert Discriminator(3, 8)(torch.rand(1, 3, 37, 50)).shape == (1, 1, 37, 50)


def test_a_discriminator_can_start_from_a_file(tmp_path):
    path = tmp_path / "discriminator.safetensors"
    trained = Discriminator(3, 8)
    write_checkpoint(path, trained, {})
    loaded = term(discriminator=str(path)).discriminator
    for name, value in trained.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    with pytest.raises(ConfigError, match="is no discriminator with these"):
        term(discriminator=str(path), gan_frames=3)
