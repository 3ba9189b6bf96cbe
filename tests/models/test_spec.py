"""Windows and segments of a shot: which frames, in which order, and how many are held."""

import json

import pytest
import torch
from tests.paths import GOLDEN

from vsrkit.models.spec import Carried, Segments, Window, pieces, plan_pieces, window_indices

PROTOCOL = json.loads((GOLDEN / "protocol.json").read_text())


def shot(length):
    return [torch.full((3, 2, 2), float(i)) for i in range(length)]


def numbers(frames):
    return [int(frame[0, 0, 0]) for frame in frames]


@pytest.mark.parametrize(
    ("centre", "padding", "wanted"),
    [
        (0, "replicate", [0, 0, 0, 1, 2]),
        (0, "reflection", [2, 1, 0, 1, 2]),
        (0, "reflection_circle", [4, 3, 0, 1, 2]),
        (0, "circle", [3, 4, 0, 1, 2]),
        (1, "reflection_circle", [4, 0, 1, 2, 3]),
        (98, "reflection_circle", [96, 97, 98, 99, 95]),
        (99, "reflection_circle", [97, 98, 99, 96, 95]),
    ],
)
def test_frames_beyond_the_shot_are_replaced_as_the_field_does(centre, padding, wanted):
    assert window_indices(centre, 100, 5, padding) == wanted


@pytest.mark.parametrize("padding", ["replicate", "reflection", "reflection_circle", "circle"])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 9, 23])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
def test_a_stream_gives_the_same_windows_as_indices(length, size, padding):
    frames = shot(length)
    context = Window(size, "all")
    windows = [numbers(piece.clip) for piece in pieces(iter(frames), context, padding)]
    assert windows == [window_indices(i, length, size, padding) for i in range(length)]


def test_windows_hold_a_bounded_number_of_frames(monkeypatch):
    alive = 0
    most = 0

    class Frame:
        def __init__(self):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self):
            nonlocal alive
            alive -= 1

    monkeypatch.setattr(torch, "stack", lambda frames: None)
    for _ in pieces((Frame() for _ in range(200)), Window(5)):
        pass
    assert most <= 2 * 5 + 2  # held, the one being made, the one in the loop


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 30])
@pytest.mark.parametrize(("size", "warmup"), [(8, 3), (8, 0), (1, 2), (40, 4)])
def test_segments_have_fixed_positions_and_keep_every_frame_once(length, size, warmup):
    kept = []
    for piece in pieces(iter(shot(length)), Segments(size, warmup)):
        read = numbers(piece.clip)
        first = read[piece.keep.start]
        last = min(first + size, length)
        assert first % size == 0
        assert read == list(range(max(0, first - warmup), min(length, last + warmup)))
        kept += read[piece.keep]
    assert kept == list(range(length))


def test_pieces_match_on_the_context():
    centre = [p.keep for p in pieces(shot(4), Window(3))]
    assert centre == [slice(1, 2)] * 4
    assert [len(p.clip) for p in pieces(shot(10), Segments(4, 1))] == [5, 6, 3]


def test_impossible_contexts_are_refused():
    with pytest.raises(ValueError, match="odd"):
        Window(4)
    with pytest.raises(ValueError, match="length >= 1"):
        Segments(0, 1)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 41])
@pytest.mark.parametrize(
    "context",
    [
        Window(1, "all"),
        Window(5),
        Window(7, "all"),
        Segments(4, 2),
        Segments(16, 4),
        Carried(),
        Carried(look_ahead=1),
    ],
)
def test_the_plan_is_what_the_stream_gives(context, length):
    shot = [torch.full((3, 1, 1), n) for n in range(length)]
    streamed = [
        (tuple(piece.clip[:, 0, 0, 0].int().tolist()), piece.keep, piece.begins_shot)
        for piece in pieces(shot, context)
    ]
    planned = [
        (tuple(n - 10 for n in plan.frames), plan.keep, plan.begins_shot)
        for plan in plan_pieces(10, 10 + length, context)
    ]
    assert planned == streamed


@pytest.mark.parametrize("stride", [1, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 4, 5, 6, 7, 11, 13])
def test_a_stride_keeps_each_frame_once_from_inside_its_window(length, stride):
    plans = list(plan_pieces(0, length, Window(5, "all"), stride=stride))
    assert [n for plan in plans for n in plan.kept] == list(range(length))
    assert len(plans) == -(-length // stride)
    assert all(len(plan.frames) == 5 for plan in plans)


def test_a_carried_state_sees_the_second_frame_at_the_start():
    plans = [plan.frames for plan in plan_pieces(3, 6, Carried())]
    assert plans == [(3, 4), (4,), (5,)]
    assert [plan.frames for plan in plan_pieces(3, 4, Carried())] == [(3, 3)]


def test_a_carried_state_with_look_ahead_sees_the_next_frame():
    plans = [plan.frames for plan in plan_pieces(3, 6, Carried(look_ahead=1))]
    assert plans == [(3, 4), (4, 5), (5, 5)]
    assert [plan.frames for plan in plan_pieces(3, 4, Carried(look_ahead=1))] == [(3, 3)]
