"""Where the result goes: a video file, or a folder or pattern of PNG files."""

import errno
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vsrkit.errors import VideoError
from vsrkit.hardware.files import temporary_path
from vsrkit.upscale.work_folder import WorkFolder
from vsrkit.video.codecs import DEFAULT_CODECS
from vsrkit.video.read import Source, find_numbered


@dataclass(frozen=True, slots=True)
class Target:
    """The output. For a pattern, `path` is its folder and `pattern` the names in it."""

    path: Path
    images: bool = False
    pattern: str | None = None

    @property
    def kind(self) -> str:
        """For the manifest."""
        return f"images {self.pattern or ''}" if self.images else self.path.suffix.lower()

    @property
    def turns(self) -> bool:
        """Whether a rotation must be done to the pixels, because nothing else can say it."""
        return self.images or self.path.suffix.lower() == ".y4m"


def open_target(target: str | Path, source: Source, *, overwrite: bool) -> Target:
    """Find out what is wanted, and refuse to destroy anything."""
    path = Path(target)
    if re.search(r"%0?\d*d", path.name) and path.suffix.lower() not in DEFAULT_CODECS:
        if path.suffix.lower() != ".png":
            raise VideoError(f"images are written as PNG; name them {path.stem}.png")
        if path.name.count("%") != 1:
            raise VideoError(f"{path.name} must have one number in it, such as %04d.png")
        there = find_numbered(path)
        _spare_input(there, source)
        if there and not overwrite and not WorkFolder.beside(path.parent).is_finished:
            raise VideoError(f"{there[0]} exists; add --overwrite (-y) or name another folder")
        return Target(path.parent, images=True, pattern=path.name)
    if path.suffix.lower() not in DEFAULT_CODECS:
        if path.suffix and not path.is_dir():
            raise VideoError(
                f"cannot write {path.suffix} files; name the output *"
                f"{', *'.join(sorted(DEFAULT_CODECS))}, or give a folder for PNG files"
            )
        if path.exists() and path.resolve() == source.path.resolve():
            raise VideoError(f"input and output are the same folder, {path}; name another")
        there = list(path.iterdir()) if path.is_dir() else []
        _spare_input(there, source)
        if there and not overwrite and not WorkFolder.beside(path).is_finished:
            raise VideoError(f"{path} is not empty; add --overwrite (-y) or name another folder")
        if other := [file.name for file in there if file.suffix.lower() != ".png"]:
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


def _spare_input(there: list[Path], source: Source) -> None:
    """Refuse to replace files that are the input."""
    inputs = {path.resolve() for path in source.images or (source.path,)}
    if lost := [path for path in there if path.resolve() in inputs]:
        raise VideoError(f"{lost[0]} is part of the input; name another folder for the output")


def image_names(target: Target, source: Source, frames: int) -> tuple[str, ...]:
    """A name for each frame: by the pattern, as the input images are called, or numbered."""
    if target.pattern:
        return tuple(target.pattern % number for number in range(1, frames + 1))
    names = tuple(f"{path.stem}.png" for path in source.images)
    if len({name.casefold() for name in names}) == frames:  # not where a.png is beside a.jpg
        return names
    return tuple(f"{number:08d}.png" for number in range(frames))


def finish_images(target: Target, folder: WorkFolder, names: Sequence[str]) -> None:
    """Give the finished images their place: a new folder at once, an old one file by file.

    An old one may be a link, a mount point or where we are, and is not ours to remove. Of a whole
    folder that is replaced, old images go when the new ones are there.
    """
    if not target.pattern and not target.path.exists():
        folder.images.replace(target.path)
        return
    target.path.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.images.iterdir()):
        _move(path, target.path / path.name)
    folder.images.rmdir()
    if not target.pattern:
        for path in target.path.glob("*.[pP][nN][gG]"):
            if path.name not in names:
                path.unlink()


def _move(path: Path, place: Path) -> None:
    """Rename a file; to another file system it is copied first."""
    try:
        path.replace(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with temporary_path(place) as temporary:
            shutil.copyfile(path, temporary)
        path.unlink()
