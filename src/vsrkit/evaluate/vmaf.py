"""VMAF, computed by the ffmpeg of the `eval` extra; the FFmpeg in PyAV has no libvmaf."""

import json
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

from vsrkit.data.recompress import to_yuv420
from vsrkit.errors import VsrkitError

MODEL = "vmaf_v0.6.1"
VMAF_MISSING = "VMAF needs an ffmpeg with libvmaf: pip install imageio-ffmpeg"


def vmaf_available() -> bool:
    """Whether the `eval` extra is installed."""
    return find_spec("imageio_ffmpeg") is not None


class VmafClip:
    """Writes output and ground truth to temporary files and scores them; a context manager.

    Frames are written as 8-bit BT.709 4:2:0, the format VMAF was trained on.
    """

    def __init__(self) -> None:
        if not vmaf_available():
            raise VsrkitError(VMAF_MISSING)
        self._folder = tempfile.TemporaryDirectory(prefix="vsrkit-vmaf-")
        self._files: tuple[BinaryIO, BinaryIO] | None = None

    def __enter__(self) -> "VmafClip":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files or ():
            file.close()
        self._folder.cleanup()

    def add(self, sr: Tensor, hr: Tensor) -> None:
        """Add the next frame of the clip, (3, H, W) each in [0, 1]."""
        if self._files is None:
            height, width = (side + side % 2 for side in sr.shape[-2:])
            folder = Path(self._folder.name)
            self._files = ((folder / "sr.y4m").open("wb"), (folder / "hr.y4m").open("wb"))
            for opened in self._files:
                opened.write(f"YUV4MPEG2 W{width} H{height} F25:1 Ip A1:1 C420mpeg2\n".encode())
        for file, frame in zip(self._files, (sr, hr), strict=True):
            file.write(b"FRAME\n" + to_yuv420(frame).tobytes())

    def score(self) -> float:
        """Return the mean VMAF over the frames added so far."""
        if self._files is None:
            raise ValueError("no frame was added")
        for file in self._files:
            file.flush()
        return _run(Path(self._folder.name))


def _run(folder: Path) -> float:
    from imageio_ffmpeg import get_ffmpeg_exe  # noqa: PLC0415  # an optional dependency

    measure = f"libvmaf=model=version={MODEL}:log_fmt=json:log_path=vmaf.json"
    command = [get_ffmpeg_exe(), "-v", "error", "-i", "sr.y4m", "-i", "hr.y4m"]
    command += ["-lavfi", measure, "-f", "null", "-"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise VsrkitError(f"ffmpeg could not measure VMAF: {done.stderr.strip().splitlines()[-1]}")
    log = json.loads((folder / "vmaf.json").read_text(encoding="utf-8"))
    return float(log["pooled_metrics"]["vmaf"]["mean"])
