"""Rebuild the README's quality table from the results of `vsrkit evaluate --json`.

    python benchmarks/quality.py          write the table into README.md
    python benchmarks/quality.py --check  fail if README.md has another one

Every JSON file below benchmarks/results that `vsrkit evaluate` wrote counts; of two results of one
model under one protocol the file whose name comes last wins. The table goes between two markers,
and published rows come from the package, marked as such.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vsrkit.evaluate.protocol import PROTOCOLS
from vsrkit.evaluate.published import Published, published_for

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- quality table: begin -->", "<!-- quality table: end -->"

Result = Mapping[str, Any]  # docs/evaluate.md says what is in it


def read_results(folder: Path) -> list[Result]:
    """Every result below a folder; other JSON files are left alone."""
    found: dict[tuple[str, str, str], Result] = {}
    for path in sorted(folder.rglob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        for result in content if isinstance(content, list) else [content]:
            if isinstance(result, dict) and result.get("format") == 1 and "average" in result:
                found[result["set"], result["protocol"]["name"], result["model"]] = result
    return list(found.values())


def render(results: Iterable[Result]) -> str:
    """One Markdown table for each protocol: measured rows, best last, below the published ones."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result["set"], result["protocol"]["name"]), []).append(result)
    order = list(PROTOCOLS)
    keys = sorted(groups, key=lambda key: (key[0], order.index(key[1]) if key[1] in order else 99))
    return "\n\n".join(_table(groups[key]) for key in keys)


def _table(results: list[Result]) -> str:
    first = results[0]
    clips = list(first["clips"]) if len(first["clips"]) <= 6 else []
    name = first["protocol"]["name"]
    published = published_for(first["set"], PROTOCOLS[name]) if name in PROTOCOLS else []
    header = ["PSNR/SSIM", *clips, "average", "s/frame"]
    lines = [_row(header), _row(["---", *["---:"] * (len(clips) + 2)])]
    lines += [_row(_published_cells(row, clips)) for row in published]
    ranked = sorted(results, key=lambda r: _psnr(r["average"]))
    lines += [_row(_measured_cells(result, clips)) for result in ranked]
    channel = "RGB" if first["protocol"]["channel"] == "rgb" else "Y"
    title = f"**{first['set']}**, protocol `{name}` ({channel}; LR {first['lr']})"
    notes = ["", "\\* partial: not the full set"] if any(r["partial"] for r in results) else []
    return "\n".join([title, "", *lines, *notes])


def _published_cells(row: Published, clips: list[str]) -> list[str]:
    cells = ["/".join(row.clips[clip]) if clip in row.clips else "" for clip in clips]
    return [f"{row.title} (published)", *cells, "/".join(row.average), ""]


def _measured_cells(result: Result, clips: list[str]) -> list[str]:
    star = "\\*" if result["partial"] else ""
    cells = [_pair(result["clips"][clip]) for clip in clips]
    average = f"**{_pair(result['average'])}**{star}"
    return [f"**{result['model']}**", *cells, average, f"{result['seconds_per_frame']:.2f}"]


def _pair(scores: Mapping[str, Any]) -> str:
    psnr = _psnr(scores)
    return f"{psnr:.2f}/{scores['ssim']:.4f}" if "ssim" in scores else f"{psnr:.2f}"


def _psnr(scores: Mapping[str, Any]) -> float:
    return float(scores["psnr"])  # "inf" is a float, too


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def put_between(text: str, table: str) -> str:
    """The text with the table between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"README.md has no place for the table; add the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    options = parser.parse_args()
    old = options.readme.read_text(encoding="utf-8")
    new = put_between(old, render(read_results(options.results)))
    if options.check:
        sys.exit(0 if old == new else f"{options.readme} is out of date; run benchmarks/quality.py")
    options.readme.write_text(new, encoding="utf-8")
    print(f"{options.readme}: table rebuilt")


if __name__ == "__main__":
    main()
