"""The clip that a model is inspected on: a few frames, cropped around one pixel."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from vsrkit.data.frames import FrameFiles, Frames, list_frames, open_video
from vsrkit.errors import DataError, VsrkitError
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.spec import (
    Carried,
    Context,
    Segments,
    Spec,
    Window,
    pad_clip,
    pad_frames,
    padded_size,
    plan_piece,
)
from vsrkit.video.images import is_image

AROUND = 3  # frames on either side, for models that run on segments of a shot
BEFORE = 6  # previous frames, for models that carry a state forward
FAR = 10  # frames on either side that are searched for cuts


@dataclass(frozen=True, slots=True)
class Sample:
    """The input of a model, and the frame and pixel of it that are inspected."""

    clip: Tensor  # (1, T, 3, H, W)
    numbers: list[int]  # of its frames in the file, from 0
    centre: int  # index of the chosen frame in the clip
    pixel: tuple[int, int]  # (x, y) in the clip
    corner: tuple[int, int]  # (x, y) of the clip's corner in the whole frame
    whole: Tensor  # (3, H', W'): the chosen frame, not cropped

    @property
    def frame(self) -> Tensor:
        """The chosen frame, (3, H, W)."""
        return self.clip[0, self.centre]


def take_sample(
    source: Path,
    spec: Spec,
    *,
    frame: int | None = None,
    pixel: tuple[int, int] | None = None,
    side: int = 128,
) -> Sample:
    """Read the frames that a model needs for one frame, cropped around a pixel.

    source: a video, a folder of frames, or a single picture.
    spec: of the model.
    frame: number of the frame, from 0; None for the middle one.
    pixel: (x, y) in the frame; None for the middle one.
    side: of the square around the pixel; ignored for a model with a fixed input size.
    """
    frames = open_clip(source)
    if len(frames) == 1 and spec.context != Window(1, "all"):
        raise DataError(
            f"{source} has only 1 frame, but this model takes several; use a clip of 2 or more"
        )
    number = len(frames) // 2 if frame is None else frame
    if not 0 <= number < len(frames):
        raise VsrkitError(f"{source} has frames 0 to {len(frames) - 1}, not {number}")
    height, width = frames.size
    x, y = pixel or (width // 2, height // 2)
    if not (0 <= x < width and 0 <= y < height):
        raise VsrkitError(
            f"pixel {x},{y} is outside of {source}: x is 0 to {width - 1}, y 0 to {height - 1}"
        )
    first, shot = _shot_around(frames, number)
    places, centre = frames_around(number - first, len(shot), spec.context)
    whole = torch.stack([shot[place] for place in places])
    side = spec.tile or side
    left, top = (_start(place, side, length) for place, length in ((x, width), (y, height)))
    clip = pad_clip(whole[..., top : top + side, left : left + side], spec.min_frames)
    return Sample(
        clip=pad_frames(clip, *padded_size(clip.shape[-2], clip.shape[-1], spec), spec)[None],
        numbers=[first + place for place in places + places[-1:] * (len(clip) - len(places))],
        centre=centre,
        pixel=(x - left, y - top),
        corner=(left, top),
        whole=whole[centre],
    )


def open_clip(source: Path) -> Frames:
    """Open a video file, a folder of frames, or a single picture."""
    if source.is_dir():
        frames, _ = list_frames(source)
        if frames is None:
            raise DataError(
                f"{source} contains no frames; expected a video or a folder of pictures"
            )
        return frames
    if not source.exists():
        raise DataError(f"{source} does not exist; expected a video or a folder of frames")
    return FrameFiles((source,)) if is_image(source) else open_video(source)


def frames_around(number: int, count: int, context: Context) -> tuple[list[int], int]:
    """Indices in a shot of the input frames for frame `number`, and its place among them."""
    match context:
        case Window():
            plan = plan_piece(number, count, context)
            return list(plan.frames), plan.keep.start
        case Segments():
            first, stop = max(0, number - AROUND), min(count, number + AROUND + 1)
        case Carried(look_ahead=look_ahead):  # the first step may need the second frame
            first = max(0, number - BEFORE)
            stop = min(count, max(number + 1 + look_ahead, 2))
    return list(range(first, stop)), number - first


def _shot_around(frames: Frames, number: int) -> tuple[int, list[Tensor]]:
    """The shot of a frame, at most FAR frames on either side: its first number, its frames."""
    low, high = max(0, number - FAR), min(len(frames), number + FAR + 1)
    if isinstance(frames, FrameFiles):
        read = FrameFiles(frames.paths[low:high]).read()
    else:
        read = islice(frames.read(), low, high)
    marked = list(mark_cuts(read))
    cuts = [low + place for place, (_, cut) in enumerate(marked) if cut]
    first = max((cut for cut in cuts if cut <= number), default=low)
    stop = min((cut for cut in cuts if cut > number), default=high)
    return first, [frame for frame, _ in marked[first - low : stop - low]]


def _start(place: int, side: int, length: int) -> int:
    """The first of `side` pixels around `place`, moved inside 0 to `length` if possible."""
    return max(0, min(place - side // 2, length - side))
