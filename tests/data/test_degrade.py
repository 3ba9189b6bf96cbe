from fractions import Fraction
from time import process_time

import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from vsrkit.data.degrade import BD, BI, CRF, degradation_named, degrade, degrade_frames
from vsrkit.data.recompress import MPEG4, VP9
from vsrkit.errors import DataError
from vsrkit.models.layers.resample import imresize


def smooth_clip(frames: int, height: int, width: int, softness: int = 1) -> Tensor:
    """A smooth pattern that moves one pixel per frame: (T, 3, H, W)."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    phase = torch.arange(frames)[:, None, None]
    x, y = (x + phase) / softness, y / softness
    waves = [torch.sin(x / 7 + c) * torch.cos(y / (5 + c)) for c in range(3)]
    return torch.stack(waves, 1) * 0.4 + 0.5


def psnr(a: Tensor, b: Tensor) -> float:
    return float(-10 * torch.log10((a - b).square().mean()))


def test_bi_is_bicubic_rounded_to_8_bits() -> None:
    hr = torch.rand(2, 3, 32, 48)
    lr = degrade(hr, BI())
    assert lr.shape == (2, 3, 8, 12)
    assert lr.dtype == torch.float32
    exact = imresize(hr.double(), Fraction(1, 4)).clamp(0, 1)
    assert torch.equal((lr * 255).round(), (exact * 255).round().float())


def test_frames_are_cropped_to_multiples_of_the_scale() -> None:
    hr = torch.rand(1, 3, 35, 50)
    for how in (BI(), BD()):
        assert torch.equal(degrade(hr, how), degrade(hr[..., :32, :48], how))


def test_bd_duf13_is_scipys_gaussian_then_every_fourth_pixel() -> None:
    hr = torch.rand(1, 3, 40, 44)
    # truncate=3.75 makes scipy's kernel 13 wide; "mirror" is reflection without the edge pixel.
    blurred = gaussian_filter(hr.double().numpy(), 1.6, axes=(2, 3), mode="mirror", truncate=3.75)
    expected = (torch.from_numpy(blurred)[..., ::4, ::4] * 255).round()
    assert torch.equal((degrade(hr, BD()) * 255).round(), expected.float())


def test_bd_matlab12_equals_a_direct_computation() -> None:
    hr = torch.zeros(1, 3, 24, 24)
    hr[..., 9, 10] = 1.0  # LR pixel (2, 2) is centred between HR pixels 9 and 10 on both axes
    g = torch.exp(-((torch.arange(12) - 5.5) ** 2) / (2 * 1.6**2)).double()
    g = g / g.sum()
    lr = degrade(hr, BD(4, "matlab12"))[0, 0] * 255
    assert lr[2, 2].round() == (g[5] * g[6] * 255).round()
    assert lr[2, 1].round() == (g[5] * g[10] * 255).round()
    assert torch.equal(lr, degrade(hr, BD(4, "matlab12"))[0, 2] * 255)


def test_the_two_bd_kernels_differ() -> None:
    hr = smooth_clip(1, 64, 64)
    assert psnr(degrade(hr, BD()), degrade(hr, BD(4, "matlab12"))) < 40


def test_crf_keeps_every_frame_and_higher_values_are_worse() -> None:
    hr = torch.rand(12, 3, 64, 64) * 0.3 + smooth_clip(12, 64, 64) * 0.6
    clean = degrade(hr, BI())
    distances = [psnr(degrade(hr, CRF(q)), clean) for q in (5, 25, 40)]
    assert distances == sorted(distances, reverse=True)
    assert degrade(hr, CRF(25)).shape == clean.shape


def test_crf_at_best_quality_loses_only_colour_detail() -> None:
    grey = smooth_clip(5, 64, 64)[:, :1].expand(-1, 3, -1, -1)
    # Grey has no chroma to lose. The rest is the two roundings between 8-bit RGB and limited-range
    # YUV (219 steps for 255), at most about one step each.
    error = (degrade(grey, CRF(0)) - degrade(grey, BI())).abs().max() * 255
    assert error <= 2.01


def test_crf_has_no_colour_cast_or_shift() -> None:
    hr = smooth_clip(4, 128, 128, softness=6)
    error = degrade(hr, CRF(1)) - degrade(hr, BI())
    assert (error.mean((0, 2, 3)).abs() * 255 < 0.3).all()  # rounding to nearest has no bias
    assert psnr(degrade(hr, CRF(1)), degrade(hr, BI())) > 42  # a shift by a pixel gives under 30


def test_crf_is_repeatable_and_takes_odd_sizes() -> None:
    hr = smooth_clip(3, 60, 76)  # LR is 15 x 19
    first = degrade(hr, CRF(30))
    assert first.shape == (3, 3, 15, 19)
    assert torch.equal(first, degrade(hr, CRF(30)))


def test_frames_are_produced_before_the_clip_is_read_to_its_end() -> None:
    read = 0

    def frames():
        nonlocal read
        for frame in smooth_clip(300, 16, 16):
            read += 1
            yield frame

    next(degrade_frames(frames(), CRF(25)))
    assert read < 100  # x264 looks 40 frames ahead, and holds a few for reordering
    read = 0
    next(degrade_frames(frames(), BI()))
    assert read == 1


def test_degradations_by_name() -> None:
    assert degradation_named("BI") == BI()
    assert degradation_named("bd-matlab12", 2) == BD(2, "matlab12")
    assert degradation_named("crf35") == CRF(35)
    assert degradation_named("vp9-crf33", 2) == CRF(33, 2, VP9)
    assert "x264 --crf 35" in str(CRF(35))
    assert str(CRF(4, codec=MPEG4)) == "mpeg4-q4 x4 (BI, then mpeg4, yuv420p)"
    for wrong in ("crf", "crf99", "jpeg", "mpeg4-q0", "x265-crf"):
        with pytest.raises(DataError):
            degradation_named(wrong)


def test_a_frame_smaller_than_the_scale_is_an_error() -> None:
    with pytest.raises(DataError, match="3x9 frame is too small"):
        degrade(torch.rand(1, 3, 9, 3), BI())


@pytest.mark.slow
def test_bi_of_a_720p_frame_takes_under_30_ms_of_one_core() -> None:
    hr = torch.rand(1, 3, 720, 1280)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = []
        for _ in range(8):
            start = process_time()
            degrade(hr, BI())
            times.append(process_time() - start)
    finally:
        torch.set_num_threads(threads)
    assert min(times) < 0.030
