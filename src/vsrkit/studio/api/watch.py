"""What a job has made: finished parts, frames, the result, its report."""

import asyncio
from base64 import b64encode
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vsrkit.studio import parts
from vsrkit.studio.api.answers import (
    Json,
    file_answer,
    picture,
    shown,
    video_answer,
    whole_number,
)
from vsrkit.studio.clips import Clips
from vsrkit.studio.errors import RequestError, UnknownError
from vsrkit.studio.folders import folder_of, identify, is_regular
from vsrkit.studio.job import Job
from vsrkit.studio.library import Library
from vsrkit.studio.options import OptionTable
from vsrkit.studio.parts import Watched
from vsrkit.studio.queue import Queue
from vsrkit.studio.remux import playable_file
from vsrkit.studio.state_folder import StateFolder
from vsrkit.studio.workers import Worker

# Of the report: its one script runs, in an origin of its own, where it can neither read nor send
# anything here.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'sha256-{digest}'; "
    "style-src 'unsafe-inline'; img-src data: blob:; media-src data: blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


class WatchApi:
    """The requests below /api/jobs that read results."""

    def __init__(
        self,
        queue: Queue,
        library: Library,
        options: OptionTable,
        state: StateFolder,
        worker: Worker,
        clips: Clips,
    ) -> None:
        self._queue, self._library, self._options = queue, library, options
        self._state, self._worker, self._clips = state, worker, clips
        self._listing = asyncio.Lock()
        self._listed: tuple[object, dict[str, Any]] | None = None
        self.routes = [
            Route("/api/jobs/{id}/parts", self.list_parts),
            Route("/api/jobs/{id}/parts/{part}", self.part),
            Route("/api/jobs/{id}/parts/{part}/clip", self.clip),
            Route("/api/jobs/{id}/frames/{frame}/source.png", self.source_frame),
            Route("/api/jobs/{id}/frames/{frame}/result.png", self.result_frame),
            Route("/api/jobs/{id}/result", self.result),
            Route("/api/jobs/{id}/report", self.report),
        ]

    async def list_parts(self, request: Request) -> Response:
        job, watched = self._watched(request)
        found = await self._list_parts(job, watched)
        video = self._library.find(job.source)
        about = {name: value for name, value in found.items() if name != "clips"}
        about["source"] = f"/api/videos/{video}/play" if video and found["source"] else None
        about["parts"] = [_with_clip(job, part, found["clips"]) for part in found["parts"]]
        return Json(about)

    async def _list_parts(self, job: Job, watched: Watched) -> dict[str, Any]:
        """The parts of a job; the worker is asked once for each new one, however many watch."""
        version = (job.id, watched, sum(1 for _ in job.work_folder.path.glob("part-*")))
        async with self._listing:
            if self._listed is None or self._listed[0] != version:
                found = await self._worker.call(parts.list_parts, watched)
                self._listed = (version, found)
            return self._listed[1]

    async def part(self, request: Request) -> Response:
        job, watched = self._watched(request)
        found = await self._worker.call(parts.show_part, watched, _number(request, "part"))
        return Json(_with_clip(job, found, found.pop("clips")))

    async def clip(self, request: Request) -> Response:
        job, watched = self._watched(request)
        path = await self._clip(job, watched, _number(request, "part"))
        if path.suffix == ".mkv":
            raise RequestError(415, "browsers do not play the codec of this result")
        return video_answer(path)

    async def _clip(self, job: Job, watched: Watched, part: int) -> Path:
        """A part as a video; Matroska if browsers do not play its codec."""
        if watched.is_done:
            if part != 0:
                raise UnknownError("part")
            key = f"video-{identify(job.output)}-{job.output.stat().st_mtime_ns}"
            return await self._clips.find(key, partial(playable_file, job.output))
        packets = job.work_folder.part(part)
        if not packets.is_file():
            raise UnknownError("finished part")
        key = f"part-{job.id}-{part}-{packets.stat().st_mtime_ns}"
        return await self._clips.find(key, partial(parts.write_part, watched, part))

    async def source_frame(self, request: Request) -> Response:
        _, watched = self._watched(request)
        self._refuse_if_busy()
        number = _number(request, "frame")
        return picture(await self._worker.call(parts.draw_source, watched, number), "png")

    async def result_frame(self, request: Request) -> Response:
        job, watched = self._watched(request)
        self._refuse_if_busy()
        number = _number(request, "frame")
        file = job.output
        if not watched.is_done:
            part = await self._worker.call(parts.find_part, watched, number)
            file = await self._clip(job, watched, part)
        return picture(await self._worker.call(parts.draw_result, watched, number, file), "png")

    def _refuse_if_busy(self) -> None:
        if self._worker.is_full:
            raise RequestError(503, "too many pictures are being read; try again in a moment")

    def _watched(self, request: Request) -> tuple[Job, Watched]:
        """A job that has begun, and its files."""
        job = self._queue.job(request.path_params["id"])
        done = job.state == "done" or job.is_complete  # its report may still be written
        self._check(job.source)
        if done:
            self._check(job.output)
        _, options = self._options.check(job.options)
        manifest = self._state.manifest(job.id)
        return job, Watched(job.source, job.output, manifest, done, options)

    def _check(self, path: Path) -> None:
        """Raise RequestError unless a path is a file in the folders."""
        if not is_regular(path) or folder_of(path, self._library.folders) is None:
            raise RequestError(404, f"{shown(path.name)} does not exist any more")

    async def result(self, request: Request) -> Response:
        job = self._queue.job(request.path_params["id"])
        if job.state != "done":
            raise RequestError(409, f"this job is {job.state}")
        self._check(job.output)
        name = shown(job.output.name)
        return file_answer(job.output, "application/octet-stream", download=name)

    async def report(self, request: Request) -> Response:
        job = self._queue.job(request.path_params["id"])
        path = self._state.report(job.id)
        if job.report is None or not path.is_file():
            raise UnknownError("report")
        answer = file_answer(path, "text/html; charset=utf-8")
        answer.headers["Content-Security-Policy"] = await asyncio.to_thread(_policy_of, path)
        return answer


def _policy_of(report: Path) -> str:
    """The policy for a report: it permits the script at its end by its hash."""
    _, _, end = report.read_bytes().rpartition(b'<script type="module">')
    script, _, _ = end.partition(b"</script>")
    return REPORT_POLICY.format(digest=b64encode(sha256(script).digest()).decode())


def _number(request: Request, name: str) -> int:
    return whole_number(request.path_params[name], name)


def _with_clip(job: Job, part: dict[str, Any], clips: bool) -> dict[str, Any]:
    return part | {"clip": f"/api/jobs/{job.id}/parts/{part['number']}/clip" if clips else None}
