"""`vsrkit inspect` and `vsrkit theory`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from vsrkit.cli.options import EXPERIMENT, FILES, MODEL, RUN, Device, option
from vsrkit.errors import VsrkitError

T = TypeVar("T")

commands = typer.Typer()
theory = typer.Typer(
    help="Run the theorems of the paper as experiments; they need the extra `research`.",
    no_args_is_help=True,
)
commands.add_typer(theory, name="theory")


Output = Annotated[Path, option(FILES, "Folder to write to.", "--output", "-o")]
InputBits = Annotated[str, option(EXPERIMENT, "Numbers of input bits: 8:20 or 8,12,16.", "--n")]
PatternBits = Annotated[str, option(EXPERIMENT, "Numbers of pattern bits: 2:6 or 2,4.", "--k")]
Seed = Annotated[int, option(RUN, "Seed of all random draws.", min=0)]


@commands.command()
def inspect(
    clip: Annotated[
        Path,
        typer.Argument(help="A low-resolution video or folder of frames."),
    ],
    model: Annotated[str, option(MODEL, "Model name or weight file.", "--model", "-m")] = "vsrt-s",
    output: Output = Path("inspect-output"),
    frame: Annotated[
        int | None, option(FILES, "Number of the frame, from 0. Default: the middle one.")
    ] = None,
    pixel: Annotated[
        str | None, option(FILES, "Pixel to inspect, as X,Y. Default: the middle one.")
    ] = None,
    side: Annotated[
        int | None,
        option(FILES, "Side of the square around it. Default: 128, or 64 for large models."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Show how a model upscales one frame.

    Writes a page with its flow, attention and features, and with what each of its parts adds.
    """
    from vsrkit.cli.console import progress_bar
    from vsrkit.research.inspect.inspection_page import inspect_clip

    with progress_bar() as on_progress:
        files = inspect_clip(
            clip,
            model,
            output,
            frame=frame,
            pixel=None if pixel is None else parse_pixel(pixel),
            side=side,
            device=device,
            on_progress=on_progress,
        )
    typer.echo(f"{len(files)} files in {output}; open {output / 'index.html'}")


def parse_pixel(text: str) -> tuple[int, int]:
    """`X,Y` as (x, y)."""
    try:
        x, y = (int(number) for number in text.split(","))
    except ValueError:
        raise VsrkitError(f"expected a pixel as X,Y in whole numbers, got {text!r}") from None
    return x, y


@theory.command()
def gradient(
    output: Output,
    n: InputBits = "8:20",
    k: PatternBits = "2:6",
    q: Annotated[int, option(EXPERIMENT, "Number of neurons.", "--q", min=1)] = 64,
    enumerate_up_to: Annotated[
        int, option(EXPERIMENT, "Use all 2^n inputs up to this n, and samples above.", max=22)
    ] = 16,
    seed: Seed = 0,
) -> None:
    """Measure Theorem 1: the first gradient of both layers, compared with the bounds."""
    from vsrkit.research.theory.gradient import measure_gradients
    from vsrkit.research.theory.patterns import parse_numbers
    from vsrkit.research.theory.results import describe_gradients, write_gradients

    ns, ks = parse_numbers(n), parse_numbers(k)
    measure = partial(measure_gradients, ns, ks, q=q, enumerate_up_to=enumerate_up_to, seed=seed)
    _run_theory(measure, describe_gradients, write_gradients, output)


@theory.command()
def learn(
    output: Output,
    n: InputBits = "8,12,16",
    k: PatternBits = "2:4",
    delta: Annotated[
        float,
        option(EXPERIMENT, "Failure probability of Lemma 2; sets the width.", min=1e-9, max=1),
    ] = 0.1,
    seeds: Annotated[int, option(RUN, "Number of runs of each kind.", min=1)] = 3,
    steps: Annotated[
        int | None, option(RUN, "Steps of every run. Default: as many as k needs.", min=1)
    ] = None,
    faster: Annotated[
        float, option(EXPERIMENT, "Step size, as a multiple of the usual one.", min=1e-6)
    ] = 1.0,
    draws: Annotated[
        int, option(EXPERIMENT, "Number of networks drawn for Lemma 2.", min=10)
    ] = 2000,
    seed: Seed = 0,
) -> None:
    """Measure Theorem 2 and Lemma 2: both layers are trained on patterns of k bits."""
    from vsrkit.research.theory.learn import learn_patterns
    from vsrkit.research.theory.patterns import parse_numbers
    from vsrkit.research.theory.results import describe_learning, write_learning

    measure = partial(
        learn_patterns,
        parse_numbers(n),
        parse_numbers(k),
        delta=delta,
        seeds=seeds,
        steps=steps,
        faster=faster,
        draws=draws,
        seed=seed,
    )
    _run_theory(measure, describe_learning, write_learning, output)


@theory.command()
def layers(
    output: Output,
    k: PatternBits = "2:3",
    seeds: Annotated[int, option(RUN, "Number of runs of each kind.", min=1)] = 3,
    steps: Annotated[int, option(RUN, "Steps of every run.", min=1)] = 600,
    learning_rate: Annotated[float, option(EXPERIMENT, "Step size of Adam.", min=1e-6)] = 5e-3,
    scaled: Annotated[
        bool,
        option(
            EXPERIMENT,
            "Divide similarities by the root of the token's length, as the release does.",
            "--scaled",
        ),
    ] = False,
    seed: Seed = 0,
) -> None:
    """Train one STCSA layer and one fully connected attention layer on patterns in videos."""
    from vsrkit.research.theory.layers import train_layers
    from vsrkit.research.theory.layers_results import describe_layers, write_layers
    from vsrkit.research.theory.patterns import parse_numbers

    measure = partial(
        train_layers,
        parse_numbers(k),
        seeds=seeds,
        steps=steps,
        learning_rate=learning_rate,
        scaled=scaled,
        seed=seed,
    )
    _run_theory(measure, describe_layers, write_layers, output)


def _run_theory(
    measure: Callable[..., T],
    describe: Callable[[T], list[str]],
    write: Callable[[T, Path], list[Path]],
    output: Path,
) -> None:
    """Measure with a progress bar, write the result, print its summary and its files."""
    from vsrkit.cli.console import progress_bar

    with progress_bar() as on_progress:
        result = measure(on_progress=on_progress)
    for line in [*describe(result), *map(str, write(result, output))]:
        typer.echo(line)
