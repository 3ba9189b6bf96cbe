"""Long runs: `python -m tests.kills 1000` kills jobs and makes their writes fail, in every way."""

import argparse
import errno
import json
import random as random_module
import shutil
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path

import torch
from tests.kills.jobs import KINDS, Fault, Jobs

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)
MOST_IN_A_ROW = 4  # faults before a job is run to its end


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("faults", type=int, help="number of kills and errors")
    parser.add_argument("--seed", default="0", help="any text; each seed gives other faults")
    parser.add_argument("--random", action="store_true", help="leave out every point in turn")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="vsrkit-kills-") as scratch:
        report = _run(options, Path(scratch))
    text = json.dumps(report, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    raise SystemExit(bool(report["findings"]))


def _run(options, scratch):
    jobs = Jobs(scratch)
    random = random_module.Random(options.seed)
    every = [(kind, point) for kind in KINDS for point in range(len(jobs.points[kind]))]
    random.shuffle(every)
    every = [] if options.random else every
    ends, findings, done, begin = Counter(), [], 0, time.monotonic()
    for number in count():
        if done >= options.faults:
            break
        # First every numbered point once, then faults of all kinds, several in a row.
        kind = every[number][0] if number < len(every) else random.choice(sorted(KINDS))
        place = scratch / "job"
        jobs.prepare(kind, place)
        faults = [Fault("kill", every[number][1])] if number < len(every) else [
            drawn(jobs, kind, random) for _ in range(random.randint(1, MOST_IN_A_ROW))
        ]  # fmt: skip
        wrong = []
        for fault in faults:
            ended = jobs.run(kind, place, fault)
            done += 1
            end = f"signal {ended.signal}" if ended.code is None else f"exit code {ended.code}"
            ends[f"{fault.kind}: {end}"] += 1
            wrong += jobs.check(kind, place) + misbehaviour(fault, ended)
            if ended.code == 0:
                break
        if ended.code != 0:
            wrong += jobs.finish(kind, place)
        if wrong:
            findings.append({"kind": kind, "faults": [vars(f) for f in faults], "wrong": wrong})
            print(f"{kind} {faults}: {'; '.join(wrong)} {ended.errors}", flush=True)
        shutil.rmtree(place)
        if number % 100 == 99:
            print(f"{done} faults, {time.monotonic() - begin:.0f} s", flush=True)
    return {
        "faults": done, "seed": options.seed, "seconds": round(time.monotonic() - begin),
        "points": {kind: len(points) for kind, points in jobs.points.items()},
        "ends": dict(sorted(ends.items())), "findings": findings,
    }  # fmt: skip


def drawn(jobs, kind, random):
    """A random fault of any kind."""
    name = random.choice(("kill", "kill", "torn", "time", "error", "full"))
    if name in ("kill", "error"):
        point = random.randrange(len(jobs.points[kind]))
        return Fault(name, point, random.choice(ERRORS))
    if name == "time":
        return Fault(name, round(random.uniform(0.005, 0.3), 4))
    return Fault(name, random.choice((0, 1, 100, random.randrange(20_000))))


def misbehaviour(fault, ended):
    """What is wrong with how a job with a fault ended."""
    if ended.timed_out:
        return ["does not end"]
    if fault.kind in ("error", "full") and ended.code != 0:
        if ended.code != 1 or ended.errors.count("vsrkit: ") != 1:
            return [f"ends with {ended.code}, signal {ended.signal}: {ended.errors}"]
        if "Traceback" in ended.errors:
            return ["shows a traceback"]
    return []


if __name__ == "__main__":
    main()
