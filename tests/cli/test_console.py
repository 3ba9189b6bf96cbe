"""Console output shows names from files as they are."""

import io
import logging
from pathlib import Path

from rich.console import Console
from tests.data.trees import random_clip, write_clip

from vsrkit.cli.console import print_check, report_to_console
from vsrkit.data.check import check_set

NAME = "[red]a"  # rich would hide the bracket as markup


def test_check_of_a_set_with_brackets_in_its_names(tmp_path: Path) -> None:
    write_clip(tmp_path / NAME / "[bold]", random_clip(2, 32, 32, seed=1))
    console = Console(file=io.StringIO(), width=200)
    print_check(check_set(tmp_path / NAME), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"{NAME}: " in text
    assert "[bold]" in text
    assert "1 clips, 2 frames" in text


def test_log_lines_keep_brackets(capsys) -> None:
    with report_to_console():
        logging.getLogger("vsrkit").info("decoding %s[/x]", NAME)  # rich would raise an error
    assert f"decoding {NAME}[/x]\n" in capsys.readouterr().err
