"""Distribute work over the CPU cores. This affects speed only, never results."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from queue import Empty, Full, Queue
from threading import Barrier, Event, Lock, Thread
from typing import TypeVar

import torch
from torch import Tensor

POLL_S = 0.2  # seconds between checks whether the other thread has stopped
JOIN_S = 5.0  # seconds that a thread gets to finish its current item when it is stopped

S = TypeVar("S")
T = TypeVar("T")

_allowed = ContextVar("parallel", default=False)
_pool_lock = Lock()
_importer = os.getpid()


def leave_parent_threads() -> None:
    """Use one thread from now on if this process was forked from one that had imported this module.

    The parent's threads do not exist in it, and an operation in parallel would wait for them for
    ever. That is how ProcessPoolExecutor starts processes on Linux before Python 3.14.
    """
    if os.getpid() != _importer:
        torch.set_num_threads(1)


@contextmanager
def single_thread() -> Iterator[None]:
    """Run PyTorch's CPU operations in one thread inside the block.

    For many small operations in a row: after each, all threads wait for the slowest, and on a busy
    machine that is one the scheduler has suspended (measured: fifteen times slower in total).
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def allow_parallel(*, enabled: bool = True) -> Iterator[None]:
    """Let the functions below run their work in parallel inside the block.

    Outside, or with `enabled=False`, they run it sequentially.
    """
    token = _allowed.set(enabled)
    try:
        yield
    finally:
        _allowed.reset(token)


def run_parallel(first: Callable[[], T], second: Callable[[], T]) -> tuple[T, T]:
    """Run two functions at the same time, each on half of the cores, and return their results.

    Cores that share an operation wait for each other at its end; one operation for each half of the
    cores avoids that (measured with two towers of residual blocks on two cores: a sixth faster).
    Sequential when gradients are enabled, because PyTorch runs the backward pass in one thread.
    """
    if not _is_parallel():
        return first(), second()
    threads = torch.get_num_threads()
    pool = _two_threads(threads // 2, threads)
    with _pool_lock:  # halves of two callers in turn could wait for each other for ever
        results = [pool.submit(_with_torch_mode(work)) for work in (first, second)]
    return results[0].result(), results[1].result()


def run_halves(work: Callable[[Sequence[S]], list[T]], items: Sequence[S]) -> list[T]:
    """`work(items)`, both halves of the items in parallel; items must be independent."""
    middle = len(items) // 2
    first, second = run_parallel(lambda: work(items[:middle]), lambda: work(items[middle:]))
    return first + second


def run_from_both_ends(
    first: Callable[[], None],
    second: Callable[[], None],
    work: Callable[[Iterator[S]], Iterator[T]],
    items: Sequence[S],
    *,
    is_ready: Callable[[S], bool],
) -> list[T]:
    """Run `first` and `second` in parallel, then `work` on all items; returns its results.

    The thread that finishes early starts on the items at once, so that no core is idle when one of
    the two functions takes longer.

    first, second: compute what `work` needs; the thread of `first` takes items from the front, that
        of `second` from the back.
    work: yields one result for each item, in order.
    is_ready: whether an item can be processed before both functions are finished.
    """
    if not _is_parallel():
        first()
        second()
        return list(work(iter(items)))
    left = deque(range(len(items)))
    results: dict[int, T] = {}
    finished, failed = (Event(), Event()), Event()

    def run(prepare: Callable[[], None], side: int, take: Callable[[], int]) -> None:
        number = 0

        def taken() -> Iterator[S]:
            nonlocal number
            while left and not failed.is_set():
                try:
                    number = take()
                except IndexError:  # the other thread took the last one
                    return
                if not is_ready(items[number]):
                    finished[1 - side].wait()
                if not failed.is_set():
                    yield items[number]

        try:
            prepare()
            finished[side].set()
            for result in work(taken()):
                results[number] = result
        except BaseException:
            failed.set()
            raise
        finally:
            finished[side].set()

    run_parallel(lambda: run(first, 0, left.popleft), lambda: run(second, 1, left.pop))
    return [results[number] for number in range(len(items))]


def run_per_frame(run: Callable[[Tensor], Tensor], frames: Tensor) -> Tensor:
    """`run(frames)` for (N, C, H, W), one frame at a time inside `allow_parallel`.

    For layers at four times the size: the activations of one frame fit into the processor's cache
    (measured with the tail of the VSR-Transformer on five frames: a fifth faster).
    """
    if not _allowed.get() or torch.is_grad_enabled():
        return run(frames)
    return torch.cat([run(frame) for frame in frames.split(1)])


def _is_parallel() -> bool:
    return _allowed.get() and torch.get_num_threads() > 1 and not torch.is_grad_enabled()


def _with_torch_mode(work: Callable[[], T]) -> Callable[[], T]:
    """`work` in the inference and autocast mode of this thread; PyTorch keeps them per thread."""
    inference, autocast = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu")

    def run() -> T:
        with (
            torch.inference_mode(inference),
            torch.no_grad(),
            torch.autocast("cpu", dtype, enabled=autocast),
        ):
            return work()

    return run


def _two_threads(share: int, threads: int) -> ThreadPoolExecutor:
    with _pool_lock:
        return _start_two_threads(share, threads)


@lru_cache
def _start_two_threads(share: int, threads: int) -> ThreadPoolExecutor:
    """A pool of two threads whose operations use `share` cores each."""
    both = Barrier(2)

    def start() -> None:
        # Read it once before setting it, or the first operation would set it for all threads.
        torch.get_num_threads()
        torch.set_num_threads(share)
        both.wait()

    pool = ThreadPoolExecutor(2, "half", initializer=start)
    for started in [pool.submit(both.wait) for _ in range(2)]:
        started.result()
    torch.set_num_threads(threads)  # restore it for this thread and for threads started later
    return pool


class _End:
    """Marks the end of prefetched items, with the error that ended them."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetch(items: Iterable[T], size: int) -> Iterator[T]:
    """Iterate over items in another thread, at most `size` items ahead of the caller.

    An error of the iteration is raised in the caller. When the caller stops early, so does the
    thread. With a size of 0 there is no thread.
    """
    if size == 0:
        yield from items
        return
    waiting: Queue[T | _End] = Queue(size)
    stopped = Event()

    def put(item: T | _End) -> None:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=POLL_S)
            except Full:
                continue
            return

    def fill() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
        except BaseException as error:  # noqa: BLE001  raised again in the caller
            put(_End(error))
        else:
            put(_End(None))

    thread = Thread(target=fill, daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = waiting.get(timeout=POLL_S)  # a wait without timeout would block Ctrl-C
            except Empty:
                continue
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stopped.set()
        thread.join(JOIN_S)
