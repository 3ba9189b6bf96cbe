"""Freed memory is used again."""

import subprocess
import sys

import pytest

COUNT = """
import resource, sys, torch
from vsrkit.hardware.allocator import keep_freed_memory
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


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is meant")
def test_freed_tensors_cost_no_page_faults():
    def count(how):
        run = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True)
        return int(run.stdout)

    # Not none: small allocations between the blocks may split some of them.
    assert count("keep") < 0.5 * count("leave")
