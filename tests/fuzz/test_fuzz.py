"""Damaged files through every command: done, or one line of error, whatever was damaged."""

from pathlib import Path

import pytest
from tests.fuzz.cases import run_case
from tests.fuzz.corpus import Corpus, seeded
from tests.fuzz.mutate import damage
from tests.fuzz.targets import Case, command_for_video, draw

from vsrkit import cli
from vsrkit.errors import VideoError

FINDINGS = Path(__file__).parent / "findings"
GROUPS, CASES = 10, 30


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return Corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("group", range(GROUPS))
def test_damaged_files(corpus, tmp_path, group):
    """Longer runs: make fuzz N=10000."""
    faults = []
    for number in range(group * CASES, (group + 1) * CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        name, case = draw(corpus, folder, seeded("suite", number))
        found, ended = run_case(case, folder)
        faults += [f"case {number} ({name}): {fault}: {ended.errors}" for fault in found]
    assert faults == []


@pytest.mark.parametrize("path", sorted((FINDINGS / "videos").iterdir()), ids=lambda p: p.name)
def test_videos_that_once_failed(path, tmp_path):
    target = tmp_path / "out.mkv"
    case = Case(["upscale", "-i", str(path), "-o", str(target), "-m", "bicubic"], target)
    assert run_case(case, tmp_path)[0] == []
    assert run_case(Case(["plan", str(path), "-m", "bicubic"]), tmp_path)[0] == []


@pytest.mark.parametrize("path", sorted((FINDINGS / "weights").iterdir()), ids=lambda p: p.name)
def test_weights_that_once_failed(corpus, path, tmp_path):
    target = tmp_path / "out.mkv"
    words = ["upscale", "-i", str(corpus.film), "-o", str(target), "-m", str(path)]
    faults, ended = run_case(Case(words, target), tmp_path)
    assert faults == []
    assert ended.code == 1


def test_a_list_of_clips_that_is_no_text(tmp_path):
    (tmp_path / "sep_testlist.txt").write_bytes(b"\xa8\xff")
    faults, ended = run_case(Case(["data", "check", str(tmp_path)]), tmp_path)
    assert faults == []
    assert "cannot be read as text" in ended.output


def test_every_valid_file_is_upscaled(corpus, tmp_path):
    """Else the damaged ones would only test the first lines of the reader."""
    failed = {}
    for path in (*corpus.videos, *corpus.images):
        folder = tmp_path / path.name
        folder.mkdir()
        case = command_for_video(path, folder, FirstChoice())
        faults, ended = run_case(case, folder)
        if faults or ended.code:
            failed[path.name] = (faults, ended.errors)
    assert failed == {}


class FirstChoice:
    """Draws the first of everything: an mkv file with no options."""

    def choice(self, items):
        return items[0]

    def random(self):
        return 1.0


def test_most_changes_keep_the_beginning_of_a_file(corpus):
    """Structure is damaged inside of files that are still recognised."""
    random = seeded("beginnings")
    kept = 0
    for number in range(300):
        data = corpus.videos[number % len(corpus.videos)].read_bytes()
        changed = damage(data, random)
        kept += changed[:12] == data[:12] and changed != data
    assert kept > 150


@pytest.mark.parametrize(
    ("end", "fault"),
    [
        (lambda target: 1 / 0, "says unexpected ZeroDivisionError:"),
        (lambda target: target.write_bytes(b"half"), "Invalid data found"),
        (lambda target: raise_after_writing(target), "fails and leaves an output"),
        (lambda target: None, "fuzz:"),
        (lambda target: target.with_name("stray").touch(), "leaves stray"),
        (lambda target: spin(), "ends by signal 24"),
        (lambda target: crash(), "ends by signal 11"),
    ],
)
def test_the_judge_sees(monkeypatch, tmp_path, end, fault):
    """Each kind of fault is found when the command has it."""
    target = tmp_path / "out.mkv"
    monkeypatch.setattr(cli, "app", lambda arguments: end(target))
    faults, ended = run_case(Case(["upscale"], target), tmp_path, cpu_s=1)
    assert fault in f"{faults} {ended.errors}"
    assert faults != []


def raise_after_writing(target):
    target.write_bytes(b"half")
    raise VideoError("it failed")


def spin():
    while True:
        pass


def crash():
    import ctypes  # noqa: PLC0415

    ctypes.string_at(0)
