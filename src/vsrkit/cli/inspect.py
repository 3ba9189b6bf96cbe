"""`vsrkit inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from vsrkit.errors import VsrkitError

commands = typer.Typer()


@commands.command()
def inspect(
    clip: Annotated[Path, typer.Argument(help="A video or a folder of frames, low resolution.")],
    model: Annotated[str, typer.Option("--model", "-m", help="Name or weight file.")] = "vsrt-s",
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")] = Path(
        "inspect-output"
    ),
    frame: Annotated[
        int | None, typer.Option(help="Number of the frame, from 0; else the middle one.")
    ] = None,
    pixel: Annotated[
        str | None, typer.Option(help="X,Y of the pixel to look at; else the middle one.")
    ] = None,
    side: Annotated[
        int | None,
        typer.Option(help="Of the square around it that is shown; else 128, or 64 if it is slow."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps.")] = "cpu",
) -> None:
    """Show what a model sees: flow, attention, features, and what each part adds."""
    from vsrkit.cli.console import progress_bar
    from vsrkit.research.inspect.inspection_page import inspect_clip

    with progress_bar() as on_progress:
        made = inspect_clip(
            clip,
            model,
            output,
            frame=frame,
            pixel=None if pixel is None else parse_pixel(pixel),
            side=side,
            device=device,
            on_progress=on_progress,
        )
    page = output / "index.html"
    typer.echo(f"{len(made)} files in {output}; open {page}")


def parse_pixel(text: str) -> tuple[int, int]:
    """`X,Y` as (x, y)."""
    try:
        x, y = (int(number) for number in text.split(","))
    except ValueError:
        raise VsrkitError(f"expected a pixel as X,Y in whole numbers, got {text!r}") from None
    return x, y
