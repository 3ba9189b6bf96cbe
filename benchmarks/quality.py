"""Rebuild the quality tables from the results of `vsrkit evaluate --json`.

    python benchmarks/quality.py          write the tables into README.md and docs/results.md
    python benchmarks/quality.py --check  fail if either file has other tables

README.md gets a short table of the presets, docs/results.md a full table for every protocol. Both
are written between two markers. Results are the JSON files below benchmarks/results that
`vsrkit evaluate` wrote; of two results of one model under one protocol, the file whose name sorts
last is used. Published rows come from vsrkit/evaluate/published.json and are marked as such. Times
in the short table come from benchmarks/results/presets.json, which benchmarks/presets.py writes.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vsrkit.evaluate.protocol import PROTOCOLS
from vsrkit.evaluate.tables import Published, load_elsewhere, published_for

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- quality table: begin -->", "<!-- quality table: end -->"

SUMMARY_MODELS = (
    "bicubic",
    "vsrt-xs",
    "vsrt-s-web",
    "vsrt-s",
    "vsrt-m",
    "basicvsr-vimeo90k-bi",
)
SUMMARY_PROTOCOLS = {"vid4": "Vid4", "vid4-crf25": "Vid4, H.264 at CRF 25"}  # name -> column title
SUMMARY_PUBLISHED = "VSR-Transformer"

Result = Mapping[
    str, Any
]  # one object of `vsrkit evaluate --json`; docs/evaluate.md lists its keys


def read_results(folder: Path) -> list[Result]:
    """Return every result below a folder; other JSON files are ignored."""
    found: dict[tuple[str, str, str], Result] = {}
    for path in sorted(folder.rglob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        for result in content if isinstance(content, list) else [content]:
            if isinstance(result, dict) and result.get("format") == 1 and "average" in result:
                found[result["set"], result["protocol"]["name"], result["model"]] = result
    return list(found.values())


def read_times(folder: Path) -> dict[str, float]:
    """Return seconds per frame of a whole `vsrkit upscale` for each model in presets.json."""
    path = folder / "presets.json"
    if not path.exists():
        return {}
    return {row["model"]: row["seconds"] for row in json.loads(path.read_text("utf-8"))["rows"]}


def render_summary(results: Iterable[Result], times: Mapping[str, float]) -> str:
    """Return one short Markdown table: SUMMARY_MODELS and one published row.

    A model without a complete result under a protocol has an empty cell there.
    """
    scores = {(r["protocol"]["name"], r["model"]): r for r in results if not r["partial"]}
    header = ["PSNR / SSIM of Y", *SUMMARY_PROTOCOLS.values(), "seconds per frame"]
    lines = [_row(header), _row(["---", *["---:"] * (len(header) - 1)])]
    for model in SUMMARY_MODELS:
        found = [scores.get((protocol, model)) for protocol in SUMMARY_PROTOCOLS]
        cells = [_pair(r["average"], " / ") if r else "" for r in found]
        if any(cells):
            lines.append(
                _row([f"`{model}`", *cells, f"{times[model]:.2f}" if model in times else ""])
            )
    for row in published_for("vid4", PROTOCOLS["vid4"]):
        if row.title == SUMMARY_PUBLISHED:
            lines.append(_row([f"{row.title} (published)", " / ".join(row.average), "", ""]))
    return "\n".join(lines)


def render(results: Iterable[Result]) -> str:
    """Return one Markdown table per protocol: published rows, then measured rows by PSNR."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result["set"], result["protocol"]["name"]), []).append(result)
    order = list(PROTOCOLS)
    keys = sorted(groups, key=lambda key: (key[0], order.index(key[1]) if key[1] in order else 99))
    return "\n\n".join(_table(groups[key]) for key in keys)


def render_elsewhere() -> str:
    """Return the scores of newer networks, quoted, with a column for each set."""
    rows = load_elsewhere()
    columns = list(dict.fromkeys((r.table, r.channel, r.degradation) for r in rows))
    header = [f"{table} ({channel.upper()}, {kind.upper()})" for table, channel, kind in columns]
    lines = [_row(["PSNR/SSIM", *header]), _row(["---", *["---:"] * len(header)])]
    for title in dict.fromkeys(r.title for r in rows):
        found = {(r.table, r.channel, r.degradation): r for r in rows if r.title == title}
        cells = ["/".join(found[c].average) if c in found else "" for c in columns]
        lines.append(_row([title, *cells]))
    return "\n".join(["**Published elsewhere**: " + rows[0].source, "", *lines])


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
    return [f"{row.title} ({row.label})", *cells, "/".join(row.average), ""]


def _measured_cells(result: Result, clips: list[str]) -> list[str]:
    star = "\\*" if result["partial"] else ""
    cells = [_pair(result["clips"][clip]) for clip in clips]
    average = f"**{_pair(result['average'])}**{star}"
    return [f"**{result['model']}**", *cells, average, f"{result['seconds_per_frame']:.2f}"]


def _pair(scores: Mapping[str, Any], separator: str = "/") -> str:
    psnr = f"{_psnr(scores):.2f}"
    return f"{psnr}{separator}{scores['ssim']:.4f}" if "ssim" in scores else psnr


def _psnr(scores: Mapping[str, Any]) -> float:
    return float(scores["psnr"])  # an infinite PSNR is stored as the string "inf"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def replace_table(page: Path, table: str) -> tuple[str, str]:
    """Return the text of a page as it is, and with `table` between its markers."""
    old = page.read_text(encoding="utf-8")
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{page} has no place for the table; add the lines {BEGIN} and {END}")
    return old, f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    options = parser.parse_args()
    results = read_results(options.results)
    tables = {
        options.readme: render_summary(results, read_times(options.results)),
        options.page: f"{render(results)}\n\n{render_elsewhere()}",
    }
    pages = {page: replace_table(page, table) for page, table in tables.items()}
    for page, (old, new) in pages.items():
        if options.check and old != new:
            sys.exit(f"{page} is out of date; run benchmarks/quality.py")
        if not options.check:
            page.write_text(new, encoding="utf-8")
            print(f"{page}: table rebuilt")


if __name__ == "__main__":
    main()
