"""Instruction sets: which level a process uses, and how it is pinned."""

import subprocess
import sys

import pytest

from vsrkit.hardware import instructions
from vsrkit.hardware.instructions import (
    LEVELS,
    NEEDED_FLAGS,
    UNKNOWN,
    instruction_level,
    least_level,
    pinned_environment,
    processor_flags,
)

ALL = frozenset().union(*NEEDED_FLAGS.values())


@pytest.fixture(autouse=True)
def no_limits(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (ALL, "AVX512_CORE_BF16"),
        (ALL - {"avx512_bf16"}, "AVX512_CORE"),
        (ALL - {"avx512vl"}, "AVX2"),
        (ALL - {"avx2"}, "SSE41"),
        (frozenset(), UNKNOWN),
    ],
)
def test_the_level_is_the_highest_of_which_all_flags_are_there(monkeypatch, flags, level):
    monkeypatch.setattr(instructions, "processor_flags", lambda: flags)
    assert instruction_level() == level


@pytest.mark.parametrize("level", ["AVX2", "SSE41"])
def test_limits_of_the_environment_count(monkeypatch, level):
    monkeypatch.setattr(instructions, "processor_flags", lambda: ALL)
    for name, value in pinned_environment(level).items():
        monkeypatch.setenv(name, value)
    assert instruction_level() == level


def test_the_least_level_is_what_all_have():
    assert least_level(["AVX512_CORE", "AVX2", "AVX512_CORE_BF16"]) == "AVX2"
    assert least_level(["AVX512_CORE", UNKNOWN]) == UNKNOWN
    assert pinned_environment(UNKNOWN) == {}


@pytest.mark.skipif(not NEEDED_FLAGS["AVX2"] <= processor_flags(), reason="needs AVX2")
def test_pytorch_obeys_the_limits():
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    for level, capability in (("SSE41", "DEFAULT"), ("AVX2", "AVX2")):
        done = subprocess.run(
            [sys.executable, "-c", code], env=pinned_environment(level), capture_output=True,
            text=True,
        )  # fmt: skip
        assert done.stdout.strip().upper() == capability
        assert LEVELS[level].upper() == capability
