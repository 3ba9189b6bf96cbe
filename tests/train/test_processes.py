"""Two processes equal one with twice the batch size; after losing one, the run can be resumed."""

import gc
import json
import multiprocessing
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.train.conftest import short_run
from torch.nn.parallel import DistributedDataParallel

from vsrkit.errors import UsageError, VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.train import loop, run_setup
from vsrkit.train import processes as processes_module
from vsrkit.train.processes import (
    ALONE,
    LostProcessError,
    Processes,
    join_processes,
    process_device,
)
from vsrkit.train.settings import Losses


def gradients(config, processes):
    """The gradients of one step of this process, and its precision."""
    sources, _ = loop.open_data(config, None)
    plan = loop.plan_run(config, processes, resume=False)
    run = loop.start_run(plan, processes, sources, resume=False)
    run.loss.train()
    loop.compute_gradients(run, loop.make_batches(config, sources, processes).step(5))
    found = {
        f"{network}.{name}": p.grad.contiguous()
        for network in ("model", "discriminator")
        for name, p in run.models[network].named_parameters()
    }
    return found, run.precision


def fail_in_main(processes):
    """What each process raises if the main one fails."""

    def fail():
        raise VsrkitError("no")

    try:
        processes.from_main(fail)
    except (VsrkitError, SystemExit) as error:
        return repr(error)


def owners_of_the_group(seen):
    """`destroy_process_group`, with the wrapped models that are still alive added to a list."""
    destroy = dist.destroy_process_group

    def counted():
        seen.append(sum(type(each) is DistributedDataParallel for each in gc.get_objects()))
        destroy()

    return counted


def work(rank, port, config, folder):
    """One of two processes: gradients, a whole run, and a run that the second process leaves."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    # As if this process had measured something else than the other one.
    measured = (
        Precision("bfloat16", channels_last=True)
        if rank
        else Precision("float32", channels_last=False)
    )
    run_setup.resolve_training_precision = lambda *_: measured
    with join_processes("cpu") as processes:
        with processes.main_process_first():
            loop.open_data(config, None)
        own = replace(config, run_dir=str(folder / f"gradients{rank}"))
        found, precision = gradients(own, processes)
        facts = {
            "precision": str(precision),
            "failed": fail_in_main(processes),
            "largest": processes.largest(rank),
            "joined": processes.join_shares(processes.share("abcde")),
        }
    save_file(found, folder / f"{rank}.safetensors")
    (folder / f"{rank}.json").write_text(json.dumps(facts))
    os.environ["MASTER_PORT"] = str(port + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "destroy_process_group", owners_of_the_group(alive := []))
        loop.train(replace(config, run_dir=str(folder / "whole"), steps=3))
    (folder / f"alive{rank}.json").write_text(json.dumps(alive))
    os.environ["MASTER_PORT"] = str(port + 2)
    compute = loop.compute_gradients

    def lost(run, parts):
        if run.processes.rank == 1 and run.progress.step == 3:
            os._exit(9)
        return compute(run, parts)

    save = loop.save_run

    def save_after_signal(run):
        os.kill(os.getpid(), signal.SIGTERM)  # as torchrun does when a process is lost
        save(run)

    loop.compute_gradients, loop.save_run = lost, save_after_signal
    try:
        loop.train(replace(config, run_dir=str(folder / "lost"), save_every=100))
    except LostProcessError as error:
        (folder / "error").write_text(str(error))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def pair(folder, videos, tiny_model):
    """The config of both processes, after they have ended."""
    plain = {"optimizer": "adam", "learning_rate": 2e-4, "clip_gradients": 0.0, "ema_decay": 0.0,
             "log_every": 20, "validation": ("boat", "hill1")}  # fmt: skip
    terms = Losses(gan=0.1, gan_frames=3, steadiness=1.0, colour=1.0, discriminator_channels=8)
    config = short_run(
        videos, tiny_model, folder, steps=8, batch_size=1, accumulate=2, save_every=500,
        losses=terms, **plain,
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(rank, port, config, folder)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)  # seconds on an idle machine
    assert [w.exitcode for w in workers] == [0, 9]
    return config


def facts(folder, rank):
    return json.loads((folder / f"{rank}.json").read_text())


def rows(run_dir):
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def test_two_processes_have_the_gradients_of_twice_the_batch(pair, folder):
    alone = replace(pair, batch_size=2, run_dir=str(folder / "alone"))
    expected, _ = gradients(alone, ALONE)
    for rank in range(2):
        found = load_file(folder / f"{rank}.safetensors")
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            # The same values, added in another order.
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-5)


def test_processes_that_would_choose_other_layouts_agree(pair, folder):
    assert [facts(folder, rank)["precision"] for rank in range(2)] == ["float32 channels-first"] * 2


def test_two_processes_train_validate_and_log_as_one(pair, folder, monkeypatch):
    """Of the two validation clips each process has scored one."""
    monkeypatch.setattr(
        run_setup, "resolve_training_precision", lambda *_: Precision("float32", False)
    )
    alone = replace(pair, batch_size=2, steps=3, run_dir=str(folder / "one"))
    loop.train(alone)
    both, one = folder / "whole", folder / "one"
    weights = [load_file(each / "state.safetensors") for each in (both, one)]
    for name, value in weights[1].items():
        if name.startswith("model."):
            # Adam's first steps do not depend on the size of a gradient, only on its sign. A few
            # gradients of the discriminator are nearly zero, so that rounding decides their sign.
            torch.testing.assert_close(weights[0][name], value, rtol=0, atol=1e-5)
    (losses, score), (expected_losses, expected) = rows(both), rows(one)
    assert score["psnr_y"] == pytest.approx(expected["psnr_y"], abs=1e-4)  # of those weights
    assert losses["loss"] == pytest.approx(expected_losses["loss"], abs=1e-5)
    assert score["validation_seconds"] > 0
    assert 0 < score["validation_share"] < 1


def test_an_error_of_the_main_process_ends_the_others_without_a_message(pair, folder):
    failed = [facts(folder, rank)["failed"] for rank in range(2)]
    assert failed == ["VsrkitError('no')", "SystemExit(1)"]


def test_shares_are_joined_in_their_order(pair, folder):
    for rank in range(2):
        assert facts(folder, rank)["joined"] == list("abcde")
        assert facts(folder, rank)["largest"] == 1
    assert ALONE.join_shares(ALONE.share("abc")) == list("abc")


def test_no_model_outlives_the_group(pair, folder):
    """It would free the group with the GIL held, while a thread of the group waits for the GIL."""
    for rank in range(2):
        assert json.loads((folder / f"alive{rank}.json").read_text()) == [0]


def test_only_the_main_process_writes(pair, folder):
    assert (folder / "gradients0").exists()
    assert not (folder / "gradients1").exists()


def test_a_lost_process_leaves_a_state_to_resume_from(pair, folder):
    assert "continue with --resume" in (folder / "error").read_text()
    state = Path(folder / "lost" / "state.safetensors")
    with safe_open(state, framework="pt") as file:
        assert file.metadata()["step"] == "3"
    lost = replace(pair, run_dir=str(folder / "lost"), batch_size=2)
    assert loop.train(lost, resume=True).step == 8


@pytest.fixture
def two_cards(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_each_process_has_its_card(two_cards, monkeypatch):
    assert process_device("auto") == "cuda"
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert process_device("auto") == process_device("cuda") == "cuda:1"
    assert process_device("cpu") == "cpu"
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(UsageError, match="--nproc-per-node 2"):
        process_device("auto")
    with pytest.raises(UsageError, match="2 processes cannot train on cuda:0"):
        process_device("cuda:0")


def test_the_card_is_chosen_before_the_first_collective(two_cards, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: calls.append(("set", device)))
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, **options: calls.append((backend, options))
    )
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    for name, value in (("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "6")):
        monkeypatch.setenv(name, value)
    with join_processes("auto") as processes:
        assert processes == Processes(5, 6, "cuda:1")
    card = torch.device("cuda:1")
    timeout = processes_module.TIMEOUT
    backend = "cpu:gloo,cuda:nccl"
    assert calls == [("set", card), (backend, {"timeout": timeout, "device_id": card})]


@pytest.mark.parametrize("rank", ["0", "3"])
def test_several_processes_without_a_card_must_ask_for_the_cpu(monkeypatch, rank):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", rank)
    expected = (UsageError, "8 processes .* no CUDA device.*--set device=cpu")
    with (
        pytest.raises(expected[0] if rank == "0" else SystemExit) as error,
        join_processes("auto"),
    ):
        pass
    if rank == "0":
        assert error.match(expected[1])
        assert "\n" not in str(error.value)
    assert process_device("cpu") == "cpu"
