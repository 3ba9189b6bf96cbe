"""Jobs in int8: calibrated where needed, pinned, checked against float, with a way back."""

import json
import logging
from dataclasses import replace

import pytest
import torch
from tests.clips import noise_picture, write_clip
from tests.inference.test_int8 import SMALL, trained
from tests.upscale import upscaled

from vsrkit.errors import VideoError, VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.hardware.int8 import int8_fault
from vsrkit.inference.calibration import calibration_path
from vsrkit.inference.int8 import Comparison, calibrate
from vsrkit.models.layers import int8 as layers
from vsrkit.models.vsrt_small import VSRTSmall
from vsrkit.upscale import int8_choice, prepare
from vsrkit.upscale.work_folder import WorkFolder
from vsrkit.video.read import open_source

pytestmark = pytest.mark.skipif(int8_fault() is not None, reason=str(int8_fault()))


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    pictures = [noise_picture(n, 32, 24, "yuv420p", smooth=True) for n in range(10)]
    folder = tmp_path_factory.mktemp("film")
    return write_clip(folder / "in.mkv", width=32, height=24, pictures=pictures)


@pytest.fixture(scope="module")
def model():
    return trained(VSRTSmall(SMALL))


@pytest.fixture
def floats(monkeypatch):
    """Floats are float32 whatever this machine has, so that the tests are the same everywhere."""

    def resolve(name, model, device="cpu", candidates=()):
        int8 = name if name.startswith("int8") else None
        return Precision("float32", channels_last=True, int8=int8)

    monkeypatch.setattr(prepare, "resolve_precision", resolve)


@pytest.fixture
def stored(model):
    """A calibration in the cache folder whose loss is negligible for `int8-exact` only."""
    made = calibrate(model, [torch.rand(4, 3, 24, 32)], about="a test")
    made = replace(made, loss={"int8": 0.02, "int8-exact": 0.001})
    path = calibration_path(made.weights)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(made.dump())
    yield made
    path.unlink()


def upscale(film, target, model, **options):
    upscaled.upscale(film, target, model=model, max_memory="4G", **options)
    return target.read_bytes()


def test_a_job_without_stored_ranges_measures_and_pins_them(
    film, model, floats, tmp_path, monkeypatch, caplog
):
    whole = upscale(film, tmp_path / "whole.mkv", model, precision="int8")
    assert "ranges are those of the first 6 frames of the input" in caplog.text

    def stop(progress):
        if progress.stage == "upscale" and progress.done == 5:
            raise RuntimeError("crash")

    target = tmp_path / "out.mkv"
    monkeypatch.setattr("vsrkit.upscale.produce.PART_FRAMES", 4)
    with pytest.raises(RuntimeError, match="crash"):
        upscale(film, target, model, precision="int8", on_progress=stop)
    manifest = json.loads(WorkFolder.beside(target).manifest.read_text())
    assert manifest["options"]["precision"]["int8"] == "int8"
    assert manifest["options"]["calibration"]["ranges"]
    # Other ranges would be measured now, but those of the manifest are used.
    monkeypatch.setattr(int8_choice, "SHOT_MARGIN", 3.0)
    parts = upscale(film, target, model, precision="int8")
    monkeypatch.setattr(int8_choice, "SHOT_MARGIN", 1.25)
    assert parts == upscale(film, tmp_path / "again.mkv", model, precision="int8")
    assert upscale(film, tmp_path / "float.mkv", model, precision="float32") != whole


def test_workers_and_chunks_change_no_byte(film, model, floats, tmp_path):
    outputs = [
        upscale(film, tmp_path / f"{number}.mkv", model, precision="int8", **options)
        for number, options in enumerate([{}, {"workers": 2}, {"chunk": 0}])
    ]
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize("kind", ["missing", "wrong"])
def test_missing_or_wrong_operators_fall_back_with_one_line(
    film, model, floats, stored, tmp_path, monkeypatch, caplog, kind
):
    wanted = upscale(film, tmp_path / "float.mkv", model, precision="float32")
    caplog.clear()
    if kind == "missing":
        monkeypatch.setattr(int8_choice, "int8_fault", lambda: "PyTorch has no int8 convolutions")
    else:
        convolve = layers._convolve
        monkeypatch.setattr(layers, "_convolve", lambda *a: convolve(*a).flip(1))
    found = upscale(film, tmp_path / "out.mkv", model, precision="int8")
    assert found == wanted
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "computes in float32" in lines[0]


def test_an_unfinished_int8_job_is_not_continued_in_floats(
    film, model, floats, stored, tmp_path, monkeypatch
):
    def stop(progress):
        if progress.stage == "upscale" and progress.done == 2:
            raise RuntimeError("crash")

    target = tmp_path / "out.mkv"
    with pytest.raises(RuntimeError, match="crash"):
        upscale(film, target, model, precision="int8", on_progress=stop)
    with pytest.raises(VideoError, match="precision: was int8 beside float32, now float32"):
        upscale(film, target, model, precision="float32")


@pytest.mark.parametrize(
    ("speedup", "expected"), [(1.5, "int8-exact"), (1.01, None)], ids=["faster", "not faster"]
)
def test_auto_takes_int8_where_it_is_faster_and_its_loss_negligible(
    film, model, floats, stored, monkeypatch, caplog, speedup, expected
):
    source = open_source(film)
    comparison = Comparison(speedup, difference=0.001)
    monkeypatch.setattr(int8_choice, "compare_with_floats", lambda engine, clip: comparison)
    monkeypatch.setattr(int8_choice, "measured_once", lambda name, measure: measure())
    precision, found = prepare.choose_precision(source, model, "auto", "cpu", None)
    assert precision.int8 == expected
    assert found == (stored if expected else None)
    assert ("computes in int8-exact" in caplog.text) == (expected is not None)
    assert ("1.50 times as fast as float32, at a loss of 0.001 dB" in caplog.text) == bool(expected)


def test_auto_without_a_recorded_loss_stays_with_floats(film, model, floats, monkeypatch):
    monkeypatch.setattr(int8_choice, "compare_with_floats", None)  # not called
    precision, found = prepare.choose_precision(open_source(film), model, "auto", "cpu", None)
    assert (precision.int8, found) == (None, None)


def test_other_devices_have_no_int8(film, model, floats):
    with pytest.raises(VsrkitError, match="int8 runs on the CPU only"):
        prepare.choose_precision(open_source(film), model, "int8", "cuda", None)
