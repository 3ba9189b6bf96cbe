"""The outputs of a teacher, each computed once and kept on disk.

A teacher takes several times the computation of its student. With `teacher_mode = "frames"` it
upscales each clip once before training (`teacher_clips`); targets are crops of the result, for
clean and for compressed LR frames. With `teacher_mode = "features"` and `distinct_clips` the
same crops are drawn repeatedly, and its outputs for each are kept (`cached_outputs`).
"""

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vsrkit.data.augment import to_clip
from vsrkit.data.clips import Clip, OnProgress
from vsrkit.data.degrade import BI, degrade, mod_crop
from vsrkit.errors import DataError, VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.hardware.files import temporary_path, write_atomically
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.weights import weights_digest
from vsrkit.models.zoo import MODELS, load_model, local_weights
from vsrkit.models.zoo.fetch import weights_hint

Outputs: TypeAlias = dict[str, Tensor]  # by name, each (B, ...)


def load_teacher(name: str) -> BasicVSR:
    """A trained BasicVSR by name or weight file, in evaluation mode and without gradients."""
    if name in MODELS and local_weights(name) is None:
        raise VsrkitError(f"the teacher {name} has no weights here; {weights_hint(name)}")
    teacher = load_model(name)
    if not isinstance(teacher, BasicVSR):
        raise VsrkitError(f"a teacher must be a BasicVSR; {name} is a {type(teacher).__name__}")
    return teacher.eval().requires_grad_(False)


def teacher_clips(
    clips: Sequence[Clip],
    teacher: nn.Module,
    cache: Path,
    *,
    precision: Precision,
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> list[Clip]:
    """The teacher's frames for clips that are reduced by bicubic interpolation.

    Args:
        clips: decoded HR clips.
        teacher: a model of scale 4, on `device`.
        cache: folder for the results; those it already has are not computed again.
        precision: number type of the teacher.
        device: device of the teacher.
        on_progress: called with the name of each clip, the clips done and their number.
    """
    engine = Engine(teacher, precision, device, tile=None)
    weights = weights_digest(dict(sorted(teacher.state_dict().items())), size=6)
    outputs = []
    for done, clip in enumerate(clips):
        if on_progress:
            on_progress(f"teacher: {clip.name}", done, len(clips))
        height, width = (side // 4 * 4 for side in clip.shape[1:3])
        file = cache / f"{clip.path.stem}-{clip.first}-{len(clip)}-{weights}.rgb"
        output = Clip(clip.name, file, (len(clip), height, width, 3))
        if not file.is_file() or file.stat().st_size != math.prod(output.shape):
            _write_clip(clip, file, engine)
        outputs.append(output)
    if on_progress:
        on_progress("", len(clips), len(clips))
    return outputs


def _write_clip(clip: Clip, file: Path, engine: Engine) -> None:
    lr = degrade(mod_crop(to_clip(clip.frames), 4), BI(4))
    frames = upscale_frames(lr, engine)
    pixels = ((frame * 255).round().byte().permute(1, 2, 0).contiguous().cpu() for frame in frames)
    try:
        write_atomically(file, (rgb.numpy().tobytes() for rgb in pixels), shared=True)
    except OSError as error:
        raise DataError(
            f"cannot write the teacher's frames of {clip.name} to {file.parent} ({error}); "
            "free some space or choose another cache_dir"
        ) from error


def cached_outputs(
    clips: Tensor, compute: Callable[[Tensor], Outputs], folder: Path | None
) -> Outputs:
    """The outputs for clips (B, T, 3, H, W); those in `folder` are not computed again.

    Args:
        clips: LR clips; the key of each is a digest of its pixels.
        compute: returns the outputs for some of the clips.
        folder: where the outputs are kept in half precision; None: compute all, keep none.
    """
    if folder is None:
        return compute(clips)
    files = [folder / f"{_digest(clip)}.safetensors" for clip in clips]
    known = [_read(file) for file in files]
    if missing := [number for number, found in enumerate(known) if found is None]:
        computed = compute(clips[missing])
        for place, number in enumerate(missing):
            # Half precision: a teacher computed in bfloat16 is not more precise.
            known[number] = one = {k: x[place].half().contiguous() for k, x in computed.items()}
            with temporary_path(files[number]) as temporary:
                save_file(one, temporary)
    names = known[0] or {}
    # Converted one by one: autocast on a CPU does not accept half precision.
    return {
        name: torch.stack([found[name].to(clips) for found in known if found]) for name in names
    }


def _digest(clip: Tensor) -> str:
    pixels = clip.detach().cpu().contiguous().numpy().tobytes()
    return f"{blake2b(pixels, digest_size=12).hexdigest()}-{'x'.join(map(str, clip.shape))}"


def _read(file: Path) -> Outputs | None:
    try:
        return load_file(file)
    except (FileNotFoundError, SafetensorError):  # not computed yet, or incomplete
        return None
