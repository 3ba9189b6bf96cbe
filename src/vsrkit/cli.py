"""The `vsrkit` command: each subcommand is one call into the library.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import sys
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


@app.callback(invoke_without_command=True)
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full trace of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.")] = False,
) -> None:
    """Video super-resolution: upscale, measure, train and compare."""
    if version:
        from vsrkit import __version__

        typer.echo(f"vsrkit {__version__}")
        raise typer.Exit


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


def main() -> None:
    """Run the command line; an error the user can mend is one line, the trace comes with --debug."""
    debug = "--debug" in sys.argv
    try:
        app()
    except VsrkitError as error:
        if debug:
            raise
        typer.echo(f"vsrkit: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("vsrkit: interrupted", err=True)
        sys.exit(130)
