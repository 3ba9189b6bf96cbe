"""Previews and plans: what models would make of a video, before a job."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vsrkit.studio import preview
from vsrkit.studio.api.answers import Json, file_answer, known, read_json, text_of
from vsrkit.studio.errors import RequestError, UnknownError
from vsrkit.studio.events import Events
from vsrkit.studio.folders import VideoFile
from vsrkit.studio.library import Library
from vsrkit.studio.models import Models
from vsrkit.studio.options import OptionTable
from vsrkit.studio.preview import Region, Wanted
from vsrkit.studio.trials import Trial, Trials, finished
from vsrkit.studio.workers import Worker
from vsrkit.upscale.options import UpscaleOptions

PREVIEW_MODELS, PREVIEW_SIDE = 3, 384
LARGEST_SIDE = 8192  # pixels of the pictures of a preview
PLAN_MODELS = 12
DEFAULT_SIZE = (256, 192)  # of a region, in pixels of the source
MEASURED = 500  # results of plans that are remembered
NO_RESULT = {"picture": None, "seconds": None}
PLAN_VALUES = "seconds seconds_per_frame frames file_size peak_memory width height codec pix_fmt"
NO_PLAN: dict[str, Any] = dict.fromkeys(PLAN_VALUES.split()) | {"notes": [], "warnings": []}


class TrialsApi:
    """The requests below /api/previews and /api/plans."""

    def __init__(
        self,
        library: Library,
        options: OptionTable,
        models: Models,
        worker: Worker,
        events: Events,
        folder: Path,
    ) -> None:
        """Delete the pictures of an earlier run.

        worker: runs the models.
        folder: holds the pictures of previews.
        """
        self._library, self._options, self._models = library, options, models
        self._worker, self._folder = worker, folder
        self._previews = Trials("preview", events, forget=self._delete_pictures)
        self._plans = Trials("plan", events)
        self._measured: dict[tuple[VideoFile, str], dict[str, Any]] = {}
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        self.routes = [
            Route("/api/previews", self.start_preview, methods=["POST"]),
            Route("/api/previews/{id}", self.preview, methods=["GET"]),
            Route("/api/previews/{id}/{name}.png", self.picture, methods=["GET"]),
            Route("/api/plans", self.start_plan, methods=["POST"]),
            Route("/api/plans/{id}", self.plan, methods=["GET"]),
        ]

    async def stop(self) -> None:
        """Cancel everything that runs, and delete all pictures."""
        await self._previews.stop()
        await self._plans.stop()

    async def start_preview(self, request: Request) -> Response:
        names = ("video", "time_s", "region", "models", "options")
        values = known(await read_json(request), *names)
        file, options, models = self._read(values, PREVIEW_MODELS)
        info = self._library.known(file.id)
        seconds = values.get("time_s", 0.0)
        if type(seconds) not in (int, float) or not 0 <= seconds < 1e9:
            raise RequestError(400, "time_s is a time in seconds from the first frame")
        region = _region(values.get("region"), info["width"], info["height"])
        factor = self._factor(options, models, info["height"])
        if factor * max(region.width, region.height) > LARGEST_SIDE:
            size = f"{region.width}x{region.height}"
            raise RequestError(400, f"{factor:g} times {size} pixels is too large for a preview")
        about = {
            "video": file.id,
            "time_s": float(seconds),
            "region": asdict(region),
            "scale": int(factor) if factor == int(factor) else factor,
            "source": None,
        }
        trial = Trial.of(about, models, NO_RESULT)
        wanted = Wanted(file.path, float(seconds), region, factor, options)
        self._previews.start(
            trial,
            partial(self._draw_result, trial, wanted),
            prepare=partial(self._draw_source, trial, wanted),
            replaces=lambda _: True,
        )
        return Json(trial.as_json(), 202)

    def _read(
        self, values: dict[str, Any], most: int
    ) -> tuple[VideoFile, UpscaleOptions, list[str]]:
        """The video, the options and the models of a request."""
        file = self._library.file(text_of(values, "video"))
        self._library.known(file.id)
        _, options = self._options.check(values.get("options"))
        models = values.get("models")
        if not isinstance(models, list) or not 1 <= len(models) <= most:
            raise RequestError(400, f"models is a list of 1 to {most} names")
        for model in models:
            if model not in self._models.ready:
                raise RequestError(400, f"no model called {model!r:.60} is installed")
        if len(set(models)) < len(models):
            raise RequestError(400, "a model is named twice")
        return file, options, models

    def _factor(self, options: UpscaleOptions, models: list[str], height: int) -> float:
        """The sizes of the pictures in relation to the region."""
        if options.height is not None:
            return options.height / height
        return options.scale or max(self._models.scale_of(model) for model in models)

    async def _draw_source(self, trial: Trial, wanted: Wanted) -> dict[str, Any]:
        await self._worker.call(preview.draw_source, wanted, self._path(trial, "source"))
        return {"source": f"/api/previews/{trial.id}/source.png"}

    async def _draw_result(self, trial: Trial, wanted: Wanted, model: str) -> dict[str, Any]:
        number = str(list(trial.results).index(model))
        wanted = replace(wanted, options=replace(wanted.options, model=model))
        path = self._path(trial, number)
        seconds = await self._worker.call(preview.draw_result, wanted, path)
        return {"picture": f"/api/previews/{trial.id}/{number}.png", "seconds": seconds}

    def _path(self, trial: Trial, name: str) -> Path:
        return self._folder / f"{trial.id}-{name}.png"

    def _delete_pictures(self, trial: Trial) -> None:
        for path in self._folder.glob(f"{trial.id}-*"):
            path.unlink(missing_ok=True)

    async def preview(self, request: Request) -> Response:
        return await _answer(self._previews, request)

    async def picture(self, request: Request) -> Response:
        trial = self._previews.find(request.path_params["id"])
        name = request.path_params["name"]
        if name not in ("source", *map(str, range(len(trial.results)))):
            raise UnknownError("picture")
        return file_answer(self._path(trial, name), "image/png")

    async def start_plan(self, request: Request) -> Response:
        values = known(await read_json(request), "video", "models", "options")
        file, options, models = self._read(values, PLAN_MODELS)
        trial = Trial.of({"video": file.id}, models, NO_PLAN)
        self._plans.start(
            trial,
            partial(self._estimate, file, options),
            replaces=lambda other: other.about["video"] == file.id,
        )
        return Json(trial.as_json(), 202)

    async def _estimate(
        self, file: VideoFile, options: UpscaleOptions, model: str
    ) -> dict[str, Any]:
        options = replace(options, model=model)
        key = (file, repr(options))
        if key not in self._measured:
            made = await self._worker.call(preview.estimate, file.path, options)
            self._measured[key] = made
            if len(self._measured) > MEASURED:
                del self._measured[next(iter(self._measured))]
        return self._measured[key]

    async def plan(self, request: Request) -> Response:
        return await _answer(self._plans, request)


async def _answer(trials: Trials, request: Request) -> Response:
    trial = trials.find(request.path_params["id"])
    if request.query_params.get("wait") == "1":
        await finished(trial)
    return Json(trial.as_json())


def _region(value: object, width: int, height: int) -> Region:
    """The region of a request, or the middle of the frame."""
    if value is None:
        wide, high = DEFAULT_SIZE
        return Region((width - wide) // 2, (height - high) // 2, wide, high).inside(width, height)
    names = ("x", "y", "width", "height")
    if not isinstance(value, dict) or sorted(value) != sorted(names):
        raise RequestError(400, f"region has {', '.join(names)}, in pixels of the source")
    if not all(type(value[name]) is int and abs(value[name]) < 1e6 for name in names):
        raise RequestError(400, "the values of a region are whole numbers of pixels")
    region = Region(**value)
    if not (1 <= region.width <= PREVIEW_SIDE and 1 <= region.height <= PREVIEW_SIDE):
        raise RequestError(400, f"a region has sides of 1 to {PREVIEW_SIDE} pixels")
    return region.inside(width, height)
