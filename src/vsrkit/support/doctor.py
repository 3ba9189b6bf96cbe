"""The report of `vsrkit doctor`: capabilities of the machine, and a self-test of vsrkit.

The self-test runs the bundled clip, downscaled, through the whole pipeline in a few seconds.
"""

import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import av
import psutil
import torch
from av.codec.codec import UnknownCodecError

from vsrkit import __version__
from vsrkit.data.degrade import BI, degrade
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.hardware.device import largest_convolution, measure_speeds
from vsrkit.hardware.files import cache_directory
from vsrkit.hardware.memory import format_size, free_memory
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.layers.resample import imresize
from vsrkit.models.zoo import MODELS, default_model, load_model, local_weights
from vsrkit.support.demo import bundled_clip
from vsrkit.upscale.job import upscale_video
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.video.encode import write_video
from vsrkit.video.images import read_image, write_image
from vsrkit.video.read import open_source

PACKAGES = ("torch", "numpy", "av", "safetensors", "einops", "typer")
INSTRUCTIONS = "sse4_2 avx avx2 fma avx512f avx512_vnni avx512_bf16 amx_bf16 amx_int8 asimd sve"
DECODERS = "h264 hevc av1 libdav1d vp8 vp9 mpeg2video mpeg4 prores dnxhd ffv1 mjpeg rawvideo"
ENCODERS = "libx264 libx265 libsvtav1 libvpx-vp9 prores_ks ffv1 png aac libopus flac mov_text"
TEST_FRAMES, TEST_SCALE = 6, 4  # of the self-test


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of the self-test."""

    name: str
    passed: bool
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """The report; sizes in bytes."""

    vsrkit: str
    python: str
    system: str
    versions: dict[str, str]
    processor: str
    instructions: list[str]
    cores: int  # available to this process
    threads: int  # used by PyTorch
    memory: int
    free_memory: int
    devices: list[str]
    gigaflops: dict[str, float]  # of the default model's largest layer; 0: unsupported
    decoders: dict[str, bool]
    encoders: dict[str, bool]
    default_model: str
    weights: dict[str, str]  # model -> file, of the installed ones
    cache: str
    cache_writable: bool
    checks: list[Check]

    @property
    def healthy(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


def examine(*, self_test: bool = True) -> Checkup:
    """Examine the machine and measure its speed.

    Args:
        self_test: also run the self-test.
    """
    model = default_model()
    return Checkup(
        vsrkit=__version__,
        python=platform.python_version(),
        system=platform.platform(),
        versions={name: version(name) for name in PACKAGES}
        | {"ffmpeg": getattr(av, "ffmpeg_version_info", "unknown")},
        processor=processor_name(),
        instructions=instruction_sets(),
        cores=available_cores(),
        threads=torch.get_num_threads(),
        memory=psutil.virtual_memory().total,
        free_memory=free_memory(),
        devices=_devices(),
        gigaflops=_speeds(model),
        decoders={name: _has_codec(name, "r") for name in DECODERS.split()},
        encoders={name: _has_codec(name, "w") for name in ENCODERS.split()},
        default_model=model,
        weights={name: str(path) for name in MODELS if (path := local_weights(name))},
        cache=str(cache_directory()),
        cache_writable=_writable(cache_directory()),
        checks=run_checks(model) if self_test else [],
    )


def as_json(checkup: Checkup) -> dict[str, Any]:
    """The report as values for JSON, with `healthy`."""
    return asdict(checkup) | {"healthy": checkup.healthy}


def describe(checkup: Checkup) -> str:
    """The report as plain text."""
    facts = {
        "vsrkit": f"{checkup.vsrkit}, Python {checkup.python}, {checkup.system}",
        "packages": ", ".join(f"{name} {number}" for name, number in checkup.versions.items()),
        "processor": f"{checkup.processor}, {checkup.cores} cores, {checkup.threads} threads used",
        "instructions": " ".join(checkup.instructions) or "unknown",
        "memory": f"{format_size(checkup.memory)}, {format_size(checkup.free_memory)} free",
        "devices": ", ".join(checkup.devices),
        "speed": "; ".join(
            f"{name} {speed:.0f} GFLOP/s" if speed else f"{name} not supported"
            for name, speed in checkup.gigaflops.items()
        )
        or "not measured: no trained weights installed",
        "decoders": _listed(checkup.decoders),
        "encoders": _listed(checkup.encoders),
        "weights": ", ".join(checkup.weights) or "none (see `vsrkit weights list`)",
        "cache": checkup.cache + ("" if checkup.cache_writable else " (not writable)"),
    }
    lines = [f"{name:<13} {text}" for name, text in facts.items()]
    for check in checkup.checks:
        verdict = "ok" if check.passed else "FAILED"
        lines.append(f"{'self-test':<13} {verdict}: {check.name}: {check.found}")
    return "\n".join(lines)


def _listed(codecs: dict[str, bool]) -> str:
    available = " ".join(name for name, found in codecs.items() if found)
    missing = " ".join(name for name, found in codecs.items() if not found)
    return available + (f" (missing: {missing})" if missing else "")


def _cpuinfo(field: str) -> str | None:
    """The first value of a field in /proc/cpuinfo; field: a regular expression of its name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(rf"^(?:{field})\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else None


def processor_name() -> str:
    """The processor as the system calls it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def instruction_sets() -> list[str]:
    """Instruction sets that matter for speed; PyTorch's choice if the system does not list them."""
    flags = _cpuinfo("flags|Features")
    if flags is None:
        return [torch.backends.cpu.get_cpu_capability()]
    return [name for name in INSTRUCTIONS.split() if name in flags.split()]


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _devices() -> list[str]:
    devices = ["cpu"]
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        devices.append(f"cuda:{number} ({facts.name}, {format_size(facts.total_memory)})")
    if torch.backends.mps.is_available():
        devices.append("mps")
    return devices


def _speeds(model: str) -> dict[str, float]:
    convolution = largest_convolution(load_model(model))
    if convolution is None:
        return {}
    speeds = measure_speeds(convolution, torch.device("cpu"))
    return {str(precision): round(speed, 1) for precision, speed in speeds.items()}


def _has_codec(name: str, mode: str) -> bool:
    try:
        av.Codec(name, mode)  # type: ignore[arg-type]
    except UnknownCodecError:
        return False
    return True


def _writable(folder: Path) -> bool:
    """Whether files can be created in a folder, or in its nearest existing parent."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)


def run_checks(model: str) -> list[Check]:
    """Run each stage of the pipeline.

    Args:
        model: name of the model to upscale with.
    """
    with TemporaryDirectory(prefix="vsrkit-doctor-") as scratch:
        folder = Path(scratch)
        return [
            _run_check("write and read an image", lambda: _image_round_trip(folder)),
            _run_check("find a cut", _cut),
            _run_check(f"upscale a video with {model}", lambda: _whole_pipeline(folder, model)),
        ]


def _run_check(name: str, check: Callable[[], tuple[bool, str]]) -> Check:
    """Run one check; an exception counts as a failure."""
    begin = time.perf_counter()
    try:
        passed, found = check()
    except Exception as error:  # noqa: BLE001  any error is a result of the test
        passed, found = False, f"{type(error).__name__}: {' '.join(str(error).split())}"
    return Check(name, passed, f"{found} ({time.perf_counter() - begin:.1f} s)")


def _image_round_trip(folder: Path) -> tuple[bool, str]:
    frame = (torch.arange(3 * 32 * 48) * 21 % 65536).reshape(3, 32, 48) / 65535
    write_image(folder / "frame.png", frame, bits=16)
    error = float((read_image(folder / "frame.png") - frame).abs().max()) * 65535
    return error < 0.5, f"16 bits, largest error {error:.2f} steps"


def _cut() -> tuple[bool, str]:
    clip = bundled_clip(TEST_FRAMES)
    other = clip.flip(-1, -2).roll(1, 1)  # rotated by 180 degrees, colour channels swapped
    found = [n for n, (_, cut) in enumerate(mark_cuts([*clip, *other])) if cut]
    place = f"frame {', '.join(map(str, found))}" if found else "no frame"
    return found == [TEST_FRAMES], f"at {place} of {2 * TEST_FRAMES}"


def _whole_pipeline(folder: Path, model: str) -> tuple[bool, str]:
    hr = bundled_clip(TEST_FRAMES)
    small, large = folder / "in.mp4", folder / "out.mkv"
    # The highest quality, so that the encoder hardly affects the scores.
    write_video(small, degrade(hr, BI(TEST_SCALE)), frames_per_second=Fraction(25), crf=1)
    made = upscale_video(small, large, options=UpscaleOptions(model=model, device="cpu", crf=1))
    lr, sr = list(open_source(small).frames()), list(open_source(large).frames())
    if len(sr) != TEST_FRAMES or made.frames != TEST_FRAMES:
        return False, f"{len(sr)} frames instead of {TEST_FRAMES}"
    if not all(torch.isfinite(frame).all() for frame in sr):
        return False, "the output contains NaN or infinity"
    if sr[0].shape != hr[0].shape:
        return False, f"frames of shape {tuple(sr[0].shape)} instead of {tuple(hr[0].shape)}"
    ours = mean_psnr_y(sr, hr)
    bicubic = mean_psnr_y([imresize(frame, TEST_SCALE) for frame in lr], hr)
    kept = mean_psnr_y([imresize(frame, Fraction(1, TEST_SCALE)) for frame in sr], lr)
    text = f"{len(sr)} frames, {ours:.2f} dB, bicubic {bicubic:.2f} dB, downscaled {kept:.1f} dB"
    # Bicubic through the encoder may be slightly worse than without.
    better = ours > bicubic - 0.1 if model == "bicubic" else ours > bicubic
    return better, text
