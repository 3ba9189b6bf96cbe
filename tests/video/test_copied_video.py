"""A second video stream: every frame at its time, from its first keyframe in a span."""

from fractions import Fraction

import av
import pytest
from av.stream import Disposition
from tests.clips import noise_picture
from tests.upscale.upscaled import decoded, upscale

WIDTH, FRAMES, GROUP = 48, 36, 12  # of the second stream; it has a keyframe every GROUP frames


def write_two_videos(path, codec="libx264", options=None):
    """Two videos, the second with frames that are decoded before they are displayed."""
    with av.open(str(path), "w") as file:
        first = file.add_stream("mpeg4", rate=25)
        second = file.add_stream(codec, rate=25, options=options or {"g": str(GROUP), "bf": "3"})
        for stream, width in ((first, 32), (second, WIDTH)):
            stream.width, stream.height, stream.pix_fmt = width, 24, "yuv420p"
        second.metadata["title"] = "from the side"
        for number in range(FRAMES):
            for stream in (first, second):
                picture = noise_picture(number, stream.width, 24, smooth=True)
                picture.pts, picture.time_base = number, Fraction(1, 25)
                file.mux(stream.encode(picture))
        for stream in (first, second):
            file.mux(stream.encode(None))
    return path


def seen(path, *, begin=0.0, end=10.0, zero=0.0):
    """Times from `zero` and samples of the second video's frames between two times."""
    with av.open(str(path)) as file:
        stream = file.streams.video[1]
        frames = {round(f.time, 3): bytes(f.planes[0]) for f in file.decode(stream)}
    return {round(time - zero, 3): s for time, s in frames.items() if begin <= time < end}


@pytest.mark.parametrize(
    ("container", "suffix"),
    [(".mkv", ".mkv"), (".mkv", ".mp4"), (".mp4", ".mkv"), (".ts", ".mov"), (".ts", ".mkv")],
)
def test_every_frame_keeps_its_time(tmp_path, container, suffix, caplog):
    source = write_two_videos(tmp_path / f"in{container}")
    made = upscale(source, tmp_path / f"out{suffix}").path
    with av.open(str(source)) as file:
        first = next(file.decode(video=0)).time if container == ".ts" else 0
    expected = seen(source, zero=first)
    assert len(expected) == FRAMES
    assert seen(made) == expected
    assert "not copied" not in caplog.text


def test_the_upscaled_video_is_first_and_default(tmp_path):
    source = write_two_videos(tmp_path / "in.mkv")
    with av.open(str(upscale(source, tmp_path / "out.mkv").path)) as file:
        upscaled, other = file.streams.video
        assert (upscaled.width, other.width) == (128, WIDTH)
        assert other.metadata["title"] == "from the side"
        assert upscaled.disposition & Disposition.default
        assert not other.disposition & Disposition.default


@pytest.mark.parametrize(
    ("suffix", "flags"), [(".mkv", "open-gop=0"), (".mkv", "open-gop=1"), (".mp4", "open-gop=1")]
)
def test_a_span_begins_at_a_keyframe(tmp_path, suffix, flags):
    options = {"g": str(GROUP), "bf": "3", "x264-params": f"scenecut=0:{flags}"}
    source = write_two_videos(tmp_path / "in.mkv", options=options)
    made = upscale(source, tmp_path / f"out{suffix}", start=0.2, end=1.16).path
    keys = [time for time in keyframe_times(source) if time >= 0.2]
    assert keys[0] > 0.2
    # Three more frames at most: those that the last frames of the span refer to.
    expected = seen(source, begin=keys[0], end=1.16 + 3 / 25, zero=0.2)
    found = seen(made)
    assert found.items() <= expected.items()
    assert {t for t in expected if t < 0.955} <= set(found)


def test_a_span_without_a_keyframe(tmp_path, caplog):
    source = write_two_videos(tmp_path / "in.mkv", options={"g": "100", "bf": "3"})
    made = upscale(source, tmp_path / "out.mkv", start=0.2, end=0.6).path
    assert seen(made) == {}
    assert len(decoded(made)) == 10
    assert "video stream 1 is empty" in caplog.text


def keyframe_times(path):
    with av.open(str(path)) as file:
        times = [p.pts * p.time_base for p in file.demux(video=1) if p.is_keyframe and p.size]
    return [float(time) for time in times]


def test_vp9_is_kept_in_webm(tmp_path):
    source = write_two_videos(tmp_path / "in.mkv", "libvpx-vp9", {"cpu-used": "8"})
    made = upscale(source, tmp_path / "out.webm", encoder_options={"cpu-used": "8"}).path
    assert seen(made) == seen(source)
