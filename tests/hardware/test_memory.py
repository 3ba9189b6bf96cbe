"""Sizes as text, free memory, peak memory, reuse of freed memory, and huge pages."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from vsrkit.errors import VsrkitError
from vsrkit.hardware import memory
from vsrkit.hardware.memory import format_size, free_memory, parse_size

PAGE_FAULTS = """
import resource, sys, torch
from vsrkit.hardware.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use():
    return len([torch.ones(1_250_000) for _ in range(40)])
use()
before = faults()
use()
print(faults() - before)
"""


@pytest.mark.parametrize(
    ("text", "size"),
    [("2G", 2 << 30), ("1500M", 1500 << 20), ("1.5 GiB", 3 << 29), ("800000000", 800_000_000)],
)
def test_parse_size(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-2G", "0"])
def test_parse_size_refuses_other_text(text):
    with pytest.raises(VsrkitError, match="2G"):
        parse_size(text)


def test_format_size():
    assert format_size(3 << 29) == "1.5G"
    assert format_size(300 << 20) == "300M"


def test_free_memory_is_below_the_total():
    assert 0 < free_memory() <= max(psutil.virtual_memory().total, 1 << 30)


@pytest.mark.parametrize(("limit", "expected"), [("6442450944", 2 << 30), ("max", 64 << 30)])
def test_free_memory_respects_the_limit_of_a_container(tmp_path, monkeypatch, limit, expected):
    (tmp_path / "max").write_text(limit)
    (tmp_path / "used").write_text(str(4 << 30))
    monkeypatch.setattr(memory, "CONTROL_GROUPS", [(str(tmp_path / "max"), str(tmp_path / "used"))])
    state = psutil.virtual_memory()._replace(available=64 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: state)
    assert free_memory() == expected


MEASURE_PEAK = """
import torch
from vsrkit.hardware.memory import PeakMemory
peak = PeakMemory()
before = peak.peak_mb()
torch.ones(100_000_000 // 4).sum()
print(peak.peak_mb() - before)
"""


def test_peak_memory_includes_freed_tensors():
    # In a new process: this one may have freed memory that the tensor would reuse.
    run = subprocess.run([sys.executable, "-c", MEASURE_PEAK], capture_output=True, check=True)
    assert 80 < float(run.stdout) < 150


@pytest.mark.skipif(sys.platform != "linux", reason="for glibc's malloc")
def test_reused_memory_causes_fewer_page_faults():
    def count(how):
        run = subprocess.run(
            [sys.executable, "-c", PAGE_FAULTS, how], capture_output=True, text=True
        )
        return int(run.stdout)

    # Some remain: small allocations between the blocks may split a few of them.
    assert count("keep") < 0.5 * count("leave")


HUGE_PAGES = """
import vsrkit, torch
from pathlib import Path
large = torch.ones(64 << 20, dtype=torch.uint8)
print(Path("/proc/self/smaps_rollup").read_text().partition("AnonHugePages:")[2].split()[0])
"""
CHOICES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not CHOICES.exists() or "[never]" in CHOICES.read_text(), reason="no huge pages here"
)
def test_large_tensors_are_in_huge_pages():
    kilobytes = int(subprocess.check_output([sys.executable, "-c", HUGE_PAGES], text=True))
    # Of 64 MB; fragmented memory may not have all of it in one piece.
    assert kilobytes > 16 << 10
