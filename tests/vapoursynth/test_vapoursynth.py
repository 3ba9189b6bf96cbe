"""`vspipe` gives the frames of `vsrkit upscale`, in any order."""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from tests.paths import ROOT

from vsrkit import load_model, upscale_frames, upscale_video
from vsrkit.inference.engine import make_engine
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.video.images import read_image, write_image

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vapoursynth") is None,
    reason="vapoursynth is not installed; its wheels need Python 3.12 or later",
)

# Frames of a folder as a clip, without a plugin for images.
SOURCE = """
import numpy as np
import vapoursynth as vs
from pathlib import Path
from vsrkit.video.images import read_image
from vsrkit.vapoursynth import upscale

pictures = [read_image(path).numpy() for path in sorted(Path("frames").glob("*.png"))]
height, width = pictures[0].shape[1:]
blank = vs.core.std.BlankClip(
    format=vs.RGBS, width=width, height=height, length=len(pictures), keep=True
)


def fill(n, f):
    frame = f.copy()
    for plane in range(3):
        np.copyto(np.asarray(frame[plane]), pictures[n][plane])
    return frame


clip = blank.std.ModifyFrame(blank, fill)
"""


@pytest.fixture
def frames(tmp_path):
    """A folder with two shots of six frames in 8 bits."""
    return written(tmp_path, 8)


def written(tmp_path, bits):
    generator = torch.Generator().manual_seed(0)
    for shot in range(2):
        picture = torch.rand(1, 3, 6, 8, generator=generator)
        large = torch.nn.functional.interpolate(picture, (40, 64), mode="bicubic")[0]
        for number in range(6):
            frame = large[:, 4 : 4 + 24, 2 * number : 2 * number + 32].clamp(0, 1)
            path = tmp_path / "frames" / f"{shot * 6 + number:03d}.png"
            write_image(path, frame, bits=bits)
    return tmp_path / "frames"


def run_script(folder, script):
    (folder / "script.vpy").write_text(SOURCE + script)
    vspipe = Path(importlib.util.find_spec("vapoursynth").origin).with_name("vspipe")
    done = subprocess.run(
        [vspipe, "script.vpy", "out.raw"], cwd=folder, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return (folder / "out.raw").read_bytes()


@pytest.mark.parametrize(
    ("model", "bits", "taken"),
    [("vsrt-s", 8, "RGBS"), ("vsrt-s", 16, "RGB48"), ("vsrt-xs", 8, "RGB24")],
)
def test_vspipe_gives_the_frames_of_upscale(tmp_path, model, bits, taken):
    folder = tmp_path
    options = UpscaleOptions(model=model, precision="float32")
    upscale_video(written(tmp_path, bits), folder / "large", options=options)
    wanted = [read_image(path) for path in sorted((folder / "large").glob("*.png"))]
    assert len(wanted) == 12
    made = run_script(
        folder,
        f"""
taken = clip.resize.Point(format=vs.{taken})
large = upscale(taken, "{model}", precision="float32", bits={bits if taken == "RGBS" else None})
assert large.format.id == vs.RGB{3 * bits}
large.std.Reverse().set_output()  # asked for backwards
""",
    )
    dtype = torch.uint8 if bits == 8 else torch.uint16
    pixels = torch.frombuffer(bytearray(made), dtype=dtype).view(12, 3, 96, 128)
    # VapourSynth writes planes in the order G, B, R.
    rgb = pixels.to(torch.int64)[:, [2, 0, 1]].flip(0)
    found = (torch.stack(wanted) * (2**bits - 1)).round().to(torch.int64)
    assert torch.equal(rgb, found)


def test_floats_are_those_of_upscale_frames(frames):
    made = run_script(
        frames.parent,
        """
upscale(clip, "vsrt-xs", precision="float32").set_output()
""",
    )
    pictures = [read_image(path) for path in sorted(frames.glob("*.png"))]
    engine = make_engine(load_model("vsrt-xs"), precision="float32")
    wanted = torch.stack(list(upscale_frames(pictures, engine, cuts=[6])))
    found = torch.frombuffer(bytearray(made), dtype=torch.float32).view(12, 3, 96, 128)
    assert torch.equal(found[:, [2, 0, 1]], wanted)


def test_the_clip_keeps_format_and_properties(frames):
    made = run_script(
        frames.parent,
        """
half = clip.resize.Point(format=vs.RGBH).std.SetFrameProps(marked=7)
large = upscale(half, "bicubic", cuts=[6])
assert large.format.id == vs.RGBH and (large.width, large.height) == (128, 96)
with large.get_frame(3) as frame:
    assert frame.props["marked"] == 7
large.set_output()
""",
    )
    assert len(made) == 12 * 3 * 96 * 128 * 2


def test_cuts_of_properties_are_those_given(frames):
    made = run_script(
        frames.parent,
        """
import hashlib


def digest(cuts, source):
    large = upscale(source, "vsrt-s", cuts=cuts, precision="float32")
    with large.get_frame(7) as frame:
        return hashlib.sha256(b"".join(bytes(frame[p]) for p in range(3))).digest()


marked = clip.std.SetFrameProps(_SceneChangePrev=0)
second = clip.std.SetFrameProps(_SceneChangePrev=1)
marked = marked[:6] + second[6:7] + marked[7:]
assert digest("props", marked) == digest([6], clip) == digest("detect", clip)
assert digest((), clip) != digest([6], clip)
clip[:1].set_output()
""",
    )
    assert made


def test_the_script_of_the_documentation_runs(frames):
    page = (ROOT / "docs" / "vapoursynth.md").read_text(encoding="utf-8")
    script = re.search(r"^    # upscale.vpy\n((?:    .*\n|\n)+)", page, re.MULTILINE)[1]
    source = 'vs.core.bs.VideoSource("in.mp4")'
    assert source in script
    yuv = 'clip.resize.Bicubic(format=vs.YUV420P8, matrix_s="709")[:2]'
    made = run_script(frames.parent, textwrap.dedent(script).replace(source, yuv))
    assert len(made) == 2 * 2 * 96 * 128 * 3 // 2
