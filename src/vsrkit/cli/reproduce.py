"""`vsrkit reproduce`."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from vsrkit.cli.options import EXPERIMENT, FILES, MODEL, RESOURCES, RUN, Device, option
from vsrkit.cli.research import Output
from vsrkit.errors import UsageError

commands = typer.Typer()
reproduce = typer.Typer(
    help="Measure the published tables again, or train the ablations of the paper.",
    no_args_is_help=True,
)
commands.add_typer(reproduce, name="reproduce")

Precision = Annotated[str, option(RESOURCES, "Number type: float32, bfloat16 or auto.")]


@reproduce.command("reds4")
@reproduce.command("vid4")
@reproduce.command("vimeo90k-t")
def table(
    context: typer.Context,
    data: Annotated[Path, option(FILES, "Folder of the test set.", "--data")],
    output: Annotated[
        Path | None,
        option(FILES, "Folder of finished rows. Default: reproduce-TABLE.", "--output", "-o"),
    ] = None,
    models: Annotated[
        list[str] | None,
        option(MODEL, "Measure only this row, or NAME=FILE. Can be repeated.", "--model", "-m"),
    ] = None,
    protocol: Annotated[
        str | None, option(EXPERIMENT, "Protocol. Default: the usual one of the set.")
    ] = None,
    json_file: Annotated[
        Path | None, option(FILES, "Also write the table to this JSON file.", "--json")
    ] = None,
    precision: Precision = "float32",
    device: Device = "auto",
) -> None:
    """Measure every method of this table that has weights, next to the published result."""
    from rich.table import Table

    from vsrkit.cli.console import output_console, progress_bar
    from vsrkit.hardware.files import write_atomically
    from vsrkit.research.reproduce import published_tables as tables

    name = context.info_name
    with progress_bar() as on_progress:
        found = tables.reproduce_table(
            name,  # type: ignore[arg-type]  # one of the three above
            data,
            output or Path(f"reproduce-{name}"),
            only=models or (),
            protocol=protocol,
            precision=precision,
            device=device,
            on_progress=on_progress,
        )
    shown = Table(title=f"{name}: PSNR/SSIM, published and ours")
    shown.add_column("method")
    shown.add_column("model", no_wrap=True)
    for title in ("published", "ours", "difference"):
        shown.add_column(title, justify="right", no_wrap=True)
    shown.add_column("remark, or how to get the weights", overflow="fold")
    for row in found.rows:
        shown.add_row(*tables.table_cells(row), style=None if row.ours else "dim")
    console = output_console()
    console.print(shown)
    for line in tables.describe_table(found):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if json_file:
        write_atomically(json_file, json.dumps(tables.table_json(found), indent=2) + "\n")


@reproduce.command()
def ablation(
    output: Output = Path("reproduce-ablation"),
    data: Annotated[
        Path | None,
        option(FILES, "Folder of videos, or of REDS. Default: the bundled clip.", "--data"),
    ] = None,
    budget: Annotated[
        str | None, option(RUN, "Time for all runs: 90s, 30m or 2h. Default: 30m.")
    ] = None,
    model: Annotated[
        str,
        option(
            MODEL,
            "vsrt is the paper's network, small; vsrt-s the preset, small; vsrt-s-trained the "
            "preset with its shipped weights; vsrt-reds and vsrt-paper the paper's network in "
            "full, with the published recipe.",
            "--model",
            "-m",
        ),
    ] = "vsrt",
    variants: Annotated[
        list[str] | None,
        option(MODEL, "Train this variant and the full model only. Can be repeated.", "--variant"),
    ] = None,
    channels: Annotated[
        int | None, option(MODEL, "Channels of vsrt-reds and vsrt-paper. Default: 64.", min=1)
    ] = None,
    seeds: Annotated[int, option(RUN, "Number of runs of each variant.", min=1)] = 1,
    steps: Annotated[int, option(RUN, "Steps of each run, instead of a budget.", min=0)] = 0,
    batch_size: Annotated[
        int | None, option(EXPERIMENT, "Clips in a step. Default: 2, or as published.", min=1)
    ] = None,
    crop: Annotated[
        int | None,
        option(EXPERIMENT, "Side of an LR crop in pixels. Default: 32, or as published.", min=16),
    ] = None,
    frames: Annotated[
        int, option(EXPERIMENT, "Frames of a training clip of vsrt-s; 0 for seven.", min=0)
    ] = 0,
    learning_rate: Annotated[
        float | None,
        option(EXPERIMENT, "Highest learning rate. Default: 0.001, or as published."),
    ] = None,
    degradation: Annotated[
        str | None, option(EXPERIMENT, "How LR frames are made of HR. Default: bi.")
    ] = None,
    held_out: Annotated[float, option(EXPERIMENT, "Share of the clips to validate on.")] = 0.2,
    validation: Annotated[
        list[str] | None,
        option(EXPERIMENT, "Validate on clips of this name instead of a share. Can be repeated."),
    ] = None,
    warm_start: Annotated[
        list[str] | None,
        option(MODEL, "Initial weights of all variants, FILE or flow=FILE. Can be repeated."),
    ] = None,
    precision: Precision = "float32",
    device: Annotated[
        str | None,
        option(RESOURCES, "Device: auto, cpu, cuda or mps. Default: cpu, or as published."),
    ] = None,
    workers: Annotated[
        int | None,
        option(RESOURCES, "Processes that load data. Default: 1, or as published.", min=0),
    ] = None,
    processes: Annotated[
        int | None,
        option(RESOURCES, "Processes that train a run of vsrt-reds or vsrt-paper.", min=1),
    ] = None,
    prepare: Annotated[
        bool,
        option(
            RUN,
            "Only write the recipes of vsrt-reds or vsrt-paper, and print how to start each run.",
            "--prepare",
        ),
    ] = False,
) -> None:
    """Train the variants of the paper's ablations with equal steps; run again to resume.

    It needs the extra `research`.
    """
    values = {
        "variants": variants or [],
        "seeds": seeds,
        "steps": steps,
        "batch_size": batch_size,
        "crop": crop,
        "learning_rate": learning_rate,
        "held_out": held_out,
        "validation": validation or [],
        "warm_start": warm_start or [],
        "precision": precision,
        "device": device,
        "workers": workers,
    }
    small_only = {"budget": budget, "frames": frames or None, "degradation": degradation}
    full_only = {"channels": channels, "processes": processes, "prepare": prepare or None}
    published = model in ("vsrt-reds", "vsrt-paper")
    for name, value in (small_only if published else full_only).items():
        if value is not None:
            kind = "the small networks" if published else "vsrt-reds and vsrt-paper"
            raise UsageError(f"--{name} is for {kind}, not for {model}; leave it out")
    if published:
        values |= {"model": model, "channels": channels}
        _published_ablation(data, output, values, processes or 1, prepare)
        return
    from vsrkit.cli.console import report_to_console
    from vsrkit.research.reproduce.ablation import run_ablation
    from vsrkit.research.reproduce.ablation_results import write_ablation
    from vsrkit.research.reproduce.ablation_settings import settings_from

    values |= {"model": model, "frames": frames, "degradation": degradation}
    with report_to_console() as on_progress:
        given = {name: value for name, value in values.items() if value is not None}
        settings = settings_from(data=data, budget=budget or "30m", **given)
        plan = run_ablation(settings, output, on_progress=on_progress)
    _print_files(write_ablation(plan, output))


def _published_ablation(
    data: Path | None, output: Path, values: dict[str, Any], processes: int, prepare: bool
) -> None:
    """The ablation of the paper's network with the published recipe."""
    from vsrkit.cli.console import report_to_console
    from vsrkit.research.reproduce import published_ablation as runs_of
    from vsrkit.research.reproduce import published_ablation_results as results

    if data is None:
        raise UsageError(f"{values['model']} needs --data with the folder of REDS")
    given = {name: value for name, value in values.items() if value is not None}
    with report_to_console() as on_progress:
        settings = runs_of.PublishedSettings(data=str(data), **given)
        runs = runs_of.prepare_runs(settings, output, processes)
        typer.echo("Each run can also be trained by itself; this command then scores it:")
        for run in runs:
            typer.echo(f"  {runs_of.how_to_start(run)}")
        if prepare:
            return
        score = partial(results.score_run, settings=settings)
        runs_of.train_runs(runs, processes, score, on_progress)
    _print_files(results.write_published(runs, settings, output))


def _print_files(files: list[Path]) -> None:
    """Print the table of an ablation, its first file, and the names of all files."""
    typer.echo(files[0].read_text(encoding="utf-8"))
    for file in files:
        typer.echo(file)
