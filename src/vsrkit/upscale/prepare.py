"""Resolve options into a job that can run: source, model, tiles, precision, device, encoder."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from vsrkit.cluster.executor import DaskExecutor
from vsrkit.cluster.files import fetch_to_cache
from vsrkit.cluster.survey import Agreement
from vsrkit.errors import MemoryLimitError, VideoError, VsrkitError
from vsrkit.hardware.device import (
    CANDIDATES,
    Precision,
    PrecisionName,
    resolve_device,
    resolve_precision,
)
from vsrkit.hardware.files import is_address
from vsrkit.hardware.memory import format_size
from vsrkit.inference.calibration import Calibration, find_calibration
from vsrkit.inference.engine import Engine, make_engine
from vsrkit.inference.memory import FRAME, SHARE, MemoryPlan, plan_memory
from vsrkit.inference.reference import EngineReference, refer
from vsrkit.models.spec import Spec
from vsrkit.models.zoo import default_model, load_model
from vsrkit.upscale.int8_choice import choose_fastest, prepare_int8
from vsrkit.upscale.options import (
    ResolvedOptions,
    UpscaleOptions,
    check_possible,
    output_size,
    wanted_factor,
)
from vsrkit.video.codecs import (
    DEFAULT_CODECS,
    LOW_MEMORY_CODECS,
    NO_LIMIT,
    SIZE_LIMITS,
    Encoding,
    choose_encoding,
    disabled_features,
    encoder_memory,
)
from vsrkit.video.colour import bytes_per_pixel, layout_of, planar_format
from vsrkit.video.encode import open_encoder
from vsrkit.video.mux import check_container
from vsrkit.video.read import Source, open_source
from vsrkit.video.side_data import has_alpha

log = logging.getLogger("vsrkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedJob:
    """A job that is ready to run."""

    model: str
    engine: Engine
    loadable: str | None  # name that `load_model` takes; None for a model that has none
    sharpness: float | None
    device: str  # of the workers of a cluster, or of the engine
    memory: MemoryPlan
    height: int  # of the output
    width: int
    encoding: Encoding | None  # None for images
    instructions: str | None = None  # that the workers of a cluster are pinned to
    notes: tuple[str, ...] = ()  # where the encoder differs from the default to save memory

    @property
    def label(self) -> str:
        """The name of the model with its sharpness, if it was given one."""
        at = "" if self.sharpness is None else f" at sharpness {self.sharpness:g}"
        return f"{self.model}{at}"

    def reference(self) -> EngineReference:
        """The engine for workers in other processes."""
        return replace(refer(self.engine, self.loadable, self.sharpness), device=self.device)


def open_input(path: str | Path, options: UpscaleOptions, *, warn: bool = True) -> Source:
    """Open a source with the time span, frame rate and deinterlacing of the options.

    path: as in `upscale_video`; the file at an address is fetched into the cache folder.
    warn: whether to log that the source will be deinterlaced.
    """
    if is_address(path):
        path = fetch_to_cache(str(path))
    source = open_source(
        path, frame_rate=options.exact_frame_rate, follow_references=options.follow_references
    )
    return configure_input(source, options, warn=warn)


def configure_input(source: Source, options: UpscaleOptions, *, warn: bool = True) -> Source:
    """Set the time span and deinterlacing of an open source; check that it may be deinterlaced."""
    interlaced = source.info.interlaced
    if options.deinterlace == "refuse":
        if interlaced:
            raise VideoError(
                f"{source.path} is flagged as interlaced; --deinterlace auto deinterlaces it, "
                "--deinterlace never treats it as progressive"
            )
        return replace(source, span=options.span)
    if options.deinterlace == "always" and source.images:
        raise VideoError(f"{source.path} holds images; --deinterlace always works on videos only")
    if warn and options.deinterlace == "always":
        log.warning("%s: all frames are deinterlaced (bwdif)", source.path)
    elif warn and interlaced and options.deinterlace == "auto":
        log.warning(
            "%s is flagged as interlaced: its frames are deinterlaced (bwdif); "
            "--deinterlace never leaves them as they are",
            source.path,
        )
    return replace(source, span=options.span, deinterlace=options.deinterlace)


def prepare(
    source: Source,
    options: UpscaleOptions,
    *,
    suffix: str | None,
    earlier: ResolvedOptions | None = None,
    scratch: Path | None = None,
    by_rows: bool = True,
    cluster: DaskExecutor | None = None,
) -> PreparedJob:
    """Make every choice before the first frame, and refuse what cannot work.

    source: opened by `open_input`.
    suffix: of the video to be written, in lower case; None for images.
    earlier: options of an unfinished run of the same job, whose choices are kept.
    scratch: folder for tiles that do not fit into memory.
    by_rows: whether frames can be read a few rows at a time; those of a pipe cannot.
    cluster: whose workers run the model, and decide with each other how.
    """
    name, model = _load(options, wanted_factor(source.info, options))
    spec: Spec = model.spec  # type: ignore[assignment]
    if options.tile and options.tile < spec.minimum:
        raise VsrkitError(
            f"--tile is 0 for whole frames or at least {spec.minimum} pixels, not {options.tile}"
        )
    info = source.info
    _warn_about_dropped(source, suffix)
    height, width = output_size(info, spec, scale=options.scale, height=options.height)
    check_possible(info, spec, height, width)
    loadable = None if isinstance(options.model, nn.Module) else name
    precision = earlier.precision_for(options.precision) if earlier else options.precision
    agreement: Agreement | None = None
    if cluster:
        agreement = cluster.agree(
            refer(Engine(model, CANDIDATES[0]), loadable, options.sharpness),
            precision=precision,
            device=options.device,
            instructions=earlier.instructions if earlier else None,
        )
        precision = agreement.precision
        if options.max_memory is None:
            options = replace(options, max_memory=round(SHARE * agreement.memory))
    # The engine of a cluster is opened by its workers; here it only has the right settings.
    device = "cpu" if agreement else resolve_device(options.device)
    # A model on the CPU uses every core. On two cores, an encoder that runs at the same time slows
    # it down by more than it saves (benchmarks/pipeline.py), except for light models.
    few_cores = device == "cpu" and torch.get_num_threads() <= 2 * options.workers
    if options.chunk is None and few_cores:
        options = replace(options, chunk=2 if spec.light else 0)
    encoding, memory, notes = _fit_memory(
        source, options, model, (height, width), suffix=suffix, earlier=earlier, by_rows=by_rows
    )
    if encoding is not None and suffix is not None:
        turned = _turned(source, (height, width), suffix)
        _warn_about_losses(source, encoding, requested=options.pix_fmt is not None)
        open_encoder(encoding)  # an encoder that refuses its options does so now
        for line in check_container(suffix, encoding, source):
            log.warning("%s: %s", source.path, line)
        if (encoding.height, encoding.width) != turned:
            log.warning(
                "%dx%d becomes %dx%d by repeating the last line or column: "
                "%s does not allow odd sizes",
                *(turned[1], turned[0], encoding.width, encoding.height, encoding.pix_fmt),
            )
    if memory.tile and spec.tile is None and options.tile is None:
        limit = format_size(options.memory_limit)
        log.warning("runs in tiles of %d pixels to stay below %s of memory", memory.tile, limit)
    precision, calibration = choose_precision(source, model, precision, device, earlier)
    engine = make_engine(
        model, precision=precision, device=device, tile=memory.tile, calibration=calibration
    )
    if memory.low_memory and scratch:
        engine = replace(engine, scratch=scratch)
    if not memory.window_cache:
        engine = replace(engine, window_caches=None)
    return PreparedJob(
        model=name,
        engine=engine,
        loadable=loadable,
        sharpness=options.sharpness,
        device=agreement.device if agreement else device,
        instructions=agreement.instructions if agreement else None,
        memory=memory,
        height=height,
        width=width,
        encoding=encoding,
        notes=notes,
    )


def choose_precision(
    source: Source,
    model: nn.Module,
    requested: PrecisionName | Precision,
    device: str,
    earlier: ResolvedOptions | None,
) -> tuple[Precision, Calibration | None]:
    """The precision of a job and, for int8, the ranges.

    requested: a `Precision` is one that an unfinished run or a cluster has chosen.
    """
    chosen = requested
    if not isinstance(chosen, Precision):
        chosen = resolve_precision(chosen, model, device)
    if chosen.int8:
        return prepare_int8(source, model, chosen, device=device, earlier=earlier)
    if requested == "auto" and device == "cpu" and (calibration := find_calibration(model)):
        return choose_fastest(source, model, chosen, calibration)
    return chosen, None


def _warn_about_dropped(source: Source, suffix: str | None) -> None:
    """Name what no output of this kind keeps, before anything is computed."""
    info = source.info
    dropped = list(info.not_kept)
    if source.images and has_alpha(info.pix_fmt):
        dropped.append("the alpha channel")
    if suffix in (None, ".y4m"):
        kinds = {stream.kind for stream in info.streams} - {"video", "data"}
        dropped += [f"{kind}s" if kind != "audio" else kind for kind in sorted(kinds)]
        videos = [s for s in info.streams if s.kind == "video" and not s.attached]
        if len(videos) > 1:
            dropped.append(f"the other video stream{'s' if len(videos) > 2 else ''}")
    if dropped:
        verb = "is" if len(dropped) == 1 and not dropped[0].endswith("s") else "are"
        log.warning("%s of %s %s dropped", " and ".join(dropped), source.path, verb)


def _load(options: UpscaleOptions, factor: float | None) -> tuple[str, nn.Module]:
    """Name and model; a default one is chosen by the factor, or has the sharpness."""
    model, sharpness = options.model, options.sharpness
    if isinstance(model, nn.Module):
        return type(model).__name__, model
    if sharpness is not None:
        name = str(model) if model is not None else default_model()
        return name, load_model(name, sharpness=sharpness)
    name = str(model) if model is not None else default_model(factor)
    if model is None and name != default_model():
        log.warning("uses %s, the model for factors up to 2; choose another by --model", name)
    return name, load_model(name)


def _fit_memory(
    source: Source,
    options: UpscaleOptions,
    model: nn.Module,
    size: tuple[int, int],
    *,
    suffix: str | None,
    earlier: ResolvedOptions | None,
    by_rows: bool,
) -> tuple[Encoding | None, MemoryPlan, tuple[str, ...]]:
    """An encoding and a plan that fit into memory, and notes on them.

    If no codec was requested and the default one does not fit, codecs that need less are tried.
    """
    if suffix is None:
        memory = _plan_memory(model, source, options, earlier, None, size, by_rows=by_rows)
        return None, memory, ()
    refused: MemoryLimitError | None = None
    for codec in _codecs(options, suffix, earlier):
        encoding = _encoding(source, options, size, suffix, codec)
        try:
            memory = _plan_memory(model, source, options, earlier, encoding, size, by_rows=by_rows)
        except MemoryLimitError as error:
            refused = refused or error
            continue
        notes = _encoder_notes(encoding, options, suffix, resumed=earlier is not None)
        return encoding, memory, notes
    assert refused is not None
    raise refused


def _codecs(
    options: UpscaleOptions, suffix: str, earlier: ResolvedOptions | None
) -> tuple[str | None, ...]:
    """Codecs to try in order; None is the default one. An unfinished job keeps its codec."""
    smaller = LOW_MEMORY_CODECS.get(suffix, ())
    if options.codec or options.crf is not None or options.pix_fmt or options.encoder_options:
        return (options.codec,)
    if earlier and earlier.codec:
        return (earlier.codec if earlier.codec in smaller else None,)
    return (None, *smaller)


def _encoder_notes(
    encoding: Encoding, options: UpscaleOptions, suffix: str, *, resumed: bool
) -> tuple[str, ...]:
    """Where the encoder differs from the default one to save memory."""
    size = f"{encoding.width}x{encoding.height}"
    usual = DEFAULT_CODECS[suffix]
    if options.codec is None and not SIZE_LIMITS.get(usual, NO_LIMIT).allows(
        encoding.width, encoding.height
    ):
        return (f"encodes with {encoding.codec}, because {usual} does not take pictures of {size}",)
    if options.codec is None and encoding.codec in LOW_MEMORY_CODECS.get(suffix, ()):
        why = "as the job began" if resumed else f"the default codec needs too much for {size}"
        return (
            f"encodes with {encoding.codec} to save memory, files become larger ({why}); "
            "choose another by --codec, or raise --max-memory",
        )
    if spared := disabled_features(encoding):
        return (
            f"{encoding.codec} runs without {spared} to save memory at {size}, files become "
            "larger; choose another encoder by --codec, or its options by -e",
        )
    return ()


def _encoding(
    source: Source, options: UpscaleOptions, size: tuple[int, int], suffix: str, codec: str | None
) -> Encoding:
    height, width = _turned(source, size, suffix)
    encoding = choose_encoding(
        source.info,
        suffix=suffix,
        height=height,
        width=width,
        codec=codec,
        crf=options.crf,
        pix_fmt=options.pix_fmt,
        options=options.encoder_options,
    )
    if suffix == ".y4m" and source.info.rotation % 180:
        return replace(encoding, sample_aspect=1 / encoding.sample_aspect)
    return encoding


def _turned(source: Source, size: tuple[int, int], suffix: str) -> tuple[int, int]:
    """(height, width) as stored: y4m has no rotation, so its pixels are rotated."""
    return source.oriented_size(*size) if suffix == ".y4m" else size


def _plan_memory(
    model: nn.Module,
    source: Source,
    options: UpscaleOptions,
    earlier: ResolvedOptions | None,
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
    # Images and resized frames are whole, and there are three copies for a moment.
    after += 3 * made if resized or encoding is None else 0
    after += 2 * FRAME * info.height * info.width if source.images else 0  # read as whole files
    return plan_memory(
        model,
        height=info.height,
        width=info.width,
        limit=options.memory_limit // options.workers,
        tile=earlier.tile_for(options.tile) if earlier else options.tile,
        chunk=options.chunk,
        after=after,
        held=bytes_per_pixel(info.pix_fmt) if by_rows else FRAME,
        by_rows=by_rows,
    )


def _warn_about_losses(source: Source, encoding: Encoding, *, requested: bool) -> None:
    """Warn if the output has fewer bits or less chroma resolution than the source."""
    name = source.info.pix_fmt
    old, new = layout_of(planar_format(name)), layout_of(encoding.pix_fmt)
    assert old is not None
    assert new is not None
    coarser = old.kind != "grey" and any(
        a < b for a, b in zip(old.halvings, new.halvings, strict=True)
    )
    if requested or source.images or not (new.bits < old.bits or coarser):
        return
    log.warning("%s becomes %s: %s does not support more", name, encoding.pix_fmt, encoding.codec)
