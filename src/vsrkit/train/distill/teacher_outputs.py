"""What a teacher makes of whole clips, kept beside their frames: goals to cut crops from.

A teacher costs several times what its pupil does, and its frames hold what can be known of a clip
without the noise that cannot. So it sees each clip once, small and clean, from end to end; any
crop of its answer, turned in any way, is then a goal that costs nothing, for clean LR frames and
for compressed ones alike.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from vsrkit.data.augment import to_clip
from vsrkit.data.clips import Clip, OnProgress
from vsrkit.data.degrade import BI, degrade, mod_crop
from vsrkit.errors import DataError
from vsrkit.hardware.files import write_atomically
from vsrkit.hardware.precision import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.weights import weights_digest


def answer_clips(
    clips: Sequence[Clip],
    teacher: nn.Module,
    cache: Path,
    *,
    precision: Precision,
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> list[Clip]:
    """The teacher's frames for each clip, written to `cache` where it does not have them yet."""
    engine = Engine(teacher, precision, device, tile=None)
    weights = weights_digest(dict(sorted(teacher.state_dict().items())), size=6)
    answers = []
    for done, clip in enumerate(clips):
        if on_progress:
            on_progress(f"teacher: {clip.name}", done, len(clips))
        height, width = (side // 4 * 4 for side in clip.shape[1:3])
        file = cache / f"{clip.path.stem}-{clip.first}-{len(clip)}-{weights}.rgb"
        answer = Clip(clip.name, file, (len(clip), height, width, 3))
        if not file.is_file() or file.stat().st_size != math.prod(answer.shape):
            _write(clip, file, engine)
        answers.append(answer)
    if on_progress:
        on_progress("", len(clips), len(clips))
    return answers


def _write(clip: Clip, file: Path, engine: Engine) -> None:
    lr = degrade(mod_crop(to_clip(clip.frames), 4), BI(4))
    frames = upscale_frames(lr, engine)
    pixels = ((frame * 255).round().byte().permute(1, 2, 0).contiguous().cpu() for frame in frames)
    try:
        write_atomically(file, (rgb.numpy().tobytes() for rgb in pixels), shared=True)
    except OSError as error:
        raise DataError(
            f"cannot keep what the teacher made of {clip.name} in {file.parent} ({error}); "
            "free some space or name another cache_dir"
        ) from error
