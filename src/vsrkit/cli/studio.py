"""`vsrkit studio`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vsrkit.cli.options import RUN, option

if TYPE_CHECKING:
    from vsrkit.studio.models import Models
    from vsrkit.studio.options import Kind, Option, OptionTable
    from vsrkit.upscale.options import UpscaleOptions

VIDEOS, SERVER = "Videos", "Server"
ADDRESS = "url"  # in place of a folder

commands = typer.Typer()


@commands.command()
def studio(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FOLDER",
            help="Folders with videos, searched with their subfolders. Default: the current one. "
            "The word url prints a new address for a running server.",
            show_default=False,
        ),
    ] = None,
    max_upload: Annotated[
        str, option(VIDEOS, "Largest upload, such as 20G. Uploads go into the first folder.")
    ] = "20G",
    host: Annotated[
        str,
        option(
            SERVER, "Address to listen on. One that other machines can reach needs --allow-host."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            help="Port to listen on. Default: 8686, or the next one that is free.",
            rich_help_panel=SERVER,
            min=0,
            max=65535,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        option(
            SERVER,
            "Name in the browser's address bar by which the server may be reached. Can be "
            "repeated.",
        ),
    ] = None,
    no_browser: Annotated[bool, option(SERVER, "Do not open the browser.", "--no-browser")] = False,
    cluster: Annotated[
        str | None,
        option(RUN, "Dask cluster that runs all jobs, as for `vsrkit upscale --cluster`."),
    ] = None,
) -> None:
    """Open a page on which videos are tried, upscaled and watched.

    Jobs continue when the page is closed, and after a restart of the server.
    """
    from importlib.util import find_spec

    from vsrkit.errors import VsrkitError

    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise VsrkitError("the studio is not installed; run: pip install 'vsrkit[studio]'")
    from vsrkit.hardware.memory import parse_size
    from vsrkit.studio.server import addresses, serve

    if folders == [Path(ADDRESS)]:
        found = list(addresses())
        if not found:
            raise VsrkitError("no studio is running; start one with: vsrkit studio")
        for address in found:
            typer.echo(address)
        return

    def show(address: str) -> None:
        typer.echo(f"vsrkit studio: {address}")
        typer.echo("Ctrl-C ends it; jobs continue when it is started again.")
        if not no_browser:
            import threading
            import webbrowser

            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    serve(
        folders or [Path()],
        options=lambda models: option_table(models, cluster=cluster is not None),
        host=host,
        port=port,
        allowed_hosts=allow_host or [],
        max_upload=parse_size(max_upload),
        cluster=cluster,
        on_ready=show,
    )


def option_table(models: "Models", *, cluster: bool) -> "OptionTable":
    """The options of `vsrkit upscale` for the page: its groups, defaults, help and validation.

    models: those that can be chosen.
    cluster: whether jobs run on a cluster, which decides the number of workers itself.
    """
    from vsrkit.studio.options import OptionTable

    made = [_describe(name, models) for name in _parameters()]
    return OptionTable(
        [option for option in made if not (cluster and option.name == "workers")], _read
    )


def _parameters() -> dict[str, Any]:
    from inspect import signature

    from vsrkit.cli.upscale import options_of_a_run

    return dict(signature(options_of_a_run).parameters)


def _describe(name: str, models: "Models") -> "Option":
    from typing import get_args, get_origin, get_type_hints

    from vsrkit.studio.options import Option
    from vsrkit.upscale.options import UpscaleOptions

    parameter = _parameters()[name]
    kind, about = get_args(parameter.annotation)
    # In `Annotated`, typer takes the first name for the default.
    names = (str(about.default), *about.param_decls)
    named = [flag for flag in names if flag.startswith("--")]
    literal = get_args(get_type_hints(UpscaleOptions)[name])
    choices = models.ready if name == "model" else literal if _are_texts(literal) else None
    kinds = get_args(kind) or (kind,)
    is_list = any(get_origin(each) is list for each in kinds)
    return Option(
        group=about.rich_help_panel,
        name=name,
        flag=named[0] if named else "--" + name.replace("_", "-"),
        type="choice" if choices else "list" if is_list else _type_of(kinds),
        default=parameter.default,
        choices=choices,
        help=about.help,
    )


def _type_of(kinds: tuple[Any, ...]) -> "Kind":
    return "integer" if int in kinds else "number" if float in kinds else "text"


def _are_texts(values: tuple[Any, ...]) -> bool:
    return bool(values) and all(isinstance(value, str) for value in values)


def _read(values: Mapping[str, Any]) -> "UpscaleOptions":
    """The options of a job; wrong values raise an error with the line that the command prints."""
    from vsrkit.cli.upscale import options_from
    from vsrkit.errors import UsageError

    defaults = {name: parameter.default for name, parameter in _parameters().items()}
    try:
        return options_from(defaults | dict(values))
    except typer.BadParameter as error:
        raise UsageError(error.message) from error
