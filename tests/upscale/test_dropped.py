"""What an output cannot keep is named in one line before the first frame."""

import logging
from fractions import Fraction

import av
import numpy as np
import pytest
from av.stream import Disposition
from PIL import Image
from tests.clips import noise_picture, write_clip, write_rich_clip
from tests.upscale.upscaled import upscale

from vsrkit.errors import VideoError


@pytest.fixture
def lines_before(caplog):
    """The warnings of a job up to its first frame, and those after that."""

    def run(source, target, **options):
        early = []

        def on_progress(_):
            if not early:
                early.extend(record.getMessage() for record in caplog.records)

        caplog.set_level(logging.WARNING, "vsrkit")
        caplog.clear()
        upscale(source, target, on_progress=on_progress, **options)
        return early, [r.getMessage() for r in caplog.records][len(early) :]

    return run


def write_two_videos(path):
    with av.open(str(path), "w") as file:
        streams = [file.add_stream("libx264", rate=25) for _ in range(2)]
        for number, stream in enumerate(streams):
            stream.width, stream.height, stream.pix_fmt = 32 + 16 * number, 24, "yuv420p"
            stream.disposition = Disposition.default if number == 0 else Disposition(0)
        for number in range(4):
            for stream in streams:
                file.mux(stream.encode(noise_picture(number, stream.width, 24, smooth=True)))
        for stream in streams:
            file.mux(stream.encode(None))
    return path


def test_a_second_video_is_named(tmp_path, lines_before):
    source = write_two_videos(tmp_path / "in.mkv")
    (line,), later = lines_before(source, tmp_path / "out.webm")
    assert "video stream 1 (h264" in line
    assert "not copied: webm does not support it" in line
    assert later == []
    for target in ("frames", "out.y4m"):
        (line,), later = lines_before(source, tmp_path / target)
        assert line == f"the other video stream of {source} is dropped"
        assert later == []


def test_streams_that_are_converted_are_named_before_the_run(tmp_path, lines_before):
    source = write_rich_clip(tmp_path / "in.mkv")
    early, later = lines_before(source, tmp_path / "out.webm")
    assert len(early) == 3  # sound, subtitle, attachment
    assert later == []


def test_pictures_only_outputs_name_the_other_streams(tmp_path, lines_before):
    source = write_rich_clip(tmp_path / "in.mkv")
    for target in ("frames", "out.y4m"):
        early, later = lines_before(source, tmp_path / target)
        assert any("attachments and audio and subtitles" in line for line in early)
        assert later == []


@pytest.mark.parametrize("suffix", [".webp", ".png", ".gif"])
def test_the_alpha_channel_of_an_animation_is_named(tmp_path, lines_before, suffix):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 255, (3, 24, 32, 4), np.uint8)
    pixels[..., :8, 3] = 0
    first, *others = (Image.fromarray(each) for each in pixels)
    path = tmp_path / f"in{suffix}"
    first.save(path, save_all=True, append_images=others, duration=[40, 120, 80], disposal=2)
    early, _ = lines_before(path, tmp_path / "out.mkv")
    assert any(line.startswith("the alpha channel of") for line in early)
    with av.open(str(tmp_path / "out.mkv")) as file:
        times = [float(frame.time) for frame in file.decode(video=0)]
    assert times == pytest.approx([0, 0.04, 0.16], abs=1e-3)


def test_alpha_that_ffmpeg_does_not_decode_is_named(tmp_path, lines_before):
    """VP9 has it in a second stream of its own, announced by metadata."""
    with av.open(str(tmp_path / "in.webm"), "w") as file:
        stream = file.add_stream("libvpx-vp9", rate=25, options={"auto-alt-ref": "0"})
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuva420p"
        for _ in range(3):
            file.mux(stream.encode(av.VideoFrame(32, 24, "yuva420p")))
        file.mux(stream.encode(None))
    early, _ = lines_before(tmp_path / "in.webm", tmp_path / "out.mkv")
    assert any("the alpha channel" in line for line in early)


def caption_message(text):
    """An SEI message of user data with one pair of CEA-608 bytes, in H.264's byte stream."""
    payload = b"\xb5\x00\x31GA94\x03\x41\xff" + b"\xfc" + text + b"\xff"
    return b"\0\0\0\1\x06\x04" + bytes([len(payload)]) + payload + b"\x80"


def write_captions(path):
    plain = write_clip(path.with_suffix(".h264"), frames=6, options={"bf": "0", "qp": "0"})
    with av.open(str(plain)) as old, av.open(str(path), "w") as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for number, packet in enumerate(p for p in old.demux() if p.size):
            made = av.Packet(caption_message(b"\x94\x2c") + bytes(packet))
            made.stream, made.pts, made.dts = stream, number, number
            made.time_base, made.is_keyframe = Fraction(1, 25), packet.is_keyframe
            new.mux(made)
    return path


def test_closed_captions_in_the_picture_are_named(tmp_path, lines_before):
    early, _ = lines_before(write_captions(tmp_path / "in.ts"), tmp_path / "out.mkv")
    assert any(line.startswith("closed captions (CEA-608/708)") for line in early)


def test_names_in_a_file_cannot_write_lines_or_escapes(tmp_path, lines_before):
    names = (
        "../../evil.ttf",
        "a\nb.ttf",
        "\x1b]0;title\x07.ttf",
        "x" * 5000,
        "e.ttf",
        "f.ttf",
        "g.ttf",
    )
    with av.open(str(tmp_path / "in.mkv"), "w") as file:
        stream = file.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for name in names:
            file.add_attachment(name, "font/ttf", b"font")
        file.set_chapters(
            [{"id": 1, "start": 0, "end": 10**12, "time_base": Fraction(1, 1000), "metadata": {}}]
        )
        for number in range(3):
            file.mux(stream.encode(noise_picture(number, 32, 24, smooth=True)))
        file.mux(stream.encode(None))
    early, later = lines_before(tmp_path / "in.mkv", tmp_path / "out.mp4")
    assert all(line.isprintable() and len(line) < 500 for line in early)
    assert early[-1].endswith("and 2 more streams like these")
    assert later == []
    upscale(tmp_path / "in.mkv", tmp_path / "out.mkv")
    assert {path.name for path in tmp_path.iterdir()} == {"in.mkv", "out.mp4", "out.mkv"}


def test_a_frame_that_mp4_cannot_store_is_refused_before_the_work(tmp_path):
    times = [0, 40, 80, 10**9]
    source = write_clip(tmp_path / "in.mkv", times=times, time_base=Fraction(1, 1000))
    stages = []
    with pytest.raises(VideoError, match="a frame lasts 1000000 seconds"):
        upscale(source, tmp_path / "out.mp4", on_progress=lambda p: stages.append(p.stage))
    assert "upscale" not in stages
    upscale(source, tmp_path / "out.mkv")
    with av.open(str(tmp_path / "out.mkv")) as file:
        assert [frame.pts for frame in file.decode(video=0)] == times
