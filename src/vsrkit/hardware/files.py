"""The cache folder, hashes of files, and writes that are renamed when they are complete."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from platformdirs import user_cache_path

from vsrkit.errors import VideoError


def cache_directory() -> Path:
    """$VSRKIT_CACHE if set, else the user's cache folder (~/.cache/vsrkit on Linux)."""
    own = os.environ.get("VSRKIT_CACHE")
    return Path(own) if own else user_cache_path("vsrkit", appauthor=False, opinion=False)


def write_atomically(
    path: Path, content: str | bytes | Iterable[bytes], *, sync: bool = False, shared: bool = False
) -> None:
    """Write a file atomically: if writing fails, `path` keeps its old content.

    path: the file; missing parent folders are created.
    content: text (written as UTF-8), bytes, or chunks of bytes written one after the other.
    sync, shared: as for `temporary_path`.
    """
    if isinstance(content, str):
        content = content.encode()
    with temporary_path(path, sync=sync, shared=shared) as temporary, temporary.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)


@contextmanager
def temporary_path(path: Path, *, sync: bool = False, shared: bool = False) -> Iterator[Path]:
    """A path in the same folder to write to, renamed to `path` when the block ends.

    If the block raises, the temporary file is deleted and `path` is left as it was. Temporary names
    end in `.part`; libraries that choose a format by suffix must be told the format.

    path: the final name; missing parent folders are created.
    sync: flush the file to disk before renaming, so that it survives a power failure.
    shared: several processes may write `path` at the same time; each uses its own temporary name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    process = f".{os.getpid()}" if shared else ""
    temporary = path.with_name(f"{path.name}{process}.part")
    try:
        yield temporary
        if sync:
            sync_file(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync_file(path: Path) -> None:
    """Flush a closed file to disk."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def file_digest(paths: Sequence[Path], *, with_names: bool = False) -> str:
    """A hash of the content of files, in their order.

    with_names: hash the names too, which decide the order of images.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        if with_names:
            digest.update(path.name.encode())
        try:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise VideoError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()


def is_address(text: str | Path) -> bool:
    """Whether text is an address for fsspec, such as `s3://bucket/film.mkv`, and not a path."""
    return "://" in str(text)
