"""A run ends with a better model, resumes exactly, and stops well when something is wrong."""

import json
import logging
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vsrkit.errors import DataError, StoppedError, VsrkitError
from vsrkit.models.zoo import load_model
from vsrkit.train import checkpoint, loop, losses
from vsrkit.train.checkpoint import CheckpointError
from vsrkit.train.config import ConfigError, Source
from vsrkit.train.diverged import DivergedError
from vsrkit.train.loop import train


def read_log(config):
    lines = (Path(config.run_dir) / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def state(config):
    return load_file(Path(config.run_dir) / "state.safetensors")


def assert_same_state(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_a_run_leaves_a_model_that_loads_and_scores(config, caplog):
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


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_resume_is_exact(config, tmp_path, monkeypatch, optimizer):
    straight = config(run_dir=str(tmp_path / "a"), optimizer=optimizer)
    train(straight)
    broken = replace(straight, run_dir=str(tmp_path / "b"))
    compute, calls = loop.compute_gradients, []

    def killed(run, parts):
        calls.append(run.progress.step)
        if len(calls) == 4:  # after a save at step 2 and a step that was not saved
            raise KeyboardInterrupt
        return compute(run, parts)

    monkeypatch.setattr(loop, "compute_gradients", killed)
    with pytest.raises(KeyboardInterrupt):
        train(broken)
    monkeypatch.setattr(loop, "compute_gradients", compute)
    train(broken, resume=True)
    assert_same_state(state(straight), state(broken))


def test_a_signal_saves_the_step_and_stops(config, tmp_path, monkeypatch):
    straight = config(run_dir=str(tmp_path / "a"))
    train(straight)
    stopped = replace(straight, run_dir=str(tmp_path / "b"), save_every=100)
    compute = loop.compute_gradients

    def asked(run, parts):
        if run.progress.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return compute(run, parts)

    monkeypatch.setattr(loop, "compute_gradients", asked)
    with pytest.raises(StoppedError, match=r"SIGTERM after step 3; go on with --resume"):
        train(stopped)
    monkeypatch.setattr(loop, "compute_gradients", compute)
    train(stopped, resume=True)
    assert_same_state(state(straight), state(stopped))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # Python 3.12 on
def test_a_signal_to_all_processes_does_not_end_the_loader(config, monkeypatch):
    compute = loop.compute_gradients

    def asked(run, parts):
        if run.progress.step == 1:
            [helper] = multiprocessing.active_children()
            os.kill(helper.pid, signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        return compute(run, parts)

    monkeypatch.setattr(loop, "compute_gradients", asked)
    with pytest.raises(StoppedError, match="after step 2"):
        train(config(workers=1, steps=20))


def test_accumulated_gradients_are_those_of_one_large_batch(config, tmp_path):
    found = []
    for name, size, times in (("a", 4, 1), ("b", 2, 2)):
        c = config(run_dir=str(tmp_path / name), batch_size=size, accumulate=times, steps=1)
        train(c)
        found.append(state(c))
    key = "model.forward_tower.main.0.weight"
    # float32 means over other groups of numbers; Adam's first step is the sign of the gradient
    torch.testing.assert_close(found[0][key], found[1][key], rtol=0, atol=1e-5)


def test_recomputing_activations_changes_nothing(config, tmp_path):
    plain = config(run_dir=str(tmp_path / "a"), steps=2)
    train(plain)
    lean = replace(plain, run_dir=str(tmp_path / "b"), activation_checkpointing=True)
    train(lean)
    assert_same_state(state(plain), state(lean))


def test_bfloat16_keeps_float32_weights(config):
    c = config(steps=1, precision="bfloat16")
    train(c)
    assert {t.dtype for name, t in state(c).items() if name.startswith("model")} == {torch.float32}


def test_a_run_is_not_overwritten(config):
    c = config(steps=2)
    train(c)
    with pytest.raises(ConfigError, match="holds a run already"):
        train(c)


def test_nothing_to_resume(config):
    with pytest.raises(CheckpointError, match="there is no run to resume"):
        train(config(), resume=True)


def test_a_killed_run_reports_each_step_once(config):
    c = config(steps=4, save_every=2)
    train(c)
    log = Path(c.run_dir) / "log.jsonl"
    with log.open("a") as file:  # what came after the last state, and a line that was cut
        file.write('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    train(replace(c, steps=6), resume=True)
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    assert [each["step"] for each in steps if "loss" in each] == [1, 2, 3, 4, 5, 6]


def test_a_stopped_run_closes_its_reports(config, monkeypatch):
    closed = []
    monkeypatch.setattr(loop.Report, "close", lambda self: closed.append(0))
    monkeypatch.setattr(
        loop, "compute_gradients", lambda *_: os.kill(os.getpid(), 2) or torch.ones(())
    )
    with pytest.raises(StoppedError):
        train(config())
    assert closed


def test_resuming_as_something_else_is_refused_in_one_line(config, tmp_path):
    c = config(steps=2)
    train(c)
    with pytest.raises(CheckpointError, match="another optimizer; resume with that one"):
        train(replace(c, optimizer="adam"), resume=True)
    with pytest.raises(CheckpointError, match="belongs to another model") as error:
        train(replace(c, model="vespcn"), resume=True)
    assert "\n" not in str(error.value)
    with pytest.raises(VsrkitError, match="no device called 'banana'"):
        train(replace(c, device="banana"), resume=True)


def test_a_loss_that_is_no_number_keeps_the_last_good_state(config, monkeypatch):
    c = config(log_every=3, save_every=2)
    charbonnier = losses.charbonnier
    steps = []

    def poisoned(sr, hr, **options):
        steps.append(0)
        return charbonnier(sr, hr, **options) * (float("nan") if len(steps) > 2 else 1)

    monkeypatch.setattr(losses, "charbonnier", poisoned)
    with pytest.raises(DivergedError, match=r"nan before step 3; the last good state is in"):
        train(c)
    assert all(t.isfinite().all() for t in state(c).values())


def test_a_gradient_that_is_no_number_keeps_the_last_good_state(config, monkeypatch):
    c = config(save_every=1)
    clip, steps = loop.clip_grad_norm_, []

    def poisoned(parameters, norm):
        steps.append(0)
        clip(parameters, norm if len(steps) < 3 else float("nan"))

    monkeypatch.setattr(loop, "clip_grad_norm_", poisoned)
    with pytest.raises(DivergedError, match="weights are no numbers any more before step 3"):
        train(c)
    assert all(t.isfinite().all() for t in state(c).values())


def test_a_run_that_diverges_at_once_is_told_so(config, monkeypatch):
    # Weights that are no numbers also make flows that are none.
    monkeypatch.setattr(loop, "learning_rate", lambda config, step: float("nan"))
    with pytest.raises(DivergedError, match="no state was saved before that: start again"):
        train(config(log_every=3, save_every=6))


def test_a_full_disk_keeps_the_last_good_state(config, monkeypatch):
    c = config()
    save_file, saves = checkpoint.save_file, []

    def full(tensors, path, metadata):
        saves.append(path)
        if len(saves) > 1:
            Path(path).write_bytes(b"half")
            raise OSError(28, "No space left on device")
        save_file(tensors, path, metadata)

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(CheckpointError, match=r"No space left.*go on with --resume"):
        train(c)
    with pytest.raises(CheckpointError, match=r"no state was saved before it"):
        train(replace(c, run_dir=c.run_dir + "2"))
    assert not list(Path(c.run_dir).glob("*.part"))
    monkeypatch.undo()
    assert train(c, resume=True).step == 6


def test_a_damaged_state_is_named(config):
    c = config(steps=2)
    train(c)
    path = Path(c.run_dir) / "state.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="is damaged"):
        train(c, resume=True)


def test_wrong_paths_are_named(config, tmp_path):
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


def test_a_warm_start_says_what_it_took(config, tiny_model, caplog):
    with caplog.at_level(logging.INFO, "vsrkit"):
        train(config(steps=1, warm_start=(str(tiny_model),)))
    assert any("tensors taken, 0 of another shape, 0 not used" in m for m in caplog.messages)
