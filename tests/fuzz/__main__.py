"""Long runs: `python -m tests.fuzz 10000`; prints a summary and keeps every finding."""

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from tests.fuzz.cases import run_case
from tests.fuzz.corpus import Corpus, seeded
from tests.fuzz.targets import TARGETS, draw


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("cases", type=int, help="number of cases")
    parser.add_argument("--seed", default="0", help="any text; each seed gives other cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--target", choices=TARGETS, help="only cases of this target")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="vsrkit-fuzz-") as scratch:
        report = _run(options, Path(scratch))
    text = json.dumps(report, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    raise SystemExit(bool(report["findings"]))


def _run(options, scratch):
    corpus = Corpus(scratch / "corpus")
    kinds, codes, findings = Counter(), Counter(), []
    slowest, begin = (0.0, 0), time.monotonic()
    for number in range(options.first, options.first + options.cases):
        folder = scratch / "case"
        name, case = _made(options, corpus, folder, number)
        faults, ended = run_case(case, folder, wall_s=1200)  # on a busy machine, too
        kinds[name] += 1
        codes[str(ended.code)] += 1
        slowest = max(slowest, (round(ended.cpu_s, 2), number))
        if faults:
            findings.append({"case": number, "target": name, "faults": faults})
            shutil.rmtree(folder)  # some inputs are used up: the same case is made again
            _made(options, corpus, folder, number)
            _keep(options.findings / f"{options.seed}-{number}", case, ended, faults)
            print(f"case {number} ({name}): {'; '.join(faults)}", flush=True)
        shutil.rmtree(folder)
        if number % 500 == 499:
            print(f"{number + 1} cases, {time.monotonic() - begin:.0f} s", flush=True)
    return {
        "cases": options.cases, "seed": options.seed, "seconds": round(time.monotonic() - begin),
        "targets": dict(kinds), "exit codes": dict(codes), "most processor time": slowest,
        "findings": findings,
    }  # fmt: skip


def _made(options, corpus, folder, number):
    """The target and the case of a number, with its files in a new folder."""
    folder.mkdir()
    random = seeded(options.seed, number)
    if options.target:
        return options.target, TARGETS[options.target][0](corpus, folder, random)
    return draw(corpus, folder, random)


def _keep(place, case, ended, faults):
    """Keep what is needed to repeat a case."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for path in case.inputs:
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, place / path.name, **({"symlinks": True} if path.is_dir() else {}))
    about = {"words": case.words, "faults": faults, "errors": ended.errors[-5000:]}
    (place / "case.json").write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
