"""Faults of real videos are seen, and sound videos have none."""

from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.clips import write_clip
from tests.scenes import scene

from vsrkit.upscale.sampling import sample, spread
from vsrkit.upscale.source_checks import (
    BLOCKY,
    blockiness,
    has_pulldown,
    is_combed,
    is_repeated,
    look_for_faults,
)
from vsrkit.video.read import open_source
from vsrkit.video.write import write_video

STEP = 5  # pixels a frame


def pan(frames):
    wide = scene(3, 96, 128, STEP * frames)
    return [wide[:, :, STEP * n : STEP * n + 128] for n in range(frames)]


def slow_pan(frames):
    """A pixel a frame, out of focus: combs are too faint to be seen."""
    wide = F.avg_pool2d(scene(3, 96, 128, frames)[None], 5, 1, 2)[0]
    return [wide[:, :, n : n + 128] for n in range(frames)]


def woven(even, odd):
    """One frame of two fields."""
    frame = even.clone()
    frame[:, 1::2] = odd[:, 1::2]
    return frame


def grey(frame):
    return (frame.mean(0) * 255).round().numpy().astype(np.int16)


def telecined(film):
    """3:2 pulldown: four frames become five, two of them combed."""
    groups = [film[n : n + 4] for n in range(0, len(film) - 3, 4)]
    return [f for a, b, c, d in groups for f in (a, b, woven(b, c), woven(c, d), d)]


def faults_of(frames, tmp_path):
    path = tmp_path / "video.mp4"
    write_video(path, frames, frames_per_second=Fraction(25))
    return look_for_faults(open_source(path))


def test_a_sound_video(tmp_path):
    faults = faults_of(pan(30), tmp_path)
    assert faults.combed == 0
    assert not faults.telecine
    assert faults.bars == (0, 0, 0, 0)
    assert faults.blockiness < BLOCKY
    assert 0.05 < faults.bits_per_pixel < 8


def test_interlaced(tmp_path):
    frames = pan(61)
    fields = [woven(a, b) for a, b in zip(frames[::2], frames[1::2], strict=False)]
    faults = faults_of(fields, tmp_path)
    assert faults.combed == 1
    assert not faults.telecine


def test_telecine(tmp_path):
    faults = faults_of(telecined(pan(24)), tmp_path)
    assert faults.telecine
    assert faults.combed == pytest.approx(0.4, abs=0.05)


def test_telecine_of_a_slow_pan(tmp_path):
    film = slow_pan(24)
    assert not faults_of(film, tmp_path).telecine
    assert faults_of(telecined(film), tmp_path).telecine


def test_a_single_line_has_no_fields(tmp_path):
    clip = write_clip(
        tmp_path / "in.mkv", frames=3, width=32, height=1, codec="ffv1", pix_fmt="yuv444p"
    )
    assert not look_for_faults(open_source(clip)).telecine


def test_interlaced_slow_pan_is_no_telecine(tmp_path):
    frames = slow_pan(61)
    fields = [woven(a, b) for a, b in zip(frames[::2], frames[1::2], strict=False)]
    assert not faults_of(fields, tmp_path).telecine


def test_every_fifth_frame_repeated(tmp_path):
    film = pan(24)
    repeated = [f for n, frame in enumerate(film) for f in [frame] * (2 if n % 4 == 3 else 1)]
    assert faults_of(repeated, tmp_path).telecine


def test_letterbox_and_pillarbox(tmp_path):
    frames = [frame.clone() for frame in pan(6)]
    for frame in frames:
        frame[:, :12] = frame[:, -10:] = 0
        frame[:, :, :8] = 0
    assert faults_of(frames, tmp_path).bars == (12, 10, 8, 0)


def test_black_is_no_bar(tmp_path):
    faults = faults_of([torch.zeros(3, 32, 32)] * 3, tmp_path)
    assert faults.bars == (0, 0, 0, 0)
    assert faults.combed is None


def test_still_stripes_are_no_comb():
    stripes = np.zeros((40, 40), np.int16)
    stripes[::2] = 200
    assert is_combed(stripes, stripes) is None


def test_comb_needs_two_fields():
    a, b = (grey(frame) for frame in pan(2))
    assert is_combed(a, b) is False
    fields = b.copy()
    fields[1::2] = a[1::2]
    assert is_combed(a, fields) is True


def test_repeats():
    a, b = (grey(frame) for frame in pan(2))
    assert is_repeated(a, a)
    assert not is_repeated(a, b)


def test_rhythm():
    def flags(pattern):
        return [(mark == "c", mark == "r") for mark in pattern]

    assert has_pulldown(flags("..cc." * 5))
    assert has_pulldown(flags("c...c" * 5))
    assert has_pulldown(flags("r...." * 5))
    assert not has_pulldown(flags("ccccc" * 5))
    assert not has_pulldown(flags("....." * 5))
    assert not has_pulldown(flags("c.c.c" * 5))
    assert not has_pulldown(flags("..cc." * 2))


def test_blocks():
    picture = grey(scene(4))
    high, wide = (side // 8 * 8 for side in picture.shape)
    blocks = picture[:high, :wide].reshape(high // 8, 8, wide // 8, 8)
    flat = np.broadcast_to(blocks.mean((1, 3), keepdims=True), blocks.shape)
    mixed = (0.7 * flat + 0.3 * blocks).reshape(high, wide).round().astype(np.int16)
    assert blockiness(picture) == pytest.approx(1, abs=0.1)
    assert blockiness(mixed) > BLOCKY
    assert blockiness(np.zeros((1, 1), np.int16)) == 1


def test_bars_and_drawings_that_lie_on_the_grid_are_no_blocks():
    picture = grey(pan(1)[0])
    for bars in ((slice(0, 16), slice(None)), (slice(None), slice(-24, None))):
        framed = picture.copy()
        framed[bars] = 16
        assert blockiness(framed) == pytest.approx(blockiness(picture), abs=0.15)
    drawing = np.full((96, 128), 200, np.int16)
    drawing[16:64, 32:80] = 60
    drawing[24:40, 40:56] = 230
    assert blockiness(drawing) == 1


def test_runs_are_spread():
    assert spread(1000, 4, 25) == [0, 325, 650, 975]
    assert spread(30, 4, 25) == [0]
    assert spread(0, 4, 25) == [0]


def test_sample_is_from_the_middle_and_long_enough(tmp_path):
    frames = [torch.full((3, 16, 16), n / 40) for n in range(40)]
    path = tmp_path / "steps.mp4"
    write_video(path, frames, frames_per_second=Fraction(25))
    taken = sample(open_source(path), 60)
    assert len(taken) == 60
    assert float(taken[-1].mean()) == pytest.approx(39 / 40, abs=0.02)
