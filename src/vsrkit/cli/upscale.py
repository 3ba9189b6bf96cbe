"""`vsrkit upscale`."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from vsrkit.cli import options

commands = typer.Typer()


@commands.command()
def upscale(
    source: Annotated[
        str, typer.Option("--input", "-i", help="A video, a folder, frames/%04d.png, or - (y4m).")
    ],
    target: Annotated[str, typer.Option("--output", "-o", help="A video, a folder, or - for y4m.")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", "-n", help="A name or a checkpoint file.")
    ] = None,
    scale: Annotated[
        int | None, typer.Option("--scale", "-s", help="2, 3 or 4; less than 4 is resampled.")
    ] = None,
    height: options.Height = None,
    quality: Annotated[
        str, typer.Option(help="best, balanced or fast: overlap of windows, for models with such.")
    ] = "best",
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
    raw: Annotated[
        str | None, typer.Option(help="Rawvideo on the input pipe: 320x180,yuv420p,25.")
    ] = None,
    deinterlace: options.Deinterlace = "auto",
    report: Annotated[
        Path | None, typer.Option(help="Write a page about the result's fidelity.")
    ] = None,
    preview: Annotated[
        int | None, typer.Option(help="Only this many frames of each shot, before and after.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", "-y", help="Replace what is there.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Throw unfinished work of other settings away.")
    ] = False,
    json_progress: Annotated[
        bool, typer.Option("--json-progress", help="Lines of JSON, for programs.")
    ] = False,
) -> None:
    """Upscale a video; audio, subtitles, chapters and times are kept. Interrupted, it goes on."""
    from vsrkit.cli.progress import told
    from vsrkit.errors import StoppedError, VsrkitError
    from vsrkit.upscale.batch import upscale_any
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
        overwrite=overwrite,
        restart=restart,
    )
    try:
        with told(json_progress, pipe=target == "-") as on_progress:
            lines, failed = upscale_any(
                source,
                target,
                wanted,
                raw=raw,
                report=report,
                preview=preview,
                on_progress=on_progress,
            )
    except StoppedError as stopped:
        typer.echo(f"vsrkit: {stopped}", err=True)
        raise typer.Exit(130) from stopped
    except KeyboardInterrupt as interrupt:  # before the first part, or for the second time
        typer.echo("vsrkit: stopped; run the same command to resume", err=True)
        raise typer.Exit(130) from interrupt
    for line in lines:
        typer.echo(line, err=target == "-" or json_progress)
    if failed:
        raise VsrkitError(f"{failed} failed, see above")


def seconds(text: str) -> Fraction:
    """Seconds in `90`, `1:30` or `0:01:30.5`."""
    parts = text.split(":")
    try:
        if len(parts) > 3:
            raise ValueError
        value = Fraction(0)
        for part in parts:
            value = 60 * value + Fraction(part)
    except (ValueError, ZeroDivisionError) as error:
        raise typer.BadParameter(f"{text!r} is no time; write 90, 1:30 or 0:01:30.5") from error
    if value < 0:
        raise typer.BadParameter(f"{text!r} lies before the beginning")
    return value


def rate(text: str) -> Fraction:
    """Frames per second in `25`, `23.976` or `24000/1001`."""
    try:
        value = Fraction(text)
        if value <= 0:
            raise ValueError
    except (ValueError, ZeroDivisionError) as error:
        raise typer.BadParameter(f"{text!r} is no frame rate; write 25 or 24000/1001") from error
    return value


def key_values(pairs: list[str]) -> dict[str, str]:
    """A dictionary of `key=value` texts."""
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not of the form key=value")
    return dict(pair.split("=", 1) for pair in pairs)
