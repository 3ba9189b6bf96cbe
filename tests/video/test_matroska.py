"""The pixel aspect ratio of Matroska and WebM files is written over a placeholder."""

import zlib
from fractions import Fraction

import av
import pytest
from tests.clips import noise_picture

from vsrkit.video.matroska import PLACEHOLDER, display_size, finish_tracks


def write_titled(path, codec, title, *, width=704, height=576, audio_streams=0):
    with av.open(str(path), "w", options={"fflags": "+bitexact"}) as file:
        video = file.add_stream(codec, rate=25)
        video.width, video.height, video.pix_fmt = width, height, "yuv420p"
        video.metadata["title"] = title
        for number in range(audio_streams):
            file.add_stream("libopus", rate=48000).metadata["title"] = f"audio {number}"
        for number in range(3):
            file.mux(video.encode(noise_picture(number, width, height, smooth=True)))
        file.mux(video.encode(None))
    return path


def read(path):
    """Aspect ratio, titles of all streams, packets of the first stream."""
    with av.open(str(path)) as file:
        titles = [stream.metadata.get("title") for stream in file.streams]
        aspect = file.streams.video[0].sample_aspect_ratio
        return aspect, titles, [(p.pts, p.pos, bytes(p)) for p in file.demux(video=0) if p.size]


def tracks_of(path):
    """The content of the Tracks element; FFmpeg writes its size in one to eight bytes."""
    content, tracks = path.read_bytes(), b"\x16\x54\xae\x6b"
    start = content.index(tracks, content.index(tracks) + 1) + 4  # the first is in the SeekHead
    length = 9 - content[start].bit_length()
    size = int.from_bytes(content[start : start + length], "big") & ((1 << 7 * length) - 1)
    return content[start + length : start + length + size]


@pytest.mark.parametrize("name", ["out.mkv", "out.webm"])
@pytest.mark.parametrize("title", ["", "Der große Film"])
def test_the_placeholder_becomes_the_display_size(tmp_path, name, title):
    path = write_titled(tmp_path / name, "libvpx-vp9", title + PLACEHOLDER, audio_streams=2)
    size, packets = path.stat().st_size, read(path)[2]
    finish_tracks(path, size=(768, 576))
    assert path.stat().st_size == size
    assert read(path) == (Fraction(12, 11), [title or None, "audio 0", "audio 1"], packets)


def test_the_checksum_of_the_tracks_is_right(tmp_path):
    path = write_titled(tmp_path / "out.mkv", "ffv1", PLACEHOLDER)
    before = tracks_of(path)
    finish_tracks(path, size=(768, 576))
    after = tracks_of(path)
    assert after != before
    for tracks in (before, after):
        # CRC-32 element (RFC 8794): one byte ID, one byte size, CRC of all elements after it.
        assert tracks[:2] == b"\xbf\x84"
        assert tracks[2:6] == zlib.crc32(tracks[6:]).to_bytes(4, "little")


def test_a_file_with_many_tracks(tmp_path):
    path = write_titled(tmp_path / "out.mkv", "ffv1", PLACEHOLDER, audio_streams=24)
    finish_tracks(path, size=(768, 576))
    assert read(path)[0] == Fraction(12, 11)


def test_a_title_without_placeholder_is_an_error(tmp_path):
    path = write_titled(tmp_path / "out.mkv", "ffv1", "Film")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="no placeholder"):
        finish_tracks(path, size=(768, 576))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "aspect",
    ["12/11", "10/11", "40/33", "16/11", "8/9", "32/27", "64/45", "4/3", "1/2", "2", "59/54"],
)
def test_common_aspect_ratios_are_exact(tmp_path, aspect):
    path = write_titled(tmp_path / "out.mkv", "rawvideo", PLACEHOLDER, width=720, height=480)
    width, height = display_size(720, 480, Fraction(aspect))
    assert 720 <= width <= 720 * max(1, Fraction(aspect)) * 2
    assert 480 <= height <= 480 / min(1, Fraction(aspect)) * 2
    finish_tracks(path, size=(width, height))
    assert read(path)[0] == Fraction(aspect)


def test_an_aspect_ratio_without_exact_size_is_rounded():
    assert display_size(854, 480, Fraction(16, 15)) == (1281, 675)
    assert display_size(853, 479, Fraction(16, 15)) == (910, 479)
