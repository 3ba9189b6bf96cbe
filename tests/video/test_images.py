"""Image files: exact values, and errors for damaged files."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from skimage.io import imread, imsave

from vsrkit.errors import DataError
from vsrkit.video.images import encode_png, is_image, read_image, read_image_size, write_image


@pytest.mark.parametrize("bits", [8, 16])
def test_written_values_are_read_exactly(tmp_path: Path, bits: int) -> None:
    steps = torch.randint(0, 2**bits, (3, 13, 21)).double() / (2**bits - 1)
    write_image(tmp_path / "new" / "a.png", steps, bits=bits)
    frame = read_image(tmp_path / "new" / "a.png")
    assert frame.dtype == torch.float32
    assert torch.equal(frame, steps.float())
    assert read_image_size(tmp_path / "new" / "a.png") == (13, 21)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.png"]  # no temporary file


def test_skimage_reads_the_same_values(tmp_path: Path) -> None:
    steps = torch.randint(0, 256, (3, 9, 11))
    write_image(tmp_path / "a.png", steps / 255)
    assert (imread(tmp_path / "a.png") == steps.permute(1, 2, 0).numpy()).all()


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif"])
def test_files_of_skimage_are_read(tmp_path: Path, suffix: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    imsave(tmp_path / f"a.{suffix}", pixels, check_contrast=False)
    assert (
        (read_image(tmp_path / f"a.{suffix}") * 255)
        .byte()
        .permute(1, 2, 0)
        .eq(torch.from_numpy(pixels))
        .all()
    )


def test_grey_and_alpha_files_become_rgb(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 11, 4), dtype=np.uint8)
    imsave(tmp_path / "grey.png", pixels[..., 0], check_contrast=False)
    imsave(tmp_path / "rgba.png", pixels, check_contrast=False)
    grey, rgba = read_image(tmp_path / "grey.png"), read_image(tmp_path / "rgba.png")
    assert torch.equal(
        (grey * 255).round().byte(), torch.from_numpy(pixels[..., 0]).expand(3, 9, 11)
    )
    assert torch.equal(
        (rgba * 255).round().byte(), torch.from_numpy(pixels[..., :3]).movedim(-1, 0)
    )


def test_a_jpeg_keeps_its_brightness(tmp_path: Path) -> None:
    y, x = np.mgrid[0:48, 0:64]
    soft = np.stack([128 + 60 * np.sin(x / 9), 128 + 60 * np.cos(y / 11), 0 * x + 90], 2)
    imsave(tmp_path / "a.jpg", soft.round().astype(np.uint8), check_contrast=False)
    error = read_image(tmp_path / "a.jpg").movedim(0, -1) * 255 - torch.from_numpy(soft)
    assert error.mean((0, 1)).abs().max() < 0.2  # swscale's default flags lose 1


def flip_a_bit(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


def wrong_pixels(data: bytes) -> bytes:
    """A file with correct checksums and invalid compressed data."""
    kind_and_data = b"IDAT" + b"no zlib stream"
    start = data.index(b"IDAT") - 4
    chunk = struct.pack(">I", 14) + kind_and_data + struct.pack(">I", zlib.crc32(kind_and_data))
    return data[:start] + chunk + data[-12:]


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-20], lambda d: d[:5], flip_a_bit, lambda _: b"text", wrong_pixels]
)
def test_a_damaged_file_is_an_error(tmp_path: Path, damage) -> None:
    write_image(tmp_path / "a.png", torch.rand(3, 16, 16))
    (tmp_path / "a.png").write_bytes(damage((tmp_path / "a.png").read_bytes()))
    with pytest.raises(DataError, match=r"a\.png is damaged"):
        read_image(tmp_path / "a.png")


def test_missing_and_unsupported_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*nothing\.png"):
        read_image(tmp_path / "nothing.png")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"notes\.txt is not a supported image"):
        read_image(tmp_path / "notes.txt")
    assert not is_image(tmp_path / "notes.txt")
    assert not is_image(tmp_path / "._00000000.png")  # metadata files of macOS
    assert is_image(tmp_path / "A.PNG")


def test_a_png_that_does_not_begin_with_its_size(tmp_path):
    data = encode_png(torch.rand(3, 4, 4))
    (tmp_path / "a.png").write_bytes(data[:8] + b"\0\0\0\0tEXt\0\0\0\0" + data[8:])
    with pytest.raises(DataError, match="does not begin with the size of a picture"):
        read_image_size(tmp_path / "a.png")
