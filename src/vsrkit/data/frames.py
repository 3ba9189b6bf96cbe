"""Where the frames of one clip come from: a folder of image files, or a video file."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from torch import Tensor

from vsrkit.errors import DataError, VideoError
from vsrkit.video.images import is_image, natural_order, read_image, read_image_size
from vsrkit.video.read import open_source

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".y4m", ".mpg", ".mpeg", ".ts", ".mts",
     ".m2ts", ".wmv", ".flv", ".3gp", ".ogv", ".vob"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FrameFiles:
    """Image files in the order of time."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def place(self) -> Path:
        """The folder."""
        return self.paths[0].parent

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the first frame."""
        return read_image_size(self.paths[0])

    @property
    def names(self) -> list[str]:
        """One for each frame, to save results under."""
        return [path.stem for path in self.paths]

    def read(self) -> Iterator[Tensor]:
        """Frames (3, H, W) one by one; an error names the first that has another size."""
        size: tuple[int, ...] | None = None
        for path in self.paths:
            frame = read_image(path)
            height, width = frame.shape[-2:]
            if size is not None and size != (height, width):
                raise DataError(
                    f"{path} is {width}x{height}, the frames before it are {size[1]}x{size[0]}; "
                    "a clip has one size"
                )
            size = (height, width)
            yield frame


@dataclass(frozen=True, slots=True)
class VideoFrames:
    """The frames of a video file; (height, width) and their number were read from it once."""

    path: Path
    size: tuple[int, int]
    count: int

    def __len__(self) -> int:
        return self.count

    @property
    def place(self) -> Path:
        """The file."""
        return self.path

    @property
    def names(self) -> list[str]:
        """One for each frame, to save results under."""
        return [f"{number:08d}" for number in range(self.count)]

    def read(self) -> Iterator[Tensor]:
        """Frames (3, H, W) one by one."""
        return read_video(self.path)


Frames: TypeAlias = FrameFiles | VideoFrames


def is_video(path: Path) -> bool:
    """Whether the name is that of a video file."""
    return path.suffix.lower() in VIDEO_SUFFIXES and not path.name.startswith(".")


def list_frames(folder: Path) -> tuple[FrameFiles | None, list[str]]:
    """The frames of a folder, by number or else by name, and a line for each thing that is none."""
    images, ignored = [], []
    for path in sorted(folder.iterdir(), key=natural_order):
        if is_image(path):
            images.append(path)
        else:
            kind = "a folder" if path.is_dir() else "not an image"
            ignored.append(f"ignored {path.parent.name}/{path.name}: {kind}")
    seen: dict[str, Path] = {}
    for path in images:
        if twin := seen.get(path.stem):
            raise DataError(f"{twin} and {path.name} are the same frame twice; remove one")
        seen[path.stem] = path
    return (FrameFiles(tuple(images)) if images else None), ignored


def missing_numbers(frames: FrameFiles) -> list[int]:
    """Numbers left out between the first frame and the last, where names are numbers."""
    numbers = [re.search(r"(\d+)$", path.stem) for path in frames.paths]
    found = [int(match.group(1)) for match in numbers if match]
    if len(found) != len(numbers):
        return []
    missing = sorted(set(range(found[0], found[-1] + 1)) - set(found))
    # Every second frame, or times for names, is a choice and not a loss.
    return missing if len(missing) < len(found) // 2 + 1 else []


def open_video(path: Path) -> VideoFrames:
    """A video file as frames; it is decoded once, to count them."""
    with _naming(path):
        source = open_source(path)
        return VideoFrames(
            path, (source.info.height, source.info.width), sum(1 for _ in source.pictures())
        )


def read_video(path: Path) -> Iterator[Tensor]:
    """Frames (3, H, W) float RGB of a video file, one by one."""
    with _naming(path):
        for frame in open_source(path).frames():
            yield frame.clamp(0, 1)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except VideoError as error:
        raise DataError(f"cannot read {path} as a video: {error}") from error
