"""Training runs: results, exact resuming, stopping, and errors of one line."""

import json
import logging
import math
import multiprocessing
import os
import signal
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.train.conftest import moving_picture, random_vgg_lpips, write_cache

from vsrkit.data.degrade import Fixed
from vsrkit.errors import DataError, StoppedError, VsrkitError
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.hardware.device import Precision
from vsrkit.models.bicubic import Bicubic, BicubicConfig
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.zoo import load_model
from vsrkit.train import loop, losses, perceptual, run_files, validation
from vsrkit.train.adversarial import Discriminator, load_discriminator
from vsrkit.train.config import Source
from vsrkit.train.loop import DivergedError, train
from vsrkit.train.losses import charbonnier
from vsrkit.train.run_files import CheckpointError, RunLog
from vsrkit.train.run_setup import set_training_layout
from vsrkit.train.settings import ConfigError, Losses
from vsrkit.train.training_data import validation_clips
from vsrkit.train.validation import score


def read_log(config):
    lines = (Path(config.run_dir) / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def state(config):
    return load_file(Path(config.run_dir) / "state.safetensors")


def assert_same_state(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_a_run_writes_models_that_can_be_loaded(config, caplog):
    c = config(steps=8, validate_every=4)
    with caplog.at_level(logging.INFO, "vsrkit"):
        progress = train(c)
    assert progress.step == 8
    scores = {row["step"]: row["psnr_y"] for row in read_log(c) if "psnr_y" in row}
    assert progress.best == max(scores.values())
    assert "8 steps done, best" in caplog.messages[-1]
    for name in ("last", "best"):
        model = load_model(Path(c.run_dir) / f"{name}.safetensors")
        assert model(torch.rand(1, 2, 3, 16, 16)).shape == (1, 2, 3, 64, 64)


EYES = Losses(
    perceptual=0.5, gan=0.1, steadiness=1.0, grid=0.01, spectrum=0.01, colour=1.0,
    perceptual_layers="esrgan", gan_frames=3, gan_from=2, discriminator_channels=8,
)  # fmt: skip


@pytest.mark.parametrize(
    ("optimizer", "terms"), [("adam", Losses()), ("muon", Losses()), ("muon", EYES)]
)
def test_resume_is_exact(config, tmp_path, monkeypatch, optimizer, terms):
    monkeypatch.setattr(perceptual, "load_lpips", lambda network: random_vgg_lpips())
    straight = config(run_dir=str(tmp_path / "a"), optimizer=optimizer, losses=terms)
    train(straight)
    broken = replace(straight, run_dir=str(tmp_path / "b"))
    compute, calls = loop.compute_gradients, []

    def killed(run, parts):
        calls.append(run.progress.step)
        if len(calls) == 4:  # after a save at step 2 and one step that was not saved
            raise KeyboardInterrupt
        return compute(run, parts)

    monkeypatch.setattr(loop, "compute_gradients", killed)
    with pytest.raises(KeyboardInterrupt):
        train(broken)
    monkeypatch.setattr(loop, "compute_gradients", compute)
    train(broken, resume=True)
    assert_same_state(state(straight), state(broken))


def test_a_run_with_all_terms_logs_each_and_keeps_its_discriminator(config, monkeypatch):
    monkeypatch.setattr(perceptual, "load_lpips", lambda network: random_vgg_lpips())
    c = config(losses=EYES, steps=4)
    train(c)
    first, *_, last = [row for row in read_log(c) if "loss" in row]
    names = {
        "charbonnier", "steadiness", "colour", "grid", "spectrum", "perceptual", "discriminator"
    }  # fmt: skip
    assert {key for key in first if key.startswith("loss_")} == {f"loss_{n}" for n in names}
    assert last["loss_gan"] > 0  # from step 2 on
    kept = state(c)
    averages = {n for n in kept if n.startswith("discriminator_ema.")}
    assert averages
    assert not any("network" in name for name in kept)  # VGG16 is not part of the state
    saved = Discriminator(9, 8)
    load_discriminator(saved, Path(c.run_dir) / "discriminator.safetensors")
    for name, value in saved.state_dict().items():
        assert torch.equal(value, kept[f"discriminator_ema.{name}"])


def test_the_best_weights_can_be_those_with_the_lowest_lpips(config, monkeypatch, caplog):
    values = iter([0.5, 0.3, 0.4])
    monkeypatch.setattr(validation, "mean_lpips", lambda sr, hr: next(values))
    c = config(validation_metric="lpips", validate_every=2)
    with caplog.at_level(logging.INFO, "vsrkit"):
        progress = train(c)
    assert (progress.best, progress.best_step) == (-0.3, 4)
    assert "best LPIPS 0.3000 at step 4" in caplog.messages[-1]
    assert [row["lpips"] for row in read_log(c) if "lpips" in row] == [0.5, 0.3, 0.4]


def test_an_error_about_nan_names_the_term(config, monkeypatch):
    plain = losses.temporal_change
    monkeypatch.setattr(losses, "temporal_change", lambda *x: plain(*x) * float("nan"))
    with pytest.raises(DivergedError, match="the loss term steadiness became nan in step 1"):
        train(config(losses=Losses(steadiness=1.0)))


def test_a_signal_saves_the_step_and_stops(config, tmp_path, monkeypatch):
    straight = config(run_dir=str(tmp_path / "a"))
    train(straight)
    stopped = replace(straight, run_dir=str(tmp_path / "b"), save_every=100)
    compute = loop.compute_gradients

    def with_signal(run, parts):
        if run.progress.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return compute(run, parts)

    monkeypatch.setattr(loop, "compute_gradients", with_signal)
    with pytest.raises(StoppedError, match=r"SIGTERM after step 3; continue with --resume"):
        train(stopped)
    monkeypatch.setattr(loop, "compute_gradients", compute)
    train(stopped, resume=True)
    assert_same_state(state(straight), state(stopped))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # Python 3.12 on
def test_a_signal_to_all_processes_does_not_end_the_workers(config, monkeypatch):
    compute = loop.compute_gradients

    def with_signal(run, parts):
        if run.progress.step == 1:
            [worker] = multiprocessing.active_children()
            os.kill(worker.pid, signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        return compute(run, parts)

    monkeypatch.setattr(loop, "compute_gradients", with_signal)
    with pytest.raises(StoppedError, match="after step 2"):
        train(config(workers=1, steps=20))


def test_accumulated_gradients_are_those_of_one_large_batch(config, tmp_path):
    found = []
    for name, size, times in (("a", 4, 1), ("b", 2, 2)):
        c = config(
            run_dir=str(tmp_path / name), batch_size=size, accumulate=times, steps=1,
            losses=Losses(gan=0.1, gan_frames=3, steadiness=1.0, discriminator_channels=8),
        )  # fmt: skip
        train(c)
        found.append(state(c))
    key = "model.forward_tower.main.0.weight"
    # Means in float32 over other groups of values.
    torch.testing.assert_close(found[0][key], found[1][key], rtol=0, atol=1e-5)


def test_recomputing_activations_changes_nothing(config, tmp_path):
    plain = config(run_dir=str(tmp_path / "a"), steps=2)
    train(plain)
    recomputed = replace(plain, run_dir=str(tmp_path / "b"), activation_checkpointing=True)
    train(recomputed)
    assert_same_state(state(plain), state(recomputed))


def test_bfloat16_keeps_float32_weights(config):
    c = config(steps=1, precision="bfloat16")
    train(c)
    assert {t.dtype for name, t in state(c).items() if name.startswith("model")} == {torch.float32}


def test_a_run_is_not_overwritten(config):
    c = config(steps=2)
    train(c)
    with pytest.raises(ConfigError, match="already contains a run"):
        train(c)


def test_resuming_without_a_state_is_refused(config):
    with pytest.raises(CheckpointError, match="there is no run to resume"):
        train(config(), resume=True)


def test_a_resumed_run_logs_each_step_once(config):
    c = config(steps=4, save_every=2)
    train(c)
    log = Path(c.run_dir) / "log.jsonl"
    with log.open("a") as file:  # entries after the last state, the last one incomplete
        file.write('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    train(replace(c, steps=6), resume=True)
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    assert [each["step"] for each in steps if "loss" in each] == [1, 2, 3, 4, 5, 6]


def test_a_stopped_run_closes_its_log(config, monkeypatch):
    closed = []
    monkeypatch.setattr(RunLog, "close", lambda self: closed.append(0))
    monkeypatch.setattr(
        loop, "compute_gradients", lambda *_: os.kill(os.getpid(), 2) or [{"a": torch.ones(())}]
    )
    with pytest.raises(StoppedError):
        train(config())
    assert closed


def test_resuming_with_another_model_or_optimizer_is_refused_in_one_line(config, tmp_path):
    c = config(steps=2)
    train(c)
    with pytest.raises(CheckpointError, match="another optimizer; resume with that one"):
        train(replace(c, optimizer="adam"), resume=True)
    with pytest.raises(CheckpointError, match="belongs to another model") as error:
        train(replace(c, model="vespcn"), resume=True)
    assert "\n" not in str(error.value)
    with pytest.raises(VsrkitError, match="no device called 'banana'"):
        train(replace(c, device="banana"), resume=True)


def test_a_loss_of_nan_keeps_the_last_finite_state(config, monkeypatch):
    c = config(log_every=3, save_every=2)
    charbonnier = losses.charbonnier
    steps = []

    def poisoned(sr, hr, **options):
        steps.append(0)
        return charbonnier(sr, hr, **options) * (float("nan") if len(steps) > 2 else 1)

    monkeypatch.setattr(losses, "charbonnier", poisoned)
    with pytest.raises(DivergedError, match=r"charbonnier became nan in step 3, .*the last finite"):
        train(c)
    assert all(t.isfinite().all() for t in state(c).values())


def test_a_gradient_of_nan_keeps_the_last_finite_state(config, monkeypatch):
    c = config(save_every=1)
    clip, steps = loop.clip_grad_norm_, []

    def poisoned(parameters, norm):
        steps.append(0)
        return clip(parameters, norm if len(steps) < 3 else float("nan"))

    monkeypatch.setattr(loop, "clip_grad_norm_", poisoned)
    with pytest.raises(DivergedError, match="weights became NaN or infinite before step 3"):
        train(c)
    assert all(t.isfinite().all() for t in state(c).values())


def test_a_run_that_diverges_before_the_first_save_must_start_again(config, monkeypatch):
    # Weights of NaN give flows of NaN.
    monkeypatch.setattr(loop, "learning_rate", lambda config, step: float("nan"))
    with pytest.raises(DivergedError, match="no earlier state was saved: start again"):
        train(config(log_every=3, save_every=6))


def test_a_full_disk_keeps_the_last_state(config, monkeypatch):
    c = config()
    save_file, saves = run_files.save_file, []

    def full(tensors, path, metadata):
        saves.append(path)
        if len(saves) > 1:
            Path(path).write_bytes(b"half")
            raise OSError(28, "No space left on device")
        save_file(tensors, path, metadata)

    monkeypatch.setattr(run_files, "save_file", full)
    with pytest.raises(CheckpointError, match=r"No space left.*continue with --resume"):
        train(c)
    with pytest.raises(CheckpointError, match=r"no earlier state was saved"):
        train(replace(c, run_dir=c.run_dir + "2"))
    assert not list(Path(c.run_dir).glob("*.part"))
    monkeypatch.undo()
    assert train(c, resume=True).step == 6


def test_the_error_names_a_damaged_state(config):
    c = config(steps=2)
    train(c)
    path = Path(c.run_dir) / "state.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="is damaged"):
        train(c, resume=True)


def test_errors_name_wrong_paths(config, tmp_path):
    with pytest.raises(DataError, match="nowhere does not exist"):
        train(config(data=(Source(path="nowhere"),)))
    with pytest.raises(ConfigError, match="no data"):
        train(config(data=()))
    with pytest.raises(VsrkitError, match=r"gone\.safetensors is not a file"):
        train(config(warm_start=("gone.safetensors",)))
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="choose another run_dir"):
        train(config(run_dir=str(tmp_path / "file" / "run")))


def test_clips_too_small_for_the_crop_are_refused_at_once(config):
    with pytest.raises(DataError, match="no clip has"):
        train(config(frames=20))
    with pytest.raises(DataError, match="no clip has"):
        train(config(crop=64))


def test_a_warm_start_logs_what_it_copied(config, tiny_model, caplog):
    with caplog.at_level(logging.INFO, "vsrkit"):
        train(config(steps=1, warm_start=(str(tiny_model),)))
    assert any("tensors copied, 0 of another shape, 0 not used" in m for m in caplog.messages)


def test_flow_networks_keep_pytorchs_layout_in_float32():
    model = VSRT(VSRTConfig(frames=3, depth=1, channels=8, tower_blocks=1, reconstruct_blocks=1))
    set_training_layout(model, Precision("float32", channels_last=True))
    assert all(p.is_contiguous() for p in model.flow.parameters())
    weight = model.layers[0].attention.out.weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    set_training_layout(model, Precision("bfloat16", channels_last=True))
    assert not all(p.is_contiguous() for p in model.flow.parameters())


def test_gradients_are_those_of_plain_training():
    """Flows that differ in the last bit can point into another pixel, which changes gradients."""
    torch.manual_seed(0)
    plain = VSRT(
        VSRTConfig(frames=3, depth=1, channels=16, tower_blocks=2, reconstruct_blocks=2, size=32)
    )
    changed = deepcopy(plain)
    set_training_layout(changed, Precision("float32", channels_last=True))
    lr, hr = torch.rand(1, 3, 3, 32, 32), torch.rand(1, 3, 3, 128, 128)
    apart, size = 0.0, 0.0
    for model in (plain, changed):
        charbonnier(model(lr), hr).backward()
    for a, b in zip(plain.parameters(), changed.parameters(), strict=True):
        apart += float((a.grad - b.grad).double().square().sum())
        size += float(a.grad.double().square().sum())
    assert (apart / size) ** 0.5 < 1e-4  # measured: 6e-5, and 6e-4 if the flow network changes, too


def test_the_score_of_bicubic_is_its_psnr(tmp_path):
    pixels = moving_picture(5, 64)
    clips = validation_clips([write_cache(tmp_path, pixels)], Fixed(), frames=5)
    model = Bicubic(BicubicConfig())
    found, frame = score(model, clips, Precision("float32", False), "cpu")
    sr = model(clips[0].lr[None])[0].clamp(0, 1)
    # Two frames at either end are left out.
    assert found == pytest.approx(mean_psnr_y(sr[2:3], clips[0].hr[2:3]))
    assert torch.equal(frame, sr[2])
    assert math.isfinite(found)
