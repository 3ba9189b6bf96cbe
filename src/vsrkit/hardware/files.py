"""The cache folder, and atomic writes: to a temporary name first, renamed when complete."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from platformdirs import user_cache_path


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
