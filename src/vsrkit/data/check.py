"""Check of a data folder: its kind of set, its clips and frames, and all problems found."""

from dataclasses import dataclass
from pathlib import Path

from vsrkit.data.clips import OnProgress
from vsrkit.data.frames import FrameFiles, Frames, shortened
from vsrkit.data.layouts import TRAINING_SETS, SetName
from vsrkit.data.sets import PairedClip, detect_sets, open_set, open_training_set
from vsrkit.errors import DataError
from vsrkit.video.images import check_image, read_image_size


@dataclass(frozen=True, slots=True)
class ClipCheck:
    """Result of checking one clip."""

    name: str
    frames: int
    size: tuple[int, int]  # (height, width)
    lr_size: tuple[int, int] | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]  # files that are ignored, one line each


@dataclass(frozen=True, slots=True)
class SetCheck:
    """Result of checking a folder."""

    set: SetName
    root: Path
    clips: tuple[ClipCheck, ...]
    lr_place: Path | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    validation: tuple[str, ...] = ()  # clips on which training with this set is validated

    @property
    def sound(self) -> bool:
        """Whether no problem was found."""
        return not self.problems and not any(clip.problems for clip in self.clips)


def check_set(
    root: Path,
    name: SetName | None = None,
    *,
    quick: bool = False,
    on_progress: OnProgress | None = None,
) -> SetCheck:
    """Check every clip of a set without stopping at the first problem.

    Args:
        root: folder of the set.
        name: which set; None takes the first that `detect_sets` finds.
        quick: check only names, numbers and sizes; by default every file is read and its checksums
            are compared.
        on_progress: called with a clip's name, its frames done and their total number.
    """
    name = name or detect_sets(root)[0]
    problems: tuple[str, ...] = ()
    try:
        found = open_set(name, root)
    except DataError as error:
        problems = (str(error),)
        try:  # the HR frames can be checked even if the LR frames are wrong
            found = open_set(name, root, lr=None)
        except DataError:
            return SetCheck(name, root, (), None, problems, ())
    if found.unlisted:
        total = len(found.clips) + found.unlisted
        problems += (f"partial: the list names {len(found.clips)} of {total} clips",)
    clips = tuple(_check_clip(clip, quick, on_progress) for clip in found.clips)
    validation, more = _check_split(name, root)
    return SetCheck(name, root, clips, found.lr_place, (*problems, *more), found.notes, validation)


def _check_split(name: SetName, root: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The validation clips of a training set, and the problems that would prevent training."""
    for known in TRAINING_SETS:
        if known == name:
            try:
                split = open_training_set(known, root)
            except DataError as error:
                return (), (str(error),)
            return tuple(clip.name for clip in split.validation), ()
    return (), ()


def _check_clip(clip: PairedClip, quick: bool, on_progress: OnProgress | None) -> ClipCheck:
    problems = []
    if clip.full is not None and len(clip.hr) < clip.full:
        problems.append(f"partial: {len(clip.hr)} of {clip.full} frames")
    if isinstance(clip.hr, FrameFiles) and (gaps := clip.hr.missing_numbers()):
        missing = shortened(gaps, 5)
        problems.append(f"partial: frames missing between the first and the last: {missing}")
    size, found = _check_frames(clip.name, clip.hr, quick, on_progress)
    problems += found
    lr_size = None
    if clip.lr:
        lr_size, found = _check_frames(f"{clip.name} (LR)", clip.lr, quick, on_progress)
        problems += found
        if lr_size[0] and size[0]:
            problems += _check_ratio(size, lr_size)
    return ClipCheck(clip.name, len(clip.hr), size, lr_size, tuple(problems), clip.notes)


def _check_frames(
    name: str, frames: Frames, quick: bool, on_progress: OnProgress | None
) -> tuple[tuple[int, int], list[str]]:
    """Return the size of the first intact frame, and the problems: damaged or of another size."""
    if not isinstance(frames, FrameFiles):
        return frames.size, []  # opening a video decodes all of it
    size, problems = (0, 0), []
    for number, path in enumerate(frames.paths):
        if on_progress:
            on_progress(name, number, len(frames))
        try:
            here = read_image_size(path)
            if not quick:
                check_image(path)
        except DataError as error:
            problems.append(str(error))
            continue
        if size != (0, 0) and here != size:
            problems.append(f"{path} is {here[1]}x{here[0]}, others are {size[1]}x{size[0]}")
        size = size if size != (0, 0) else here
    if on_progress:
        on_progress(name, len(frames), len(frames))
    return size, problems


def _check_ratio(size: tuple[int, int], lr_size: tuple[int, int]) -> list[str]:
    """Check that LR frames are smaller by an integer factor, up to a cropped remainder."""
    scale = round(size[0] / lr_size[0])
    if scale >= 1 and lr_size == (size[0] // scale, size[1] // scale):
        return []
    return [f"HR is {size[1]}x{size[0]}, LR is {lr_size[1]}x{lr_size[0]}: not an integer factor"]
