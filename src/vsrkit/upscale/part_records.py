"""The record of a finished part: hashes of its files, by which later damage is found."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

from vsrkit.errors import VideoError
from vsrkit.hardware.files import file_digest
from vsrkit.upscale.work_folder import Part, WorkFolder

log = logging.getLogger("vsrkit")

# Takes the name of a file in the work folder and its content, in chunks as they are computed.
Write: TypeAlias = Callable[[str, Iterable[bytes]], None]


class PartRecord(BaseModel):
    """What a finished part consists of. It is written last: a part without it is not finished.

    job: identity of the job, see `Manifest.identity`.
    part: number of the part.
    files: hash of each of its files, by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: str
    part: int
    files: dict[str, str]


class RecordedFiles:
    """Writes the files of a part, and its record when all are written."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._hashes: dict[str, str] = {}

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file; it may be written while the content of another one is computed."""
        digest = hashlib.blake2b(digest_size=16)

        def hashed() -> Iterator[bytes]:
            for chunk in content:
                digest.update(chunk)
                yield chunk

        self._write(name, hashed())
        self._hashes[name] = digest.hexdigest()

    def finish(self, job: str, part: Part) -> None:
        """Write the record."""
        record = PartRecord(job=job, part=part.number, files=self._hashes)
        self._write(part.record, [record.model_dump_json().encode()])


def missing_parts(
    parts: Sequence[Part], folder: WorkFolder, job: str, *, moved_to: Path | None = None
) -> list[Part]:
    """The parts to be computed: not finished, damaged since, or of another job.

    The records of damaged parts are deleted.

    job: identity of the job.
    moved_to: folder to which some finished images may have been moved already.
    """
    missing: list[Part] = []
    followed = True  # whether the part after this one needs no state, or is finished
    for part in reversed(parts):
        record = _read_record(part, folder, job, moved_to)
        carries = record is not None and part.state_file in record.files
        if record and carries and not followed and not folder.has_state(part.number):
            record = None  # its state was deleted when the next part was finished
        if record is None:
            missing.append(part)
            folder.discard(part.number)
        followed = record is not None or part.pieces[0].begins_shot
    return missing[::-1]


def _read_record(
    part: Part, folder: WorkFolder, job: str, moved_to: Path | None
) -> PartRecord | None:
    """The record of a part whose files are as they were written; None if there is none."""
    try:
        record = PartRecord.model_validate_json((folder.path / part.record).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        record = PartRecord(job="", part=part.number, files={})
    own = {part.file} if not part.names else set(part.images)
    if (record.job, record.part, set(record.files) - {part.state_file}) != (job, part.number, own):
        log.warning("part %d is damaged or of another job; it is computed again", part.number)
        return None
    for name, digest in record.files.items():
        found = _digest(folder, name, moved_to)
        if name == part.state_file:
            if found not in (None, digest):
                (folder.path / name).unlink()
        elif found != digest:
            log.warning("part %d is damaged (%s); it is computed again", part.number, name)
            return None
    return record


def _digest(folder: WorkFolder, name: str, moved_to: Path | None) -> str | None:
    """The hash of a file; None if it cannot be read."""
    path = folder.path / name
    if moved_to is not None and not path.exists():
        path = moved_to / path.name
    with suppress(VideoError):
        return file_digest([path])
    return None
