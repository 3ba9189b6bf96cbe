"""Hours of video through the whole pipeline: memory, open files, threads and disk use stay flat.

A film with cuts, sound and subtitles is generated, upscaled in parts and muxed; then generated
frames are piped through. Both are sampled in the process that upscales.

    python benchmarks/soak.py --frames 20000 --save
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import psutil
import torch
from av.video.frame import VideoFrame

from vsrkit import UpscaleOptions, __version__, upscale_video
from vsrkit.upscale.options import Progress
from vsrkit.upscale.work_folder import WorkFolder

RESULT = Path(__file__).parent / "results" / "soak.json"
WIDTH, HEIGHT = 48, 32
SHOT = 90  # frames
RATE = 48000  # of the sound


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the process after a frame; sizes in bytes."""

    frame: int
    resident: int
    open_files: int
    threads: int
    disk: int  # of the work folder, besides finished parts


def main() -> None:
    """Run both soaks, print the figures and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--pipe-frames", type=int, default=20_000)
    parser.add_argument("--model", default="bicubic")
    parser.add_argument("--every", type=int, default=250, help="frames between samples")
    parser.add_argument("--settled", type=int, default=2000, help="first frame that counts")
    parser.add_argument("--save", action="store_true", help=f"write {RESULT.name}")
    parser.add_argument("--piped", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.piped:
        pipe_frames(given.frames)
        return
    result = {
        "machine": platform.processor() or platform.machine(),
        "vsrkit": __version__,
        "torch": torch.__version__,
        "size": f"{WIDTH}x{HEIGHT}",
        "model": given.model,
        "file": describe(soak_file(given.frames, given.model, given.every), given.settled),
        "pipe": describe(soak_pipe(given.pipe_frames, given.model, given.every), given.settled),
    }
    print(json.dumps(result, indent=2))
    if given.save:
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def soak_file(frames: int, model: str, every: int) -> list[Sample]:
    """Upscale a generated film of so many frames; the samples."""
    with tempfile.TemporaryDirectory(prefix="vsrkit-soak-") as scratch:
        source, target = Path(scratch) / "in.mkv", Path(scratch) / "out.mkv"
        write_film(source, frames)
        samples: list[Sample] = []
        work = WorkFolder.beside(target).path

        def note(progress: Progress) -> None:
            if progress.stage == "upscale" and progress.done and progress.done % every == 0:
                samples.append(sample(progress.done, psutil.Process(), work))

        options = UpscaleOptions(model=model, max_memory="2G", precision="float32")
        done = upscale_video(source, target, options=options, on_progress=note)
        assert done.frames == frames, f"{done.frames} frames instead of {frames}"
        left = sorted(path.name for path in Path(scratch).iterdir())
        assert left == ["in.mkv", "out.mkv"], f"left behind: {left}"
    return samples


def soak_pipe(frames: int, model: str, every: int) -> list[Sample]:
    """Pipe generated frames through the command; the samples of its process."""
    words = [sys.executable, "-m", "vsrkit", "upscale", "-i", "-", "-o", "-", "-m", model]
    generator = subprocess.Popen(
        [sys.executable, __file__, "--piped", "--frames", str(frames)], stdout=subprocess.PIPE
    )
    upscaler = subprocess.Popen(
        [*words, "--max-memory", "2G"], stdin=generator.stdout, stdout=subprocess.PIPE
    )
    assert generator.stdout is not None
    assert upscaler.stdout is not None
    generator.stdout.close()
    upscaler.stdout.readline()
    size = len(b"FRAME\n") + WIDTH * HEIGHT * 16 * 3 // 2
    samples: list[Sample] = []
    count = 0
    while frame := upscaler.stdout.read(size):
        assert len(frame) == size
        count += 1
        if count % every == 0:
            samples.append(sample(count, psutil.Process(upscaler.pid), None))
    assert upscaler.wait() == 0
    assert generator.wait() == 0
    assert count == frames, f"{count} frames instead of {frames}"
    return samples


def sample(frame: int, process: psutil.Process, work: Path | None) -> Sample:
    """What a process uses now."""
    files = [path for path in work.rglob("*") if path.is_file()] if work else []
    unfinished = [
        path for path in files if not path.name.startswith("part-") or path.suffix == ".part"
    ]
    disk = 0
    for path in unfinished:
        try:
            disk += path.stat().st_size
        except FileNotFoundError:  # renamed meanwhile
            continue
    return Sample(frame, process.memory_info().rss, process.num_fds(), process.num_threads(), disk)


def describe(samples: list[Sample], settled: int) -> dict[str, object]:
    """The largest value of everything, and its ratio to the first one that counts."""
    counted = [each for each in samples if each.frame >= settled]
    first = asdict(counted[0])
    most = {name: max(asdict(each)[name] for each in counted) for name in first}
    return {
        "frames": samples[-1].frame,
        "settled": first["frame"],
        "resident_mb": [round(first["resident"] / 1e6, 1), round(most["resident"] / 1e6, 1)],
        "resident_growth": round(most["resident"] / first["resident"], 4),
        "open_files": [first["open_files"], most["open_files"]],
        "threads": [first["threads"], most["threads"]],
        "work_folder_besides_parts_kb": [
            round(first["disk"] / 1e3, 1),
            round(most["disk"] / 1e3, 1),
        ],
    }


def pictures(frames: int) -> Iterator[VideoFrame]:
    """Moving waves in shots, with a cut after every 90 frames."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    for number in range(frames):
        shot, place = divmod(number, SHOT)
        wave = 0.5 + 0.3 * np.sin((x + place) / (3 + shot % 7)) * np.cos(y / (2 + shot % 5))
        grey = (255 * wave).astype(np.uint8)
        planes = [grey] + [np.full((HEIGHT // 2, WIDTH // 2), 90 + shot * 37 % 80, np.uint8)] * 2
        picture = VideoFrame.from_ndarray(
            np.concatenate([plane.ravel() for plane in planes]).reshape(-1, WIDTH), "yuv420p"
        )
        picture.pts, picture.time_base = number, Fraction(1, 25)
        yield picture


def write_film(path: Path, frames: int) -> None:
    """Write the film with sound."""
    with av.open(str(path), "w") as file:
        video = file.add_stream("libx264", rate=25, options={"preset": "ultrafast", "g": "250"})
        video.width, video.height, video.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        sound = file.add_stream("aac", rate=RATE, layout="mono")
        for picture in pictures(frames):
            file.mux(video.encode(picture))
            begin = picture.pts * RATE // 25
            tone = np.sin(np.arange(begin, begin + RATE // 25) / 20, dtype=np.float32)
            frame = av.AudioFrame.from_ndarray(0.2 * tone[None], "fltp", "mono")
            frame.sample_rate, frame.pts = RATE, begin
            file.mux(sound.encode(frame))
        file.mux(video.encode(None))
        file.mux(sound.encode(None))


def pipe_frames(frames: int) -> None:
    """Write y4m to standard output."""
    out = sys.stdout.buffer
    out.write(f"YUV4MPEG2 W{WIDTH} H{HEIGHT} F25:1 Ip A1:1 C420jpeg\n".encode())
    for picture in pictures(frames):
        out.write(b"FRAME\n" + picture.to_ndarray().tobytes())
    out.flush()


if __name__ == "__main__":
    main()
