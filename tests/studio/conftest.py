"""A studio in the process of the test, and one in a process of its own."""

import asyncio
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from vsrkit.cli.studio import option_table
from vsrkit.studio.app import Settings, Studio
from vsrkit.studio.auth import LOOPBACK
from vsrkit.studio.folders import open_folders
from vsrkit.studio.job import Job
from vsrkit.studio.state_folder import StateFolder
from vsrkit.studio.workers import Worker

CALL = Worker.call  # as it is
COOKIE = "vsrkit-studio-test"


@contextmanager
def running_studio(folder, *, max_upload=1 << 20, cluster=None, more=()):
    """A client that is signed in to a studio of a folder; `client.studio` is the studio."""

    async def app(scope, receive, send):
        if (
            scope["type"] == "lifespan"
        ):  # here, because a database belongs to the thread that opens it
            settings = Settings(
                folders=open_folders([folder, *more]),
                hosts=LOOPBACK,
                cookie=COOKIE,
                max_upload=max_upload,
                cluster=cluster,
            )
            client.studio = Studio(
                settings,
                lambda models: option_table(models, cluster=cluster is not None),
                StateFolder.of(folder),
            )
            client.application = client.studio.application()
        await client.application(scope, receive, send)

    client = TestClient(app, base_url="http://127.0.0.1:8686")
    with client:
        token = client.portal.call(client.studio.sign_in.new_token)
        assert client.get(f"/login?token={token}").status_code == 200
        yield client


@pytest.fixture(autouse=True, scope="session")
def threads_in_place_of_workers():
    """Calls that would be made in worker processes, which take seconds to start."""

    async def call(self, function, /, *args, **kwargs):
        async with self._turn:
            return await asyncio.to_thread(function, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "call", call)
        yield


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "videos"
    path.mkdir()
    return path


@pytest.fixture
def client(folder):
    with running_studio(folder) as client:
        yield client


def videos(client):
    """The videos of the library by name, when all are read."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        (folder, *_) = client.get("/api/library").json()["folders"]
        if all(video["state"] != "pending" for video in folder["videos"]):
            return {video["name"]: video for video in folder["videos"]}
        time.sleep(0.02)
    raise AssertionError("the library was not read in time")


def wait_for(client, job, *states):
    """A job when it has reached one of these states."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        found = client.get(f"/api/jobs/{job}").json()
        if found["state"] in states:
            return found
        time.sleep(0.02)
    raise AssertionError(f"the job is still {found}")


def leave_running(folder, job):
    """Note a waiting job as running, as a server that was killed leaves it."""
    database = StateFolder.of(folder).open_database()
    (text,) = database.execute("SELECT value FROM jobs WHERE id = ?", [job]).fetchone()
    left = replace(Job.load(text), state="running", started=time.time())
    database.execute("UPDATE jobs SET value = ? WHERE id = ?", [left.dump(), job])
    database.close()
    return left
