"""`vsrkit plan`."""

from pathlib import Path
from typing import Annotated

import typer

from vsrkit.cli.upscale import key_values, rate, seconds

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
        str | None, typer.Option("--model", "-m", "-n", help="A name or a checkpoint file.")
    ] = None,
    scale: Annotated[int | None, typer.Option("--scale", "-s", help="2, 3 or 4.")] = None,
    height: Annotated[int | None, typer.Option(help="Lines of the result, for any scale.")] = None,
    quality: Annotated[str, typer.Option(help="best, balanced or fast.")] = "best",
    start: Annotated[str | None, typer.Option(help="Begin here: seconds or 1:02:03.5.")] = None,
    end: Annotated[str | None, typer.Option(help="End here.")] = None,
    codec: Annotated[
        str | None, typer.Option("--codec", "-c", help="h264, hevc, av1, vp9, ffv1, prores ...")
    ] = None,
    crf: Annotated[int | None, typer.Option(help="Less is better and larger.")] = None,
    encoder_options: Annotated[
        list[str] | None,
        typer.Option("--encoder-option", "-e", help="key=value for the encoder; repeatable."),
    ] = None,
    pix_fmt: Annotated[str | None, typer.Option(help="yuv420p, yuv420p10le ...")] = None,
    device: Annotated[
        str, typer.Option("--device", "-d", help="auto, cpu, cuda, cuda:N or mps.")
    ] = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    workers: Annotated[int, typer.Option(help="Processes that share the work.")] = 1,
    max_memory: Annotated[str | None, typer.Option(help="For example 2G.")] = None,
    tile: Annotated[
        int | None, typer.Option("--tile", "-t", help="Side of tiles; 0 for whole frames.")
    ] = None,
    frame_rate: Annotated[str, typer.Option(help="Of images, which do not know theirs.")] = "25",
    as_json: Annotated[bool, typer.Option("--json", help="One object, for programs.")] = False,
) -> None:
    """Say what upscaling a video will take and what to know before; write nothing."""
    import json

    from vsrkit import plan
    from vsrkit.job.prepare import Wishes

    wishes = Wishes(
        model=model,
        scale=scale,
        height=height,
        codec=codec,
        crf=crf,
        pix_fmt=pix_fmt,
        options=key_values(encoder_options or []),
        quality=quality,  # type: ignore[arg-type]
        device=device,
        precision=precision,  # type: ignore[arg-type]
        tile=tile,
        max_memory=max_memory,
        workers=workers,
    )
    made = plan.plan_video(
        source,
        target,
        wishes,
        span=(seconds(start or "0"), seconds(end) if end else None),
        frame_rate=rate(frame_rate),
    )
    typer.echo(json.dumps(plan.as_json(made), indent=2) if as_json else plan.describe(made))
