"""Every codec keeps frames, size, colour and position, and is repeatable."""

import pytest
import torch
from tests.data.test_degrade import psnr, smooth_clip

from vsrkit.data.recompress import CODECS, X264, X265, from_yuv420, recompress, to_yuv420
from vsrkit.errors import DataError

every_codec = pytest.mark.parametrize("codec", CODECS, ids=str)


def recompressed(clip, quality, codec):
    return torch.stack(list(recompress(clip, quality, codec)))


@every_codec
def test_frames_come_back_in_order_and_in_place(codec):
    clip = smooth_clip(14, 64, 80, softness=3)  # moves by a pixel per frame
    found = recompressed(clip, codec.best + 1, codec)
    assert found.shape == clip.shape
    # Against its neighbours, or displaced by a pixel, the clip has 32 dB.
    assert psnr(found, clip) > 40
    assert ((found - clip).mean((0, 2, 3)).abs() * 255 < 0.5).all()


@every_codec
def test_a_worse_quality_loses_more(codec):
    generator = torch.Generator().manual_seed(0)
    clip = smooth_clip(6, 64, 64) * 0.6 + torch.rand(6, 1, 64, 64, generator=generator) * 0.3
    middle = (codec.best + codec.worst) // 2
    found = [psnr(recompressed(clip, q, codec), clip) for q in (codec.best, middle, codec.worst)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[2] + 3


@every_codec
def test_the_same_frames_give_the_same_result_at_odd_sizes(codec):
    clip = smooth_clip(5, 35, 19)  # x265 itself needs 32 pixels
    first = recompressed(clip, codec.worst // 2, codec)
    assert first.shape == clip.shape
    assert torch.equal(first, recompressed(clip, codec.worst // 2, codec))


def test_codecs_leave_different_artefacts():
    clip = smooth_clip(5, 64, 64)
    found = [recompressed(clip, codec.worst // 2, codec) for codec in CODECS]
    for number, one in enumerate(found):
        assert not any(torch.equal(one, other) for other in found[:number])


def test_no_frames_give_no_frames():
    assert list(recompress([], 25)) == []


def test_a_quality_that_the_encoder_does_not_have_is_an_error():
    with pytest.raises(DataError, match="libx265 must be between 0 and 51, got 52"):
        X265.options_at(52)
    assert X264.options_at(25)["crf"] == "25"


def test_conversion_to_yuv_and_back_keeps_smooth_pictures():
    frame = smooth_clip(1, 32, 48, softness=6)[0]
    assert (from_yuv420(to_yuv420(frame)) - frame).abs().max() * 255 < 4
