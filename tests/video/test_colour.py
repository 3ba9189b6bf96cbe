"""Conversion to RGB and back is exact and follows the standards."""

import av
import numpy as np
import pytest
import torch
from tests.clips import noise_picture

from vsrkit.video.colour import (
    BT601,
    BT709,
    BT2020,
    FULL,
    LIMITED,
    YCGCO,
    Colour,
    effective_matrix,
    from_rgb,
    layout_of,
    planar_format,
    to_rgb,
)


def samples(picture):
    kind = np.uint8 if layout_of(picture.format.name).bits == 8 else np.uint16
    return [
        np.frombuffer(p, kind).reshape(p.height, -1)[:, : p.width].astype(int)
        for p in picture.planes
    ]


@pytest.mark.parametrize("matrix", [BT601, BT709, BT2020, YCGCO])
@pytest.mark.parametrize("range_", [LIMITED, FULL])
@pytest.mark.parametrize(
    "name",
    [
        *(f"yuv{ratio}p{depth}" for ratio in (420, 422, 444) for depth in ("", "10le", "12le")),
        *("yuv411p", "yuv410p", "yuv440p", "gray", "gray10le", "gbrp", "gbrp10le"),
    ],
)
@pytest.mark.parametrize(("width", "height"), [(16, 12), (15, 11), (1, 1), (3, 2)])
def test_noise_is_restored_bit_by_bit(name, matrix, range_, width, height):
    """Noise contains YUV values outside of the RGB cube, so nothing may be clipped."""
    picture = noise_picture(1, width, height, name)
    for siting in ("left", "center", "topleft", "top"):
        colour = Colour(matrix=matrix, range=range_, siting=siting)
        back = from_rgb(to_rgb(picture, colour), name, colour)
        for before, after in zip(samples(picture), samples(back), strict=True):
            assert np.array_equal(before, after)


@pytest.mark.parametrize(
    ("matrix", "range_", "bits", "codes"),
    [  # Y, Cb and Cr of pure red in the standards
        (BT601, LIMITED, 8, (81, 90, 240)),
        (BT709, LIMITED, 8, (63, 102, 240)),
        (BT2020, LIMITED, 10, (294, 387, 960)),
        (BT709, FULL, 8, (54, 99, 255)),
    ],
)
def test_red_has_the_code_values_of_the_standard(matrix, range_, bits, codes):
    red = torch.zeros(3, 4, 4)
    red[0] = 1
    name = "yuv444p" if bits == 8 else f"yuv444p{bits}le"
    colour = Colour(matrix=matrix, range=range_)
    picture = from_rgb(red, name, colour)
    assert tuple(int(plane[0, 0]) for plane in samples(picture)) == codes
    torch.testing.assert_close(to_rgb(picture, colour), red, atol=0.006, rtol=0)  # half a code


@pytest.mark.parametrize(("siting", "offset"), [("left", 0.0), ("center", 0.5)])
def test_chroma_is_sampled_at_its_siting(siting, offset):
    ramp = torch.zeros(3, 8, 64)
    ramp[2] = torch.arange(64) / 64 * 0.2 + 0.4
    colour = Colour(matrix=BT709, range=FULL, siting=siting)
    small = samples(from_rgb(ramp, "yuv420p16le", colour))[1][2]
    whole = samples(from_rgb(ramp, "yuv444p16le", colour))[1][2]
    expected = np.interp(2 * np.arange(32) + offset, np.arange(64), whole)
    assert np.abs(small - expected)[2:-2].max() <= 1  # both are rounded
    back = to_rgb(from_rgb(ramp, "yuv420p16le", colour), colour)
    torch.testing.assert_close(back[2, :, 4:-4], ramp[2, :, 4:-4], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("name", "planar"),
    [
        ("nv12", "yuv420p"),
        ("p010le", "yuv420p10le"),
        ("yuyv422", "yuv422p"),
        ("rgb24", "gbrp"),
        ("rgb48be", "gbrp16le"),
        ("pal8", "gbrp"),
        ("ya8", "gray"),
        ("yuv420p10be", "yuv420p10le"),
        ("yuva420p", "yuva420p"),
        ("yuvj422p", "yuvj422p"),
    ],
)
def test_planar_format_of_every_layout(name, planar):
    assert planar_format(name) == planar


def test_packed_formats_are_read_exactly():
    rgb = np.random.default_rng(0).integers(0, 256, (6, 10, 3)).astype(np.uint8)
    picture = av.VideoFrame.from_ndarray(rgb, format="rgb24")
    out = to_rgb(picture, Colour(range=FULL))
    assert np.array_equal((out * 255).round().numpy().transpose(1, 2, 0), rgb)


def test_untagged_matrix_depends_on_size():
    assert effective_matrix(2, height=576, width=720) == BT601
    assert effective_matrix(2, height=720, width=1280) == BT709
    assert effective_matrix(BT2020, height=100, width=100) == BT2020


@pytest.mark.parametrize("siting", ["left", "center", "topleft", "top"])
@pytest.mark.parametrize(
    "pix_fmt", ["yuv420p", "yuv410p", "yuv422p10le", "yuv440p", "gbrp", "gray"]
)
@pytest.mark.parametrize("height", [3, 31, 33, 40, 66, 101])
def test_converting_some_rows_equals_converting_all(monkeypatch, height, pix_fmt, siting):
    colour = Colour(siting=siting)
    frame = torch.rand(3, height, 22)
    by_stripes = from_rgb(frame, pix_fmt, colour)
    whole = to_rgb(by_stripes, colour)
    for start in range(0, height, 7):
        stop = min(start + 9, height)
        assert torch.equal(to_rgb(by_stripes, colour, slice(start, stop)), whole[:, start:stop])
    monkeypatch.setattr("vsrkit.video.colour._stripes", lambda height: [slice(0, height)])
    at_once = from_rgb(frame, pix_fmt, colour)
    assert torch.equal(to_rgb(at_once, colour), whole)
