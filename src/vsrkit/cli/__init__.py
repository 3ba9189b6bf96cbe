"""The `vsrkit` command: each subcommand is one call into the library.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import sys
from typing import Annotated, NoReturn

import typer

from vsrkit.cli import (
    evaluate,
    export,
    models,
    reproduce,
    research,
    studio,
    support,
    train,
    upscale,
)
from vsrkit.errors import StoppedError, UsageError, VsrkitError

LONGEST_LINE = 900  # characters of an error, which may repeat what was found in a file

app = typer.Typer(
    name="vsrkit",
    help="Upscale videos, and evaluate, train and inspect video super-resolution models.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for group in (upscale, studio, support, models, export, evaluate, research, reproduce, train):
    app.add_typer(group.commands)


@app.callback(invoke_without_command=True)
def top_level(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Show the full traceback of an error, and write a file for a problem report.",
        ),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and exit.")
    ] = False,
) -> None:
    """Upscale videos, and evaluate, train and inspect video super-resolution models."""
    if version:
        from vsrkit import __version__

        typer.echo(f"vsrkit {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command; an error prints one line, or its traceback if --debug is given anywhere."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        if len(arguments) < len(sys.argv) - 1:
            _run_with_report(arguments)
        app(arguments)
    except Exception as error:
        if len(arguments) < len(sys.argv) - 1:
            raise
        typer.echo(f"vsrkit: {_in_one_line(error)}", err=True)
        # A subclass of StoppedError is a failure.
        stopped = type(error) is StoppedError
        sys.exit(130 if stopped else 2 if isinstance(error, UsageError) else 1)


def _run_with_report(arguments: list[str]) -> NoReturn:
    """Run the command and write a file for a problem report, whether it fails or not."""
    from vsrkit.support.problem_report import ProblemReport

    report = ProblemReport(arguments)
    ended: BaseException | None = None
    with report.collect_log():
        try:
            app(arguments)
        except BaseException as error:
            ended = error
            raise
        finally:
            path = report.write(None if isinstance(ended, SystemExit) else ended)
            typer.echo(f"wrote {path} without private names; attach it to a report", err=True)
    raise SystemExit


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if len(text) > LONGEST_LINE:
        text = f"{text[:LONGEST_LINE]} ..."
    if isinstance(error, VsrkitError):
        return text
    if isinstance(error, MemoryError) or "can't allocate memory" in text:  # as torch says
        return (
            "there is not enough memory; close other programs, lower --max-memory or --workers, "
            "and run the same command again"
        )
    if isinstance(error, OSError):
        return f"{text}; fix this and run the same command again"
    return f"unexpected {type(error).__name__}: {text}; run with --debug and report the traceback"
