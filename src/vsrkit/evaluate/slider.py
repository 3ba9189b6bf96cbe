"""A page with a before/after slider for each clip: one HTML file that needs nothing else."""

import html
import json
import math
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from vsrkit import __version__
from vsrkit.evaluate.compare import TRUTH, View, draw_grid
from vsrkit.video.images import encode_png, write_image


def write_comparison(views: Sequence[View], picture: Path, page: Path | None) -> list[Path]:
    """Write the grid and, if wanted, the page; returns what was written."""
    write_image(picture, draw_grid(views))
    if page is None:
        return [picture]
    page.parent.mkdir(parents=True, exist_ok=True)
    part = page.with_name(f"{page.name}.part")
    part.write_text(slider_page(views), encoding="utf-8")
    part.replace(page)
    return [picture, page]


def slider_page(views: Sequence[View]) -> str:
    """The page; each clip comes once, however many crops of it were chosen."""
    first = {view.clip: view for view in reversed(views)}
    shown = [_content(first[clip]) for clip in dict.fromkeys(view.clip for view in views)]
    names = [name for name in views[0].pictures if name != TRUTH]
    template = files("vsrkit.evaluate").joinpath("slider.html").read_text("utf-8")
    footer = f"PSNR of the whole frame; protocol {views[0].protocol}. Made by vsrkit {__version__}."
    return Template(template).substitute(
        title=html.escape(f"Video super-resolution: {', '.join(names)}"),
        footer=html.escape(footer),
        # "</" would end the script in which this stands.
        views=json.dumps(shown).replace("</", "<\\/"),
    )


def _content(view: View) -> dict[str, Any]:
    pictures = {
        name: {
            "psnr": None if name == TRUTH else _decibels(view.psnr(name, whole=True)),
            "data": "data:image/png;base64," + b64encode(encode_png(picture)).decode("ascii"),
        }
        for name, picture in view.pictures.items()
    }
    return {"clip": view.clip, "frame": view.frame, "pictures": pictures}


def _decibels(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "infinite"
