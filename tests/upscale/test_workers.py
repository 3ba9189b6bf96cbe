"""Worker processes do not receive Ctrl-C while they start."""

import signal
import subprocess
import sys

import pytest

from vsrkit.upscale.workers import _interrupts_blocked

BLOCKED = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"


def child_is_spared():
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    return done.stdout.strip() == "True"


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Unix only")
def test_ctrl_c_does_not_reach_processes_that_are_being_started():
    with _interrupts_blocked():
        assert child_is_spared()
    assert not child_is_spared()
