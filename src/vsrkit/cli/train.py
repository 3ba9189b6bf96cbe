"""The commands `vsrkit train` and `vsrkit finetune`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from vsrkit.cli.options import FILES, MODEL, RESOURCES, RUN, option

commands = typer.Typer()


def _print_schema(asked: bool) -> None:
    if asked:
        from vsrkit.train.recipe import json_schema

        typer.echo(json.dumps(json_schema(), indent=2))
        raise typer.Exit


@commands.command()
def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="Recipe: a .toml file, or a .py file with a function config(). "
            "FILE.py:NAME calls the function NAME instead."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace one setting of the recipe; separate the values of a list by commas. "
            "Can be repeated.",
            rich_help_panel=RUN,
        ),
    ] = None,
    resume: Annotated[
        bool,
        option(RUN, "Continue the run in run_dir from its last checkpoint.", "--resume"),
    ] = False,
    _schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="Print the JSON schema of recipes, for editors that complete and check TOML "
            "files, and exit.",
            is_eager=True,
            callback=_print_schema,
            rich_help_panel=RUN,
        ),
    ] = False,
) -> None:
    """Train a model with the settings of a recipe.

    The config, the log, the checkpoints and the weights are written to run_dir.
    Ctrl-C finishes the current step and saves a checkpoint.
    """
    from vsrkit.cli.console import report_to_console
    from vsrkit.train.config import FlowConfig
    from vsrkit.train.recipe import load_recipe

    config = load_recipe(recipe, overrides or [])
    with report_to_console() as on_progress:
        if isinstance(config, FlowConfig):
            from vsrkit.train.train_flow import train_flow

            train_flow(config, resume=resume, on_progress=on_progress)
        else:
            from vsrkit.train import loop

            loop.train(config, resume=resume, on_progress=on_progress)


@commands.command()
def finetune(
    videos: Annotated[list[Path], typer.Argument(help="Video files to fit the model to.")],
    output: Annotated[
        Path,
        option(FILES, "Weight file to write; its name ends in .safetensors.", "--output", "-o"),
    ],
    model: Annotated[
        str,
        option(MODEL, "Name of a model or a weight file to start from.", "--model", "-m"),
    ] = "vsrt-s",
    goal: Annotated[
        Literal["psnr", "eyes"],
        option(
            MODEL,
            "What to train for: psnr, the smallest error, or eyes, the most natural look "
            "(with perceptual and adversarial losses, scored by LPIPS; needs `vsrkit weights get "
            "lpips`).",
            "--for",
        ),
    ] = "psnr",
    steps: Annotated[int, option(RUN, "Number of training steps.", min=1)] = 300,
    degradation: Annotated[
        str,
        option(
            MODEL,
            "How low-resolution frames are made from the videos: bi for clean footage, "
            "crf15-35 or realistic for compressed footage.",
        ),
    ] = "bi",
    device: Annotated[
        str,
        option(
            RESOURCES,
            "Device to train on: auto (CUDA, else MPS, else the CPU), cpu, cuda, cuda:N or mps.",
        ),
    ] = "auto",
) -> None:
    """Fit a model to your own footage.

    Some shots of the videos are held out and scored before and after training.
    If the new weights score lower, the old ones are written.
    """
    from vsrkit.cli.console import report_to_console
    from vsrkit.train import finetune as finetuning

    with report_to_console() as on_progress:
        result = finetuning.finetune(
            videos,
            output,
            model=model,
            goal=goal,
            steps=steps,
            degradation=degradation,
            device=device,
            on_progress=on_progress,
        )
    typer.echo(f"{output}: {result}")
