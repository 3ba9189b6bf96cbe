"""The commands of docs/train.md for the published runs, on small trees in the published layout.

Only paths and sizes are replaced, by --set. The frames of the test septuplets of Vimeo-90K are
damaged, and an audit hook records every file that is opened.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.data.trees import random_clip, write_clip, write_published_reds
from tests.paths import ROOT
from tests.test_docs import steps
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.data.layouts import REDS4, REDS_TRAINING, vimeo_held_out
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.zoo import save_model
from vsrkit.train import loop

COMMANDS = [
    text
    for _, kind, text in steps(ROOT / "docs" / "train.md")
    if kind == "command" and ("data_root=" in text or text.startswith("vsrkit data check"))
]
SEPTUPLETS = [f"{n // 4 + 1:05d}/{n % 4 + 1:04d}" for n in range(24)]
TEST = SEPTUPLETS[::4]
TRAIN = [name for name in SEPTUPLETS if name not in TEST]
HELD_OUT = vimeo_held_out(TRAIN)
OPENED: list[str] = []  # files opened by this process; an audit hook cannot be removed


def record(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, os.PathLike)):
        OPENED.append(os.fspath(arguments[0]))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with the two trees and a small network for each."""
    folder = tmp_path_factory.mktemp("published")
    write_published_reds(folder / "REDS", frames=5)
    home = folder / "vimeo_septuplet"
    for seed, name in enumerate(SEPTUPLETS):
        write_clip(home / "sequences" / name, random_clip(7, 64, 64, seed), first=1, name="im{}")
    for name in TEST:
        for path in (home / "sequences" / name).iterdir():
            path.write_bytes(b"damaged")
    (home / "sep_trainlist.txt").write_text("\n".join(TRAIN) + "\n")
    (home / "sep_testlist.txt").write_text("\n".join(TEST) + "\n\n")
    (folder / "recipes").symlink_to(ROOT / "recipes")
    torch.manual_seed(0)
    blocks = {"extract_blocks": 1, "tower_blocks": 1, "reconstruct_blocks": 1}
    for name, frames in (("vsrt_reds", 5), ("vsrt_vimeo90k", 7)):
        model = VSRT(VSRTConfig(frames=frames, depth=1, channels=8, size=16, **blocks))
        save_model(folder / f"{name}.safetensors", model)
    sys.addaudithook(record)
    return folder


def small(command: str, folder: Path) -> list[str]:
    """The words of a command after `vsrkit`, with settings that make its run small."""
    words = shlex.split(command)
    words = words[words.index("vsrkit") + 1 :]
    recipe = next(w for w in words if w.startswith("recipes/")).partition(".py")[0]
    model = f"{Path(recipe).name}.safetensors"
    settings = {
        "model": model,
        "warm_start": f"flow={model}",
        "run_dir": str(folder / "run"),
        "cache_dir": str(folder / "cache"),
        "crop": 16,
        "steps": 2,
        "batch_size": 1,
        "total_batch_size": 2,
        "workers": 0,
        "device": "cpu",
    }
    return [*words, *(w for k, v in settings.items() for w in ("--set", f"{k}={v}"))]


def expected(command):
    """The training and validation clips of a command, and the folders they are in."""
    if "vimeo" in command:
        home = Path("vimeo_septuplet", "sequences")
        training = [name for name in TRAIN if name not in HELD_OUT]
        return training, HELD_OUT, {str(home / name) for name in TRAIN}
    folders = {f"REDS/train_sharp/{n:03d}" for n in range(240)}
    return (
        list(REDS_TRAINING),
        list(REDS4),
        folders | {f"REDS/val_sharp/{n:03d}" for n in range(30)},
    )


def test_the_page_has_the_published_runs():
    trained = [c.partition("recipes/")[2].split()[0] for c in COMMANDS if " train " in c]
    for recipe in ("vsrt_reds.py", "vsrt_vimeo90k.py"):
        assert {recipe, f"{recipe}:paper"} <= set(trained)
    assert any(command.startswith("vsrkit data check REDS") for command in COMMANDS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if "--resume" not in c])
def test_a_documented_command_reads_exactly_the_published_clips(
    command, inputs, tmp_path, monkeypatch
):
    monkeypatch.chdir(inputs)
    if command.startswith("vsrkit data check"):
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        text = " ".join(done.output.split())
        assert f"reds-train, 266 clips, {266 * 5} frames" in text
        assert f"clips: {', '.join(REDS_TRAINING)}" in text
        return
    training, validation, folders = expected(command)
    opened_data = []
    open_data = loop.open_data
    monkeypatch.setattr(
        loop, "open_data", lambda *a: opened_data.append(open_data(*a)) or opened_data[-1]
    )
    OPENED.clear()
    done = CliRunner().invoke(app, small(command, tmp_path))
    assert done.exit_code == 0, (done.output, done.exception)
    [(sources, held_out)] = opened_data
    assert [clip.name for source in sources for clip in source.clips] == training
    assert [clip.name for clip in held_out] == validation
    frames = {Path(path) for path in OPENED if path.endswith(".png")}
    assert {str(path.parent.relative_to(inputs) if path.is_absolute() else path.parent)
            for path in frames} == folders  # fmt: skip
    decoded = [json.loads(p.read_text())["source"] for p in (tmp_path / "cache").glob("*.json")]
    assert sorted(decoded) == sorted(folders)
    assert (tmp_path / "run" / "best.safetensors").is_file()
    assert not any(name in path for path in OPENED for name in TEST if "vimeo" in command)
    if f"{command} --resume" in COMMANDS:
        words = [*small(f"{command} --resume", tmp_path), "--set", "steps=3"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (done.output, done.exception)
        assert "3 steps done" in done.output


def test_torchrun_reads_exactly_the_published_clips(inputs, tmp_path):
    command = next(c for c in COMMANDS if "torchrun" in c and "vimeo" in c)
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "vsrkit"]
    done = subprocess.run(
        [*run, *small(command, tmp_path)], cwd=inputs, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    decoded = [json.loads(p.read_text())["source"] for p in (tmp_path / "cache").glob("*.json")]
    assert sorted(decoded) == sorted(expected(command)[2])
    assert (tmp_path / "run" / "best.safetensors").is_file()


def test_a_tree_without_lists_is_refused_before_anything_is_read(inputs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sequences").symlink_to(inputs / "vimeo_septuplet" / "sequences")
    (tmp_path / "vsrt_vimeo90k.safetensors").symlink_to(inputs / "vsrt_vimeo90k.safetensors")
    for setting in ("data_root=bare", "data=bare", "data=bare/sequences"):
        OPENED.clear()
        words = small(f"vsrkit train recipes/vsrt_vimeo90k.py --set {setting}", tmp_path)
        done = CliRunner().invoke(app, words)
        assert "sep_trainlist.txt is missing. Expected: DIR/vimeo" in str(done.exception)
        assert not [path for path in OPENED if path.endswith(".png")]
