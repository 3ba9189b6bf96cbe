"""Run a case in a fork and judge how it ended."""

import os
import re
import sys
import warnings
from pathlib import Path

from tests.forked import run_forked
from tests.fuzz.targets import frames_in

# Imported here, so that every fork has them.
import vsrkit.cli.console
import vsrkit.cli.progress
import vsrkit.cluster.connect
import vsrkit.data.check
import vsrkit.evaluate.measure
import vsrkit.models.zoo.fetch
import vsrkit.train.loop
import vsrkit.train.train_flow
import vsrkit.upscale.batch
import vsrkit.upscale.plan  # noqa: F401
from vsrkit import cli
from vsrkit.upscale import produce

PART_FRAMES = 8  # so that a short film has several parts
TROUBLE = re.compile(
    r"Traceback|unexpected [A-Z]\w+:|Segmentation|Assertion|(malloc|free)\(\)|corrupted size|fuzz:"
)


def run_case(case, folder, **limits):
    """What is wrong with how a case ended; empty if nothing is."""
    before = set(folder.rglob("*"))
    ended = run_forked(lambda: _run(case, folder), folder, stdin=case.stdin, **limits)
    return list(_faults(case, ended)) + _strays(case, folder, before), ended


def _run(case, folder):
    """In the fork: the command; then the output is decoded, which is limited in the same way."""
    os.chdir(folder)
    warnings.resetwarnings()  # pytest makes errors of them, the command does not
    os.environ["VSRKIT_CACHE"] = str(folder / "cache")
    produce.PART_FRAMES = PART_FRAMES
    sys.argv = ["vsrkit", *case.words]
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    if code == 0 and case.output is not None:
        if not case.output.exists():
            sys.stderr.write("fuzz: the output does not exist\n")
        elif frames_in(case.output) == 0:
            sys.stderr.write("fuzz: the output has no frames\n")
    return code


def _faults(case, ended):
    if ended.timed_out:
        yield "does not end"
    elif ended.signal is not None:
        yield f"ends by signal {ended.signal}"
    elif ended.code not in case.codes:
        yield f"ends with exit code {ended.code}"
    said = ended.errors
    if found := TROUBLE.search(said):
        yield f"says {found[0]}"
    lines = [line for line in said.splitlines() if line.startswith("vsrkit: ")]
    if ended.code == 1 and len(lines) != 1 and "problems found" not in ended.output:
        yield f"ends with {len(lines)} lines of error"
    if len(lines) == 1 and len(lines[0]) > 1000:
        yield "ends with a very long line"
    if case.output is None:
        return
    there = case.output.exists()
    if ended.code != 0 and there and case.wanted is None:
        yield "fails and leaves an output"
    if there and case.wanted is not None and _content(case.output) != case.wanted:
        yield "writes other bytes than without the interruption"


def _strays(case, folder, before):
    """Files left behind beside those of the case, the cache and a job that can be resumed."""
    allowed = {folder / name for name in ("stdout", "stderr", "cache")}
    if case.output is not None:
        allowed |= {case.output, case.output.with_name(f".{case.output.name}.vsrkit")}
    new = [
        path
        for path in folder.rglob("*")
        if path not in before and not any(path.is_relative_to(place) for place in allowed)
    ]
    left = [f"leaves {path.relative_to(folder)}" for path in new]
    if case.output is not None and case.output.exists():
        work = case.output.with_name(f".{case.output.name}.vsrkit")
        left += ["leaves its work folder after success"] if work.exists() else []
    return left


def _content(path):
    """The bytes of a file, or of all files of a folder with their names."""
    if path.is_dir():
        return b"".join(p.name.encode() + p.read_bytes() for p in sorted(path.iterdir()))
    return Path(path).read_bytes()
