"""The `vsrkit` command: help without torch, exit codes, one line per error, demo, models."""

import json
import os
import subprocess
import sys

import pytest
import torch
import typer

from vsrkit import __version__, cli
from vsrkit.errors import StoppedError, VsrkitError
from vsrkit.models.zoo import list_models
from vsrkit.models.zoo.listing import CountOnly, count_facts
from vsrkit.support import demo


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "vsrkit", *arguments], capture_output=True, text=True, check=True
    )


def run_inside(monkeypatch, capsys, *arguments):
    """Exit code and output of `main`, in this process."""
    monkeypatch.setattr(sys, "argv", ["vsrkit", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    return stop.value.code, out, err


def test_help_names_the_exit_codes_and_does_not_import_torch():
    code = (
        "import sys\nsys.argv = ['vsrkit', '--help']\n"
        "from vsrkit.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "0 done, 1 failed, 2 wrong usage, 130 interrupted" in out.stdout


def test_commands_that_run_models_choose_the_device():
    commands = typer.main.get_command(cli.app).commands
    for name in ("upscale", "plan", "evaluate", "compare", "inspect", "finetune"):
        (device,) = (option for option in commands[name].params if option.name == "device")
        assert (name, device.default) == (name, "auto")


@pytest.mark.parametrize("arguments", [["nonsense"], ["models", "--nonsense"], ["evaluate"]])
def test_wrong_usage_is_two(monkeypatch, capsys, arguments):
    assert run_inside(monkeypatch, capsys, *arguments)[0] == 2


def failing(error):
    def command():
        raise error

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    return app


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (VsrkitError("no such\nthing; do this"), 1, "vsrkit: no such thing; do this\n"),
        (OSError(28, "No space left on device"), 1, "No space left on device; fix this"),
        (ValueError("odd"), 1, "vsrkit: unexpected ValueError: odd; run with --debug"),
        (KeyboardInterrupt(), 130, ""),
        (StoppedError("stopped by SIGINT; continue with --resume"), 130, "continue with --resume"),
    ],
)
def test_an_error_is_one_line_and_a_code(monkeypatch, capsys, error, code, text):
    monkeypatch.setattr(cli, "app", failing(error))
    found, _, err = run_inside(monkeypatch, capsys)
    assert found == code
    assert text in err
    assert len(err.splitlines()) <= 1


@pytest.mark.parametrize("arguments", [["--debug"], []])
def test_only_debug_shows_the_traceback(monkeypatch, arguments):
    monkeypatch.setattr(cli, "app", failing(VsrkitError("x")))
    monkeypatch.setattr(sys, "argv", ["vsrkit", *arguments])
    with pytest.raises(VsrkitError if arguments else SystemExit):  # and a file in the cache
        cli.main()


def test_version():
    assert run("--version").stdout.strip() == f"vsrkit {__version__}"


@pytest.fixture(scope="module")
def listed():
    return json.loads(run("models", "--json").stdout)


def test_models_as_json(listed):
    rows = {row["name"]: row for row in listed}
    assert list(rows) == list_models()
    assert rows["vsrt-reds"]["parameters"] == 32_564_335
    assert rows["vsrt-reds"]["frames"] == "5 -> 5"
    assert rows["bicubic"]["needs_weights"] is False
    assert all(row["licence"] for row in listed)


@pytest.mark.parametrize("name", ["bicubic", "vsrt-s", "edvr-m", "frvsr"])
def test_stored_facts_equal_counted_facts(listed, name):
    stored = next(row for row in listed if row["name"] == name)
    assert count_facts(name).items() <= stored.items()


def test_counted_operations_equal_a_manual_sum():
    with torch.no_grad(), CountOnly() as counter:
        out = torch.nn.Conv2d(3, 8, 3, padding=1)(torch.zeros(1, 3, 10, 10))
        out.flatten(2).transpose(1, 2) @ torch.zeros(8, 5)
    assert counter.flop == 2 * 100 * 3 * 8 * 9 + 2 * 100 * 8 * 5


def test_the_demo_writes_a_video_a_picture_and_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "default_model", lambda: "bicubic")
    code, out, _ = run_inside(monkeypatch, capsys, "demo", "-o", str(tmp_path / "out"))
    assert code == 0
    assert "24 frames upscaled from 176x100 to 704x400 with bicubic" in out
    made = {p.name for p in (tmp_path / "out").iterdir()}
    assert made == {"input.mp4", "output.mp4", "side-by-side.png", "numbers.json"}
    numbers = json.loads((tmp_path / "out" / "numbers.json").read_text())
    assert numbers["psnr"] == numbers["bicubic_psnr"] == pytest.approx(22.36, abs=0.05)


def test_help_is_quick():
    """Processor time, which other programs on the machine hardly change; 0 on Windows."""
    before = os.times()
    run("--help")
    after = os.times()
    used = after.children_user + after.children_system
    assert used - before.children_user - before.children_system < 0.5


@pytest.mark.parametrize("command", [("models",), ("weights", "list")])
def test_names_and_licences_are_whole_on_a_terminal_of_80_columns(monkeypatch, capsys, command):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run_inside(monkeypatch, capsys, *command)
    _, listed, _ = run_inside(monkeypatch, capsys, *command, "--json")
    rows = json.loads(listed)
    words = [word for row in rows for word in (row.get("name"), row["licence"])]
    assert [word for word in words if word not in out] == []


def test_paragraphs_of_help_fit_a_terminal_of_80_columns():
    """Help keeps the line breaks of docstrings; longer lines would be broken twice."""

    def commands(group):
        for command in group.commands.values():
            yield from commands(command) if hasattr(command, "commands") else [command]

    texts = [command.help for command in commands(typer.main.get_command(cli.app))]
    paragraphs = [part for text in texts for part in text.split("\n\n")[1:]]
    broken = [line for part in paragraphs for line in part.split("\n")[:-1] if len(line) > 78]
    assert broken == []


@pytest.mark.parametrize(
    "command", [("weights", "get", "nothing"), ("finetune", "missing.mp4", "-o", "a.safetensors")]
)
def test_an_error_below_a_progress_bar_is_one_line_without_a_terminal(monkeypatch, capsys, command):
    code, out, err = run_inside(monkeypatch, capsys, *command)
    assert code == 1
    assert out == ""
    assert err.startswith("vsrkit: ")
    assert err.count("\n") == 1
