"""Each check finds its problem in a video and none in a video without problems."""

from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.clips import write_clip
from tests.scenes import scene

from vsrkit.upscale.source_checks import (
    BLOCKY,
    blockiness,
    check_source,
    interlaced_frames,
    is_periodic,
    is_repeated,
    sample,
    spread,
)
from vsrkit.video.encode import write_video
from vsrkit.video.images import write_image
from vsrkit.video.read import open_source

STEP = 5  # pixels per frame


def pan(frames):
    wide = scene(3, 96, 128, STEP * frames)
    return [wide[:, :, STEP * n : STEP * n + 128] for n in range(frames)]


def slow_pan(frames):
    """One pixel per frame, out of focus: too faint for idet."""
    wide = F.avg_pool2d(scene(3, 96, 128, frames)[None], 5, 1, 2)[0]
    return [wide[:, :, n : n + 128] for n in range(frames)]


def woven(even, odd):
    """Even lines of one frame, odd lines of another."""
    frame = even.clone()
    frame[:, 1::2] = odd[:, 1::2]
    return frame


def grey(frame):
    return (frame.mean(0) * 255).round().numpy().astype(np.int16)


def telecined(film):
    """3:2 pulldown: four frames become five, two of them woven."""
    groups = [film[n : n + 4] for n in range(0, len(film) - 3, 4)]
    return [f for a, b, c, d in groups for f in (a, b, woven(b, c), woven(c, d), d)]


def checks_of(frames, tmp_path):
    path = tmp_path / "video.mp4"
    write_video(path, frames, frames_per_second=Fraction(25))
    return check_source(open_source(path))


def test_a_video_without_problems(tmp_path):
    checks = checks_of(pan(30), tmp_path)
    assert checks.interlaced == 0
    assert not checks.telecine
    assert checks.bars == (0, 0, 0, 0)
    assert checks.blockiness < BLOCKY
    assert 0.05 < checks.bits_per_pixel < 8


def test_interlaced(tmp_path):
    frames = pan(61)
    fields = [woven(a, b) for a, b in zip(frames[::2], frames[1::2], strict=False)]
    checks = checks_of(fields, tmp_path)
    assert checks.interlaced == 1
    assert not checks.telecine


def test_telecine(tmp_path):
    checks = checks_of(telecined(pan(24)), tmp_path)
    assert checks.telecine


def test_telecine_of_a_slow_pan(tmp_path):
    film = slow_pan(24)
    assert not checks_of(film, tmp_path).telecine
    assert checks_of(telecined(film), tmp_path).telecine


def test_a_single_line_has_no_fields(tmp_path):
    clip = write_clip(
        tmp_path / "in.mkv", frames=3, width=32, height=1, codec="ffv1", pix_fmt="yuv444p"
    )
    assert not check_source(open_source(clip)).telecine


def test_an_interlaced_slow_pan_is_not_telecine(tmp_path):
    frames = slow_pan(61)
    fields = [woven(a, b) for a, b in zip(frames[::2], frames[1::2], strict=False)]
    assert not checks_of(fields, tmp_path).telecine


def test_every_fifth_frame_repeated(tmp_path):
    film = pan(24)
    repeated = [f for n, frame in enumerate(film) for f in [frame] * (2 if n % 4 == 3 else 1)]
    assert checks_of(repeated, tmp_path).telecine


def test_letterbox_and_pillarbox(tmp_path):
    frames = [frame.clone() for frame in pan(6)]
    for frame in frames:
        frame[:, :12] = frame[:, -10:] = 0
        frame[:, :, :8] = 0
    assert checks_of(frames, tmp_path).bars == (12, 10, 8, 0)


def test_black_frames_have_no_bars(tmp_path):
    checks = checks_of([torch.zeros(3, 32, 32)] * 3, tmp_path)
    assert checks.bars == (0, 0, 0, 0)
    assert checks.interlaced is None


def test_horizontal_stripes_are_not_interlaced():
    stripes = np.zeros((40, 40), np.int16)
    stripes[::2] = 200
    assert interlaced_frames([stripes] * 6) == [None] * 6
    assert True not in interlaced_frames([np.roll(stripes, n, 0) for n in range(6)])


def test_noise_is_not_interlaced():
    generator = np.random.default_rng(0)
    still = grey(scene(3, 96, 128))
    noisy = [still + generator.normal(0, 12, still.shape) for _ in range(6)]
    assert True not in interlaced_frames([x.clip(0, 255).astype(np.int16) for x in noisy])


def test_frames_of_two_fields_are_interlaced():
    frames = pan(12)
    assert interlaced_frames([grey(frame) for frame in frames[:6]]) == [False] * 6
    fields = [grey(woven(a, b)) for a, b in zip(frames[::2], frames[1::2], strict=True)]
    assert interlaced_frames(fields) == [True] * 6


def test_repeated_frames():
    a, b = (grey(frame) for frame in pan(2))
    assert is_repeated(a, a)
    assert not is_repeated(a, b)


@pytest.mark.parametrize(
    ("pattern", "count", "periodic"),
    [
        ("..xx." * 5, 2, True),
        ("x...x" * 5, 2, True),
        ("x...." * 5, 1, True),
        (".xxxx" * 5, 4, True),
        ("x...." * 4 + "xx...", 1, True),  # one deviation in 25
        ("xxxxx" * 5, 2, False),
        ("....." * 5, 1, False),
        ("x.x.x" * 5, 2, False),
    ],
)
def test_patterns_of_five_frames(pattern, count, periodic):
    assert is_periodic([mark == "x" for mark in pattern], count) is periodic


def test_too_few_frames_show_no_telecine(tmp_path):
    assert not checks_of(telecined(pan(24))[:15], tmp_path).telecine


def test_blocks():
    picture = grey(scene(4))
    high, wide = (side // 8 * 8 for side in picture.shape)
    blocks = picture[:high, :wide].reshape(high // 8, 8, wide // 8, 8)
    flat = np.broadcast_to(blocks.mean((1, 3), keepdims=True), blocks.shape)
    mixed = (0.7 * flat + 0.3 * blocks).reshape(high, wide).round().astype(np.int16)
    assert blockiness(picture) == pytest.approx(1, abs=0.1)
    assert blockiness(mixed) > BLOCKY
    assert blockiness(np.zeros((1, 1), np.int16)) == 1


def test_bars_and_drawings_on_the_grid_are_not_blocks():
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


def test_images_of_different_sizes(tmp_path):
    for number, frame in enumerate(pan(6)):
        write_image(tmp_path / f"{number}.png", frame[:, : 96 - 16 * (number % 2)])
    checks = check_source(open_source(tmp_path))
    assert checks.bars == (0, 0, 0, 0)
    assert not checks.telecine
