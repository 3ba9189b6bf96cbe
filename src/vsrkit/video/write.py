"""Frames to a video file: H.264, BT.709 limited range, tagged as such."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import av
import torch.nn.functional as F
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.hardware.files import temporary_path
from vsrkit.video.colour import BT709, LIMITED, Colour, picture_of, tag
from vsrkit.video.mux import container_options

COLOUR = Colour(matrix=BT709, range=LIMITED, primaries=BT709, transfer=BT709)


def write_video(
    path: Path, frames: Iterable[Tensor], *, frames_per_second: Fraction, crf: int = 17
) -> int:
    """Write frames (3, H, W) in [0, 1] and return how many there were.

    An odd side gets one more line of pixels, as 4:2:0 asks. The file appears under its name only
    when it is whole.
    """
    form, _ = container_options(path.suffix.lower())
    try:
        with (
            temporary_path(path) as temporary,
            av.open(f"file:{temporary}", "w", format=form) as file,
        ):
            return _encode(file, frames, frames_per_second, crf)
    except (OSError, av.FFmpegError) as error:
        raise VideoError(f"cannot write {path} ({error}); nothing was kept of it") from error


def _encode(
    file: av.container.OutputContainer,
    frames: Iterable[Tensor],
    frames_per_second: Fraction,
    crf: int,
) -> int:
    stream: VideoStream | None = None
    count = 0
    for frame in frames:
        height, width = (side + side % 2 for side in frame.shape[-2:])
        if stream is None:
            stream = file.add_stream("libx264", rate=frames_per_second, options={"crf": str(crf)})
            stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
            tag(stream.codec_context, COLOUR)
        file.mux(stream.encode(_picture(frame, height, width, count)))
        count += 1
    if stream is not None:
        file.mux(stream.encode(None))
    return count


def _picture(frame: Tensor, height: int, width: int, number: int) -> VideoFrame:
    even = F.pad(
        frame[None], (0, width - frame.shape[-1], 0, height - frame.shape[-2]), "replicate"
    )
    picture = picture_of(even[0].clamp(0, 1), "yuv420p", COLOUR)
    picture.pts = number
    return picture
