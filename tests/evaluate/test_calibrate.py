"""Calibration on clips: ranges from some, the loss of int8 on the others."""

import pytest
import torch
from tests.inference.test_int8 import SMALL, trained
from tests.train.conftest import moving_picture
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.errors import DataError
from vsrkit.evaluate import calibrate as module
from vsrkit.evaluate.calibrate import calibrate_on_clips
from vsrkit.hardware.int8 import int8_fault
from vsrkit.inference.calibration import find_calibration
from vsrkit.models.vsrt_small import VSRTSmall
from vsrkit.models.zoo import load_model, save_model
from vsrkit.video.images import write_image

pytestmark = pytest.mark.skipif(int8_fault() is not None, reason=str(int8_fault()))


@pytest.fixture
def clips(tmp_path):
    for clip in ("a", "b", "c"):
        for number, frame in enumerate(moving_picture(3, 96)):
            picture = torch.from_numpy(frame).permute(2, 0, 1) / 255
            write_image(tmp_path / "clips" / clip / f"{number:03d}.png", picture)
    return tmp_path / "clips"


@pytest.mark.parametrize(
    ("held_out", "others", "measured"), [((), ["a", "b"], ["c"]), (["b"], ["a", "c"], ["b"])]
)
def test_ranges_and_loss_come_from_different_clips(clips, monkeypatch, held_out, others, measured):
    seen = []
    read = module._middle

    def noted(path, frames, side, scale):
        seen.append((path.name, frames))
        return read(path, frames, side, scale)

    monkeypatch.setattr(module, "_middle", noted)
    found = calibrate_on_clips(trained(VSRTSmall(SMALL)), clips, held_out=held_out)
    assert [name for name, frames in seen if frames == module.RANGE_FRAMES] == others
    assert [name for name, frames in seen if frames == module.LOSS_FRAMES] == measured
    assert set(found.loss) == {"int8", "int8-exact"}
    towers = {"backward_tower.main.2", "forward_tower.main.2"}
    assert found.ranges.keys() == towers | {"head", "tail.conv"}
    assert found.clips == "2 clips (bi)"


def test_a_single_clip_is_refused(clips):
    with pytest.raises(DataError, match="holds one clip"):
        calibrate_on_clips(trained(VSRTSmall(SMALL)), clips / "a")


@pytest.mark.parametrize(
    ("held_out", "message"), [(["d"], "no clip called d"), (["a", "b", "c"], "all clips of")]
)
def test_wrong_names_of_held_out_clips_are_refused(clips, held_out, message):
    with pytest.raises(DataError, match=message):
        calibrate_on_clips(trained(VSRTSmall(SMALL)), clips, held_out=held_out)


def test_the_command_stores_what_is_then_found_by_the_weights(clips, tmp_path):
    path = tmp_path / "mine.safetensors"
    save_model(path, trained(VSRTSmall(SMALL)))
    done = CliRunner().invoke(app, ["weights", "calibrate", str(path), "--data", str(clips)])
    assert done.exit_code == 0, done.output
    assert "int8-exact loses" in done.output
    assert find_calibration(load_model(path)) is not None
