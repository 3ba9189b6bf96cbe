"""Score the runs of the published ablation in RGB, and write them next to the paper's table."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from vsrkit.evaluate.benchmark import evaluate_models
from vsrkit.evaluate.metrics import Metric
from vsrkit.evaluate.protocol import PROTOCOLS, ClipScores
from vsrkit.evaluate.tables import load_published
from vsrkit.hardware.device import resolve_device
from vsrkit.inference.engine import make_engine, upscale_frames
from vsrkit.models.zoo import load_model
from vsrkit.research import plots
from vsrkit.research.reproduce.ablation import read_log
from vsrkit.research.reproduce.ablation_results import curves_figure, mean, spread
from vsrkit.research.reproduce.ablation_settings import Variant
from vsrkit.research.reproduce.published_ablation import (
    WITHOUT_FLOW,
    PublishedRun,
    PublishedSettings,
    has_reds4,
)
from vsrkit.train.run_files import write_json
from vsrkit.train.training_data import open_data

METRICS: tuple[Metric, ...] = ("psnr", "ssim")
# The release runs on tiles of 64 pixels with hard edges; the network of the text takes any size.
PROTOCOL_OF = {"vsrt-reds": "reds4-release", "vsrt-paper": "reds4"}
# Only in the text of the paper, without SSIM; the same number as its row w/o BOFF.
IN_TEXT = {WITHOUT_FLOW: ("30.37", "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """The result of one variant in RGB, over seeds; None for what the paper does not give."""

    variant: str
    parameters: int
    seeds: int
    steps: int
    psnr: float
    psnr_low: float
    psnr_high: float
    ssim: float
    difference: float  # of PSNR to the full network with the same seed
    difference_low: float
    difference_high: float
    published_psnr: float | None
    published_ssim: float | None
    published_difference: float | None
    seconds_per_step: float


def score_run(run: PublishedRun, settings: PublishedSettings) -> None:
    """Measure the last weights of a run and write `scores.json`, unless it is there.

    With REDS the four clips of REDS4 are measured as in the published table, otherwise the middle
    of the held-out clips.
    """
    target = run.place / "scores.json"
    if target.is_file():
        return
    weights = run.place / "last.safetensors"
    data = Path(settings.data)
    if has_reds4(data):
        (result,) = evaluate_models(
            [str(weights)],
            data,
            set_name="reds4",
            protocol=PROTOCOL_OF[settings.model],
            metrics=METRICS,
            device=run.config.device,
        )
        clips = {clip.name: clip.metrics for clip in result.clips}
        scored = str(result.protocol) + (", on a part of REDS4" if result.partial else "")
    else:
        clips = held_out_scores(run, weights)
        scored = f"RGB, {run.config.validation_frames} frames of the middle of held-out clips"
    average = {name: mean([clip[name] for clip in clips.values()]) for name in METRICS}
    write_json(target, {"scored": scored, "average": average, "clips": clips})


def held_out_scores(run: PublishedRun, weights: Path) -> dict[str, dict[str, float]]:
    """PSNR and SSIM in RGB of each held-out clip of a run."""
    _, clips = open_data(run.config, None)
    device = resolve_device(run.config.device)
    engine = make_engine(load_model(weights), precision="float32", device=device)
    found = {}
    for clip in clips:
        with ClipScores(PROTOCOLS["rgb"], METRICS) as scores:
            outputs = upscale_frames(clip.lr, engine)
            for sr, hr, lr in zip(outputs, clip.hr, clip.lr, strict=True):
                scores.add(sr, hr, lr)
            found[clip.name] = scores.means()
    return found


def read_scores(run: PublishedRun) -> dict[str, Any]:
    """The scores that `score_run` wrote."""
    content: dict[str, Any] = json.loads((run.place / "scores.json").read_text(encoding="utf-8"))
    return content


def published_rows(runs: Sequence[PublishedRun]) -> list[PublishedRow]:
    """A row for each variant of the scored runs."""
    variants = list(dict.fromkeys(run.variant for run in runs))
    groups = {v.name: [run for run in runs if run.variant == v] for v in variants}
    scores = {
        name: [read_scores(run)["average"] for run in group] for name, group in groups.items()
    }
    return [_row(variant, groups[variant.name], scores) for variant in variants]


def _row(
    variant: Variant, runs: Sequence[PublishedRun], scores: dict[str, list[dict[str, float]]]
) -> PublishedRow:
    own = [each["psnr"] for each in scores[variant.name]]
    differences = [a - b["psnr"] for a, b in zip(own, scores["full"], strict=True)]
    psnr, ssim, difference = published_scores(variant)
    return PublishedRow(
        variant=variant.name,
        parameters=sum(p.numel() for p in variant.build().parameters()),
        seeds=len(runs),
        steps=runs[0].config.steps,
        psnr=mean(own),
        psnr_low=min(own),
        psnr_high=max(own),
        ssim=mean([each["ssim"] for each in scores[variant.name]]),
        difference=mean(differences),
        difference_low=min(differences),
        difference_high=max(differences),
        published_psnr=psnr,
        published_ssim=ssim,
        published_difference=difference,
        seconds_per_step=median(seconds for _, seconds in read_log(runs[0].place, "seconds")),
    )


def published_scores(variant: Variant) -> tuple[float | None, float | None, float | None]:
    """The paper's PSNR and SSIM on REDS4 in RGB, and the difference of PSNR to its full network."""
    rows = {r.method: r.average for r in load_published() if r.table == "REDS4 ablation"}
    average = rows.get(variant.published) or IN_TEXT.get(variant.name)
    if average is None:
        return None, None, None
    psnr, ssim = float(average[0]), float(average[1]) if average[1] else None
    return psnr, ssim, round(psnr - float(rows["VSR-Transformer"][0]), 2)


def write_published(
    runs: Sequence[PublishedRun], settings: PublishedSettings, folder: Path
) -> list[Path]:
    """Write ablation.md, .csv, .json and .svg; returns the files."""
    rows = published_rows(runs)
    files = [folder / f"ablation.{kind}" for kind in ("md", "csv", "json", "svg")]
    files[0].write_text(published_markdown(runs, rows), encoding="utf-8")
    plots.write_csv(files[1], (asdict(row) for row in rows))
    write_json(
        files[2],
        {
            "settings": asdict(settings),
            "rows": [asdict(row) for row in rows],
            "runs": {str(run.place.relative_to(folder)): read_scores(run) for run in runs},
        },
    )
    places = {row.variant: [r.place for r in runs if r.variant.name == row.variant] for row in rows}
    plots.write_figure(files[3], curves_figure(f"Ablation of {settings.model}", places))
    return files


def published_markdown(runs: Sequence[PublishedRun], rows: Sequence[PublishedRow]) -> str:
    """The table as Markdown, and the settings of the measurement below it."""
    lines = [
        "| variant | parameters | PSNR / SSIM | to full | paper | to full | s/step |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        several = row.seeds > 1
        lines.append(
            f"| {row.variant} | {row.parameters:,} | {row.psnr:.2f} / {row.ssim:.4f}"
            f"{spread(row.psnr_low, row.psnr_high, '') if several else ''} | {row.difference:+.3f}"
            f"{spread(row.difference_low, row.difference_high, '+') if several else ''} | "
            f"{_printed(row)} | {row.published_difference:+.2f} | {row.seconds_per_step:.2f} |"
        )
    config = runs[0].config
    about = (
        f"{config.steps:,} steps of {runs[0].clips} clips of {config.frames} frames, LR crops of "
        f"{config.crop}x{config.crop} pixels, {config.precision}; scores of the last weights: "
        f"{read_scores(runs[0])['scored']}. The paper's numbers: REDS4, RGB; the one w/o optical "
        "flow is only in its text."
    )
    return "\n".join([*lines, "", about]) + "\n"


def _printed(row: PublishedRow) -> str:
    """The paper's scores with the digits as printed."""
    if row.published_psnr is None:
        return "-"
    ssim = "" if row.published_ssim is None else f" / {row.published_ssim:.4f}"
    return f"{row.published_psnr:.2f}{ssim}"
