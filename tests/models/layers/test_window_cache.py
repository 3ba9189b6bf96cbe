"""Overlapping windows compute what they share once, without a change of the output."""

from dataclasses import replace

import pytest
import torch

from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.edvr import EDVR, EDVRConfig
from vsrkit.models.ensemble import Ensemble
from vsrkit.models.layers.window_cache import WindowCache, map_frames
from vsrkit.models.tdan import TDAN, TDANConfig
from vsrkit.models.vsrt import VSRT, VSRTConfig

PLAIN = Precision("float32", channels_last=True)


class CountedCalls:
    """A function of frames that counts how often it is called."""

    def __init__(self):
        self.count = 0

    def __call__(self, *frames):
        self.count += 1
        return sum(frame.sum().item() * place for place, frame in enumerate(frames, 1))


def clip_of(*numbers):
    """Frames that each look different: (1, T, 3, 4, 4)."""
    return torch.stack([torch.full((3, 4, 4), float(n)) for n in numbers])[None]


def test_a_frame_of_the_previous_window_is_not_computed_again():
    cache, function = WindowCache(), CountedCalls()
    first = cache.map_frames(function, clip_of(1, 2, 3))
    second = cache.map_frames(function, clip_of(2, 3, 4))
    assert function.count == 4
    assert second == [first[1], first[2], 4 * 48.0]


def test_a_pair_is_identified_by_both_frames_in_order():
    cache, function = WindowCache(), CountedCalls()
    clip = clip_of(1, 2, 3)
    to_prev = cache.map_pairs(function, clip, [0, 0, 1])
    to_next = cache.map_pairs(function, clip, [1, 2, 2])
    assert function.count == 6
    later = clip_of(2, 3, 4)
    assert cache.map_pairs(function, later, [0, 0, 1])[1] == to_prev[2]  # 3 to 2
    assert cache.map_pairs(function, later, [1, 2, 2])[0] == to_next[1]  # 2 to 3
    # New are 2 to itself, 4 to 3, 3 to 4 and 4 to itself.
    assert function.count == 10


def test_results_of_frames_outside_the_window_are_dropped():
    cache, function = WindowCache(), CountedCalls()
    for start in range(50):
        cache.map_frames(function, clip_of(start, start + 1, start + 2))
        cache.map_pairs(function, clip_of(start, start + 1, start + 2), [0, 0, 1])
    assert len(cache._frames) == 3
    assert len(cache._results) == 6
    before = function.count
    cache.map_frames(function, clip_of(0, 1, 2))
    assert function.count == before + 3


def test_repeated_frames_share_a_result_and_other_sizes_do_not():
    cache, function = WindowCache(), CountedCalls()
    assert len(cache.map_frames(function, clip_of(7, 7, 7))) == 3
    assert function.count == 1
    cache.map_frames(function, torch.full((1, 1, 3, 8, 8), 7.0))
    assert function.count == 2


def test_two_functions_do_not_share_results():
    cache, one, other = WindowCache(), CountedCalls(), CountedCalls()
    cache.map_frames(one, clip_of(1))
    cache.map_frames(other, clip_of(1))
    assert (one.count, other.count) == (1, 1)


def test_without_a_cache_every_frame_is_computed():
    """Arithmetic is counted for all frames, and training pays for no comparisons."""
    function = CountedCalls()
    map_frames(function, clip_of(1, 1, 1), None)
    assert function.count == 3


TINY = {
    "vsrt": lambda: VSRT(
        VSRTConfig(frames=3, depth=1, channels=8, extract_blocks=1, tower_blocks=1,
                   reconstruct_blocks=1, size=None)
    ),
    "edvr": lambda: EDVR(EDVRConfig(channels=8, frames=3, groups=2, extract_blocks=1,
                                    reconstruct_blocks=1)),
    "tdan": lambda: TDAN(TDANConfig(channels=16, frames=3, extract_blocks=1,
                                    reconstruct_blocks=1)),
}  # fmt: skip


def part_of(model, name):
    """The module that such a model runs once per frame."""
    return {
        "vsrt": lambda: model.encoder,
        "edvr": lambda: model.front.feature_extraction,
        "tdan": lambda: model.extraction,
    }[name]()


@pytest.mark.parametrize("tile", [None, 32])
@pytest.mark.parametrize("name", TINY)
def test_upscaling_computes_each_frame_once_and_gives_the_same_bits(name, tile):
    torch.manual_seed(0)
    model = TINY[name]().eval()
    calls = []
    part_of(model, name).register_forward_hook(lambda *_: calls.append(1))
    frames = list(torch.rand(9, 3, 32, 48))
    engine = Engine(model, PLAIN, tile=tile)
    tiles = 1 if tile is None else 2

    once = list(upscale_frames(frames, engine, cuts=[5]))
    assert len(calls) == 9 * tiles
    calls.clear()
    uncached = list(upscale_frames(frames, replace(engine, window_caches=None), cuts=[5]))
    # Frames that a window repeats at the end of a shot are computed once even then.
    assert 9 * tiles < len(calls) <= 27 * tiles
    for a, b in zip(once, uncached, strict=True):
        assert torch.equal(a, b)


def test_flows_are_computed_once_for_each_pair():
    torch.manual_seed(0)
    model = TINY["vsrt"]().eval()
    calls = []
    model.flow.register_forward_hook(lambda *_: calls.append(1))
    list(upscale_frames(list(torch.rand(8, 3, 32, 32)), Engine(model, PLAIN)))
    # 7 neighbours in both directions, each frame to itself at the first and last place of a
    # window, and the new neighbours of the mirrored windows at both ends.
    assert len(calls) <= 7 * 2 + 8 + 4


def test_an_ensemble_computes_every_view():
    torch.manual_seed(0)
    model = TINY["tdan"]().eval()
    engine = Engine(Ensemble(model, 2), PLAIN)
    calls = []
    model.extraction.register_forward_hook(lambda *_: calls.append(1))
    list(upscale_frames(list(torch.rand(4, 3, 16, 16)), engine))
    assert len(calls) == 4 * 2 * 3
