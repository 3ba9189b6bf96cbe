"""Version, extras and pinned tools agree between the files that name them."""

import re
import tomllib

from tests.paths import ROOT
from tests.test_structure import RANK

import vsrkit

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)


def package_names(requirements):
    return {re.split(r"[<>=!~;\[ ]", requirement)[0] for requirement in requirements}


def test_the_version_is_defined_once():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/vsrkit/__init__.py"


def test_the_changelog_has_the_current_version():
    versions = re.findall(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == vsrkit.__version__


def test_the_documented_extras_exist():
    extras = set(PROJECT["project"]["optional-dependencies"])
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    table = page[page.index("| extra |") : page.index("`vsrkit doctor`")]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == extras


def test_every_dependency_is_pinned():
    assert package_names(PROJECT["project"]["dependencies"]) <= set(PINS)


def test_pre_commit_uses_the_pinned_ruff():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert f"ruff-pre-commit\n    rev: v{PINS['ruff']} " in hooks


def test_every_make_target_is_documented():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()
    assert [t for t in targets if not re.search(rf"^{t}:.*  ## \w", text, re.MULTILINE)] == []


def test_every_decision_is_in_the_index():
    folder = ROOT / "notes" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"^\| \[\d+\]\(([^)]+)\)", index, re.MULTILINE))
    assert linked == {path.name for path in folder.glob("0*.md")}


def test_the_map_of_the_source_has_the_layers_in_order():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    start = text.index("    errors ")
    lines = text[start : text.index("\n\n", start)].splitlines()
    drawn = [name for line in lines for name in re.findall(r"^ {4}([a-z.]+)", line)]
    beside = re.findall(r"research\.\w+", "\n".join(lines))
    assert drawn == [name for name in RANK if name not in beside[2:]]
    assert beside == [name for name in RANK if name.startswith("research.")]
