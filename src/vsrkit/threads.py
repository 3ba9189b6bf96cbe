"""Run small work on one thread, where waking and joining others costs more than it saves."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
