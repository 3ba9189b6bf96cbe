"""Comparisons of models on one frame: a picture of crops, and a page with sliders."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from vsrkit.data.clips import OnProgress
from vsrkit.data.sets import FrameSet, PairedClip
from vsrkit.errors import DataError, VsrkitError
from vsrkit.evaluate.benchmark import check_clips, display_names, open_evaluation, trained_model
from vsrkit.evaluate.captions import add_caption, arrange, draw_box, enlarge
from vsrkit.evaluate.measure import at_scale, lr_frames, with_tiles
from vsrkit.evaluate.metrics import psnr, worst_crop
from vsrkit.evaluate.page import inline_png, render_page
from vsrkit.evaluate.protocol import Protocol
from vsrkit.hardware.device import resolve_device
from vsrkit.hardware.files import write_atomically
from vsrkit.inference.engine import Engine, make_engine, upscale_frames
from vsrkit.video.images import encode_png, write_image

TRUTH = "ground truth"
MOST_CLIPS = 8  # shown by default
CELL_WIDTH = 320  # pixels; crops are enlarged by a whole factor to at most this width
RED = (1.0, 0.1, 0.1)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in a frame, in HR pixels."""

    x: int
    y: int
    width: int
    height: int

    def cut(self, frame: Tensor) -> Tensor:
        """Crop (..., H, W) to this rectangle."""
        return frame[..., self.y : self.y + self.height, self.x : self.x + self.width]


@dataclass(frozen=True, slots=True)
class View:
    """One frame of a clip as restored by each method, and a rectangle to show."""

    clip: str
    frame: int
    pictures: dict[str, Tensor]  # method -> (3, H, W) in [0, 1], ground truth last
    box: Box
    protocol: Protocol

    @property
    def truth(self) -> Tensor:
        """The ground-truth frame."""
        return self.pictures[TRUTH]

    def psnr(self, method: str, *, whole: bool = False) -> float:
        """PSNR in dB of the crop, or of the whole frame, on the protocol's channel."""
        rules = self.protocol if whole else replace(self.protocol, border=0)
        frames = [rules.measured(x) for x in (self.pictures[method], self.truth)]
        return psnr(*frames) if whole else psnr(*(self.box.cut(x) for x in frames))


def compare_models(
    models: Sequence[str],
    data: Path,
    *,
    set_name: str | None = None,
    protocol: str | None = None,
    clips: Sequence[str] = (),
    frame: int | None = None,
    crops: Sequence[str] = (),
    untrained: bool = False,
    device: str = "auto",
    on_progress: OnProgress | None = None,
) -> list[View]:
    """Upscale one frame of each clip with several models; returns a view for each crop.

    clips: names of the clips to show; empty shows the first eight.
    frame: index of the frame in its clip, from 0; None takes the middle one.
    crops: rectangles to show, `X,Y,W,H` for every clip or `CLIP:X,Y,W,H` for one. A clip without
        one shows where the first model differs most from the ground truth.
    on_progress: called with model and clip, the models done and their total number.
    The other arguments are those of `evaluate_models`.
    """
    device = resolve_device(device)
    rules, frame_set = open_evaluation(data, set_name, protocol, clips)
    places = [parse_crop(crop) for crop in crops]
    chosen = _chosen_clips(frame_set, places, show_all=bool(clips))
    engines = _engines(models, rules, untrained, device)
    rules = rules.at_scale(next(iter(engines.values())).spec.scale)
    for engine in engines.values():
        check_clips(engine, replace(frame_set, clips=chosen), rules, ())
    views = []
    for clip in chosen:
        number = min(len(clip.hr), rules.length or len(clip.hr)) // 2 if frame is None else frame
        pictures = _pictures(clip, number, engines, rules, on_progress)
        boxes = [box for name, box in places if name in (None, clip.name)]
        first, *_, truth = pictures.values()
        for box in boxes or [hardest_place(first, truth)]:
            views.append(View(clip.name, number, pictures, _inside(box, truth, clip.name), rules))
    return views


def _chosen_clips(
    frame_set: FrameSet, places: Sequence[tuple[str | None, Box]], *, show_all: bool
) -> tuple[PairedClip, ...]:
    """Select the clips named by crops, else the requested ones, else the first few."""
    named = {name for name, _ in places if name is not None}
    if unknown := named - {clip.name for clip in frame_set.clips}:
        raise DataError(f"no clip called {min(unknown)!r} to crop")
    if named and all(name is not None for name, _ in places):
        return tuple(clip for clip in frame_set.clips if clip.name in named)
    return frame_set.clips if show_all else frame_set.clips[:MOST_CLIPS]


def _engines(
    models: Sequence[str], rules: Protocol, untrained: bool, device: str
) -> dict[str, Engine]:
    engines = {}
    for title, name in zip(display_names(models), models, strict=True):
        model = trained_model(name, untrained=untrained)
        engines[title] = with_tiles(make_engine(model, precision="float32", device=device), rules)
    if not rules.fixed_scale and len({engine.spec.scale for engine in engines.values()}) > 1:
        raise VsrkitError("these models have different scales and cannot be compared side by side")
    return engines


def _pictures(
    clip: PairedClip,
    number: int,
    engines: dict[str, Engine],
    rules: Protocol,
    on_progress: OnProgress | None,
) -> dict[str, Tensor]:
    """Upscale frame `number` of a clip with every model; the ground truth is the last entry."""
    length = min(len(clip.hr), rules.length or len(clip.hr))
    if not 0 <= number < length:
        raise DataError(f"clip {clip.name} has frames 0 to {length - 1}, not {number}")
    pictures: dict[str, Tensor] = {}
    for name, engine in engines.items():
        if on_progress:
            on_progress(f"{name}: {clip.name}", len(pictures), len(engines))
        sr = upscale_frames(lr_frames(clip, rules), engine, padding=rules.padding)
        # Reads no further than necessary.
        found = next(islice(at_scale(sr, engine, rules), number, None))
        assert found is not None
        pictures[name] = found
    height, width = next(iter(pictures.values())).shape[-2:]
    pictures[TRUTH] = next(islice(clip.hr.read(), number, None))[..., :height, :width]
    return pictures


def parse_crop(text: str) -> tuple[str | None, Box]:
    """Parse `X,Y,W,H` or `CLIP:X,Y,W,H` into the clip's name, or None, and the rectangle."""
    clip, _, numbers = text.rpartition(":")
    try:
        x, y, width, height = (int(number) for number in numbers.split(","))
    except ValueError:
        raise VsrkitError(f"a crop is X,Y,W,H or CLIP:X,Y,W,H in pixels, not {text!r}") from None
    return clip or None, Box(x, y, width, height)


def hardest_place(sr: Tensor, hr: Tensor) -> Box:
    """Find where two pictures differ most: a rectangle of about a fifth of their width."""
    height, width = hr.shape[-2:]
    w = min(max(width // 5 // 4 * 4, 32), width)
    h = min(max(w * 3 // 4, 24), height)
    y, x = worst_crop((sr - hr).abs().mean(0), h, w, step=4)
    return Box(x, y, w, h)


def _inside(box: Box, frame: Tensor, clip: str) -> Box:
    height, width = frame.shape[-2:]
    fits = box.x >= 0 and box.y >= 0 and box.x + box.width <= width and box.y + box.height <= height
    if not fits or box.width < 1 or box.height < 1:
        raise VsrkitError(
            f"the crop {box.x},{box.y},{box.width},{box.height} is not inside the "
            f"{width}x{height} frames of {clip}"
        )
    return box


def draw_grid(views: Sequence[View]) -> Tensor:
    """Draw the comparison picture: (3, H, W), a row for each view.

    A row shows the whole ground-truth frame with the crop marked in it, then the crop of each
    method with its PSNR, and the crop of the ground truth last.
    """
    return arrange([_cells(view) for view in views])


def _cells(view: View) -> list[Tensor]:
    factor = max(1, CELL_WIDTH // view.box.width)
    overview = _overview(view, view.box.height * factor)
    cells = [add_caption(overview, view.clip, f"frame {view.frame}")]
    for method, picture in view.pictures.items():
        crop = enlarge(view.box.cut(picture).float().clamp(0, 1), factor)
        score = "" if method == TRUTH else f"{view.psnr(method):.2f} dB"
        cells.append(add_caption(crop, method, score))
    return cells


def _overview(view: View, height: int) -> Tensor:
    """Reduce the whole ground truth to this height, with a red line around the crop."""
    box, line = view.box, max(2, view.truth.shape[-1] // 160)
    whole = draw_box(view.truth, (box.x, box.y, box.width, box.height), RED, line=line)
    width = round(whole.shape[2] * height / whole.shape[1])
    small = F.interpolate(
        whole[None], size=(height, width), mode="bilinear", antialias=True, align_corners=False
    )
    return small[0].clamp(0, 1)


def write_comparison(views: Sequence[View], picture: Path, page: Path | None) -> list[Path]:
    """Write a comparison as a picture and, optionally, as a page.

    Args:
        views: as returned by `compare_models`.
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
    """A page with a before/after slider for each clip; a clip with several crops appears once."""
    by_clip = {view.clip: view for view in reversed(views)}
    clips = dict.fromkeys(view.clip for view in views)
    methods = [name for name in views[0].pictures if name != TRUTH]
    return render_page(
        "evaluate/slider.html",
        title=f"Video super-resolution: {', '.join(methods)}",
        views=[_slider_content(by_clip[clip]) for clip in clips],
        protocol=views[0].protocol,
    )


def _slider_content(view: View) -> dict[str, Any]:
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
