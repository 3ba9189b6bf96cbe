"""A trial run of a few seconds: the bundled clip, made small, through the whole pipeline."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from vsrkit.data.degrade import BI, degrade
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.layers.resample import imresize
from vsrkit.upscale.job import upscale_video
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.video.images import read_image, write_image
from vsrkit.video.read import open_source, read_video
from vsrkit.video.write import write_video

FRAMES = 6
SCALE = 4


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried."""

    name: str
    passed: bool
    found: str


def run_checks(model: str) -> list[Check]:
    """Try everything a video goes through, with this model."""
    with TemporaryDirectory(prefix="vsrkit-doctor-") as scratch:
        folder = Path(scratch)
        return [
            _attempt("write and read an image", lambda: _image_round_trip(folder)),
            _attempt("find a cut", _cut),
            _attempt(f"upscale a video with {model}", lambda: _whole_pipeline(folder, model)),
        ]


def _attempt(name: str, trial: Callable[[], tuple[bool, str]]) -> Check:
    """What a trial found; an error is a finding, too."""
    begin = time.perf_counter()
    try:
        passed, found = trial()
    except Exception as error:  # noqa: BLE001  whatever goes wrong here is what was looked for
        passed, found = False, f"{type(error).__name__}: {' '.join(str(error).split())}"
    return Check(name, passed, f"{found} ({time.perf_counter() - begin:.1f} s)")


def _image_round_trip(folder: Path) -> tuple[bool, str]:
    frame = (torch.arange(3 * 32 * 48) * 21 % 65536).reshape(3, 32, 48) / 65535
    write_image(folder / "frame.png", frame, bits=16)
    error = float((read_image(folder / "frame.png") - frame).abs().max()) * 65535
    return error < 0.5, f"16 bits, off by {error:.2f} steps at most"


def _cut() -> tuple[bool, str]:
    clip = _bundled()
    other = clip.flip(-1, -2).roll(1, 1)  # upside down, in other colours
    found = [n for n, (_, cut) in enumerate(mark_cuts([*clip, *other])) if cut]
    return found == [FRAMES], f"at frame {', '.join(map(str, found)) or 'none'} of {2 * FRAMES}"


def _whole_pipeline(folder: Path, model: str) -> tuple[bool, str]:
    hr = _bundled()
    small, large = folder / "in.mp4", folder / "out.mkv"
    # Finest quality: what is compared is our work, not an encoder's.
    write_video(small, degrade(hr, BI(SCALE)), frames_per_second=Fraction(25), crf=1)
    made = upscale_video(small, large, options=UpscaleOptions(model=model, device="cpu", crf=1))
    lr, sr = list(open_source(small).frames()), list(open_source(large).frames())
    if len(sr) != FRAMES or made.frames != FRAMES:
        return False, f"{len(sr)} frames came of {FRAMES}"
    if not all(torch.isfinite(frame).all() for frame in sr):
        return False, "values that are not numbers"
    if sr[0].shape != hr[0].shape:
        return False, f"{sr[0].shape[-1]}x{sr[0].shape[-2]}, not {hr.shape[-1]}x{hr.shape[-2]}"
    ours = mean_psnr_y(sr, hr)
    bicubic = mean_psnr_y([imresize(frame, SCALE) for frame in lr], hr)
    kept = mean_psnr_y([imresize(frame, Fraction(1, SCALE)) for frame in sr], lr)
    text = f"{FRAMES} frames, {ours:.2f} dB, bicubic {bicubic:.2f} dB, made small {kept:.1f} dB"
    # Bicubic itself goes through an encoder here and may lose a trifle to it.
    better = ours > bicubic - 0.1 if model == "bicubic" else ours > bicubic
    return better, text


def _bundled() -> Tensor:
    """The first frames of the bundled clip, (T, 3, 400, 704)."""
    with as_file(files("vsrkit").joinpath("assets", "city.mp4")) as path:
        return torch.stack(list(islice(read_video(path), FRAMES)))
