"""From what the user asks for to what will run: model, tile, precision, device, encoder."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

import torch
from av.video.format import VideoFormat
from torch import nn

from vsrkit.errors import MemoryLimitError, VideoError, VsrkitError
from vsrkit.hardware.device import resolve_device
from vsrkit.hardware.memory import format_size, free_memory, parse_size
from vsrkit.hardware.precision import PrecisionName
from vsrkit.inference.engine import Engine, make_engine
from vsrkit.inference.memory import (
    FRAME,
    SHARE,
    MemoryPlan,
    plan_memory,
)
from vsrkit.models.spec import Spec
from vsrkit.models.zoo import default_model, load_model
from vsrkit.upscale.settings import Choices, Quality, choose_precision, output_size
from vsrkit.video.colour import layout_of, picture_bytes, planar_format
from vsrkit.video.encode import (
    LEAN_CODECS,
    Encoding,
    choose_encoding,
    encoder_memory,
    open_encoder,
    what_is_spared,
)
from vsrkit.video.mux import check_container
from vsrkit.video.read import Source

log = logging.getLogger("vsrkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is asked of the result and of the machine; None leaves the choice to us."""

    model: str | Path | nn.Module | None = None
    scale: int | None = None
    height: int | None = None
    codec: str | None = None
    crf: int | None = None
    pix_fmt: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    quality: Quality = "best"
    device: str = "auto"
    precision: PrecisionName = "auto"
    tile: int | None = None
    chunk: int | None = None
    max_memory: int | str | None = None
    workers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What will run."""

    model: str
    engine: Engine
    memory: MemoryPlan
    height: int  # of the result
    width: int
    encoding: Encoding | None  # None for images
    notes: tuple[str, ...] = ()  # what the encoder does otherwise than usual, for memory's sake


def prepare(
    source: Source,
    wishes: Wishes,
    *,
    suffix: str | None,
    chosen: Choices = Choices(),  # noqa: B008  frozen
    scratch: Path | None = None,
    by_rows: bool = True,
) -> Prepared:
    """Choose everything before the first frame, and refuse what cannot work.

    suffix: of the video to be written; None for images.
    chosen: what an earlier run of the same job decided.
    scratch: a folder for what does not fit into memory.
    by_rows: whether the frames of the source can be read again and again; those of a pipe cannot.
    """
    name, model = _model(wishes.model)
    spec: Spec = model.spec  # type: ignore[assignment]
    _check(wishes, spec)
    info = source.info
    if any(component.is_alpha for component in VideoFormat(info.pix_fmt).components):
        log.warning("what is transparent in %s does not stay so", source.path)
    height, width = output_size(info, model, scale=wishes.scale, height=wishes.height)
    device = resolve_device(wishes.device)
    if wishes.chunk is None and _few_cores(device, wishes.workers):
        wishes = replace(wishes, chunk=0)
    encoding, memory, notes = _fitting(
        source, wishes, model, (height, width), suffix=suffix, chosen=chosen, by_rows=by_rows
    )
    if encoding is not None and suffix is not None:
        turned = _turned(source, (height, width), suffix)
        _say_what_is_lost(source, encoding, demanded=wishes.pix_fmt is not None)
        open_encoder(encoding)  # what it refuses is refused now and not after hours
        check_container(suffix, encoding, source)
        if (encoding.height, encoding.width) != turned:
            log.warning(
                "%dx%d becomes %dx%d, the last line doubled: %s has no odd sizes",
                *(turned[1], turned[0], encoding.width, encoding.height, encoding.pix_fmt),
            )
    _say_tiles(memory, wishes, spec)
    engine = make_engine(
        model,
        precision=choose_precision(wishes.precision, chosen),
        device=device,
        tile=memory.tile,
    )
    if memory.frugal and scratch:
        engine = replace(engine, scratch=scratch)
    if not memory.recalls:
        engine = replace(engine, recalls=None)
    return Prepared(
        model=name,
        engine=engine,
        memory=memory,
        height=height,
        width=width,
        encoding=encoding,
        notes=notes,
    )


def _check(wishes: Wishes, spec: Spec) -> None:
    """Refuse numbers and names that no other place looks at before they are used."""
    if wishes.precision not in get_args(PrecisionName):
        names = ", ".join(get_args(PrecisionName))
        raise VsrkitError(f"--precision is {names}, not {wishes.precision!r}")
    if wishes.workers < 1:
        raise VsrkitError(f"--workers is at least 1, not {wishes.workers}")
    if wishes.chunk is not None and wishes.chunk < 0:
        raise VsrkitError(f"--chunk is 0 or more frames, not {wishes.chunk}")
    if wishes.tile and wishes.tile < spec.minimum:
        raise VsrkitError(
            f"--tile is 0 for whole frames or at least {spec.minimum} pixels, not {wishes.tile}"
        )


def _say_what_is_lost(source: Source, encoding: Encoding, *, demanded: bool) -> None:
    """Bits and chroma that the output has no place for."""
    name = source.info.pix_fmt
    old, new = layout_of(planar_format(name)), layout_of(encoding.pix_fmt)
    assert old is not None
    assert new is not None
    coarser = any(a < b for a, b in zip(old.halvings, new.halvings, strict=True))
    if demanded or source.images or not (new.bits < old.bits or coarser):
        return
    log.warning("%s becomes %s: %s has no more", name, encoding.pix_fmt, encoding.codec)


def _few_cores(device: str, workers: int) -> bool:
    """Whether reading, model and encoder had better take turns.

    Where the model keeps every core busy, an encoder at its side takes one away from it again and
    again, and the others wait: on two cores that costs more than it saves (benchmarks/pipeline.py).
    """
    return device == "cpu" and torch.get_num_threads() <= 2 * workers


def whole_frames(source: Source) -> Source:
    """The source as it will be read: interlaced frames are made whole, or refused."""
    if source.info.interlaced and not source.deinterlace:
        raise VideoError(
            f"{source.path} is interlaced; leave --no-deinterlace out to have it deinterlaced"
        )
    if source.info.interlaced:
        log.warning("%s is interlaced: its frames are deinterlaced (bwdif)", source.path)
    return source


def _model(wish: str | Path | nn.Module | None) -> tuple[str, nn.Module]:
    if isinstance(wish, nn.Module):
        return type(wish).__name__, wish
    name = str(wish) if wish is not None else default_model()
    return name, load_model(name)


def _fitting(
    source: Source,
    wishes: Wishes,
    model: nn.Module,
    size: tuple[int, int],
    *,
    suffix: str | None,
    chosen: Choices,
    by_rows: bool,
) -> tuple[Encoding | None, MemoryPlan, tuple[str, ...]]:
    """The encoding and the plan that keep within memory, and what is unusual about them.

    Where the encoder is left to us and does not fit, the first leaner one that does is taken.
    """
    if suffix is None:
        return None, _memory(model, source, wishes, chosen, None, size, by_rows=by_rows), ()
    refused: MemoryLimitError | None = None
    for codec in _codecs(wishes, suffix, chosen):
        encoding = _encoding(source, wishes, size, suffix, codec)
        try:
            memory = _memory(model, source, wishes, chosen, encoding, size, by_rows=by_rows)
        except MemoryLimitError as error:
            refused = refused or error
            continue
        return encoding, memory, _notes(encoding, wishes, suffix, begun=chosen.codec is not None)
    assert refused is not None
    raise refused


def _codecs(wishes: Wishes, suffix: str, chosen: Choices) -> tuple[str | None, ...]:
    """Codecs to try; None is the usual one. A job that was begun keeps its own."""
    lean = LEAN_CODECS.get(suffix, ())
    if wishes.codec or wishes.crf is not None or wishes.pix_fmt or wishes.options:
        return (wishes.codec,)
    if chosen.codec:
        return (chosen.codec if chosen.codec in lean else None,)
    return (None, *lean)


def _notes(encoding: Encoding, wishes: Wishes, suffix: str, *, begun: bool) -> tuple[str, ...]:
    """Lines about an encoder that is another one than usual, or does without something."""
    size = f"{encoding.width}x{encoding.height}"
    if wishes.codec is None and encoding.codec in LEAN_CODECS.get(suffix, ()):
        why = "as this job began" if begun else f"the usual codec needs too much memory for {size}"
        return (
            f"encodes with {encoding.codec}, files become larger: {why}; "
            "choose by --codec, or raise --max-memory",
        )
    if spared := what_is_spared(encoding):
        return (
            f"{encoding.codec} does without {spared}, files become larger: they need too much "
            f"memory for {size}; choose by --codec or -e",
        )
    return ()


def _encoding(
    source: Source, wishes: Wishes, size: tuple[int, int], suffix: str, codec: str | None
) -> Encoding:
    height, width = _turned(source, size, suffix)
    encoding = choose_encoding(
        source.info,
        suffix=suffix,
        height=height,
        width=width,
        codec=codec,
        crf=wishes.crf,
        pix_fmt=wishes.pix_fmt,
        options=wishes.options,
    )
    if suffix == ".y4m" and source.info.rotation % 180:
        return replace(encoding, sample_aspect=1 / encoding.sample_aspect)
    return encoding


def _turned(source: Source, size: tuple[int, int], suffix: str) -> tuple[int, int]:
    """The size as it is written: y4m cannot say that a picture is to be turned."""
    return source.turned_size(*size) if suffix == ".y4m" else size


def _memory(
    model: nn.Module,
    source: Source,
    wishes: Wishes,
    chosen: Choices,
    encoding: Encoding | None,
    size: tuple[int, int],
    *,
    by_rows: bool,
) -> MemoryPlan:
    info = source.info
    spec: Spec = model.spec  # type: ignore[assignment]
    made = FRAME * info.height * info.width * spec.scale**2
    resized = size[0] != info.height * spec.scale
    after = encoder_memory(encoding) if encoding else 0
    # Images, and frames that get another size, are whole, and three times for a moment.
    after += 3 * made if resized or encoding is None else 0
    after += 2 * FRAME * info.height * info.width if source.images else 0  # files are read whole
    return plan_memory(
        model,
        height=info.height,
        width=info.width,
        limit=_limit(wishes) // max(1, wishes.workers),
        tile=chosen.tile_for(wishes.tile),
        chunk=wishes.chunk,
        after=after,
        held=picture_bytes(info.pix_fmt) if by_rows else FRAME,
        by_rows=by_rows,
    )


def _limit(wishes: Wishes) -> int:
    if isinstance(wishes.max_memory, str):
        return parse_size(wishes.max_memory)
    return round(SHARE * free_memory()) if wishes.max_memory is None else wishes.max_memory


def _say_tiles(plan: MemoryPlan, wishes: Wishes, spec: Spec) -> None:
    if plan.tile and spec.tile is None and wishes.tile is None:
        log.warning(
            "runs in tiles of %d pixels to stay below %s", plan.tile, format_size(_limit(wishes))
        )
