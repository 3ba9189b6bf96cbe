"""Previews: the pixels that a job would give, of a region, at one size for all models."""

import io
from fractions import Fraction

import numpy as np
import pytest
import torch
from PIL import Image
from tests.clips import noise_picture, write_clip
from tests.studio.conftest import videos

from vsrkit.inference.engine import make_engine, upscale_frames
from vsrkit.models.layers.resample import fitted
from vsrkit.models.zoo import load_model
from vsrkit.studio import preview
from vsrkit.studio.preview import Region, Wanted, draw_result, draw_source
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.video.read import open_source, orient

WHOLE = Region(0, 0, 32, 24)


def picture(path):
    return np.asarray(Image.open(path)).astype(int)


def in_steps(frame):
    """RGB (3, H, W) as the integers of a PNG (H, W, 3)."""
    return (frame.double().clamp(0, 1) * 255).round().permute(1, 2, 0).int().numpy()


def wanted(path, seconds=0.2, region=WHOLE, factor=4, **options):
    options = {"model": "bicubic", "device": "cpu", "precision": "float32"} | options
    return Wanted(path, seconds, region, factor, UpscaleOptions(**options))


@pytest.fixture
def clip(tmp_path):
    return write_clip(tmp_path / "a.mp4", frames=12)


def test_the_source_is_enlarged(clip, tmp_path):
    draw_source(wanted(clip), tmp_path / "a.png")
    frame = list(open_source(clip).frames())[5]
    assert (picture(tmp_path / "a.png") == in_steps(fitted(frame, 96, 128))).all()


@pytest.mark.parametrize("model", ["bicubic", "vsrt-s", "vsrt-xs"])
def test_a_whole_frame_is_that_of_a_job(tmp_path, model):
    clip = write_clip(tmp_path / "a.mp4", frames=7)  # vsrt-s sees three on either side
    torch.manual_seed(0)  # models without installed weights are untrained
    draw_result(wanted(clip, 0.12, model=model), tmp_path / "a.png")
    torch.manual_seed(0)
    engine = make_engine(load_model(model), precision="float32")
    job = list(upscale_frames(open_source(clip).frames(), engine))[3]
    assert (picture(tmp_path / "a.png") == in_steps(job)).all()


def test_a_region_is_cut_out_of_the_frame(tmp_path):
    clip = write_clip(tmp_path / "a.mp4", width=160, height=120)
    region = Region(64, 50, 21, 13)
    draw_result(wanted(clip, region=region), tmp_path / "a.png")
    frame = list(open_source(clip).frames())[5]
    whole = in_steps(next(iter(upscale_frames([frame], load_model("bicubic")))))
    found = picture(tmp_path / "a.png")
    assert (found == whole[200:252, 256:340]).all()


def test_the_region_is_that_of_the_displayed_picture(tmp_path):
    clip = write_clip(tmp_path / "a.mkv", width=64, height=32, rotation=90)
    source = open_source(clip)
    displayed = orient(next(source.frames()).clamp(0, 1), source.info.orientation)
    assert displayed.shape == (3, 64, 32)
    draw_source(wanted(clip, 0, Region(4, 8, 10, 20), factor=1), tmp_path / "a.png")
    assert (picture(tmp_path / "a.png") == in_steps(displayed)[8:28, 4:14]).all()


@pytest.mark.parametrize(("factor", "size"), [(2, (48, 64)), (3, (72, 96)), (1.5, (36, 48))])
def test_all_pictures_have_the_same_size(clip, tmp_path, factor, size):
    draw_source(wanted(clip, factor=factor), tmp_path / "a.png")
    draw_result(wanted(clip, factor=factor), tmp_path / "b.png")
    assert picture(tmp_path / "a.png").shape == picture(tmp_path / "b.png").shape == (*size, 3)


def test_no_model_looks_across_a_cut(tmp_path):
    dark = [noise_picture(0, 64, 48, smooth=True)] * 10
    bright = [noise_picture(7, 64, 48)] * 10
    clip = write_clip(
        tmp_path / "a.mp4", width=64, height=48, frames=20, pictures=iter(dark + bright)
    )
    first = preview._read_clip(wanted(clip, 0.36), before=3, after=3, margin=0, multiple=1)
    second = preview._read_clip(wanted(clip, 0.4), before=3, after=3, margin=0, multiple=1)
    assert (len(first.frames), first.centre) == (4, 3)
    assert (len(second.frames), second.centre) == (4, 0)


def test_deep_colours_are_kept(tmp_path):
    clip = write_clip(tmp_path / "a.mkv", codec="libx265", pix_fmt="yuv420p10le")
    draw_source(wanted(clip), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[24] == 16  # bits of a sample


def test_the_start_of_a_job_does_not_move_the_time(clip, tmp_path):
    draw_source(wanted(clip), tmp_path / "a.png")
    draw_source(wanted(clip, start=Fraction(1, 10), end=Fraction(3, 10)), tmp_path / "b.png")
    assert (picture(tmp_path / "a.png") == picture(tmp_path / "b.png")).all()


def post(client, **values):
    return client.post("/api/previews", json=values)


@pytest.fixture
def video(client, folder):
    write_clip(folder / "a.mp4", width=64, height=48)
    return videos(client)["a.mp4"]["id"]


def test_a_preview_by_request(client, folder, video):
    before = sorted(folder.iterdir())
    region = {"x": 60, "y": -5, "width": 16, "height": 12}
    answer = post(client, video=video, time_s=0.1, region=region, models=["bicubic"])
    assert answer.status_code == 202
    done = client.get(f"/api/previews/{answer.json()['id']}?wait=1").json()
    assert (done["state"], done["error"], done["scale"]) == ("done", None, 4)
    assert done["region"] == {"x": 48, "y": 0, "width": 16, "height": 12}
    (result,) = done["results"]
    assert (result["model"], result["state"]) == ("bicubic", "done")
    assert result["seconds"] > 0
    for path in (done["source"], result["picture"]):
        found = client.get(path)
        assert found.headers["content-type"] == "image/png"
        assert Image.open(io.BytesIO(found.content)).size == (64, 48)
    assert client.get(f"/api/previews/{done['id']}/1.png").status_code == 404
    assert client.get(f"/api/previews/{done['id']}/../source.png").status_code == 404
    assert sorted(folder.iterdir()) == before


def test_without_a_region_the_middle_is_shown(client, video):
    answer = post(client, video=video, models=["bicubic"], options={"height": 72}).json()
    assert answer["region"] == {"x": 0, "y": 0, "width": 64, "height": 48}
    assert answer["scale"] == 1.5


def test_a_failed_model_has_a_line(client, video):
    options = {"sharpness": 0.5}
    answer = post(client, video=video, models=["bicubic"], options=options).json()
    done = client.get(f"/api/previews/{answer['id']}?wait=1").json()
    assert done["state"] == "failed"
    assert "no sharper companion" in done["results"][0]["error"]
    assert done["results"][0]["picture"] is None


@pytest.mark.parametrize(
    "values",
    [
        {"models": []},
        {"models": ["bicubic"] * 2},
        {"models": ["bicubic", "vsrt-s", "vsrt-m", "vsrt-xs"]},
        {"models": ["../x"]},
        {"models": [{}]},
        {"models": "bicubic"},
        {"time_s": "1"},
        {"time_s": -1},
        {"time_s": True},
        {"time_s": 1e300},
        {"region": {"x": 0, "y": 0, "width": 0, "height": 10}},
        {"region": {"x": 0, "y": 0, "width": 385, "height": 10}},
        {"region": {"x": 0.5, "y": 0, "width": 10, "height": 10}},
        {"region": {"x": True, "y": 0, "width": 10, "height": 10}},
        {"options": {"scale": 10_000}},
        {"options": {"height": 1_000_000}},
        {"region": {"x": 0, "y": 0, "width": 10}},
        {"region": [0, 0, 10, 10]},
        {"options": {"none": 1}},
        {"other": 1},
    ],
)
def test_wrong_previews_are_refused(client, video, values):
    assert post(client, **{"video": video, "models": ["bicubic"]} | values).status_code == 400


def test_a_plan_by_request(client, folder, video, monkeypatch):
    values = {"video": video, "models": ["bicubic"], "options": {"codec": "ffv1", "scale": 2}}
    answer = client.post("/api/plans", json=values)
    assert answer.status_code == 202
    done = client.get(f"/api/plans/{answer.json()['id']}?wait=1").json()
    assert (done["state"], done["video"]) == ("done", video)
    (result,) = done["results"]
    assert (result["width"], result["height"], result["codec"]) == (128, 96, "ffv1")
    assert result["frames"] == 6
    assert result["seconds"] == pytest.approx(6 * result["seconds_per_frame"])
    assert min(result["file_size"], result["peak_memory"]) > 0
    assert any(line.startswith("no audio") for line in result["warnings"])

    def measure(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(preview, "plan_video", measure)
    again = client.post("/api/plans", json=values).json()
    done = client.get(f"/api/plans/{again['id']}?wait=1").json()
    assert done["results"] == [result]
