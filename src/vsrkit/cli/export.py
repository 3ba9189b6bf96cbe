"""`vsrkit export`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()


class FileFormat(StrEnum):
    """Formats of exported files."""

    onnx = "onnx"
    openvino = "openvino"


class FilePrecision(StrEnum):
    """Number types of exported convolutions."""

    fp32 = "fp32"
    fp16 = "fp16"
    int8 = "int8"


@commands.command()
def export(
    model: Annotated[
        str, typer.Argument(help="Name of a model, or a weight file, as for `upscale --model`.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path(
        "exported"
    ),
    file_format: Annotated[
        FileFormat, typer.Option("--format", help="Format of the files.")
    ] = FileFormat.onnx,
    precision: Annotated[
        FilePrecision,
        typer.Option(help="Number type of the convolutions. int8 is calibrated on real frames."),
    ] = FilePrecision.fp32,
    window: Annotated[
        int | None,
        typer.Option(
            help="Write a recurrent model as one graph for a window of this many frames, for tools "
            "that support only windows. Default: graphs for single steps, with a JSON file that "
            "describes how to chain them."
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="Video that int8 is calibrated on. Default: the bundled clip."),
    ] = None,
) -> None:
    """Write a model as ONNX or OpenVINO files for other programs, and compare them with it."""
    from vsrkit.errors import UsageError

    try:
        from vsrkit.export.job import export_model
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is not installed; install it by: pip install 'vsrkit[export]'"
        ) from error
    done = export_model(
        model,
        output,
        kind=file_format.value,
        precision=precision.value,
        window=window,
        calibration=calibration,
        on_progress=lambda text: typer.echo(text, err=True),
    )
    for path in [*done.files, done.description]:
        typer.echo(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    for size in done.differences:
        typer.echo(
            f"difference to the model at {size.width}x{size.height}: "
            f"{size.mean:.2g} on average, {size.largest:.2g} at most"
        )
