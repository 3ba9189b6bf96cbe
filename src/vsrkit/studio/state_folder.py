"""The hidden folder of the studio in the first folder of videos: database, pictures, logs."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from vsrkit.errors import VsrkitError

NAME = ".vsrkit-studio"
VERSION = 1  # of the tables
TABLES = """
CREATE TABLE IF NOT EXISTS tokens (hash TEXT PRIMARY KEY, expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (hash TEXT PRIMARY KEY, expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS videos (
    id TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    info TEXT, error TEXT, remarks TEXT, strip TEXT
);
CREATE TABLE IF NOT EXISTS uploads (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, size INTEGER NOT NULL, key TEXT, created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, position REAL NOT NULL, value TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS queue (paused INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Paths in the folder."""

    path: Path

    @classmethod
    def of(cls, folder: Path) -> "StateFolder":
        """The one of a folder of videos; created if it is missing."""
        path = folder / NAME
        try:
            for part in (path, *(path / name for name in ("thumbnails", "uploads", "clips"))):
                part.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise VsrkitError(
                f"cannot write {path}: {error.strerror}; "
                "name a folder first in which files can be created"
            ) from error
        return cls(path)

    @property
    def uploads(self) -> Path:
        """Folder of unfinished uploads."""
        return self.path / "uploads"

    @property
    def clips(self) -> Path:
        """Folder of videos and parts in a form that browsers play."""
        return self.path / "clips"

    @property
    def previews(self) -> Path:
        """Folder of the pictures of previews."""
        return self.path / "previews"

    def thumbnail(self, video: str) -> Path:
        """The thumbnail of a video, by its id."""
        return self.path / "thumbnails" / f"{video}.jpg"

    def job(self, number: str) -> Path:
        """The folder of a job: its log and its report."""
        return self.path / "jobs" / number

    def manifest(self, number: str) -> Path:
        """A copy of the manifest of a job's work folder."""
        return self.job(number) / "manifest.json"

    def report(self, number: str) -> Path:
        """The fidelity report of a job."""
        return self.job(number) / "report.html"

    def remove_job(self, number: str) -> None:
        """Delete the folder of a job."""
        shutil.rmtree(self.job(number), ignore_errors=True)

    def open_database(self) -> sqlite3.Connection:
        """Open the database; every statement is a transaction of its own."""
        # No write-ahead log: it does not work on network drives, where videos often are.
        database = sqlite3.connect(
            self.path / "studio.sqlite", timeout=10, isolation_level=None, check_same_thread=True
        )
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found not in (0, VERSION):
            raise VsrkitError(
                f"{self.path} was written by another version of vsrkit; use that version, or "
                "delete the folder, which forgets the queue and keeps all videos"
            )
        database.executescript(f"{TABLES} PRAGMA user_version = {VERSION};")
        return database

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other servers away; the system releases the lock of a killed process."""
        try:
            with FileLock(self.path / "lock", timeout=0):
                yield
        except Timeout as error:
            raise VsrkitError(
                f"a studio is already running in {self.path.parent}; "
                "`vsrkit studio url` prints its address"
            ) from error
