"""The page is light, complete, and needs nothing from elsewhere."""

import re

import pytest

from vsrkit.evaluate.page import PLAYER
from vsrkit.studio.app import STATIC

FILES = sorted(path for folder in (STATIC, PLAYER) for path in folder.rglob("*") if path.is_file())
LIMIT = 200_000  # bytes


def test_weighs_less_than_the_limit():
    assert sum(path.stat().st_size for path in FILES) < LIMIT


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_refers_to_its_own_files_only(path):
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|[\"'(]//\w|@import|eval\(|innerHTML|outerHTML|insertAdj", text)
    for name in re.findall(r'from "\./([^"]+)"', text):
        beside = path.parent / name
        assert (beside if beside.exists() else PLAYER.parent / name).is_file(), name


def test_the_shell_has_no_inline_script_or_style():
    shell = (STATIC / "index.html").read_text(encoding="utf-8")
    assert "style=" not in shell
    assert "<style" not in shell
    assert not re.search(r"\son\w+=", shell)
    assert re.findall(r"<script[^>]*>([^<]*)</script>", shell) == [""]
    for name in re.findall(r'(?:src|href)="/static/([^"]+)"', shell):
        assert (STATIC / name).is_file() or (PLAYER.parent / name).is_file(), name


def test_text_is_there_before_any_script_has_run():
    shell = (STATIC / "index.html").read_text(encoding="utf-8")
    assert "<h1>Library</h1>" in shell
    assert 'href="#/queue"' in shell
