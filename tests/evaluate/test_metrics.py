import json
from math import inf

import numpy as np
import pytest
import torch
from pytorch_msssim import ms_ssim as reference_ms_ssim
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from tests.paths import GOLDEN
from torch import Tensor

from vsrkit.evaluate.metrics import (
    grid,
    luma,
    mean_psnr_y,
    measured,
    ms_ssim,
    psnr,
    smallest_side,
    ssim,
    worst_crop,
)

PAIRS = np.load(GOLDEN / "metrics.npz")
NUMBERS = json.loads((GOLDEN / "metrics.json").read_text())


def frame(name: str) -> Tensor:
    return torch.from_numpy(PAIRS[name][..., ::-1].copy()).movedim(-1, 0) / 255  # stored as BGR


@pytest.mark.parametrize("border", [0, 4])
@pytest.mark.parametrize("channel", ["rgb", "y"])
@pytest.mark.parametrize("name", ["noise", "random", "shift", "one_lsb", "same"])
def test_psnr_and_ssim_equal_the_reference_implementation(name: str, channel, border: int) -> None:
    a, b = (measured(frame(f"{name}.{side}_bgr"), channel=channel, border=border) for side in "ab")
    # RGB is exact; the reference takes luma in float32, which moves PSNR in its sixth decimal.
    tolerance = 1e-12 if channel == "rgb" else 4e-6
    assert psnr(a, b) == pytest.approx(NUMBERS[name][f"psnr_{channel}_crop{border}"], abs=tolerance)
    assert ssim(a, b) == pytest.approx(
        NUMBERS[name][f"ssim_{channel}_crop{border}"], abs=min(tolerance, 2e-8)
    )


def test_luma_equals_matlab() -> None:
    ours = luma(frame("random.a_bgr").double() * 255)[0].numpy()
    assert np.abs(ours - PAIRS["random.a_y"][..., 0]).max() < 2e-5  # theirs is float32
    white, black = luma(torch.full((3, 1, 1), 255.0)), luma(torch.zeros(3, 1, 1))
    assert (white.item(), black.item()) == pytest.approx((235, 16))


def test_psnr_and_ssim_agree_with_scikit_image() -> None:
    a, b = torch.rand(3, 40, 50), torch.rand(3, 40, 50)
    a8, b8 = (measured(x, channel="rgb") for x in (a, b))
    x, y = (m.movedim(0, -1).numpy() for m in (a8, b8))
    assert psnr(a8, b8) == pytest.approx(peak_signal_noise_ratio(x, y, data_range=255))
    theirs = structural_similarity(
        x, y, data_range=255, channel_axis=2, gaussian_weights=True, use_sample_covariance=False
    )
    assert ssim(a8, b8) == pytest.approx(theirs, abs=1e-9)


def test_ms_ssim_agrees_with_pytorch_msssim() -> None:
    a = torch.rand(3, 163, 190)  # odd sides are padded on the way down
    b = (a + 0.1 * torch.randn_like(a)).clamp(0, 1)
    a8, b8 = (measured(x, channel="rgb") for x in (a, b))
    theirs = float(reference_ms_ssim(a8[None], b8[None], data_range=255))
    assert ms_ssim(a8, b8) == pytest.approx(theirs, abs=1e-6)  # its window is float32
    with pytest.raises(ValueError, match="at least 161 pixels"):
        ms_ssim(a8[:, :100], b8[:, :100])


def test_the_order_is_clip_round_crop_luma() -> None:
    x = torch.full((3, 6, 6), 1.2)
    x[:, 2:4, 2:4] = 100.4 / 255
    assert torch.equal(measured(x, channel="rgb", border=2), torch.full((3, 2, 2), 100.0).double())
    assert measured(x, channel="rgb").max() == 255
    unrounded = measured(x, channel="rgb", border=2, rounded=False)
    assert unrounded.max().item() == pytest.approx(100.4, abs=1e-4)


def test_equal_frames_have_infinite_psnr() -> None:
    x = torch.rand(3, 20, 20).double() * 255
    assert psnr(x, x) == inf
    assert ssim(x, x) == pytest.approx(1)


def test_mean_psnr_y_is_the_mean_over_frames() -> None:
    sr, hr = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)
    scores = [
        psnr(measured(a, channel="y"), measured(b, channel="y"))
        for a, b in zip(sr, hr, strict=True)
    ]
    assert mean_psnr_y(sr, iter(hr)) == pytest.approx(sum(scores) / 2)


def test_worst_crop_is_the_candidate_with_the_largest_mean_error():
    error = torch.zeros(40, 60)
    error[22, 33] = 1.0
    assert worst_crop(error, 8, 12, step=4) == (16, 24)  # the first of those that contain it
    error[26:30, 40:44] = 1.0
    assert worst_crop(error, 8, 12, step=4) == (24, 32)
    assert worst_crop(error, 40, 60, step=4) == (0, 0)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_grid_finds_a_weak_pattern_of_the_scale_and_nothing_in_noise(scale: int) -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(1, 203, 198, dtype=torch.float64, generator=generator) * 20
    pattern = torch.zeros_like(noise)
    pattern[:, ::scale, ::scale] = 8
    other = torch.zeros_like(noise)
    other[:, ::5, ::5] = 8
    assert -10 < grid(noise, scale) < 3  # a bin of noise is random
    assert grid(noise + pattern, scale) > 10
    assert abs(grid(noise + other, scale) - grid(noise, scale)) < 1.5  # another period


def test_grid_ignores_what_nobody_sees() -> None:
    flat = torch.full((1, 64, 64), 100.0)
    assert grid(flat, 4) == 0
    pattern = torch.tensor([1.0, 0, -1, 0]).repeat(16)
    assert grid(flat + 0.01 * pattern, 4) < 0.2
    assert grid(flat + 0.5 * pattern, 4) > 5


def test_smallest_side_is_that_of_the_most_demanding_metric() -> None:
    assert smallest_side(("psnr",), 4) == 11
    assert smallest_side(("psnr", "lpips"), 4) == 31
    assert smallest_side(("grid",), 2) == 32
    assert smallest_side(("niqe", "ms_ssim"), 4) == 161
