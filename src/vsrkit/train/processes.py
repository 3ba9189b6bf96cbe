"""Training by several processes that `torchrun` starts, and stopping by a signal.

Whatever must be equal in all processes (precision, memory layout, batch size, the step after which
a run stops) is decided by the main process or by all of them together, never by each for itself.
"""

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, NoReturn, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vsrkit.errors import StoppedError, UsageError, VsrkitError
from vsrkit.hardware.device import resolve_device

T = TypeVar("T")

TIMEOUT = timedelta(hours=2)  # long enough for the main process to decode the data
# By type of device: what moves tensors between processes. The CPU's is used for decisions, too,
# which need not wait for a GPU.
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


class LostProcessError(StoppedError):
    """Another process of the run ended or cannot be reached."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The rank of this process and the number of processes; only rank 0 writes files."""

    rank: int = 0
    count: int = 1
    device: str = "cpu"  # of this process

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def fail(self, error: VsrkitError) -> NoReturn:
        """Raise an error that all processes have found; the others leave the message to main."""
        if self.is_main:
            raise error
        raise SystemExit(1)

    def from_main(self, decide: Callable[[], T]) -> T:
        """The result of `decide` in the main process, in all processes; so is its error."""
        if self.count == 1:
            return decide()
        sent: list[Any] = [None, None]  # result, error
        if self.is_main:
            try:
                sent[0] = decide()
            except VsrkitError as error:
                sent[1] = error
        dist.broadcast_object_list(sent)
        if sent[1] is not None:
            self.fail(sent[1])
        return cast("T", sent[0])

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Run the block in the main process first, then in the others, which find its files.

        If it fails in the main process, the others do not run it.
        """
        if self.count == 1:
            yield
        elif self.is_main:
            failed = True
            try:
                yield
                failed = False
            finally:
                dist.broadcast_object_list([failed])
        else:
            received = [True]
            dist.broadcast_object_list(received)
            if received[0]:
                raise SystemExit(1)
            yield

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """The items that this process works on."""
        return items[self.rank :: self.count]

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank, in all processes."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def join_shares(self, results: Sequence[T]) -> list[T]:
        """The results for all items, in their order; results: those for `share(items)`."""
        shares = self.gather(list(results))
        total = sum(len(share) for share in shares)
        return [shares[number % self.count][number // self.count] for number in range(total)]

    def largest(self, number: int) -> int:
        """The largest number of all processes."""
        if self.count == 1:
            return number
        tensor = torch.tensor(number)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def average_gradients(self, model: nn.Module) -> nn.Module:
        """Wrap a model so that its backward pass averages the gradients of all processes.

        The weights of the main process are copied to all.
        """
        if self.count == 1:
            return model
        return cast("nn.Module", DistributedDataParallel(model))


ALONE = Processes()


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the processes that `torchrun` started; without torchrun, this process alone.

    device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`; see `process_device`.
    """
    rank, count = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    try:
        own = torch.device(process_device(device))
    except VsrkitError as error:
        Processes(rank, count).fail(error)
    bound = own if own.type == "cuda" and own.index is not None else None
    if bound is not None:
        # Before the first collective and the first allocation, which would go to the first card.
        torch.cuda.set_device(bound)
    if count == 1:
        yield Processes(device=str(own))
        return
    dist.init_process_group(BACKENDS[own.type], timeout=TIMEOUT, device_id=bound)
    try:
        yield Processes(rank, count, str(own))
    finally:
        # A DistributedDataParallel that is freed later would be the last owner of the group and
        # free it with the GIL held, while a thread of the group may be waiting for the GIL.
        gc.collect()
        dist.destroy_process_group()


def process_device(device: str) -> str:
    """The device this process trains on: of several CUDA devices, the one torchrun assigned.

    Several processes need as many CUDA devices, or `cpu` by name: eight processes that share the
    cores of a machine whose GPUs are not found would be a mistake in most cases.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    found = resolve_device(device)
    if count == 1 or found == "cpu":
        if count > 1 and device == "auto":
            raise UsageError(
                f"{count} processes were started, but this machine has no CUDA device; "
                "to train on the CPU, add --set device=cpu"
            )
        return found
    if found != "cuda":
        raise UsageError(
            f"{count} processes cannot train on {found}; set device=cuda for one CUDA device "
            "each, or device=cpu"
        )
    local, here = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= here:
        raise UsageError(
            f"process {local} of this machine has no CUDA device, there are {here}; "
            f"start torchrun with --nproc-per-node {here}"
        )
    return f"cuda:{local}"


@dataclass(slots=True)
class StopRequest:
    """Whether a signal has stopped the run."""

    number: int = 0  # of the signal; 0: none so far

    @property
    def reason(self) -> str:
        """Name of the signal, empty if there was none."""
        return signal.Signals(self.number).name if self.number else ""


@contextmanager
def stop_by_signal() -> Iterator[StopRequest]:
    """Record the first SIGINT or SIGTERM, to finish the step; a second one ends the run at once."""
    stop = StopRequest()
    if current_thread() is not main_thread():
        yield stop
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.number:
            raise KeyboardInterrupt
        stop.number = number

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
