"""Frames by number: seeks are used where they help and never change a frame."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from tests.clips import noise_picture, write_clip

from vsrkit.errors import VideoError
from vsrkit.video import read, seek
from vsrkit.video.images import write_image
from vsrkit.video.read import open_source
from vsrkit.video.seek import EMPTY_TABLE, PictureReader, SeekTable, SeekTableBuilder

FRAMES = 130
X264 = "keyint=30:min-keyint=30:bframes=3:scenecut=0"
X265 = "keyint=30:min-keyint=30:bframes=3:scenecut=0:log-level=none"
CODECS = {
    "x264-closed": ("libx264", {"x264-params": f"{X264}:open-gop=0"}),
    "x264-open": ("libx264", {"x264-params": f"{X264}:open-gop=1"}),
    "x264-refresh": ("libx264", {"x264-params": "keyint=30:intra-refresh=1:bframes=0"}),
    "x265-closed": ("libx265", {"x265-params": f"{X265}:open-gop=0"}),
    "x265-open": ("libx265", {"x265-params": f"{X265}:open-gop=1"}),
    "vp9": ("libvpx-vp9", {"g": "30", "deadline": "realtime", "cpu-used": "8"}),
    "mpeg2-open": ("mpeg2video", {"g": "12", "bf": "2"}),
    "mpeg2-closed": (
        "mpeg2video",
        {"g": "12", "bf": "2", "flags": "+cgop", "sc_threshold": "1000000000"},
    ),
    "mpeg2-interlaced": ("mpeg2video", {"g": "12", "bf": "2", "flags": "+ildct+ilme"}),
    "mpeg4": ("mpeg4", {"g": "30", "bf": "2"}),
    "ffv1": ("ffv1", {}),
    "raw": ("rawvideo", {}),
}
FILES = [
    *(("x264-closed", suffix) for suffix in ("mkv", "mp4", "ts", "avi", "h264")),
    *(("x264-open", suffix) for suffix in ("mkv", "mp4", "ts", "avi")),
    *(("x265-closed", suffix) for suffix in ("mkv", "ts")),
    *(("x265-open", suffix) for suffix in ("mp4", "ts")),
    *(("vp9", suffix) for suffix in ("webm", "mp4")),
    *(("mpeg2-open", suffix) for suffix in ("mpg", "ts", "mkv", "avi", "m2v")),
    *(("mpeg2-closed", suffix) for suffix in ("mpg", "ts")),
    *(("mpeg2-interlaced", suffix) for suffix in ("mpg", "ts", "mkv")),
    *(("mpeg4", suffix) for suffix in ("avi", "mp4")),
    ("ffv1", "mkv"),
    ("raw", "y4m"),
]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Writes a video of 130 frames, once for each codec and suffix."""
    folder = tmp_path_factory.mktemp("clips")

    def write(codec, suffix):
        path = folder / f"{codec}.{suffix}"
        if not path.exists():
            name, options = CODECS[codec]
            write_clip(path, frames=FRAMES, width=64, height=48, codec=name, options=options)
        return open_source(path)

    return write


def scanned(source):
    """The frames of a source decoded in a row, as checksums, and its table."""
    builder = SeekTableBuilder(deinterlaced=source.deinterlaced)
    checksums = []
    for picture in source.pictures():
        builder.add(picture)
        checksums.append(picture.checksum())
    return checksums, builder.table()


@pytest.fixture
def decoded(monkeypatch):
    """Counts the pictures that are decoded from the start ("row") and after seeks ("sought")."""
    counts = {"row": 0, "sought": 0, "seeks": 0}
    original = read.Source._read_video

    def counting(self, on_damaged, entry=None):
        counts["seeks"] += entry is not None
        for picture in original(self, on_damaged, entry):
            counts["row" if entry is None else "sought"] += 1
            yield picture

    monkeypatch.setattr(read.Source, "_read_video", counting)
    return counts


@pytest.mark.parametrize(("codec", "suffix"), FILES)
def test_seeks_give_the_frames_of_a_decoding_in_a_row(clip, codec, suffix, decoded):
    source = clip(codec, suffix)
    expected, table = scanned(source)
    assert len(expected) == FRAMES
    assert len(table.keys) > 3
    decoded["row"] = 0
    numbers = {60, 90, 91, FRAMES - 1, *(key.number for key in table.keys if key.number >= 48)}
    for number in sorted(numbers):
        (picture,) = PictureReader(source).read([number], table)
        assert picture.checksum() == expected[number]
    assert decoded["row"] == 0  # no seek failed
    # At most a group of 30 pictures, the one before it, and what a decoder reads ahead.
    assert decoded["sought"] <= 80 * len(numbers)


@pytest.mark.parametrize("codec", ["x264-open", "mpeg2-interlaced"])
def test_pixels_are_equal_too(clip, codec):
    source = clip(codec, "ts")
    _, table = scanned(source)
    expected = list(source.frames())
    pictures = PictureReader(source).read(range(84, 90), table)
    for number, picture in enumerate(pictures, 84):
        assert torch.equal(picture.rgb(), expected[number])
        assert torch.equal(picture.rgb(slice(7, 20)), expected[number][:, 7:20])


def test_gradual_refresh_gives_equal_frames(clip):
    """Only the first picture is a key frame; the others are refreshed column by column."""
    source = clip("x264-refresh", "mkv")
    expected, table = scanned(source)
    for number in (50, 75, 110):
        (picture,) = PictureReader(source).read([number], table)
        assert picture.checksum() == expected[number]


def test_any_order_gives_equal_frames(clip):
    source = clip("x264-open", "mp4")
    expected, table = scanned(source)
    reader = PictureReader(source)
    for first in (100, 3, 60, 62, 61, 0, 125, 31):
        numbers = [first, first, first + 4, first + 2]
        pictures = reader.read(numbers, table)
        assert [picture.checksum() for picture in pictures] == [expected[n] for n in numbers]


def test_pictures_in_increasing_order_are_decoded_once(clip, decoded):
    source = clip("x264-open", "mkv")
    _, table = scanned(source)
    decoded["row"] = 0
    reader = PictureReader(source)
    for first in range(0, FRAMES - 6, 3):  # windows that overlap
        reader.read(range(first, first + 7), table)
    assert decoded == {"row": FRAMES, "sought": 0, "seeks": 0}


def test_an_empty_table_decodes_from_the_start(clip, decoded):
    source = clip("x264-closed", "mkv")
    expected, _ = scanned(source)
    (picture,) = PictureReader(source).read([120], EMPTY_TABLE)
    assert picture.checksum() == expected[120]
    assert decoded["seeks"] == 0


def lying_seek(offset):
    """A seek that ends up elsewhere: in another place of the file, or where it begins."""
    original = read.seek

    def seek_elsewhere(container, stream, entry):
        def moved(time):
            return None if time is None else max(0, time + offset)

        original(
            container,
            stream,
            entry._replace(
                timestamp=moved(entry.timestamp),
                decode_time=moved(entry.decode_time),
                position=None,
            ),
        )

    return seek_elsewhere


@pytest.mark.parametrize("suffix", ["mkv", "mp4", "ts"])
@pytest.mark.parametrize("seconds", [-100, -2, 1, 2])
def test_a_wrong_index_changes_no_frame(clip, suffix, seconds, monkeypatch):
    source = clip("x264-closed", suffix)
    expected, table = scanned(source)
    monkeypatch.setattr(read, "seek", lying_seek(round(seconds / source.info.time_base)))
    reader = PictureReader(source)
    for number in (55, 92, 93, 120):
        (picture,) = reader.read([number], table)
        assert picture.checksum() == expected[number]


def test_wrong_pictures_after_seeks_are_never_used(clip, monkeypatch, decoded):
    """A decoder that damages some pixel of every picture after a seek."""
    source = clip("x264-closed", "mkv")
    expected, table = scanned(source)
    honest = read.Source.pictures_after_seek
    monkeypatch.setattr(
        read.Source,
        "pictures_after_seek",
        lambda self, entry: (replace(p, checksum=lambda: 1) for p in honest(self, entry)),
    )
    decoded["row"] = 0
    reader = PictureReader(source)
    for number in range(60, 120, 20):
        (picture,) = reader.read([number], table)
        assert picture.checksum() == expected[number]
    assert decoded["row"] == 101  # from the start, once; not again for every part


def test_a_picture_that_goes_wrong_later_is_read_from_an_earlier_key_frame(clip, monkeypatch):
    """After a seek to frame 90, frame 100 is damaged; after one to frame 60 it is not."""
    source = clip("x264-closed", "mkv")
    expected, table = scanned(source)
    by_timestamp = {key.entry: key.number for key in table.keys}
    honest = read.Source.pictures_after_seek
    begun = []

    def damaged(self, entry):
        begun.append(by_timestamp[entry])
        for number, picture in enumerate(honest(self, entry), by_timestamp[entry]):
            wrong = by_timestamp[entry] == 90 and number == 100
            yield replace(picture, checksum=lambda: 1) if wrong else picture

    monkeypatch.setattr(read.Source, "pictures_after_seek", damaged)
    reader = PictureReader(source)
    for number in range(95, 110):
        (picture,) = reader.read([number], table)
        assert picture.checksum() == expected[number]
    assert begun == [90, 90, 90, 60]  # the second and third by timestamp and by checksum


def test_a_seek_that_fails_is_replaced_by_decoding(clip, monkeypatch):
    source = clip("x264-closed", "mkv")
    expected, table = scanned(source)

    def refuse(container, stream, entry):
        raise read.av.PermissionError(1, "no seek")

    monkeypatch.setattr(read, "seek", refuse)
    (picture,) = PictureReader(source).read([100], table)
    assert picture.checksum() == expected[100]


def test_times_that_are_reset_do_not_confuse_seeks(tmp_path, decoded):
    """Three recordings in one file: every time exists three times."""
    name, options = CODECS["x264-closed"]
    parts = []
    for number in range(3):
        pictures = [noise_picture(100 * number + n, 64, 48, smooth=True) for n in range(70)]
        parts.append(
            write_clip(
                tmp_path / f"{number}.ts", width=64, height=48, codec=name, options=options,
                pictures=pictures,
            )
        )  # fmt: skip
    (tmp_path / "all.ts").write_bytes(b"".join(part.read_bytes() for part in parts))
    source = open_source(tmp_path / "all.ts")
    expected, table = scanned(source)
    decoded["row"] = 0
    for number in (75, 110, 150, 190):
        (picture,) = PictureReader(source).read([number], table)
        assert picture.checksum() == expected[number]
    assert decoded["row"] == 0


def test_variable_times_and_a_first_frame_that_is_no_key_frame(tmp_path, clip):
    times = [40 * n + 7 * (n % 3) + 500 * (n // 40) for n in range(FRAMES)]
    path = write_clip(
        tmp_path / "variable.mkv", width=64, height=48, times=times, time_base="1/1000",
        options=CODECS["x264-open"][1],
    )  # fmt: skip
    whole = clip("mpeg2-open", "ts").path.read_bytes()
    cut = tmp_path / "cut.ts"
    cut.write_bytes(whole[: 188 * 3] + whole[188 * 40 :])
    for file in (path, cut):
        source = open_source(file)
        expected, table = scanned(source)
        for number in (0, 20, 60, 100):
            (picture,) = PictureReader(source).read([number], table)
            assert picture.checksum() == expected[number]


def test_equal_frames_are_told_apart_or_do_not_matter(tmp_path):
    """A slide show: most frames, key frames included, are equal to their neighbours."""
    slides = [noise_picture(n // 45, 64, 48) for n in range(180)]
    path = write_clip(
        tmp_path / "slides.mp4",
        width=64,
        height=48,
        pictures=slides,
        options={"qp": "0", "g": "25"},
    )
    source = open_source(path)
    expected, table = scanned(source)
    for number in (89, 90, 91, 134, 135, 179):
        (picture,) = PictureReader(source).read([number], table)
        assert picture.checksum() == expected[number]


def test_damaged_packets_change_no_frame(clip, tmp_path):
    """What replaces a damaged picture depends on the pictures before."""
    data = bytearray(clip("x264-open", "ts").path.read_bytes())
    for place in range(len(data) // 3, len(data), len(data) // 9):
        data[place : place + 60] = bytes(60)
    (tmp_path / "damaged.ts").write_bytes(data)
    source = open_source(tmp_path / "damaged.ts")
    expected, table = scanned(source)
    reader = PictureReader(source)
    for number in range(50, len(expected), 7):
        (picture,) = reader.read([number], table)
        assert picture.checksum() == expected[number]


def test_a_span_is_numbered_from_its_first_frame(clip):
    source = replace(clip("x264-open", "mp4"), span=(Fraction(1), Fraction(5)))
    expected, table = scanned(source)
    assert len(expected) == 100
    for number in (2, 60, 99):
        (picture,) = PictureReader(source).read([number], table)
        assert picture.checksum() == expected[number]


def test_images_are_read_in_any_order(tmp_path):
    frames = [torch.rand(3, 8, 8) for _ in range(60)]
    for number, frame in enumerate(frames):
        write_image(tmp_path / f"{number:03}.png", frame)
    reader = PictureReader(open_source(tmp_path))
    for number in (55, 3, 59):
        (picture,) = reader.read([number], EMPTY_TABLE)
        # Eight bits.
        assert (picture.rgb() - frames[number]).abs().max() <= 0.5 / 255 + 1e-6


def test_a_missing_frame_is_an_error(clip):
    source = clip("x264-closed", "mkv")
    _, table = scanned(source)
    for rows in (table, EMPTY_TABLE):
        with pytest.raises(VideoError, match="fewer frames than when it was scanned"):
            PictureReader(source).read([FRAMES], rows)


def test_few_key_frames_are_recorded(clip):
    """All frames of FFV1 are key frames."""
    _, table = scanned(clip("ffv1", "mkv"))
    assert [key.number for key in table.keys] == list(range(0, FRAMES, seek.KEY_DISTANCE))


@pytest.mark.parametrize("codec", ["x264-open", "mpeg2-interlaced", "ffv1"])
def test_the_rows_of_a_part_suffice(clip, codec, decoded):
    source = clip(codec, "mkv")
    expected, table = scanned(source)
    decoded["row"] = 0
    for start, stop in ((80, 90), (90, 100), (120, FRAMES)):
        rows = table.between(start, stop)
        assert len(rows.checksums) == stop - start
        assert len(rows.keys) <= 7
        pictures = PictureReader(source).read(range(start, stop), rows)
        assert [picture.checksum() for picture in pictures] == expected[start:stop]
    assert decoded["row"] == 0
    assert EMPTY_TABLE.between(3, 9) == SeekTable(first=3)
