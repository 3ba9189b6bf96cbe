"""Workers: what goes wrong in them does not reach the server."""

import asyncio
import os
import time

import pytest
from tests.studio.conftest import CALL

from vsrkit.errors import VideoError
from vsrkit.studio import workers
from vsrkit.studio.errors import RequestError, UnknownError

Worker = workers.Worker


def crash():
    os.kill(os.getpid(), 9)


def refuse(error):
    raise error


def test_a_worker_survives_what_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(Worker, "call", CALL)
    monkeypatch.setattr(workers, "GRACE_S", 0.05)

    async def scenario():
        worker = Worker(tmp_path, limit_s=60)
        first = await worker.call(os.getpid)
        assert await worker.call(os.getcwd) == str(tmp_path)
        with pytest.raises(RequestError) as refusal:
            await worker.call(refuse, RequestError(415, "no"))
        assert (refusal.value.status, str(refusal.value)) == (415, "no")
        with pytest.raises(RequestError, match="there is no such frame"):
            await worker.call(refuse, UnknownError("frame"))
        assert await worker.call(os.getpid) == first
        with pytest.raises(VideoError, match="ended the process"):
            await worker.call(crash)
        second = await worker.call(os.getpid)
        assert second != first
        call = asyncio.create_task(worker.call(time.sleep, 60))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        worker._limit = 0.2
        with pytest.raises(VideoError, match="takes too long"):
            await worker.call(time.sleep, 60)
        worker.stop()

    asyncio.run(scenario())
