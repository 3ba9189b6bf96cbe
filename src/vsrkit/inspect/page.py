"""One page that needs nothing else: words for a student, and the pictures they speak of."""

import html
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template

from torch import Tensor

from vsrkit import __version__
from vsrkit.video.images import encode_png, write_image


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture (3, H, W) under a file name without its ending, and what is said below it."""

    name: str
    picture: Tensor
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    title: str
    words: Sequence[str]
    figures: Sequence[Figure] = ()
    table: Sequence[Sequence[str]] = field(default=())  # the first row names the columns
    warning: str = ""


def write_page(folder: Path, title: str, sections: Sequence[Section]) -> list[Path]:
    """Write every figure as PNG, and index.html with all of them inside; returns the files."""
    made = []
    for section in sections:
        for figure in section.figures:
            made.append(folder / f"{figure.name}.png")
            write_image(made[-1], figure.picture)
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "index.html"
    part = page.with_name(f"{page.name}.part")
    part.write_text(render(title, sections), encoding="utf-8")
    part.replace(page)
    return [*made, page]


def render(title: str, sections: Sequence[Section]) -> str:
    """The page as text."""
    template = files("vsrkit.inspect").joinpath("page.html").read_text("utf-8")
    return Template(template).substitute(
        title=html.escape(title),
        body="\n".join(_section(section) for section in sections),
        footer=f"Made by vsrkit {__version__}. The pictures also lie beside this page as PNG.",
    )


def _section(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"] if section.title else []
    if section.warning:
        parts.append(f'<p class="warning">{html.escape(section.warning)}</p>')
    parts += [f"<p>{html.escape(text)}</p>" for text in section.words]
    if section.table:
        parts.append(_table(section.table))
    parts += [_figure(figure) for figure in section.figures]
    return f"<section>\n{chr(10).join(parts)}\n</section>"


def _figure(figure: Figure) -> str:
    data = b64encode(encode_png(figure.picture)).decode("ascii")
    caption = html.escape(figure.caption)
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in body]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
