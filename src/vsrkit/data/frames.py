"""The frames of a clip on disk: a folder of image files, or a video file."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from torch import Tensor

from vsrkit.errors import DataError, VideoError
from vsrkit.video.images import is_image, natural_order, read_image, read_image_size
from vsrkit.video.read import open_source, read_video


@dataclass(frozen=True, slots=True)
class FrameFiles:
    """The frames of a clip as image files, in temporal order."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def place(self) -> Path:
        """The folder that holds the files."""
        return self.paths[0].parent

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the first frame."""
        return read_image_size(self.paths[0])

    @property
    def names(self) -> list[str]:
        """File names without suffix, one for each frame."""
        return [path.stem for path in self.paths]

    def read(self) -> Iterator[Tensor]:
        """Yield frames (3, H, W); raise DataError at a frame of another size than the first."""
        size: tuple[int, ...] | None = None
        for path in self.paths:
            frame = read_image(path)
            height, width = frame.shape[-2:]
            if size is not None and size != (height, width):
                raise DataError(
                    f"{path} is {width}x{height}, the frames before it are {size[1]}x{size[0]}; "
                    "all frames of a clip must have the same size"
                )
            size = (height, width)
            yield frame

    def missing_numbers(self) -> list[int]:
        """Frame numbers missing between the first and the last file.

        Empty if a name does not end in a number, and if a third of the numbers or more is missing:
        then frames were selected (every second one, for example), not lost.
        """
        numbers = [re.search(r"(\d+)$", name) for name in self.names]
        found = [int(match.group(1)) for match in numbers if match]
        if len(found) != len(numbers):
            return []
        missing = sorted(set(range(found[0], found[-1] + 1)) - set(found))
        return missing if len(missing) < len(found) // 2 + 1 else []


@dataclass(frozen=True, slots=True)
class VideoFrames:
    """The frames of a clip as a video file."""

    path: Path
    size: tuple[int, int]  # (height, width)
    count: int

    def __len__(self) -> int:
        return self.count

    @property
    def place(self) -> Path:
        """The video file."""
        return self.path

    @property
    def names(self) -> list[str]:
        """Frame numbers of eight digits, one for each frame."""
        return [f"{number:08d}" for number in range(self.count)]

    def read(self) -> Iterator[Tensor]:
        """Yield frames (3, H, W)."""
        return read_video(self.path)


Frames: TypeAlias = FrameFiles | VideoFrames


def list_frames(folder: Path) -> tuple[FrameFiles | None, list[str]]:
    """List the image files of a folder, ordered by number.

    Returns:
        The frames, None if there are none, and a line for each entry that was ignored.
    """
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


def open_video(path: Path) -> VideoFrames:
    """Open a video file as frames; it is decoded once to count them."""
    try:
        source = open_source(path)
        count = sum(1 for _ in source.pictures())
    except VideoError as error:
        raise DataError(f"cannot read {path} as a video: {error}") from error
    return VideoFrames(path, (source.info.height, source.info.width), count)


def shortened(names: Sequence[object], most: int) -> str:
    """Join the first `most` names by commas; an ellipsis stands for the others."""
    return ", ".join(map(str, names[:most])) + (", ..." if len(names) > most else "")
