"""Export a model: write its files, run them beside the model, and describe them in a JSON file."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from vsrkit import __version__
from vsrkit.data.degrade import BI, degrade
from vsrkit.errors import VsrkitError
from vsrkit.export.chain import Array, Chain, RunStep, run_chain
from vsrkit.export.graphs import Graphs, calls_of, expected, graphs_of
from vsrkit.export.onnx_file import OPSET, check_operators, write_onnx
from vsrkit.export.precision import to_float16, to_int8
from vsrkit.export.runtimes import Format, open_file, run_checked
from vsrkit.models.spec import Carried, Segments, Spec
from vsrkit.models.zoo import load_model
from vsrkit.video.read import read_video

ExportPrecision: TypeAlias = Literal["fp32", "fp16", "int8"]

# Heights and widths that files are checked at, none of which they were traced at.
CHECKED = ((45, 70), (64, 96), (91, 51))
CLIP = 4  # frames of these clips
CALIBRATION = (16, 256)  # most frames, and longest side of the crop of them
# Largest mean difference to the model, of values in [0, 1]. Rounding of float32 is below 1e-6, but
# a flow can differ by more where the picture has no texture.
LIMITS: dict[ExportPrecision, float] = {"fp32": 1e-4, "fp16": 4e-3, "int8": 3e-2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Difference of a file's output to the model's in float32, for frames of one size."""

    height: int
    width: int
    mean: float  # of the absolute values
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Files that were written, and how far their output is from the model's."""

    files: list[Path]
    description: Path
    differences: list[Difference]


def export_model(
    model: str | Path | nn.Module,
    output: Path,
    *,
    name: str | None = None,
    kind: Format = "onnx",
    precision: ExportPrecision = "fp32",
    window: int | None = None,
    calibration: Path | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Export:
    """Write a model as ONNX or OpenVINO files that take frames of any height and width.

    model: a name or a file that `load_model` accepts, or a model of the zoo
    output: folder for the files
    name: with which the names of the files begin; None for that of the model
    kind: `onnx`, or `openvino` for .xml and .bin
    precision: of the convolutions; `int8` is calibrated on real frames
    window: frames of a window. Recurrent models need it to be written as one graph; without it they
        are written as step functions, with a JSON file that says how they are chained.
    calibration: a video for `int8`; None for the bundled clip
    on_progress: called with each step of the work

    The files are compared with the model at three sizes. If an operator or a size does not work,
    VsrkitError is raised and nothing is written.
    """
    network = model if isinstance(model, nn.Module) else load_model(model)
    title = name or (type(model).__name__ if isinstance(model, nn.Module) else Path(model).stem)
    network = network.eval().to(device="cpu", dtype=torch.float32)
    graphs = graphs_of(network, window)
    recurrent = graphs.frames is not None and not _is_windowed(network)
    stem = f"{title}_window{graphs.frames}" if recurrent else title
    ending = f"dyn-HW_{precision}_op{OPSET}"
    with TemporaryDirectory(prefix="vsrkit-export-") as folder:
        work = Path(folder)
        paths = {
            step: work / f"{stem}{'_' * bool(step)}{step}_{ending}.onnx"
            for step in graphs.functions
        }
        for step, path in paths.items():
            on_progress(f"writing {path.name}")
            write_onnx(
                path,
                graphs.functions[step],
                graphs.examples(step),
                graphs.outputs(step),
                {"vsrkit": __version__, "model": title, "scale": str(graphs.spec.scale)},
            )
        if precision == "fp16":
            for path in paths.values():
                to_float16(path)
        elif precision == "int8":
            on_progress("calibrating")
            _quantise(graphs, paths, _clip(calibration))
        for path in paths.values():
            check_operators(path)
        if kind == "openvino":
            paths = {
                step: _openvino(path, half=precision == "fp16") for step, path in paths.items()
            }
        on_progress("comparing with the model")
        clip, sessions = _clip(None), {step: open_file(path) for step, path in paths.items()}

        def run(step: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
            return run_checked(sessions[step], paths[step], inputs)

        differences = [
            _compare(network, graphs, run, clip, size, LIMITS[precision]) for size in _sizes(graphs)
        ]
        about = _describe(title, graphs, paths, precision, differences)
        description = work / f"{stem}_{ending}.json"
        description.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        return Export(
            files=_moved([*paths.values()], output),
            description=_moved([description], output)[0],
            differences=differences,
        )


def load_chain(description: Path) -> tuple[Chain, dict[str, Path]]:
    """The chain of a JSON file that `export_model` wrote, and the files of its steps by name."""
    content = json.loads(description.read_text(encoding="utf-8"))
    files = {step: description.parent / name for step, name in content["files"].items()}
    return Chain.from_json(content["chain"]), files


def _is_windowed(model: nn.Module) -> bool:
    spec: Spec = model.spec  # type: ignore[assignment]
    return not isinstance(spec.context, Carried | Segments)


def _clip(path: Path | None) -> list[Array]:
    """Frames (1, 3, H, W) for calibration and comparison, at most 256 pixels along each side."""
    frames, side = CALIBRATION
    if path is None:
        bundled = Path(__file__).parents[1] / "assets" / "city.mp4"
        lr = degrade(torch.stack(list(islice(read_video(bundled), frames))), BI(scale=4))
    else:
        lr = torch.stack([x[:, :side, :side] for x in islice(read_video(path), frames)])
    return [np.ascontiguousarray(frame[None].numpy()) for frame in lr]


def _sizes(graphs: Graphs) -> list[tuple[int, int]]:
    """The sizes to compare at, enlarged to what the graphs take."""
    multiple, least = graphs.multiple, graphs.spec.minimum
    return [
        (_up(max(height, least), multiple), _up(max(width, least), multiple))
        for height, width in CHECKED
    ]


def _up(side: int, multiple: int) -> int:
    return -(-side // multiple) * multiple


def _quantise(graphs: Graphs, paths: Mapping[str, Path], clip: Sequence[Array]) -> None:
    height, width = (side // graphs.multiple * graphs.multiple for side in clip[0].shape[-2:])
    cropped = [np.ascontiguousarray(frame[..., :height, :width]) for frame in clip]
    calls: dict[str, list[dict[str, Array]]] = {step: [] for step in paths}
    for step, inputs in calls_of(graphs, cropped):
        calls[step].append(inputs)
    for step, path in paths.items():
        to_int8(path, calls[step])


def _openvino(path: Path, *, half: bool) -> Path:
    """Convert an ONNX file; returns the .xml file, beside which is a .bin file."""
    import openvino  # noqa: PLC0415  an extra

    try:
        converted = openvino.convert_model(str(path))
    except Exception as error:
        raise VsrkitError(f"OpenVINO cannot convert {path.name}: {error}") from error
    target = path.with_suffix(".xml")
    openvino.save_model(converted, str(target), compress_to_fp16=half)
    path.unlink()
    return target


def _compare(
    model: nn.Module,
    graphs: Graphs,
    run: RunStep,
    clip: Sequence[Array],
    size: tuple[int, int],
    limit: float,
) -> Difference:
    """Run the files and the model on frames of one size; an error if they differ by too much."""
    height, width = size
    taken = clip[: graphs.frames or CLIP]
    frames = [np.ascontiguousarray(frame[..., :height, :width]) for frame in taken]
    if graphs.frames:
        found = [run("", {"input": np.concatenate(frames, 1)})["output"]]
    else:
        found = run_chain(graphs.chain, run, frames)
    wanted = expected(model, graphs, frames)
    if found[0].shape != wanted[0].shape:
        raise VsrkitError(f"the file returns {found[0].shape} instead of {wanted[0].shape}")
    absolute = np.abs(np.stack(found) - np.stack(wanted))
    difference = Difference(
        height=height,
        width=width,
        mean=float(absolute.mean()),
        largest=float(absolute.max()),
    )
    if not difference.mean <= limit:
        raise VsrkitError(
            f"the output for {width}x{height} differs from the model's by {difference.mean:.2g} "
            f"on average (at most {limit:g} is accepted); nothing was written"
        )
    return difference


def _describe(
    title: str,
    graphs: Graphs,
    paths: Mapping[str, Path],
    precision: ExportPrecision,
    differences: Sequence[Difference],
) -> dict[str, Any]:
    """What a program must know to run the files."""
    spec = graphs.spec
    about: dict[str, Any] = {
        "vsrkit": __version__,
        "model": title,
        "scale": spec.scale,
        "precision": precision,
        "opset": OPSET,
        "minimum": max(spec.minimum, 1),
        "multiple": graphs.multiple,
        "files": {step: path.name for step, path in paths.items()},
        "window": graphs.frames,
        "differences": [asdict(difference) for difference in differences],
    }
    if graphs.frames is None:
        if isinstance(spec.context, Segments):
            about["segments"] = asdict(spec.context)
        about["chain"] = asdict(graphs.chain)
    return about


def _moved(paths: Sequence[Path], folder: Path) -> list[Path]:
    """Move finished files, with the .bin beside an .xml, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        for part in (path, *path.parent.glob(f"{path.stem}.bin")):
            shutil.move(part, folder / part.name)
    return [folder / path.name for path in paths]
