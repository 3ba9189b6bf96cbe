"""`vsrkit demo`."""

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()


@commands.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")] = Path(
        "demo-output"
    ),
) -> None:
    """Upscale the bundled clip: a video, a side-by-side picture, and the numbers."""
    from vsrkit.cli.console import progress_bar
    from vsrkit.support.demo import describe, run_demo

    with progress_bar() as on_progress:
        result = run_demo(output, on_progress=on_progress)
    typer.echo(describe(result))
