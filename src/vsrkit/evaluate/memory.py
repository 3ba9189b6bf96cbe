"""The most memory a run held."""

import sys
from contextlib import suppress
from pathlib import Path

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


class PeakMemory:
    """Counts from when it is made: resident memory on the CPU, allocated memory on a GPU."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        # Linux forgets its high-water mark when asked to; elsewhere it is the process's own.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def peak_mb(self) -> float:
        """Megabytes (10^6 bytes)."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e6
        try:
            status = Path("/proc/self/status").read_text(encoding="ascii")
            line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            return int(line.split()[1]) * 1024 / 1e6
        except (OSError, StopIteration):
            if resource is None:
                return 0.0
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
