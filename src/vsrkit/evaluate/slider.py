"""An HTML page with a before/after slider for each clip of a comparison."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vsrkit.evaluate.compare import TRUTH, View, draw_grid
from vsrkit.evaluate.page import inline_png, render_page
from vsrkit.hardware.files import write_atomically
from vsrkit.video.images import encode_png, write_image


def write_comparison(views: Sequence[View], picture: Path, page: Path | None) -> list[Path]:
    """Write a comparison as a picture and, optionally, as a page.

    Args:
        views: what `compare_models` returned.
        picture: image file for the grid of crops.
        page: HTML file for the sliders; None writes no page.

    Returns:
        The files that were written.
    """
    write_image(picture, draw_grid(views))
    if page is None:
        return [picture]
    write_atomically(page, slider_page(views))
    return [picture, page]


def slider_page(views: Sequence[View]) -> str:
    """The page as HTML; a clip with several crops appears once."""
    by_clip = {view.clip: view for view in reversed(views)}
    clips = dict.fromkeys(view.clip for view in views)
    methods = [name for name in views[0].pictures if name != TRUTH]
    return render_page(
        "evaluate/slider.html",
        title=f"Video super-resolution: {', '.join(methods)}",
        views=[_content(by_clip[clip]) for clip in clips],
        protocol=views[0].protocol,
    )


def _content(view: View) -> dict[str, Any]:
    pictures = {
        name: {
            "psnr": None if name == TRUTH else _decibels(view.psnr(name, whole=True)),
            "data": inline_png(encode_png(picture)),
        }
        for name, picture in view.pictures.items()
    }
    return {"clip": view.clip, "frame": view.frame, "pictures": pictures}


def _decibels(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "infinite"
