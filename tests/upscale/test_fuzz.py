"""Absurd inputs and outputs: one clear line, never a trace or half a file. See also tests/fuzz."""

import errno
import os
import random
import sys

import av
import pytest
import torch
from tests.clips import write_clip

from vsrkit import cli
from vsrkit.video.images import write_image
from vsrkit.video.read import open_source


def run(monkeypatch, capsys, source, target, *options):
    """The command in this process; its exit code and what it wrote to standard error."""
    words = ["vsrkit", "upscale", "-i", str(source), "-o", str(target), "-m", "bicubic", *options]
    monkeypatch.setattr(sys, "argv", words)
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    return code, capsys.readouterr().err


def check(code, said, target):
    """What must hold whatever the input was."""
    assert "Traceback" not in said
    assert "unexpected" not in said, said
    if code == 0:
        assert len(list(open_source(target).pictures())) > 0
        return
    assert code == 1
    lines = [line for line in said.splitlines() if line.startswith("vsrkit: ")]
    assert len(lines) == 1, said
    assert not target.exists()


def _nothing(path):
    pass


def _wide(path):
    path.write_bytes(b"YUV4MPEG2 W16384 H16384 F25:1 Ip A1:1 C420jpeg\nFRAME\n" + bytes(1000))


def _too_wide(path):
    path.write_bytes(b"YUV4MPEG2 W99999999 H99999999 F25:1 Ip A1:1 C420jpeg\nFRAME\n" + bytes(1000))


def _only_sound(path):
    with av.open(str(path), "w", format="matroska") as file:
        stream = file.add_stream("pcm_s16le", rate=8000)
        file.start_encoding()
        packet = av.Packet(bytes(1600))
        packet.stream, packet.pts, packet.dts, packet.time_base = stream, 0, 0, stream.time_base
        file.mux(packet)


@pytest.mark.parametrize(
    ("name", "make", "fails"),
    [
        ("missing.mp4", _nothing, True),
        ("folder.mp4", lambda p: p.mkdir(), True),
        ("empty.mp4", lambda p: p.write_bytes(b""), True),
        ("text.mp4", lambda p: p.write_text("this is no video\n" * 50), True),
        ("zeros.mkv", lambda p: p.write_bytes(bytes(10_000)), True),
        ("noise.avi", lambda p: p.write_bytes(random.Random(0).randbytes(20_000)), True),
        ("sound.mkv", _only_sound, True),
        ("wide.y4m", _wide, True),
        ("huge.y4m", _too_wide, True),
        ("one.y4m", lambda p: write_clip(p, codec="rawvideo", frames=1, width=1, height=1), False),
        ("bad.png", lambda p: p.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50)), True),
        ("one.png", lambda p: write_image(p, torch.rand(3, 5, 7)), False),
        ("no such folder/%04d.png", _nothing, True),
    ],
)
def test_absurd_inputs(tmp_path, monkeypatch, capsys, name, make, fails):
    make(tmp_path / name)
    target = tmp_path / "out.mkv"
    code, said = run(monkeypatch, capsys, tmp_path / name, target)
    check(code, said, target)
    assert (code != 0) == fails, said


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("file/out.mkv", "cannot write"),
        ("/proc/out.mkv", "cannot write"),
        ("out.xyz", "cannot write .xyz"),
        ("in.mkv", "same file"),
    ],
)
def test_unwritable_targets(tmp_path, monkeypatch, capsys, target, message):
    source = write_clip(tmp_path / "in.mkv", frames=2)
    (tmp_path / "file").write_text("a file and no folder")
    code, said = run(monkeypatch, capsys, source, tmp_path / target, "-y")
    assert code == 1
    assert said.count("\n") == 1
    assert message in said


@pytest.mark.parametrize("room", [10, 20_000])
def test_a_full_disk(tmp_path, monkeypatch, capsys, room):
    """At the manifest, and at the whole file: one line, nothing under the output's name."""
    source = write_clip(tmp_path / "in.mkv", frames=60, smooth=False)
    plain, written = os.fsync, []

    def fsync(descriptor):
        written.append(os.fstat(descriptor).st_size)
        if sum(written) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    code, said = run(monkeypatch, capsys, source, tmp_path / "out.mkv")
    assert code == 1
    assert "No space left" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out.mkv").exists()
