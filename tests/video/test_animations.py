"""Animated images and AVIF: every frame at its time, and alpha named."""

from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image
from tests.clips import noise_picture
from tests.fuzz.test_fuzz import FINDINGS

from vsrkit.errors import VideoError
from vsrkit.video.probe import probe
from vsrkit.video.read import open_source


def frames_of_animation(count=4):
    random = np.random.default_rng(0)
    return [Image.fromarray(random.integers(0, 255, (24, 32, 3), np.uint8)) for _ in range(count)]


@pytest.mark.parametrize("suffix", [".webp", ".png", ".gif"])
def test_animated_images_keep_their_times(tmp_path, suffix):
    first, *others = frames_of_animation()
    durations = [40, 100, 200, 70]
    path = tmp_path / f"in{suffix}"
    options = {"lossless": True, "exact": True} if suffix == ".webp" else {}
    first.save(path, save_all=True, append_images=others, duration=durations, loop=0, **options)
    source = open_source(path)
    pictures = list(source.pictures())
    times = [float((p.time - pictures[0].time) * source.info.time_base) for p in pictures]
    assert times == pytest.approx([0, 0.04, 0.14, 0.34])
    assert float(pictures[-1].duration * source.info.time_base) == pytest.approx(0.07, abs=0.011)
    if suffix != ".gif":  # of 256 colours
        want = np.asarray(others[0])[..., :3]
        got = (pictures[1].rgb() * 255).round().permute(1, 2, 0).numpy()
        assert np.array_equal(got, want)


def test_a_damaged_animation_is_one_line(tmp_path):
    first, *others = frames_of_animation()
    first.save(tmp_path / "a.webp", save_all=True, append_images=others, duration=40)
    data = (tmp_path / "a.webp").read_bytes()
    (tmp_path / "in.webp").write_bytes(data[: len(data) // 2])
    with pytest.raises(VideoError) as error:
        open_source(tmp_path / "in.webp")
    assert "\n" not in str(error.value)


def write_avif(path, *, frames):
    with av.open(str(path), "w", format="avif") as file:
        stream = file.add_stream("libsvtav1", rate=5, options={"preset": "12"})
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for number in range(frames):
            file.mux(stream.encode(noise_picture(number, 64, 64, smooth=True)))
        file.mux(stream.encode(None))
    return path


def test_avif_is_a_picture_or_a_film(tmp_path):
    assert probe(write_avif(tmp_path / "still.avif", frames=1)).frames == 1
    film = open_source(write_avif(tmp_path / "film.avif", frames=3))
    assert [picture.time * film.info.time_base for picture in film.pictures()] == [
        Fraction(n, 5) for n in range(3)
    ]


def test_the_alpha_channel_of_a_film_in_avif_is_named():
    """Written by avifenc: a still picture, its alpha, a film of three frames and its alpha."""
    source = open_source(FINDINGS / "videos" / "film-with-alpha.avif")
    assert len(list(source.pictures())) == 3
    assert source.info.not_kept == ("the alpha channel",)


def test_one_tile_of_a_picture_is_not_taken_for_the_picture():
    with pytest.raises(VideoError, match="a picture in tiles; convert it to PNG first"):
        probe(FINDINGS / "videos" / "picture-in-tiles.avif")


@pytest.mark.parametrize("alpha", [255, 128])
def test_only_a_transparent_gif_has_an_alpha_channel(tmp_path, alpha):
    """FFmpeg decodes every GIF with one."""
    pixels = np.full((8, 8, 4), alpha, np.uint8)
    pixels[:4, ..., 3] = 255 if alpha == 255 else 0
    Image.fromarray(pixels).save(tmp_path / "a.gif")
    assert probe(tmp_path / "a.gif").not_kept == (("the alpha channel",) if alpha == 128 else ())
