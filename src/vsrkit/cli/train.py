"""`vsrkit train` and `vsrkit finetune`."""

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()


@commands.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A .py or .toml file; FILE.py:NAME calls NAME().")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, in place of the recipe's.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run stopped.")] = False,
) -> None:
    """Train a model from a recipe."""
    from vsrkit.cli.training_console import report_to_console
    from vsrkit.train.recipe import run_recipe

    with report_to_console() as on_progress:
        run_recipe(recipe, overrides or [], resume=resume, on_progress=on_progress)


@commands.command()
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
    from vsrkit.cli.training_console import report_to_console
    from vsrkit.train import finetune as finetuning

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
