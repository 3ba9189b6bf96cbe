"""Recipes: files, overrides, saved configs, the schema, and the shipped recipes."""

import json
import runpy
from dataclasses import fields, replace

import pytest
import torch
from tests.paths import ROOT
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.models.vsrt import PAPER, VSRTConfig
from vsrkit.models.zoo import MODELS, build_model
from vsrkit.models.zoo.listing import CountOnly
from vsrkit.train.config import FlowConfig, Source, TrainConfig, to_dict
from vsrkit.train.loop import train
from vsrkit.train.recipe import from_saved, json_schema, load_recipe, with_overrides
from vsrkit.train.settings import ConfigError

GOLDEN = ROOT / "tests" / "golden" / "tiny_cpu.txt"


@pytest.mark.parametrize(
    "name",
    [
        "vsrt_reds.py",
        "vsrt_reds.py:paper",
        "vsrt_vimeo90k.py",
        "vsrt_vimeo90k.py:paper",
        "vsrt_s.py",
        "vsrt_s.py:taught",
        "vsrt_s.py:polished",
        "vsrt_s_web.py",
        "vsrt_m.py",
        "vsrt_m.py:polished",
        "flow_light.py",
        "basicvsrpp.py",
        "basicvsrpp.py:vimeo90k",
        "animesr.py",
        "realbasicvsr.py",
        "psrt.py",
        "psrt.py:vimeo90k",
        "iart.py",
        "iart.py:frames6",
        "iart.py:vimeo90k",
        "rvrt.py",
        "rvrt.py:vimeo90k",
        "vsrt_s_vivid.py",
        "vsrt_s_vivid.py:finished",
        "realbasicvsr.py:perceptual",
        "animesr.py:perceptual",
    ],
)
def test_shipped_recipes_load_and_survive_json(name):
    config = load_recipe(str(ROOT / "recipes" / name))
    kind = FlowConfig if name == "flow_light.py" else TrainConfig
    assert isinstance(config, kind)
    assert from_saved(to_dict(config)) == config
    parts = [start.partition("=")[0] for start in getattr(config, "warm_start", ()) if "=" in start]
    if parts:  # the model has the parts that a warm start fills
        with torch.device("meta"), CountOnly():
            model = build_model(config.model)
        assert all(list(model.get_submodule(part).parameters()) for part in parts)


@pytest.mark.parametrize(
    ("name", "differences"),
    [
        ("vsrt_reds", {"steps", "batch_size", "model", "reversal", "run_dir"}),
        ("vsrt_vimeo90k", {"steps", "model", "reversal", "run_dir"}),
    ],
)
def test_release_and_paper_differ_where_the_documentation_says_so(name, differences):
    recipe = str(ROOT / "recipes" / f"{name}.py")
    release, paper = load_recipe(recipe), load_recipe(f"{recipe}:paper")
    changed = {
        f.name for f in fields(release) if getattr(release, f.name) != getattr(paper, f.name)
    }
    assert changed == differences
    assert (release.steps, release.batch_size) == (1_200_000, 4 if name == "vsrt_reds" else 2)
    assert (paper.steps, paper.batch_size) == (600_000, 2)
    assert (release.reversal, paper.reversal) == (True, False)
    assert release.precision == paper.precision == "float32"
    assert release.betas == paper.betas == (0.9, 0.99)
    model, text = (MODELS[each.model].config for each in (release, paper))
    assert model == replace(VSRTConfig(), frames=release.frames, depth=release.frames)
    assert text == replace(PAPER, frames=release.frames, depth=release.frames)


def test_a_toml_recipe_loads(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'run_dir = "runs/mine"\nsteps = 10\nlearning_rate = 1\n'
        '[[data]]\npath = "a"\nweight = 2.0\n[[data]]\npath = "b"\ndegradation = "crf25"\n'
    )
    config = load_recipe(str(path))
    assert config == TrainConfig(
        run_dir="runs/mine",
        steps=10,
        learning_rate=1.0,
        data=(Source(path="a", weight=2.0), Source(path="b", degradation="crf25")),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'run_dir = "r"\nlearning_rat = 1.0',
            "unknown key 'learning_rat' of TrainConfig; did you mean 'learning_rate'",
        ),
        (
            'run_dir = "r"\n[[data]]\npath = "a"\nweigth = 1',
            "unknown key 'weigth' of Source; did you mean 'weight'",
        ),
        ('run_dir = "r"\nsteps = "many"', "steps must be a whole number, got 'many'"),
        ('run_dir = "r"\noptimizer = "sgd"', "optimizer must be 'adam' or 'muon', got 'sgd'"),
        ('run_dir = "r"\nsteps = 0', "steps must be at least 1, got 0"),
        ("steps = 1", "run_dir of TrainConfig is missing"),
        ("steps = ", "Invalid value"),
        ('run_dir = "r"\ndata = ["a", 3]', "data must be paths or tables with a path, got 3"),
        ('run_dir = "r"\nkind = "modle"', 'kind must be "model" or "flow"'),
        ("# Gr\u00fc\u00dfe", "can't decode"),
    ],
)
def test_errors_in_toml_name_the_file(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=message) as error:
        load_recipe(str(path))
    assert "mine.toml" in str(error.value)


MAKES = "from vsrkit.train.config import TrainConfig\ndef config():\n    return TrainConfig({})\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def config(:", "SyntaxError"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        (MAKES.format("run_dir='r', stepz=1"), "stepz"),
        (MAKES.format("run_dir='r', steps='many'"), "steps must be a whole number"),
        (MAKES.format("run_dir='r', model=3"), "model must be text, got 3"),
        (MAKES.format("run_dir='r', steps=0"), "steps must be at least 1, got 0"),
    ],
)
def test_errors_in_python_name_the_file(tmp_path, text, message):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        load_recipe(str(path))
    assert "mine.py" in str(error.value)


def test_a_python_recipe_accepts_a_path_as_data(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MAKES.format("run_dir='r', data='my-videos'"))
    assert load_recipe(str(path)).data == (Source(path="my-videos"),)


def test_overrides_are_converted_and_checked():
    config = TrainConfig(run_dir="r")
    changed = with_overrides(
        config, ["steps=5", "data=a,b", "flips=false", "betas=0.8,0.9", "learning_rate=1e-3"]
    )
    assert (changed.steps, changed.flips, changed.betas) == (5, False, (0.8, 0.9))
    assert [s.path for s in changed.data] == ["a", "b"]
    for wrong in ("stepz=1", "steps", "steps=x", "flips=maybe"):
        with pytest.raises(ConfigError):
            with_overrides(config, [wrong])


def test_the_config_of_an_earlier_version_loads(tmp_path):
    config = TrainConfig(run_dir="r", teacher="any", data="videos", betas=(0.8, 0.9))
    values = to_dict(config)
    del values["teacher_mode"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    assert load_recipe(str(path)) == config
    path.write_text(json.dumps(values | {"teacher_weight": 0.0}))
    old = load_recipe(str(path))
    assert (old.teacher_mode, old.teacher_weight) == ("frames", 0.3)
    flow = FlowConfig(run_dir="r", stills="s")
    path.write_text(json.dumps(to_dict(flow) | {"periods": [], "restart_weights": []}))
    assert load_recipe(str(path)) == flow
    for text, message in (("[]", "expected an object"), ("{", "Expecting property name")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_recipe(str(path))
    path.write_text(json.dumps(values | {"gone": 1}))
    with pytest.raises(ConfigError, match=r"config\.json: unknown key 'gone'") as error:
        load_recipe(str(path))
    assert "\n" not in str(error.value)


def test_the_schema_describes_every_key():
    run = CliRunner().invoke(app, ["train", "--schema"])
    assert run.exit_code == 0, run.output
    schema = json.loads(run.output)
    assert schema == json_schema()
    for cls in (TrainConfig, FlowConfig, Source):
        found = schema["$defs"][cls.__name__]
        assert found["additionalProperties"] is False
        assert found["properties"].keys() - {"kind"} == {field.name for field in fields(cls)}
        assert all(value["description"] for value in found["properties"].values())
    steps = schema["$defs"]["TrainConfig"]["properties"]["steps"]
    assert (steps["type"], steps["minimum"], steps["default"]) == ("integer", 1, 10_000)


@pytest.mark.parametrize(
    ("command", "panels"),
    [
        ("train", ["Arguments", "Run control"]),
        ("finetune", ["Arguments", "Input and output", "Model", "Run control", "Resources"]),
    ],
)
def test_the_help_groups_options_in_panels(command, panels):
    run = CliRunner().invoke(app, [command, "--help"])
    assert run.exit_code == 0, run.output
    assert all(run.output.count(f"─ {panel} ─") == 1 for panel in panels)


def test_files_that_are_not_recipes_are_refused(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "a.txt").write_text("")
    for name, message in (("b.py", "does not exist"), ("a.py", r"needs a function config\(\)"),
                          ("a.txt", "is not a recipe")):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            load_recipe(str(tmp_path / name))


def test_tiny_cpu_has_the_golden_losses(tmp_path):
    config = runpy.run_path(str(ROOT / "recipes" / "tiny_cpu.py"))["config"](tmp_path)
    short = with_overrides(config, ["log_every=1", "workers=0", "validate_every=1000"])
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vsrkit.train.loop.validate", lambda run, pieces: None)
        patch.setattr(
            "vsrkit.train.run_files.RunLog.scalars",
            lambda self, step, **values: found.append(values["loss"]),
        )
        train(with_overrides(short, ["steps=10"]))
    expected = [float(line) for line in GOLDEN.read_text().split()]
    # Other processors round differently, and Muon amplifies it: half a percent in ten steps.
    now = " ".join(f"{loss:.6f}" for loss in found)
    assert found == pytest.approx(expected, rel=0.02), (
        f"if the change is intended, the new losses are {now}"
    )


def test_the_command_trains_on_a_folder_of_videos(videos, tiny_model, tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        f'run_dir = "{tmp_path / "run"}"\nmodel = "{tiny_model}"\nsteps = 2\nbatch_size = 1\n'
        'frames = 3\ncrop = 16\nprecision = "float32"\nvalidation_frames = 3\nworkers = 0\n'
    )
    run = CliRunner().invoke(app, ["train", str(recipe), "--set", f"data={videos}"])
    assert run.exit_code == 0, run.output
    assert "2 steps done, best" in run.output
    assert (tmp_path / "run" / "best.safetensors").exists()


def test_single_losses_are_overridden_by_their_name():
    recipe = str(ROOT / "recipes" / "vsrt_s_vivid.py")
    settings = ["losses.gan=0.25", "losses.gan_frames=1", "losses.perceptual_layers=esrgan"]
    before, after = load_recipe(recipe), load_recipe(recipe, settings)
    assert after.losses == replace(
        before.losses, gan=0.25, gan_frames=1, perceptual_layers="esrgan"
    )
    table = load_recipe(recipe, ["losses.perceptual_layers=conv2_2:0.5 conv4_3:1"])
    assert table.losses.perceptual_layers == {"conv2_2": 0.5, "conv4_3": 1.0}
    with pytest.raises(ConfigError, match="unknown key 'gun' of Losses; did you mean 'gan'"):
        load_recipe(recipe, ["losses.gun=1"])
    with pytest.raises(ConfigError, match="gan must be a number, got 'much'"):
        load_recipe(recipe, ["losses.gan=much"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"losses": {"pixel": 0.0}}, "need a weight for pixel, perceptual or gan"),
        ({"losses": {"perceptual_layers": {"conv9_1": 1.0}}}, "must name some of .*conv9_1"),
        ({"losses": {"window": 8}}, "window must be 0 or at least 32"),
        ({"losses": {"gan": 0.1}, "loss_reduction": "sum"}, 'need loss_reduction = "mean"'),
        (
            {"losses": {"gan": 0.1}, "teacher": "basicvsr-reds4"},
            'losses are not used with teacher_mode = "features"',
        ),
    ],
)  # fmt: skip
def test_losses_that_cannot_be_used_are_errors(values, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(run_dir="r", **values)
