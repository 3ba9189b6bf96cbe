"""`vsrkit reproduce ablation`: variants, budget, resuming, tables and curves."""

import csv
import json
from dataclasses import replace

import pytest
import torch
from tests.research.artists import lines_of
from tests.train.conftest import moving_picture, write_video
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.errors import StoppedError, VsrkitError
from vsrkit.models.vsrt import VSRT
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.models.zoo import load_model
from vsrkit.research.reproduce import ablation, ablation_settings
from vsrkit.research.reproduce.ablation import (
    chosen_variants,
    config_of,
    make_plan,
    read_log,
    run_ablation,
    run_dir,
    steps_within,
    uses_spynet,
)
from vsrkit.research.reproduce.ablation_results import (
    ablation_figure,
    ablation_rows,
    write_ablation,
)
from vsrkit.research.reproduce.ablation_settings import (
    Settings,
    parse_duration,
    settings_from,
    variants_of,
)
from vsrkit.train.settings import ConfigError
from vsrkit.train.warm_start import warm_start

NAMES = [
    "full", "w/o STCSA", "w/o BOFF", "w/o flow", "plain Transformer block", "3 frames", "1 frame",
]  # fmt: skip


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    path = tmp_path_factory.mktemp("video") / "clip.mkv"
    write_video(path, moving_picture(20, 64))
    return path


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Networks with one block of every kind."""
    one = {"depth": 1, "channels": 4, "extract_blocks": 0, "tower_blocks": 0,
           "reconstruct_blocks": 0, "token_width": 4}  # fmt: skip
    monkeypatch.setattr(
        ablation_settings, "SMALL_VSRT", replace(ablation_settings.SMALL_VSRT, **one)
    )
    small = SmallConfig(channels=8, tower_blocks=1, head_blocks=1, attention_channels=8)
    monkeypatch.setattr(ablation_settings, "SMALL", small)


def settings(video, **changes):
    values = {"data": str(video), "steps": 2, "batch_size": 1, "crop": 16, "workers": 0}
    return Settings(**(values | changes))


def test_the_variants_lack_the_parts_in_their_names():
    found = variants_of("vsrt")
    assert [v.name for v in found] == NAMES
    nets = {v.name: VSRT(v.config) for v in found}
    assert nets["w/o STCSA"].layers[0].attention is None
    assert [v.name for v in found if nets[v.name].flow is None] == [
        "w/o BOFF", "w/o flow", "plain Transformer block",
    ]  # fmt: skip
    assert [v.name for v in found if uses_spynet(v)] == ["full", "w/o STCSA", "3 frames", "1 frame"]
    assert [nets[n].spec.context.size for n in NAMES] == [5, 5, 5, 5, 5, 3, 1]
    assert [v.frames for v in found] == [5, 5, 5, 5, 5, 3, 1]
    for variant in variants_of("vsrt-s"):
        assert VSRTSmall(variant.config).spec.scale == 4
        assert "/" not in variant.slug


@pytest.mark.parametrize("variant", variants_of("vsrt-s-trained"), ids=lambda v: v.slug)
def test_trained_variants_start_from_the_shipped_weights(variant, video, tmp_path):
    chosen = settings(video, model="vsrt-s-trained", validation=("a",))
    config = config_of(variant, chosen, tmp_path, tmp_path / "run", steps=2, validations=1, seed=0)
    assert config.warm_start == ("vsrt-s",)
    assert config.validation == ("a",)
    taken = warm_start(load_model(config.model), "vsrt-s")
    # Attention over one frame has no distances in time.
    assert taken.mismatched == (["attention.distance"] if variant.name == "1 frame" else [])
    left_out = {name.split(".")[0] for name in taken.unused}
    assert left_out == {"w/o STCSA": {"attention"}, "w/o flow": {"flow"}}.get(variant.name, set())


def test_the_one_frame_preset_uses_the_same_clips_and_no_neighbour():
    found = {v.name: v for v in variants_of("vsrt-s", frames=4)}
    assert [found[name].frames for name in ("full", "3 frames", "1 frame")] == [4, 3, 4]
    model = found["1 frame"].build().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.05)
    clip = torch.rand(1, 4, 3, 16, 16)
    with torch.no_grad():
        together = model(clip)
        for t in range(4):
            torch.testing.assert_close(together[:, t], model(clip[:, t : t + 1])[:, 0])
        full = found["full"].build().eval()
        full.load_state_dict({n: x for n, x in model.state_dict().items() if n in full.state_dict()}
                             | {"attention.distance": full.attention.distance})  # fmt: skip
        assert (full(clip)[:, 1] - full(clip[:, 1:2])[:, 0]).abs().max() > 1e-3


def test_differences_are_between_equal_seeds(video, tmp_path):
    chosen = settings(video, model="vsrt-s", variants=("1 frame",), seeds=2, steps=1)
    plan = make_plan(chosen, chosen_variants(chosen), tmp_path, None)
    scores = {"full": (30.0, 32.0), "1-frame": (29.5, 31.8)}
    for slug, (first, second) in scores.items():
        for seed, score in enumerate((first, second)):
            place = tmp_path / "runs" / slug / str(seed)
            place.mkdir(parents=True)
            line = f'{{"step": 1, "loss": 1, "seconds": 1, "psnr_y": {score}}}\n'
            (place / "log.jsonl").write_text(line)
    row = ablation_rows(plan, tmp_path)[1]
    apart = row.difference_low, row.difference, row.difference_high
    assert apart == pytest.approx((-0.5, -0.35, -0.2))
    markdown = write_ablation(plan, tmp_path)[0].read_text()
    assert "| -0.350 (-0.500 to -0.200) |" in markdown
    assert "1 steps of 1 x 7 frames" in markdown


def test_a_whole_ablation_is_trained_and_written(video, tmp_path):
    plan = run_ablation(settings(video), tmp_path)
    files = write_ablation(plan, tmp_path)
    rows = ablation_rows(plan, tmp_path)
    assert [row.variant for row in rows] == NAMES
    assert rows[0].difference == 0
    assert all(row.steps == 2 and row.seeds == 1 and row.psnr_y > 5 for row in rows)
    assert [row.published_difference for row in rows] == [0, -0.14, -0.82, None, None, -0.61, None]
    assert rows[0].parameters > rows[3].parameters + 1_000_000  # SPyNet
    markdown = files[0].read_text()
    assert "| w/o STCSA |" in markdown
    assert "31.05" in markdown
    with files[1].open(newline="") as file:
        assert [row["variant"] for row in csv.DictReader(file)] == NAMES
    assert json.loads(files[2].read_text())["plan"]["steps"] == 2
    assert files[3].stat().st_size > 0
    figure = ablation_figure(plan, tmp_path)
    assert [axes.get_ylabel() for axes in figure.axes] == ["PSNR-Y, dB", "training loss"]
    scores, losses = (lines_of(axes) for axes in figure.axes)
    assert set(scores) == set(losses) == set(NAMES)
    assert scores["full"][0] == [1, 2]
    assert scores["1 frame"][1][-1] == pytest.approx(rows[-1].psnr_y)


def test_a_stopped_ablation_resumes_with_the_same_steps(video, tmp_path, monkeypatch):
    chosen = settings(video, model="vsrt-s", variants=("w/o flow",), seeds=2)
    whole = tmp_path / "whole"
    run_ablation(chosen, whole)
    trained, real = [], ablation.train

    def interrupted(config, **options):
        trained.append(config.run_dir)
        if len(trained) == 3:
            raise StoppedError("stopped by SIGINT after step 1; continue with --resume")
        return real(config, **options)

    monkeypatch.setattr(ablation, "train", interrupted)
    stopped = tmp_path / "stopped"
    with pytest.raises(StoppedError, match=r"full, seed 1: .*; run the same command again"):
        run_ablation(chosen, stopped)
    run_ablation(chosen, stopped)
    assert len(trained) == 5  # two done before, one stopped, two after
    for variant in chosen_variants(chosen):
        for seed in range(2):
            here = read_log(run_dir(stopped, variant, seed), "psnr_y")
            assert here == read_log(run_dir(whole, variant, seed), "psnr_y")
    rows = ablation_rows(make_plan(chosen, chosen_variants(chosen), stopped, None), stopped)
    assert rows[0].seeds == 2
    assert rows[0].psnr_y_low <= rows[0].psnr_y <= rows[0].psnr_y_high
    with pytest.raises(ConfigError, match="crop was 16"):
        run_ablation(replace(chosen, crop=24), stopped)


def test_the_budget_sets_the_steps_once(video, tmp_path):
    chosen = settings(
        video, model="vsrt-s", steps=0, budget_seconds=10_000.0, variants=("1 frame",)
    )
    plan = make_plan(chosen, chosen_variants(chosen), tmp_path, None)
    assert plan.steps > 8
    assert set(plan.seconds_per_step) == {"full", "1 frame"}
    assert make_plan(chosen, chosen_variants(chosen), tmp_path, None) == plan
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]  # the runs for timing are deleted


def test_an_incomplete_log_line_is_ignored(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 1, "loss": 3.0}\n{"st')
    assert read_log(tmp_path, "loss") == [(1, 3.0)]


def test_steps_fill_the_budget():
    timed = {"a": (0.5, 2.0), "b": (1.5, 4.0)}
    steps, validations = steps_within(1000, timed, seeds=2)
    assert validations == 8
    assert 1000 - 4 <= 2 * (steps * 2.0 + 9 * 6.0) <= 1000
    assert steps_within(100, timed, seeds=1) == (41, 2)  # fewer validations where they cost much
    with pytest.raises(VsrkitError, match="larger --budget"):
        steps_within(20, timed, seeds=1)


def test_durations_and_wrong_settings():
    assert [parse_duration(t) for t in ("90s", "30m", "1.5h")] == [90, 1800, 5400]
    for wrong in ("30", "m", "2d", ""):
        with pytest.raises(VsrkitError, match="90s, 30m or 2h"):
            parse_duration(wrong)
    with pytest.raises(VsrkitError, match="no variant called 'w/o all'"):
        chosen_variants(Settings(data="x", variants=("w/o all",)))
    with pytest.raises(VsrkitError, match="between 0 and 1"):
        Settings(data="x", held_out=1.0)
    with pytest.raises(VsrkitError, match="crop was 20"):
        Settings(data="x", crop=20)
    with pytest.raises(VsrkitError, match="windows of five"):
        Settings(data="x", frames=9)
    with pytest.raises(VsrkitError, match="3 or more"):
        Settings(data="x", model="vsrt-s", frames=2)
    assert settings_from(data=None, budget="1m").data.endswith("city.mp4")


def test_the_command_trains_the_preset(video, tmp_path):
    words = ["reproduce", "ablation", "-m", "vsrt-s", "--data", str(video), "-o", str(tmp_path),
             "--variant", "w/o STCSA", "--variant", "1 frame", "--steps", "1", "--crop", "16",
             "--batch-size", "1", "--workers", "0"]  # fmt: skip
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "| w/o STCSA |" in done.output
    assert "| w/o flow |" not in done.output
