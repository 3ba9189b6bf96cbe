"""`sharpness` reaches the output, the manifest, the plan and every worker, and is resumed."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.clips import write_clip
from tests.models.zoo.pair import install_pair
from tests.upscale import upscaled

from vsrkit import UpscaleOptions, load_model
from vsrkit.errors import VideoError, VsrkitError
from vsrkit.models.weights import model_digest
from vsrkit.upscale import prepare
from vsrkit.upscale.batch import upscale_any
from vsrkit.upscale.plan import plan_video
from vsrkit.upscale.work_folder import WorkFolder


class StoppedError(Exception):
    """A run that ends early."""


def upscale(source, target, **options):
    return upscaled.upscale(source, target, model="soft", precision="float32", **options)


@pytest.fixture
def film(tmp_path, monkeypatch):
    install_pair(monkeypatch, tmp_path / "cache")
    return write_clip(tmp_path / "in.mkv", frames=6, width=32, height=24)


def test_it_decides_the_output_and_both_ends_are_the_models_themselves(film, tmp_path):
    made = {}
    for sharpness in (None, 0, 0.5, 1):
        target = tmp_path / f"{sharpness}.mkv"
        done = upscale(film, target, sharpness=sharpness)
        made[sharpness] = target.read_bytes()
    assert done.model == "soft at sharpness 1"
    assert made[0] == made[None]
    assert len({made[0], made[0.5], made[1]}) == 3
    upscaled.upscale(film, tmp_path / "sharp.mkv", model="sharp", precision="float32")
    assert made[1] == (tmp_path / "sharp.mkv").read_bytes()


def test_workers_load_the_same_weights_by_name(film, tmp_path):
    upscale(film, tmp_path / "here.mkv", sharpness=0.3)
    with ThreadPoolExecutor(1) as pool:  # a new thread has no model yet
        upscale(film, tmp_path / "there.mkv", sharpness=0.3, executor=pool)
    assert (tmp_path / "here.mkv").read_bytes() == (tmp_path / "there.mkv").read_bytes()


def test_a_job_is_resumed_with_the_same_sharpness_only(film, tmp_path):
    target = tmp_path / "out.mkv"

    def stop(progress):
        if progress.stage == "write":
            raise StoppedError

    with pytest.raises(StoppedError):
        upscale(film, target, sharpness=0.25, on_progress=stop)
    options = WorkFolder.beside(target).read().options
    assert (options.model, options.sharpness) == ("soft", 0.25)
    assert options.weights == model_digest(load_model("soft", sharpness=0.25))
    with pytest.raises(VideoError, match=r"sharpness: was 0\.25, now 0\.75"):
        upscale(film, target, sharpness=0.75)
    assert upscale(film, target, sharpness=0.25).resumed == 6


def test_plan_preview_and_folders_have_it(film, tmp_path):
    options = UpscaleOptions(model="soft", sharpness=0.5, precision="float32")
    assert plan_video(film, options=options).model == "soft at sharpness 0.5"
    pictures = []
    for sharpness in (0, 0.5):
        folder = tmp_path / f"preview{int(2 * sharpness)}"
        chosen = UpscaleOptions(model="soft", sharpness=sharpness, precision="float32")
        upscale_any(str(film), str(folder), chosen, preview=1)
        pictures.append([path.read_bytes() for path in folder.iterdir()])
    assert pictures[0] != pictures[1]
    films = tmp_path / "films"
    films.mkdir()
    film.rename(films / "in.mkv")
    lines, failed = upscale_any(str(films), str(tmp_path / "made"), options)
    assert not failed
    assert "soft at sharpness 0.5" in lines[0]


def test_without_a_model_it_is_of_the_default_pair_at_every_factor(film, tmp_path, monkeypatch):
    monkeypatch.setattr(
        prepare, "default_model", lambda factor=None: "soft" if factor is None else "vsrt-s-x2"
    )
    done = upscaled.upscale(
        film, tmp_path / "out.mkv", model=None, sharpness=1, scale=2, precision="float32"
    )
    assert (done.model, done.height) == ("soft at sharpness 1", 48)


def test_errors_are_one_line(film, tmp_path):
    for wrong in (1.5, -1, "0.5", float("nan")):
        with pytest.raises(VsrkitError, match="--sharpness is a number from 0 to 1, not"):
            UpscaleOptions(sharpness=wrong)
    with pytest.raises(VsrkitError, match="--sharpness is for models by name"):
        UpscaleOptions(model=load_model("soft"), sharpness=0.5)
    with pytest.raises(VsrkitError, match="bicubic has no sharper companion"):
        upscaled.upscale(film, tmp_path / "out.mkv", sharpness=0.5)
