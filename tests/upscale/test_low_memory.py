"""A job that never holds a whole frame makes the same bytes as one that does."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.clips import write_clip
from tests.upscale.upscaled import upscale

from vsrkit.inference.memory import estimate
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.upscale import produce
from vsrkit.video.codecs import choose_encoding, encoder_memory
from vsrkit.video.read import open_source


@pytest.fixture
def model():
    config = SmallConfig(channels=8, tower_blocks=1, attention=False, segment=4, warmup=1)
    return VSRTSmall(config).eval()


@pytest.mark.parametrize(
    ("pix_fmt", "height", "target", "codec"),
    [
        ("yuv420p", 96, "out.mkv", "ffv1"),  # which loses nothing, so it shows every sample
        ("yuv422p10le", 90, "out.mkv", "ffv1"),
        ("yuv420p", 96, "out.mkv", "h264"),
        ("yuv422p10le", 90, "out.mkv", "h264"),
        ("yuv420p", 96, "out", None),
    ],
)
def test_rows_make_the_same_bytes_as_whole_frames(
    tmp_path, monkeypatch, model, pix_fmt, height, target, codec
):
    fixed = {"precision": "float32", "codec": codec, "model": model, "tile": 64}
    source = write_clip(
        tmp_path / "in.mkv", frames=6, width=150, height=height, pix_fmt=pix_fmt, codec="ffv1"
    )
    by_rows = []
    stored = produce.piece_by_rows
    monkeypatch.setattr(produce, "piece_by_rows", lambda *a: by_rows.append(1) or stored(*a))
    whole = tmp_path / "whole" / target
    whole.parent.mkdir()
    upscale(source, whole, **fixed)
    assert not by_rows

    limit = estimate(model, height, 150, 64, 0, low_memory=True, held=4)
    if whole.is_file():
        info = open_source(source).info
        encoding = choose_encoding(info, suffix=".mkv", codec=codec, height=4 * height, width=600)
        limit += encoder_memory(encoding)
    else:
        limit += 3 * 12 * 16 * height * 150
    upscale(source, tmp_path / target, max_memory=limit, **fixed)
    assert by_rows
    files = [whole] if whole.is_file() else sorted(whole.iterdir())
    assert files
    for file in files:
        other = tmp_path / file.relative_to(whole.parent)
        assert other.read_bytes() == file.read_bytes()


GROWTH = """
import re, sys, torch
from dataclasses import replace
from pathlib import Path
from vsrkit.models.zoo import build_model
from vsrkit.inference.engine import make_engine
from vsrkit.models.spec import Piece

torch.set_num_threads(1)
engine = make_engine(build_model("vsrt-s"), precision="float32", tile=64)
engine = replace(engine, scratch=Path(sys.argv[1]))
sizes = []
def note(*_):
    status = Path("/proc/self/status").read_text()
    sizes.append(int(re.search(r"VmRSS:\\s+(\\d+)", status)[1]) // 1024)
engine.model.register_forward_hook(note)
for _ in engine.run_by_rows(Piece(torch.rand(3, 3, 112, 880), slice(0, 3))):
    pass
print(sizes[7], sizes[-1], len(sizes))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_tiles(tmp_path):
    out = subprocess.run(
        [sys.executable, "-c", GROWTH, str(tmp_path)], check=True, capture_output=True, text=True
    )
    early, late, tiles = map(int, out.stdout.split())
    assert tiles >= 36
    # A tile's result has 2.25 MiB: those of the tiles between would be more than 60.
    assert late <= early + 20
