"""What this machine can do, and whether vsrkit works on it: the text for a bug report."""

import os
import platform
import re
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import av
import torch
from av.codec.codec import UnknownCodecError

from vsrkit import __version__
from vsrkit.hardware.cache import cache_directory
from vsrkit.hardware.memory import format_size, free_memory
from vsrkit.hardware.precision import largest_convolution, measure_speeds
from vsrkit.models.zoo import MODELS, default_model, load_model, local_weights
from vsrkit.support.selftest import Check, run_checks

PACKAGES = ("torch", "numpy", "av", "safetensors", "einops", "typer")
INSTRUCTIONS = "sse4_2 avx avx2 fma avx512f avx512_vnni avx512_bf16 amx_bf16 amx_int8 asimd sve"
DECODERS = "h264 hevc av1 libdav1d vp8 vp9 mpeg2video mpeg4 prores dnxhd ffv1 mjpeg rawvideo"
ENCODERS = "libx264 libx265 libsvtav1 libvpx-vp9 prores_ks ffv1 png aac libopus flac mov_text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """Everything `vsrkit doctor` found; sizes in bytes."""

    vsrkit: str
    python: str
    system: str
    versions: dict[str, str]
    processor: str
    instructions: list[str]
    cores: int  # that this process may use
    threads: int  # that PyTorch uses
    memory: int | None
    free_memory: int
    devices: list[str]
    gigaflops: dict[str, float]  # measured on the default model's commonest layer; 0: cannot run
    decoders: dict[str, bool]
    encoders: dict[str, bool]
    default_model: str
    weights: dict[str, str]  # model -> file, for those at hand
    cache: str
    cache_writable: bool
    checks: list[Check]

    @property
    def healthy(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


def examine(*, self_test: bool = True) -> Checkup:
    """Look at the machine, measure its speed, and try vsrkit on a small clip."""
    model = default_model()
    return Checkup(
        vsrkit=__version__,
        python=platform.python_version(),
        system=platform.platform(),
        versions=_versions(),
        processor=_processor_name(),
        instructions=_instructions(),
        cores=_cores(),
        threads=torch.get_num_threads(),
        memory=_memory(),
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
    """The same as plain values, with the verdict."""
    return asdict(checkup) | {"healthy": checkup.healthy}


def describe(checkup: Checkup) -> str:
    """Plain text to read or to paste."""
    memory = f"{format_size(checkup.memory)}, " if checkup.memory else ""
    facts = {
        "vsrkit": f"{checkup.vsrkit}, Python {checkup.python}, {checkup.system}",
        "packages": ", ".join(f"{name} {number}" for name, number in checkup.versions.items()),
        "processor": f"{checkup.processor}, {checkup.cores} cores, {checkup.threads} threads used",
        "instructions": " ".join(checkup.instructions) or "unknown",
        "memory": f"{memory}{format_size(checkup.free_memory)} free",
        "devices": ", ".join(checkup.devices),
        "speed": "; ".join(
            f"{name} {speed:.0f} GFLOP/s" if speed else f"{name} cannot run here"
            for name, speed in checkup.gigaflops.items()
        )
        or "not measured: no trained weights at hand",
        "decoders": _listed(checkup.decoders),
        "encoders": _listed(checkup.encoders),
        "weights": ", ".join(checkup.weights) or "none (`vsrkit weights list` says where from)",
        "cache": checkup.cache + ("" if checkup.cache_writable else " (cannot be written to)"),
    }
    lines = [f"{name:<13} {text}" for name, text in facts.items()]
    for check in checkup.checks:
        verdict = "ok" if check.passed else "FAILED"
        lines.append(f"{'self-test':<13} {verdict}: {check.name}: {check.found}")
    return "\n".join(lines)


def _listed(codecs: dict[str, bool]) -> str:
    there = " ".join(name for name, found in codecs.items() if found)
    missing = " ".join(name for name, found in codecs.items() if not found)
    return there + (f" (missing: {missing})" if missing else "")


def _versions() -> dict[str, str]:
    versions = {name: version(name) for name in PACKAGES}
    return versions | {"ffmpeg": getattr(av, "ffmpeg_version_info", "unknown")}


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


def _processor_name() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def _instructions() -> list[str]:
    """Those that matter for speed; where the system does not list them, PyTorch's own word."""
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    if found is None:
        return [torch.backends.cpu.get_cpu_capability()]
    flags = set(found[1].split())
    return [name for name in INSTRUCTIONS.split() if name in flags]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int | None:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


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
    """Whether files can be made there, or in the nearest folder above that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)
