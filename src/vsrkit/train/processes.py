"""Several training processes on one or many machines, as `torchrun` starts them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import current_thread, main_thread
from types import FrameType
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vsrkit.errors import StoppedError
from vsrkit.hardware.device import resolve_device

PATIENCE = timedelta(hours=2)  # for another process to decode or to validate


class LostProcessError(StoppedError):
    """The run lost one of its processes."""


@dataclass(frozen=True, slots=True)
class Processes:
    """Which of how many processes this is; the first one alone writes files."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    @contextmanager
    def first_goes_first(self) -> Iterator[None]:
        """Inside, the first process works alone; the others follow and find what it made."""
        if self.count > 1 and not self.is_first:
            dist.barrier()
        yield
        if self.count > 1 and self.is_first:
            dist.barrier()

    def shared(self, model: nn.Module) -> nn.Module:
        """The model whose backward pass averages the gradients of all processes."""
        if self.count == 1:
            return model
        return cast("nn.Module", DistributedDataParallel(model))


@contextmanager
def joined_processes(device: str) -> Iterator[Processes]:
    """Join the others that `torchrun` started; alone without it."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes()
        return
    backend = "nccl" if device.startswith("cuda") else "gloo"
    dist.init_process_group(backend, timeout=PATIENCE)
    try:
        yield Processes(dist.get_rank(), count)
    finally:
        dist.destroy_process_group()


def own_device(device: str) -> str:
    """The device this process trains on: of several CUDA devices, the one torchrun assigned."""
    device = resolve_device(device)
    if device == "cuda" and "LOCAL_RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return device


class Stop:
    """Set when a signal asks the run to end; a step once begun is finished first."""

    def __init__(self) -> None:
        self.reason = ""


@contextmanager
def stop_by_signal() -> Iterator[Stop]:
    """Turn the first Ctrl-C or termination signal into a flag; the second ends at once."""
    stop = Stop()
    if current_thread() is not main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.reason:
            raise KeyboardInterrupt
        stop.reason = signal.Signals(number).name

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
