"""Count the source files and functions that one command enters, imports excluded.

    python benchmarks/files_entered.py

A reader who wants to follow a command must open these files, so the count is kept small. Each
command runs twice in this process, first to import everything, then under sys.setprofile.
"""

import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import av
import numpy as np
from PIL import Image

import vsrkit
from vsrkit import cli

SOURCE = Path(vsrkit.__file__).parent


def entered(run: Callable[[], None]) -> tuple[set[str], set[str]]:
    """The files below src/vsrkit that `run` enters, and the functions in them."""
    files: set[str] = set()
    functions: set[str] = set()

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(f"{SOURCE}/") and frame.f_code.co_name != "<module>":
            files.add(str(Path(name).relative_to(SOURCE)))
            functions.add(f"{name}:{frame.f_code.co_qualname}")

    threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return files, functions


def command(*arguments: str) -> Callable[[], None]:
    def run() -> None:
        before = sys.argv
        sys.argv = ["vsrkit", *arguments]
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                cli.main()
        finally:
            sys.argv = before

    return run


def write_video(path: Path, frames: int = 24) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (48, 64 + frames, 3), dtype=np.uint8)
    with av.open(path, "w") as output:
        stream = output.add_stream("libx264", rate=25, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv444p"
        for number in range(frames):
            crop = np.ascontiguousarray(noise[:, number : number + 64])
            frame = av.VideoFrame.from_ndarray(crop, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            output.mux(stream.encode(frame.reformat(format="yuv444p")))
        output.mux(stream.encode(None))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_video(folder / "a.mp4")
        clip = folder / "set" / "clip"
        clip.mkdir(parents=True)
        for number in range(4):
            pixels = np.random.default_rng(number).integers(0, 256, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(clip / f"{number:03}.png")
        recipe = SOURCE.parents[1] / "recipes" / "tiny_cpu.py"
        train = [
            *("train", str(recipe), "--set", f"run_dir={folder / 'OUT'}", "--set", "steps=4"),
            *("--set", "validate_every=2", "--set", "warmup_steps=2"),
        ]
        commands = {
            "upscale": [
                "upscale",
                "-i",
                str(folder / "a.mp4"),
                "-o",
                str(folder / "OUT.mkv"),
                "-y",
            ],
            "evaluate": [
                "evaluate",
                "-m",
                "vsrt-s",
                "--data",
                str(folder / "set"),
                "--set",
                "folder",
            ],
            "train": train,
        }
        for label, arguments in commands.items():
            for attempt in ("warm", "counted"):
                whole = [argument.replace("OUT", attempt) for argument in arguments]
                files, functions = entered(command(*whole))
            print(f"{label}: {len(files)} files, {len(functions)} functions")
            if "-v" in sys.argv:
                print("   ", *sorted(files))


if __name__ == "__main__":
    main()
