import json
from pathlib import Path

import pytest
import torch
from tests.data.trees import (
    random_clip,
    write_clip,
    write_published_reds,
    write_vid4,
    write_vimeo,
)
from tests.paths import ROOT
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.data.layouts import REDS_TRAINING
from vsrkit.errors import DataError, UnknownModelError, VsrkitError, WeightsError
from vsrkit.evaluate import protocol as protocol_module
from vsrkit.evaluate.benchmark import evaluate_models
from vsrkit.evaluate.protocol import metrics_named
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.zoo import save_model


def vsrkit(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=True)


@pytest.fixture
def vid4(tmp_path: Path) -> Path:
    write_vid4(tmp_path / "Vid4", frames=2)
    return tmp_path / "Vid4"


def test_prints_a_table_with_the_published_rows(vid4: Path) -> None:
    done = vsrkit("evaluate", "-m", "bicubic", "--set", "vid4", "--data", vid4)
    assert done.exit_code == 0, done.output
    rows = [line for line in done.output.splitlines() if line.startswith("│")]
    assert sum("[published]" in row for row in rows) == 13
    published = next(row for row in rows if "VSR-Transformer" in row)
    assert "24.08/0.8125" in published
    assert "27.36/0.8258" in published
    assert rows[-1].startswith("│ bicubic")
    assert "*" in rows[-1]  # marked as partial: two frames of 41
    assert "protocol vid4: Y (MATLAB BT.601) of 8-bit frames, border 0, every frame" in done.output
    assert "LR frames made from the ground truth by BI x4" in done.output
    assert "partial: calendar, only 2 frames" in done.output
    assert "not comparable with others" in done.output
    assert "ms per frame, peak memory" in done.output


def test_the_json_has_the_documented_fields(vid4: Path, tmp_path: Path) -> None:
    done = vsrkit(
        "evaluate", "-m", "bicubic", "--data", vid4, "--json", tmp_path / "out" / "r.json"
    )
    assert done.exit_code == 0, done.output
    content = json.loads((tmp_path / "out" / "r.json").read_text())
    assert (content["format"], content["model"], content["set"]) == (1, "bicubic", "vid4")
    assert content["protocol"]["channel"] == "y"
    assert list(content["clips"]) == ["calendar", "city", "foliage", "walk"]
    psnr = [clip["psnr"] for clip in content["clips"].values()]
    assert content["average"]["psnr"] == pytest.approx(sum(psnr) / 4)
    assert content["clips"]["city"]["frames"] == 2
    assert content["partial"] is True
    documented = (ROOT / "docs" / "evaluate.md").read_text()
    for key in content:
        assert f"`{key}`" in documented
    assert str(tmp_path) not in json.dumps(content)  # results are published, paths are private


def test_several_models_make_one_table_and_a_list(vid4: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    checkpoint = tmp_path / "mine.safetensors"
    save_model(checkpoint, RRN(RRNConfig(channels=8, blocks=1)))
    words = ("-m", "bicubic", "-m", checkpoint, "--data", vid4, "--json", tmp_path / "r.json")
    done = vsrkit("evaluate", *words, "--clip", "city", "--save-frames", tmp_path / "frames")
    assert done.exit_code == 0, done.output
    content = json.loads((tmp_path / "r.json").read_text())
    assert [result["model"] for result in content] == ["bicubic", "mine"]
    assert content[0]["weights_sha256"] is None
    assert len(content[1]["weights_sha256"]) == 64
    assert content[0]["left_out"] == ["calendar", "foliage", "walk"]
    assert "partial: left out calendar, foliage, walk" in done.output
    assert (tmp_path / "frames" / "mine" / "city" / "00000001.png").is_file()


def test_infinite_psnr_is_written_as_valid_json(tmp_path: Path) -> None:
    write_clip(tmp_path / "set" / "a", torch.zeros(2, 3, 32, 32))
    done = vsrkit(
        "evaluate", "-m", "bicubic", "--data", tmp_path / "set", "--json", tmp_path / "r.json"
    )
    assert done.exit_code == 0, done.output
    strict = json.loads((tmp_path / "r.json").read_text(), parse_constant=pytest.fail)
    assert strict["average"]["psnr"] == "inf"


def test_many_clips_are_shown_as_rows(tmp_path: Path) -> None:
    write_vimeo(tmp_path, test=tuple(f"00001/{n:04d}" for n in range(1, 9)))
    done = vsrkit("evaluate", "-m", "bicubic", "--data", tmp_path)
    assert done.exit_code == 0, done.output
    assert "00001/0008" in done.output
    assert "37.71/0.9494" in done.output
    assert "centre frame only" in done.output
    assert "read from the set's vimeo_septuplet_matlabLRx4/sequences" in done.output
    assert "partial: the list names 8 of 7824 clips" in done.output
    measured = next(line for line in done.output.splitlines() if "│ bicubic" in line)
    assert "*" in measured


def test_a_named_set_is_found_in_the_folder_of_the_environment(vid4: Path, monkeypatch) -> None:
    monkeypatch.setenv("VSRKIT_DATA", str(vid4.parent))
    done = vsrkit("evaluate", "-m", "bicubic", "--set", "vid4")
    assert done.exit_code == 0, done.output
    assert "protocol vid4" in done.output


def test_all_metrics_have_a_table(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(protocol_module, "vmaf_available", lambda: False)
    monkeypatch.setattr(protocol_module, "metric_available", lambda name: False)
    write_clip(tmp_path / "a", random_clip(2, 164, 168))
    done = vsrkit("evaluate", "-m", "bicubic", "--data", tmp_path, "--metrics", "all")
    assert done.exit_code == 0, done.output
    for title in ("MS-SSIM", "warping error x1000", "tOF px", "flicker", "consistency dB"):
        assert title in done.output
    assert "VMAF" not in done.output
    assert "LPIPS" not in done.output
    with pytest.raises(VsrkitError, match="run `vsrkit weights get lpips`"):
        metrics_named(["tlpips"])
    with pytest.raises(VsrkitError, match="imageio-ffmpeg"):
        metrics_named(["vmaf"])


def test_untrained_models_are_an_error_by_default(vid4: Path) -> None:
    done = vsrkit("evaluate", "-m", "rrn-5l", "--data", vid4)
    assert isinstance(done.exception, WeightsError)
    assert "no trained weights for rrn-5l on this machine" in str(done.exception)
    assert "`vsrkit weights get rrn-5l --from FILE`" in str(done.exception)  # there is no download
    done = vsrkit("evaluate", "-m", "basicvsr-reds4", "--data", vid4)
    assert "`vsrkit weights get basicvsr-reds4` downloads them" in str(done.exception)
    with pytest.raises(WeightsError):  # before the first model is evaluated
        evaluate_models(["bicubic", "vsrt-reds"], vid4, on_progress=lambda *_: pytest.fail("ran"))


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--set", "vid5"], VsrkitError, "no set called 'vid5'; use vid4, reds4"),
        (["--protocol", "vid3"], VsrkitError, "did you mean 'vid4'"),
        (["--metrics", "psnr,musiq"], VsrkitError, "no metric called 'musiq'"),
        (["--metrics", "psnr,lpips"], VsrkitError, "run `vsrkit weights get lpips`"),
        (["--clip", "town"], DataError, "vid4 has no clip 'town'; it has calendar, city"),
        (["--precision", "float8"], VsrkitError, "no precision called 'float8'"),
        (["--device", "abacus"], VsrkitError, "no device called 'abacus'"),
        (["--device", "xpu"], VsrkitError, "no device called 'xpu'; choose auto, cpu"),
        (["-m", "bicubik"], UnknownModelError, "did you mean 'bicubic'"),
        (["--set", "reds4"], DataError, "holds no reds4"),
    ],
)
def test_wrong_options_give_an_error_of_one_line(vid4: Path, words, error, message: str) -> None:
    done = vsrkit("evaluate", "-m", "bicubic", "--data", vid4, *words)
    assert isinstance(done.exception, error)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


def test_data_check_prints_the_clips_of_a_training_set(tmp_path: Path) -> None:
    write_published_reds(tmp_path)
    done = vsrkit("data", "check", tmp_path)
    assert done.exit_code == 1  # one frame of 100 in each clip
    text = " ".join(done.output.split())
    assert "reds4, 4 clips, 4 frames" in text
    assert "reds-train, 266 clips, 266 frames" in text
    assert f"clips: {', '.join(REDS_TRAINING)}" in text
    assert "4 clips for validation: 000, 011, 015, 020" in text
    done = vsrkit("data", "check", tmp_path, "--set", "reds-train", "--quick")
    assert "reds4" not in done.output
    (tmp_path / "val_sharp" / "003").rename(tmp_path / "val_sharp" / "clip003")
    done = vsrkit("data", "check", tmp_path, "--set", "reds-train", "--quick")
    assert done.exit_code == 1
    assert "without 1 of its 266 clips: 243" in done.output
    done = vsrkit("data", "check", tmp_path, "--set", "reds")
    assert "no set called 'reds'" in str(done.exception)


def test_data_check_names_the_septuplets_held_out(tmp_path: Path) -> None:
    listed = tuple(f"00001/{n:04d}" for n in range(1, 21))
    write_vimeo(tmp_path, test=("00002/0001",), train=listed)
    done = vsrkit("data", "check", tmp_path)
    assert "vimeo90k-t, 1 clips" in done.output
    assert "vimeo90k-train, 20 clips" in done.output
    held_out = ", ".join(listed[1::2])
    assert f"10 clips for validation: {held_out}" in " ".join(done.output.split())
    assert "partial: the list names 20 of 64612 clips" in done.output


def test_data_check_reports_the_set_and_its_problems(vid4: Path, tmp_path: Path) -> None:
    done = vsrkit("data", "check", vid4)
    assert done.exit_code == 1
    assert "vid4, 4 clips, 8 frames" in done.output
    assert "problem: city: partial: 2 of 34 frames" in done.output
    write_clip(tmp_path / "mine" / "a", random_clip(2))
    done = vsrkit("data", "check", tmp_path / "mine")
    assert done.exit_code == 0
    assert "no problems found" in done.output
