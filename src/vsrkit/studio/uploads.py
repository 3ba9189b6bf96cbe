"""Uploads: files that arrive piece by piece under a hidden name, then become videos of a folder."""

import asyncio
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vsrkit.hardware.files import sync_file
from vsrkit.hardware.memory import format_size
from vsrkit.studio.api.answers import shown
from vsrkit.studio.errors import RequestError, UnknownError
from vsrkit.studio.folders import check_name, free_name, identify
from vsrkit.video.probe import VIDEO_SUFFIXES, is_video

MOST_UPLOADS = 200  # that are unfinished
KEPT_S = 7 * 24 * 3600.0  # seconds after which an unfinished upload is discarded
BLOCK = 1 << 20  # bytes that are written at once
SPARE = 256 << 20  # bytes that stay free on the disk


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is being uploaded.

    name: that was declared; that of the video may have a number.
    key: by which the page finds it again; None for no key.
    path: of what has arrived; of the video when all has.
    video: its id in the library when all has arrived.
    """

    id: str
    name: str
    size: int
    key: str | None
    path: Path
    video: str | None = None

    @property
    def offset(self) -> int:
        """How many bytes have arrived."""
        if self.video is not None:
            return self.size
        return self.path.stat().st_size if self.path.exists() else 0

    def as_json(self) -> dict[str, Any]:
        """The upload as pages see it."""
        return {
            "id": self.id,
            "name": shown(self.path.name if self.video is not None else self.name),
            "size": self.size,
            "offset": self.offset,
            "video": self.video,
        }


class Uploads:
    """The unfinished uploads, and the finished ones of this run of the server."""

    def __init__(
        self, folder: Path, parts: Path, database: sqlite3.Connection, largest: int
    ) -> None:
        """Read the list of uploads; discard old ones, and files that belong to none.

        folder: that receives the videos.
        parts: folder of unfinished ones, on the same file system.
        database: has the list.
        largest: bytes of the largest upload.
        """
        self._folder, self._parts, self._database = folder, parts, database
        self._largest = largest
        database.execute("DELETE FROM uploads WHERE created < ?", [time.time() - KEPT_S])
        rows = database.execute("SELECT id, name, size, key FROM uploads ORDER BY created")
        uploads = [Upload(row[0], row[1], row[2], row[3], parts / row[0]) for row in rows]
        self._uploads = {upload.id: upload for upload in uploads}
        self._locks: dict[str, asyncio.Lock] = {}
        self._writers: dict[str, object] = {}  # the request that may write, by upload
        for path in parts.iterdir():
            if path.name not in self._uploads:
                path.unlink()
        for upload in self.unfinished():
            if upload.offset == upload.size:  # the server ended just before it became a video
                self._keep(_move(upload, folder))

    def unfinished(self) -> list[Upload]:
        """The uploads that are not videos yet."""
        return [upload for upload in self._uploads.values() if upload.video is None]

    def upload(self, number: str) -> Upload:
        """An upload by its id."""
        if number not in self._uploads:
            raise UnknownError("upload")
        return self._uploads[number]

    def declare(self, name: str, size: int, key: str | None) -> Upload:
        """An upload for a file: the one with these values, or a new one.

        It may be finished: the answer to its last bytes can be lost, and two pages can send a file.

        name: of the file.
        size: of the file in bytes.
        key: None always makes a new one.
        """
        for upload in self._uploads.values():
            same = key is not None and (upload.name, upload.size, upload.key) == (name, size, key)
            if same and (upload.video is None or upload.path.is_file()):
                return upload
        self._check(name, size)
        number = secrets.token_hex(8)
        upload = Upload(number, name, size, key, self._parts / number)
        self._database.execute(
            "INSERT INTO uploads VALUES (?, ?, ?, ?, ?)", [number, name, size, key, time.time()]
        )
        self._uploads[number] = upload
        return upload

    def _check(self, name: str, size: int) -> None:
        """Raise RequestError if a file of this name and size is not accepted."""
        check_name(name)
        if not is_video(Path(name)):
            known = ", ".join(sorted(VIDEO_SUFFIXES))
            raise RequestError(415, f"this is not the name of a video; it must end in {known}")
        if size > self._largest:
            limit = format_size(self._largest)
            raise RequestError(413, f"the file is larger than {limit}, the limit of --max-upload")
        waiting = self.unfinished()
        if len(waiting) >= MOST_UPLOADS:
            raise RequestError(409, f"{MOST_UPLOADS} uploads are unfinished; discard some of them")
        awaited = sum(upload.size - upload.offset for upload in waiting)
        if size + awaited + SPARE > shutil.disk_usage(self._parts).free:
            raise RequestError(507, f"the disk has no room for {format_size(size)}")

    async def write(
        self, number: str, offset: int, length: int | None, chunks: AsyncIterator[bytes]
    ) -> Upload:
        """Append what arrives to an upload; it becomes a video when it is complete.

        A later request takes over from an earlier one, whose connection may be dead.

        number: id of the upload.
        offset: of the first byte; must be the number of bytes that have arrived.
        length: how many bytes will arrive; None if the request does not say.
        chunks: the bytes. If they end with an error, those before it are kept.
        """
        writer = object()
        async with self._lock(number):
            self._begin(number, offset, length)
            self._writers[number] = writer
        block, arrived = bytearray(), offset
        try:
            async for chunk in chunks:
                arrived += len(chunk)
                if arrived > self.upload(number).size:
                    block.clear()
                    await self._cut_off(number, writer, offset)
                block += chunk
                if len(block) >= BLOCK:
                    await self._append(number, writer, block)
        finally:
            await self._append(number, writer, block, last=True)
        return self.upload(number)

    def _begin(self, number: str, offset: int, length: int | None) -> None:
        upload = self.upload(number)
        if upload.video is not None or offset != upload.offset:
            wrong = f"the next byte of this upload is {upload.offset}, not {offset}"
            raise RequestError(409, wrong, offset=upload.offset)
        if length is not None and length > upload.size - offset:
            raise _too_much(upload)

    async def _append(
        self, number: str, writer: object, block: bytearray, *, last: bool = False
    ) -> None:
        """Write a block and empty it; after the last one of a file, the upload is a video."""
        async with self._lock(number):
            upload = self._of_writer(number, writer)
            content = bytes(block)
            block.clear()  # also if the disk is full: what was written of it counts
            if content:
                await asyncio.to_thread(_write, upload.path, content)
            if last and upload.offset == upload.size:
                self._keep(await asyncio.to_thread(_move, upload, self._folder))

    async def _cut_off(self, number: str, writer: object, offset: int) -> None:
        """Drop everything that a request has written, because it sends too much."""
        async with self._lock(number):
            upload = self._of_writer(number, writer)
            if upload.path.exists():
                os.truncate(upload.path, offset)
        raise _too_much(upload)

    def _of_writer(self, number: str, writer: object) -> Upload:
        upload = self.upload(number)
        if self._writers.get(number) is not writer:
            text = "another request continues this upload"
            raise RequestError(409, text, offset=upload.offset)
        return upload

    def _keep(self, upload: Upload) -> None:
        """Note that an upload has become a video."""
        self._uploads[upload.id] = upload
        self._database.execute("DELETE FROM uploads WHERE id = ?", [upload.id])

    async def discard(self, number: str) -> None:
        """Forget an upload; if it is unfinished, delete what has arrived."""
        async with self._lock(number):
            upload = self._uploads.pop(number)
            del self._locks[number]
            self._writers.pop(number, None)
            self._database.execute("DELETE FROM uploads WHERE id = ?", [number])
            if upload.video is None:
                upload.path.unlink(missing_ok=True)

    def _lock(self, number: str) -> asyncio.Lock:
        self.upload(number)
        return self._locks.setdefault(number, asyncio.Lock())


def _too_much(upload: Upload) -> RequestError:
    return RequestError(413, f"this is more than the declared {upload.size} bytes")


def _write(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def _move(upload: Upload, folder: Path) -> Upload:
    """Give a complete file its name, or one with a number if there is such a file."""
    sync_file(upload.path)
    target = folder / upload.name
    while True:
        target = free_name(target)
        try:
            target.open("xb").close()  # takes the name: a rename alone could replace a file
        except FileExistsError:
            continue
        upload.path.replace(target)
        return replace(upload, path=target, video=identify(target))
