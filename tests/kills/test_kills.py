"""Jobs that are killed, or whose writes fail, at any point: nothing partial and nothing lost."""

import errno
import os
import signal
import time

import pytest
from tests.forked import run_forked
from tests.kills.jobs import KINDS, Fault, Jobs, contents

from vsrkit.upscale.work_folder import WorkFolder


@pytest.fixture(scope="session")
def jobs(tmp_path_factory):
    return Jobs(tmp_path_factory.mktemp("jobs"))


def run_with(jobs, kind, place, *faults, code=None):
    """Run a job with faults one after the other, then to its end; what went wrong."""
    jobs.prepare(kind, place)
    wrong = []
    for fault in faults:
        ended = jobs.run(kind, place, fault)
        if code is not None and ended.code not in (0, code):
            wrong.append(f"{fault} ends with {ended.code}, signal {ended.signal}: {ended.errors}")
        if ended.code == 0:
            return wrong
    return [f"{faults}: {fault}" for fault in wrong + jobs.finish(kind, place)]


@pytest.mark.parametrize("kind", KINDS)
def test_killed_before_any_change_of_a_file(jobs, tmp_path, kind):
    """Some points of each kind of job; `make kills` takes all."""
    wrong = []
    for point in range(hash_of(kind) % 5, len(jobs.points[kind]), 5 if kind == "video" else 17):
        wrong += run_with(jobs, kind, tmp_path / str(point), Fault("kill", point))
    assert wrong == []


@pytest.mark.parametrize("kind", ["images", "replaced", "pattern"])
def test_killed_when_only_cleanup_remains(jobs, tmp_path, kind):
    first = max(n for n, name in enumerate(jobs.points[kind]) if name.endswith(" frames")) + 1
    assert run_with(jobs, kind, tmp_path, Fault("kill", first)) == []


def hash_of(text):
    """The same in each process, unlike `hash`."""
    return sum(map(ord, text))


@pytest.mark.parametrize("kind", ["video", "replaced"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_every_write_may_fail(jobs, tmp_path, kind, error):
    """One line, and the same command gives the same bytes when there is room again."""
    wrong = []
    for point in range(error % 7, len(jobs.points[kind]), 19):
        fault = Fault("error", point, error)
        wrong += run_with(jobs, kind, tmp_path / str(point), fault, code=1)
    assert wrong == []


@pytest.mark.parametrize("kind", ["sound", "images"])
@pytest.mark.parametrize("size", [0, 1, 500, 2000, 8000])
def test_writes_that_end_in_the_middle(jobs, tmp_path, kind, size):
    """Of Python and of FFmpeg: a kill within the write, then a full disk, then the rest."""
    faults = [Fault("torn", size), Fault("full", size)]
    assert run_with(jobs, kind, tmp_path, *faults) == []


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_time_and_again(jobs, tmp_path, seed):
    faults = [Fault("time", 0.01 + 0.02 * ((7 * seed + step) % 9)) for step in range(4)]
    assert run_with(jobs, "carried", tmp_path, *faults) == []


def test_two_jobs_for_one_output(jobs, tmp_path):
    """One of them works, the other one waits for nothing and says so."""
    jobs.prepare("video", tmp_path)
    second = []

    def start_another(pid):
        if WorkFolder.beside(tmp_path / "made" / "out.mkv").manifest.exists() and not second:
            os.kill(pid, signal.SIGSTOP)  # so that the first one certainly still works
            (tmp_path / "second").mkdir()
            work = tmp_path / "second"
            second.append(
                run_forked(
                    lambda: jobs._run("video", tmp_path, None, jobs.folder / "film.mkv"), work
                )
            )
            os.kill(pid, signal.SIGCONT)

    first = jobs.run("video", tmp_path, during=start_another)
    assert second[0].code == 1
    assert "another vsrkit process works in" in second[0].errors
    assert first.code == 0, first.errors
    assert contents(tmp_path / "made") == jobs.whole["video"]


def test_suspended_and_resumed(jobs, tmp_path):
    jobs.prepare("video", tmp_path)
    stops = []

    def pause(pid):
        if len(stops) < 6:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.01)
            os.kill(pid, signal.SIGCONT)
            stops.append(pid)

    ended = jobs.run("video", tmp_path, during=pause)
    assert stops
    assert ended.code == 0, ended.errors
    assert contents(tmp_path / "made") == jobs.whole["video"]


def test_an_input_that_vanishes(jobs, tmp_path):
    """During the job, and before it is run again: one line, and the finished parts are kept."""
    source = tmp_path / "in.mkv"
    source.write_bytes((jobs.folder / "film.mkv").read_bytes())
    jobs.prepare("video", tmp_path / "job")
    made = tmp_path / "job" / "made"

    def remove(pid):
        if list((made / ".out.mkv.vsrkit").glob("part-*.json")):
            source.unlink(missing_ok=True)

    ended = jobs.run("video", tmp_path / "job", source=source, during=remove)
    if ended.code == 0:  # it was faster than this test
        pytest.skip("the job was done before its input could be removed")
    for _ in range(2):
        assert (ended.code, ended.signal) == (1, None), ended
        assert ended.errors.count("vsrkit: ") == 1
        assert "Traceback" not in ended.errors
        ended = jobs.run("video", tmp_path / "job", source=source)
    assert jobs.finish("video", tmp_path / "job") == []


@pytest.mark.parametrize("megabytes", [0, 20, 60, 150, 400])
def test_little_memory(jobs, tmp_path, megabytes):
    """`ulimit -v`: the same bytes, or one line and nothing lost."""
    jobs.prepare("video", tmp_path)
    ended = jobs.run("video", tmp_path, memory=megabytes << 20)
    assert ended.signal is None, ended
    assert ended.code in (0, 1), ended.errors
    if ended.code == 0:
        assert contents(tmp_path / "made") == jobs.whole["video"]
    else:
        assert jobs.finish("video", tmp_path) == []


def test_a_fault_that_is_not_repaired_is_seen(jobs, tmp_path):
    """The checks of this file find a changed part, a stray file and a lost part."""
    jobs.prepare("video", tmp_path)
    jobs.run("video", tmp_path, Fault("kill", jobs.points["video"].index("os.rename whole.mkv")))
    (tmp_path / "made" / "stray").write_bytes(b"x")
    assert any("leaves files behind" in fault for fault in jobs.finish("video", tmp_path))
    (tmp_path / "made" / "out.mkv").write_bytes(b"half")
    assert jobs.check("video", tmp_path)[0] == "out.mkv is partial"
