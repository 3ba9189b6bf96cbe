"""The folders of videos that were given, and the rule that nothing outside of them is touched."""

import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from vsrkit.errors import VsrkitError
from vsrkit.studio.errors import RequestError
from vsrkit.video.probe import is_video

MOST_VIDEOS = 10_000  # listed of one folder
DEEPEST = 16  # levels of subfolders
SCAN_S = 20.0  # seconds spent on one folder at most
LONGEST_NAME = 200  # bytes; with the names of parts and work folders below the limit of systems


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of videos."""

    id: str
    path: Path  # without symbolic links
    uploads: bool  # whether it receives uploads


@dataclass(frozen=True, slots=True)
class VideoFile:
    """A file in a folder, as it was when the folder was read."""

    id: str
    folder: Folder
    path: Path
    size: int
    mtime_ns: int

    @property
    def place(self) -> Path:
        """The subfolder, relative to the folder."""
        return self.path.parent.relative_to(self.folder.path)


def open_folders(paths: Sequence[Path]) -> tuple[Folder, ...]:
    """The folders of the command line; the first one receives uploads."""
    resolved = []
    for path in paths:
        if not path.is_dir():
            raise VsrkitError(f"{path} is not a folder; name folders with videos")
        resolved.append(path.resolve())
    unique = dict.fromkeys(resolved)
    for path in unique:
        if outer := next((other for other in unique if other in path.parents), None):
            raise VsrkitError(f"{path} is inside {outer}; leave one of them out")
    return tuple(
        Folder(f"f{number}", path, uploads=number == 0) for number, path in enumerate(unique)
    )


def identify(path: Path) -> str:
    """The identifier of a file: the same in every run of the server."""
    return blake2b(os.fsencode(path), digest_size=8).hexdigest()


def list_videos(folder: Folder) -> tuple[list[VideoFile], bool]:
    """The videos of a folder and its subfolders, and whether there are more than these.

    Hidden files, hidden folders and symbolic links are left out.
    """
    found: list[VideoFile] = []
    end = time.monotonic() + SCAN_S
    for entry in _files(str(folder.path), DEEPEST):
        if len(found) >= MOST_VIDEOS or time.monotonic() > end:
            return found, True
        path = Path(entry.path)
        if is_video(path):
            about = entry.stat(follow_symlinks=False)
            found.append(VideoFile(identify(path), folder, path, about.st_size, about.st_mtime_ns))
    return found, False


def _files(path: str, levels: int) -> Iterator[os.DirEntry[str]]:
    folders = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry
    except OSError:  # not readable, or deleted meanwhile
        return
    for inner in folders if levels else ():
        yield from _files(inner, levels - 1)


def folder_of(path: Path, folders: Sequence[Folder]) -> Folder | None:
    """The folder in which a path is, also after symbolic links are followed; None if in none."""
    real = Path(os.path.realpath(path))
    if real != path:  # a folder was replaced by a link after it was listed
        return None
    return next((folder for folder in folders if folder.path in path.parents), None)


def is_regular(path: Path) -> bool:
    """Whether there is a file at a path that is no symbolic link and no device."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def check_name(name: str) -> str:
    """A name for a new file, without any folder; raises RequestError for others."""
    bad = (
        not name
        or name.startswith(".")
        or name != name.strip()
        or any(sign in "/\\" or not sign.isprintable() for sign in name)
        or len(os.fsencode(name)) > LONGEST_NAME
    )
    if bad:
        raise RequestError(
            400,
            "this name cannot be used: it must be a visible file name without a folder, of at most "
            f"{LONGEST_NAME} bytes",
        )
    return name


def free_name(path: Path, taken: Sequence[Path] = ()) -> Path:
    """A path that does not exist, with a number before the suffix if needed: a-2.mp4.

    taken: further paths that are in use, such as outputs of waiting jobs.
    """
    number, candidate = 1, path
    while candidate in taken or os.path.lexists(candidate):
        number += 1
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return candidate
