"""The application: everything that the server consists of, put together, and its routes."""

import asyncio
import errno
import logging
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from vsrkit import __version__
from vsrkit.errors import VideoError, VsrkitError
from vsrkit.evaluate.page import PLAYER
from vsrkit.studio.api.answers import Json, file_answer, known, read_json, refuse
from vsrkit.studio.api.library import LibraryApi
from vsrkit.studio.api.queue import QueueApi
from vsrkit.studio.api.trials import PREVIEW_MODELS, PREVIEW_SIDE, TrialsApi
from vsrkit.studio.api.uploads import UploadsApi
from vsrkit.studio.api.watch import WatchApi
from vsrkit.studio.auth import SESSION_AGE, Guard, SignIn, not_signed_in
from vsrkit.studio.clips import Clips
from vsrkit.studio.errors import RequestError
from vsrkit.studio.events import Events
from vsrkit.studio.folders import Folder
from vsrkit.studio.job import Job
from vsrkit.studio.library import Library, describe_folder
from vsrkit.studio.models import Models
from vsrkit.studio.options import OptionTable
from vsrkit.studio.queue import Queue
from vsrkit.studio.state_folder import StateFolder
from vsrkit.studio.uploads import Uploads
from vsrkit.studio.workers import Worker

log = logging.getLogger("vsrkit")

STATIC = Path(__file__).parent / "static"
STATIC_NAME = re.compile(r"(?:[a-z0-9_-]+/)*[a-z0-9_-]+(\.[a-z0-9]+)")
STATIC_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
SIGNED_IN = '<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>vsrkit</title>'
BACKGROUND_NICE = 3
BACKGROUND_S, MEDIA_S = 120.0, 120.0  # seconds that reading a video may take
CLIPS_S = 3600.0  # seconds that copying a long video into another container may take
MODELS_S = 900.0  # seconds that a preview or a plan may take for one model


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says.

    hosts: names under which the server may be reached, in lower case.
    cookie: name of the cookie; cookies of all ports of a machine share their names.
    max_upload: bytes of the largest upload.
    cluster: address of a Dask cluster that runs the jobs.
    """

    folders: tuple[Folder, ...]
    hosts: tuple[str, ...]
    cookie: str
    max_upload: int
    cluster: str | None


class Studio:
    """The application and its parts."""

    def __init__(
        self,
        settings: Settings,
        options: Callable[[Models], OptionTable],
        state: StateFolder,
    ) -> None:
        """Put everything together; nothing runs before the application is started.

        settings: of the server.
        options: makes the table of options for the models that can be used.
        state: locked by the caller.
        """
        self.settings, self.state = settings, state
        self.database = state.open_database()
        self.sign_in = SignIn(self.database)
        self.events = Events()
        self.models = Models()
        self.options = options(self.models)
        self._background = Worker(state.path, limit_s=BACKGROUND_S, nice=BACKGROUND_NICE)
        self._media = Worker(state.path, limit_s=MEDIA_S)
        self._models_at_work = Worker(state.path, limit_s=MODELS_S)
        self.library = Library(
            settings.folders, state, self.database, self._background, self.events
        )
        self._copying = Worker(state.path, limit_s=CLIPS_S)
        self.clips = Clips(state.clips, self._copying)
        folder = next(folder for folder in settings.folders if folder.uploads)
        self.uploads = Uploads(folder.path, state.uploads, self.database, settings.max_upload)
        self.queue = Queue(state, self.database, self.events, settings.folders, self._describe)
        self.library.job_of = self._job_of
        self.queue.on_done = self._on_done
        self._trials = TrialsApi(
            self.library,
            self.options,
            self.models,
            self._models_at_work,
            self.events,
            state.previews,
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def application(self) -> ASGIApp:
        """The whole application, with its guard."""
        routes = [
            Route("/", self._index),
            Route("/login", self._login),
            Route("/favicon.ico", self._icon),
            Route("/static/{name:path}", self._static),
            Route("/api/session", self._session),
            Route("/api/events", self._events),
            Route("/api/models", self._models),
            Route("/api/options", self._options),
            Route("/api/options/check", self._check_options, methods=["POST"]),
            *LibraryApi(self.library, self.state, self._media, self.clips).routes,
            *self._trials.routes,
            *UploadsApi(self.uploads, self.library).routes,
            *WatchApi(
                self.queue, self.library, self.options, self.state, self._media, self.clips
            ).routes,
            *QueueApi(
                self.queue,
                self.library,
                self.options,
                self.models,
                self.state,
                self.settings.cluster,
            ).routes,
        ]
        app = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={
                RequestError: _on_request_error,
                VideoError: _on_video_error,
                VsrkitError: _on_vsrkit_error,
                OSError: _on_system_error,
                sqlite3.Error: _on_database_error,
                HTTPException: _on_http_error,
                Exception: _on_bug,
            },
        )
        settings = self.settings
        return Guard(app, sign_in=self.sign_in, hosts=settings.hosts, cookie=settings.cookie)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        await self.library.refresh()
        running = [
            self._start(work)
            for work in (
                self.queue.run(),
                self.library.read_new_videos(),
                self.library.look_for_changes(),
            )
        ]
        yield
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._trials.stop()
        for worker in (self._background, self._media, self._copying, self._models_at_work):
            worker.stop()
        self.database.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a part of the studio has stopped; start it again", exc_info=error)

    def _describe(self, job: Job) -> dict[str, Any]:
        return job.as_json(self.library.find(job.source), self.library.find(job.output))

    def _job_of(self, path: Path) -> str | None:
        return next((j.id for j in self.queue.jobs if j.output == path and j.state == "done"), None)

    def _on_done(self, job: Job) -> None:
        async def list_result() -> None:
            await self.library.refresh()
            self.queue.publish(self.queue.job(job.id))

        self._start(list_result())

    async def _index(self, request: Request) -> Response:
        return file_answer(STATIC / "index.html", STATIC_TYPES[".html"])

    async def _icon(self, request: Request) -> Response:
        """For pages that name no icon, such as reports."""
        return file_answer(STATIC / "icon.svg", STATIC_TYPES[".svg"])

    async def _static(self, request: Request) -> Response:
        match = STATIC_NAME.fullmatch(request.path_params["name"])
        if match is None or match[1] not in STATIC_TYPES:
            raise RequestError(404, "there is no such file")
        shared = match[0].startswith(f"{PLAYER.name}/")  # with reports
        folder = PLAYER.parent if shared else STATIC
        return file_answer(folder / match[0], STATIC_TYPES[match[1]])

    async def _login(self, request: Request) -> Response | ASGIApp:
        cookie = self.sign_in.sign_in(request.query_params.get("token", ""))
        if cookie is None:
            return not_signed_in()
        # Not a redirect: after a link in a mail, it would count as a request of another site, which
        # comes without the cookie.
        answer = HTMLResponse(SIGNED_IN)
        answer.set_cookie(
            self.settings.cookie,
            cookie,
            max_age=int(SESSION_AGE),
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _session(self, request: Request) -> Response:
        return Json(
            {
                "version": __version__,
                "folders": [describe_folder(folder) for folder in self.settings.folders],
                "max_upload": self.settings.max_upload,
                "cluster": self.settings.cluster,
                "preview": {"models": PREVIEW_MODELS, "side": PREVIEW_SIDE},
            }
        )

    async def _events(self, request: Request) -> Response:
        return StreamingResponse(self.events.open(), media_type="text/event-stream")

    async def _models(self, request: Request) -> Response:
        return Json(self.models.as_json())

    async def _options(self, request: Request) -> Response:
        return Json(self.options.as_json())

    async def _check_options(self, request: Request) -> Response:
        values = known(await read_json(request), "options").get("options")
        given, _ = self.options.check(values)
        return Json({"arguments": self.options.arguments(given)})


async def _on_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return refuse(error.status, str(error), **error.more)


async def _on_video_error(request: Request, error: Exception) -> Response:
    return refuse(422, " ".join(str(error).split()))


async def _on_vsrkit_error(request: Request, error: Exception) -> Response:
    return refuse(400, " ".join(str(error).split()))


async def _on_system_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OSError)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    status = 507 if full else 404 if isinstance(error, FileNotFoundError) else 400
    return refuse(status, error.strerror or "the system refused this")


async def _on_database_error(request: Request, error: Exception) -> Response:
    return refuse(
        507, f"the folder of the studio cannot be written: {error}; is its disk full or gone?"
    )


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refuse(error.status_code, str(error.detail).lower())


async def _on_bug(request: Request, error: Exception) -> Response:
    log.error("unexpected error in %s", request.url.path, exc_info=error)
    return refuse(500, "unexpected error; the server's output has its traceback")
