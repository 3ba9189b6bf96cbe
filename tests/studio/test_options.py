"""Options in JSON: the same table, defaults and error lines as those of the command."""

import json
from inspect import signature

import pytest
from tests.studio.conftest import running_studio
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.cli.studio import option_table
from vsrkit.cli.upscale import options_of_a_run
from vsrkit.studio.errors import RequestError
from vsrkit.studio.models import Models


@pytest.fixture(scope="module")
def table():
    return option_table(Models(), cluster=False)


def test_the_table_has_every_option_of_the_command(table):
    listed = [option for group in table.as_json()["groups"] for option in group["options"]]
    parameters = signature(options_of_a_run).parameters
    assert {option["name"] for option in listed} == set(parameters)
    assert all(option["default"] == parameters[option["name"]].default for option in listed)
    page = CliRunner().invoke(app, ["upscale", "--help"], env={"COLUMNS": "300"}).stdout
    for option in listed:
        assert option["flag"] in page
        assert option["help"].split(". ")[0] in page
    types = {option["name"]: option["type"] for option in listed}
    assert types["scale"] == "integer"
    assert types["sharpness"] == "number"
    assert types["encoder_options"] == "list"
    assert types["quality"] == types["model"] == "choice"


def test_arguments_mean_the_same_to_the_command(table, monkeypatch):
    given = {
        "model": "bicubic",
        "scale": 2,
        "start": "1:30",
        "crf": 30,
        "encoder_options": ["preset=slow", "tune=film"],
        "quality": "fast",
        "tile": None,
        "device": "auto",
    }
    kept, options = table.check(given)
    assert kept == {name: given[name] for name in kept}
    assert kept.keys() == given.keys() - {"tile", "device"}
    seen = []
    monkeypatch.setattr(
        "vsrkit.upscale.batch.upscale_any",
        lambda _, __, options, **___: seen.append(options) or ([], 0),
    )
    run = CliRunner().invoke(app, ["upscale", "a.mp4", "b.mkv", *table.arguments(kept)])
    assert run.exit_code == 0, run.output
    assert seen == [options]


@pytest.mark.parametrize(
    "values",
    [
        {"scale": 2, "height": 100},
        {"start": "1:2:3:4"},
        {"start": "-1"},
        {"frame_rate": "0"},
        {"encoder_options": ["preset"]},
        {"max_memory": "much"},
        {"sharpness": 2},
        {"workers": 0},
    ],
)
def test_errors_have_the_line_of_the_command(table, values):
    with pytest.raises(RequestError) as refusal:
        table.check(values)
    assert refusal.value.status == 400
    flags = {name: table._options[name].flag for name in values}
    arguments = [
        f"{flags[name]}={part}"
        for name, value in values.items()
        for part in (value if isinstance(value, list) else [value])
    ]
    run = CliRunner().invoke(app, ["upscale", "a.mp4", "b.mkv", *arguments])
    said = str(run.exception) + " ".join(run.output.replace("│", " ").split())
    assert str(refusal.value) in said


@pytest.mark.parametrize(
    "values",
    [
        {"none": 1},
        {"overwrite": True},
        {"scale": "2"},
        {"scale": True},
        {"scale": 1 << 60},
        {"sharpness": "0.5"},
        {"model": "../model.safetensors"},
        {"model": "vsrt-paper"},
        {"quality": "x"},
        {"codec": "a\nb"},
        {"codec": "x" * 1000},
        {"codec": ["x"]},
        {"encoder_options": "a=b"},
        {"encoder_options": ["a=b"] * 51},
        {"encoder_options": [1]},
        {"encoder_options": ["x264-params=stats=/etc/passwd"]},
        {"encoder_options": ["passlogfile=..\\x"]},
        ["scale"],
        "scale",
    ],
)
def test_other_values_are_refused(table, values):
    with pytest.raises(RequestError) as refusal:
        table.check(values)
    assert refusal.value.status == 400
    assert "\n" not in str(refusal.value)


def test_a_cluster_decides_the_number_of_workers(tmp_path):
    with running_studio(tmp_path, cluster="tcp://host:8786") as client:
        groups = client.get("/api/options").json()["groups"]
        assert "workers" not in [option["name"] for group in groups for option in group["options"]]
        assert client.get("/api/session").json()["cluster"] == "tcp://host:8786"


def test_requests_about_options(client):
    answer = client.post("/api/options/check", json={"options": {"scale": 2}})
    assert answer.json() == {"arguments": ["--scale=2"]}
    for body in (
        b"{",
        b"[]",
        b"null",
        b'{"other": 1}',
        b"\xff",
        b"[" * 100_000,
        b"{" + b" " * (1 << 21),
    ):
        answer = client.post("/api/options/check", content=body)
        assert answer.status_code in (400, 413)
        assert json.loads(answer.content)["error"]
    models = client.get("/api/models").json()
    ready = [model["name"] for model in models["models"] if model["ready"]]
    assert "bicubic" in ready
    assert models["default"] in ready
