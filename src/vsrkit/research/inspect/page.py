"""The page of `vsrkit inspect`: sections of text, tables and pictures in one HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from vsrkit.evaluate.page import inline_png, render_page
from vsrkit.hardware.files import write_atomically
from vsrkit.video.images import encode_png


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture (3, H, W) with its file name (without suffix) and caption."""

    name: str
    picture: Tensor
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page; `words` are its paragraphs."""

    title: str
    words: Sequence[str]
    figures: Sequence[Figure] = ()
    table: Sequence[Sequence[str]] = field(default=())  # the first row holds the column titles
    warning: str = ""


def write_page(folder: Path, title: str, sections: Sequence[Section]) -> list[Path]:
    """Write every figure as a PNG file, and index.html, which contains all of them.

    Args:
        folder: where to write; created if it does not exist.
        title: title of the page.
        sections: its sections, in order.

    Returns:
        The files that were written.
    """
    pictures = encode_figures(sections)
    contents = {f"{name}.png": data for name, data in pictures.items()}
    contents["index.html"] = render(title, sections, pictures).encode()
    for name, data in contents.items():
        write_atomically(folder / name, data)
    return [folder / name for name in contents]


def encode_figures(sections: Sequence[Section]) -> dict[str, bytes]:
    """Encode each figure as PNG; returns the files by the names of the figures."""
    return {f.name: encode_png(f.picture) for section in sections for f in section.figures}


def render(title: str, sections: Sequence[Section], pictures: Mapping[str, bytes]) -> str:
    """The page as HTML.

    Args:
        title: title of the page.
        sections: its sections, in order.
        pictures: the PNG file of each figure, by the name of the figure; they become part of the
            page.
    """
    return render_page(
        "research/inspect/page.html",
        title=title,
        sections=sections,
        images={name: inline_png(png) for name, png in pictures.items()},
    )
