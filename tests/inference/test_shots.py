"""Cuts are found; motion, light and noise are not taken for them."""

import pytest
import torch
import torch.nn.functional as F
from tests.scenes import in_8_bits, scene

from vsrkit.inference.shots import mark_cuts


def still(seed, frames):
    """A scene with the grain of a camera."""
    generator = torch.Generator().manual_seed(seed)
    picture = scene(seed)
    return [
        in_8_bits(picture + 0.01 * torch.randn(picture.shape, generator=generator))
        for _ in range(frames)
    ]


def cuts(frames):
    return [number for number, (_, cut) in enumerate(mark_cuts(frames)) if cut]


def mixed(a, b, share):
    return in_8_bits((1 - share) * a + share * b)


def test_finds_cuts_and_gives_every_frame_back_in_order():
    frames = [*still(1, 6), *still(2, 5), *still(3, 4)]
    marked = list(mark_cuts(frames))
    assert all(a is b for (a, _), b in zip(marked, frames, strict=True))
    assert [number for number, (_, cut) in enumerate(marked) if cut] == [6, 11]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_frames(count):
    frames = [scene(seed) for seed in range(count)]
    assert cuts(frames) == list(range(1, count))


def test_cut_at_every_frame():
    assert cuts(scene(seed) for seed in range(12)) == list(range(1, 12))


@pytest.mark.parametrize("size", [(9, 16), (24, 24), (200, 40), (360, 640)])
def test_cut_in_any_size(size):
    frames = [F.interpolate(scene(seed)[None], size, mode="area")[0] for seed in (1, 1, 1, 2, 2)]
    assert cuts(frames) == [3]


def test_cut_between_dark_scenes():
    dark = [in_8_bits(0.1 * frame) for frame in [*still(1, 5), *still(2, 5)]]
    assert cuts(dark) == [5]


def test_cut_between_plain_colours():
    red, blue = (torch.tensor(c)[:, None, None].expand(3, 20, 30) for c in ([0.8, 0, 0], [0, 0, 1]))
    assert cuts([red] * 3 + [blue] * 3) == [3]


def test_one_colour_has_none():
    assert cuts([torch.full((3, 40, 60), 0.4)] * 8) == []


@pytest.mark.parametrize("steps", [3, 6, 20])
def test_dissolve_is_none(steps):
    a, b = still(1, 3), still(2, 3)
    between = [mixed(a[0], b[0], n / steps) for n in range(1, steps)]
    assert cuts([*a, *between, *b]) == []


@pytest.mark.parametrize("steps", [4, 10, 25])
@pytest.mark.parametrize("level", [0.0, 1.0])
def test_fade_is_none(steps, level):
    plain = torch.full((3, 90, 160), level)
    fade = [mixed(scene(4), plain, n / steps) for n in range(steps + 1)]
    frames = [*still(4, 3), *fade, plain, plain]
    assert cuts(frames) == []
    assert cuts(frames[::-1]) == []


@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize("share", [0.6, 1.0])
def test_flash_is_none(frames, share):
    clip = still(5, 10)
    for number in range(4, 4 + frames):
        clip[number] = mixed(clip[number], torch.ones(3, 90, 160), share)
    assert cuts(clip) == []


def test_a_foreign_frame_is_a_shot_of_its_own():
    clip = still(6, 8)
    clip[4] = 0.5 * scene(7)  # darker, so it is not a flash
    assert cuts(clip) == [4, 5]


@pytest.mark.parametrize("speed", [0.03, 0.12, 0.2])
def test_pan_is_none(speed):
    step = int(160 * speed)
    wide = scene(8, margin=7 * step)
    assert cuts(wide[:, :, n * step : n * step + 160] for n in range(7)) == []


def test_the_answer_depends_on_near_frames_only():
    frames = [*still(1, 7), *still(2, 5), *still(3, 7)]
    whole = cuts(frames)
    assert whole == [7, 12]
    for start in (0, 3, 4):
        for stop in (15, 16, 19):
            assert [start + n for n in cuts(frames[start:stop])] == whole


def test_looks_two_frames_ahead():
    taken = 0

    def source():
        nonlocal taken
        for frame in still(1, 9):
            taken += 1
            yield frame

    for given, _ in enumerate(mark_cuts(source()), start=1):
        assert taken <= given + 2
