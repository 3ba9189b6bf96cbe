"""Parallel work gives the same results as sequential work."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, get_ident

import pytest
import torch

from vsrkit.hardware import threads
from vsrkit.hardware.device import Precision, inference_context
from vsrkit.hardware.threads import allow_parallel, run_from_both_ends, run_parallel, run_per_frame
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def thread_state():
    return get_ident(), torch.get_num_threads(), torch.is_inference_mode_enabled()


def test_each_function_gets_a_thread_and_half_of_the_cores(two_threads):
    both = Barrier(2)

    def wait_for_both():
        both.wait(timeout=60)  # blocks unless both run at the same time
        return thread_state()

    with allow_parallel(), torch.inference_mode():
        first, second = run_parallel(wait_for_both, wait_for_both)
    assert len({first[0], second[0], get_ident()}) == 3
    assert first[1:] == second[1:] == (1, True)
    assert torch.get_num_threads() == 2


def test_callers_in_several_threads_do_not_wait_for_each_other(two_threads, monkeypatch):
    def slowly(work):
        time.sleep(0.01)  # lets the other caller submit its first half before this second one
        return work

    def call(_):
        both = Barrier(2)
        with allow_parallel(), torch.no_grad():
            run_parallel(lambda: both.wait(20), lambda: both.wait(20))

    call(None)  # starts the threads
    monkeypatch.setattr(threads, "_with_torch_mode", slowly)
    with ThreadPoolExecutor(4) as callers:
        list(callers.map(call, range(8)))  # raises BrokenBarrierError if two wait for each other


@pytest.mark.parametrize(("enabled", "grad"), [(False, False), (True, True)])
def test_work_is_sequential_where_disabled_and_with_gradients(two_threads, enabled, grad):
    with allow_parallel(enabled=enabled), torch.set_grad_enabled(grad):
        first, second = run_parallel(thread_state, thread_state)
    assert first[0] == second[0] == get_ident()


def test_autocast_applies_in_both_threads(two_threads):
    def product():
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype

    with allow_parallel(), torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert run_parallel(product, product) == (torch.bfloat16, torch.bfloat16)


def test_an_error_is_raised_in_the_calling_thread(two_threads):
    def fail():
        raise MemoryError("out of memory")

    with allow_parallel(), torch.no_grad(), pytest.raises(MemoryError, match="out of memory"):
        run_parallel(thread_state, fail)


def test_a_model_gives_the_same_bits_in_parallel(two_threads):
    model = VSRTSmall(SmallConfig(channels=16, tower_blocks=2)).eval()
    clip = torch.rand(1, 4, 3, 24, 40)
    with torch.inference_mode():
        alone = model(clip)
    with inference_context(Precision("float32", False), "cpu"):
        assert torch.equal(model(clip), alone)


def test_frames_are_split_only_inside_allow_parallel():
    seen = []

    def double(frames):
        seen.append(len(frames))
        return 2 * frames

    frames = torch.rand(3, 2, 4, 4)
    assert torch.equal(run_per_frame(double, frames), 2 * frames)
    with allow_parallel():
        run_per_frame(double, frames)  # gradients are enabled
        with torch.no_grad():
            assert torch.equal(run_per_frame(double, frames), 2 * frames)
    assert seen == [3, 3, 1, 1, 1]


def squares(items):
    for item in items:
        yield item * item, get_ident()


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_items_are_processed_last_and_returned_in_order(two_threads, enabled, count):
    done = []
    with allow_parallel(enabled=enabled), torch.no_grad():
        results = run_from_both_ends(
            lambda: done.append("first"), lambda: done.append("second"), squares, range(count),
            is_ready=lambda _: len(done) == 2,
        )  # fmt: skip
    assert [square for square, _ in results] == [n * n for n in range(count)]
    assert sorted(done) == ["first", "second"]


def test_the_thread_that_finishes_first_starts_at_its_end_of_the_items(two_threads):
    second_may_finish, order = Event(), []

    def work(items):
        for item in items:
            order.append(item)
            if item == 2:
                second_may_finish.set()
            yield item, get_ident()

    with allow_parallel(), torch.no_grad():
        results = run_from_both_ends(
            lambda: None, lambda: second_may_finish.wait(timeout=60), work, range(6),
            is_ready=lambda item: item < 4,
        )  # fmt: skip
    assert order[:3] == [0, 1, 2]
    assert [item for item, _ in results] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("which", ["first", "second", "work"])
def test_a_failure_in_one_thread_does_not_block_the_other(two_threads, which):
    def fail_in(name):
        if name == which:
            raise MemoryError("out of memory")

    def work(items):
        for item in items:
            fail_in("work")
            yield item

    with allow_parallel(), torch.no_grad(), pytest.raises(MemoryError, match="out of memory"):
        run_from_both_ends(
            lambda: fail_in("first"), lambda: fail_in("second"), work, range(9),
            is_ready=lambda _: False,
        )  # fmt: skip
