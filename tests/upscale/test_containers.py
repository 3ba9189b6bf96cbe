"""Streams that a container cannot hold are converted with little loss, or refused first."""

import logging
from fractions import Fraction

import av
import numpy as np
import pytest
import torch
from av.stream import Disposition
from tests.clips import Colour, noise_picture, write_clip, write_rich_clip
from tests.upscale.upscaled import upscale

from vsrkit.errors import VideoError
from vsrkit.upscale.work_folder import WorkFolder
from vsrkit.video.images import encode_png
from vsrkit.video.probe import probe
from vsrkit.video.read import open_source


def write_sound(path, codec, form, *, layout="mono", rate=48000):
    """A clip of six frames, with audio of random samples of the format `form`."""
    with av.open(str(path), "w") as file:
        video = file.add_stream("libx264", rate=25)
        video.width, video.height, video.pix_fmt = 32, 24, "yuv420p"
        sound = file.add_stream(codec, rate=rate)
        sound.codec_context.layout, sound.codec_context.format = layout, form
        for number in range(6):
            file.mux(video.encode(noise_picture(number, 32, 24, smooth=True)))
        file.mux(video.encode(None))
        channels = av.AudioLayout(layout).nb_channels
        random = np.random.default_rng(0).integers(-(2**23), 2**23, 11520 * channels)
        size = sound.codec_context.frame_size or 1152
        for start in range(0, 11520 - size + 1, size):
            part = random[start * channels : (start + size) * channels].astype(np.int32) << 8
            frame = av.AudioFrame.from_ndarray(part[None], format="s32", layout=layout)
            frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
            resampler = av.AudioResampler(format=form, layout=layout, rate=rate)
            for made in resampler.resample(frame):
                file.mux(sound.encode(made))
        file.mux(sound.encode(None))
    return path


def heard(path):
    """Every sample of a file's audio, 32 bits each."""
    with av.open(str(path)) as file:
        layout = file.streams.audio[0].layout
        resampler = av.AudioResampler(format="s32", layout=layout)
        parts = [
            made.to_ndarray()
            for frame in file.decode(audio=0)
            for made in resampler.resample(frame)
        ]
    return np.concatenate(parts, 1)


@pytest.mark.parametrize(
    ("codec", "form", "suffix", "kind"),
    [
        ("pcm_s24le", "s32", ".mp4", "flac"),
        ("flac", "s32", ".mov", "alac"),
    ],
)
def test_lossless_audio_stays_lossless(tmp_path, codec, form, suffix, kind, caplog):
    source = write_sound(tmp_path / "in.mkv", codec, form, layout="stereo")
    upscale(source, tmp_path / f"out{suffix}")
    assert f"converted to {kind}" in caplog.text
    assert np.array_equal(heard(source), heard(tmp_path / f"out{suffix}"))


@pytest.mark.parametrize(
    ("codec", "suffix", "kind"), [("libopus", ".mov", "aac"), ("ac3", ".webm", "opus")]
)
def test_audio_that_only_the_header_refuses_is_converted(tmp_path, codec, suffix, kind):
    """QuickTime knows no Opus, and Opus knows no speakers at the side: neither says so early."""
    form = "fltp" if codec == "ac3" else "flt"
    layout = "5.1(side)" if codec == "ac3" else "stereo"
    source = write_sound(tmp_path / "in.mkv", codec, form, layout=layout)
    upscale(source, tmp_path / f"out{suffix}")
    with av.open(str(tmp_path / f"out{suffix}")) as file:
        sound = file.streams.audio[0]
        assert sound.codec_context.name == kind
        assert sound.layout.nb_channels == av.AudioLayout(layout).nb_channels


def test_audio_of_unnamed_channels_and_coarse_times(tmp_path):
    """AVI says how many channels there are, and counts in blocks of ADPCM."""
    source = write_sound(tmp_path / "in.avi", "adpcm_ms", "s16")
    upscale(source, tmp_path / "out.mp4")
    with av.open(str(tmp_path / "out.mp4")) as file:
        times = [packet.pts for packet in file.demux(audio=0) if packet.pts is not None]
    assert set(np.diff(times)) == {1024}  # no gap, no overlap


@pytest.mark.parametrize(
    ("name", "codec", "message"),
    [
        ("out.webm", "h264", ".webm cannot hold libx264"),
        ("out.mp4", "prores", ".mp4 cannot hold prores_ks"),
        ("out.mov", "vp9", ".mov cannot hold libvpx-vp9"),
        ("out.mov", "rawvideo", ".mov cannot hold rawvideo"),
        ("out.y4m", "h264", "always uncompressed"),
        ("out.mov", "png", "supports no pixel format of png"),  # but grey: it would lose colour
    ],
)
def test_a_codec_that_the_container_cannot_hold_is_refused_first(tmp_path, name, codec, message):
    source = write_clip(tmp_path / "in.mkv")
    reports = []
    with pytest.raises(VideoError, match=message):
        upscale(source, tmp_path / name, codec=codec, on_progress=reports.append)
    assert reports == []
    assert not WorkFolder.beside(tmp_path / name).path.exists()  # no work folder


@pytest.mark.parametrize("suffix", [".mkv", ".mp4", ".webm"])
def test_timestamps_that_reset_become_continuous(tmp_path, suffix):
    """Recordings put in a row byte by byte, as people do with transport streams."""
    write_rich_clip(tmp_path / "one.ts", subtitle=None, attachment=False, audio="aac")
    (tmp_path / "in.ts").write_bytes(3 * (tmp_path / "one.ts").read_bytes())
    upscale(tmp_path / "in.ts", tmp_path / f"out{suffix}")
    with av.open(str(tmp_path / f"out{suffix}")) as file:
        times = [frame.time for frame in file.decode(video=0)]
    assert np.allclose(np.diff(times), 0.04, atol=2e-3)
    assert len(times) == 36
    with av.open(str(tmp_path / f"out{suffix}")) as file:
        sound = [p.pts * p.time_base for p in file.demux(audio=0) if p.pts is not None]
    assert all(np.diff([float(time) for time in sound]) >= 0)  # mkv rounds to milliseconds
    assert 1.3 < sound[-1] < 1.6  # 3 times 0.48 s, as long as the video


def test_a_line_that_is_shown_at_the_start_is_kept(tmp_path):
    source = write_rich_clip(tmp_path / "in.mkv", attachment=False)  # a line from 0.04 to 0.16 s
    upscale(source, tmp_path / "out.mkv", start=Fraction(8, 100))
    with av.open(str(tmp_path / "out.mkv")) as file:
        lines = [(p.pts, p.duration, bytes(p)) for p in file.demux(subtitles=0) if p.size]
    assert lines == [(0, 80, b"Hello"), (160, 120, b"Two\nlines")]


def test_titles_of_streams_survive_mp4(tmp_path):
    source = write_rich_clip(tmp_path / "in.mkv", subtitle=None, attachment=False)
    with av.open(str(source)) as old, av.open(str(tmp_path / "titled.mp4"), "w") as new:
        streams = {s.index: new.add_stream_from_template(s) for s in old.streams}
        streams[1].metadata["title"] = "Kommentar"
        for packet in old.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                new.mux(packet)
    upscale(tmp_path / "titled.mp4", tmp_path / "out.mkv")
    sound = next(s for s in probe(tmp_path / "out.mkv").streams if s.kind == "audio")
    assert sound.title == "Kommentar"


@pytest.mark.parametrize(("first", "second"), [("mp4", "mkv"), ("mkv", "mp4")])
def test_a_cover_is_kept(tmp_path, first, second):
    picture = encode_png(torch.rand(3, 16, 16))
    plain = write_clip(tmp_path / "plain.mkv")
    with av.open(str(plain)) as old, av.open(str(tmp_path / "in.mkv"), "w") as new:
        video = new.add_stream_from_template(old.streams.video[0])
        new.add_attachment("cover.png", "image/png", picture)
        for packet in old.demux():
            if packet.dts is not None:
                packet.stream = video
                new.mux(packet)
    upscale(tmp_path / "in.mkv", tmp_path / f"one.{first}")
    upscale(tmp_path / f"one.{first}", tmp_path / f"two.{second}")
    for path in (tmp_path / f"one.{first}", tmp_path / f"two.{second}"):
        with av.open(str(path)) as file:
            cover = next(s for s in file.streams if s.disposition & Disposition.attached_pic)
            assert picture in [bytes(packet) for packet in file.demux(cover)]
        assert len(list(open_source(path).frames())) == 6


def test_hevc_in_mp4_has_the_tag_that_apple_needs(tmp_path):
    upscale(write_clip(tmp_path / "in.mkv"), tmp_path / "out.mp4", codec="hevc")
    with av.open(str(tmp_path / "out.mp4")) as file:
        assert file.streams.video[0].codec_context.codec_tag == "hvc1"
        assert len(list(file.decode(video=0))) == 6


def test_lost_bits_chroma_and_alpha_are_reported(tmp_path, caplog):
    source = write_clip(tmp_path / "in.mkv", codec="ffv1", pix_fmt="yuv422p10le")
    upscale(source, tmp_path / "out.webm")
    assert "yuv422p10le becomes yuv420p10le: libsvtav1 does not support more" in caplog.text
    source = write_clip(tmp_path / "clear.mkv", codec="ffv1", pix_fmt="yuva420p")
    upscale(source, tmp_path / "out.mkv")
    assert "alpha channel" in caplog.text
    caplog.clear()
    write_clip(
        tmp_path / "%d.png", frames=1, codec="png", pix_fmt="rgba", format="image2",
        pictures=[av.VideoFrame.from_ndarray(np.zeros((24, 32, 4), np.uint8), format="rgba")],
    )  # fmt: skip
    upscale(tmp_path / "1.png", tmp_path / "images")
    assert "alpha channel" in caplog.text


ENCODERS = {
    ".mkv": ("h264", "hevc", "av1", "vp9", "ffv1", "prores", "rawvideo"),
    ".webm": ("av1", "vp9"),
    ".mp4": ("h264", "hevc", "av1", "vp9", "ffv1"),
    ".mov": ("h264", "hevc", "prores"),
}


@pytest.mark.parametrize(
    ("suffix", "codec"), [(suffix, codec) for suffix in ENCODERS for codec in ENCODERS[suffix]]
)
def test_the_shape_of_pixels_is_kept_by_every_encoder(tmp_path, suffix, codec):
    source = write_clip(tmp_path / "in.mkv", frames=2, width=64, height=48, aspect="16/15")
    target = tmp_path / f"out{suffix}"
    upscale(source, target, codec=codec, scale=1)
    assert probe(target).sample_aspect == Fraction(16, 15)
    with av.open(str(target)) as file:
        assert sum(1 for _ in file.decode(video=0)) == 2


def test_pixels_are_turned_with_the_picture(tmp_path):
    source = write_clip(tmp_path / "in.mp4", frames=2, rotation=90, aspect="4/3")
    upscale(source, tmp_path / "out.y4m")
    assert probe(tmp_path / "out.y4m").sample_aspect == Fraction(3, 4)


# BT.2020 on a display of 0.005 to 1000 cd/m2, as a camera or a grading suite writes it.
GRADED = "master-display=G(8500,39850)B(6550,2300)R(35400,14600)WP(15635,16450)L(10000000,50)"


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_hdr10_is_kept(tmp_path, codec):
    source = write_clip(
        tmp_path / "in.mkv", codec="libx265", pix_fmt="yuv420p10le", width=64, height=64,
        colour=Colour(matrix=9, primaries=9, transfer=16),
        options={"x265-params": f"log-level=none:hdr10=1:{GRADED}:max-cll=1000,400"},
    )  # fmt: skip
    old = probe(source).hdr
    assert (old.light, old.display[8:]) == ((1000, 400), (Fraction(1, 200), 1000))
    upscale(source, tmp_path / "out.mkv", codec=codec)
    new = probe(tmp_path / "out.mkv")
    assert new.hdr.light == old.light
    assert np.allclose([float(x) for x in new.hdr.display], [float(x) for x in old.display], 2e-3)
    assert new.colour.transfer == 16


def test_a_colon_in_a_name_is_no_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_clip(tmp_path / "Part:2.mkv")  # the relative name looks like a protocol
    upscale("Part:2.mkv", "Part:3.mkv")
    assert probe("Part:3.mkv").height == 96


def test_a_percent_sign_in_a_name_is_no_pattern(tmp_path):
    source = write_clip(tmp_path / "my%20dog.mkv")  # as browsers save it
    upscale(source, tmp_path / "large%20dog.mkv")
    assert probe(tmp_path / "large%20dog.mkv").height == 96


def test_av1_is_quiet(tmp_path, capfd, caplog):
    caplog.set_level(logging.ERROR)
    upscale(write_clip(tmp_path / "in.mkv"), tmp_path / "out.mkv", codec="av1")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("suffix", [".mkv", ".mp4", ".mov"])
def test_sound_that_a_container_holds_is_copied(tmp_path, suffix, caplog):
    """MP3 too, whose decoder has another name than its encoder."""
    source = write_sound(tmp_path / "in.mkv", "libmp3lame", "s16p")
    upscale(source, tmp_path / f"out{suffix}")
    with av.open(str(source)) as old, av.open(str(tmp_path / f"out{suffix}")) as new:
        wanted, copied = ([bytes(p) for p in f.demux(audio=0) if p.size] for f in (old, new))
    assert copied == wanted
    assert "converted" not in caplog.text


def test_encrypted_sound_is_named_and_not_copied(tmp_path, caplog):
    source = write_rich_clip(tmp_path / "in.mp4", subtitle=None, attachment=False)
    source.write_bytes(source.read_bytes().replace(b"mp4a", b"enca", 1))
    upscale(source, tmp_path / "out.mkv")
    assert "is encrypted and is not copied" in caplog.text
    assert not probe(tmp_path / "out.mkv").has("audio")
