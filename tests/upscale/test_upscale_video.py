"""Whole jobs on videos: pixels, times, colours, streams and metadata are kept."""

from fractions import Fraction
from itertools import product

import av
import numpy as np
import pytest
from tests.clips import Colour, noise_picture, write_clip, write_rich_clip
from tests.upscale.identity import Identity
from tests.upscale.upscaled import decoded, upscale

from vsrkit.errors import VideoError, VsrkitError
from vsrkit.upscale import prepare
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.video.colour import layout_of
from vsrkit.video.probe import probe


def samples(picture):
    kind = np.uint8 if layout_of(picture.format.name).bits == 8 else np.uint16
    return [
        np.frombuffer(p, kind).reshape(p.height, -1)[:, : p.width].astype(int)
        for p in picture.planes
    ]


def packets(path, kind):
    """(seconds, bytes) of each packet of the streams of a kind, by stream."""
    with av.open(str(path)) as file:
        streams = [s for s in file.streams if s.type == kind]
        found = [[] for _ in streams]
        for packet in file.demux(*streams) if streams else ():
            if packet.pts is not None:
                place = streams.index(packet.stream)
                found[place].append((packet.pts * packet.time_base, bytes(packet)))
        return found


ROUND_TRIPS = list(product((420, 422, 444), ("", "10le"), (1, 6, 9), (1, 2)))


@pytest.mark.parametrize(("ratio", "depth", "matrix", "range_"), ROUND_TRIPS)
def test_pixels_without_a_model_are_unchanged(tmp_path, ratio, depth, matrix, range_):
    """Noise: the hardest picture there is, with every colour that no screen can show."""
    name = f"yuv{ratio}p{depth}"
    colour = Colour(matrix=matrix, range=range_, primaries=1, transfer=1)
    source = write_clip(
        tmp_path / "in.mkv", frames=2, width=16, height=14, pix_fmt=name, colour=colour,
        smooth=False, codec="ffv1",
    )  # fmt: skip
    upscale(source, tmp_path / "out.mkv", model=Identity(), codec="ffv1")
    before, after = decoded(source), decoded(tmp_path / "out.mkv")
    assert len(after) == 2
    for old, new in zip(before, after, strict=True):
        assert new.format.name == name
        assert (new.colorspace, new.color_range) == (matrix, range_)
        for a, b in zip(samples(old), samples(new), strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("suffix", [".mkv", ".mp4", ".mov", ".webm"])
def test_every_stream_is_kept_or_converted_by_rule(tmp_path, suffix, caplog):
    source = write_rich_clip(tmp_path / "in.mkv")
    target = tmp_path / f"out{suffix}"
    done = upscale(source, target)
    assert (done.frames, done.height, done.width) == (12, 96, 128)
    info, old = probe(target), probe(source)
    kinds = [s.kind for s in info.streams if s.kind != "data"]  # mp4 keeps chapters in such a one
    assert kinds[:3] == ["video", "audio", "subtitle"]
    assert ("attachment" in kinds) == (suffix == ".mkv")
    assert info.frame_rate == old.frame_rate
    with av.open(str(target)) as file:
        assert file.metadata["title"] == "A film"
        chapters = [
            (c["start"] * c["time_base"], c["end"] * c["time_base"], c["metadata"]["title"])
            for c in file.chapters()
        ]
        assert file.streams.audio[0].language in ("fre", None)  # mov knows no French of this kind
    assert chapters == [(0, Fraction(1, 5), "first"), (Fraction(1, 5), Fraction(12, 25), "second")]
    (sound,), (copied,) = packets(source, "audio"), packets(target, "audio")
    if suffix != ".webm":
        assert [data for _, data in copied] == [data for _, data in sound]
        assert all(abs(a - b) < 0.002 for (a, _), (b, _) in zip(sound, copied, strict=True))
    (words,) = packets(target, "subtitle")
    texts = [data.lstrip(b"\0\x05\x09") for _, data in words if len(data) > 2]
    assert texts == [b"Hello", b"Two\nlines"]
    assert [time for time, data in words if len(data) > 2] == [Fraction(1, 25), Fraction(6, 25)]
    said = " ".join(caplog.messages)
    assert ("converted" in said) == (suffix != ".mkv")
    assert ("attachment font.ttf is left out" in said) == (suffix != ".mkv")


def test_mov_text_becomes_srt_in_mkv(tmp_path, caplog):
    source = write_rich_clip(tmp_path / "in.mp4", subtitle="mov_text", attachment=False)
    upscale(source, tmp_path / "out.mkv")
    (words,) = packets(tmp_path / "out.mkv", "subtitle")
    assert [data for _, data in words] == [b"Hello", b"Two\nlines"]
    assert "mov_text ger) is converted to srt" in " ".join(caplog.messages)


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_variable_times_stay_variable(tmp_path, suffix):
    times = [0, 40, 47, 300, 301, 1000, 1040, 5000]
    source = write_clip(tmp_path / "in.mkv", times=times, time_base="1/1000")
    upscale(source, tmp_path / f"out{suffix}")
    assert [frame.time for frame in decoded(tmp_path / f"out{suffix}")] == [t / 1000 for t in times]


def test_frames_between_parts_keep_their_times(tmp_path):
    """More frames than a part holds, in a time base that no millisecond fits."""
    times = [n * 1001 + 7 * (n % 3) for n in range(110)]
    source = write_clip(tmp_path / "in.mp4", times=times, time_base="1/24000", width=16, height=16)
    upscale(source, tmp_path / "out.mp4")
    base = probe(tmp_path / "out.mp4").time_base
    got = [frame.pts * base for frame in decoded(tmp_path / "out.mp4")]
    assert got == [Fraction(t, 24000) for t in times]


@pytest.mark.parametrize(
    ("pix_fmt", "codec", "expected"),
    [
        ("yuv420p10le", "libx264", "yuv420p10le"),
        ("yuv422p", "libx264", "yuv422p"),
        ("yuv444p", "libx264", "yuv444p"),
        ("yuv422p10le", "prores_ks", "yuv422p10le"),
        ("yuv420p", "mpeg2video", "yuv420p"),
        ("yuv420p12le", "libx265", "yuv420p12le"),
        ("gbrp", "libx265", "yuv444p"),
        ("gray", "ffv1", "gray"),
    ],
)
def test_bit_depth_and_chroma_are_kept(tmp_path, pix_fmt, codec, expected):
    source = write_clip(tmp_path / "in.mkv", frames=2, codec=codec, pix_fmt=pix_fmt, height=32)
    upscale(source, tmp_path / "out.mkv")
    frames = decoded(tmp_path / "out.mkv")
    wanted = {"gray": "yuv420p"}.get(expected, expected)
    assert [(f.format.name, f.width, f.height) for f in frames] == [(wanted, 128, 128)] * 2


def test_colour_tags_and_siting_are_kept(tmp_path):
    colour = Colour(matrix=9, range=1, primaries=9, transfer=16)
    source = write_clip(
        tmp_path / "in.mp4", pix_fmt="yuv420p10le", colour=colour,
        options={"qp": "0", "chroma_sample_location": "topleft"},
    )  # fmt: skip
    upscale(source, tmp_path / "out.mkv")
    assert probe(tmp_path / "out.mkv").colour == probe(source).colour


def test_an_untagged_video_is_tagged_with_what_was_assumed(tmp_path):
    upscale(write_clip(tmp_path / "in.mkv"), tmp_path / "out.mkv")
    info = probe(tmp_path / "out.mkv")
    assert info.colour_tagged
    assert info.colour.matrix == 6


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_rotation_and_pixel_aspect_are_kept(tmp_path, suffix):
    source = write_clip(tmp_path / "in.mp4", rotation=90, aspect="4/3")
    upscale(source, tmp_path / f"out{suffix}")
    info = probe(tmp_path / f"out{suffix}")
    assert (info.height, info.width) == (96, 128)
    assert (info.rotation, info.sample_aspect) == (90, Fraction(4, 3))


@pytest.mark.parametrize(("width", "height"), [(33, 17), (1, 1), (2, 50), (17, 3)])
def test_odd_sizes(tmp_path, width, height):
    source = write_clip(tmp_path / "in.mkv", frames=2, codec="rawvideo", width=width, height=height)
    done = upscale(source, tmp_path / "out.mkv")
    assert (done.height, done.width) == (4 * height, 4 * width)
    assert [(f.width, f.height) for f in decoded(tmp_path / "out.mkv")] == [
        (4 * width, 4 * height)
    ] * 2


def test_an_odd_size_is_made_even_with_a_warning(tmp_path, caplog):
    source = write_clip(tmp_path / "in.mkv", codec="ffv1", frames=1, width=15, height=11)
    done = upscale(source, tmp_path / "out.mp4", scale=3)
    assert (done.width, done.height) == (46, 34)
    assert (decoded(tmp_path / "out.mp4")[0].width, decoded(tmp_path / "out.mp4")[0].height) == (
        46,
        34,
    )
    assert "45x33 becomes 46x34" in " ".join(caplog.messages)


@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize("model", ["bicubic", "vsrt-s", "rrn-5l"])
def test_one_frame_and_two(tmp_path, frames, model):
    source = write_clip(tmp_path / "in.mkv", frames=frames, width=18, height=16)
    done = upscale(source, tmp_path / "out.mkv", model=model, precision="float32")
    assert done.frames == len(decoded(tmp_path / "out.mkv")) == frames


@pytest.mark.parametrize(
    ("wanted", "model", "height"),
    [
        ({"scale": 2}, "vsrt-s-x2", 64),
        ({"height": 48}, "vsrt-s-x2", 48),
        ({"height": 66}, "bicubic", 66),
        ({"scale": 3}, "bicubic", 96),
        ({}, "bicubic", 128),
    ],
)
def test_the_default_model_is_chosen_by_the_factor(
    tmp_path, monkeypatch, caplog, wanted, model, height
):
    def choose(factor=None):
        return "vsrt-s-x2" if factor is not None and factor <= 2 else "bicubic"

    monkeypatch.setattr(prepare, "default_model", choose)
    source = write_clip(tmp_path / "in.mkv", frames=2, width=32, height=32)
    done = upscale(source, tmp_path / "out.mkv", model=None, precision="float32", **wanted)
    assert (done.model, done.height) == (model, height)
    said = [r.message for r in caplog.records if "the model for factors up to 2" in r.message]
    assert len(said) == (model == "vsrt-s-x2")


def test_a_cut_at_every_frame(tmp_path):
    """Each shot has one frame; all are there, and none has seen another."""
    flat = [noise_picture(n, 32, 32, "yuv420p") for n in range(9)]
    source = write_clip(tmp_path / "in.mkv", codec="ffv1", height=32, pictures=flat, frames=9)
    done = upscale(source, tmp_path / "out.mkv", model="vsrt-s", precision="float32")
    assert done.frames == len(decoded(tmp_path / "out.mkv")) == 9
    assert done.shots > 1


def test_sound_of_no_length(tmp_path):
    with av.open(str(tmp_path / "in.mkv"), "w") as file:
        video = file.add_stream("libx264", rate=25)
        video.width, video.height, video.pix_fmt = 32, 24, "yuv420p"
        file.add_stream("aac", rate=48000)
        file.start_encoding()
        for number in range(3):
            file.mux(video.encode(noise_picture(number, 32, 24)))
        file.mux(video.encode(None))
    for suffix in (".mkv", ".mp4"):
        upscale(tmp_path / "in.mkv", tmp_path / f"out{suffix}")
        assert len(decoded(tmp_path / f"out{suffix}")) == 3
    assert [s.kind for s in probe(tmp_path / "out.mkv").streams] == ["video", "audio"]


@pytest.mark.parametrize(
    ("options", "size"), [({"scale": 2}, (48, 64)), ({"height": 60}, (60, 80))]
)
def test_other_sizes_are_resampled(tmp_path, options, size):
    done = upscale(write_clip(tmp_path / "in.mkv"), tmp_path / "out.mkv", **options)
    assert (done.height, done.width) == size
    frame = decoded(tmp_path / "out.mkv")[0]
    assert (frame.height, frame.width) == size


def test_a_span_takes_its_sound_and_chapters_along(tmp_path):
    source = write_rich_clip(tmp_path / "in.mkv", frames=25)
    done = upscale(source, tmp_path / "out.mkv", start=Fraction(2, 5), end=Fraction(4, 5))
    assert done.frames == 10
    assert [frame.time for frame in decoded(tmp_path / "out.mkv")] == [n / 25 for n in range(10)]
    (sound,) = packets(tmp_path / "out.mkv", "audio")
    audible = [time for time, _ in sound if time >= 0]  # a decoder needs some packets before
    assert 0.35 < len(audible) * 1024 / 48000 < 0.45
    assert sound[0][0] > -0.13
    with av.open(str(tmp_path / "out.mkv")) as file:
        assert [c["metadata"]["title"] for c in file.chapters()] == ["second"]


def interlaced_clip(path):
    return write_clip(
        path, codec="mpeg2video", frames=8, width=64, height=48,
        options={"flags": "+ildct+ilme", "top_field_first": "1"},
    )  # fmt: skip


def test_interlaced_video_is_deinterlaced_or_refused(tmp_path, caplog):
    source = interlaced_clip(tmp_path / "in.mpg")
    assert upscale(source, tmp_path / "out.mkv").frames == 8
    assert "deinterlaced" in " ".join(caplog.messages)
    with pytest.raises(VideoError, match="--deinterlace never treats it as progressive"):
        upscale(source, tmp_path / "out2.mkv", deinterlace="refuse")


def test_flags_of_interlacing_can_be_overruled(tmp_path, caplog):
    """`never` keeps the fields of a flagged file, `always` deinterlaces an unflagged one."""
    flagged = interlaced_clip(tmp_path / "flagged.mpg")
    plain = write_clip(tmp_path / "plain.mkv", frames=4, codec="ffv1")

    def stored(path):
        return [samples(picture) for picture in decoded(path)]

    def made(source, deinterlace):
        target = tmp_path / f"{source.stem}-{deinterlace}.mkv"
        upscale(source, target, deinterlace=deinterlace, model=Identity(), codec="ffv1")
        return stored(target)

    assert equal(made(flagged, "never"), stored(flagged))
    assert "deinterlaced" not in " ".join(caplog.messages)
    assert not equal(made(flagged, "auto"), stored(flagged))
    assert equal(made(plain, "auto"), stored(plain))
    assert len(made(plain, "always")) == len(stored(plain))
    assert not equal(stored(tmp_path / "plain-always.mkv"), stored(plain))
    with pytest.raises(VsrkitError, match="auto, always, never, refuse"):
        made(plain, "perhaps")


def equal(one, other):
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(a, b) for x, y in pairs for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("codec", ["libx265", "libsvtav1", "libvpx-vp9", "ffv1", "prores_ks"])
def test_codecs(tmp_path, codec):
    source = write_clip(tmp_path / "in.mkv", frames=3, height=32)
    options = {"scale": 4}
    upscale(source, tmp_path / "out.mkv", codec=codec, **options)
    assert len(decoded(tmp_path / "out.mkv")) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codec": "nonsense"}, "no encoder"),
        ({"codec": "aac"}, "not video"),
        ({"codec": "ffv1", "crf": 3}, "has no crf"),
        ({"pix_fmt": "nonsense"}, "does not support"),
        ({"encoder_options": {"nonsense": "1"}}, "has no option 'nonsense'"),
        ({"encoder_options": {"preset": "nonsense"}}, "does not support"),
        ({"scale": 9}, "not possible"),
        ({"scale": 2, "height": 5}, "not both"),
        ({"device": "cuda:7"}, "(?i)no CUDA"),
        ({"device": "abacus"}, "no device"),
        ({"workers": 0}, "at least 1"),
        ({"max_memory": "1M"}, "need at least"),
        ({"start": 9}, "no frames between --start and --end"),
        ({"quality": "superb"}, "best, balanced, fast"),
        ({"precision": "float16"}, "--precision is auto"),
        ({"tile": -1}, "--tile is 0"),
        ({"tile": 5, "model": "vsrt-s"}, "at least 16 pixels"),
        ({"chunk": -1}, "--chunk is 0 or more"),
        ({"crf": 999}, "0 \\(best\\) to 63"),
        ({"model": "vsrt-zz"}, "did you mean"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_frame(tmp_path, options, message):
    source = write_clip(tmp_path / "in.mkv")
    with pytest.raises(VsrkitError, match=message):
        upscale(source, tmp_path / "out.mkv", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["in.mkv"]  # and no work folder


def test_an_existing_output_is_not_overwritten_by_default(tmp_path):
    source = write_clip(tmp_path / "in.mkv")
    (tmp_path / "out.mkv").write_text("precious")
    with pytest.raises(VideoError, match="--overwrite"):
        upscale(source, tmp_path / "out.mkv")
    assert (tmp_path / "out.mkv").read_text() == "precious"
    with pytest.raises(VideoError, match="same file"):
        upscale(source, source, overwrite=True)
    upscale(source, tmp_path / "out.mkv", overwrite=True)
    assert len(decoded(tmp_path / "out.mkv")) == 6
    assert not list(tmp_path.glob(".*"))  # no work is left behind


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scale": 2.5}, "--scale is a whole number, not 2.5"),
        ({"height": "480"}, "--height is a whole number, not '480'"),
        ({"crf": "a"}, "--crf is a whole number, not 'a'"),
        ({"workers": None}, "--workers is a whole number, not None"),
        ({"codec": 3}, "--codec is a name, not 3"),
        ({"pix_fmt": 3}, "--pix-fmt is a name, not 3"),
        ({"encoder_options": ["preset"]}, "encoder_options maps names to values"),
        ({"frame_rate": 0}, "--frame-rate is a number above 0, not 0"),
        ({"frame_rate": "25"}, "--frame-rate is a number above 0, not '25'"),
    ],
)
def test_options_of_a_wrong_type_are_refused_before_the_job(given, message):
    with pytest.raises(VsrkitError, match=message):
        UpscaleOptions(**given)
