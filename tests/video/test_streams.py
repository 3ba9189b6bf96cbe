"""Subtitles keep their text and lose the markup that the new format does not support."""

import av
import pytest
from tests.clips import write_rich_clip
from tests.upscale.upscaled import upscale

from vsrkit.video.streams import convert_ass_text


@pytest.mark.parametrize(
    ("text", "srt", "plain"),
    [
        (r"{\i1}Hello{\i0}, a\Nb", "<i>Hello</i>, a\nb", "Hello, a\nb"),
        (r"Hello {\i1}x", "Hello <i>x</i>", "Hello x"),  # as FFmpeg decodes mov_text
        (r"{\an8}{\b1\i1}a{\b0}b{\r}c", "<b><i>a</i></b><i>b</i>c", "abc"),
        (r"{\b700\fs20\c&H00FF00&}bold{\bord0}", "<b>bold</b>", "bold"),
        (r"\{sighs\} 1 < 2", "{sighs} 1 < 2", "{sighs} 1 < 2"),
        (r"{\p1}m 0 0 l 9 9{\p0}shown", "shown", "shown"),
    ],
)
def test_ass_markup_becomes_tags_or_is_dropped(text, srt, plain):
    assert convert_ass_text(text, "srt") == srt
    assert convert_ass_text(text, "mov_text") == plain


def test_webvtt_text_is_escaped():
    assert convert_ass_text(r"{\u1}1 < 2 & 3{\u0}", "webvtt") == "<u>1 &lt; 2 &amp; 3</u>"


@pytest.mark.parametrize(
    ("suffix", "expected"), [(".mp4", b"\x00\x07Hello x"), (".webm", b"Hello <i>x</i>")]
)
def test_italics_of_srt_are_converted(tmp_path, suffix, expected):
    source = write_rich_clip(tmp_path / "in.mkv", words=["Hello <i>x</i>"])
    upscale(source, tmp_path / f"out{suffix}")
    with av.open(str(tmp_path / f"out{suffix}")) as file:
        texts = [bytes(packet) for packet in file.demux(file.streams.subtitles[0])]
    assert expected in texts
