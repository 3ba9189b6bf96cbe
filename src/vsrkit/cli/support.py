"""The commands `vsrkit demo` and `vsrkit doctor`."""

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()


@commands.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")] = Path(
        "demo-output"
    ),
) -> None:
    """Upscale the bundled clip and compare the result with the original.

    Writes the input, the upscaled video, a side-by-side picture and the scores.
    """
    from vsrkit.cli.console import progress_bar
    from vsrkit.support.demo import describe, run_demo

    with progress_bar() as on_progress:
        result = run_demo(output, on_progress=on_progress)
    typer.echo(describe(result))


@commands.command()
def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as a JSON object.")
    ] = False,
    self_test: Annotated[
        bool, typer.Option(help="Upscale a small clip and check the result.")
    ] = True,
) -> None:
    """Report the capabilities of this machine and test vsrkit on it.

    Please include the output in bug reports. The exit code is 1 if the self-test fails.
    """
    import json

    from vsrkit.support import doctor

    checkup = doctor.examine(self_test=self_test)
    typer.echo(
        json.dumps(doctor.as_json(checkup), indent=2) if as_json else doctor.describe(checkup)
    )
    if not checkup.healthy:
        raise typer.Exit(1)
