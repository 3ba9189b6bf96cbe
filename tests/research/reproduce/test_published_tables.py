"""`vsrkit reproduce vid4`, `reds4` and `vimeo90k-t`: rows, measurement, stored results."""

import json
from pathlib import Path

import pytest
from tests.data.trees import write_reds, write_vid4, write_vimeo
from tests.paths import ROOT
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.errors import DataError, VsrkitError, WeightsError
from vsrkit.evaluate.protocol import PROTOCOLS
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.zoo import MODELS, local_weights, save_model
from vsrkit.models.zoo.fetch import SOURCES
from vsrkit.research.reproduce import published_tables
from vsrkit.research.reproduce.published_tables import (
    MODEL_OF,
    RECIPES,
    Measured,
    reproduce_table,
    rows_of,
)


def vsrkit(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=True)


@pytest.fixture
def vid4(tmp_path: Path) -> Path:
    write_vid4(tmp_path / "Vid4", frames=2)
    return tmp_path / "Vid4"


@pytest.mark.parametrize(
    ("table", "protocol", "printed"),
    [("reds4", "reds4", 9), ("vid4", "vid4", 13), ("vimeo90k-t", "vimeo90k-t", 9),
     ("vimeo90k-t", "vimeo90k-t-rgb", 8)],
)  # fmt: skip
def test_every_published_row_has_a_model_or_a_reason(table, protocol, printed):
    rows = rows_of(table, PROTOCOLS[protocol])
    paper = [r for r in rows if r.published and not r.published.elsewhere]
    assert len(paper) == printed
    for row in rows:
        without = row.published and ("frames" in row.published.note or row.title == "VRT")
        assert row.model in MODELS or without
        assert row.source or row.hint
    assert {r.model for r in rows if r.published is None} == {
        n for n in ("vsrt-s", "vsrt-s-web", "vsrt-s-vivid", "vsrt-m") if local_weights(n)
    }


def test_hints_name_commands_that_exist():
    hints = {r.model: r.hint for r in rows_of("vid4", PROTOCOLS["vid4"])}
    assert hints["basicvsr-vimeo90k-bi"] == "vsrkit weights get basicvsr-vimeo90k-bi"
    assert "-m edvr-l-vimeo90k=FILE" in hints["edvr-l-vimeo90k"]
    assert RECIPES["vsrt-vimeo"] in hints["vsrt-vimeo"]
    assert all((ROOT / recipe.partition(":")[0]).is_file() for recipe in RECIPES.values())
    assert "-m rvrt-vimeo90k-bi=FILE" in hints["rvrt-vimeo90k-bi"]
    assert set(SOURCES) <= set(MODELS)
    assert {m for models in MODEL_OF.values() for m in models.values()} <= set(MODELS)


def test_rows_are_chosen_by_model_method_or_file(tmp_path):
    file, other = tmp_path / "mine.safetensors", tmp_path / "other.safetensors"
    save_model(file, VSRT(VSRTConfig(channels=4, depth=1, tower_blocks=1, reconstruct_blocks=1)))
    save_model(other, RRN(RRNConfig(blocks=1, channels=8)))
    rules = PROTOCOLS["vid4"]
    assert [r.title for r in rows_of("vid4", rules, ["edvr-l-vimeo90k", "rcan"])] == [
        "EDVR-L",
        "RCAN",
    ]
    (row,) = rows_of("vid4", rules, [f"VSR-Transformer={file}"])
    assert (row.model, row.source) == ("vsrt-vimeo", str(file))
    with pytest.raises(WeightsError, match="a model of RRNConfig, vsrt-vimeo needs VSRTConfig"):
        rows_of("vid4", rules, [f"vsrt-vimeo={other}"])
    (outside,) = rows_of("vid4", rules, ["rrn-5l"])
    assert (outside.published, outside.model) == (None, "rrn-5l")
    with pytest.raises(VsrkitError, match="no row or model called 'nonsense'; this table"):
        rows_of("vid4", rules, ["nonsense"])
    with pytest.raises(VsrkitError, match="not a file"):
        rows_of("vid4", rules, ["rcan=gone.pth"])


def test_prints_published_and_measured_results_and_missing_weights(vid4, tmp_path):
    words = ("-m", "bicubic", "-m", "VSR-Transformer", "-m", "BasicVSR")
    done = vsrkit("reproduce", "vid4", "--data", vid4, "-o", tmp_path / "out", *words,
                  "--json", tmp_path / "t.json")  # fmt: skip
    assert done.exit_code == 0, done.output
    bicubic = next(line for line in done.output.splitlines() if "Bicubic" in line)
    assert "23.78/0.6347" in bicubic
    assert "*" in bicubic  # two frames of a clip are not the set
    assert "vsrkit weights get basicvsr-vimeo90k-bi" in done.output
    assert "27.36/0.8258" in done.output
    assert "protocol vid4: Y" in done.output
    assert "problem in the data: calendar: partial: 2 of 41 frames" in done.output
    content = json.loads((tmp_path / "t.json").read_text())
    assert [row["method"] for row in content["rows"]][:2] == ["Bicubic", "VSR-Transformer"]
    assert content["rows"][0]["ours"]["average"]["psnr"] > 0
    assert content["rows"][0]["difference"] is None
    assert content["rows"][1]["ours"] is None
    assert content["rows"][1]["published"]["clips"]["walk"] == [31.10, 0.9163]


def test_a_full_set_has_a_difference():
    (row,) = rows_of("vid4", PROTOCOLS["vid4"], ["bicubic"])
    ours = {"partial": False, "average": {"psnr": 23.80, "ssim": 0.6300}}
    assert Measured(row=row, ours=ours).difference == pytest.approx((0.02, -0.0047))
    assert Measured(row=row, ours=ours | {"partial": True}).difference is None


def test_finished_rows_are_reused_until_something_changes(vid4, tmp_path, monkeypatch):
    runs = []
    real = published_tables.evaluate_models

    def counted(models, *rest, **options):
        runs.append(models)
        return real(models, *rest, **options)

    monkeypatch.setattr(published_tables, "evaluate_models", counted)
    weights = tmp_path / "rrn.safetensors"
    save_model(weights, RRN(RRNConfig(blocks=1, channels=8)))

    def reproduce(**options):
        only = ["bicubic", f"rrn-5l={weights}"]
        return reproduce_table("vid4", vid4, tmp_path / "out", only=only, **options)

    first = reproduce()
    assert len(runs) == 2
    assert reproduce().rows == first.rows
    assert len(runs) == 2
    save_model(weights, RRN(RRNConfig(blocks=1, channels=8)))  # other weights: that row again
    reproduce()
    assert len(runs) == 3
    (vid4 / "GT" / "city" / "00000001.png").touch()  # other data: every row again
    reproduce()
    assert len(runs) == 5


def test_wrong_data_raises_a_data_error(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError):
        reproduce_table("reds4", tmp_path / "empty", tmp_path / "out", only=["bicubic"])


def test_the_other_tables_are_measured(tmp_path):
    write_reds(tmp_path / "reds", ("000", "011", "015", "020"))
    write_vimeo(tmp_path / "vimeo", ("00001/0001", "00001/0002"))
    for table, folder, psnr in (("reds4", "reds", "26.14"), ("vimeo90k-t", "vimeo", "31.32")):
        found = reproduce_table(table, tmp_path / folder, tmp_path / "out", only=["bicubic"])
        assert found.rows[0].ours["set"] == table
        assert found.rows[0].row.published.average[0] == psnr
        assert found.rows[0].ours["partial"]  # two frames of a clip, two septuplets of 7,824
        assert found.rows[0].difference is None
