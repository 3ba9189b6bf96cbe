"""`vsrkit doctor`."""

from typing import Annotated

import typer

commands = typer.Typer()


@commands.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One object, for programs.")] = False,
    self_test: Annotated[
        bool, typer.Option(help="Upscale a small clip and look at what comes of it.")
    ] = True,
) -> None:
    """Say what this machine can do and test vsrkit on it: the text for a bug report."""
    import json

    from vsrkit.support import doctor

    checkup = doctor.examine(self_test=self_test)
    typer.echo(
        json.dumps(doctor.as_json(checkup), indent=2) if as_json else doctor.describe(checkup)
    )
    if not checkup.healthy:
        raise typer.Exit(1)
