"""Hash the outputs of `vsrkit upscale`, to check that a code change alters no byte.

    python benchmarks/same_bytes.py --write before.json --sources clips     # before the change
    python benchmarks/same_bytes.py --compare before.json --sources clips   # after it

Cases cover segments, windows of one frame and carried state; mkv, mp4 and PNG; tiles, two
workers, a span, a resize, and a job that is killed and resumed. `rrn-5l` runs with random weights
of a fixed seed, passed as a file; `basicvsr-reds4` needs `vsrkit weights get`.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from importlib.resources import as_file, files
from pathlib import Path

import av
import torch

from vsrkit.models.zoo import build_model, save_model

# By name: source, output, options.
CASES: dict[str, tuple[str, str, list[str]]] = {
    "vsrt-s mkv": ("city", "a.mkv", ["-m", "vsrt-s"]),
    "vsrt-s-web mp4 with audio": ("sound", "b.mp4", ["-m", "vsrt-s-web"]),
    "vsrt-m mkv in tiles": ("city", "c.mkv", ["-m", "vsrt-m", "--tile", "64"]),
    "bicubic png": ("city", "d", ["-m", "bicubic"]),
    "basicvsr mp4": ("short", "e.mp4", ["-m", "basicvsr-reds4"]),
    "rrn mkv": ("short", "f.mkv", ["-m", "RRN"]),
    "vsrt-s two workers": ("sound", "g.mkv", ["-m", "vsrt-s", "--workers", "2"]),
    "vsrt-s span and height": (
        *("sound", "h.mkv"),
        ["-m", "vsrt-s", "--start", "0.5", "--end", "1.5", "--height", "270"],
    ),
    "bicubic 10 bit hevc": ("tenbit", "i.mkv", ["-m", "bicubic", "--codec", "hevc"]),
    "bicubic interlaced": ("interlaced", "j.mkv", ["-m", "bicubic"]),
    "killed and resumed": ("sound", "k.mkv", ["-m", "vsrt-s"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="Write the hashes to this JSON file.")
    parser.add_argument("--compare", type=Path, help="Compare with the hashes of this JSON file.")
    parser.add_argument("--sources", type=Path, help="Keep the source clips in this folder.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hashes = run_cases(Path(folder), arguments.sources or Path(folder))
    if arguments.write:
        arguments.write.write_text(json.dumps(hashes, indent=2))
    if arguments.compare:
        before = json.loads(arguments.compare.read_text())
        different = [name for name in before if before[name] != hashes.get(name)]
        print(f"{len(before) - len(different)} of {len(before)} equal")
        for name in different:
            print(f"differs: {name}")
        sys.exit(bool(different))


def run_cases(folder: Path, kept: Path) -> dict[str, str]:
    sources = make_sources(kept)
    weights = random_rrn(folder)
    hashes = {}
    for name, (source, output, options) in CASES.items():
        target = folder / output
        options = [str(weights) if option == "RRN" else option for option in options]
        command = [
            *(sys.executable, "-m", "vsrkit", "upscale", "--precision", "float32"),
            *("-i", str(sources[source]), "-o", str(target), *options),
        ]
        if name.startswith("killed"):
            kill_when_half_done(command)
        begin = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        hashes[name] = digest(target)
        print(f"{hashes[name][:16]}  {time.monotonic() - begin:6.1f} s  {name}", flush=True)
    subprocess.run(
        [sys.executable, "-m", "vsrkit", "demo", "--output", str(folder / "demo")],
        check=True,
        capture_output=True,
    )
    hashes["demo"] = digest(folder / "demo" / "output.mp4")
    print(f"{hashes['demo'][:16]}  demo")
    return hashes


def kill_when_half_done(command: list[str]) -> None:
    with subprocess.Popen(
        [*command, "--json-progress"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        frames = 0
        for line in process.stdout:
            frames += '"upscale"' in line
            if frames > 25:  # a whole part of 20 frames is finished
                os.kill(process.pid, signal.SIGKILL)
                break


def digest(path: Path) -> str:
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    whole = hashlib.sha256()
    for each in paths:
        whole.update(each.name.encode() + each.read_bytes())
    return whole.hexdigest()


def random_rrn(folder: Path) -> Path:
    """Write fixed random weights."""
    model = build_model("rrn-5l")
    generator = torch.Generator().manual_seed(0)
    for tensor in model.state_dict().values():
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.03)
    path = folder / "rrn.safetensors"
    save_model(path, model)
    return path


def make_sources(folder: Path) -> dict[str, Path]:
    with as_file(files("vsrkit").joinpath("assets", "city.mp4")) as path, av.open(path) as video:
        frames = [
            frame.reformat(width=160, height=90, format="yuv420p")
            for frame in video.decode(video=0)
        ]
    sources = {
        name: folder / f"source-{name}.mkv"
        for name in ("city", "sound", "short", "tenbit", "interlaced")
    }
    if all(source.exists() for source in sources.values()):
        return sources
    write(sources["city"], frames[:24])
    write(sources["sound"], (frames + frames[::-1])[:50], sound=True)
    write(sources["short"], [frame.reformat(width=64, height=36) for frame in frames[:8]])
    write(sources["tenbit"], frames[:12], pix_fmt="yuv420p10le", codec="ffv1")
    write(sources["interlaced"], frames[:12], codec="mpeg2video", interlaced=True)
    return sources


def write(
    path: Path,
    frames: list[av.VideoFrame],
    *,
    pix_fmt: str = "yuv420p",
    codec: str = "libx264",
    sound: bool = False,
    interlaced: bool = False,
) -> None:
    with av.open(path, "w") as output:
        options = {"flags": "+ildct+ilme"} if interlaced else {}
        stream = output.add_stream(codec, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = frames[0].width, frames[0].height, pix_fmt
        stream.codec_context.thread_count = 1
        audio = output.add_stream("pcm_s16le", rate=8000, layout="mono") if sound else None
        for number, frame in enumerate(frames):
            copy = frame.reformat(format=pix_fmt)
            copy.pts, copy.time_base = number, Fraction(1, 25)
            copy.pict_type = av.video.frame.PictureType.NONE
            output.mux(stream.encode(copy))
        output.mux(stream.encode(None))
        if audio is not None:
            noise = av.AudioFrame(format="s16", layout="mono", samples=16000)
            noise.planes[0].update(bytes(n * 7 % 256 for n in range(32000)))
            noise.rate, noise.pts = 8000, 0
            output.mux(audio.encode(noise))
            output.mux(audio.encode(None))


if __name__ == "__main__":
    main()
