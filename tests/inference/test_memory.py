"""The plan that keeps a job within its memory."""

import pytest
from tests.clips import write_clip

from vsrkit.errors import VsrkitError
from vsrkit.inference.memory import (
    estimate,
    halved,
    plan_memory,
    window_cache_bytes,
)
from vsrkit.models.zoo import build_model
from vsrkit.video.codecs import choose_encoding, encoder_memory
from vsrkit.video.colour import bytes_per_pixel
from vsrkit.video.read import open_source


@pytest.fixture(scope="module")
def small():
    return build_model("vsrt-s")


def test_the_plan_stays_below_the_limit_and_gets_no_worse_with_more(small):
    sides = []
    for gigabytes in (3, 4, 8, 16):
        plan = plan_memory(small, height=540, width=960, limit=gigabytes << 30)
        assert plan.peak <= gigabytes << 30
        sides.append(plan.tile or 10_000)
    assert sides == sorted(sides)
    assert sides[0] < 540
    assert sides[-1] == 10_000


def test_a_limit_that_is_too_low_is_refused(small):
    with pytest.raises(VsrkitError, match=r"at least .* \(3.0G of it for resizing and encoding\)"):
        plan_memory(small, height=2160, width=3840, limit=1 << 30, after=3 << 30)


@pytest.mark.parametrize(
    ("height", "width", "bits", "codec"),
    [
        (540, 960, 10, None),
        (720, 1280, 8, None),
        (720, 1280, 10, None),
        (1080, 1920, 8, None),
        (1080, 1920, 10, None),
        (2160, 3840, 8, "prores"),  # x264 alone takes 1.5G at 15360x8640 with the least of settings
    ],
)
def test_common_sizes_fit_into_two_gigabytes_with_their_encoder(
    small, tmp_path, height, width, bits, codec
):
    pix_fmt = "yuv420p" if bits == 8 else "yuv420p10le"
    clip = write_clip(tmp_path / "in.mkv", frames=1, width=64, height=48, pix_fmt=pix_fmt)
    encoding = choose_encoding(
        open_source(clip).info, suffix=".mkv", height=4 * height, width=4 * width, codec=codec
    )
    after, held = encoder_memory(encoding), bytes_per_pixel(pix_fmt)
    plan = plan_memory(small, height=height, width=width, limit=2 << 30, after=after, held=held)
    assert after < plan.peak <= 2 << 30
    assert plan.low_memory
    assert plan.chunk == 0


def test_a_demanded_tile_and_chunk_are_kept(small):
    plan = plan_memory(small, height=540, width=960, limit=64 << 30, tile=96, chunk=3)
    assert (plan.tile, plan.chunk) == (96, 3)
    whole = plan_memory(small, height=540, width=960, limit=64 << 30, tile=0)
    assert whole.tile is None


def test_a_model_of_fixed_tiles_has_no_choice():
    model = build_model("vsrt-reds")
    assert plan_memory(model, height=180, width=320, limit=8 << 30).tile == 64
    assert halved(64, 180, 320, model.spec) is None


def test_more_of_anything_takes_more(small):
    base = estimate(small, 180, 320, None, 2, False)
    assert estimate(small, 180, 320, None, 0, False) < base
    assert estimate(small, 360, 320, None, 2, False) > base
    assert estimate(small, 180, 320, None, 8, False) > base
    assert estimate(small, 180, 320, 64, 2, False) < base
    low_memory = estimate(small, 180, 320, 64, 0, True)
    assert low_memory < estimate(small, 180, 320, 64, 0, False)
    assert low_memory < estimate(small, 180, 320, 64, 0, True, by_rows=False)


def test_a_failed_allocation_halves_the_tile(small):
    assert halved(None, 540, 960, small.spec) == 384
    assert halved(256, 540, 960, small.spec) == 128
    assert halved(96, 540, 960, small.spec) == 64
    assert halved(64, 540, 960, small.spec) is None


def test_what_windows_share_is_kept_only_where_there_is_room():
    model = build_model("edvr-m")
    size = {"height": 540, "width": 960, "tile": 128, "chunk": 0}
    rich = plan_memory(model, limit=64 << 30, **size)
    assert rich.window_cache
    poor = plan_memory(model, limit=rich.peak - 1, **size)
    assert poor.peak < rich.peak
    tight = plan_memory(model, limit=rich.peak - window_cache_bytes(model, 540, 960), **size)
    assert not tight.window_cache


def test_a_model_whose_windows_share_nothing_plans_nothing_for_it(small):
    assert not plan_memory(small, height=180, width=320, limit=64 << 30).window_cache
