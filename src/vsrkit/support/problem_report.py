"""The file that `--debug` writes for a problem report: facts about a run without private names."""

import json
import logging
import platform
import re
import sys
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import av

import vsrkit
from vsrkit.errors import VsrkitError
from vsrkit.hardware.files import cache_directory, write_atomically
from vsrkit.hardware.memory import format_size, free_memory
from vsrkit.support.doctor import PACKAGES, available_cores, instruction_sets, processor_name
from vsrkit.video.probe import probe

LOG_LINES = 200  # the last ones are kept
# What follows a slash, up to what cannot be in a plain path.
ABSOLUTE = re.compile(r"(?<![\w.<>~/])(?:[A-Za-z]:)?[/\\](?:[^\s'\":,;()<>|]+[/\\])+")


class Names:
    """Replaces the names of a user's files and folders by numbers."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._replaced: dict[str, str] = {
            str(Path(vsrkit.__file__).parent): "<vsrkit>",
            sys.prefix: "<python>",
            sys.base_prefix: "<python>",
            str(Path.home()): "<home>",
        }
        for number, text in enumerate(dict.fromkeys(filter(_is_path, arguments)), 1):
            path = Path(text)
            short = f"<file {number}>{path.suffix if len(path.suffix) < 8 else ''}"
            self._replaced |= {text: short, str(path.absolute()): short, path.name: short}
            self._replaced[str(path.absolute().parent)] = f"<folder {number}>"
        self._longest_first = sorted(self._replaced, key=len, reverse=True)

    def shorten(self, value: Any) -> Any:
        """Text, or JSON with texts, without private names."""
        if isinstance(value, dict):
            return {key: self.shorten(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.shorten(inner) for inner in value]
        if not isinstance(value, str):
            return value
        for name in self._longest_first:
            if len(name) > 2:
                value = value.replace(name, self._replaced[name])
        # Files in a folder that was named: only their suffix is kept.
        value = re.sub(r"(<(?:file|folder) \d+>)[/\\][^\s'\":,;()]*?(\.\w{1,6})?(?=[\s'\":,;()]|$)",
                       r"\1/...\2", value)  # fmt: skip
        return ABSOLUTE.sub(".../", value)


def _is_path(argument: str) -> bool:
    """Whether an argument may name a file: not an option, a number or a word such as `bicubic`."""
    if argument.startswith("-"):
        return False
    return "/" in argument or "\\" in argument or "." in argument or Path(argument).exists()


class ProblemReport:
    """Collects what a report needs while a command runs."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = list(arguments)
        self._names = Names([part for text in arguments for part in (text, text.split("=", 1)[-1])])
        self._log: deque[str] = deque(maxlen=LOG_LINES)

    @contextmanager
    def collect_log(self) -> Iterator[None]:
        """Keep the last lines of the log inside the block."""
        handler = _LastLines(self._log)
        log = logging.getLogger("vsrkit")
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)

    def write(self, error: BaseException | None) -> Path:
        """Write the report into the cache folder and return its path.

        error: what ended the command; None after success.
        """
        content = json.dumps(self._names.shorten(self._content(error)), indent=1)
        time = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        path = cache_directory() / "reports" / f"vsrkit-{time}.json"
        write_atomically(path, content + "\n")
        return path

    def _content(self, error: BaseException | None) -> dict[str, Any]:
        return {
            "vsrkit": vsrkit.__version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "packages": {name: _version(name) for name in PACKAGES}
            | {"ffmpeg": getattr(av, "ffmpeg_version_info", "unknown")},
            "processor": processor_name(),
            "instructions": instruction_sets(),
            "cores": available_cores(),
            "free_memory": format_size(free_memory()),
            "command": self._arguments,
            "inputs": [_describe(Path(text)) for text in self._arguments if Path(text).is_file()],
            "error": traceback.format_exception(error) if error else None,
            "log": list(self._log),
        }


class _LastLines(logging.Handler):
    def __init__(self, lines: deque[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{record.levelname.lower()}: {record.getMessage()}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _describe(path: Path) -> dict[str, Any]:
    """The properties of a video, without titles and other texts in it; or why it has none."""
    size = path.stat().st_size
    try:
        info = asdict(probe(path))
    except VsrkitError as error:
        return {"name": str(path), "bytes": size, "probe": str(error)}
    for stream in info["streams"]:
        del stream["title"]
    texts = json.loads(json.dumps(info, default=str))
    return {"name": str(path), "bytes": size, "probe": texts}
