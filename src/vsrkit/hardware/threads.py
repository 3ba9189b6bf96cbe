"""How work is shared out among the cores; decides speed, never a result."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from threading import Barrier, Event, Lock
from typing import TypeVar

import torch
from torch import Tensor

S = TypeVar("S")
T = TypeVar("T")

_sharing = ContextVar("sharing", default=False)
_starting = Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, PyTorch does not share CPU work out.

    Many small operations in a row are the worst case for it: each waits for the slowest thread, and
    on a busy machine that is one which was put aside (measured: fifteen times slower in all).
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
def sharing_cores(*, allowed: bool = True) -> Iterator[None]:
    """Inside, `side_by_side` does what its name says; elsewhere one thing is done after another."""
    token = _sharing.set(allowed)
    try:
        yield
    finally:
        _sharing.reset(token)


def side_by_side(first: Callable[[], T], second: Callable[[], T]) -> tuple[T, T]:
    """The results of two pieces of work, run at the same time on half of the cores each.

    Cores that share one operation wait for each other after each; with one operation for each half
    they do not (measured with two towers of residual blocks on two cores: a sixth faster). Only
    without gradients: PyTorch runs the way back in one thread.
    """
    if not _is_shared():
        return first(), second()
    threads = torch.get_num_threads()
    pool = _halves(threads // 2, threads)
    results = [pool.submit(_in_the_same_mode(work)) for work in (first, second)]
    return results[0].result(), results[1].result()


def in_halves(work: Callable[[Sequence[S]], list[T]], items: Sequence[S]) -> list[T]:
    """`work(items)` for work that does each item by itself: both halves side by side."""
    middle = len(items) // 2
    first, second = side_by_side(lambda: work(items[:middle]), lambda: work(items[middle:]))
    return first + second


def from_both_ends(
    first: Callable[[], None],
    second: Callable[[], None],
    work: Callable[[Iterator[S]], Iterator[T]],
    items: Sequence[S],
    *,
    is_ready: Callable[[S], bool],
) -> list[T]:
    """The results of `work`, which needs what `first` and `second` do; those run side by side.

    Whichever is done goes on with the items, one from the front, the other from the back, and waits
    for the other before one that is not ready. So neither core idles while the other has the longer
    way. `work` answers item by item, as it takes them.
    """
    if not _is_shared():
        first()
        second()
        return list(work(iter(items)))
    left = deque(range(len(items)))
    results: dict[int, T] = {}
    passed, failed = (Event(), Event()), Event()

    def run(chain: Callable[[], None], side: int, take: Callable[[], int]) -> None:
        number = 0

        def own() -> Iterator[S]:
            nonlocal number
            while left and not failed.is_set():
                try:
                    number = take()
                except IndexError:  # the other was faster
                    return
                if not is_ready(items[number]):
                    passed[1 - side].wait()
                if not failed.is_set():
                    yield items[number]

        try:
            chain()
            passed[side].set()
            for result in work(own()):
                results[number] = result
        except BaseException:
            failed.set()
            raise
        finally:
            passed[side].set()

    side_by_side(lambda: run(first, 0, left.popleft), lambda: run(second, 1, left.pop))
    return [results[number] for number in range(len(items))]


def one_by_one(run: Callable[[Tensor], Tensor], frames: Tensor) -> Tensor:
    """`run` on (N, C, H, W), one frame at a time where `sharing_cores` holds.

    For layers at four times the size: what one frame needs of them stays in the cache, what all
    need does not (measured with the tail of the VSR-Transformer on five frames: a fifth faster).
    """
    if not _sharing.get() or torch.is_grad_enabled():
        return run(frames)
    return torch.cat([run(frame) for frame in frames.split(1)])


def _is_shared() -> bool:
    return _sharing.get() and torch.get_num_threads() > 1 and not torch.is_grad_enabled()


def _in_the_same_mode(work: Callable[[], T]) -> Callable[[], T]:
    """What autograd and autocast are told holds for one thread; tell it to the next."""
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


def _halves(share: int, threads: int) -> ThreadPoolExecutor:
    with _starting:
        return _start_halves(share, threads)


@lru_cache
def _start_halves(share: int, threads: int) -> ThreadPoolExecutor:
    """Two threads that give each of their operations `share` cores."""
    both = Barrier(2)

    def start() -> None:
        torch.get_num_threads()  # or the first operation would take the number for all threads
        torch.set_num_threads(share)
        both.wait()

    pool = ThreadPoolExecutor(2, "half", initializer=start)
    for started in [pool.submit(both.wait) for _ in range(2)]:
        started.result()
    torch.set_num_threads(threads)  # of this thread, and of those that are yet to come
    return pool
