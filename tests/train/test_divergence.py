"""Losses that are not finite: the error names the step, the term, the clips and the frames."""

import re
from pathlib import Path

import pytest
import torch

from vsrkit.train import losses
from vsrkit.train.loop import GRADIENT, DivergedError, RecentLosses, train
from vsrkit.train.processes import ALONE


def clips(step, part):
    return f"clips of step {step}, batch {part}"


def test_means_are_over_batches_and_steps():
    recent = RecentLosses()
    for step, norm in ((1, 2.0), (2, 4.0)):
        parts = [{"a": torch.tensor(float(step)), "b": torch.tensor(0.5)} for _ in range(2)]
        recent.add(step, parts, torch.tensor(norm))
    assert recent.check(ALONE, clips, Path("r")) == {"a": 1.5, "b": 0.5, GRADIENT: 3.0}
    assert recent.check(ALONE, clips, Path("r")) == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [("nan", "the loss term b became nan in step 7"), ("inf", "the loss term b became inf")],
)
def test_the_first_term_that_is_not_finite_is_named(value, message):
    recent = RecentLosses()
    good, bad = torch.tensor(1.0), torch.tensor(float(value))
    recent.add(6, [{"a": good, "b": good}], good)
    recent.add(7, [{"a": good, "b": good}, {"a": good, "b": bad}], bad)
    recent.add(8, [{"a": bad, "b": bad}] * 2, bad)
    with pytest.raises(DivergedError, match=f"{message}.*clips of step 6, batch 1"):
        recent.check(ALONE, clips, Path("r"))


def test_a_gradient_is_named_before_the_losses_that_follow_from_it():
    good, bad = torch.tensor(1.0), torch.tensor(float("nan"))
    recent = RecentLosses()
    recent.add(1, [{"a": good}], bad)
    recent.add(2, [{"a": bad}], bad)
    expected = "the gradient norm became nan in step 1, with the clips clips of step 0, batch -1"
    with pytest.raises(DivergedError, match=expected):
        recent.check(ALONE, clips, Path("r"))


def test_a_scaled_loss_may_skip_steps():
    recent = RecentLosses(check_gradients=False)
    recent.add(1, [{"a": torch.tensor(1.0)}], torch.tensor(float("inf")))
    recent.add(2, [{"a": torch.tensor(1.0)}], torch.tensor(3.0))
    assert recent.check(ALONE, clips, Path("r")) == {"a": 1.0, GRADIENT: 3.0}


def test_the_error_of_a_run_names_clips_and_frames(config, monkeypatch):
    """The batch that is named is the one whose loss was not finite."""
    c, plain, seen = config(batch_size=1, accumulate=2, save_every=100), losses.charbonnier, []

    def poisoned(sr, hr, **options):
        seen.append(0)
        return plain(sr, hr, **options) * (float("nan") if len(seen) == 4 else 1)

    monkeypatch.setattr(losses, "charbonnier", poisoned)
    with pytest.raises(DivergedError) as error:
        train(c)
    message = str(error.value)
    assert "the loss term charbonnier became nan in step 2" in message
    [(clip, first, last)] = re.findall(r"(hill\d) \(frames (\d+) to (\d+)\)", message)
    assert clip in ("hill1", "hill2")
    assert int(last) - int(first) == 2
    assert 0 <= int(first) <= int(last) < 8
    assert "\n" not in message
