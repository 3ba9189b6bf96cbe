"""Trace a module into an ONNX file for frames of any size."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import onnx_ir
import torch
from onnx_ir.passes import common as passes
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.export.rewrites import exportable_functions

OPSET = 18  # GridSample of opset 20 is wrong in TensorRT (TensorRT#4646)


def write_onnx(
    path: Path,
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    metadata: Mapping[str, str],
) -> None:
    """Trace a module and write an ONNX file.

    path: of the file
    module: from `rewrites.exportable`; takes the inputs in their order
    inputs: by name; their heights and widths become dynamic. The size must be unlike any to which
        the module pads, so that the trace holds the padding.
    outputs: their names
    metadata: strings to store in the file

    Raises VsrkitError if the graph cannot be written in the operators of ONNX.
    """
    dynamic = {name: {2: "height", 3: "width"} for name, x in inputs.items() if x.shape[-1] > 1}
    with exportable_functions(), torch.no_grad(), warnings.catch_warnings():
        # Of comparisons of sizes, whose result is fixed: `verify` runs the file at other sizes.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                module,
                tuple(inputs.values()),
                str(path),
                # The exporter by torch.export takes ten times as long and minutes for windows
                # (notes/decisions/0038-export.md).
                dynamo=False,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_axes=dynamic,
            )
        except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
            reason = str(error).strip().splitlines()[0]
            raise VsrkitError(f"{type(module).__name__} cannot be exported: {reason}") from error
    onnx.save(simplified(onnx.load(path), metadata), path)


def simplified(model: onnx.ModelProto, metadata: Mapping[str, str]) -> onnx.ModelProto:
    """The same graph with equal computations, most of them of sizes, joined."""
    graph = onnx_ir.from_proto(model)
    passes.CommonSubexpressionEliminationPass()(graph)
    passes.RemoveUnusedNodesPass()(graph)
    graph.metadata_props.update(metadata)
    return onnx_ir.to_proto(graph)


def check_operators(path: Path) -> None:
    """Raise VsrkitError unless every operator of a file is one of ONNX at its opset."""
    model = onnx.load(path, load_external_data=False)
    foreign = {node.domain for node in model.graph.node} - {"", "ai.onnx"}
    if foreign:
        raise VsrkitError(f"{path.name} has operators that are not ONNX's: {sorted(foreign)}")
    onnx.checker.check_model(model)
