"""Smaller and faster forms of ONNX files: float16 and int8 convolutions.

Only convolutions change, and what directly follows them. Positions in pixels stay float32: warping
and deformable convolution compute them, and float16 has steps of a quarter pixel at column 512.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)

from vsrkit.export.chain import Array

HALF = {"Conv", "ConvTranspose"}
AFTER = {"Relu", "LeakyRelu", "PRelu", "DepthToSpace"}  # keep float16 after a convolution
# Convolutions that stay float in int8 files, by parts of the names of their weights: flow and
# offsets are positions, and with rounded last layers pictures become darker.
FLOAT_PARTS = ("flow", "spynet", "fnet", "motion", "offset", "tail", "conv_last", "conv_out")


def to_float16(path: Path) -> None:
    """Convert the convolutions of a file to float16; inputs and outputs stay float32.

    onnxruntime's converter declares the cast of a value once for each of its uses, which no runtime
    accepts, if only some nodes are converted.
    """
    model = named(onnx.load(path))
    graph = model.graph
    half = half_nodes(graph)
    weights = {weight.name: weight for weight in graph.initializer}
    rest = [node for node in graph.node if node.name not in half]
    # Values that are needed in float32, by other nodes or as an output of the file.
    full = {name for node in rest for name in node.input} | {out.name for out in graph.output}
    made: dict[str, str] = {}  # float32 value -> the same in float16
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.name not in half:
            nodes.append(node)
            continue
        for place, name in enumerate(node.input):
            if name and name not in made:
                made[name] = f"{name}_half"
                if name in weights:
                    values = onnx.numpy_helper.to_array(weights[name]).astype(np.float16)
                    graph.initializer.append(onnx.numpy_helper.from_array(values, made[name]))
                else:
                    nodes.append(_cast(name, made[name], onnx.TensorProto.FLOAT16))
            node.input[place] = made.get(name, "")
        (name,) = node.output
        made[name] = node.output[0] = f"{name}_half"
        nodes.append(node)
        if name in full:
            nodes.append(_cast(made[name], name, onnx.TensorProto.FLOAT))
    used = {name for node in nodes for name in node.input}
    kept = [weight for weight in graph.initializer if weight.name in used]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    onnx.save(model, path)


def _cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return onnx.helper.make_node("Cast", [source], [target], name=f"{target}_cast", to=to)


def named(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a name for every node."""
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{number}"
    return model


def half_nodes(graph: onnx.GraphProto) -> set[str]:
    """Names of convolutions, their activations, and sums of both inputs of that kind."""
    half: set[str] = set()
    values: set[str] = set()
    for node in graph.node:  # in topological order
        inputs = [name for name in node.input if name]
        if (
            node.op_type in HALF
            or (node.op_type in AFTER and inputs[0] in values)
            or (node.op_type == "Add" and values.issuperset(inputs))
        ):
            half.add(node.name)
            values.update(node.output)
    return half


def to_int8(path: Path, calls: Iterable[Mapping[str, Array]]) -> None:
    """Quantise the convolutions of a file: QDQ, weights per channel, activations by calibration.

    path: of the file, which is replaced
    calls: inputs of the graph on real frames

    Symmetric int8 for weights and activations, which TensorRT demands.
    """
    model = named(onnx.load(path))
    onnx.save(model, path)
    quantised = quantised_nodes(model.graph)
    if not quantised:
        return
    logging.getLogger("root").disabled = True  # it recommends a pass that freezes sizes
    try:
        quantize_static(
            str(path),
            str(path),
            _Calibration(calls),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            nodes_to_quantize=quantised,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            extra_options={"ActivationSymmetric": True},
        )
    finally:
        logging.getLogger("root").disabled = False


def quantised_nodes(graph: onnx.GraphProto) -> list[str]:
    """Names of convolutions of features, but for flow, offsets and the last layers."""
    shapes = {weight.name: weight.dims for weight in graph.initializer}
    return [
        node.name
        for node in graph.node
        if node.op_type == "Conv"
        and node.input[1] in shapes
        and min(shapes[node.input[1]][:2]) >= 8  # pictures and results have few channels
        and not any(part in node.input[1] for part in FLOAT_PARTS)
    ]


class _Calibration(CalibrationDataReader):  # type: ignore[misc]  # it has no types
    def __init__(self, calls: Iterable[Mapping[str, Array]]) -> None:
        self._calls: Iterator[Mapping[str, Array]] = iter(calls)

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._calls, None)
