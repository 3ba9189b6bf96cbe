"""`vsrkit plan`."""

from pathlib import Path
from typing import Annotated

import typer

from vsrkit.cli import options
from vsrkit.cli.upscale import key_values, rate, seconds

commands = typer.Typer()


@commands.command()
def plan(
    source: Annotated[
        Path, typer.Option("--input", "-i", help="A video, a folder, or a pattern of images.")
    ],
    target: Annotated[
        Path, typer.Option("--output", "-o", help="Where it would go; only the ending counts.")
    ] = Path("output.mkv"),
    model: Annotated[
        str | None, typer.Option("--model", "-m", "-n", help="A name or a checkpoint file.")
    ] = None,
    scale: Annotated[int | None, typer.Option("--scale", "-s", help="2, 3 or 4.")] = None,
    height: options.Height = None,
    quality: Annotated[str, typer.Option(help="best, balanced or fast.")] = "best",
    start: options.Start = None,
    end: options.End = None,
    codec: options.Codec = None,
    crf: options.Crf = None,
    encoder_options: options.EncoderOptions = None,
    pix_fmt: options.PixFmt = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    workers: options.Workers = 1,
    max_memory: options.MaxMemory = None,
    tile: options.Tile = None,
    chunk: options.Chunk = None,
    frame_rate: options.FrameRate = "25",
    deinterlace: options.Deinterlace = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One object, for programs.")] = False,
) -> None:
    """Say what upscaling a video will take and what to know before; write nothing."""
    import json

    from vsrkit.errors import VsrkitError
    from vsrkit.upscale import plan
    from vsrkit.upscale.batch import videos_in
    from vsrkit.upscale.options import UpscaleOptions

    wanted = UpscaleOptions(
        model=model,
        scale=scale,
        height=height,
        quality=quality,  # type: ignore[arg-type]
        start=seconds(start or "0"),
        end=seconds(end) if end else None,
        frame_rate=rate(frame_rate),
        deinterlace=deinterlace,  # type: ignore[arg-type]
        codec=codec,
        crf=crf,
        pix_fmt=pix_fmt,
        encoder_options=key_values(encoder_options or []),
        device=device,
        precision=precision,  # type: ignore[arg-type]
        workers=workers,
        max_memory=max_memory,
        tile=tile,
        chunk=chunk,
    )
    if not videos_in(source):
        made = plan.plan_video(source, target, wanted)
        typer.echo(json.dumps(plan.as_json(made), indent=2) if as_json else plan.describe(made))
        return
    plans, failed = plan.plan_folder(source, target, wanted)
    if as_json:
        typer.echo(json.dumps({"videos": [*map(plan.as_json, plans)], "failed": failed}, indent=2))
    else:
        typer.echo(plan.describe_all(plans, failed))
    if failed:
        raise VsrkitError(f"{len(failed)} of {len(plans) + len(failed)} cannot be upscaled")
