"""Audio and attached pictures with unusual timestamps, lengths or names."""

from fractions import Fraction

import av
import numpy as np
import pytest
import torch
from tests.clips import noise_picture, write_clip
from tests.upscale.upscaled import upscale

from vsrkit.video.images import encode_png
from vsrkit.video.probe import probe

RATE, SHORT = 48000, 40  # samples of a packet: less than a millisecond, as TrueHD has them


def audio_times(path):
    """Seconds of every packet of the sound."""
    with av.open(str(path)) as file:
        return [p.pts * p.time_base for p in file.demux(audio=0) if p.pts is not None]


def write_short_packets(path, seconds):
    with av.open(str(path), "w") as file:
        video = file.add_stream("libx264", rate=25)
        video.width, video.height, video.pix_fmt = 32, 24, "yuv420p"
        sound = file.add_stream("pcm_s16le", rate=RATE)
        sound.codec_context.layout = "mono"
        for number in range(round(25 * seconds)):
            file.mux(video.encode(noise_picture(number, 32, 24, smooth=True)))
        file.mux(video.encode(None))
        for start in range(0, round(RATE * seconds), SHORT):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, SHORT), np.int16), "s16", "mono")
            frame.sample_rate, frame.pts, frame.time_base = RATE, start, Fraction(1, RATE)
            file.mux(sound.encode(frame))
        file.mux(sound.encode(None))
    return path


def test_packets_shorter_than_a_tick_do_not_fall_behind(tmp_path):
    source = write_short_packets(tmp_path / "in.mkv", 1)
    upscale(source, tmp_path / "out.mkv")
    assert audio_times(tmp_path / "out.mkv") == audio_times(source)


def test_converted_they_last_as_long_as_before(tmp_path):
    source = write_short_packets(tmp_path / "in.mkv", 1)
    upscale(source, tmp_path / "out.mp4")
    with av.open(str(tmp_path / "out.mp4")) as file:
        assert sum(frame.samples for frame in file.decode(audio=0)) == RATE


@pytest.mark.parametrize("suffix", [".mkv", ".mp4", ".webm"])
def test_sound_that_is_announced_and_never_sent(tmp_path, suffix, caplog):
    with av.open(str(tmp_path / "in.ts"), "w") as file:
        video = file.add_stream("mpeg2video", rate=25)
        video.width, video.height, video.pix_fmt = 32, 24, "yuv420p"
        sound = file.add_stream("ac3", rate=RATE)
        sound.codec_context.layout = "stereo"
        for number in range(30):  # FFmpeg does not take less for a transport stream
            file.mux(video.encode(noise_picture(number, 32, 24, smooth=True)))
        file.mux(video.encode(None))
    upscale(tmp_path / "in.ts", tmp_path / f"out{suffix}")
    assert probe(tmp_path / f"out{suffix}", count=True).frames == 30
    if suffix == ".mkv":
        assert "contains no readable audio" in caplog.text


def test_pictures_that_are_attached_keep_their_names(tmp_path):
    names = ["cover.png", "small_cover.png", "cover_land.png"]
    with (
        av.open(str(write_clip(tmp_path / "plain.mkv"))) as old,
        av.open(str(tmp_path / "in.mkv"), "w") as new,
    ):
        video = new.add_stream_from_template(old.streams.video[0])
        for name in names:
            new.add_attachment(name, "image/png", encode_png(torch.rand(3, 16, 16)))
        for packet in old.demux():
            if packet.dts is not None:
                packet.stream = video
                new.mux(packet)
    upscale(tmp_path / "in.mkv", tmp_path / "out.mkv")
    with av.open(str(tmp_path / "out.mkv")) as file:
        kept = [stream.metadata.get("filename") for stream in file.streams]
    assert [name for name in kept if name] == names
