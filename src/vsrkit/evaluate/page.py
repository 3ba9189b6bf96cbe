"""Self-contained HTML pages: one Jinja2 environment and one base template for all reports."""

from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vsrkit import __version__

PLAYER = Path(__file__).parent / "player"  # style and modules, which the studio serves as files


def render_page(template: str, **values: Any) -> str:
    """Render a page; every value is escaped, because names may come from untrusted files.

    Args:
        template: path of the template inside the package, such as "evaluate/slider.html". It
            extends "evaluate/page.html".
        values: variables of the template. The base template needs `title`. In a script, use the
            filter `tojson`.
    """
    return _environment().get_template(template).render(version=__version__, **values)


def inline_png(png: bytes) -> str:
    """The content of a PNG file as a data URL, so that the page needs no other file."""
    return "data:image/png;base64," + b64encode(png).decode("ascii")


def player_part(name: str) -> Markup:
    """A file of the player as text for a page: a module without its imports, or the style.

    The modules of a page share one script, so each must come after those that it needs.
    """
    lines = (PLAYER / name).read_text(encoding="utf-8").splitlines(keepends=True)
    return Markup("".join(line for line in lines if not line.startswith("import ")))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vsrkit", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["player_part"] = player_part
    return environment
