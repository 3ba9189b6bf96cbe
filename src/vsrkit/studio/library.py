"""The videos of the given folders, what is known of them, and the work of finding that out."""

import asyncio
import json
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vsrkit.errors import VsrkitError
from vsrkit.studio import media
from vsrkit.studio.api.answers import shown
from vsrkit.studio.errors import RequestError, UnknownError
from vsrkit.studio.events import Events
from vsrkit.studio.folders import (
    Folder,
    VideoFile,
    folder_of,
    identify,
    is_regular,
    list_videos,
)
from vsrkit.studio.state_folder import StateFolder
from vsrkit.studio.workers import Worker, WorkerError

LOOK_S = 15.0  # seconds between looks for new files while a page is open


@dataclass(slots=True)
class Known:
    """What is known of a version of a file; None for what is not known yet."""

    size: int
    mtime_ns: int
    info: dict[str, Any] | None = None
    error: str | None = None
    remarks: list[str] | None = None
    strip: dict[str, Any] | None = None

    def matches(self, file: VideoFile) -> bool:
        """Whether this is about the file as it is now."""
        return (self.size, self.mtime_ns) == (file.size, file.mtime_ns)


class Library:
    """Lists videos, from memory and the database; a worker reads those that are new."""

    def __init__(
        self,
        folders: Sequence[Folder],
        state: StateFolder,
        database: sqlite3.Connection,
        worker: Worker,
        events: Events,
    ) -> None:
        self.folders = folders
        self._state, self._database, self._worker, self._events = state, database, worker, events
        self._files: dict[str, VideoFile] = {}
        self._truncated: set[str] = set()
        self._known = _load(database)
        self._unread: deque[str] = deque()  # ids of videos whose properties are to be read
        self._unchecked: deque[str] = deque()  # and of those whose remarks are missing
        self._work = asyncio.Event()
        self.job_of: Callable[[Path], str | None] = lambda _: None  # set by the queue's owner

    async def refresh(self) -> None:
        """Read the folders again."""
        files: dict[str, VideoFile] = {}
        truncated = set()
        for folder in self.folders:
            videos, more = await asyncio.to_thread(list_videos, folder)
            files |= {video.id: video for video in videos}
            truncated |= {folder.id} if more else set()
        changed = files.keys() != self._files.keys()
        self._files, self._truncated = files, truncated
        self._plan_work()
        if changed:
            self._events.publish("library", {})

    def _plan_work(self) -> None:
        self._unread.clear()
        self._unchecked.clear()
        for video, file in self._files.items():
            known = self._known.get(video)
            if known is None or not known.matches(file):
                self._known[video] = known = Known(file.size, file.mtime_ns)
            if known.error is not None:
                continue
            if known.info is None:
                self._unread.append(video)
            elif known.remarks is None:
                self._unchecked.append(video)
        self._work.set()

    def file(self, video: str) -> VideoFile:
        """A video of the last look; raises RequestError if it is gone or no longer inside."""
        file = self._files.get(video)
        if file is None or not is_regular(file.path) or folder_of(file.path, self.folders) is None:
            raise UnknownError("video")
        return file

    def find(self, path: Path) -> str | None:
        """The id of a video by its path; None if it is not in the library."""
        video = identify(path)
        return video if video in self._files else None

    def readable(self, video: str) -> VideoFile:
        """A video; raises RequestError if it is known that it cannot be read."""
        file = self.file(video)
        error = self._known[video].error
        if error is not None:
            raise RequestError(422, error)
        return file

    def known(self, video: str) -> dict[str, Any]:
        """The properties of a video; raises RequestError if it cannot be read."""
        known = self._known[self.readable(video).id]
        if known.info is None:
            raise RequestError(409, "this video has not been read yet; try again in a moment")
        return known.info

    def as_json(self) -> dict[str, Any]:
        """All folders with their videos."""
        listed: dict[str, list[dict[str, Any]]] = {folder.id: [] for folder in self.folders}
        for file in sorted(self._files.values(), key=lambda file: str(file.path).casefold()):
            listed[file.folder.id].append(self.video(file))
        return {
            "folders": [
                describe_folder(folder)
                | {"truncated": folder.id in self._truncated, "videos": listed[folder.id]}
                for folder in self.folders
            ]
        }

    def video(self, file: VideoFile) -> dict[str, Any]:
        """One video."""
        known = self._known[file.id]
        state = "broken" if known.error is not None else "ready" if known.info else "pending"
        version = file.mtime_ns // 1_000_000
        return {
            "id": file.id,
            "folder": file.folder.id,
            "name": shown(file.path.name),
            "place": "" if file.place == Path() else shown(file.place.as_posix()),
            "size": file.size,
            "modified": file.mtime_ns / 1e9,
            "state": state,
            "error": known.error,
            "info": known.info,
            "remarks": known.remarks,
            "thumbnail": f"/api/videos/{file.id}/thumbnail?v={version}" if known.info else None,
            "job": self.job_of(file.path),
        }

    async def strip(self, video: str, worker: Worker) -> dict[str, Any]:
        """The shots or moments of a video.

        video: its id.
        worker: finds the shots if they are not known.
        """
        file = self.file(video)
        self.known(video)
        known = self._known[video]
        if known.strip is None:
            known.strip = await worker.call(media.strip, file.path)
            self._store(video)
        shots = [
            shot | {"picture": f"/api/videos/{video}/frame?t={shot['time_s']}&width=240"}
            for shot in known.strip["shots"]
        ]
        return known.strip | {"shots": shots}

    async def read_new_videos(self) -> None:
        """Read properties and remarks of new videos, for ever."""
        while True:
            if self._unread:
                video = self._unread.popleft()
                thumbnail = self._state.thumbnail(video)
                await self._read(video, "info", partial(media.inspect, thumbnail=thumbnail))
            elif self._unchecked:
                await self._read(self._unchecked.popleft(), "remarks", media.remarks)
            else:
                self._work.clear()
                await self._work.wait()

    async def _read(self, video: str, field: str, read: Callable[[Path], Any]) -> None:
        file = self._files.get(video)
        known = self._known.get(video)
        if file is None or known is None or not is_regular(file.path):
            return
        lasting = True
        try:
            setattr(known, field, await self._worker.call(read, file.path))
        except (VsrkitError, OSError, ArithmeticError, ValueError, RuntimeError) as error:
            text = " ".join(str(error).split()).replace(f"{file.path}", file.path.name)
            if field == "remarks":
                known.remarks = [f"not checked: {text}"]
            else:
                known.error = shown(text) or type(error).__name__
            lasting = not isinstance(error, WorkerError | OSError)  # else tried after a restart
        if lasting:
            self._store(video)
        if known.info is not None and known.remarks is None:
            self._unchecked.append(video)
        if self._files.get(video) == file:
            self._events.publish("video", self.video(file), video)

    async def look_for_changes(self) -> None:
        """Read the folders every few seconds while a page is open, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._events.pages:
                with suppress(OSError):
                    await self.refresh()

    def _store(self, video: str) -> None:
        known = self._known[video]
        values = [
            None if value is None else json.dumps(value)
            for value in (known.info, known.error, known.remarks, known.strip)
        ]
        with suppress(sqlite3.Error):  # a full disk; what is not stored is read again
            self._database.execute(
                "INSERT OR REPLACE INTO videos VALUES (?, ?, ?, ?, ?, ?, ?)",
                [video, known.size, known.mtime_ns, *values],
            )


def _load(database: sqlite3.Connection) -> dict[str, Known]:
    def value(text: str | None) -> Any:
        return None if text is None else json.loads(text)

    rows = database.execute("SELECT id, size, mtime_ns, info, error, remarks, strip FROM videos")
    return {
        video: Known(size, mtime_ns, *map(value, texts)) for video, size, mtime_ns, *texts in rows
    }


def describe_folder(folder: Folder) -> dict[str, Any]:
    """A folder as the session and the library show it."""
    return {
        "id": folder.id,
        "name": shown(folder.path.name or str(folder.path)),
        "path": shown(folder.path),
        "uploads": folder.uploads,
    }
