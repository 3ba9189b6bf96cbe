"""Instruction sets of the processor, which decide the last bits of float results."""

import os
from collections.abc import Iterable

from vsrkit.hardware.device import processor_flags

# Names of oneDNN, least first, and those of PyTorch. Sets for integers only are left out.
LEVELS = {
    "SSE41": "default",
    "AVX2": "avx2",
    "AVX512_CORE": "avx512",
    "AVX512_CORE_BF16": "avx512",
}
NEEDED_FLAGS = {
    "SSE41": {"sse4_1"},
    "AVX2": {"avx2", "fma"},
    "AVX512_CORE": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "AVX512_CORE_BF16": {"avx512_bf16"},
}
UNKNOWN = "unknown"  # not an x86 processor, or not described by the system


def instruction_level() -> str:
    """The highest of LEVELS that PyTorch uses in this process; UNKNOWN if that is not known."""
    flags = processor_flags()
    limits = (os.environ.get("ONEDNN_MAX_CPU_ISA", ""), os.environ.get("ATEN_CPU_CAPABILITY", ""))
    found = UNKNOWN
    for level, capability in LEVELS.items():
        if not NEEDED_FLAGS[level] <= flags:
            break
        found = level
        if limits[0].upper() == level or (limits[1] == capability and capability != "avx512"):
            break
    return found


def least_level(levels: Iterable[str]) -> str:
    """The level that all processors have; UNKNOWN if that of one is."""
    found = set(levels)
    return UNKNOWN if UNKNOWN in found else min(found, key=list(LEVELS).index)


def pinned_environment(level: str) -> dict[str, str]:
    """Variables that let a new process use the instructions of a level and no others.

    They are read when PyTorch is loaded. MKL has code for each maker of processors; its only branch
    that is the same on all of them is the compatible one.
    """
    if level == UNKNOWN:
        return {}
    return {
        "ONEDNN_MAX_CPU_ISA": level,
        "ATEN_CPU_CAPABILITY": LEVELS[level],
        "MKL_CBWR": "COMPATIBLE",
    }
