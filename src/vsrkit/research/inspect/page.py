"""One page that needs nothing else: words for a student, and the pictures they speak of."""

import html
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template

from torch import Tensor

from vsrkit import __version__
from vsrkit.video.images import encode_png


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
    pictures = encode_figures(sections)
    contents = {f"{name}.png": data for name, data in pictures.items()}
    contents["index.html"] = render(title, sections, pictures).encode()
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, data in contents.items():
        part = folder / f"{name}.part"
        part.write_bytes(data)
        made.append(part.replace(folder / name))
    return made


def encode_figures(sections: Sequence[Section]) -> dict[str, bytes]:
    """Each figure as the bytes of a PNG file, by its name."""
    return {f.name: encode_png(f.picture) for section in sections for f in section.figures}


def render(title: str, sections: Sequence[Section], pictures: Mapping[str, bytes]) -> str:
    """The page as text, with the pictures (PNG, by name) inside."""
    template = files("vsrkit.research.inspect").joinpath("page.html").read_text("utf-8")
    return Template(template).substitute(
        title=html.escape(title),
        body="\n".join(_section(section, pictures) for section in sections),
        footer=f"Made by vsrkit {__version__}. The pictures also lie beside this page as PNG.",
    )


def _section(section: Section, pictures: Mapping[str, bytes]) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"] if section.title else []
    if section.warning:
        parts.append(f'<p class="warning">{html.escape(section.warning)}</p>')
    parts += [f"<p>{html.escape(text)}</p>" for text in section.words]
    if section.table:
        parts.append(_table(section.table))
    parts += [_figure(figure.caption, pictures[figure.name]) for figure in section.figures]
    return f"<section>\n{chr(10).join(parts)}\n</section>"


def _figure(text: str, picture: bytes) -> str:
    data, caption = b64encode(picture).decode("ascii"), html.escape(text)
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in body]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
