"""Jobs that read or write image files: folders, patterns and their names."""

import errno
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from av.video.frame import VideoFrame
from tests.clips import write_clip
from tests.upscale.identity import Identity
from tests.upscale.upscaled import decoded, upscale

from vsrkit.errors import VideoError
from vsrkit.upscale import work_folder
from vsrkit.video.images import read_image, write_image
from vsrkit.video.probe import probe

# As FFmpeg's own program shows them: the corner of the stored picture that comes to the top left.
ONE = 1 << 16
TURNS = {
    (ONE, 0, 0, ONE): "top left",
    (-ONE, 0, 0, ONE): "top right",
    (ONE, 0, 0, -ONE): "bottom left",
    (-ONE, 0, 0, -ONE): "bottom right",
    (0, ONE, -ONE, 0): "bottom left",
    (0, -ONE, ONE, 0): "top right",
    (0, ONE, ONE, 0): "top left",
    (0, -ONE, -ONE, 0): "bottom right",
}


@pytest.mark.parametrize(("matrix", "corner"), TURNS.items())
def test_mirrored_pictures_are_mirrored_in_images(tmp_path, matrix, corner):
    a, b, c, d = matrix
    picture = VideoFrame(32, 24, "yuv420p")
    for plane, value in zip(picture.planes, (40, 128, 128), strict=True):
        plane.update(bytes([value]) * plane.buffer_size)
    rows = np.frombuffer(picture.planes[0], np.uint8).reshape(24, -1)
    vertical, horizontal = corner.split()
    down, right = vertical == "bottom", horizontal == "right"
    rows[12 * down : 12 * down + 12, 16 * right : 16 * right + 16] = 200
    with av.open(str(tmp_path / "in.mp4"), "w") as file:
        stream = file.add_stream("libx264", rate=25, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        stream.set_display_matrix((a, b, 0, c, d, 0, 0, 0, 1 << 30))
        file.mux(stream.encode(picture))
        file.mux(stream.encode(None))
    upscale(tmp_path / "in.mp4", tmp_path / "out", scale=1)
    image = read_image(tmp_path / "out" / "00000000.png")
    assert image.shape == ((3, 24, 32) if a else (3, 32, 24))
    assert image[1, 2, 2] > 0.7
    assert (image > 0.5).float().mean() < 0.3


def test_pixels_of_images_are_rotated(tmp_path):
    upscale(write_clip(tmp_path / "in.mp4", rotation=90), tmp_path / "out")
    assert read_image(tmp_path / "out" / "00000000.png").shape == (3, 128, 96)


def test_images_in_and_out(tmp_path):
    frames = torch.rand(3, 3, 8, 10)
    for number, frame in enumerate(frames):
        write_image(tmp_path / "in" / f"im{number}.png", frame)
    upscale(tmp_path / "in", tmp_path / "out", model=Identity())
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["im0.png", "im1.png", "im2.png"]
    for number in range(3):
        before = (tmp_path / "in" / f"im{number}.png", tmp_path / "out" / f"im{number}.png")
        assert torch.equal(read_image(before[0]), read_image(before[1]))
    upscale(tmp_path / "in" / "im%d.png", tmp_path / "numbered" / "%03d.png", model=Identity())
    assert (tmp_path / "numbered" / "003.png").exists()
    upscale(tmp_path / "in", tmp_path / "film.mp4", frame_rate=Fraction(10))
    assert [f.time for f in decoded(tmp_path / "film.mp4")] == [0, 0.1, 0.2]


def test_images_of_one_name_stay_two(tmp_path):
    write_image(tmp_path / "in" / "1.png", torch.rand(3, 24, 32))
    write_clip(
        tmp_path / "in" / "%d.bmp", codec="bmp", pix_fmt="bgr24", format="image2", frames=1,
        pictures=[av.VideoFrame(32, 24, "bgr24")],
    )  # fmt: skip
    upscale(tmp_path / "in", tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_16_bit_images_stay_16_bit(tmp_path):
    frame = torch.rand(3, 8, 10)
    write_image(tmp_path / "in" / "0.png", frame, bits=16)
    upscale(tmp_path / "in", tmp_path / "out", model=Identity())
    assert torch.equal(
        read_image(tmp_path / "in" / "0.png"), read_image(tmp_path / "out" / "0.png")
    )
    upscale(tmp_path / "in", tmp_path / "film.mp4")
    assert probe(tmp_path / "film.mp4").pix_fmt == "yuv420p"  # what every player shows


def test_images_replace_neither_the_input_nor_what_is_no_image(tmp_path):
    folder = tmp_path / "in"
    for number in range(2):
        write_image(folder / f"{number}.png", torch.rand(3, 8, 10))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for source, target in [
        ("%d.png", "%d.png"),
        (".", "%01d.png"),
        ("%d.png", "."),
        ("1.png", "."),
    ]:
        with pytest.raises(VideoError, match="input"):
            upscale(folder / source, folder / target, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("precious")
    with pytest.raises(VideoError, match="thesis"):
        upscale(folder, tmp_path / "out", overwrite=True)
    upscale(folder, tmp_path / "out" / "%d.png")
    with pytest.raises(VideoError, match="exists"):
        upscale(folder, tmp_path / "out" / "%d.png")
    upscale(folder, tmp_path / "out" / "%d.png", overwrite=True)
    with pytest.raises(VideoError, match="one number"):
        upscale(folder, tmp_path / "out" / "%d_%d.png")
    assert (tmp_path / "out" / "thesis.txt").read_text() == "precious"


def test_names_in_the_current_folder(tmp_path, monkeypatch):
    write_clip(tmp_path / "in.mkv", frames=2)
    monkeypatch.chdir(tmp_path)
    upscale("in.mkv", "%02d.png", model=Identity())
    upscale("in.mkv", "out.mkv", model=Identity())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["01.png", "02.png", "in.mkv", "out.mkv"]


def test_a_part_of_images_begins_at_zero(tmp_path):
    for number in range(20):
        write_image(tmp_path / "in" / f"{number:02d}.png", torch.rand(3, 16, 16))
    rate = Fraction(10)
    upscale(tmp_path / "in", tmp_path / "out.mkv", start=1.0, end=2.0, frame_rate=rate)
    times = [picture.pts * picture.time_base for picture in decoded(tmp_path / "out.mkv")]
    assert times == [Fraction(n, 10) for n in range(10)]


@pytest.mark.parametrize("kind", ["link", "here", "elsewhere"])
def test_images_into_an_existing_folder(tmp_path, monkeypatch, kind):
    """A link, the current folder, another file system: the folder stays, old images go."""
    source = write_clip(tmp_path / "in.mkv", frames=3)
    place = tmp_path / "place"
    place.mkdir()
    write_image(place / "old.png", torch.rand(3, 8, 8))
    target = place
    if kind == "link":
        target = tmp_path / "link"
        target.symlink_to(place)
    elif kind == "here":
        monkeypatch.chdir(place)
        target = Path()
    else:
        monkeypatch.setattr(work_folder.Path, "replace", not_across(place))
    before = place.stat().st_ino
    upscale(source, target, overwrite=True)
    assert sorted(p.name for p in place.iterdir()) == [f"{n:08d}.png" for n in range(3)]
    assert place.stat().st_ino == before
    assert not list(tmp_path.glob(".*"))


def not_across(place):
    """Renaming that behaves as if `place` were on a file system of its own."""
    replace = Path.replace

    def across(self, target):
        if (self.parent == place) != (Path(target).parent == place):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return replace(self, target)

    return across


def test_height_means_the_displayed_height_of_a_rotated_video(tmp_path):
    source = write_clip(tmp_path / "in.mp4", width=64, height=32, rotation=90)
    upscale(source, tmp_path / "out", height=64)
    assert read_image(tmp_path / "out" / "00000000.png").shape == (3, 64, 32)
    upscale(source, tmp_path / "out.mkv", height=64)
    info = probe(tmp_path / "out.mkv")
    assert (info.height, info.width, info.rotation) == (32, 64, 90)


@pytest.mark.parametrize(("rate", "exact"), [(30, Fraction(30)), (12.5, Fraction(25, 2))])
def test_a_frame_rate_may_be_a_plain_number(tmp_path, rate, exact):
    source = write_clip(tmp_path / "in.mkv", frames=3)
    upscale(source, tmp_path / "frames")
    upscale(tmp_path / "frames", tmp_path / "out.mkv", frame_rate=rate)
    assert probe(tmp_path / "out.mkv").frame_rate == exact
