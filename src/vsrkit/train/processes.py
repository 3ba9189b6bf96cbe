"""Training by several processes that `torchrun` starts, and stopping by a signal."""

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

TIMEOUT = timedelta(hours=2)  # long enough for the main process to decode or to validate


class LostProcessError(StoppedError):
    """Another process of the run ended or cannot be reached."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The rank of this process and the number of processes; only rank 0 writes files."""

    rank: int = 0
    count: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Run the block in the main process first, then in the others, which find its files."""
        if self.count > 1 and not self.is_main:
            dist.barrier()
        yield
        if self.count > 1 and self.is_main:
            dist.barrier()

    def average_gradients(self, model: nn.Module) -> nn.Module:
        """Wrap a model so that its backward pass averages the gradients of all processes."""
        if self.count == 1:
            return model
        return cast("nn.Module", DistributedDataParallel(model))


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the processes that `torchrun` started; without torchrun, this process alone."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes()
        return
    backend = "nccl" if resolve_device(device).startswith("cuda") else "gloo"
    dist.init_process_group(backend, timeout=TIMEOUT)
    try:
        yield Processes(dist.get_rank(), count)
    finally:
        dist.destroy_process_group()


def process_device(device: str) -> str:
    """The device this process trains on: of several CUDA devices, the one torchrun assigned."""
    device = resolve_device(device)
    if device == "cuda" and "LOCAL_RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return device


@dataclass(slots=True)
class StopRequest:
    """Whether a signal has stopped the run."""

    reason: str = ""  # name of the signal


@contextmanager
def stop_by_signal() -> Iterator[StopRequest]:
    """Record the first SIGINT or SIGTERM, to finish the step; a second one ends the run at once."""
    stop = StopRequest()
    if current_thread() is not main_thread():
        yield stop
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.reason:
            raise KeyboardInterrupt
        stop.reason = signal.Signals(number).name

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
