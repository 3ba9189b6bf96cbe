"""`vsrkit theory`: the paper's theorems as experiments."""

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()
theory = typer.Typer(help="Run the paper's theorems: tables and plots.", no_args_is_help=True)
commands.add_typer(theory, name="theory")

Output = Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all random draws.")]


@theory.command()
def gradient(
    output: Output,
    n: Annotated[str, typer.Option("--n", help="Bits of the input: 8:20 or 8,12,16.")] = "8:20",
    k: Annotated[str, typer.Option("--k", help="Bits of the pattern: 2:6 or 2,4.")] = "2:6",
    q: Annotated[int, typer.Option("--q", min=1, help="Neurons.")] = 64,
    enumerate_up_to: Annotated[
        int, typer.Option(max=22, help="Take all 2^n inputs up to this n, samples above.")
    ] = 16,
    seed: Seed = 0,
) -> None:
    """Theorem 1: the first gradient of both layers, beside the bounds."""
    from vsrkit.cli.console import progress_bar
    from vsrkit.research.theory.gradient import measure_gradients
    from vsrkit.research.theory.patterns import parse_numbers
    from vsrkit.research.theory.results import describe_gradients, write_gradients

    with progress_bar() as on_progress:
        cells = measure_gradients(
            parse_numbers(n),
            parse_numbers(k),
            q=q,
            enumerate_up_to=enumerate_up_to,
            seed=seed,
            on_progress=on_progress,
        )
    for line in [*describe_gradients(cells), *write_gradients(cells, output)]:
        typer.echo(line)


@theory.command()
def learn(
    output: Output,
    n: Annotated[str, typer.Option("--n", help="Bits of the input: 8:20 or 8,12,16.")] = "8,12,16",
    k: Annotated[str, typer.Option("--k", help="Bits of the pattern: 2:6 or 2,4.")] = "2:4",
    delta: Annotated[
        float, typer.Option(min=1e-9, max=1, help="Allowed failure of Lemma 2; sets the width.")
    ] = 0.1,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each kind.")] = 3,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Of every run; else as many as k needs.")
    ] = None,
    faster: Annotated[
        float, typer.Option(min=1e-6, help="Step size, as a multiple of the usual one.")
    ] = 1.0,
    draws: Annotated[int, typer.Option(min=10, help="Networks drawn for Lemma 2.")] = 2000,
    seed: Seed = 0,
) -> None:
    """Theorem 2 and Lemma 2: both layers trained on patterns, loss against steps."""
    from vsrkit.cli.console import progress_bar
    from vsrkit.research.theory.learn import learn_patterns
    from vsrkit.research.theory.patterns import parse_numbers
    from vsrkit.research.theory.results import describe_learning, write_learning

    with progress_bar() as on_progress:
        result = learn_patterns(
            parse_numbers(n),
            parse_numbers(k),
            delta=delta,
            seeds=seeds,
            steps=steps,
            faster=faster,
            draws=draws,
            seed=seed,
            on_progress=on_progress,
        )
    for line in [*describe_learning(result), *write_learning(result, output)]:
        typer.echo(line)
