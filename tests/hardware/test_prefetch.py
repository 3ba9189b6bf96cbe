"""Prefetching in a thread: same items, same errors, and an end when the caller stops."""

import threading
import time

import pytest

from vsrkit.hardware.threads import prefetch


def test_the_same_items_in_order():
    assert list(prefetch(range(100), 3)) == list(range(100))


def test_an_error_is_raised_in_the_caller():
    def broken():
        yield 1
        raise ValueError("no more")

    items = prefetch(broken(), 2)
    assert next(items) == 1
    with pytest.raises(ValueError, match="no more"):
        next(items)


def test_it_runs_at_most_size_items_ahead():
    made = []
    items = prefetch((made.append(n) or n for n in range(50)), 4)
    assert next(items) == 0
    time.sleep(0.3)
    assert len(made) <= 6  # four wait, one is in the hand, one was taken


def test_it_ends_when_the_caller_stops():
    before = threading.active_count()
    items = prefetch(iter(int, 1), 2)
    next(items)
    items.close()
    assert threading.active_count() == before


def test_size_zero_makes_each_item_on_request():
    made = []

    def make():
        for number in range(3):
            made.append(number)
            yield number

    items = prefetch(make(), 0)
    assert made == []
    assert next(items) == 0
    assert made == [0]
    assert list(items) == [1, 2]
