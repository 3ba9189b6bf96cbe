"""`vsrkit inspect`, `vsrkit theory` and `vsrkit reproduce`."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from vsrkit.errors import VsrkitError

FILES, MODEL, RESOURCES, RUN = "Input and output", "Model", "Resources", "Run control"
EXPERIMENT = "Experiment"
T = TypeVar("T")

commands = typer.Typer()
theory = typer.Typer(
    help="Run the theorems of the paper as experiments; they need the extra `research`.",
    no_args_is_help=True,
)
reproduce = typer.Typer(
    help="Measure the published tables again, or train the ablations of the paper.",
    no_args_is_help=True,
)
commands.add_typer(theory, name="theory")
commands.add_typer(reproduce, name="reproduce")


def _option(panel: str, text: str, *names: str, **limits: Any) -> Any:
    """An option with its help panel and text."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **limits)


Output = Annotated[Path, _option(FILES, "Folder to write to.", "--output", "-o")]
Device = Annotated[str, _option(RESOURCES, "Device to run on: cpu, cuda or mps.")]
Precision = Annotated[str, _option(RESOURCES, "Precision: float32, bfloat16 or auto.")]
InputBits = Annotated[str, _option(EXPERIMENT, "Numbers of input bits: 8:20 or 8,12,16.", "--n")]
PatternBits = Annotated[str, _option(EXPERIMENT, "Numbers of pattern bits: 2:6 or 2,4.", "--k")]
Seed = Annotated[int, _option(RUN, "Seed of all random draws.", min=0)]


@commands.command()
def inspect(
    clip: Annotated[
        Path,
        typer.Argument(help="A low-resolution video or folder of frames."),
    ],
    model: Annotated[str, _option(MODEL, "Model name or weight file.", "--model", "-m")] = "vsrt-s",
    output: Output = Path("inspect-output"),
    frame: Annotated[
        int | None, _option(FILES, "Number of the frame, from 0. Default: the middle one.")
    ] = None,
    pixel: Annotated[
        str | None, _option(FILES, "Pixel to inspect, as X,Y. Default: the middle one.")
    ] = None,
    side: Annotated[
        int | None,
        _option(FILES, "Side of the square around it. Default: 128, or 64 for large models."),
    ] = None,
    device: Device = "cpu",
) -> None:
    """Show how a model upscales one frame.

    Writes a page with its flow, attention and features, and with what each of its parts adds.
    """
    from vsrkit.cli.console import progress_bar
    from vsrkit.research.inspect.inspection_page import inspect_clip

    with progress_bar() as on_progress:
        files = inspect_clip(
            clip,
            model,
            output,
            frame=frame,
            pixel=None if pixel is None else parse_pixel(pixel),
            side=side,
            device=device,
            on_progress=on_progress,
        )
    typer.echo(f"{len(files)} files in {output}; open {output / 'index.html'}")


def parse_pixel(text: str) -> tuple[int, int]:
    """`X,Y` as (x, y)."""
    try:
        x, y = (int(number) for number in text.split(","))
    except ValueError:
        raise VsrkitError(f"expected a pixel as X,Y in whole numbers, got {text!r}") from None
    return x, y


@theory.command()
def gradient(
    output: Output,
    n: InputBits = "8:20",
    k: PatternBits = "2:6",
    q: Annotated[int, _option(EXPERIMENT, "Number of neurons.", "--q", min=1)] = 64,
    enumerate_up_to: Annotated[
        int, _option(EXPERIMENT, "Use all 2^n inputs up to this n, and samples above.", max=22)
    ] = 16,
    seed: Seed = 0,
) -> None:
    """Measure Theorem 1: the first gradient of both layers, compared with the bounds."""
    from vsrkit.research.theory.gradient import measure_gradients
    from vsrkit.research.theory.results import describe_gradients, write_gradients

    measure = partial(measure_gradients, q=q, enumerate_up_to=enumerate_up_to, seed=seed)
    _run_theory(measure, describe_gradients, write_gradients, n, k, output)


@theory.command()
def learn(
    output: Output,
    n: InputBits = "8,12,16",
    k: PatternBits = "2:4",
    delta: Annotated[
        float,
        _option(EXPERIMENT, "Failure probability of Lemma 2; sets the width.", min=1e-9, max=1),
    ] = 0.1,
    seeds: Annotated[int, _option(RUN, "Number of runs of each kind.", min=1)] = 3,
    steps: Annotated[
        int | None, _option(RUN, "Steps of every run. Default: as many as k needs.", min=1)
    ] = None,
    faster: Annotated[
        float, _option(EXPERIMENT, "Step size, as a multiple of the usual one.", min=1e-6)
    ] = 1.0,
    draws: Annotated[
        int, _option(EXPERIMENT, "Number of networks drawn for Lemma 2.", min=10)
    ] = 2000,
    seed: Seed = 0,
) -> None:
    """Measure Theorem 2 and Lemma 2: both layers are trained on patterns of k bits."""
    from vsrkit.research.theory.learn import learn_patterns
    from vsrkit.research.theory.results import describe_learning, write_learning

    measure = partial(
        learn_patterns, delta=delta, seeds=seeds, steps=steps, faster=faster, draws=draws, seed=seed
    )
    _run_theory(measure, describe_learning, write_learning, n, k, output)


def _run_theory(
    measure: Callable[..., T],
    describe: Callable[[T], list[str]],
    write: Callable[[T, Path], list[Path]],
    n: str,
    k: str,
    output: Path,
) -> None:
    """Measure with a progress bar, write the result, print its summary and its files."""
    from vsrkit.cli.console import progress_bar
    from vsrkit.research.theory.patterns import parse_numbers

    with progress_bar() as on_progress:
        result = measure(parse_numbers(n), parse_numbers(k), on_progress=on_progress)
    for line in [*describe(result), *map(str, write(result, output))]:
        typer.echo(line)


@reproduce.command("reds4")
@reproduce.command("vid4")
@reproduce.command("vimeo90k-t")
def table(
    context: typer.Context,
    data: Annotated[Path, _option(FILES, "Folder of the test set.", "--data")],
    output: Annotated[
        Path | None,
        _option(FILES, "Folder of finished rows. Default: reproduce-TABLE.", "--output", "-o"),
    ] = None,
    models: Annotated[
        list[str] | None,
        _option(MODEL, "Measure only this row, or NAME=FILE; repeatable.", "--model", "-m"),
    ] = None,
    protocol: Annotated[
        str | None, _option(EXPERIMENT, "Protocol. Default: the usual one of the set.")
    ] = None,
    json_file: Annotated[
        Path | None, _option(FILES, "Write the table to this JSON file, too.", "--json")
    ] = None,
    precision: Precision = "float32",
    device: Device = "cpu",
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
        Path | None, _option(FILES, "Folder of videos. Default: the bundled clip.", "--data")
    ] = None,
    budget: Annotated[str, _option(RUN, "Time for all runs: 90s, 30m or 2h.")] = "30m",
    model: Annotated[
        str,
        _option(
            MODEL,
            "vsrt is the paper's network, small; vsrt-s the preset, small; vsrt-s-trained the "
            "preset with its shipped weights.",
            "--model",
            "-m",
        ),
    ] = "vsrt",
    variants: Annotated[
        list[str] | None,
        _option(MODEL, "Train this variant and the full model only; repeatable.", "--variant"),
    ] = None,
    seeds: Annotated[int, _option(RUN, "Number of runs of each variant.", min=1)] = 1,
    steps: Annotated[int, _option(RUN, "Steps of each run, instead of a budget.", min=0)] = 0,
    batch_size: Annotated[int, _option(EXPERIMENT, "Clips in a step.", min=1)] = 2,
    crop: Annotated[int, _option(EXPERIMENT, "Side of an LR crop in pixels.", min=16)] = 32,
    frames: Annotated[
        int, _option(EXPERIMENT, "Frames of a training clip of vsrt-s; 0 for seven.", min=0)
    ] = 0,
    learning_rate: Annotated[float, _option(EXPERIMENT, "Highest learning rate.")] = 1e-3,
    degradation: Annotated[str, _option(EXPERIMENT, "How LR frames are made of HR.")] = "bi",
    held_out: Annotated[float, _option(EXPERIMENT, "Share of the clips to validate on.")] = 0.2,
    validation: Annotated[
        list[str] | None,
        _option(EXPERIMENT, "Validate on clips of this name instead of a share; repeatable."),
    ] = None,
    warm_start: Annotated[
        list[str] | None,
        _option(MODEL, "Initial weights of all variants, FILE or flow=FILE; repeatable."),
    ] = None,
    precision: Precision = "float32",
    device: Device = "cpu",
    workers: Annotated[int, _option(RESOURCES, "Processes that load training data.", min=0)] = 1,
) -> None:
    """Train the variants of the paper's ablations with equal steps; run again to resume.

    It needs the extra `research`.
    """
    from vsrkit.cli.console import report_to_console
    from vsrkit.research.reproduce.ablation import run_ablation
    from vsrkit.research.reproduce.ablation_results import write_ablation
    from vsrkit.research.reproduce.ablation_settings import settings_from

    with report_to_console() as on_progress:
        settings = settings_from(
            data=data,
            budget=budget,
            model=model,
            variants=variants or [],
            seeds=seeds,
            steps=steps,
            batch_size=batch_size,
            crop=crop,
            frames=frames,
            learning_rate=learning_rate,
            degradation=degradation,
            held_out=held_out,
            validation=validation or [],
            warm_start=warm_start or [],
            precision=precision,
            device=device,
            workers=workers,
        )
        plan = run_ablation(settings, output, on_progress=on_progress)
    files = write_ablation(plan, output)
    typer.echo(files[0].read_text(encoding="utf-8"))
    for file in files:
        typer.echo(file)
