"""Small jobs that are killed or fail at a chosen point, and what must hold afterwards."""

import errno
import json
import logging
import os
import resource
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import torch
from tests.clips import noise_picture, write_clip, write_rich_clip
from tests.forked import run_forked

from vsrkit import UpscaleOptions, upscale_video
from vsrkit.errors import VsrkitError
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.zoo import save_model
from vsrkit.upscale import produce
from vsrkit.upscale.work_folder import WorkFolder

FRAMES = {"film.mkv": 27, "rich.mkv": 20}
PART_FRAMES = 8  # four parts of a film of 27 frames
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
KINDS = {  # source, output, options
    "video": ("film.mkv", "out.mkv", {}),
    "sound": ("rich.mkv", "out.mp4", {}),
    "webm": ("film.mkv", "out.webm", {"scale": 1}),
    "images": ("film.mkv", "pictures", {"scale": 2}),
    "replaced": ("film.mkv", "old", {"scale": 2, "overwrite": True}),
    "pattern": ("film.mkv", "frames/%03d.png", {"scale": 1}),
    "carried": ("film.mkv", "out.mkv", {"model": "carried.safetensors", "chunk": 2}),
}


@dataclass(frozen=True)
class Fault:
    """What happens to a job.

    kind: `kill` before a numbered point, `torn` for a kill within a write, `time` for a kill after
        so many seconds, `error` for an error at a numbered point, `full` for an error within a
        write.
    at: number of the point, bytes of a file, or seconds.
    error: of `error`.
    """

    kind: str
    at: float
    error: int = errno.ENOSPC


class Jobs:
    """Sources, the whole output of every kind of job, and the number of its points."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pictures = [noise_picture(n // 9 * 1000 + n % 9, 16, 16, smooth=True) for n in range(27)]
        times = [40 * n + n % 2 for n in range(27)]
        write_clip(
            folder / "film.mkv", width=16, height=16, pictures=pictures, times=times,
            time_base="1/1000",
        )  # fmt: skip
        write_rich_clip(folder / "rich.mkv", frames=20)
        torch.manual_seed(0)
        save_model(folder / "carried.safetensors", RRN(RRNConfig(channels=8, blocks=1)))
        self.whole: dict[str, dict[str, bytes]] = {}
        self.points: dict[str, list[str]] = {}
        for kind in KINDS:
            place = folder / kind
            self.prepare(kind, place)
            self.run(kind, place)
            self.whole[kind] = contents(place / "made")
            self.points[kind] = json.loads((place / "points.json").read_text())

    def prepare(self, kind: str, place: Path) -> None:
        """A folder for a job; `made` in it holds what was there before the job."""
        (place / "made").mkdir(parents=True)
        if kind == "replaced":
            (place / "made" / "old").mkdir()
            for name in ("00000001.png", "zzz.png"):  # one that is replaced, one that is deleted
                (place / "made" / "old" / name).write_bytes(b"old")

    def run(self, kind: str, place: Path, fault: Fault | None = None, **limits):
        """Run a job in a fork; how it ended. Its result and its points are written as JSON."""
        source = limits.pop("source", self.folder / KINDS[kind][0])
        return run_forked(lambda: self._run(kind, place, fault, source), place, **limits)

    def _run(self, kind, place, fault, source):
        produce.PART_FRAMES = PART_FRAMES
        _, target, options = KINDS[kind]
        given = {"model": "bicubic", "precision": "float32", "max_memory": "2G"} | options
        if "model" in options:
            given["model"] = self.folder / options["model"]
        points: list[str] = []
        logging.getLogger("vsrkit").addHandler(logging.NullHandler())  # see `disarm`
        arm(place / "made", fault, points)
        try:
            done = upscale_video(source, place / "made" / target, options=UpscaleOptions(**given))
        except VsrkitError as error:
            disarm()
            sys.stderr.write(f"vsrkit: {' '.join(str(error).split())}\n")
            return 1
        disarm()
        (place / "points.json").write_text(json.dumps(points))
        (place / "result.json").write_text(json.dumps({"resumed": done.resumed}))
        return 0

    def finish(self, kind: str, place: Path) -> list[str]:
        """Run a job again without a fault; what is wrong with that, empty if nothing is."""
        faults = self.check(kind, place)
        finished = self.finished_frames(kind, place)
        complete = contents(place / "made") == self.whole[kind]
        ended = self.run(kind, place)
        if complete and ended.code == 1 and "--overwrite" in ended.errors:
            return faults  # killed when all was done: the output is not replaced
        if ended.code != 0:
            return [*faults, f"running again ends with {ended.code}: {ended.errors}"]
        resumed = json.loads((place / "result.json").read_text())["resumed"]
        if resumed < finished:
            faults.append(f"only {resumed} of {finished} finished frames were kept")
        if contents(place / "made") != self.whole[kind]:
            faults.append("running again gives other bytes or leaves files behind")
        return faults

    def check(self, kind: str, place: Path) -> list[str]:
        """What a fault must not have done: something partial under the output's name."""
        whole, found = self.whole[kind], contents(place / "made")
        return [
            f"{name} is partial"
            for name, content in found.items()
            if ".vsrkit/" not in name and content not in (whole.get(name), b"old")
            and not name.endswith(".part")
        ]  # fmt: skip

    def finished_frames(self, kind: str, place: Path) -> int:
        """Frames of the parts that are finished."""
        target = place / "made" / KINDS[kind][1]
        work = WorkFolder.beside(target.parent if "%" in target.name else target)
        done = PART_FRAMES * len(list(work.path.glob("part-*.json")))  # at least; the last has less
        return min(done, FRAMES[KINDS[kind][0]])


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its name; locks and empty folders do not count."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


_armed: list[bool] = []


def arm(folder: Path, fault: Fault | None, points: list[str]) -> None:
    """Let the fault happen in this process, and collect the names of the points it passes.

    A point is every change of the file system below `folder` by Python. What FFmpeg writes has no
    points; `torn`, `full` and `time` reach it.
    """
    _armed.append(True)
    if fault and fault.kind == "time":
        timer = threading.Timer(fault.at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    if fault and fault.kind in ("torn", "full"):
        # The system sends SIGXFSZ within the write that passes the limit, which kills; ignored,
        # the write fails.
        kill = fault.kind == "torn"
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kill else signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(fault.at), hard))
    lock = threading.RLock()

    def at_point(name: str) -> None:
        with lock:
            points.append(name)
            if fault is None or len(points) != fault.at + 1:
                return
            if fault.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault.kind == "error":
                raise OSError(fault.error, os.strerror(fault.error))

    def hook(event: str, arguments: tuple) -> None:
        if not _armed:
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if (writes or event in EVENTS) and str(arguments[0]).startswith(str(folder)):
            at_point(f"{event} {Path(str(arguments[0])).name}")

    sys.addaudithook(hook)
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        if _armed:
            at_point("fsync")
        plain(descriptor)

    os.fsync = fsync


def disarm() -> None:
    """No more points and no limit, which would count for standard error too: the job is done."""
    _armed.clear()
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
