"""Write the results of an ablation next to those of the paper: tables and curves."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from vsrkit.evaluate.tables import load_published
from vsrkit.research import plots
from vsrkit.research.reproduce.ablation import Plan, chosen_variants, read_log, run_dir
from vsrkit.research.reproduce.ablation_settings import Variant

LABELS = {"psnr_y": "PSNR-Y, dB", "loss": "training loss"}  # of the log values in the figure


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """The result of one variant: PSNR on Y of held-out clips after the last step, over seeds."""

    variant: str
    parameters: int
    seeds: int
    steps: int
    psnr_y: float
    psnr_y_low: float
    psnr_y_high: float
    difference: float  # to the full model with the same seed
    difference_low: float
    difference_high: float
    published_psnr: float | None  # REDS4, RGB
    published_difference: float | None
    seconds_per_step: float


def ablation_rows(plan: Plan, folder: Path) -> list[AblationRow]:
    """A row for each variant, in the order of the plan."""
    variants = chosen_variants(plan.settings)
    scores = {v.name: _last_scores(plan, v, folder) for v in variants}
    published = {
        row.method: float(row.average[0])
        for row in load_published()
        if row.table == "REDS4 ablation"
    }
    published_full = published.get("VSR-Transformer")
    rows = []
    for variant in variants:
        own, paper = scores[variant.name], published.get(variant.published)
        differences = [a - b for a, b in zip(own, scores["full"], strict=True)]
        rows.append(
            AblationRow(
                variant=variant.name,
                parameters=sum(p.numel() for p in variant.build().parameters()),
                seeds=len(own),
                steps=plan.steps,
                psnr_y=mean(own),
                psnr_y_low=min(own),
                psnr_y_high=max(own),
                difference=mean(differences),
                difference_low=min(differences),
                difference_high=max(differences),
                published_psnr=paper,
                published_difference=(
                    None if paper is None or published_full is None
                    else round(paper - published_full, 2)
                ),
                seconds_per_step=median(
                    seconds for _, seconds in read_log(run_dir(folder, variant, 0), "seconds")
                ),
            )
        )  # fmt: skip
    return rows


def _last_scores(plan: Plan, variant: Variant, folder: Path) -> list[float]:
    seeds = range(plan.settings.seeds)
    return [read_log(run_dir(folder, variant, seed), "psnr_y")[-1][1] for seed in seeds]


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)


def write_ablation(plan: Plan, folder: Path) -> list[Path]:
    """Write ablation.md, .csv, .json and .svg; returns the files."""
    rows = ablation_rows(plan, folder)
    files = [folder / f"ablation.{kind}" for kind in ("md", "csv", "json", "svg")]
    files[0].write_text(as_markdown(plan, rows), encoding="utf-8")
    plots.write_csv(files[1], (asdict(row) for row in rows))
    content: dict[str, Any] = {"plan": asdict(plan), "rows": [asdict(row) for row in rows]}
    files[2].write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    plots.write_figure(files[3], ablation_figure(plan, folder))
    return files


def as_markdown(plan: Plan, rows: Sequence[AblationRow]) -> str:
    """The table as Markdown, and the settings of the measurement below it."""
    lines = [
        "| variant | parameters | PSNR-Y held out | to full | paper (REDS4) | to full | s/step |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        over_seeds = spread(row.psnr_y_low, row.psnr_y_high, "") if row.seeds > 1 else ""
        spread_to_full = (
            spread(row.difference_low, row.difference_high, "+")
            if row.seeds > 1 and row.variant != "full"
            else ""
        )
        printed = "-" if row.published_psnr is None else f"{row.published_psnr:.2f}"
        printed_to_full = (
            "-" if row.published_difference is None else f"{row.published_difference:+.2f}"
        )
        lines.append(
            f"| {row.variant} | {row.parameters:,} | {row.psnr_y:.3f}{over_seeds} | "
            f"{row.difference:+.3f}{spread_to_full} | {printed} | {printed_to_full} | "
            f"{row.seconds_per_step:.2f} |"
        )
    return "\n".join([*lines, "", describe(plan)]) + "\n"


def spread(low: float, high: float, sign: str) -> str:
    """The lowest and the highest over seeds."""
    return f" ({low:{sign}.3f} to {high:{sign}.3f})"


def describe(plan: Plan) -> str:
    """The settings of the measurement, in one paragraph."""
    s, frames = plan.settings, chosen_variants(plan.settings)[0].frames
    return (
        f"{plan.steps} steps of {s.batch_size} x {frames} frames, LR crops of {s.crop}x{s.crop} "
        f"pixels, {s.seeds} {'seed' if s.seeds == 1 else 'seeds'}, {s.precision}; mean PSNR on Y "
        "of held-out clips after the last step, over seeds; differences are between equal seeds. "
        "The paper's numbers are of a far larger network after about a million steps: compare the "
        "signs of the differences, not their sizes."
    )


def ablation_figure(plan: Plan, folder: Path) -> plots.Figure:
    """PSNR and training loss of every variant against steps."""
    seeds = range(plan.settings.seeds)
    runs = {
        variant.name: [run_dir(folder, variant, seed) for seed in seeds]
        for variant in chosen_variants(plan.settings)
    }
    return curves_figure(f"Ablation of {plan.settings.model}", runs)


def curves_figure(title: str, runs: Mapping[str, Sequence[Path]]) -> plots.Figure:
    """PSNR and training loss against steps.

    title: of the figure.
    runs: the folders of the runs of each variant, one for each seed.
    """

    def draw(axes: plots.Axes, name: str) -> None:
        for number, (variant, places) in enumerate(runs.items()):
            logs = [dict(read_log(place, name)) for place in places]
            steps = sorted(set.intersection(*(set(log) for log in logs)))  # logged by all seeds
            values = [[log[step] for step in steps] for log in logs]
            colour, marked = plots.COLOURS[number % len(plots.COLOURS)], name == "psnr_y"
            plots.draw_seeds(axes, variant, steps, values, colour=colour, marked=marked)
        plots.label_panel(axes, LABELS[name], x="step", y=LABELS[name])

    return plots.panel_figure(title, list(LABELS), draw)
