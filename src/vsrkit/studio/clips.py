"""Clips: videos and parts in a form that browsers play, made when they are asked for."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vsrkit.studio.workers import Worker

KEPT = 8 << 30  # bytes of clips on disk; of more, the oldest are deleted
MOST_KNOWN = 1000  # clips whose path is remembered


class Clips:
    """A folder of clips."""

    def __init__(self, folder: Path, worker: Worker) -> None:
        """Delete what a server that was killed has left unfinished.

        folder: holds nothing else.
        worker: makes the clips.
        """
        self._folder, self._worker = folder, worker
        self._known: dict[str, Path] = {}
        self._making: dict[str, asyncio.Task[Path]] = {}
        for path in folder.glob("*.part"):
            path.unlink()

    async def find(self, key: str, make: Callable[[Path], Path]) -> Path:
        """The file of a clip; if many ask for it at once, it is made once.

        key: a file name without suffix; another one for each version of a clip.
        make: writes the clip to this path with a suffix, or chooses an existing file; picklable.
        """
        path = self._known.get(key)
        if path is not None and path.is_file():
            if path.parent == self._folder:
                path.touch()
            return path
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.create_task(self._make(key, make))
            task.add_done_callback(lambda _: self._making.pop(key))
        return await asyncio.shield(task)

    async def _make(self, key: str, make: Callable[[Path], Path]) -> Path:
        path = await self._worker.call(make, self._folder / key)
        self._known[key] = path
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        await asyncio.to_thread(self._delete_oldest, path)
        return path

    def _delete_oldest(self, newest: Path) -> None:
        """Delete clips that were not used for long, but not the newest one, until the rest fits."""
        with suppress(OSError):
            used = sorted((path.stat().st_mtime, path) for path in self._folder.iterdir())
            total = sum(path.stat().st_size for _, path in used)
            for _, path in used:
                if total > KEPT and path != newest:
                    total -= path.stat().st_size
                    path.unlink()
