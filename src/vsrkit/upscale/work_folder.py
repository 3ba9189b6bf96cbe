"""The output of a job, and the hidden work folder beside it that stores its finished parts."""

import errno
import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict

from vsrkit.errors import VideoError, VsrkitError
from vsrkit.hardware.files import temporary_path, write_atomically
from vsrkit.models.spec import PiecePlan
from vsrkit.upscale.options import ResolvedOptions
from vsrkit.video.codecs import DEFAULT_CODECS
from vsrkit.video.images import find_numbered
from vsrkit.video.read import Source
from vsrkit.video.seek import EMPTY_TABLE, SeekTable
from vsrkit.video.timestamps import Clock

IMAGES = "frames"  # folder of finished images in the work folder
NUMBER = r"%0?\d*d"  # the number in the name of an image, such as %04d


@dataclass(frozen=True, slots=True)
class Index:
    """The frames of a source by number: when each is shown, and which ones begin a shot."""

    times: tuple[int, ...]  # in units of the source's time base
    last_duration: int
    cuts: tuple[int, ...]
    seek_table: SeekTable = EMPTY_TABLE  # empty in manifests of earlier versions

    @property
    def shots(self) -> list[range]:
        """The frames of each shot."""
        return [range(a, b) for a, b in pairwise((0, *self.cuts, len(self.times)))]

    def clock(self, source: Source) -> Clock:
        """The times in the form that the muxer takes."""
        return Clock(self.times, self.last_duration, source.info.time_base)


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive frames of the output that are written as one file, and their pieces."""

    number: int
    start: int
    stop: int
    pieces: tuple[PiecePlan, ...]
    names: tuple[str, ...] = ()  # of its images, if images are written
    # Pieces before the first one that are run for the recurrent state, without output.
    lead: tuple[PiecePlan, ...] = ()
    seek_table: SeekTable = EMPTY_TABLE  # at least of the frames of all pieces

    @property
    def file(self) -> str:
        """File with its packets, if a video is written."""
        return f"part-{self.number:06d}"

    @property
    def record(self) -> str:
        """File that lists the files of the part when all of them are written."""
        return f"{self.file}.json"

    @property
    def state_file(self) -> str:
        """File with the recurrent states of the model after the part."""
        return f"state-{self.number:06d}.safetensors"

    @property
    def images(self) -> tuple[str, ...]:
        """Files with its images."""
        return tuple(f"{IMAGES}/{name}" for name in self.names)


class Manifest(BaseModel):
    """What identifies a job: the options that decide its bytes, and what the scan found."""

    model_config = ConfigDict(frozen=True)

    format: Literal[3] = 3
    digest: str = ""  # of the rest, in the file; damage must not change a job
    options: ResolvedOptions
    index: Index

    def with_digest(self) -> "Manifest":
        """The same with the right digest."""
        return self.model_copy(update={"digest": _hash(self.model_dump_json(exclude={"digest"}))})

    @property
    def identity(self) -> str:
        """A hash of what decides the bytes of all parts, except for tiles halved on the way."""
        options = self.options
        if options.tile_too_large is not None:
            first = {"tile": options.tile_too_large, "tile_too_large": None}
            options = options.model_copy(update=first)
        plain = self.model_copy(update={"options": options})
        return _hash(plain.model_dump_json(exclude={"digest"}))


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """Paths in the work folder, and its life from lock to removal."""

    path: Path

    @classmethod
    def beside(cls, target: Path) -> "WorkFolder":
        """The hidden work folder of an output, named after it."""
        if target.name in ("", ".."):  # such as the current folder
            target = target.resolve()
        return cls(target.with_name(f".{target.name}.vsrkit"))

    def part(self, number: int) -> Path:
        """File with the packets of a part."""
        return self.path / f"part-{number:06d}"

    def is_done(self, number: int) -> bool:
        """Whether all files of a part were written."""
        return self._record(number).exists()

    def discard(self, number: int) -> None:
        """Delete the record of a part, which will be computed again."""
        _delete(self._record(number))

    def _record(self, number: int) -> Path:
        return self.path / f"part-{number:06d}.json"

    def write_file(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file of a part, atomically and synced to disk."""
        write_atomically(self.path / name, content, sync=True)

    def read_state(self, number: int) -> bytes:
        """The recurrent states of the model after a part, as `pack_states` made them."""
        return self._state(number).read_bytes()

    def has_state(self, number: int) -> bool:
        """Whether the states after a part are stored."""
        return self._state(number).exists()

    def drop_states(self, number: int) -> None:
        """Delete the states before and after a finished part that no missing part needs."""
        for before in (number - 1, number):
            if self.is_done(before + 1):
                self._state(before).unlink(missing_ok=True)

    def _state(self, number: int) -> Path:
        return self.path / f"state-{number:06d}.safetensors"

    @property
    def images(self) -> Path:
        """Folder of the finished frames of a job that writes images."""
        return self.path / IMAGES

    def read(self) -> Manifest | None:
        """The manifest of an earlier run; None if there is none.

        Raises an error if it cannot be read and finished parts would be lost without it.
        """
        names = (self.manifest, self._finished)
        path = next((path for path in names if path.exists()), self.manifest)
        try:
            manifest = Manifest.model_validate_json(path.read_bytes())
            if manifest.with_digest() != manifest:
                raise ValueError("the digest is wrong")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            if any(self.path.glob("part-*")):
                raise VideoError(
                    f"{path} is damaged or was written by another version of vsrkit; "
                    "resume the job with that version, or add --restart to discard it"
                ) from error
            return None
        return manifest

    def write(self, manifest: Manifest) -> None:
        """Write the manifest atomically."""
        text = manifest.with_digest().model_dump_json(indent=1)
        write_atomically(self.manifest, f"{text}\n", sync=True)

    @property
    def manifest(self) -> Path:
        """File with the manifest of a job that is not finished."""
        return self.path / "manifest.json"

    @property
    def _finished(self) -> Path:
        return self.path / "finished.json"

    def whole(self, suffix: str) -> Path:
        """The complete video before it is moved to the output path."""
        return self.path / f"whole{suffix}"

    def mark_finished(self) -> None:
        """Record that only moving the result to its path and removing this folder remain."""
        if self.manifest.exists():
            self.manifest.replace(self._finished)

    @property
    def is_finished(self) -> bool:
        """Whether all frames are made; some results may already be at the output path."""
        return self._finished.exists()

    def only_cleanup_remains(self, target: Path) -> bool:
        """Whether a process was killed after moving the result and before removing this folder.

        If it was killed just before the end, the folder is empty, and is removed here.
        """
        if target.exists():
            with suppress(OSError):  # not empty, or there is none
                self.path.rmdir()
        unmoved = self.images.exists() or any(self.path.glob("whole*"))
        return self.is_finished and target.exists() and not unmoved

    def clear(self) -> None:
        """Delete everything except the lock."""
        for path in self.path.iterdir() if self.path.is_dir() else ():
            if path.name == "lock":
                continue
            _delete(path)

    def remove(self) -> None:
        """Delete the folder, the record that the job is finished last."""
        for path in self.path.iterdir():
            if path != self._finished:
                with suppress(OSError):
                    path.unlink()
        shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder and lock it; the system releases the lock of a killed process.

        A folder that is still empty at the end (not even a manifest was written) is removed.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.path / "lock", timeout=0):
                try:
                    yield
                finally:
                    if all(path.name == "lock" for path in self.path.iterdir()):
                        shutil.rmtree(self.path, ignore_errors=True)
        except Timeout as error:
            raise VsrkitError(
                f"another vsrkit process works in {self.path}; wait for it or stop it"
            ) from error


def _delete(path: Path) -> None:
    """Delete a file, link or folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Delete partly written files of a process that was killed."""
    for path in folder.rglob("*.part"):
        with suppress(OSError):
            path.unlink()


@dataclass(frozen=True, slots=True)
class Target:
    """An output. For a pattern, `path` is its folder and `pattern` the file names in it."""

    path: Path
    images: bool = False
    pattern: str | None = None

    @property
    def kind(self) -> str:
        """What the manifest stores: the suffix of a video, or the pattern of images."""
        return f"images {self.pattern or ''}" if self.images else self.path.suffix.lower()

    @property
    def turns(self) -> bool:
        """Whether pixels are rotated because the format cannot store a rotation."""
        return self.images or self.path.suffix.lower() == ".y4m"


def open_target(target: str | Path, source: Source, *, overwrite: bool) -> Target:
    """Find out the kind of the output; raises an error if it would destroy something.

    target: as in `upscale_video`.
    source: the input, which is never overwritten.
    overwrite: whether an existing output may be replaced.
    """
    path = Path(target)
    if is_pattern(path):
        if path.suffix.lower() != ".png":
            raise VideoError(f"images are written as PNG; name them {path.stem}.png")
        if path.name.count("%") != 1:
            raise VideoError(f"{path.name} must have one number in it, such as %04d.png")
        existing = find_numbered(path)
        _refuse_input_files(existing, source)
        if existing and not overwrite and not WorkFolder.beside(path.parent).is_finished:
            raise VideoError(f"{existing[0]} exists; add --overwrite (-y) or name another folder")
        return Target(path.parent, images=True, pattern=path.name)
    if path.suffix.lower() not in DEFAULT_CODECS and not is_image_folder(path):
        raise VideoError(
            f"cannot write {path.suffix} files; name the output *"
            f"{', *'.join(sorted(DEFAULT_CODECS))}, or give a folder for PNG files"
        )
    if path.suffix.lower() not in DEFAULT_CODECS:
        if path.exists() and path.resolve() == source.path.resolve():
            raise VideoError(f"input and output are the same folder, {path}; name another")
        existing = list(path.iterdir()) if path.is_dir() else []
        _refuse_input_files(existing, source)
        if existing and not overwrite and not WorkFolder.beside(path).is_finished:
            raise VideoError(f"{path} is not empty; add --overwrite (-y) or name another folder")
        if other := [file.name for file in existing if file.suffix.lower() != ".png"]:
            raise VideoError(
                f"{path} holds more than PNG files ({other[0]}), which would be lost; "
                "name another folder"
            )
        return Target(path, images=True)
    if path.exists() and source.path.exists() and path.samefile(source.path):
        raise VideoError(f"input and output are the same file, {path}; name another output")
    if path.is_dir():
        raise VideoError(f"{path} is a folder; name a file in it")
    if path.exists() and not overwrite:
        raise VideoError(f"{path} exists; add --overwrite (-y) to replace it")
    return Target(path)


def is_pattern(path: Path) -> bool:
    """Whether a path names numbered images in a folder."""
    return bool(re.search(NUMBER, path.name)) and path.suffix.lower() not in DEFAULT_CODECS


def is_image_folder(path: Path) -> bool:
    """Whether a path without the suffix of a video names a folder: as written, or as it exists."""
    by_default = re.fullmatch(r"\.(x\d+|\d+p)", path.suffix)  # see `default_target`
    return not path.suffix or path.is_dir() or by_default is not None


def _refuse_input_files(existing: list[Path], source: Source) -> None:
    """Raise an error if files to be replaced are part of the input."""
    inputs = {path.resolve() for path in source.images or (source.path,)}
    if lost := [path for path in existing if path.resolve() in inputs]:
        raise VideoError(f"{lost[0]} is part of the input; name another folder for the output")


def image_names(target: Target, source: Source, frames: int) -> tuple[str, ...]:
    """A file name for each frame: by the pattern, those of the input images, or numbers."""
    if target.pattern:
        return tuple(target.pattern % number for number in range(1, frames + 1))
    names = tuple(f"{path.stem}.png" for path in source.images)
    if len({name.casefold() for name in names}) == frames:  # not if there are a.png and a.jpg
        return names
    return tuple(f"{number:08d}.png" for number in range(frames))


def finish_images(target: Target, folder: WorkFolder, names: Sequence[str]) -> None:
    """Move the finished images to the output: a new folder at once, an existing one file by file.

    An existing folder is kept, because it may be a link, a mount point or the current folder. Its
    old images are deleted after the new ones are in place, except for a pattern.
    """
    if not target.pattern and not target.path.exists():
        folder.images.replace(target.path)
        return
    target.path.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.images.iterdir()):
        _move(path, target.path / path.name)
    if not target.pattern:
        for path in target.path.glob("*.[pP][nN][gG]"):
            if path.name not in names:
                path.unlink()
    folder.images.rmdir()  # last: without it, only cleanup remains


def _move(path: Path, place: Path) -> None:
    """Rename a file; copy it if `place` is on another file system."""
    try:
        path.replace(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with temporary_path(place) as temporary:
            shutil.copyfile(path, temporary)
        path.unlink()
