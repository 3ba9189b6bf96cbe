"""What a teacher answered, kept on disk: clips that come again need not be asked about again.

A teacher costs several times what its pupil does. With `distinct_clips` the same clips are drawn
again and again, each is known by its pixels, and the teacher speaks only once about each.
"""

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vsrkit.hardware.files import temporary_path

Answers: TypeAlias = dict[str, Tensor]  # by what they are of, each (B, ...)


def noted(clips: Tensor, answer: Callable[[Tensor], Answers], notes: Path | None) -> Answers:
    """The answers for clips (B, T, 3, H, W), from the folder `notes` as far as it has them."""
    if notes is None:
        return answer(clips)
    files = [notes / f"{_digest(clip)}.safetensors" for clip in clips]
    known = [_read(file) for file in files]
    if missing := [number for number, found in enumerate(known) if found is None]:
        fresh = answer(clips[missing])
        for place, number in enumerate(missing):
            # Half precision: a teacher computed in bfloat16 knows no more.
            known[number] = own = {name: x[place].half().contiguous() for name, x in fresh.items()}
            _write(files[number], own)
    names = known[0] or {}
    # Widened one by one: autocast on a CPU does not take half precision.
    return {
        name: torch.stack([found[name].to(clips) for found in known if found]) for name in names
    }


def _digest(clip: Tensor) -> str:
    pixels = clip.detach().cpu().contiguous().numpy().tobytes()
    return f"{blake2b(pixels, digest_size=12).hexdigest()}-{'x'.join(map(str, clip.shape))}"


def _read(file: Path) -> Answers | None:
    try:
        return load_file(file)
    except (FileNotFoundError, SafetensorError):  # not yet written, or not whole
        return None


def _write(file: Path, answers: Answers) -> None:
    with temporary_path(file) as temporary:
        save_file(answers, temporary)
