"""Frames in any order are those of the whole video from beginning to end."""

import random

import pytest
import torch
from tests.inference.test_engine import PLAIN, Echo
from tests.scenes import scene

from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.inference.random_access import BLOCK, RandomAccess, detected_cuts, listed_cuts
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.spec import Carried, Segments, Window
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall

CUTS = (3, 4, 40, 70)
FRAMES = 75


class Neighbours(Echo):
    """Adds the frames around each one, so that a wrong neighbour or position shows."""

    def forward(self, clip, keep=None):
        weights = torch.arange(1, clip.shape[1] + 1).view(1, -1, 1, 1, 1) / clip.shape[1]
        whole = clip + (clip * weights).mean(1, keepdim=True)
        return super().forward(whole, keep)


def noise(count):
    generator = torch.Generator().manual_seed(0)
    return list(torch.rand(count, 3, 8, 8, generator=generator))


def shot(seed, count):
    return [scene(seed).roll(number, -1) for number in range(count)]


def orders():
    backwards = list(reversed(range(FRAMES)))
    mixed = list(range(FRAMES))
    random.Random(0).shuffle(mixed)
    return {"backwards": backwards, "mixed": mixed, "one": [BLOCK + 9]}


@pytest.mark.parametrize("order", orders())
@pytest.mark.parametrize(
    "context",
    [Window(1, "all"), Window(5), Window(4, "all"), Segments(6, 2), Segments(20, 3), Carried()],
)
def test_any_order_gives_the_same_frames(context, order):
    engine = Engine(Neighbours(context), PLAIN)
    frames = noise(FRAMES)
    wanted = list(upscale_frames(frames, engine, cuts=CUTS))
    access = RandomAccess(engine, frames.__getitem__, FRAMES, listed_cuts(CUTS), memory=0)
    for number in orders()[order]:
        assert torch.equal(access.frame(number), wanted[number]), number


def test_a_model_gives_the_same_bytes_backwards():
    torch.manual_seed(0)
    config = SmallConfig(channels=8, tower_blocks=1, attention_channels=8, segment=4, warmup=1)
    engine = Engine(VSRTSmall(config).eval(), PLAIN)
    frames = list(torch.rand(9, 3, 20, 24))
    wanted = list(upscale_frames(frames, engine, cuts=[6]))
    access = RandomAccess(engine, frames.__getitem__, 9, listed_cuts([6]))
    for number in reversed(range(9)):
        assert torch.equal(access.frame(number), wanted[number])


@pytest.mark.parametrize("begin", [0, 20, 23, 24, 25, 40])
def test_cuts_are_found_where_the_whole_video_has_them(begin):
    frames = [*shot(1, 30), *shot(2, 25)]
    wanted = [cut for _, cut in mark_cuts(frames)]
    assert sum(wanted) == 1
    found = detected_cuts(frames.__getitem__, len(frames))(begin, begin + 12)
    assert found == wanted[begin : begin + 12]


def test_memory_of_kept_frames_is_bounded():
    frames = noise(FRAMES)
    engine = Engine(Neighbours(Segments(6, 2)), PLAIN)
    size = 3 * 16 * 16 * 4
    access = RandomAccess(engine, frames.__getitem__, FRAMES, listed_cuts(()), memory=10 * size)
    for number in range(FRAMES):
        access.frame(number)
        assert len(access._frames) <= 10


def test_only_the_frames_that_a_segment_needs_are_read():
    frames, read = noise(FRAMES), []

    def recorded(number):
        read.append(number)
        return frames[number]

    engine = Engine(Neighbours(Segments(6, 2)), PLAIN)
    access = RandomAccess(engine, recorded, FRAMES, listed_cuts(()))
    access.frame(31)
    assert read == list(range(28, 38))
    access.frame(35)
    assert len(read) == 10
