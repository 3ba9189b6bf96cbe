"""The choice of codec and the limits of encoders, which are tested against the encoders."""

from fractions import Fraction

import av
import pytest
from tests.clips import write_clip
from tests.upscale.upscaled import decoded, upscale

from vsrkit import UpscaleOptions
from vsrkit.errors import VideoError
from vsrkit.upscale.plan import plan_video
from vsrkit.video import codecs
from vsrkit.video.codecs import NO_LIMIT, RULES, SIZE_LIMITS, Encoding
from vsrkit.video.colour import Colour, bytes_per_pixel
from vsrkit.video.encode import open_encoder

# Opening these at their largest side needs no more than a few hundred MB: the other side is small.
LONGEST = 70_000


def opens(codec, width, height, pix_fmt):
    rule = codecs._rule_for(codec, width * height * bytes_per_pixel(pix_fmt))
    encoding = Encoding(
        codec=codec, options=tuple(sorted(rule.options.items())), threads=rule.threads,
        height=height, width=width, pix_fmt=pix_fmt, rate=Fraction(25),
        colour=Colour(matrix=1, range=1), sample_aspect=Fraction(1),
    )  # fmt: skip
    try:
        open_encoder(encoding)
    except VideoError:
        return False
    return True


@pytest.mark.parametrize("codec", sorted(RULES))
def test_the_size_limits_are_those_of_the_encoders(codec):
    pix_fmt = {"mjpeg": "yuvj420p", "prores_ks": "yuv422p10le"}.get(codec, "yuv420p")
    limit = SIZE_LIMITS.get(codec, NO_LIMIT)
    for width, height in (
        (min(limit.width, LONGEST), 64), (limit.width + 2, 64), (64, min(limit.height, LONGEST)),
        (64, limit.height + 2), (limit.least, 64), (64, limit.least), (limit.least - 2, 64),
        (64, limit.least - 2),
    ):  # fmt: skip
        if min(width, height) > 0 and max(width, height) <= LONGEST:
            assert opens(codec, width, height, pix_fmt) == limit.allows(width, height)


@pytest.mark.parametrize("codec", ["prores_ks", "mjpeg", "ffv1", "rawvideo"])
def test_the_limit_of_ffmpeg_is_known(codec):
    """The others need gigabytes for such pictures."""
    pix_fmt = {"mjpeg": "yuvj420p", "prores_ks": "yuv422p10le"}.get(codec, "yuv420p")
    for width, height in ((15360, 8640), (16384, 16128), (16384, 16256), (30720, 17280)):
        possible = opens(codec, width, height, pix_fmt)
        assert possible == SIZE_LIMITS.get(codec, NO_LIMIT).allows(width, height)


@pytest.mark.parametrize(
    ("suffix", "codec"), [(".mkv", "hevc"), (".mp4", "hevc"), (".webm", "vp9")]
)
def test_a_codec_that_takes_the_size_is_chosen(tmp_path, suffix, codec, caplog):
    source = write_clip(tmp_path / "in.mkv", codec="ffv1", width=4400, height=8, frames=1)
    upscale(source, tmp_path / f"out{suffix}")
    (frame,) = decoded(tmp_path / f"out{suffix}")
    assert (frame.width, frame.height) == (17600, 32)
    with av.open(str(tmp_path / f"out{suffix}")) as file:
        assert file.streams.video[0].codec_context.codec.name.endswith(codec)
    assert ("libx264 does not take pictures of 17600x32" in caplog.text) == (codec == "hevc")


def test_a_size_that_a_named_codec_does_not_take_is_refused_first(tmp_path):
    source = write_clip(tmp_path / "in.mkv", codec="ffv1", width=4400, height=8, frames=1)
    for codec in ("h264", "av1"):
        with pytest.raises(VideoError, match=r"takes pictures of up to 16384x.*, not 17600x32"):
            upscale(source, tmp_path / "out.mkv", codec=codec)
    assert not (tmp_path / "out.mkv").exists()


def test_8k_gets_advice_in_one_line(tmp_path):
    blank = av.VideoFrame(7680, 4320, "yuvj420p")
    source = write_clip(
        tmp_path / "in.mkv", codec="mjpeg", width=7680, height=4320, pix_fmt="yuvj420p",
        pictures=[blank],
    )  # fmt: skip
    for target in ("out.mkv", "out.mp4", "out.webm", "frames"):
        with pytest.raises(VideoError, match="use --scale 2 for 15360x8640") as error:
            plan_video(source, tmp_path / target, UpscaleOptions(model="bicubic"))
        assert "\n" not in str(error.value)
        assert "{" not in str(error.value)


def test_messages_about_options_have_no_dictionaries(tmp_path):
    source = write_clip(tmp_path / "in.mkv", frames=1)
    with pytest.raises(VideoError) as error:
        upscale(source, tmp_path / "out.mkv", encoder_options={"preset": "no such preset"})
    assert "{" not in str(error.value)
