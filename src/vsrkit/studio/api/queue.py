"""The queue: jobs, their order, their logs."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from vsrkit.studio.api.answers import Json, known, read_json, shown, text_of
from vsrkit.studio.errors import RequestError
from vsrkit.studio.folders import LONGEST_NAME, check_name, free_name
from vsrkit.studio.job import Job, reserved
from vsrkit.studio.library import Library
from vsrkit.studio.models import Models
from vsrkit.studio.options import OptionTable
from vsrkit.studio.process import read_end
from vsrkit.studio.queue import Queue
from vsrkit.studio.state_folder import StateFolder
from vsrkit.upscale.batch import default_target
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.upscale.work_folder import WorkFolder

MOST_AT_ONCE = 1000  # jobs of one request
LONGEST_LOG = 1 << 20  # bytes
OUTPUTS = (".mkv", ".mp4", ".m4v", ".mov", ".webm")


class QueueApi:
    """The requests below /api/jobs and /api/queue."""

    def __init__(
        self,
        queue: Queue,
        library: Library,
        options: OptionTable,
        models: Models,
        state: StateFolder,
        cluster: str | None,
    ) -> None:
        self._queue, self._library, self._options = queue, library, options
        self._models, self._state, self._cluster = models, state, cluster
        self.routes = [
            Route("/api/jobs", self.list_jobs, methods=["GET"]),
            Route("/api/jobs", self.add, methods=["POST"]),
            Route("/api/jobs/{id}", self.job, methods=["GET"]),
            Route("/api/jobs/{id}", self.change, methods=["PATCH"]),
            Route("/api/jobs/{id}", self.remove, methods=["DELETE"]),
            Route("/api/jobs/{id}/pause", self.pause, methods=["POST"]),
            Route("/api/jobs/{id}/resume", self.resume, methods=["POST"]),
            Route("/api/jobs/{id}/cancel", self.cancel, methods=["POST"]),
            Route("/api/jobs/{id}/retry", self.retry, methods=["POST"]),
            Route("/api/jobs/{id}/log", self.log),
            Route("/api/queue", self.set_queue, methods=["PUT"]),
            Route("/api/queue/clear", self.clear, methods=["POST"]),
        ]

    async def list_jobs(self, request: Request) -> Response:
        jobs = [self._queue.describe(job) for job in self._queue.jobs]
        return Json({"queue": self._queue.as_json(), "jobs": jobs})

    async def add(self, request: Request) -> Response:
        wanted = known(await read_json(request), "jobs").get("jobs")
        if not isinstance(wanted, list) or not 1 <= len(wanted) <= MOST_AT_ONCE:
            raise RequestError(400, f"jobs is a list of 1 to {MOST_AT_ONCE} jobs")
        made: list[Job] = []
        for values in wanted:  # all are checked before the first one is added
            if not isinstance(values, dict):
                raise RequestError(400, "a job is an object")
            made.append(self._new_job(values, made))
        for job in made:
            self._queue.add(job)
        return Json({"jobs": [self._queue.describe(job) for job in made]}, 201)

    def _new_job(self, values: dict[str, Any], others: list[Job]) -> Job:
        values = known(values, "video", "options", "report", "output")
        file = self._library.readable(text_of(values, "video"))
        given, options = self._options.check(values.get("options"))
        number = str(int(self._queue.new_number()) + len(others))
        return Job(
            id=number,
            source=file.path,
            output=self._output(values.get("output"), file.path, options, others),
            options=given,
            arguments=tuple(self._options.arguments(given)),
            report=self._report(values, number),
            cluster=self._cluster,
            created=time.time(),
        )

    def _report(self, values: dict[str, Any], number: str) -> Path | None:
        wanted = values.get("report", False)
        if not isinstance(wanted, bool):
            raise RequestError(400, "report is true or false")
        return self._state.report(number) if wanted else None

    def _output(
        self, name: object, source: Path, options: UpscaleOptions, others: list[Job]
    ) -> Path:
        """Where the result of a job is written: a path that nothing has."""
        taken = reserved([*self._queue.jobs, *others])
        if name is None:
            if options.scale is None and options.height is None:
                options = replace(options, scale=self._models.scale_of(options.model))
            wanted = default_target(str(source), options)
            if len(os.fsencode(wanted.name)) > LONGEST_NAME:
                long = shown(source.name)
                raise RequestError(400, f"choose a name for the output: {long} is too long for one")
            while WorkFolder.beside(path := free_name(wanted, taken)).path.exists():
                taken.append(path)  # a job of a terminal
            return path
        if not isinstance(name, str):
            raise RequestError(400, "output is a file name")
        path = source.with_name(check_name(name))
        if path.suffix.lower() not in OUTPUTS:
            raise RequestError(400, f"the output must be named *{', *'.join(OUTPUTS)}")
        if free_name(path, taken) != path or WorkFolder.beside(path).path.exists():
            raise RequestError(409, f"{name} exists or is the output of another job")
        return path

    async def job(self, request: Request) -> Response:
        return self._answer(self._queue.job(request.path_params["id"]))

    async def change(self, request: Request) -> Response:
        values = known(await read_json(request), "options", "report", "output")
        job = self._queue.job(request.path_params["id"])
        given, options = self._options.check(values.get("options", job.options))
        changed = replace(job, options=given, arguments=tuple(self._options.arguments(given)))
        if "report" in values:
            changed = replace(changed, report=self._report(values, job.id))
        if values.get("output", job.output.name) != job.output.name:
            output = self._output(values["output"], job.source, options, [])
            changed = replace(changed, output=output)
        return self._answer(self._queue.change(changed))

    async def remove(self, request: Request) -> Response:
        self._queue.remove(request.path_params["id"])
        return Response(status_code=204)

    async def pause(self, request: Request) -> Response:
        now = known(await read_json(request), "now").get("now", False)
        if not isinstance(now, bool):
            raise RequestError(400, "now is true or false")
        return self._answer(self._queue.pause(request.path_params["id"], now=now))

    async def resume(self, request: Request) -> Response:
        return self._answer(self._queue.resume(request.path_params["id"]))

    async def cancel(self, request: Request) -> Response:
        return self._answer(self._queue.cancel(request.path_params["id"]))

    async def retry(self, request: Request) -> Response:
        return self._answer(self._queue.retry(request.path_params["id"]))

    async def log(self, request: Request) -> Response:
        job = self._queue.job(request.path_params["id"])
        return PlainTextResponse(read_end(self._state.job(job.id) / "log.txt", LONGEST_LOG))

    async def set_queue(self, request: Request) -> Response:
        values = known(await read_json(request), "paused", "order")
        order, paused = values.get("order", []), values.get("paused")
        if not isinstance(order, list) or not all(isinstance(number, str) for number in order):
            raise RequestError(400, "order is a list of ids of jobs")
        if not isinstance(paused, bool | None):
            raise RequestError(400, "paused is true or false")
        self._queue.reorder(order)
        if paused is not None:
            self._queue.set_paused(paused)
        return Json(self._queue.as_json())

    async def clear(self, request: Request) -> Response:
        return Json({"removed": self._queue.clear()})

    def _answer(self, job: Job) -> Response:
        return Json(self._queue.describe(job))
