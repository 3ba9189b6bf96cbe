"""Dask as a `concurrent.futures.Executor`: workers that come, go, differ and die."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from vsrkit.cluster.files import SharedFiles
from vsrkit.cluster.survey import Agreement, Survey, slots_of_worker
from vsrkit.cluster.worker import (
    CallSettings,
    ProcessDiedError,
    WorkerFacts,
    complete_files,
    end_idle_processes,
    has_files,
    receive_block,
    run_call,
)
from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import Precision, PrecisionName
from vsrkit.inference.reference import EngineReference

log = logging.getLogger("vsrkit")

WAIT_S = 60.0  # seconds to wait for the first worker
POLL_S = 0.5  # seconds between looks at the list of workers
LOST_S = 10.0  # seconds without an answer after which the scheduler counts as lost
DEATHS = 12  # workers that may die while they run one call; more are no accident


class LostClusterError(VsrkitError, BrokenExecutor):
    """The scheduler does not answer any more."""


@dataclass
class _Call:
    """A submitted call and where it runs."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: "Future[Any]" = field(default_factory=Future)
    address: str = ""  # of the worker that runs it
    task: Any = None  # Dask's future
    deaths: int = 0


@dataclass
class _Worker:
    """A worker that was admitted."""

    address: str
    slots: int
    facts: WorkerFacts
    running: list[_Call] = field(default_factory=list)


class DaskExecutor(Executor):
    """Runs calls on the workers of a Dask cluster that have the same versions as this process.

    Each call is sent to one worker that has a free slot. Dask would move calls between workers by
    itself, but also to those that were refused, and it counts every death of a worker against all
    calls that wait there.
    """

    def __init__(self, client: Any, *, same_bits: bool = False) -> None:
        """Use the workers of a cluster.

        client: `distributed.Client`.
        same_bits: pin all workers to the instruction sets that they share.
        """
        self._client, self._same_bits = client, same_bits
        self._lock, self._sending = threading.RLock(), threading.Lock()
        self._waiting: deque[_Call] = deque()
        self._workers: dict[str, _Worker] = {}
        self._known: set[str] = set()  # addresses that were admitted, refused or are being asked
        self._files: list[SharedFiles] = []
        self._survey = Survey(client, same_bits=same_bits)
        self._numbers = count()
        self._closed = threading.Event()
        self._answered = self._served = time.monotonic()
        self._watcher: threading.Thread | None = None

    @property
    def workers(self) -> int:
        """Workers that were admitted and are alive."""
        return len(self._workers)

    @property
    def slots(self) -> int:
        """Calls that run at once; at least one, so that a call can wait for a worker."""
        with self._lock:
            return max(1, sum(worker.slots for worker in self._workers.values()))

    def agree(
        self,
        reference: EngineReference,
        *,
        precision: PrecisionName | Precision,
        device: str,
        instructions: str | None = None,
    ) -> Agreement:
        """Choose one precision, device and instruction set for all workers, now and later.

        Workers that cannot take part are refused by name.

        reference: to the model; its precision and device are not used.
        precision: `auto` is decided on the slowest kind of worker.
        device: `auto`, `cpu`, `cuda` or `mps`.
        instructions: that the job was begun with, if it is resumed.
        """
        agreement = self._survey.agree(
            self._wait_for_workers(),
            reference,
            precision=precision,
            device=device,
            instructions=instructions,
        )
        with self._lock:
            self._workers.clear()
            self._known.clear()
            self._files.clear()  # of an earlier job
        self._admit(self._alive())
        if not self._workers:
            raise VsrkitError("no worker of the cluster can take part; the reasons are above")
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()
        return agreement

    def share(self, files: SharedFiles) -> None:
        """Send files to the workers that do not have them, and to those that join later."""
        if files in self._files:
            return
        self._files.append(files)
        with self._lock:
            addresses = list(self._workers)
        for address in self._without(files, addresses):
            self._drop(address)
        if not self._workers:
            reasons = list(self._survey.refused.values()) or ["all have left"]
            raise VsrkitError(f"no worker has the input: {reasons[-1]}")

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> "Future[Any]":
        """Run a call on a worker; it is repeated elsewhere if the worker dies."""
        if named:
            raise TypeError("calls on a cluster have no named arguments")
        submitted = _Call(call, arguments)
        with self._lock:
            self._waiting.append(submitted)
        self._dispatch()
        return submitted.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop using the cluster; calls that still run are cancelled."""
        self._closed.set()
        with self._lock:
            tasks = [call.task for w in self._workers.values() for call in w.running]
            addresses = list(self._workers)
            self._waiting.clear()
        with suppress(Exception):  # the cluster may be gone
            self._client.cancel([task for task in tasks if task is not None])
            self._client.run(end_idle_processes, workers=addresses, on_error="ignore")

    # Workers

    def _alive(self) -> dict[str, Any]:
        """What the scheduler knows of each worker, by address."""
        # Not `scheduler_info`: the client overwrites its result with one without workers.
        return self._client.sync(self._client.scheduler.identity, n_workers=-1)["workers"]

    def _wait_for_workers(self) -> dict[str, Any]:
        begin = time.monotonic()
        while not (alive := self._alive()):
            if time.monotonic() - begin > WAIT_S:
                raise VsrkitError(
                    f"no worker has joined the scheduler at {self._client.scheduler.address} for "
                    f"{WAIT_S:.0f} s; start one with `dask worker {self._client.scheduler.address}`"
                )
            time.sleep(POLL_S)
        return alive

    def _watch(self) -> None:
        """Admit workers that join and repeat the calls of those that are gone."""
        while not self._closed.wait(POLL_S):
            try:
                alive = self._alive()
                self._answered = time.monotonic()
            except Exception as error:  # noqa: BLE001  Dask raises many kinds
                if time.monotonic() - self._answered > LOST_S:
                    self._lose(error)
                    return
                continue
            for address in [address for address in self._workers if address not in alive]:
                self._drop(address)
            if joined := {a: about for a, about in alive.items() if a not in self._known}:
                self._known |= set(joined)
                threading.Thread(target=self._try_to_admit, args=(joined,), daemon=True).start()
            self._known &= set(alive)
            self._warn_if_alone()

    def _warn_if_alone(self) -> None:
        if self._workers or not self._waiting:
            self._served = time.monotonic()
        elif time.monotonic() - self._served > LOST_S:
            log.warning("no worker is left; the job waits for one to join")
            self._served = float("inf")

    def _try_to_admit(self, joined: dict[str, Any]) -> None:
        try:
            self._admit(joined)
        except Exception as error:  # noqa: BLE001  workers may be gone again: ask later
            log.debug("cannot admit workers: %s", error)
            self._known -= set(joined)

    def _admit(self, joined: dict[str, Any]) -> None:
        """Ask workers that joined, send them what they need, and give them work."""
        self._known |= set(joined)
        facts = self._survey.admit(joined)
        addresses = list(facts)
        for files in self._files:
            lacking = self._without(files, addresses)
            addresses = [address for address in addresses if address not in lacking]
        with self._lock:
            for address in addresses:
                if address not in self._workers:  # else `agree` and `_watch` met: it has calls
                    slots = slots_of_worker(joined[address])
                    self._workers[address] = _Worker(address, slots, facts[address])
        self._dispatch()

    def _without(self, files: SharedFiles, addresses: Sequence[str]) -> list[str]:
        """Send files to those of the workers that lack them; those where that failed."""
        with self._sending:  # workers of one machine may share a cache folder
            have = self._client.run(has_files, files, workers=list(addresses), on_error="return")
            lacking = [address for address, here in have.items() if here is not True]
            if not lacking:
                return []
            for block in files.blocks():
                self._client.run(receive_block, files, block, workers=lacking, on_error="ignore")
            done = self._client.run(complete_files, files, workers=lacking, on_error="return")
        failed = [address for address in lacking if done.get(address) is not True]
        for address in failed:
            self._survey.refuse(address, f"it cannot store the input ({done.get(address)})")
        return failed

    def _drop(self, address: str) -> None:
        """Forget a worker and put its calls back to the front of the queue."""
        with self._lock:
            worker = self._workers.pop(address, None)
            calls = worker.running if worker else []
            for call in reversed(calls):
                self._repeat(call)
        self._dispatch()

    def _repeat(self, call: _Call) -> None:
        """Run a call again whose worker or process has died."""
        call.deaths += 1
        task, call.task, call.address = call.task, None, ""
        if task is not None:
            with suppress(Exception):  # the cluster may be gone
                task.cancel()
        if call.deaths >= DEATHS:
            call.future.set_exception(
                VsrkitError(f"{call.deaths} workers died while they computed it")
            )
        else:
            self._waiting.appendleft(call)

    def _lose(self, error: Exception) -> None:
        """Fail all calls because the scheduler is gone."""
        lost = LostClusterError(
            "the scheduler does not answer any more; finished parts are kept, run the same command "
            "to resume, here or on another cluster"
        )
        lost.__cause__ = error
        with self._lock:
            calls = [*self._waiting, *(c for w in self._workers.values() for c in w.running)]
            self._waiting.clear()
            self._workers.clear()
        for call in calls:
            if not call.future.done():
                call.future.set_exception(lost)

    # Calls

    def _dispatch(self) -> None:
        """Send waiting calls to workers with free slots, least busy first."""
        while not self._closed.is_set():
            with self._lock:
                free = [w for w in self._workers.values() if len(w.running) < w.slots]
                if not self._waiting or not free:
                    return
                worker = min(free, key=lambda w: len(w.running) / w.slots)
                call = self._waiting.popleft()
                if call.deaths == 0 and not call.future.set_running_or_notify_cancel():
                    continue
                worker.running.append(call)
                call.address = worker.address
                settings = self._settings(worker)
            try:
                task = self._client.submit(
                    run_call, settings, call.call, call.arguments,
                    workers=[worker.address], key=f"vsrkit-{id(self)}-{next(self._numbers)}",
                    pure=False,
                )  # fmt: skip
            except Exception as error:  # noqa: BLE001  the scheduler may be gone: see `_watch`
                log.debug("cannot submit: %s", error)
                return
            with self._lock:
                if self._workers.get(worker.address) is not worker:
                    task.cancel()  # dropped meanwhile: the call waits or runs elsewhere
                    continue
                call.task = task
            task.add_done_callback(lambda task, call=call: self._finish(call, task))

    def _settings(self, worker: _Worker) -> CallSettings:
        """The cores of a worker are its own, or those of a machine that its workers share."""
        slots, facts = worker.slots, worker.facts
        if facts.cores == facts.all_cores:
            workers = self._workers.values()
            slots = sum(w.slots for w in workers if w.facts.machine == facts.machine)
        return CallSettings(self._survey.environment, max(1, facts.cores // max(1, slots)))

    def _finish(self, call: _Call, task: Any) -> None:
        """Pass the result of a call on, and send the next one."""
        try:
            result, error = task.result(), None
        except Exception as raised:  # noqa: BLE001  passed on
            result, error = None, raised
        with self._lock:
            if call.task is not task:
                return  # it was repeated elsewhere
            worker = self._workers.get(call.address)
            if worker is None or call not in worker.running:
                return
            if task.status in ("cancelled", "lost"):
                return  # its worker or the scheduler is gone: see `_watch`
            worker.running.remove(call)
            if isinstance(error, ProcessDiedError):
                self._repeat(call)
        if isinstance(error, ProcessDiedError):
            pass
        elif error is not None:
            call.future.set_exception(error)
        else:
            call.future.set_result(result)
        task.release()
        self._dispatch()
