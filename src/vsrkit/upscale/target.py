"""The output of a job: a video file, or a folder or pattern of PNG files."""

import errno
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from vsrkit.errors import VideoError
from vsrkit.hardware.files import temporary_path
from vsrkit.models.zoo import default_model, load_model
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.upscale.work_folder import WorkFolder
from vsrkit.video.codecs import DEFAULT_CODECS
from vsrkit.video.images import is_image
from vsrkit.video.read import Source, find_numbered

NUMBER = r"%0?\d*d"  # the number in the name of an image, such as %04d


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


def default_target(source: str, options: UpscaleOptions, *, preview: bool = False) -> Path:
    """Where the output of `source` goes if none is named: beside it, as `in.x4.mkv`.

    Folders and images get a folder, patterns a pattern in a folder beside theirs. The suffix names
    the factor, or the height if that is what the options ask for.

    source: path of the input.
    options: scale, height and model are used.
    preview: whether a folder for preview pictures is needed.
    """
    path = Path(source)
    if source == "-":
        raise VideoError("the input is a pipe; name an output, for example -o out.mkv or -o -")
    if preview:
        return path.with_name(f"{path.stem}-preview".replace(".", "-"))
    if options.height is not None:
        label = f"{options.height}p"
    elif options.scale is not None:
        label = f"x{options.scale}"
    else:
        model = options.model
        if not isinstance(model, nn.Module):
            model = load_model(str(model) if model is not None else default_model())
        label = f"x{model.spec.scale}"  # type: ignore[union-attr]
    if re.search(NUMBER, path.name) and not path.exists():
        if path.parent.name in ("", ".."):
            raise VideoError(f"name an output for {source}, for example -o out/%04d.png")
        return path.parent.with_name(f"{path.parent.name}.{label}") / f"{path.stem}.png"
    if path.is_dir():
        path = path if path.name not in ("", "..") else path.resolve()
        return path.with_name(f"{path.name}.{label}")
    return path.with_name(f"{path.stem}.{label}{'' if is_image(path) else '.mkv'}")


def open_target(target: str | Path, source: Source, *, overwrite: bool) -> Target:
    """Find out the kind of the output; raises an error if it would destroy something.

    target: as in `upscale_video`.
    source: the input, which is never overwritten.
    overwrite: whether an existing output may be replaced.
    """
    path = Path(target)
    if re.search(NUMBER, path.name) and path.suffix.lower() not in DEFAULT_CODECS:
        if path.suffix.lower() != ".png":
            raise VideoError(f"images are written as PNG; name them {path.stem}.png")
        if path.name.count("%") != 1:
            raise VideoError(f"{path.name} must have one number in it, such as %04d.png")
        existing = find_numbered(path)
        _refuse_input_files(existing, source)
        if existing and not overwrite and not WorkFolder.beside(path.parent).is_finished:
            raise VideoError(f"{existing[0]} exists; add --overwrite (-y) or name another folder")
        return Target(path.parent, images=True, pattern=path.name)
    if path.suffix.lower() not in DEFAULT_CODECS and not _is_image_folder(path):
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


def _is_image_folder(path: Path) -> bool:
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
    folder.images.rmdir()
    if not target.pattern:
        for path in target.path.glob("*.[pP][nN][gG]"):
            if path.name not in names:
                path.unlink()


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
