"""Faults of footage do what their names say and keep position and colour."""

import numpy as np
import pytest
import torch
from tests.data.test_degrade import psnr, smooth_clip

from vsrkit.data.footage import (
    colour_fault,
    encoded,
    encoded_at_another_size,
    film_grain,
    halos,
    interlaced,
    out_of_focus,
    sensor_noise,
)
from vsrkit.data.recompress import MATRIX

FAULTS = [
    colour_fault,
    encoded,
    encoded_at_another_size,
    film_grain,
    halos,
    interlaced,
    out_of_focus,
    sensor_noise,
]
CLIP = smooth_clip(6, 48, 64, softness=2)
FLAT = torch.full((4, 3, 40, 40), 0.5)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_depends_on_the_generator_alone_and_keeps_the_clip(fault):
    before = CLIP.clone()
    found = [fault(CLIP, rng(seed)) for seed in range(4)]
    assert torch.equal(CLIP, before)
    assert torch.equal(found[1], fault(CLIP, rng(1)))
    assert any(not torch.equal(found[0], other) for other in found[1:])
    for one in found:
        assert one.shape == CLIP.shape
        assert one.dtype == torch.float32
        assert psnr(one, CLIP) > 18
        # Fields of another time change the mean of a moving clip, and a coarse quantiser rounds.
        assert ((one - CLIP).mean((0, 2, 3)).abs() * 255 < 2).all()


@pytest.mark.parametrize("fault", [out_of_focus, halos, interlaced, colour_fault])
def test_filters_leave_flat_pictures_alone(fault):
    for seed in range(4):
        torch.testing.assert_close(fault(FLAT, rng(seed)), FLAT, atol=2e-6, rtol=0)


def test_blur_loses_contrast_and_sharpening_overshoots():
    step = torch.full((1, 3, 24, 24), 0.3)
    step[..., 12:] = 0.7
    soft, sharp = out_of_focus(step, rng()), halos(step, rng())
    assert soft.diff(dim=-1).max() < step.diff(dim=-1).max()
    assert soft.max() <= 0.7 + 1e-6
    assert sharp.max() > 0.72
    assert sharp.min() < 0.28
    # The edge stays where it is: both sides change equally.
    for changed in (soft, sharp):
        torch.testing.assert_close(changed + changed.flip(-1), torch.ones_like(step))


def test_sensor_noise_is_stronger_in_the_dark_and_new_in_every_frame():
    dark, light = torch.full((8, 3, 40, 40), 0.1), torch.full((8, 3, 40, 40), 0.8)
    assert any(
        (sensor_noise(dark, rng(seed)) - dark).std() > 1.5 * sensor_noise(light, rng(seed)).std()
        for seed in range(4)
    )
    noise = sensor_noise(light, rng()) - light
    assert abs(torch.corrcoef(noise[:2].flatten(1))[0, 1]) < 0.1


def test_film_grain_is_soft_grey_and_strongest_in_middle_tones():
    grain = film_grain(FLAT, rng()) - FLAT
    red, green = grain[:, 0].flatten(), grain[:, 1].flatten()
    assert torch.corrcoef(torch.stack([red, green]))[0, 1] > 0.9
    pairs = torch.stack([grain[..., 1:].flatten(), grain[..., :-1].flatten()])
    assert torch.corrcoef(pairs)[0, 1] > 0.05
    white = torch.ones_like(FLAT)
    assert (film_grain(white, rng()) - white).std() < 0.5 * grain.std()


def test_interlacing_mixes_lines_of_two_frames():
    clip = (torch.arange(6.0) / 10)[:, None, None, None].expand(6, 3, 16, 16).clone()
    kinds = set()
    for seed in range(12):
        lines = interlaced(clip, rng(seed))[2, 0, :, 0]
        if torch.allclose(lines[::2], torch.tensor(0.2)) and not torch.allclose(lines[1], lines[0]):
            kinds.add("combed")
            assert lines[1] == pytest.approx(0.1) or lines[1] == pytest.approx(0.3)
        elif torch.allclose(lines, torch.tensor(0.2)):
            kinds.add("one field")
        else:
            kinds.add("blended")
            assert lines[5] == pytest.approx(0.15) or lines[5] == pytest.approx(0.25)
    assert kinds == {"combed", "one field", "blended"}


def test_one_field_shimmers_by_half_a_line():
    ramp = (torch.arange(32.0) / 40)[:, None].expand(6, 3, 32, 8).clone()
    rows = next(
        found[:, 0, 10:20, 0]
        for found in (interlaced(ramp, rng(seed)) for seed in range(12))
        if not torch.allclose(found[0, :, 10:20], ramp[0, :, 10:20], atol=1e-4)
    )
    torch.testing.assert_close(rows[0] - ramp[0, 0, 10:20, 0], torch.full((10,), -0.5 / 40))
    torch.testing.assert_close(rows[1] - ramp[0, 0, 10:20, 0], torch.full((10,), 0.5 / 40))


def test_colour_faults_keep_the_luminance():
    luma = torch.einsum("c,tchw->thw", MATRIX[0].float(), CLIP)
    found = colour_fault(CLIP, rng())
    assert not torch.allclose(found, CLIP, atol=0.01)
    torch.testing.assert_close(
        torch.einsum("c,tchw->thw", MATRIX[0].float(), found), luma, atol=1e-3, rtol=0
    )


def test_a_second_encoding_at_another_size_takes_small_frames():
    assert encoded_at_another_size(FLAT[..., :12, :15], rng()).shape == (4, 3, 12, 15)
