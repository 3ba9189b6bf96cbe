"""Videos: the list, thumbnails, frames, files."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vsrkit.studio import media
from vsrkit.studio.api.answers import (
    Json,
    file_answer,
    number_of,
    picture,
    shown,
    video_answer,
    whole_number,
)
from vsrkit.studio.clips import Clips
from vsrkit.studio.errors import RequestError, UnknownError
from vsrkit.studio.library import Library
from vsrkit.studio.remux import playable_file
from vsrkit.studio.state_folder import StateFolder
from vsrkit.studio.workers import Worker

WIDEST_PICTURE = 4096  # pixels


class LibraryApi:
    """The requests below /api/library and /api/videos."""

    def __init__(self, library: Library, state: StateFolder, worker: Worker, clips: Clips) -> None:
        self._library, self._state, self._worker = library, state, worker
        self._clips = clips
        self.routes = [
            Route("/api/library", self.list_videos),
            Route("/api/videos/{id}", self.video),
            Route("/api/videos/{id}/thumbnail", self.thumbnail),
            Route("/api/videos/{id}/shots", self.shots),
            Route("/api/videos/{id}/frame", self.frame),
            Route("/api/videos/{id}/play", self.play),
            Route("/api/videos/{id}/file", self.file),
        ]

    async def list_videos(self, request: Request) -> Response:
        await self._library.refresh()
        return Json(self._library.as_json())

    async def video(self, request: Request) -> Response:
        return Json(self._library.video(self._library.file(request.path_params["id"])))

    async def thumbnail(self, request: Request) -> Response:
        file = self._library.file(request.path_params["id"])
        path = self._state.thumbnail(file.id)
        if not path.is_file():
            raise UnknownError("thumbnail")
        return file_answer(path, "image/jpeg")

    async def shots(self, request: Request) -> Response:
        return Json(await self._library.strip(request.path_params["id"], self._worker))

    async def frame(self, request: Request) -> Response:
        file = self._library.file(request.path_params["id"])
        self._library.known(file.id)
        seconds = number_of(request.query_params.get("t", "0"), "t")
        text = request.query_params.get("width")
        width = None if text is None else whole_number(text, "width")
        if width is not None and not 1 <= width <= WIDEST_PICTURE:
            raise RequestError(400, f"width is 1 to {WIDEST_PICTURE} pixels")
        if self._worker.is_full:
            raise RequestError(503, "too many pictures are being read; try again in a moment")
        read = partial(media.frame, file.path, seconds, width)
        content, time = await self._worker.call(read)
        kind = "png" if width is None else "jpeg"
        return picture(content, kind, **{"X-Frame-Time": f"{time:.6f}"})

    async def play(self, request: Request) -> Response:
        file = self._library.file(request.path_params["id"])
        if not self._library.known(file.id)["playable"]:
            raise RequestError(415, "browsers do not play the codec of this video")
        key = f"video-{file.id}-{file.mtime_ns}"
        return video_answer(await self._clips.find(key, partial(playable_file, file.path)))

    async def file(self, request: Request) -> Response:
        file = self._library.file(request.path_params["id"])
        name = shown(file.path.name)
        return file_answer(file.path, "application/octet-stream", download=name)
