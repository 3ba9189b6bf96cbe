"""Two processes equal one with twice the batch size; after losing one, the run can be resumed."""

import multiprocessing
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.train.conftest import short_run

from vsrkit.train import loop
from vsrkit.train.processes import LostProcessError, Processes, join_processes, process_device


def gradients(config, processes):
    """The gradients of one step of this process."""
    sources, _ = loop.open_data(config, None)
    run = loop.start_run(config, processes, sources, resume=False)
    run.loss.train()
    loop.compute_gradients(run, loop.make_batches(config, sources, processes).step(5))
    return {name: p.grad.contiguous() for name, p in run.model.named_parameters()}


def work(rank, port, config, folder):
    """One of two processes: the gradients of a step, then a run that the second process leaves."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    with join_processes("cpu") as processes:
        with processes.main_process_first():
            loop.open_data(config, None)
        found = gradients(replace(config, run_dir=str(folder / f"gradients{rank}")), processes)
    save_file(found, folder / f"{rank}.safetensors")
    os.environ["MASTER_PORT"] = str(port + 1)
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
             "log_every": 20}  # fmt: skip
    config = short_run(
        videos, tiny_model, folder, steps=8, batch_size=1, accumulate=2, save_every=500, **plain
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(rank, port, config, folder)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [w.exitcode for w in workers] == [0, 9]
    return config


def test_two_processes_have_the_gradients_of_twice_the_batch(pair, folder):
    alone = replace(pair, batch_size=2, run_dir=str(folder / "alone"))
    expected = gradients(alone, Processes())
    for rank in range(2):
        found = load_file(folder / f"{rank}.safetensors")
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            # The same values, added in another order.
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-5)


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


def test_auto_is_a_device_of_this_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert process_device("auto") == "cuda"
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert process_device("auto") == "cuda:1"
    assert chosen == [1]
