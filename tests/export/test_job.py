"""Exported files give the model's output at sizes they were not traced at."""

import json
from dataclasses import replace

import pytest
import torch
from tests.models.test_contract import SMALL

pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
pytest.importorskip("onnx", reason="the extra `export` is not installed")

import numpy as np
import onnx

from vsrkit.errors import VsrkitError
from vsrkit.export.chain import run_chain
from vsrkit.export.job import export_model, load_chain
from vsrkit.export.precision import AFTER, HALF, half_nodes, quantised_nodes
from vsrkit.export.runtimes import open_file
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig
from vsrkit.models.bicubic import Bicubic, BicubicConfig
from vsrkit.models.vsrt_small import SmallConfig
from vsrkit.models.zoo import ARCHITECTURES

CONFIGS = SMALL | {"edvr": replace(SMALL["edvr"], frames=3)}
TINY = SmallConfig(channels=8, tower_blocks=1, attention_channels=8)
# The options of vsrt-m and of vsrt-s-x2.
HYPOTHESES = SmallConfig(
    channels=8, tower_blocks=1, attention=False, flow_hypotheses=True, frame_hypotheses=True
)
STACKED = SmallConfig(channels=8, tower_blocks=1, attention=False, stack=2)


def small(name):
    """A small network without zeros, which would hide parts of it."""
    torch.manual_seed(0)
    config = name if isinstance(name, SmallConfig) else CONFIGS[name]
    model = ARCHITECTURES["vsrt-small" if config is name else name].build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(std=0.02)
    return model.eval()


@pytest.mark.parametrize(
    "name", ["bicubic", "rcan", "tdan", "vespcn", "rrn", "rsdn", "frvsr", "animesr"]
)
def test_small_networks_of_one_graph(name, tmp_path):
    done = export_model(small(name), tmp_path, name=name)
    assert [path.name for path in done.files] == [
        path.name for path in sorted(tmp_path.glob("*.onnx"))
    ]
    # Rounding of float32; the pictures have values up to 1.
    assert max(difference.largest for difference in done.differences) < 1e-4
    sizes = {(difference.height, difference.width) for difference in done.differences}
    assert len(sizes) == 3
    assert json.loads(done.description.read_text())["differences"][0]["largest"] < 1e-4


@pytest.mark.parametrize("config", [TINY, HYPOTHESES, STACKED], ids=["s", "m", "x2"])
def test_step_functions_of_the_presets(config, tmp_path):
    done = export_model(small(config), tmp_path, name="tiny")
    assert max(difference.largest for difference in done.differences) < 1e-4
    chain, files = load_chain(done.description)
    assert set(files) == {"flow", "backward", "forward", "fuse", "reconstruct"}
    assert all(path.exists() for path in files.values())
    assert {call.step for call in chain.calls} == set(files)


def test_a_chain_of_one_frame(tmp_path):
    model = small("vsrt-stream")
    chain, files = load_chain(export_model(model, tmp_path, name="xs").description)
    session = open_file(files["step"])
    frame = torch.rand(1, 1, 3, 40, 36)
    with torch.no_grad():
        wanted = model(frame)[0]
    found = run_chain(chain, lambda step, inputs: session(inputs), [frame[0].numpy()])
    torch.testing.assert_close(torch.from_numpy(found[0]), wanted, atol=1e-5, rtol=0)


def test_a_recurrent_model_as_a_window(tmp_path):
    done = export_model(small("basicvsr"), tmp_path, name="b", window=3)
    assert [path.name for path in done.files] == ["b_window3_dyn-HW_fp32_op18.onnx"]
    graph = onnx.load(done.files[0]).graph
    assert [x.name for x in (*graph.input, *graph.output)] == ["input", "output"]
    batch, channels, *sides = graph.input[0].type.tensor_type.shape.dim
    assert (batch.dim_value, channels.dim_value) == (1, 9)
    assert all(side.dim_param for side in sides)
    assert max(difference.largest for difference in done.differences) < 1e-4


@pytest.fixture(scope="module")
def edvr(tmp_path_factory):
    """EDVR has deformable convolutions, and layers of all kinds."""
    return export_model(small("edvr"), tmp_path_factory.mktemp("edvr"), name="edvr").files[0]


def test_operators_are_those_of_opset_18(edvr):
    model = onnx.load(edvr)
    assert {(each.domain, each.version) for each in model.opset_import} == {("", 18)}
    assert "GridSample" in {node.op_type for node in model.graph.node}


def test_float16_is_for_convolutions_only(edvr):
    graph = onnx.load(edvr).graph
    half = half_nodes(graph)
    kinds = {node.op_type for node in graph.node if node.name in half}
    assert {"Conv", "Relu"} <= kinds <= {*HALF, *AFTER, "Add"}
    assert all(node.name in half for node in graph.node if node.op_type == "Conv")


def test_int8_is_not_for_offsets_and_last_layers(edvr):
    graph = onnx.load(edvr).graph
    chosen = set(quantised_nodes(graph))
    weights = [node.input[1] for node in graph.node if node.name in chosen]
    assert any("feature_extraction" in name for name in weights)
    assert any("reconstruction" in name for name in weights)
    assert not any("offset" in name or "tail" in name for name in weights)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_lower_precision_is_close_and_not_equal(precision, tmp_path):
    done = export_model(small("rcan"), tmp_path, name="rcan", precision=precision)
    assert all(1e-7 < difference.mean < 1e-2 for difference in done.differences)
    model = onnx.load(done.files[0])
    kinds = {weight.data_type for weight in model.graph.initializer}
    assert getattr(onnx.TensorProto, {"fp16": "FLOAT16", "int8": "INT8"}[precision]) in kinds
    assert [x.name for x in (*model.graph.input, *model.graph.output)] == ["input", "output"]
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_openvino(tmp_path):
    pytest.importorskip("openvino", reason="the extra `export` is not installed")
    done = export_model(small("rrn"), tmp_path, name="rrn", kind="openvino")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".bin", ".json", ".xml"]
    assert max(difference.largest for difference in done.differences) < 1e-4


class Frozen(Bicubic):
    """Its size is computed outside of the graph."""

    def forward(self, clip, keep=None):
        height = int(clip.shape[-2])
        return super().forward(clip, keep) * torch.linspace(0, 1, 4 * height)[:, None]


class Foreign(Bicubic):
    """An operator that ONNX does not have."""

    def forward(self, clip, keep=None):
        return super().forward(clip, keep) + torch.special.bessel_j0(clip).mean()


@pytest.mark.filterwarnings("ignore")  # of the exporter, about what the test is for
@pytest.mark.parametrize("kind", [Frozen, Foreign])
def test_a_graph_that_does_not_work_is_an_error_and_leaves_no_file(kind, tmp_path):
    with pytest.raises(VsrkitError):
        export_model(kind(BicubicConfig()).eval(), tmp_path, name="wrong")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "window", "words"),
    [
        ("vsrt", None, "16x16"),
        ("edvr", 7, "window of 3"),
        ("basicvsr", 4, "odd number"),
        ("basicvsrpp", None, "--window 5"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(name, window, words, tmp_path):
    with pytest.raises(VsrkitError, match=words):
        export_model(small(name), tmp_path, name=name, window=window)
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_not_changed(tmp_path):
    model = BasicVSR(BasicVSRConfig(channels=8, blocks=1)).eval()
    clip = torch.rand(1, 2, 3, 36, 40)
    with torch.no_grad():
        before = model(clip)
        export_model(model, tmp_path, name="b", window=3)
        assert torch.equal(model(clip), before)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_shipped_model(tmp_path):
    done = export_model("vsrt-xs", tmp_path)
    assert max(difference.largest for difference in done.differences) < 1e-3
    assert np.isfinite([difference.mean for difference in done.differences]).all()
