"""Free and peak memory, sizes as text, and clips that are read a few rows at a time to save it."""

import ctypes
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import Tensor

from vsrkit.errors import VsrkitError

if sys.platform != "win32":
    import resource

# Files with the limit and the current use of a container's control group: version 2, version 1.
CONTROL_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # from glibc's malloc.h
# Larger blocks are still mapped one by one: freed ones on the heap are soon split by small
# allocations, and the heap would grow without limit.
LARGEST_HEAP_BLOCK = 32 << 20
UNLIMITED = -1


def free_memory(device: str = "cpu") -> int:
    """Bytes this process can still allocate on a device; at least 1 GiB.

    For the CPU, on this system or in this container; less than 1 GiB only below a `ulimit -v`.
    """
    if (kind := torch.device(device).type) == "cuda":
        return max(torch.cuda.mem_get_info(device)[0], 1 << 30)
    if kind == "mps":
        free_mps = torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
        return max(free_mps, 1 << 30)
    free = [psutil.virtual_memory().available]
    for limit, used in CONTROL_GROUPS:
        with suppress(OSError, ValueError):  # no such control group, or one without a limit
            free.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
    return min(max(min(free), 1 << 30), _below_ulimit())


def _below_ulimit() -> int:
    """Bytes that this process may still map, which `ulimit -v` limits."""
    if sys.platform == "win32":
        return sys.maxsize
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(limit - psutil.Process().memory_info().vms, 0)


class PeakMemory:
    """Peak memory since this was created: resident on the CPU, allocated on a CUDA device."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        # Linux can reset the peak of a process; elsewhere it counts from the start of the process.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def peak_mb(self) -> float:
        """Megabytes (10^6 bytes)."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e6
        return _peak_resident() / 1e6


def _peak_resident() -> int:
    """Bytes; psutil has this figure on Windows only."""
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Not ru_maxrss: on Linux it is never below the peak of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def parse_size(text: str) -> int:
    """Bytes in `2G`, `1500M`, `1.5 GiB` or `800000000`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise VsrkitError(f"{text!r} is not an amount of memory; write for example 2G or 1500M")
    return round(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def format_size(size: int) -> str:
    """Bytes as text: 1.4G, 320M."""
    return f"{size / 2**30:.1f}G" if size >= 2**30 else f"{round(size / 2**20)}M"


def keep_freed_memory(limit: int = 1 << 30) -> None:
    """Let glibc reuse the memory of freed tensors instead of returning it to the system.

    Memory that was returned is cleared page by page when the next tensor uses it; in a tower of
    residual blocks that costs a fifth of the time. Does nothing with other C libraries.

    limit: bytes of free memory to keep at most, or UNLIMITED.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library, or Windows
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, LARGEST_HEAP_BLOCK)
        mallopt(M_TRIM_THRESHOLD, limit)
        mallopt(M_ARENA_MAX, 1)  # one heap for all threads: heaps of threads keep no large blocks


@dataclass(frozen=True, slots=True)
class Rows:
    """A clip or frame whose rows are computed or loaded on demand.

    shape: (..., H, W).
    read: takes the first row and the row after the last, returns (..., rows, W).
    """

    shape: tuple[int, ...]
    read: Callable[[int, int], Tensor]

    def whole(self) -> Tensor:
        """All rows."""
        return self.read(0, self.shape[-2])


def as_rows(x: Tensor | Rows) -> Rows:
    """A tensor (..., H, W) as Rows."""
    if isinstance(x, Rows):
        return x
    return Rows(tuple(x.shape), lambda start, stop: x[..., start:stop, :])


def as_tensor(x: Tensor | Rows) -> Tensor:
    """All rows as one tensor (..., H, W)."""
    return x.whole() if isinstance(x, Rows) else x
