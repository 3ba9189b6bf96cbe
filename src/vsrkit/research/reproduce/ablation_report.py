"""The table and the curves of an ablation, beside the paper's."""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from vsrkit.evaluate.published import load_published
from vsrkit.research.plots import COLOURS, Panel, Series, write_plot
from vsrkit.research.reproduce.ablation import Plan, chosen_variants, read_log, run_dir
from vsrkit.research.reproduce.variants import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """One variant; PSNR on Y of held-out clips after the last step, over seeds."""

    variant: str
    parameters: int
    seeds: int
    steps: int
    psnr_y: float
    psnr_y_low: float
    psnr_y_high: float
    difference: float  # to the full model
    difference_low: float  # of the same seed
    difference_high: float
    published_psnr: float | None  # REDS4, RGB
    published_difference: float | None
    seconds_per_step: float


def ablation_rows(plan: Plan, folder: Path) -> list[AblationRow]:
    """A row for each variant, in the plan's order."""
    variants = chosen_variants(plan.settings)
    scores = {v.name: _last_scores(plan, v, folder) for v in variants}
    published = _published()
    printed_full = published.get("VSR-Transformer")
    rows = []
    for variant in variants:
        own, printed = scores[variant.name], published.get(variant.published)
        apart = [a - b for a, b in zip(own, scores["full"], strict=True)]
        rows.append(
            AblationRow(
                variant=variant.name,
                parameters=sum(p.numel() for p in variant.build().parameters()),
                seeds=len(own),
                steps=plan.steps,
                psnr_y=_mean(own),
                psnr_y_low=min(own),
                psnr_y_high=max(own),
                difference=_mean(apart),
                difference_low=min(apart),
                difference_high=max(apart),
                published_psnr=printed,
                published_difference=(
                    None if printed is None or printed_full is None
                    else round(printed - printed_full, 2)
                ),
                seconds_per_step=_usual_seconds(run_dir(folder, variant, 0)),
            )
        )  # fmt: skip
    return rows


def _last_scores(plan: Plan, variant: Variant, folder: Path) -> list[float]:
    seeds = range(plan.settings.seeds)
    return [read_log(run_dir(folder, variant, seed), "psnr_y")[-1][1] for seed in seeds]


def _published() -> dict[str, float]:
    rows = [row for row in load_published() if row.table == "REDS4 ablation"]
    return {row.method: float(row.average[0]) for row in rows}


def _usual_seconds(place: Path) -> float:
    return median(seconds for _, seconds in read_log(place, "seconds"))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def write_ablation(plan: Plan, folder: Path) -> list[Path]:
    """ablation.md, .csv, .json and .svg."""
    rows = ablation_rows(plan, folder)
    files = [folder / f"ablation.{kind}" for kind in ("md", "csv", "json", "svg")]
    files[0].write_text(as_markdown(plan, rows), encoding="utf-8")
    with files[1].open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    content: dict[str, Any] = {"plan": asdict(plan), "rows": [asdict(row) for row in rows]}
    files[2].write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    write_plot(files[3], f"Ablation of {plan.settings.model}", _panels(plan, folder), columns=2)
    return files


def as_markdown(plan: Plan, rows: Sequence[AblationRow]) -> str:
    """The table, and under it what its numbers mean."""
    lines = [
        "| variant | parameters | PSNR-Y held out | to full | paper (REDS4) | to full | s/step |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        spread = _spread(row.psnr_y_low, row.psnr_y_high, "") if row.seeds > 1 else ""
        spread_to_full = (
            _spread(row.difference_low, row.difference_high, "+")
            if row.seeds > 1 and row.variant != "full"
            else ""
        )
        printed = "-" if row.published_psnr is None else f"{row.published_psnr:.2f}"
        printed_to_full = (
            "-" if row.published_difference is None else f"{row.published_difference:+.2f}"
        )
        lines.append(
            f"| {row.variant} | {row.parameters:,} | {row.psnr_y:.3f}{spread} | "
            f"{row.difference:+.3f}{spread_to_full} | {printed} | {printed_to_full} | "
            f"{row.seconds_per_step:.2f} |"
        )
    return "\n".join([*lines, "", describe(plan)]) + "\n"


def _spread(low: float, high: float, sign: str) -> str:
    """The least and the largest over seeds."""
    return f" ({low:{sign}.3f} to {high:{sign}.3f})"


def describe(plan: Plan) -> str:
    """How these numbers came about, in a sentence or two."""
    s, frames = plan.settings, chosen_variants(plan.settings)[0].frames
    return (
        f"{plan.steps} steps of {s.batch_size} x {frames} frames, LR crops of {s.crop}x{s.crop} "
        f"pixels, {s.seeds} {'seed' if s.seeds == 1 else 'seeds'}, {s.precision}; mean PSNR on Y "
        "of clips that were not learnt from, after the last step (over seeds; differences are "
        "between equal seeds). The paper's numbers are of a far larger net after about a million "
        "steps: compare signs, not sizes."
    )


def _panels(plan: Plan, folder: Path) -> list[Panel]:
    variants = chosen_variants(plan.settings)
    panels = []
    for name, label in (("psnr_y", "PSNR-Y, dB"), ("loss", "training loss")):
        series = [
            _curve(plan, variant, folder, name, COLOURS[i % len(COLOURS)])
            for i, variant in enumerate(variants)
        ]
        panels.append(Panel(title=label, series=series, x_label="step", y_label=label))
    return panels


def _curve(plan: Plan, variant: Variant, folder: Path, name: str, colour: str) -> Series:
    """Mean over seeds, between the least and the largest, at the steps that all of them have."""
    logs = [
        dict(read_log(run_dir(folder, variant, seed), name)) for seed in range(plan.settings.seeds)
    ]
    steps = sorted(set.intersection(*(set(log) for log in logs)))
    values = [[log[step] for log in logs] for step in steps]
    return Series(
        name=variant.name,
        x=steps,
        y=[_mean(v) for v in values],
        low=[min(v) for v in values],
        high=[max(v) for v in values],
        colour=colour,
        marked=name == "psnr_y",
    )
