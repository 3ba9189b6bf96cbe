"""The commands `vsrkit models` and `vsrkit weights`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from vsrkit.models.zoo.fetch import Row

commands = typer.Typer()
weights = typer.Typer(help="List and install trained weights.", no_args_is_help=True)
commands.add_typer(weights, name="weights")


@commands.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the models with their size, input frames, computation, weights and licence."""
    from vsrkit.models.zoo.listing import describe_all

    rows = describe_all()
    if as_json:
        import json

        typer.echo(json.dumps(rows, indent=2))
    else:
        _print_models(rows)


@weights.command("list")
def list_weights(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the available weights with their size, licence and source."""
    from vsrkit.evaluate.metric_weights import list_metric_weights
    from vsrkit.models.zoo.fetch import list_weights

    rows = [*list_weights(), *list_metric_weights()]
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print_weights(rows)


@weights.command("get")
def get_weights(
    name: Annotated[
        str,
        typer.Argument(help="Name of a model or a metric, as shown by `vsrkit weights list`."),
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Install from this local archive or checkpoint instead of downloading."
        ),
    ] = None,
) -> None:
    """Download trained weights into the cache directory, or install them from a file."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from vsrkit.evaluate.metric_weights import SOURCES, get_metric_weights
    from vsrkit.models.zoo.fetch import get_weights

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    quiet = source is not None or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task("download", total=None)
        path = (get_metric_weights if name in SOURCES else get_weights)(
            name,
            source=source,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    typer.echo(f"{name}: {path}")


@weights.command("calibrate")
def calibrate(
    model: Annotated[str, typer.Argument(help="Name of a model, or a checkpoint file.")],
    data: Annotated[
        Path,
        typer.Option("--data", help="Folder of clips. On some of them the loss is measured."),
    ],
    degradations: Annotated[
        str,
        typer.Option(
            "--degradations", help="Degradations that make LR frames of the clips: bi or bi,crf25."
        ),
    ] = "bi",
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a clip on which the loss is measured. Repeatable. Default: every fourth."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Default: one in the cache folder."),
    ] = None,
) -> None:
    """Measure the ranges that --precision int8 needs, and what int8 costs in quality."""
    from rich.console import Console
    from rich.progress import Progress

    from vsrkit.evaluate.benchmark import trained_model
    from vsrkit.evaluate.calibrate import calibrate_on_clips
    from vsrkit.hardware.files import write_atomically
    from vsrkit.inference.calibration import calibration_path

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("clips", total=None)
        calibration = calibrate_on_clips(
            trained_model(model),
            data,
            degradations=degradations.split(","),
            held_out=held_out or (),
            on_progress=lambda name, done, total: progress.update(
                task, description=name, completed=done, total=total
            ),
        )
    path = output or calibration_path(calibration.weights)
    write_atomically(path, calibration.dump())
    losses = ", ".join(f"{kind} loses {loss:.4f} dB" for kind, loss in calibration.loss.items())
    typer.echo(f"{path}: {losses}")


def _print_models(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    view = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        caption="GFLOP per MP: operations per output frame and megapixel of input; "
        "weights: whether they are installed",
    )
    view.add_column("model", no_wrap=True)
    view.add_column("parameters", justify="right", no_wrap=True)
    view.add_column("frames", no_wrap=True)
    view.add_column("GFLOP per MP", justify="right")
    view.add_column("weights", no_wrap=True)
    view.add_column("licence", no_wrap=True)
    for row in rows:
        weights = "yes" if row["weights"] else ("no" if row["needs_weights"] else "-")
        numbers = f"{row['parameters']:,}", row["frames"], f"{row['gflop_per_megapixel']:,.0f}"
        view.add_row(row["name"], *numbers, weights, row["licence"])
    Console().print(view)


def _print_weights(rows: "list[Row]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in ("model or metric", "installed", "download", "licence", "source"):
        table.add_column(name, no_wrap=name in ("model or metric", "licence"))
    for row in rows:
        here, download = _format_size(row.size_bytes), _format_size(row.download_bytes)
        table.add_row(row.name, here or "no", download or "-", row.licence, row.source)
    Console().print(table)


def _format_size(size: int | None) -> str:
    if not size:
        return ""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"
