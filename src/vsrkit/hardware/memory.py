"""Free and peak memory of this machine, and sizes as text."""

import re
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import torch

from vsrkit.errors import VsrkitError

# Limit and use of the control group that a container runs in: version 2, version 1.
CONTROL_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_memory() -> int:
    """Bytes this process can still allocate, by system and container limit; at least 1 GiB."""
    free = [psutil.virtual_memory().available]
    for limit, used in CONTROL_GROUPS:
        with suppress(OSError, ValueError):  # no such control group, or no limit in it
            free.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
    return max(min(free), 1 << 30)


class PeakMemory:
    """Peak memory since this was created: resident on the CPU, allocated on a CUDA device."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        # Linux can reset the peak of a process; elsewhere it counts from the process's start.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def peak_mb(self) -> float:
        """Megabytes (10^6 bytes)."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e6
        return _peak_resident() / 1e6


def parse_size(text: str) -> int:
    """Bytes in `2G`, `1500M`, `1.5 GiB` or `800000000`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise VsrkitError(f"{text!r} is not an amount of memory; write for example 2G or 1500M")
    return round(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def format_size(size: int) -> str:
    """Bytes as text: 1.4G, 320M."""
    return f"{size / 2**30:.1f}G" if size >= 2**30 else f"{round(size / 2**20)}M"


def _peak_resident() -> int:
    """Bytes; psutil has this figure on Windows only."""
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    import resource  # noqa: PLC0415  not on Windows

    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Not ru_maxrss: on Linux it is never below the peak of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
