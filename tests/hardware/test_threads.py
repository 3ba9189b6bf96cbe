"""Two pieces of work at once, and the same results as one after the other."""

from threading import Barrier, Event, get_ident

import pytest
import torch

from vsrkit.hardware.precision import Precision, running_in
from vsrkit.hardware.threads import from_both_ends, one_by_one, sharing_cores, side_by_side
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def look():
    return get_ident(), torch.get_num_threads(), torch.is_inference_mode_enabled()


def test_each_half_has_a_thread_and_half_of_the_cores(two_threads):
    both = Barrier(2)

    def look_together():
        both.wait(timeout=60)  # nobody gets past it alone
        return look()

    with sharing_cores(), torch.inference_mode():
        first, second = side_by_side(look_together, look_together)
    assert len({first[0], second[0], get_ident()}) == 3
    assert first[1:] == second[1:] == (1, True)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("allowed", "grad"), [(False, False), (True, True)])
def test_elsewhere_and_with_gradients_one_comes_after_the_other(two_threads, allowed, grad):
    with sharing_cores(allowed=allowed), torch.set_grad_enabled(grad):
        first, second = side_by_side(look, look)
    assert first[0] == second[0] == get_ident()


def test_the_number_type_goes_along(two_threads):
    def product():
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype

    with sharing_cores(), torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert side_by_side(product, product) == (torch.bfloat16, torch.bfloat16)


def test_an_error_comes_out(two_threads):
    def fail():
        raise MemoryError("no room")

    with sharing_cores(), torch.no_grad(), pytest.raises(MemoryError, match="no room"):
        side_by_side(look, fail)


def test_a_model_gives_the_same_bits(two_threads):
    model = VSRTSmall(SmallConfig(channels=16, tower_blocks=2)).eval()
    clip = torch.rand(1, 4, 3, 24, 40)
    with torch.inference_mode():
        alone = model(clip)
    with running_in(Precision("float32", False), "cpu"):
        assert torch.equal(model(clip), alone)


def test_frames_go_one_by_one_only_where_cores_are_shared():
    seen = []

    def double(frames):
        seen.append(len(frames))
        return 2 * frames

    frames = torch.rand(3, 2, 4, 4)
    assert torch.equal(one_by_one(double, frames), 2 * frames)
    with sharing_cores():
        one_by_one(double, frames)  # gradients are wanted
        with torch.no_grad():
            assert torch.equal(one_by_one(double, frames), 2 * frames)
    assert seen == [3, 3, 1, 1, 1]


def squares(some):
    for item in some:
        yield item * item, get_ident()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_items_are_worked_on_after_both_and_come_in_order(two_threads, shared, count):
    done = []
    with sharing_cores(allowed=shared), torch.no_grad():
        results = from_both_ends(
            lambda: done.append("first"), lambda: done.append("second"), squares, range(count),
            is_ready=lambda _: len(done) == 2,
        )  # fmt: skip
    assert [square for square, _ in results] == [n * n for n in range(count)]
    assert sorted(done) == ["first", "second"]


def test_who_is_done_first_begins_at_its_own_end(two_threads):
    second_may_end, order = Event(), []

    def work(some):
        for item in some:
            order.append(item)
            if item == 2:
                second_may_end.set()
            yield item, get_ident()

    with sharing_cores(), torch.no_grad():
        results = from_both_ends(
            lambda: None, lambda: second_may_end.wait(timeout=60), work, range(6),
            is_ready=lambda item: item < 4,
        )  # fmt: skip
    assert order[:3] == [0, 1, 2]
    assert [item for item, _ in results] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("which", ["first", "second", "work"])
def test_nobody_waits_for_who_has_failed(two_threads, which):
    def chain(name):
        if name == which:
            raise MemoryError("no room")

    def work(some):
        for item in some:
            chain("work")
            yield item

    with sharing_cores(), torch.no_grad(), pytest.raises(MemoryError, match="no room"):
        from_both_ends(
            lambda: chain("first"), lambda: chain("second"), work, range(9),
            is_ready=lambda _: False,
        )  # fmt: skip
