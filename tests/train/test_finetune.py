"""Fine-tuning writes the better of the old and the new weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.train.conftest import moving_picture, random_vgg_lpips, write_video
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.errors import DataError, StoppedError, WeightsError
from vsrkit.evaluate.perceptual import load_lpips
from vsrkit.models.zoo import build_model, load_model
from vsrkit.train import finetune as module
from vsrkit.train import perceptual, validation
from vsrkit.train.finetune import Finetuned, finetune


@pytest.fixture
def footage(tmp_path) -> Path:
    path = tmp_path / "mine.mkv"
    shots = [moving_picture(6, 96, seed) // 2 + 120 * (seed % 2) for seed in range(3)]
    write_video(path, np.concatenate(shots).astype(np.uint8))
    return path


SMALL = {"frames": 3, "crop": 16, "precision": "float32", "workers": 0}


def test_writes_a_model_and_reports_the_gain(footage, tiny_model, tmp_path):
    output = tmp_path / "out" / "mine.safetensors"
    result = finetune([footage], output, model=str(tiny_model), steps=12, **SMALL)
    assert result.better
    assert "dB before" in str(result)
    old, new = load_model(tiny_model), load_model(output)
    assert not torch.equal(old.tail.conv.weight, new.tail.conv.weight)
    assert [p.name for p in output.parent.iterdir()] == ["mine.safetensors"]


def test_writes_the_old_weights_if_the_new_are_worse(footage, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "score", lambda *_, **__: (99.0, None))
    output = tmp_path / "mine.safetensors"
    result = finetune([footage], output, model=str(tiny_model), steps=2, **SMALL)
    assert not result.better
    assert "old weights written" in str(result)
    old, new = load_model(tiny_model), load_model(output)
    for (name, a), b in zip(old.named_parameters(), new.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize(("frames", "side"), [(4, 96), (9, 72), (2, 200)])
def test_short_and_small_footage_is_accepted(tiny_model, tmp_path, frames, side):
    write_video(tmp_path / "mine.mkv", moving_picture(frames, side))
    output = tmp_path / "out.safetensors"
    options = {"model": str(tiny_model), "precision": "float32", "workers": 0}
    finetune([tmp_path / "mine.mkv"], output, steps=1, **options)
    assert output.is_file()


def test_a_stopped_run_leaves_no_files_and_does_not_offer_to_resume(
    footage, tiny_model, tmp_path, monkeypatch
):
    def stopped(config, on_progress):
        raise StoppedError("stopped by SIGINT after step 2; continue with --resume")

    monkeypatch.setattr(module, "train", stopped)
    with pytest.raises(StoppedError, match="after step 2; nothing was written"):
        finetune([footage], tmp_path / "a.safetensors", model=str(tiny_model), **SMALL)
    assert not list(tmp_path.glob("*.safetensors"))


def test_invalid_arguments_are_named(tiny_model, tmp_path):
    with pytest.raises(DataError, match="no videos"):
        finetune([], tmp_path / "a.safetensors")
    with pytest.raises(WeightsError, match=r"must end in \.safetensors"):
        finetune([tmp_path / "a.mp4"], tmp_path / "a.pth")
    with pytest.raises(DataError, match=r"gone\.mp4 does not exist"):
        finetune([tmp_path / "gone.mp4"], tmp_path / "a.safetensors", model=str(tiny_model))
    with pytest.raises(WeightsError, match="bicubic has no trainable weights"):
        finetune([tmp_path / "a.mp4"], tmp_path / "a.safetensors", model="bicubic")
    assert not list(tmp_path.glob(".finetune*"))


def test_the_command_passes_its_options(footage, tmp_path, monkeypatch):
    passed = {}

    def fake(videos, output, **options):
        passed.update(options, videos=videos, output=output)
        return Finetuned(30.0, 31.0)

    monkeypatch.setattr(module, "finetune", fake)
    run = CliRunner().invoke(app, ["finetune", str(footage), "-o", "x.safetensors", "--steps", "9"])
    assert run.exit_code == 0, run.output
    assert "30.000 dB before, 31.000 dB after (+1.000 dB): new weights written" in run.output
    assert passed["videos"] == [footage]
    assert passed["steps"] == 9


def test_for_eyes_lpips_decides(footage, tiny_model, tmp_path, monkeypatch):
    """The loss has all terms; the score before and after is LPIPS, where lower is better."""
    monkeypatch.setattr(perceptual, "load_lpips", lambda network: random_vgg_lpips())
    monkeypatch.setattr(module, "load_lpips", lambda network: None)
    scored = []

    def mean_lpips(sr, hr):
        scored.append(len(sr))
        return 0.5 if len(scored) == 1 else 0.4  # before, then the only validation

    monkeypatch.setattr(validation, "mean_lpips", mean_lpips)
    output = tmp_path / "mine.safetensors"
    result = finetune([footage], output, model=str(tiny_model), goal="eyes", steps=2, **SMALL)
    assert (result.before, result.after, result.better) == (0.5, 0.4, True)
    assert "LPIPS 0.5000 before, LPIPS 0.4000 after (-0.1000): new weights" in str(result)
    assert not Finetuned(0.4, 0.5, "lpips").better


def test_for_eyes_models_without_flow_have_the_other_terms():
    model = build_model("vespcn")
    losses = module._settings("eyes", model)["losses"]
    assert (losses.steadiness, losses.gan_frames) == (0.0, 1)
    assert losses.gan > 0


def test_for_eyes_without_the_weights_of_lpips_fails_before_training(
    footage, tmp_path, monkeypatch
):
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path / "cache"))
    load_lpips.cache_clear()
    with pytest.raises(WeightsError, match="vsrkit weights get lpips"):
        finetune([footage], tmp_path / "a.safetensors", goal="eyes")
