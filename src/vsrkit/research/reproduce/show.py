"""A reproduced table for people and for programs."""

from typing import Any

from rich.console import Console
from rich.table import Table

from vsrkit.evaluate.tables import pair
from vsrkit.research.reproduce.measure import Measured, Reproduction


def print_table(found: Reproduction, console: Console) -> None:
    """What was printed, what we measured, the difference, and how to get what is missing."""
    table = Table(title=f"{found.table}: PSNR/SSIM, published and ours")
    table.add_column("method")
    table.add_column("model", no_wrap=True)
    for title in ("published", "ours", "difference"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("remark, or how to get the weights", overflow="fold")
    for row in found.rows:
        table.add_row(*_cells(row), style=None if row.ours else "dim")
    console.print(table)
    for line in describe(found):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _cells(measured: Measured) -> tuple[str, ...]:
    row, ours = measured.row, measured.ours
    published = "/".join(row.published.average) if row.published else "-"
    average = pair(ours["average"]) + ("*" if ours["partial"] else "") if ours else "-"
    difference = "-"
    if measured.difference:
        difference = f"{measured.difference[0]:+.2f}/{measured.difference[1]:+.4f}"
    remark = row.remark if ours else row.hint
    return row.title, row.model or "-", published, average, difference, remark


def describe(found: Reproduction) -> list[str]:
    """What the numbers mean, and what is wrong with the data."""
    lines = [f"protocol {found.protocol}"]
    measured = [row.ours for row in found.rows if row.ours]
    if measured:
        lines.append(f"LR frames {measured[0]['lr']}; {measured[0]['precision']}")
    if any(ours["partial"] for ours in measured):
        lines.append("* partial: less than the full set, so there is no difference to take")
    check = found.check
    problems = [*check.problems, *(f"{c.name}: {p}" for c in check.clips for p in c.problems)]
    lines += [f"wrong with the data: {problem}" for problem in problems[:10]]
    if len(problems) > 10:
        lines.append(f"and {len(problems) - 10} more; `vsrkit data check {check.root}` lists all")
    printed = next((row.row.published for row in found.rows if row.row.published), None)
    return [*lines, f"published: {printed.source}"] if printed else lines


def as_json(found: Reproduction) -> dict[str, Any]:
    """The table for programs; `ours` is what `vsrkit evaluate --json` writes."""
    return {
        "format": 1,
        "table": found.table,
        "protocol": found.protocol.as_dict(),
        "rows": [_row_json(row) for row in found.rows],
    }


def _row_json(measured: Measured) -> dict[str, Any]:
    row, difference = measured.row, measured.difference
    printed = row.published
    return {
        "method": row.title,
        "model": row.model,
        "published": printed
        and {
            "average": [float(v) for v in printed.average],
            "clips": {n: [float(v) for v in p] for n, p in printed.clips.items()},
            "parameters_millions": printed.params_m,
            "table": printed.table,
            "source": printed.source,
        },
        "ours": measured.ours,
        "difference": difference and {"psnr": difference[0], "ssim": difference[1]},
        "how": None if measured.ours else row.hint,
        "remark": row.remark,
    }
