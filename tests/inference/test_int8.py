"""Engines in int8: calibrated, independent of chunks and workers, without drift."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.hardware.int8 import int8_fault
from vsrkit.inference.calibration import calibration_path, find_calibration
from vsrkit.inference.engine import make_engine, upscale_frames
from vsrkit.inference.int8 import calibrate, compare_with_floats
from vsrkit.inference.reference import refer
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig
from vsrkit.models.bicubic import Bicubic, BicubicConfig
from vsrkit.models.layers import int8 as layers
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.models.vsrt_stream import StreamConfig, VSRTStream
from vsrkit.models.zoo import load_model

pytestmark = pytest.mark.skipif(int8_fault() is not None, reason=str(int8_fault()))

FLOAT = Precision("float32", channels_last=True)
KINDS = ["int8", "int8-exact"]
SMALL = SmallConfig(
    channels=16, tower_blocks=2, attention_channels=8, attention_heads=1, segment=4, warmup=1
)


def trained(model: nn.Module) -> nn.Module:
    """Weights whose output differs visibly from the enlarged frame, as if trained."""
    torch.manual_seed(1)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            layer.weight.data.mul_(0.4)
    return model.eval()


def clip(frames=7, h=24, w=28):
    generator = torch.Generator().manual_seed(2)
    return torch.rand(frames, 3, h, w, generator=generator)


@pytest.fixture(scope="module", params=["small", "stream", "basicvsr"])
def model(request):
    match request.param:
        case "small":
            return trained(VSRTSmall(SMALL))
        case "stream":
            return trained(VSRTStream(StreamConfig(channels=16, blocks=2, flow_channels=8)))
        case _:
            return trained(BasicVSR(BasicVSRConfig(channels=16, blocks=2, segment=4, warmup=1)))


@pytest.fixture
def engine(model):
    found = calibrate(model, [clip()], about="a test")
    return make_engine(model, precision=replace(FLOAT, int8="int8"), calibration=found)


def run(engine, frames, **options):
    return torch.stack(list(upscale_frames(frames, engine, **options)))


@pytest.mark.parametrize("kind", KINDS)
def test_int8_is_right_and_not_float(engine, kind):
    engine = make_engine(
        engine.model, precision=replace(FLOAT, int8=kind), calibration=engine.calibration
    )
    comparison = compare_with_floats(engine, clip())
    assert comparison.is_right
    assert comparison.difference > 0
    assert comparison.speedup > 0


def test_chunks_workers_and_threads_change_no_bit(engine):
    frames = list(clip(11))
    wanted = run(engine, frames, cuts=[6])
    assert torch.equal(run(engine, frames, cuts=[6], chunk=8), wanted)
    assert torch.equal(run(engine, frames, cuts=[6], workers=2), wanted)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        assert torch.equal(run(engine, frames, cuts=[6]), wanted)
    finally:
        torch.set_num_threads(threads)


def test_a_reference_brings_its_calibration(engine):
    reference = refer(engine, None)
    frames = list(clip(3))
    assert torch.equal(run(reference.open(), frames), run(engine, frames))
    assert refer(reference.open(), None) == reference


@pytest.mark.parametrize("kind", KINDS)
def test_errors_do_not_grow_over_a_still_clip(engine, kind):
    """The difference to float at each place in a segment is that of the first segments."""
    engine = make_engine(
        engine.model, precision=replace(FLOAT, int8=kind), calibration=engine.calibration
    )
    floats = make_engine(engine.model, precision=FLOAT)
    still = list(clip(1).expand(48, -1, -1, -1))
    errors = (run(engine, still) - run(floats, still)).square().mean((1, 2, 3)).sqrt()
    early, late = errors[8:24].mean(), errors[-24:].mean()
    assert late <= 1.1 * early  # states settle; rounding differs a little from frame to frame


def test_wrong_integers_are_found(engine, monkeypatch):
    convolve = layers._convolve
    monkeypatch.setattr(layers, "_convolve", lambda *a: torch.full_like(convolve(*a), 200))
    assert not compare_with_floats(engine, clip()).is_right


def test_int8_without_a_calibration_is_refused(model):
    with pytest.raises(VsrkitError, match=r"int8 needs a calibration of .*weights calibrate"):
        make_engine(model, precision="int8")


def test_a_model_without_convolutions_has_no_int8():
    with pytest.raises(VsrkitError, match="Bicubic has no parts that run in int8"):
        calibrate(Bicubic(BicubicConfig()), [clip()], about="a test")


def test_a_stored_calibration_is_found_by_the_weights(model):
    stored = calibrate(model, [clip()], about="a test")
    stored = replace(stored, loss={"int8": 0.02, "int8-exact": 0.001})
    path = calibration_path(stored.weights)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(stored.dump())
    assert find_calibration(model) == stored
    assert stored.negligible == ["int8-exact"]
    path.unlink()
    assert find_calibration(model) is None


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("vsrt-s", ["int8-exact"]),
        ("vsrt-s-web", ["int8-exact"]),
        ("vsrt-xs", ["int8-exact"]),
        ("vsrt-m", []),
    ],
)
def test_presets_come_with_ranges_and_auto_may_take_these_kinds(name, kinds):
    shipped = find_calibration(load_model(name))
    assert shipped is not None
    assert set(shipped.loss) == set(KINDS)
    assert shipped.negligible == kinds
