"""Input files of work that runs elsewhere: the same path, an address, or a copy in the cache."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from vsrkit.errors import VideoError
from vsrkit.hardware.files import cache_directory, file_digest, temporary_path

BLOCK = 8 << 20  # bytes that are sent at once
Block: TypeAlias = tuple[int, int, bytes]  # the place of a file in `paths`, an offset, content


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """Files that are read on several machines.

    digest: of their content, see `file_digest`.
    paths: on the machine of the job, absolute.
    address: of a single file for fsspec, such as `s3://bucket/film.mkv`.
    with_names: as for `file_digest`.
    """

    digest: str
    paths: tuple[Path, ...]
    address: str | None = None
    with_names: bool = False

    def locate(self) -> tuple[Path, ...]:
        """The paths of the files on this machine, whose content is checked once per process.

        Raises VideoError if the files are not here, or are others.
        """
        return _located(self, _stamp(self.paths), _stamp(self.copies))

    @property
    def copies(self) -> tuple[Path, ...]:
        """Where this machine keeps copies of the files."""
        folder = cache_directory() / "inputs" / self.digest
        return tuple(folder / path.name for path in self.paths)

    def blocks(self) -> Iterator[Block]:
        """The content for `receive`."""
        for place, path in enumerate(self.paths):
            with path.open("rb") as file:
                offset = 0
                while block := file.read(BLOCK):
                    yield place, offset, block
                    offset += len(block)
                if offset == 0:
                    yield place, 0, b""


@lru_cache(maxsize=64)
def _located(files: SharedFiles, original: object, copy: object) -> tuple[Path, ...]:
    """As `SharedFiles.locate`; sizes and times of the files tell whether they have changed."""
    if original and _is_same(files, files.paths):
        return files.paths
    if copy and _is_same(files, files.copies):
        return files.copies
    if files.address:
        (target,) = files.copies
        fetch(files.address, target)
        if _is_same(files, files.copies):
            return files.copies
        raise VideoError(f"{files.address} has another content here than where the job was begun")
    problem = "has another content" if original else "does not exist"
    raise VideoError(f"{files.paths[0]} {problem} on this machine, and it was not sent here")


def _stamp(paths: Sequence[Path]) -> tuple[tuple[int, int], ...] | None:
    """Sizes and times of files; None if one is missing."""
    try:
        return tuple((s.st_size, s.st_mtime_ns) for s in (path.stat() for path in paths))
    except OSError:
        return None


def _is_same(files: SharedFiles, paths: Sequence[Path]) -> bool:
    return file_digest(paths, with_names=files.with_names) == files.digest


def is_here(files: SharedFiles) -> bool:
    """Whether this machine has the files or can fetch them itself."""
    try:
        files.locate()
    except VideoError:
        return False
    return True


def receive(files: SharedFiles, block: Block) -> None:
    """Write a block of a file that is sent to this machine; its temporary name ends in `.part`."""
    place, offset, content = block
    path = _incoming(files.copies[place])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb" if offset == 0 else "r+b") as file:
        file.seek(offset)
        file.write(content)


def complete(files: SharedFiles) -> bool:
    """Check files that were received and give them their names; returns True."""
    if is_here(files):  # another worker of this machine has completed them
        return True
    incoming = [_incoming(path) for path in files.copies]
    digest = hashlib.blake2b(digest_size=16)
    for path, copy in zip(incoming, files.copies, strict=True):
        if files.with_names:
            digest.update(copy.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    if digest.hexdigest() != files.digest:
        for path in incoming:
            path.unlink()
        raise VideoError(f"{files.paths[0]} was damaged on its way to this machine")
    for path, copy in zip(incoming, files.copies, strict=True):
        path.replace(copy)
    return True


def _incoming(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def fetch_to_cache(address: str) -> Path:
    """A local copy of the file at an address, fetched again if size or version have changed."""
    with _errors_of(address):
        file_system, path = _open_address(address)
        about = file_system.info(path)
        version = {key: str(about[key]) for key in sorted(VERSION & set(about))}
    key = hashlib.blake2b(f"{address} {version}".encode(), digest_size=16).hexdigest()
    target = cache_directory() / "inputs" / key / PurePosixPath(path).name
    if not target.exists():
        fetch(address, target)
    return target


VERSION = {"size", "mtime", "ETag", "etag", "LastModified", "last_modified", "md5", "checksum"}


def fetch(address: str, target: Path) -> None:
    """Copy the file at an address to a path."""
    with _errors_of(address), temporary_path(target, shared=True) as temporary:
        file_system, path = _open_address(address)
        with file_system.open(path, "rb") as remote, temporary.open("wb") as file:
            while block := remote.read(BLOCK):
                file.write(block)


def _open_address(address: str) -> tuple[Any, str]:
    import fsspec  # noqa: PLC0415  only needed here

    file_system, path = fsspec.core.url_to_fs(address)
    return file_system, path


@contextmanager
def _errors_of(address: str) -> Iterator[None]:
    """Raise the errors of fsspec and of its back ends as VideoError."""
    try:
        yield
    except ImportError as error:  # fsspec names the package that it needs for this protocol
        raise VideoError(f"cannot read {address}: {error}") from error
    except Exception as error:
        # Every back end has its own exceptions. That of HTTP names only the address, but its cause.
        cause = error.__cause__ or error
        reason = " ".join(str(cause).split()) or type(cause).__name__
        raise VideoError(f"cannot read {address}: {reason}") from error
