"""VMAF of a clip, by the ffmpeg that the `eval` extra brings (PyAV's own has no libvmaf)."""

import json
import subprocess
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

from vsrkit.data.degrade import to_yuv420
from vsrkit.errors import VsrkitError

MODEL = "vmaf_v0.6.1"


def vmaf_at_hand() -> bool:
    """Whether the extra is installed."""
    return find_spec("imageio_ffmpeg") is not None


class VmafClip:
    """Two growing files of raw frames, measured at the end; use as a context manager.

    Frames are written as 8-bit BT.709 4:2:0, what VMAF was made for.
    """

    def __init__(self) -> None:
        if not vmaf_at_hand():
            raise VsrkitError("VMAF needs an ffmpeg of its own: pip install imageio-ffmpeg")
        self._folder = tempfile.TemporaryDirectory(prefix="vsrkit-vmaf-")
        self._files: tuple[BinaryIO, BinaryIO] | None = None

    def __enter__(self) -> "VmafClip":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files or ():
            file.close()
        self._folder.cleanup()

    def add(self, sr: Tensor, hr: Tensor) -> None:
        """One more frame of the clip, (3, H, W) each in [0, 1]."""
        if self._files is None:
            height, width = (side + side % 2 for side in sr.shape[-2:])
            folder = Path(self._folder.name)
            self._files = ((folder / "sr.y4m").open("wb"), (folder / "hr.y4m").open("wb"))
            for opened in self._files:
                opened.write(f"YUV4MPEG2 W{width} H{height} F25:1 Ip A1:1 C420mpeg2\n".encode())
        for file, frame in zip(self._files, (sr, hr), strict=True):
            file.write(b"FRAME\n" + to_yuv420(frame).tobytes())

    def score(self) -> float:
        """Mean VMAF over the frames added so far."""
        if self._files is None:
            raise ValueError("no frame was added")
        for file in self._files:
            file.flush()
        return _run(Path(self._folder.name))


def vmaf(sr: Iterable[Tensor], hr: Iterable[Tensor]) -> float:
    """VMAF of one clip against another, frame by frame (3, H, W)."""
    with VmafClip() as clip:
        for a, b in zip(sr, hr, strict=True):
            clip.add(a, b)
        return clip.score()


def _run(folder: Path) -> float:
    from imageio_ffmpeg import get_ffmpeg_exe  # noqa: PLC0415  # an extra; the rest works without

    measure = f"libvmaf=model=version={MODEL}:log_fmt=json:log_path=vmaf.json"
    command = [get_ffmpeg_exe(), "-v", "error", "-i", "sr.y4m", "-i", "hr.y4m"]
    command += ["-lavfi", measure, "-f", "null", "-"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise VsrkitError(f"ffmpeg could not measure VMAF: {done.stderr.strip().splitlines()[-1]}")
    log = json.loads((folder / "vmaf.json").read_text(encoding="utf-8"))
    return float(log["pooled_metrics"]["vmaf"]["mean"])
