"""`vsrkit evaluate`, `vsrkit compare` and `vsrkit data`."""

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()
data = typer.Typer(help="Look at test and training data.", no_args_is_help=True)
commands.add_typer(data, name="data")


@commands.command()
def evaluate(
    models: Annotated[
        list[str], typer.Option("--model", "-m", help="A name or a checkpoint file; repeatable.")
    ],
    data: Annotated[Path, typer.Option("--data", help="The folder that holds the set.")],
    set_name: Annotated[
        str | None,
        typer.Option("--set", help="vid4, reds4, vimeo90k-t or folder; else found by looking."),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="How to measure; else the usual way for the set.")
    ] = None,
    clips: Annotated[
        list[str] | None, typer.Option("--clip", help="Measure this clip only; repeatable.")
    ] = None,
    metrics: Annotated[
        str, typer.Option(help="Commas between: psnr, ssim, ms_ssim, tof, vmaf ... or all.")
    ] = "psnr,ssim",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the results to this file.")
    ] = None,
    save_frames: Annotated[
        Path | None, typer.Option(help="Write the upscaled frames into this folder.")
    ] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Measure fresh weights, where no others are.")
    ] = False,
    ensemble: Annotated[
        bool, typer.Option("--ensemble", help="Average over flips, transposition, reversed time.")
    ] = False,
    views: Annotated[
        int, typer.Option(help="Views of an ensemble: 2, 4, 8 or 16; each costs a whole run.")
    ] = 16,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or auto.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, mps.")] = "cpu",
) -> None:
    """Measure models on a test set, beside the published numbers."""
    from vsrkit.cli.console import output_console, progress_bar
    from vsrkit.evaluate.benchmark import evaluate_models
    from vsrkit.evaluate.tables import print_results, write_json

    with progress_bar() as on_progress:
        results = evaluate_models(
            models,
            data,
            set_name=set_name,
            protocol=protocol,
            clips=clips or [],
            metrics=metrics.split(","),
            save_frames=save_frames,
            untrained=untrained,
            views=views if ensemble else 1,
            precision=precision,
            device=device,
            on_progress=on_progress,
        )
    print_results(results, output_console())
    if json_file:
        write_json(json_file, results)


@commands.command()
def compare(
    models: Annotated[
        list[str], typer.Option("--model", "-m", help="A name or a checkpoint file; repeatable.")
    ],
    data: Annotated[Path, typer.Option("--data", help="The folder that holds the set.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture, a PNG file.")],
    page: Annotated[
        Path | None, typer.Option("--html", help="Also write a page with a slider per clip.")
    ] = None,
    set_name: Annotated[str | None, typer.Option("--set", help="As for evaluate.")] = None,
    protocol: Annotated[str | None, typer.Option(help="As for evaluate.")] = None,
    clips: Annotated[
        list[str] | None, typer.Option("--clip", help="Show this clip only; repeatable.")
    ] = None,
    frame: Annotated[
        int | None, typer.Option(help="Number of the frame, from 0; else the middle one.")
    ] = None,
    crops: Annotated[
        list[str] | None,
        typer.Option("--crop", help="X,Y,W,H or CLIP:X,Y,W,H in HR pixels; repeatable."),
    ] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Show fresh weights, where no others are.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps.")] = "cpu",
) -> None:
    """Show crops of frames by several models side by side, ground truth last."""
    from vsrkit.cli.console import progress_bar
    from vsrkit.evaluate.compare import compare_models
    from vsrkit.evaluate.slider import write_comparison

    with progress_bar() as on_progress:
        views = compare_models(
            models,
            data,
            set_name=set_name,
            protocol=protocol,
            clips=clips or [],
            frame=frame,
            crops=crops or [],
            untrained=untrained,
            device=device,
            on_progress=on_progress,
        )
    for path in write_comparison(views, output, page):
        typer.echo(path)


@data.command("check")
def check_data(
    folder: Annotated[Path, typer.Argument(help="A folder with a set or with clips.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Names and sizes only; do not read the files.")
    ] = False,
) -> None:
    """Say which set a folder holds, which clips and frames, and what is wrong with it."""
    from vsrkit.cli.console import output_console, print_check, progress_bar
    from vsrkit.data.check import check_set

    with progress_bar() as on_progress:
        check = check_set(folder, quick=quick, on_progress=on_progress)
    print_check(check, output_console())
    if not check.sound:
        raise typer.Exit(1)
