"""Processes that read videos and run models, so that the server itself stays small and alive.

Videos are strangers' files: what crashes a decoder or takes all memory ends a worker, not the
server. A worker is started when it is needed, and ended when it has been idle for a while.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from vsrkit.errors import VideoError
from vsrkit.hardware.executors import LocalPool

IDLE_S = 120.0  # seconds
GRACE_S = 1.0  # seconds in which a call that is cancelled may still end by itself
WAITING = 64  # calls that may wait

P = ParamSpec("P")
T = TypeVar("T")


class WorkerError(VideoError):
    """A call ended its process or took too long; it may succeed another time."""


class Worker:
    """One process that makes one call at a time, in the order of their arrival."""

    def __init__(self, scratch: Path, *, limit_s: float, nice: int = 0) -> None:
        """Start no process yet.

        scratch: current folder of the process.
        limit_s: seconds after which a call is ended with its process.
        nice: how much other processes are preferred to this one.
        """
        self._scratch, self._limit, self._nice = scratch, limit_s, nice
        self._pool: LocalPool | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._idle: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        """Whether so many calls wait that no more should be made."""
        return self._waiting >= WAITING

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in the process; its errors are raised here.

        If the caller is cancelled, the process is ended, unless it is finished in a moment.
        """
        self._waiting += 1
        try:
            async with self._turn:
                return await self._call(function, *args, **kwargs)
        finally:
            self._waiting -= 1

    async def _call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._idle:
            self._idle.cancel()
        if self._pool is None:
            self._pool = LocalPool(1, _start, str(self._scratch), self._nice)
        result = asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))
        # Of calls that are given up, nobody asks how they ended.
        result.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            async with asyncio.timeout(self._limit):
                return await asyncio.shield(result)
        except TimeoutError as error:
            await self._end()
            raise WorkerError("reading this video takes too long") from error
        except BrokenExecutor as error:
            self._pool = None
            raise WorkerError("this video ended the process that read it") from error
        except asyncio.CancelledError:
            await asyncio.shield(self._end_soon(result))
            raise
        finally:
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.stop)

    async def _end_soon(self, result: asyncio.Future[T]) -> None:
        done, _ = await asyncio.wait([result], timeout=GRACE_S)
        if not done:
            await self._end()

    async def _end(self) -> None:
        """End the process and wait for that."""
        pool, self._pool = self._pool, None
        if pool:
            await asyncio.to_thread(pool.terminate)

    def stop(self) -> None:
        """End the process; the next call starts another one."""
        if self._idle:
            self._idle.cancel()
        pool, self._pool = self._pool, None
        if pool:
            pool.terminate()


def _start(scratch: str, nice: int) -> None:
    os.chdir(scratch)
    with suppress(AttributeError, OSError):  # not on Windows
        os.nice(nice)
    with suppress(OSError):  # Linux: if memory runs out, end this process and not a job
        Path("/proc/self/oom_score_adj").write_text("500")
