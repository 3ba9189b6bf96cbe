"""Sound keeps its place to the sample, measured by correlating decoded noise, not by tags."""

from fractions import Fraction

import av
import numpy as np
import pytest
from tests.clips import noise_picture
from tests.upscale.upscaled import upscale

RATE, FRAMES = 48000, 12
SECONDS = FRAMES / 25
START = Fraction(1, 5)
FAST = {"deadline": "realtime", "cpu-used": "8"}


def noise():
    """Noise in bursts, low enough in frequency for every codec."""
    count = int(RATE * SECONDS)
    loud = (np.arange(count) // 2400) % 3 != 1
    smooth = np.convolve(
        np.random.default_rng(5).standard_normal(count + 8), np.hanning(9), "valid"
    )
    return (0.1 * smooth * loud).astype(np.float32)


def write_noise(path, codec, *, delay=0, gap=None):
    """A clip with noise as its sound.

    delay: seconds by which the sound begins after the picture.
    gap: seconds from which and up to which the packets of the sound are left out.
    """
    layout = "stereo" if codec == "vorbis" else "mono"
    with av.open(str(path), "w") as file:
        webm = path.suffix == ".webm"
        video = file.add_stream(
            "libvpx-vp9" if webm else "libx264", rate=25, options=FAST if webm else {"bf": "0"}
        )
        video.width, video.height, video.pix_fmt = 32, 24, "yuv420p"
        sound = file.add_stream(codec, rate=RATE, options={"strict": "experimental"})
        sound.codec_context.layout = layout
        file.start_encoding()
        resampler = av.AudioResampler(
            sound.codec_context.format, layout, RATE, sound.codec_context.frame_size
        )
        frame = av.AudioFrame.from_ndarray(noise()[None], format="flt", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, 0, Fraction(1, RATE)
        packets = []
        for part in (*resampler.resample(frame), *resampler.resample(None), None):
            packets += sound.encode(part)
        for packet in packets:
            packet.pts = packet.dts = packet.pts + round(delay / packet.time_base)
        if gap:
            packets = [p for p in packets if not gap[0] <= p.pts * p.time_base < gap[1]]
        for number in (*range(FRAMES), None):
            picture = None if number is None else noise_picture(number, 32, 24, smooth=True)
            packets += video.encode(picture)
        for packet in sorted(packets, key=lambda p: p.dts * p.time_base):
            file.mux(packet)
    return path


def heard(path):
    """The sound as a player gives it, as an array that begins one second before the picture."""
    with av.open(str(path)) as file:
        first = next(file.decode(video=0))
        zero = first.pts * first.time_base
    made, place = np.zeros(4 * RATE, np.float32), None
    with av.open(str(path)) as file:
        for frame in file.decode(audio=0):
            samples = frame.to_ndarray().astype(np.float32)
            if not frame.format.is_planar:
                samples = samples.reshape(-1, frame.layout.nb_channels).T
            stated = (frame.pts * frame.time_base - zero + 1) * RATE
            if place is None or abs(stated - place) > RATE // 50:  # smaller steps are rounded times
                place = round(stated)
            made[place : place + frame.samples] = samples[0]
            place += frame.samples
    return made


def lag(before, after):
    """Samples by which one sound is later than the other, and how equal they are then."""
    spectrum = np.conj(np.fft.rfft(before)) * np.fft.rfft(after)
    values = np.fft.irfft(spectrum)
    best = int(np.argmax(values))
    likeness = values[best] / (np.linalg.norm(before) * np.linalg.norm(after))
    return best if best < len(values) // 2 else best - len(values), likeness


def shifted(samples, seconds):
    return np.roll(samples, -round(seconds * RATE))


SOURCES = [
    ("aac", "in.mp4"),
    ("aac", "in.ts"),
    ("libopus", "in.mkv"),
    ("aac", "in.mkv"),  # begins before the picture
    ("libmp3lame", "in.mov"),
    ("libmp3lame", "in.avi"),  # in units of 24 ms
    ("vorbis", "in.webm"),
    ("flac", "in.mkv"),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    made = {}
    for codec, name in SOURCES:
        folder.joinpath(codec).mkdir(exist_ok=True)
        made[codec, name] = write_noise(folder / codec / name, codec)
    return made


@pytest.mark.parametrize("start", [0, START])
@pytest.mark.parametrize("suffix", [".mkv", ".mp4", ".mov", ".webm"])
@pytest.mark.parametrize("source", SOURCES)
def test_the_first_audible_sample_keeps_its_place(sources, tmp_path, source, suffix, start):
    path, target = sources[source], tmp_path / f"out{suffix}"
    options = {"encoder_options": FAST} if suffix == ".webm" else {}
    upscale(path, target, scale=1, start=start, **options)
    before = shifted(heard(path), start)
    early = np.flatnonzero(np.abs(before[:RATE]) > 1e-3) if not start else np.array([])
    after = heard(target)
    first = np.flatnonzero(np.abs(after[:RATE]) > 1e-3)
    before[:RATE] = after[:RATE] = 0  # compared from the picture on
    later, likeness = lag(before, after)
    assert abs(later) <= 1
    assert likeness > 0.9  # the codecs that sound is converted to are lossy
    # Nothing that belongs before the picture, unless the source has it there.
    assert first.size == 0 or first[0] >= min(RATE, *early[:1]) - 480


@pytest.mark.parametrize(("suffix", "tolerance"), [(".mp4", 1), (".mov", 1), (".mkv", 24)])
@pytest.mark.parametrize("start", [0, Fraction(1, 25)])
def test_sound_that_begins_later(tmp_path, suffix, tolerance, start):
    """By an edit list in mp4; Matroska has only whole milliseconds, 48 samples, for that."""
    path = write_noise(tmp_path / "in.mp4", "aac", delay=Fraction(1001, 10000))
    upscale(path, tmp_path / f"out{suffix}", scale=1, start=start)
    later, _ = lag(shifted(heard(path), start), heard(tmp_path / f"out{suffix}"))
    assert abs(later) <= tolerance


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv"])
def test_a_gap_stays_where_it_is(tmp_path, suffix):
    path = write_noise(tmp_path / "in.mp4", "aac", gap=(0.15, 0.3))
    upscale(path, tmp_path / f"out{suffix}", scale=1)
    before, after = heard(path), heard(tmp_path / f"out{suffix}")
    late = RATE + int(0.32 * RATE)
    for part in (slice(0, late), slice(late, None)):
        later, _ = lag(before[part], after[part])
        assert abs(later) <= (24 if suffix == ".mkv" and part.start else 1)
