"""What every test gets: one thread (the tensors are tiny, the test processes share the cores)."""

import os

# Some virtual machines announce AMX and die of its instructions: bfloat16 is tested without it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# For the processes that tests start: threads that wait for each other on busy cores are slow.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Nothing that a test measures or fetches reaches the user's cache directory."""
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
