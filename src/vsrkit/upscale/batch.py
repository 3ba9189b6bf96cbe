"""Upscale what the command line names: a video, a pipe, a preview, or a folder of videos."""

import logging
import re
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from torch import nn

from vsrkit.cluster.executor import LostClusterError
from vsrkit.errors import StoppedError, UsageError, VideoError, VsrkitError
from vsrkit.hardware.files import is_address
from vsrkit.models.zoo import default_model, load_model
from vsrkit.upscale.fidelity import check_page, write_report
from vsrkit.upscale.job import Upscaled, upscale_video
from vsrkit.upscale.options import OnProgress, UpscaleOptions, stride_of
from vsrkit.upscale.pipe import upscale_pipe
from vsrkit.upscale.prepare import open_input, prepare
from vsrkit.upscale.preview import preview_video
from vsrkit.upscale.work_folder import NUMBER, WorkFolder
from vsrkit.video.codecs import DEFAULT_CODECS
from vsrkit.video.images import is_image, natural_order
from vsrkit.video.probe import is_video
from vsrkit.video.read import open_source

log = logging.getLogger("vsrkit")


def upscale_any(
    source: str,
    target: str,
    options: UpscaleOptions,
    *,
    raw: str | None = None,
    report: Path | None = None,
    preview: int | None = None,
    on_progress: OnProgress = lambda _: None,
    executor: Executor | None = None,
) -> tuple[list[str], int]:
    """Upscale a video, a pipe or a folder of videos; lines to show, and how many videos failed.

    source: as in `upscale_video`, a folder of videos, or `-` for standard input.
    target: as in `upscale_video`, a folder for videos, or `-` for standard output.
    options: of every video.
    raw: size, format and rate of rawvideo on standard input, such as `320x180,yuv420p,25`.
    report: page to write about the fidelity of the result.
    preview: upscale only so many frames of each shot and write pictures.
    on_progress: called after every frame.
    executor: as in `upscale_video`; pipes and previews run in this process.
    """
    if raw and source != "-":
        raise VideoError("--raw describes the format of standard input; use it with -i -")
    if executor and ("-" in (source, target) or preview is not None):
        raise UsageError("pipes and previews run on this machine; leave out --cluster")
    if "-" in (source, target):
        if report or preview is not None:
            raise VideoError("--report and --preview need files; a pipe can be read only once")
        return [upscale_pipe(source, target, options, raw, on_progress)], 0
    if videos := videos_in(Path(source)):
        if preview is not None:
            return _for_each(
                videos,
                lambda video: _preview(
                    video, Path(target) / video.name, options, preview, on_progress
                ),
            )
        return _folder(source, target, options, report, videos, on_progress, executor)
    if preview is not None:
        if Path(target).suffix:
            raise VideoError(f"a preview is a folder of pictures; {target} looks like a file")
        return _preview(source, Path(target), options, preview, on_progress), 0
    return [_one(source, target, options, report, on_progress, executor)], 0


def default_target(source: str, options: UpscaleOptions, *, preview: bool = False) -> Path:
    """Where the output of `source` goes if none is named: beside it, as `in.x4.mkv`.

    Folders and images get a folder, patterns a pattern in a folder beside theirs. The suffix names
    the factor, or the height if that is what the options ask for.

    source: path of the input.
    options: scale, height and model are used.
    preview: whether a folder for preview pictures is needed.
    """
    path = Path(source.rsplit("/", 1)[-1] if is_address(source) else source)
    if source == "-":
        raise UsageError("the input is a pipe; name an output, for example -o out.mkv or -o -")
    if preview:
        return path.with_name(f"{path.stem}-preview".replace(".", "-"))
    if options.height is not None:
        label = f"{options.height}p"
    elif options.scale is not None:
        label = f"x{options.scale}"
    else:
        model = options.model
        if not isinstance(model, nn.Module):
            model = load_model(str(model) if model is not None else default_model())
        label = f"x{model.spec.scale}"  # type: ignore[union-attr]
    if re.search(NUMBER, path.name) and not path.exists():
        if path.parent.name in ("", ".."):
            raise UsageError(f"name an output for {source}, for example -o out/%04d.png")
        return path.parent.with_name(f"{path.parent.name}.{label}") / f"{path.stem}.png"
    if path.is_dir():
        path = path if path.name not in ("", "..") else path.resolve()
        return path.with_name(f"{path.name}.{label}")
    return path.with_name(f"{path.stem}.{label}{'' if is_image(path) else '.mkv'}")


def videos_in(folder: Path) -> list[Path]:
    """The videos of a folder, in natural order; empty for a folder of images and for files.

    A folder with both counts as a folder of videos if it has at least as many videos as images.
    """
    if not folder.is_dir():
        return []
    files = sorted(folder.iterdir(), key=natural_order)
    found = [path for path in files if is_video(path)]
    return found if len(found) >= sum(map(is_image, files)) else []


def targets_of(videos: list[Path], folder: Path) -> list[Path]:
    """The output file of each video: its own name, with .mkv if its format cannot be written.

    If two videos would get the same name (a.avi and a.mkv), one keeps its suffix: a.avi.mkv.
    """
    names: dict[Path, str] = {}
    for video in sorted(videos, key=lambda video: video.suffix not in DEFAULT_CODECS):
        suffix = video.suffix.lower() if video.suffix.lower() in DEFAULT_CODECS else ".mkv"
        taken = {name.casefold() for name in names.values()}
        name = f"{video.stem}{suffix}"
        names[video] = name if name.casefold() not in taken else f"{video.name}{suffix}"
    return [folder / names[video] for video in videos]


def _one(
    source: str | Path,
    target: str | Path,
    options: UpscaleOptions,
    report: Path | None,
    on_progress: OnProgress,
    executor: Executor | None,
) -> str:
    if report:
        check_page(report)
        _check_comparable(source, options)
    done = upscale_video(
        source, target, options=options, on_progress=on_progress, executor=executor
    )
    if report:
        write_report(open_input(source, options, warn=False), open_source(target), report)
    return describe(done)


def _check_comparable(path: str | Path, options: UpscaleOptions) -> None:
    """Raise VideoError if a report is wanted of an output that is smaller than the input."""
    source, wanted = open_input(path, options, warn=False), options.height
    height, _ = source.oriented_size(source.info.height, source.info.width)
    if wanted is not None and wanted < height:
        raise VideoError(
            f"a report needs an upscaled video, and --height {wanted} is less than the "
            f"{height} lines of {path}; omit --report"
        )


def describe(done: Upscaled) -> str:
    """A line about the finished video."""
    speed = (done.frames - done.resumed) / max(done.seconds, 1e-3)
    resumed = f", {done.resumed} of them in an earlier run" if done.resumed else ""
    frames = f"{done.frames} frame{'s' if done.frames != 1 else ''}"
    shots = f"{done.shots} shot{'s' if done.shots != 1 else ''}"
    return (
        f"{done.path}: {frames} of {done.width}x{done.height}{resumed}, "
        f"{shots}, {done.model}, {done.seconds:.1f} s ({speed:.2f} fps)"
    )


def _folder(
    source: str,
    folder: str,
    options: UpscaleOptions,
    report: Path | None,
    videos: list[Path],
    on_progress: OnProgress,
    executor: Executor | None,
) -> tuple[list[str], int]:
    """Upscale every video of a folder; if one fails, the others are still processed."""
    if Path(folder).is_file() or Path(folder).suffix.lower() in DEFAULT_CODECS:
        raise VideoError(
            f"{source} is a folder of videos, so the output must be a folder, not {folder}"
        )
    if Path(folder).resolve() == Path(source).resolve():
        raise VideoError(f"input and output are the same folder, {source}; choose another output")
    targets = dict(zip(videos, targets_of(videos, Path(folder)), strict=True))

    def upscale(video: Path) -> list[str]:
        target = targets[video]
        begun = WorkFolder.beside(target).path.exists()
        if target.exists() and not target.samefile(video) and not (options.overwrite or begun):
            return [f"{target}: skipped, the file exists; use -y to overwrite it"]
        page = report and report.with_name(f"{video.stem}-{report.name}")
        return [_one(video, target, options, page, on_progress, executor)]

    lines, failed = _for_each(videos, upscale)
    return [*lines, f"{len(videos) - failed} of {len(videos)} videos done"], failed


def _for_each(videos: list[Path], work: Callable[[Path], list[str]]) -> tuple[list[str], int]:
    """Call `work` for each video; the lines to show, and how many failed."""
    lines, failed = [], 0
    for video in videos:
        try:
            lines += work(video)
        except (StoppedError, LostClusterError):
            raise
        except Exception as error:  # noqa: BLE001  one failure must not stop the others
            failed += 1
            lines.append(f"{video}: failed: {str(error) or type(error).__name__}")
    return lines, failed


def _preview(
    path: str | Path,
    folder: Path,
    options: UpscaleOptions,
    frames: int,
    on_progress: OnProgress,
) -> list[str]:
    source = open_input(path, options)
    prepared = prepare(source, options, suffix=None)
    if frames < 1:
        raise VsrkitError(f"--preview needs at least one frame per shot, not {frames}")
    stride = stride_of(prepared.engine.spec, options.quality)
    written = preview_video(
        source, prepared.engine, folder, frames=frames, stride=stride, on_progress=on_progress
    )
    return [str(path) for path in written]
