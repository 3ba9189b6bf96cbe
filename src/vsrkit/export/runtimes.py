"""Run exported files in the runtimes that they are for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np

from vsrkit.errors import VsrkitError
from vsrkit.export.chain import Array

Format: TypeAlias = Literal["onnx", "openvino"]


class Session(Protocol):
    """A loaded file: inputs by name -> outputs by name."""

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...


def open_file(path: Path, threads: int = 0) -> Session:
    """Load an ONNX file by ONNX Runtime or an OpenVINO file by OpenVINO, on the CPU.

    path: `.onnx` or `.xml`
    threads: that a call may use; 0 for as many as the runtime chooses

    Raises VsrkitError if the runtime refuses the file.
    """
    opened = _OpenVino if path.suffix == ".xml" else _OnnxRuntime
    try:
        return opened(path, threads)
    except Exception as error:
        raise VsrkitError(f"{path.name} does not load: {_first_line(error)}") from error


def run_checked(session: Session, path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run a file; an error of the runtime becomes a VsrkitError with the sizes of the inputs."""
    try:
        return session(inputs)
    except Exception as error:
        sizes = ", ".join(f"{name} {x.shape}" for name, x in inputs.items())
        raise VsrkitError(f"{path.name} fails for {sizes}: {_first_line(error)}") from error


class _OnnxRuntime:
    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime  # noqa: PLC0415  an extra

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised too
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._names = [output.name for output in self._session.get_outputs()]
        self._inputs = {taken.name for taken in self._session.get_inputs()}

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        taken = {name: value for name, value in inputs.items() if name in self._inputs}
        return dict(zip(self._names, self._session.run(self._names, taken), strict=True))


class _OpenVino:
    def __init__(self, path: Path, threads: int) -> None:
        import openvino  # noqa: PLC0415  an extra

        # Processors with bfloat16 would take it, and warp by up to 1.4 pixels to the side.
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
        self._compiled = openvino.Core().compile_model(str(path), "CPU", settings)
        self._inputs = {taken.get_any_name() for taken in self._compiled.inputs}

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        taken = {name: value for name, value in inputs.items() if name in self._inputs}
        results = self._compiled(taken)
        return {out.get_any_name(): np.array(value) for out, value in results.items()}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
