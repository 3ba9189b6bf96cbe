"""`vsrkit reproduce ablation -m vsrt-reds`: the paper's network with the published recipe."""

import json
import shlex
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tests.data.trees import write_published_reds
from tests.paths import ROOT
from tests.research.artists import lines_of
from tests.train.conftest import moving_picture, write_video
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.data.layouts import REDS_TRAINING
from vsrkit.data.sets import locate_training_set, open_training_set
from vsrkit.errors import StoppedError, UsageError, VsrkitError
from vsrkit.models.vsrt import PAPER, REDS, VSRT
from vsrkit.research.reproduce import published_ablation
from vsrkit.research.reproduce.ablation_results import curves_figure
from vsrkit.research.reproduce.published_ablation import (
    PublishedSettings,
    chosen_published_variants,
    how_to_start,
    prepare_runs,
    published_recipe,
    published_variants,
    share_batch,
    train_runs,
)
from vsrkit.research.reproduce.published_ablation_results import (
    held_out_scores,
    published_rows,
    read_scores,
    score_run,
    write_published,
)
from vsrkit.train.recipe import load_recipe
from vsrkit.train.settings import ConfigError

NAMES = ["full", "w/o STCSA", "w/o BOFF", "w/o optical flow", "3 frames"]


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for name in ("one", "two"):
        write_video(folder / f"{name}.mkv", moving_picture(9, 96))
    return folder


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """The published network with one block of every kind."""
    tiny_model = replace(REDS, extract_blocks=0, tower_blocks=0, reconstruct_blocks=0)
    entry = replace(published_ablation.MODELS["vsrt-reds"], config=tiny_model)
    monkeypatch.setitem(published_ablation.MODELS, "vsrt-reds", entry)


def settings(videos, **changes):
    values = {"data": str(videos), "channels": 4, "crop": 16, "steps": 2, "batch_size": 1,
              "validation": ("two",), "workers": 0}  # fmt: skip
    return PublishedSettings(**(values | changes))


@pytest.fixture(autouse=True)
def without_warm_start(monkeypatch):
    """The weights of the flow network are not on every machine; tests of warm starts have some."""
    monkeypatch.setattr(published_ablation, "published_recipe", without_flow_weights)


def without_flow_weights(chosen):
    return replace(published_recipe(chosen), warm_start=())


def test_share_batch_keeps_the_clips_of_a_step():
    assert share_batch(32, 8, 4) == (4, 1)
    assert share_batch(32, 1, 4) == (4, 8)
    assert share_batch(6, 1, 4) == (3, 2)
    assert share_batch(7, 7, 4) == (1, 1)
    with pytest.raises(UsageError, match="3 processes cannot share 32 clips"):
        share_batch(32, 3, 4)


def test_variants_are_those_of_the_paper_with_depth_tied_to_the_frames():
    found = published_variants(REDS)
    assert [v.name for v in found] == NAMES
    assert [(v.frames, v.config.frames, v.config.depth) for v in found] == [(5, 5, 5)] * 4 + [
        (3, 3, 3)
    ]
    with torch.device("meta"):
        nets = {v.name: VSRT(v.config) for v in found}
    counts = {n: sum(p.numel() for p in net.parameters()) for n, net in nets.items()}
    assert counts["full"] == 32_564_335
    assert counts["w/o STCSA"] == 32_564_335 - 375_680 - 2_621_440
    assert counts["w/o BOFF"] == counts["w/o optical flow"] == 32_564_335 - 1_440_300
    layer = 75_136 + 524_288 + 4_516_928 + 524_288
    assert counts["3 frames"] == 32_564_335 - 2 * layer
    text = chosen_published_variants(PublishedSettings(data="x", model="vsrt-paper"))
    assert text[0].config == PAPER


@pytest.mark.parametrize("model", ["vsrt-reds", "vsrt-paper"])
def test_the_recipe_is_the_published_one(model):
    function = ":paper" if model == "vsrt-paper" else ""
    shipped = load_recipe(f"{ROOT}/recipes/vsrt_reds.py{function}")
    config = published_recipe(PublishedSettings(data="REDS", model=model))
    assert config == shipped
    short = published_recipe(PublishedSettings(data="REDS", model=model, steps=10))
    assert short.periods == tuple(-(-p * 10 // shipped.steps) for p in shipped.periods)
    assert short.learning_rate == 2e-4


def test_a_single_process_accumulates_the_published_batch(videos, tmp_path):
    runs = prepare_runs(settings(videos, batch_size=0, variants=("3 frames",)), tmp_path, 1)
    assert [(r.config.batch_size, r.config.accumulate, r.clips) for r in runs] == [(4, 8, 32)] * 2
    assert [r.config.frames for r in runs] == [5, 3]
    words = shlex.split(how_to_start(runs[1]))
    assert words[:6] == ["torchrun", "--nproc-per-node", "8", "-m", "vsrkit", "train"]
    assert words[7:] == ["--set", "batch_size=4", "--set", "accumulate=1"]
    assert load_recipe(words[6]) == runs[1].config
    again = prepare_runs(settings(videos, batch_size=0, variants=("3 frames",)), tmp_path, 8)
    assert again[0].config.accumulate == 1
    assert how_to_start(again[0]) == how_to_start(runs[0])


def test_variants_start_from_the_weights_of_the_full_network(videos, tmp_path):
    full, three = prepare_runs(settings(videos, variants=("3 frames",)), tmp_path, 1)
    whole, part = load_file(full.config.model), load_file(three.config.model)
    assert part.keys() < whole.keys()
    assert all(torch.equal(value, whole[name]) for name, value in part.items())


def test_only_networks_with_flow_start_from_flow_weights(videos, tmp_path, monkeypatch):
    monkeypatch.setattr(published_ablation, "published_recipe", published_recipe)
    chosen = settings(videos, warm_start=("flow=some.safetensors", "all.safetensors"))
    found = [run.config.warm_start for run in prepare_runs(chosen, tmp_path, 1)]
    both, one = ("flow=some.safetensors", "all.safetensors"), ("all.safetensors",)
    assert found == [both, both, one, one, both]


def test_a_whole_ablation_is_trained_scored_in_rgb_and_resumed(videos, tmp_path, monkeypatch):
    chosen = settings(videos)
    runs = prepare_runs(chosen, tmp_path, 1)
    trained, real = [], published_ablation.train_or_resume

    def interrupted(config, what, on_progress):
        trained.append(what)
        if len(trained) == 3:
            raise StoppedError(f"{what}: stopped")
        real(config, what, on_progress)

    monkeypatch.setattr(published_ablation, "train_or_resume", interrupted)

    def score(run):
        score_run(run, chosen)

    with pytest.raises(StoppedError, match="w/o BOFF, seed 10"):
        train_runs(runs, 1, score)
    train_runs(prepare_runs(chosen, tmp_path, 1), 1, score)
    assert len(trained) == 6  # two done, one stopped, three after it
    assert how_to_start(runs[0]).endswith("--resume")

    rows = published_rows(runs)
    assert [row.variant for row in rows] == NAMES
    assert [row.published_psnr for row in rows] == [31.19, 31.05, 30.37, 30.37, 30.58]
    assert [row.published_ssim for row in rows] == [0.8815, 0.8793, 0.8666, None, 0.8712]
    assert [row.published_difference for row in rows] == [0, -0.14, -0.82, -0.82, -0.61]
    assert rows[0].difference == 0
    own = held_out_scores(runs[1], runs[1].place / "last.safetensors")
    assert list(own) == ["two"]
    assert read_scores(runs[1])["clips"]["two"] == pytest.approx(own["two"])
    assert rows[1].psnr == pytest.approx(own["two"]["psnr"])

    markdown, _, content, figure = write_published(runs, chosen, tmp_path)
    assert "| w/o optical flow |" in markdown.read_text()
    assert "| 30.37 | -0.82 |" in markdown.read_text()
    assert json.loads(content.read_text())["settings"]["channels"] == 4
    assert figure.stat().st_size > 0
    lines = lines_of(curves_figure("x", {"full": [runs[0].place]}).axes[1])
    assert lines["full"][0] == [1, 2]

    more = prepare_runs(replace(chosen, seeds=2), tmp_path, 1)  # may be extended
    assert [run.is_trained for run in more] == [True] * 5 + [False] * 5
    with pytest.raises(ConfigError, match="steps was 2"):
        prepare_runs(replace(chosen, steps=3), tmp_path, 1)


def test_reds_is_read_as_published_and_scored_as_in_the_table(tmp_path, monkeypatch):
    asked = {}

    def evaluate(models, data, **options):
        asked.update(options, models=models, data=data)
        raise VsrkitError("seen")

    module = "vsrkit.research.reproduce.published_ablation_results"
    monkeypatch.setattr(f"{module}.evaluate_models", evaluate)
    reds = tmp_path / "REDS"
    write_published_reds(reds)
    chosen = settings(reds, validation=())
    run = prepare_runs(chosen, tmp_path, 1)[0]
    (source,) = run.config.data
    name, root = locate_training_set(source.path, run.config.data_root)
    split = open_training_set(name, root)
    assert [clip.name for clip in split.training] == list(REDS_TRAINING)
    assert run.config.validation == ()  # REDS4, on which the named set is validated
    with pytest.raises(VsrkitError, match="seen"):
        score_run(run, chosen)
    assert (asked["set_name"], asked["protocol"]) == ("reds4", "reds4-release")
    assert asked["models"] == [str(run.place / "last.safetensors")]


def command(*words):
    return CliRunner().invoke(app, ["reproduce", "ablation", "-m", "vsrt-reds", *words])


def test_the_command_prepares_and_trains(videos, tmp_path):
    small = ["--data", str(videos), "-o", str(tmp_path), "--channels", "4", "--crop", "16",
             "--steps", "1", "--batch-size", "2", "--validation", "two", "--workers", "0",
             "--variant", "w/o BOFF"]  # fmt: skip
    done = command(*small, "--prepare")
    assert done.exit_code == 0, done.output
    assert done.output.count("torchrun --nproc-per-node 2 -m vsrkit train") == 2
    assert not (tmp_path / "runs" / "full" / "10").exists()
    done = command(*small)
    assert done.exit_code == 0, done.output
    assert "| w/o BOFF |" in done.output
    assert "30.37 / 0.8666" in done.output


def test_two_processes_train_a_run(videos, tmp_path):
    small = ["--data", str(videos), "-o", str(tmp_path), "--channels", "4", "--crop", "16",
             "--steps", "1", "--batch-size", "2", "--validation", "two", "--workers", "0",
             "--device", "cpu", "--variant", "full"]  # fmt: skip
    done = command(*small, "--processes", "2")
    assert done.exit_code == 0, (done.output, done.exception)
    log = (tmp_path / "runs" / "full" / "10" / "log.jsonl").read_text()
    assert '"step": 1' in log


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-m", "vsrt", "--channels", "4"], "--channels is for vsrt-reds"),
        (["-m", "vsrt-s", "--prepare"], "--prepare is for vsrt-reds"),
        (["-m", "vsrt-reds", "--data", "x", "--budget", "1m"], "--budget is for the small"),
        (["-m", "vsrt-reds"], "needs --data with the folder of REDS"),
    ],
)
def test_options_of_other_networks_are_wrong_usage(words, message):
    done = CliRunner().invoke(app, ["reproduce", "ablation", *words])
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)


def test_the_command_must_not_be_started_by_torchrun(videos, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="without torchrun"):
        prepare_runs(settings(videos), tmp_path, 1)
