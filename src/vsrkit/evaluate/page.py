"""Self-contained HTML pages: one Jinja2 environment and one base template for all reports."""

from base64 import b64encode
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from vsrkit import __version__


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


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("vsrkit", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
