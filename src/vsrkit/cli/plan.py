"""`vsrkit plan`."""

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()


@commands.command()
def plan(
    source: Annotated[
        Path, typer.Option("--input", "-i", help="A video, a folder or a pattern of images.")
    ],
    target: Annotated[
        Path, typer.Option("--output", "-o", help="Where it would go; only the ending counts.")
    ] = Path("output.mkv"),
    model: Annotated[
        str | None, typer.Option("--model", "-m", "-n", help="A name or a weight file.")
    ] = None,
    scale: Annotated[int | None, typer.Option("--scale", "-s", help="2 or 3 instead of 4.")] = None,
    height: Annotated[int | None, typer.Option(help="Lines of the output.")] = None,
    codec: Annotated[str | None, typer.Option("--codec", "-c", help="An encoder.")] = None,
    crf: Annotated[int | None, typer.Option(help="Constant quality of the encoder.")] = None,
    pix_fmt: Annotated[str | None, typer.Option(help="Samples, such as yuv420p10le.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--encoder-option", "-e", help="key=value, repeatable.")
    ] = None,
    device: Annotated[
        str, typer.Option("--device", "-d", help="auto, cpu, cuda, cuda:N or mps.")
    ] = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    tile: Annotated[
        int | None, typer.Option("--tile", "-t", help="Side of tiles; 0: whole frames.")
    ] = None,
    max_memory: Annotated[str | None, typer.Option(help="Such as 2G.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One object, for programs.")] = False,
) -> None:
    """Say what upscaling a video will take and what to know before; write nothing."""
    import json

    from vsrkit import plan

    made = plan.plan_video(
        source,
        target,
        model=model,
        scale=scale,
        height=height,
        codec=codec,
        crf=crf,
        pix_fmt=pix_fmt,
        options=dict(pair.partition("=")[::2] for pair in option or []),
        device=device,
        precision=precision,  # type: ignore[arg-type]
        tile=tile,
        max_memory=max_memory,
    )
    typer.echo(json.dumps(plan.as_json(made), indent=2) if as_json else plan.describe(made))
