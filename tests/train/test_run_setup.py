"""Setting up a run: the plan, the release's first step, compiling, changed settings, precision."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.golden.recipe import tensor_for, video
from tests.paths import GOLDEN, ROOT
from torch import nn

from vsrkit.hardware.device import Precision
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.zoo import save_model
from vsrkit.models.zoo.vsrt_files import public_name
from vsrkit.train import loop, run_setup
from vsrkit.train.config import Source
from vsrkit.train.loop import compute_gradients, train, update_weights
from vsrkit.train.optimizers import learning_rate, set_learning_rate
from vsrkit.train.processes import ALONE
from vsrkit.train.recipe import load_recipe
from vsrkit.train.run_setup import plan_run, start_run
from vsrkit.train.settings import ConfigError


def state(config):
    return load_file(Path(config.run_dir) / "state.safetensors")


@pytest.fixture
def release(tmp_path):
    """The recipe of the release for its small model, whose flow weights are in a second file."""
    config = VSRTConfig(
        frames=5, depth=2, channels=16, extract_blocks=2, tower_blocks=2, reconstruct_blocks=2
    )
    torch.manual_seed(0)
    model = VSRT(config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if not name.startswith("flow."):
                value.copy_(tensor_for(public_name(name), value.shape))
    flow = {
        public_name(f"flow.{name}"): tensor_for(public_name(f"flow.{name}"), value.shape)
        for name, value in model.flow.named_parameters()
    }
    save_model(tmp_path / "model.safetensors", model)
    save_file(flow, tmp_path / "flow.safetensors")
    return replace(
        load_recipe(str(ROOT / "recipes" / "vsrt_reds.py")),
        run_dir=str(tmp_path / "run"),
        model=str(tmp_path / "model.safetensors"),
        warm_start=(f"flow={tmp_path / 'flow.safetensors'}",),
        device="cpu",
    )


def test_the_first_step_of_the_reds_recipe_equals_the_release(release, caplog):
    with caplog.at_level(logging.INFO, "vsrkit"):
        plan = plan_run(release, ALONE, resume=False)
        run = start_run(plan, ALONE, [], resume=False)
    assert any("60 tensors copied" in message for message in caplog.messages)
    golden = json.loads((GOLDEN / "vsrt_grads.json").read_text())
    before = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    [terms] = compute_gradients(run, [(video(1, 1, 5, 64, 64), video(2, 1, 5, 256, 256))])
    # float32 sums over the same values; convolutions in another memory layout
    assert float(terms["charbonnier"]) == pytest.approx(golden["loss_sum"], rel=1e-6)
    for name, parameter in run.model.named_parameters():
        norm, _ = golden["grad_norm_and_first"][public_name(name)]
        if not name.endswith("to_k.bias"):  # its true gradient is 0, what is stored is round-off
            # as in tests/models/test_vsrt.py
            relative = 3e-3 if name.startswith("flow.") else 2e-4
            assert parameter.grad.norm().item() == pytest.approx(norm, rel=relative), name
    rate = learning_rate(run.config, 0)
    assert rate == json.loads((GOLDEN / "lr_schedule.json").read_text())["REDS"]["1"] == 2e-4
    set_learning_rate(run.optimizers, rate)
    update_weights(run)
    moved = run.model.tail.conv_last.bias - before["tail.conv_last.bias"]
    torch.testing.assert_close(moved.abs(), torch.full((3,), rate), rtol=1e-3, atol=0)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_several_batches_have_the_gradient_of_one_large_batch(config, reduction):
    plan = plan_run(config(loss_reduction=reduction), ALONE, resume=False)
    run = start_run(plan, ALONE, [], resume=False)
    torch.manual_seed(0)
    lr, hr = torch.rand(4, 3, 3, 16, 16), torch.rand(4, 3, 3, 64, 64)
    compute_gradients(run, [(lr, hr)])
    whole = [p.grad.clone() for p in run.model.parameters()]
    compute_gradients(run, list(zip(lr.split(2), hr.split(2), strict=True)))
    for expected, parameter in zip(whole, run.model.parameters(), strict=True):
        # float32 sums in another order
        error = (parameter.grad - expected).norm() / expected.norm().clamp_min(1e-6)
        assert error < 1e-4


def test_the_first_line_of_the_log_says_where_and_how_a_run_trains(config, caplog):
    with caplog.at_level(logging.INFO, "vsrkit"):
        train(config(steps=1, accumulate=3, device="auto"))
    first = caplog.messages[0]
    assert "on cpu in float32 channels-" in first
    assert "1 process, total batch 6 (3 x 2 clips in each process)" in first


def test_frames_and_crop_are_changed_for_the_model(config, caplog):
    with caplog.at_level(logging.INFO, "vsrkit"):
        plan = plan_run(config(model="vsrt-reds"), ALONE, resume=False)
        loop.log_plan(plan, config(model="vsrt-reds"))
    assert (plan.config.frames, plan.config.crop) == (5, 64)
    assert caplog.messages[-1] == "frames and crop changed for the model: 5 frames of 64x64"


def test_mirrored_clips_are_for_recurrent_models(config):
    assert plan_run(config(mirrored=True), ALONE, resume=False).config.mirrored
    with pytest.raises(ConfigError, match="recurrent models; set it to false for edvr-m"):
        plan_run(config(model="edvr-m", mirrored=True), ALONE, resume=False)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bits_train_and_resume_exactly(config, tmp_path, precision):
    straight = config(
        run_dir=str(tmp_path / "a"), steps=4, precision=precision, schedule="constant"
    )
    train(straight)
    halves = replace(straight, run_dir=str(tmp_path / "b"))
    train(replace(halves, steps=2))
    train(halves, resume=True)
    found, expected = state(halves), state(straight)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name
        assert value.dtype == torch.float32
    with safe_open(tmp_path / "b" / "state.safetensors", framework="pt") as file:
        assert bool(json.loads(file.metadata()["scaler"])) == (precision == "float16")


def test_float16_skips_a_step_whose_gradient_overflows(config, monkeypatch):
    c = config(steps=3, precision="float16", save_every=1)
    update, scales = loop.update_weights, []

    def record(run):
        if run.progress.step == 1:  # as a product that is too large for float16
            for parameter in run.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.fill_(float("inf"))
        before = {name: p.detach().clone() for name, p in run.model.named_parameters()}
        norm = update(run)
        same = all(torch.equal(before[name], p) for name, p in run.model.named_parameters())
        scales.append((run.scaler.get_scale(), same))
        return norm

    monkeypatch.setattr(loop, "update_weights", record)
    assert train(c).step == 3
    (first, _), (second, skipped), (_, moved) = scales
    assert second == first / 2
    assert skipped
    assert not moved
    assert all(value.isfinite().all() for value in state(c).values())


def test_a_compiled_run_equals_a_plain_one(config, tmp_path, monkeypatch):
    plain = config(run_dir=str(tmp_path / "a"), steps=2)
    train(plain)
    compiled, compile_ = [], torch.compile

    def eager(function):
        """Trace the function, but run PyTorch's own operations: no C++ compiler is needed."""
        compiled.append(function)
        return compile_(function, backend="eager")

    monkeypatch.setattr(torch, "compile", eager)
    train(replace(plain, run_dir=str(tmp_path / "b"), compile=True))
    assert len(compiled) == 1
    a, b = state(plain), state(replace(plain, run_dir=str(tmp_path / "b")))
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=1e-6)  # operations may be fused


def test_without_a_compiler_a_run_continues_uncompiled(config, monkeypatch, caplog):
    def broken(function):
        def call(*_):
            raise RuntimeError("no C++ compiler\nsecond line")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    with caplog.at_level(logging.INFO, "vsrkit"):
        assert train(config(steps=1, compile=True)).step == 1
    expected = "torch.compile failed (no C++ compiler); training without it"
    assert expected in caplog.messages


def test_settings_changed_on_resume_are_listed_and_recorded(config, caplog, videos):
    c = config(steps=2)
    train(c)
    data = (Source(path=str(videos), weight=2.0),)
    changed = replace(c, steps=4, schedule="linear", loss="psnr", data=data)
    with caplog.at_level(logging.INFO, "vsrkit"):
        train(changed, resume=True)
    assert "resumed after step 2 with other settings:" in caplog.messages
    assert '  schedule: "cosine" -> "linear"' in caplog.messages
    lines = (Path(c.run_dir) / "log.jsonl").read_text().splitlines()
    [entry] = [row for row in map(json.loads, lines) if "changed" in row]
    assert entry["step"] == 2
    assert entry["changed"].keys() == {"steps", "schedule", "loss", "data"}
    assert entry["changed"]["loss"] == ["charbonnier", "psnr"]
    assert "loss_psnr" in json.loads(lines[-2])
    caplog.clear()
    with caplog.at_level(logging.INFO, "vsrkit"):
        train(replace(changed, steps=4), resume=True)
    assert not any("other settings" in message for message in caplog.messages)


def test_a_score_on_other_clips_is_not_compared_with_the_best(config):
    c = config(steps=2)
    best = train(c).best
    again = train(replace(c, steps=3, validation=("hill1",), learning_rate=0.0), resume=True)
    assert (again.best_step, again.best != best) == (3, True)


def test_resuming_needs_neither_warm_start_nor_a_readable_config(config):
    c = config(steps=2)
    train(c)
    (Path(c.run_dir) / "config.json").write_text("{")
    assert train(replace(c, steps=3, warm_start=("gone.safetensors",)), resume=True).step == 3


def test_the_plan_refuses_before_any_data_is_read(config, monkeypatch):
    c = config(steps=1)
    train(c)
    monkeypatch.setattr(loop, "open_data", lambda *_: pytest.fail("data was read"))
    with pytest.raises(ConfigError, match="already contains a run"):
        train(c)


def test_precision_is_measured_by_the_main_process_only(config, monkeypatch):
    asked = []

    def measured(name, model, device):
        asked.append((name, device))
        return Precision("float32", False)

    monkeypatch.setattr(run_setup, "resolve_training_precision", measured)
    plan = plan_run(config(precision="auto"), ALONE, resume=False)
    assert plan.precision == Precision("float32", False)
    assert asked == [("auto", "cpu")]
    assert isinstance(run_setup.untrained_model(plan.config), nn.Module)
