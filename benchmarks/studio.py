"""Measure the studio under load: a large folder, many who watch, memory.

    python benchmarks/studio.py [--save]

Listing: 500 videos, when the folder is new, when all are known, and after a restart. Watching: a
job with 20 pages that follow it (events, finished parts, clips) compared with the same job alone,
in turn; and the processor time of the server and its workers in relation to that of the job, which
is more reproducible; without the start of the workers, which takes seconds, once. Memory: of the
server, over 1,000 events of progress and 100 previews.
"""

import argparse
import http.client
import json
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from importlib.resources import as_file, files
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import psutil

from vsrkit import __version__
from vsrkit.models.layers.resample import fitted
from vsrkit.video.encode import write_video
from vsrkit.video.read import open_source

RESULT = Path(__file__).parent / "results" / "studio.json"
VIDEOS, WATCHERS, EVENTS, PREVIEWS = 500, 20, 1000, 100


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--frames", type=int, default=144, help="of the job that is watched")
    options.add_argument("--repeat", type=int, default=2)
    options.add_argument("--only", choices=["listing", "watching", "memory"])
    options.add_argument("--save", action="store_true", help=f"write {RESULT.name}")
    given = options.parse_args()
    result: dict[str, Any] = {"vsrkit": __version__, "machine": platform.machine()}
    if given.only in (None, "listing"):
        result["listing"] = measure_listing()
    if given.only in (None, "watching"):
        result["watching"] = measure_watching(given.frames, given.repeat)
    if given.only in (None, "memory"):
        result["memory"] = measure_memory()
    print(json.dumps(result, indent=2))
    if given.save:
        earlier = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
        RESULT.write_text(json.dumps(earlier | result, indent=2) + "\n", encoding="utf-8")


class Studio:
    """A running server, and requests to it."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = psutil.Process(process.pid)
        self.port = int(address.split(":")[2].split("/")[0])
        answer = self.open(address[address.index("/login") :], cookie="")
        self.cookie = answer.headers["set-cookie"].split(";")[0]

    def open(
        self, path: str, body: object = None, *, cookie: str | None = None
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        headers = {"cookie": self.cookie if cookie is None else cookie}
        connection.request(
            "GET" if body is None else "POST", path, body and json.dumps(body), headers
        )
        return connection.getresponse()

    def get(self, path: str, body: object = None) -> Any:
        with self.open(path, body) as answer:
            return json.loads(answer.read())

    def videos(self) -> list[dict[str, Any]]:
        """All videos, when they are read."""
        while True:
            found = self.get("/api/library")["folders"][0]["videos"]
            if all(video["state"] != "pending" for video in found):
                return found
            time.sleep(0.2)

    def processor_time(self) -> float:
        """Seconds of the server and its workers, without the job."""
        each = [self.process, *self.process.children(recursive=True)]
        mine = [p for p in each if "upscale" not in p.cmdline()]
        return sum(p.cpu_times().user + p.cpu_times().system for p in mine)

    def events(self) -> Iterator[dict[str, Any]]:
        """The jobs in the events, as they arrive."""
        with self.open("/api/events") as stream:
            for line in stream:
                if line.startswith(b"data: ") and b'"progress"' in line:
                    yield json.loads(line.removeprefix(b"data: "))


@contextmanager
def started(folder: Path) -> Iterator[Studio]:
    line = [sys.executable, "-m", "vsrkit", "studio", str(folder), "--no-browser", "--port=0"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Studio(process, process.stdout.readline().split()[-1])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()


@contextmanager
def folder_with(name: str, *, height: int, width: int, count: int) -> Iterator[Path]:
    """A folder with a video of the bundled clip, forwards and backwards."""
    with as_file(files("vsrkit").joinpath("assets", "city.mp4")) as path:
        bundled = [fitted(frame, height, width) for frame in open_source(path).frames()]
    frames = islice(cycle([*bundled, *bundled[-2:0:-1]]), count)
    with tempfile.TemporaryDirectory() as folder:
        write_video(Path(folder) / name, frames, frames_per_second=Fraction(25))
        yield Path(folder)


def measure_listing() -> dict[str, float]:
    """Seconds of requests for the library."""
    with folder_with("0.mp4", height=90, width=160, count=24) as folder:
        for number in range(1, VIDEOS):
            shutil.copy(folder / "0.mp4", folder / f"{number}.mp4")
        result: dict[str, float] = {"videos": VIDEOS}
        with started(folder) as studio:
            result["new_s"] = _seconds_of_listing(studio)
            begin = time.perf_counter()
            studio.videos()
            result["until_all_are_read_s"] = time.perf_counter() - begin
            result["known_s"] = min(_seconds_of_listing(studio) for _ in range(5))
        with started(folder) as studio:
            result["after_restart_s"] = _seconds_of_listing(studio)
    return result


def _seconds_of_listing(studio: Studio) -> float:
    begin = time.perf_counter()
    assert len(studio.get("/api/library")["folders"][0]["videos"]) == VIDEOS
    return time.perf_counter() - begin


def measure_watching(frames: int, repeat: int) -> dict[str, Any]:
    """Seconds of a job alone and watched, and how much work the watchers are."""
    with folder_with("a.mp4", height=90, width=160, count=frames) as folder:
        seconds: dict[int, list[float]] = {0: [], WATCHERS: []}
        share: list[float] = []
        with started(folder) as studio:
            video = next(v["id"] for v in studio.videos() if v["name"] == "a.mp4")
            for watchers in [0, WATCHERS] * repeat:
                spent, ratio = _run_job(studio, video, watchers)
                seconds[watchers].append(spent)
                share += [ratio] if watchers else []
    alone, watched = min(seconds[0]), min(seconds[WATCHERS])
    return {
        "watchers": WATCHERS,
        "frames": frames,
        "alone_s": seconds[0],
        "watched_s": seconds[WATCHERS],
        "slower": watched / alone - 1,
        "processor_time_of_watching": min(share),
    }


def _run_job(studio: Studio, video: str, watchers: int) -> tuple[float, float]:
    """Seconds of a job from its first frame to its last, and the studio's share of its work."""
    wanted = {"video": video, "options": {"model": "vsrt-s"}}
    (job,) = studio.get("/api/jobs", {"jobs": [wanted]})["jobs"]
    path = f"/api/jobs/{job['id']}"
    if watchers:
        _wake_workers(studio)
    for _ in range(watchers):
        threading.Thread(target=_watch, args=[studio, job["id"]], daemon=True).start()
    while (found := studio.get(path))["state"] == "queued" or not _is_upscaling(found):
        time.sleep(0.1)
    begin, before = time.perf_counter(), studio.processor_time()
    (process,) = [p for p in studio.process.children() if "upscale" in p.cmdline()]
    start = own = sum(process.cpu_times()[:2])
    while _is_upscaling(found := studio.get(path)):
        own = sum(process.cpu_times()[:2])
        time.sleep(0.2)
    spent = time.perf_counter() - begin
    share = (studio.processor_time() - before) / (own - start)
    while found["state"] != "done":
        assert found["state"] == "running", found
        time.sleep(0.2)
        found = studio.get(path)
    return spent, share


def _wake_workers(studio: Studio) -> None:
    """Show a finished job: the processes that read videos take seconds to start, once."""
    done = next(j for j in studio.get("/api/jobs")["jobs"] if j["state"] == "done")
    (part,) = studio.get(f"/api/jobs/{done['id']}/parts")["parts"]
    with studio.open(part["clip"]) as answer:
        answer.read()


def _is_upscaling(job: dict[str, Any]) -> bool:
    return (job["progress"] or {}).get("stage") == "upscale"


def _watch(studio: Studio, job: str) -> None:
    """What a page does: it follows the events, and loads each part when it is finished."""
    asked, loaded = 0.0, 0
    for event in studio.events():
        if event["id"] != job or event["state"] == "done":
            if event["id"] == job:
                return
            continue
        if _is_upscaling(event) and time.monotonic() - asked > 2:
            asked = time.monotonic()
            parts = studio.get(f"/api/jobs/{job}/parts").get("parts", [])
            for part in parts[loaded:]:
                with studio.open(part["clip"]) as answer:
                    answer.read()
            loaded = len(parts)


def measure_memory() -> dict[str, Any]:
    """Resident megabytes of the server, as events and previews pass."""
    made = folder_with("a.mp4", height=48, width=64, count=EVENTS + 100)
    with made as folder, started(folder) as studio:
        (video,) = studio.videos()

        def memory() -> float:
            return round(studio.process.memory_info().rss / 1e6, 1)

        def preview() -> None:
            wanted = {"video": video["id"], "time_s": 1, "models": ["bicubic"]}
            made = studio.get("/api/previews", wanted)
            done = studio.get(f"/api/previews/{made['id']}?wait=1")
            assert done["state"] == "done", done
            for picture in (done["source"], done["results"][0]["picture"]):
                with studio.open(picture) as answer:
                    answer.read()

        preview()
        before = memory()
        wanted = {"video": video["id"], "options": {"model": "bicubic"}}
        (job,) = studio.get("/api/jobs", {"jobs": [wanted]})["jobs"]
        while studio.get(f"/api/jobs/{job['id']}")["state"] != "done":
            time.sleep(0.2)
        after_events = memory()
        during = []
        for number in range(PREVIEWS):
            preview()
            during += [memory()] if number % 10 == 9 else []
    return {
        "before_mb": before,
        "after_events_mb": after_events,
        "events": EVENTS,
        "previews": PREVIEWS,
        "during_previews_mb": during,
    }


if __name__ == "__main__":
    main()
