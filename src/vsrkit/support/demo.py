"""The demo: downscale the bundled clip, upscale it and compare it with the original."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from vsrkit.data.degrade import BI, degrade
from vsrkit.evaluate.captions import enlarge
from vsrkit.evaluate.metrics import mean_psnr_y, measured, ssim
from vsrkit.inference.engine import make_engine, upscale_frames
from vsrkit.models.zoo import default_model, load_model
from vsrkit.video.encode import write_video
from vsrkit.video.images import write_image
from vsrkit.video.read import read_video

FRAMES_PER_SECOND = Fraction(25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """Files and scores of the demo; PSNR (dB) and SSIM of luma are means over the frames."""

    model: str
    precision: str
    frames: int
    seconds_per_frame: float
    psnr: float
    ssim: float
    bicubic_psnr: float
    bicubic_ssim: float
    files: list[str]


def run_demo(output: Path, *, on_progress: Callable[[str, int, int], None]) -> Demo:
    """Downscale the bundled clip and upscale it with the default model.

    Args:
        output: folder for input.mp4, output.mp4, side-by-side.png (bicubic, model, original) and
            numbers.json.
        on_progress: called with the model's name, the frames done and their total after each frame.
    """
    hr = bundled_clip()
    lr = degrade(hr, BI(scale=4))
    name = default_model()
    engine = make_engine(load_model(name))
    begin = time.perf_counter()
    sr = []
    for frame in upscale_frames(lr, engine):
        sr.append(frame)
        on_progress(name, len(sr), len(lr))
    seconds = (time.perf_counter() - begin) / len(sr)
    bicubic = list(upscale_frames(lr, load_model("bicubic")))

    psnr_y, ssim_y = _scores(sr, hr)
    bicubic_psnr, bicubic_ssim = _scores(bicubic, hr)
    made = [output / name for name in ("input.mp4", "output.mp4", "side-by-side.png")]
    write_video(made[0], lr, frames_per_second=FRAMES_PER_SECOND)
    write_video(made[1], sr, frames_per_second=FRAMES_PER_SECOND)
    middle = len(sr) // 2
    write_image(made[2], _side_by_side(bicubic[middle], sr[middle], hr[middle]))
    demo = Demo(
        model=name,
        precision=str(engine.precision),
        frames=len(sr),
        seconds_per_frame=round(seconds, 3),
        psnr=psnr_y,
        ssim=ssim_y,
        bicubic_psnr=bicubic_psnr,
        bicubic_ssim=bicubic_ssim,
        files=[str(path) for path in made],
    )
    numbers = json.dumps(asdict(demo), indent=2) + "\n"
    (output / "numbers.json").write_text(numbers, encoding="utf-8")
    return demo


def bundled_clip(frames: int | None = None) -> Tensor:
    """The first frames, or all 24, of the bundled clip: (T, 3, 400, 704)."""
    with as_file(files("vsrkit").joinpath("assets", "city.mp4")) as path:
        return torch.stack(list(islice(read_video(path), frames)))


def describe(demo: Demo) -> str:
    """The result as text."""
    lines = [
        f"{demo.frames} frames upscaled from 176x100 to 704x400 with {demo.model} "
        f"({demo.precision}, {demo.seconds_per_frame:.2f} s per frame).",
        f"{demo.model:>8}: {demo.psnr:.2f} dB PSNR, {demo.ssim:.4f} SSIM against the original (Y)",
    ]
    if demo.model == "bicubic":
        lines.append("No trained weights are installed, so this is bicubic interpolation.")
    else:
        lines.append(f" bicubic: {demo.bicubic_psnr:.2f} dB PSNR, {demo.bicubic_ssim:.4f} SSIM")
    return "\n".join([*lines, "Look at:", *(f"  {file}" for file in demo.files)])


def _scores(sr: list[Tensor], hr: Tensor) -> tuple[float, float]:
    pairs = zip(sr, hr, strict=True)
    similar = [ssim(measured(a, channel="y"), measured(b, channel="y")) for a, b in pairs]
    return round(mean_psnr_y(sr, hr), 3), round(sum(similar) / len(similar), 4)


def _side_by_side(*frames: Tensor) -> Tensor:
    """The same crop of several frames in a row, enlarged twice, separated by white lines."""
    crops = [frame[:, 60:300, 160:440] for frame in frames]
    line = torch.ones(3, crops[0].shape[-2], 4)
    row = [part for crop in crops for part in (line, crop)][1:]
    return enlarge(torch.cat(row, -1), 2)
