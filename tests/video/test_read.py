"""Reading properties, frames and timestamps of videos and image sequences."""

from dataclasses import replace
from fractions import Fraction

import av
import pytest
import torch
import torch.nn.functional as F
from av.stream import Disposition
from tests.clips import Colour, noise_picture, write_clip

from vsrkit.errors import VideoError
from vsrkit.video.images import write_image
from vsrkit.video.probe import probe
from vsrkit.video.read import WHOLE_VIDEO, open_source, parse_span


def test_the_header_is_read(tmp_path):
    colour = Colour(matrix=9, range=2, primaries=9, transfer=16)
    path = write_clip(
        tmp_path / "a.mp4",
        pix_fmt="yuv420p10le",
        colour=colour,
        rotation=90,
        aspect="4/3",
        options={"qp": "0", "chroma_sample_location": "topleft"},
    )
    info = probe(path)
    assert (info.height, info.width, info.frames, info.bits) == (24, 32, 6, 10)
    assert (info.colour.matrix, info.colour.range, info.colour.transfer) == (9, 2, 16)
    assert info.colour.siting == "topleft"
    assert info.colour_tagged
    assert (info.rotation, info.sample_aspect, info.frame_rate) == (90, Fraction(4, 3), 25)
    assert info.display_matrix is not None
    assert not info.interlaced
    assert [stream.kind for stream in info.streams] == ["video"]


def test_untagged_video_gets_default_colours(tmp_path):
    info = probe(write_clip(tmp_path / "a.mkv"), count=True)
    assert not info.colour_tagged
    assert (info.colour.matrix, info.colour.range, info.colour.siting) == (6, 1, "left")
    assert info.frames == 6


@pytest.mark.parametrize("name", ["a.mkv", "a.mp4", "a.mov", "a.avi", "a.y4m", "a.mpg", "a.webm"])
def test_common_containers_are_read(tmp_path, name):
    codecs = {".y4m": "rawvideo", ".mpg": "mpeg2video", ".webm": "libvpx-vp9"}
    codec = codecs.get(name[-4:], codecs.get(name[-5:], "libx264"))
    options = {} if codec != "libvpx-vp9" else {"lossless": "1"}
    source = open_source(write_clip(tmp_path / name, codec=codec, options=options))
    pictures = list(source.pictures())
    assert len(pictures) == 6
    seconds = [(picture.time - pictures[0].time) * source.info.time_base for picture in pictures]
    assert all(abs(s - Fraction(n, 25)) <= Fraction(1, 1000) for n, s in enumerate(seconds))
    assert pictures[0].rgb().shape == (3, 24, 32)


def test_variable_times_are_kept(tmp_path):
    times = [0, 40, 47, 300, 301, 1000]
    path = write_clip(tmp_path / "a.mkv", times=times, time_base="1/1000")
    assert [picture.time for picture in open_source(path).pictures()] == times


def test_a_span_selects_frames(tmp_path):
    source = open_source(write_clip(tmp_path / "a.mkv", frames=20))
    part = replace(source, span=(Fraction(1, 5), Fraction(2, 5)))
    assert [p.time for p in part.pictures()] == [200, 240, 280, 320, 360]
    assert len(list(replace(source, span=WHOLE_VIDEO).pictures())) == 20


def test_deinterlacing_keeps_the_number_of_frames(tmp_path):
    options = {"flags": "+ildct+ilme", "top_field_first": "1"}
    path = write_clip(
        tmp_path / "a.mpg", codec="mpeg2video", frames=10, width=64, height=48, options=options
    )
    source = open_source(path)
    assert source.info.interlaced
    assert len(list(source.pictures())) == 10


def test_deinterlacing_keeps_durations(tmp_path):
    """The filter uses a different time base."""
    video = {"codec": "mpeg2video", "width": 64, "height": 48, "frames": 10}
    path = write_clip(tmp_path / "a.ts", options={"flags": "+ildct+ilme"}, **video)
    source = open_source(path)
    assert source.info.interlaced
    durations = {picture.duration * source.info.time_base for picture in source.pictures()}
    assert durations == {Fraction(1, 25)}


def test_deinterlacing_with_a_change_of_size(tmp_path):
    video = {"codec": "mpeg2video", "frames": 6, "options": {"flags": "+ildct+ilme"}}
    large = write_clip(tmp_path / "large.ts", width=64, height=64, **video)
    small = write_clip(tmp_path / "small.ts", width=32, height=32, **video)
    (tmp_path / "both.ts").write_bytes(large.read_bytes() + small.read_bytes())
    frames = list(open_source(tmp_path / "both.ts").frames())
    again = list(open_source(tmp_path / "both.ts").frames())
    assert len(frames) == 11  # FFmpeg drops the frame before the change
    assert all(torch.equal(a, b) for a, b in zip(frames, again, strict=True))
    alone = list(open_source(small).frames())[3]
    enlarged = F.interpolate(alone[None], (64, 64), mode="bilinear")[0]
    assert (frames[8] - enlarged).abs().mean() < 0.02  # scaled, not placed in a corner


def test_interlacing_is_detected_later_in_the_file(tmp_path):
    """The first second is progressive."""
    video = {"codec": "mpeg2video", "width": 64, "height": 48}
    one = write_clip(tmp_path / "one.ts", frames=25, **video)
    two = write_clip(
        tmp_path / "two.ts", times=range(25, 75), options={"flags": "+ildct+ilme"}, **video
    )
    assert not probe(one).interlaced
    (tmp_path / "both.ts").write_bytes(one.read_bytes() + two.read_bytes())
    assert probe(tmp_path / "both.ts").interlaced


def test_images_are_read_as_a_video(tmp_path):
    for number in (1, 2, 10):
        write_image(tmp_path / f"im{number}.png", torch.full((3, 4, 5), number / 10))
    (tmp_path / "notes.txt").write_text("not a frame")
    for text in (tmp_path, tmp_path / "im%d.png"):
        source = open_source(text, frame_rate=Fraction(10))
        frames = list(source.frames())
        assert [round(float(frame.mean()) * 10) for frame in frames] == [1, 2, 10]
        assert source.info.frame_rate == 10
    write_image(tmp_path / "im3.png", torch.zeros(3, 9, 9))
    with pytest.raises(VideoError, match="9x9"):
        list(open_source(tmp_path).frames())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "does not exist"),
        (lambda p: p.mkdir(), "contains no images"),
        (lambda p: p.write_bytes(b""), "the file is empty"),
        (lambda p: p.write_text("hello"), "cannot read"),
    ],
)
def test_other_files_are_errors(tmp_path, make, message):
    make(tmp_path / "a.mp4")
    with pytest.raises(VideoError, match=message):
        open_source(tmp_path / "a.mp4")


def test_span_is_exact():
    assert parse_span(0.2, 0.3) == (Fraction(1, 5), Fraction(3, 10))
    assert parse_span(0, None) == (0, None)
    assert parse_span(Fraction(1, 3), 2) == (Fraction(1, 3), 2)
    with pytest.raises(VideoError, match="not a span"):
        parse_span(float("nan"), None)


@pytest.mark.parametrize("deinterlace", ["auto", "always"])
def test_avi_has_no_display_times(tmp_path, deinterlace):
    """With B-frames, FFmpeg guesses times that go back; frames are evenly spaced."""
    path = write_clip(tmp_path / "a.avi", frames=20, options={"bf": "3", "b-pyramid": "normal"})
    source = replace(open_source(path), deinterlace=deinterlace)
    times = [picture.time for picture in source.pictures()]
    assert times == list(range(times[0], times[0] + 20))


def test_empty_packets_repeat_the_frame_before(tmp_path):
    """As theora and AVI store repeated frames; an empty packet would end the decoder."""
    pictures = [noise_picture(n // 3, 32, 24, smooth=True) for n in range(9)]
    write_clip(tmp_path / "plain.avi", codec="mpeg4", pictures=pictures, options={"bf": "0"})
    with av.open(str(tmp_path / "plain.avi")) as old, av.open(str(tmp_path / "a.avi"), "w") as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for number, packet in enumerate(p for p in old.demux() if p.size):
            made = packet if number % 3 == 0 else av.Packet(b"")
            made.stream, made.pts, made.dts = stream, number, number
            new.mux(made)
    found = [picture.time for picture in open_source(tmp_path / "a.avi").pictures()]
    assert found == [0, 3, 6]


def test_the_default_video_stream_is_the_picture(tmp_path):
    with av.open(str(tmp_path / "a.mkv"), "w") as file:
        for number, width in enumerate((32, 64)):
            stream = file.add_stream("ffv1", rate=25)
            stream.width, stream.height, stream.pix_fmt = width, 24, "yuv420p"
            stream.disposition = Disposition.default if number else Disposition(0)
        for stream in file.streams:
            file.mux(stream.encode(noise_picture(0, stream.width, 24)))
    assert open_source(tmp_path / "a.mkv").info.width == 64
