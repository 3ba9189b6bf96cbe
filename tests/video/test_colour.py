"""Samples become RGB and come back: exactly, and with the meaning that the standards give."""

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
    known_matrix,
    layout_of,
    picture_of,
    planar_format,
    rgb_of,
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
def test_noise_comes_back_bit_by_bit(name, matrix, range_, width, height):
    """Noise holds every colour that no RGB can show; nothing may be clipped on the way."""
    picture = noise_picture(1, width, height, name)
    for siting in ("left", "center", "topleft", "top"):
        colour = Colour(matrix=matrix, range=range_, siting=siting)
        back = picture_of(rgb_of(picture, colour), name, colour)
        for before, after in zip(samples(picture), samples(back), strict=True):
            assert np.array_equal(before, after)


@pytest.mark.parametrize(
    ("matrix", "range_", "bits", "codes"),
    [  # of pure red, as the standards give them
        (BT601, LIMITED, 8, (81, 90, 240)),
        (BT709, LIMITED, 8, (63, 102, 240)),
        (BT2020, LIMITED, 10, (294, 387, 960)),
        (BT709, FULL, 8, (54, 99, 255)),
    ],
)
def test_red_has_the_codes_of_the_standard(matrix, range_, bits, codes):
    red = torch.zeros(3, 4, 4)
    red[0] = 1
    name = "yuv444p" if bits == 8 else f"yuv444p{bits}le"
    colour = Colour(matrix=matrix, range=range_)
    picture = picture_of(red, name, colour)
    assert tuple(int(plane[0, 0]) for plane in samples(picture)) == codes
    torch.testing.assert_close(rgb_of(picture, colour), red, atol=0.006, rtol=0)  # half a code


@pytest.mark.parametrize(("siting", "place"), [("left", 0.0), ("center", 0.5)])
def test_chroma_lies_where_the_siting_says(siting, place):
    ramp = torch.zeros(3, 8, 64)
    ramp[2] = torch.arange(64) / 64 * 0.2 + 0.4
    colour = Colour(matrix=BT709, range=FULL, siting=siting)
    small = samples(picture_of(ramp, "yuv420p16le", colour))[1][2]
    whole = samples(picture_of(ramp, "yuv444p16le", colour))[1][2]
    wanted = np.interp(2 * np.arange(32) + place, np.arange(64), whole)
    assert np.abs(small - wanted)[2:-2].max() <= 1  # both are rounded
    back = rgb_of(picture_of(ramp, "yuv420p16le", colour), colour)
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
def test_every_format_has_a_planar_one_that_holds_it(name, planar):
    assert planar_format(name) == planar


def test_packed_formats_are_read_exactly():
    rgb = np.random.default_rng(0).integers(0, 256, (6, 10, 3)).astype(np.uint8)
    picture = av.VideoFrame.from_ndarray(rgb, format="rgb24")
    out = rgb_of(picture, Colour(range=FULL))
    assert np.array_equal((out * 255).round().numpy().transpose(1, 2, 0), rgb)


def test_untagged_is_guessed_by_size():
    assert known_matrix(2, height=576, width=720) == BT601
    assert known_matrix(2, height=720, width=1280) == BT709
    assert known_matrix(BT2020, height=100, width=100) == BT2020


@pytest.mark.parametrize("siting", ["left", "center", "topleft", "top"])
@pytest.mark.parametrize(
    "pix_fmt", ["yuv420p", "yuv410p", "yuv422p10le", "yuv440p", "gbrp", "gray"]
)
@pytest.mark.parametrize("height", [3, 31, 33, 40, 66, 101])
def test_a_few_rows_are_the_same_as_in_the_whole(monkeypatch, height, pix_fmt, siting):
    colour = Colour(siting=siting)
    frame = torch.rand(3, height, 22)
    by_stripes = picture_of(frame, pix_fmt, colour)
    whole = rgb_of(by_stripes, colour)
    for start in range(0, height, 7):
        stop = min(start + 9, height)
        assert torch.equal(rgb_of(by_stripes, colour, slice(start, stop)), whole[:, start:stop])
    monkeypatch.setattr("vsrkit.video.colour._stripes", lambda height: [slice(0, height)])
    at_once = picture_of(frame, pix_fmt, colour)
    assert torch.equal(rgb_of(at_once, colour), whole)
