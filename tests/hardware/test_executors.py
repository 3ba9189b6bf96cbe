"""Processes of a pool: no Ctrl-C while they start, no life after their parent, order."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, ThreadPoolExecutor

import psutil
import pytest
import torch

from vsrkit.hardware.executors import MANY, LocalPool, interrupts_blocked, map_in_order, slots_of

BLOCKED = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
PARENT = """
import os, time
from vsrkit.hardware.executors import LocalPool

def nothing(*_):
    return os.getpid()

if __name__ == "__main__":
    pool = LocalPool(1, nothing)
    print(pool.submit(nothing).result(), flush=True)
    time.sleep(60)
"""


def child_is_spared():
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    return done.stdout.strip() == "True"


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Unix only")
def test_ctrl_c_does_not_reach_processes_that_are_being_started():
    with interrupts_blocked():
        assert child_is_spared()
    assert not child_is_spared()


def test_the_slots_of_an_executor_are_found_or_assumed():
    with ThreadPoolExecutor(3) as threads:
        assert slots_of(threads) == 3
    assert slots_of(Executor()) == MANY


def test_results_come_in_order_and_few_items_are_taken_in_advance():
    taken = []

    def items():
        for number in range(20):
            taken.append(number)
            yield number

    with ThreadPoolExecutor(2) as threads:
        results = map_in_order(threads, lambda n: time.sleep(0.01 * (n % 3)) or n, items())
        assert next(results) == 0
        assert len(taken) <= 2 * 2 + 1
        assert list(results) == list(range(1, 20))


def test_processes_share_the_threads_that_pytorch_was_given():
    before = torch.get_num_threads()
    torch.set_num_threads(3)  # as by OMP_NUM_THREADS, which is not the number of cores
    try:
        with LocalPool(1, nothing) as pool:
            assert pool.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)


def nothing():
    pass


def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    child.wait(timeout=20)
