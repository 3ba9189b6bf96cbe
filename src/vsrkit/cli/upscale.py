"""`vsrkit upscale` and `vsrkit plan`."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from vsrkit.cli.options import ENCODER, FILES, MODEL, PICTURE, RESOURCES, RUN, Device, option

if TYPE_CHECKING:
    from vsrkit.upscale.options import UpscaleOptions

commands = typer.Typer()


def _argument(text: str, name: str) -> Any:
    return typer.Argument(help=text, metavar=name, show_default=False)


Input: TypeAlias = Annotated[str | None, option(FILES, "The same as INPUT.", "--input", "-i")]
Output: TypeAlias = Annotated[str | None, option(FILES, "The same as OUTPUT.", "--output", "-o")]


FollowReferences: TypeAlias = Annotated[
    bool,
    option(
        FILES,
        "Let a playlist (m3u8, mpd, ffconcat) or a mov with external data open the files and "
        "addresses that it names. Only for files that you trust.",
        "--follow-references",
    ),
]


def options_of_a_run(
    start: Annotated[
        str | None, option(FILES, "Time of the first frame to upscale: seconds or 1:02:03.5.")
    ] = None,
    end: Annotated[
        str | None, option(FILES, "Time to stop before, counted from the first frame of the input.")
    ] = None,
    frame_rate: Annotated[str, option(FILES, "Frame rate of an image sequence.")] = "25",
    model: Annotated[
        str | None,
        option(
            MODEL,
            "Name from `vsrkit models`, or a checkpoint file. Default: the preset for compressed "
            "video.",
            *("--model", "-m", "-n"),
        ),
    ] = None,
    sharpness: Annotated[
        float | None,
        option(
            MODEL,
            "How sharp the picture should look, from 0 (closest to the input) to 1 (sharpest). "
            "Only for models with a sharper companion, such as the default one. Default: the "
            "model as it is.",
            "--sharpness",
        ),
    ] = None,
    quality: Annotated[
        str,
        option(
            MODEL,
            "Overlap of windows, for models that return whole windows: best, balanced or fast.",
        ),
    ] = "best",
    scale: Annotated[
        int | None,
        option(
            PICTURE,
            "Upscaling factor. Below that of the model, its output is resampled.",
            "--scale",
            "-s",
        ),
    ] = None,
    height: Annotated[
        int | None, option(PICTURE, "Height of the output in pixels, in place of a factor.")
    ] = None,
    deinterlace: Annotated[
        str,
        option(
            PICTURE,
            "Deinterlace video that is flagged as interlaced (auto), all frames (always) or none "
            "(never), or stop with an error if it is flagged (refuse).",
        ),
    ] = "auto",
    codec: Annotated[
        str | None,
        option(
            ENCODER,
            "Video codec: h264, hevc, av1, vp9, ffv1, prores, or any encoder of FFmpeg. Default: "
            "chosen by the container.",
            *("--codec", "-c"),
        ),
    ] = None,
    crf: Annotated[
        int | None, option(ENCODER, "Quality: lower is better and makes larger files.")
    ] = None,
    encoder_options: Annotated[
        list[str] | None,
        option(ENCODER, "key=value for the encoder. Can be repeated.", "--encoder-option", "-e"),
    ] = None,
    pix_fmt: Annotated[
        str | None, option(ENCODER, "Pixel format, for example yuv420p10le. Default: as the input.")
    ] = None,
    device: Device = "auto",
    precision: Annotated[
        str,
        option(
            RESOURCES,
            "Number type: auto (measured), float32, bfloat16, int8 (fastest on a CPU, a little "
            "less precise) or int8-exact (nearly as precise as floats).",
        ),
    ] = "auto",
    workers: Annotated[int, option(RESOURCES, "Number of processes that share the work.")] = 1,
    max_memory: Annotated[
        str | None,
        option(
            RESOURCES,
            "Memory limit, for example 2G; on a cluster, of each part. Default: 60 % of the free "
            "memory.",
        ),
    ] = None,
    tile: Annotated[
        int | None,
        option(
            RESOURCES,
            "Side of tiles in pixels of the input, 0 for whole frames. Default: chosen by memory.",
            *("--tile", "-t"),
        ),
    ] = None,
    chunk: Annotated[
        int | None,
        option(
            RESOURCES,
            "Frames buffered between decoding, model and encoding. Default: chosen by memory.",
        ),
    ] = None,
) -> None:
    """The options of every command that describes a run; `options_from` reads their values."""


def withoptions_of_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, after the first five parameters: its input and output."""
    own = signature(command)
    parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    parameters[5:5] = signature(options_of_a_run).parameters.values()
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


@commands.command()
@withoptions_of_a_run
def upscale(
    context: typer.Context,
    source: Annotated[
        str | None,
        _argument(
            "Video, folder, pattern such as frames/%04d.png, address such as "
            "https://host/in.mp4, or - (y4m).",
            "INPUT",
        ),
    ] = None,
    target: Annotated[
        str | None,
        _argument(
            "Video, folder or pattern for PNG files, or - (y4m). Default for in.mp4: in.x4.mkv "
            "beside the input, never over an existing file.",
            "OUTPUT",
        ),
    ] = None,
    input_path: Input = None,
    output_path: Output = None,
    raw: Annotated[
        str | None,
        option(FILES, "Format of rawvideo on standard input, for example 320x180,yuv420p,25."),
    ] = None,
    follow_references: FollowReferences = False,
    report: Annotated[
        Path | None, option(FILES, "Write an HTML page about the fidelity of the result.")
    ] = None,
    cluster: Annotated[
        str | None,
        option(
            RESOURCES,
            "Dask cluster that computes in place of this machine: tcp://host:8786, a "
            "scheduler file, or local:4 for four workers here. See docs/cluster.md.",
        ),
    ] = None,
    same_bits: Annotated[
        bool,
        option(
            RESOURCES,
            "Restrict all workers of a cluster to the instruction sets that they share, so "
            "that different processors give the same bytes.",
            "--same-bits",
        ),
    ] = False,
    preview: Annotated[
        int | None,
        option(RUN, "Upscale only this many frames of each shot; write before and after as PNG."),
    ] = None,
    overwrite: Annotated[
        bool, option(RUN, "Replace an existing output.", "--overwrite", "-y")
    ] = False,
    restart: Annotated[
        bool, option(RUN, "Discard an unfinished job with other options.", "--restart")
    ] = False,
    json_progress: Annotated[
        bool, option(RUN, "Print progress as lines of JSON.", "--json-progress")
    ] = False,
    **_: object,
) -> None:
    """Upscale a video. Audio, subtitles, chapters and times are kept.

    After an interruption, the same command resumes the job.
    """
    from contextlib import nullcontext

    from vsrkit.cli.progress import show_progress
    from vsrkit.cluster.connect import connect
    from vsrkit.errors import StoppedError, UsageError, VsrkitError
    from vsrkit.upscale.batch import default_target, upscale_any

    options = options_from(context.params)
    path = one_of(source, input_path, "input", "-i")
    if path is None:
        raise UsageError("give an input, for example: vsrkit upscale in.mp4")
    if cluster and options.workers > 1:
        raise UsageError("give --workers or --cluster, not both")
    if follow_references and cluster:
        raise UsageError("--follow-references works on this machine; leave out --cluster")
    if same_bits and not cluster:
        raise UsageError("--same-bits is for workers of a --cluster")
    output = one_of(target, output_path, "output", "-o")
    if output is None:
        output = str(default_target(path, options, preview=preview is not None))
    try:
        with (
            connect(cluster, same_bits=same_bits) if cluster else nullcontext() as executor,
            show_progress(json_progress, pipe=output == "-") as on_progress,
        ):
            lines, failed = upscale_any(
                path,
                output,
                options,
                raw=raw,
                report=report,
                preview=preview,
                on_progress=on_progress,
                executor=executor,
            )
    except StoppedError as stopped:
        typer.echo(f"vsrkit: {stopped}", err=True)
        raise typer.Exit(130) from stopped
    except KeyboardInterrupt as interrupt:  # before the first part, or for the second time
        typer.echo("vsrkit: stopped; run the same command to resume", err=True)
        raise typer.Exit(130) from interrupt
    for line in lines:
        typer.echo(line, err=output == "-" or json_progress)
    if failed:
        raise VsrkitError(f"{failed} failed, see above")


@commands.command()
@withoptions_of_a_run
def plan(
    context: typer.Context,
    source: Annotated[
        str | None,
        _argument("Video, folder, pattern such as frames/%04d.png, or address.", "INPUT"),
    ] = None,
    target: Annotated[
        str | None, _argument("Output of the planned run; only its suffix is used.", "OUTPUT")
    ] = None,
    input_path: Input = None,
    output_path: Output = None,
    follow_references: FollowReferences = False,
    as_json: Annotated[bool, option(RUN, "Print the plan as JSON.", "--json")] = False,
    **_: object,
) -> None:
    """Estimate time, memory and file size of an upscaling run, and warn about the input.

    Nothing is written.
    """
    import json

    from vsrkit.errors import UsageError, VsrkitError
    from vsrkit.upscale import plan
    from vsrkit.upscale.batch import videos_in

    options = options_from(context.params)
    path = one_of(source, input_path, "input", "-i")
    if path is None:
        raise UsageError("give an input, for example: vsrkit plan in.mp4")
    output = one_of(target, output_path, "output", "-o")
    if not videos_in(Path(path)):
        made = plan.plan_video(path, output, options)
        typer.echo(json.dumps(plan.as_json(made), indent=2) if as_json else plan.describe(made))
        return
    plans, failed = plan.plan_folder(path, output or "output", options)
    if as_json:
        typer.echo(json.dumps({"videos": [*map(plan.as_json, plans)], "failed": failed}, indent=2))
    else:
        typer.echo(plan.describe_all(plans, failed))
    if failed:
        raise VsrkitError(f"{len(failed)} of {len(plans) + len(failed)} cannot be upscaled")


def options_from(parameters: Mapping[str, Any]) -> "UpscaleOptions":
    """The fields of UpscaleOptions among the parameters of a command."""
    from dataclasses import fields

    from vsrkit.upscale.options import UpscaleOptions

    names = {field.name for field in fields(UpscaleOptions)}
    given = {name: value for name, value in parameters.items() if name in names}
    return UpscaleOptions(
        **given
        | {
            "start": seconds(parameters["start"] or "0"),
            "end": seconds(parameters["end"]) if parameters["end"] else None,
            "frame_rate": rate(parameters["frame_rate"]),
            "encoder_options": key_values(parameters["encoder_options"] or []),
        }
    )


def one_of(argument: str | None, option: str | None, what: str, name: str) -> str | None:
    """A path that can be given as an argument or as an option; an error if it is given twice."""
    from vsrkit.errors import UsageError

    if argument is not None and option is not None:
        raise UsageError(
            f"the {what} is given twice, {argument} and {name} {option}; leave one out"
        )
    return option if argument is None else argument


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
        raise typer.BadParameter(f"{text!r} is not a time; write 90, 1:30 or 0:01:30.5") from error
    if value < 0:
        raise typer.BadParameter(f"{text!r} is negative; times count from the first frame")
    return value


def rate(text: str) -> Fraction:
    """Frames per second in `25`, `23.976` or `24000/1001`."""
    try:
        value = Fraction(text)
        if value <= 0:
            raise ValueError
    except (ValueError, ZeroDivisionError) as error:
        raise typer.BadParameter(f"{text!r} is not a frame rate; write 25 or 24000/1001") from error
    return value


def key_values(pairs: list[str]) -> dict[str, str]:
    """A dictionary of `key=value` texts."""
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not of the form key=value")
    return dict(pair.split("=", 1) for pair in pairs)
