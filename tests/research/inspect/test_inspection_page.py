"""`vsrkit inspect`: a page, pictures and numbers from a clip; errors in one line."""

import json
import re

import pytest
import torch
from tests.cli.test_cli import run_inside

from vsrkit.models.zoo import load_model
from vsrkit.research.inspect.clip_sample import take_sample
from vsrkit.video.images import read_image, write_image


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    """A folder of four small frames of a texture that moves to the right."""
    folder = tmp_path_factory.mktemp("frames")
    wide = torch.rand(3, 36, 60, generator=torch.Generator().manual_seed(0))
    wide = torch.nn.functional.avg_pool2d(wide[None], 3, 1, 1)[0]
    for number in range(4):
        write_image(folder / f"{number:02d}.png", wide[..., 8 - number : 48 - number])
    return folder


def run(monkeypatch, capsys, *arguments):
    return run_inside(monkeypatch, capsys, "inspect", *map(str, arguments))


def test_a_page_pictures_and_numbers(frames, tmp_path, monkeypatch, capsys):
    arguments = (frames, "-m", "vsrt-s", "-o", tmp_path, "--frame", 1, "--pixel", "30,20")
    code, out, _ = run(monkeypatch, capsys, *arguments)
    assert code == 0
    assert str(tmp_path / "index.html") in out
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert (numbers["frame"], numbers["pixel"], numbers["frames"]) == (1, [30, 20], [0, 1, 2, 3])
    assert numbers["trained"] is True
    assert [flow["to"] for flow in numbers["flow"]] == [0, 2]
    assert len(numbers["parts"]) == 7
    page = (tmp_path / "index.html").read_text()
    pictures = sorted(tmp_path.glob("*.png"))
    assert page.count("data:image/png;base64,") == len(pictures)
    assert not re.search(r'(src|href)="(?!data:)', page)  # nothing is fetched from elsewhere
    assert all(read_image(picture).std() > 0.01 for picture in pictures)
    assert "no trained weights" not in page


def test_untrained_weights_are_reported(frames, tmp_path, monkeypatch, capsys, caplog):
    assert run(monkeypatch, capsys, frames, "-m", "vespcn", "-o", tmp_path)[0] == 0
    assert "no trained weights for vespcn" in caplog.text
    assert "has no trained weights here" in (tmp_path / "index.html").read_text()
    first = (tmp_path / "output.png").read_bytes()
    run(monkeypatch, capsys, frames, "-m", "vespcn", "-o", tmp_path)
    assert (tmp_path / "output.png").read_bytes() == first  # the same random weights every time


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--frame", "4"], "has frames 0 to 3, not 4"),
        (["--frame", "-1"], "has frames 0 to 3, not -1"),
        (["--pixel", "40,3"], "pixel 40,3 is outside of"),
        (["--pixel", "3,-1"], "x is 0 to 39, y 0 to 35"),
        (["--pixel", "middle"], "expected a pixel as X,Y in whole numbers, got 'middle'"),
        (["--side", "4"], "must be at least 32 pixels, got 4"),
        (["-m", "vsrt-x"], "no model called 'vsrt-x'"),
        (["--device", "tpu"], "no device called 'tpu'"),
    ],
)
def test_wrong_arguments_give_one_line(frames, tmp_path, monkeypatch, capsys, arguments, message):
    code, _, err = run(monkeypatch, capsys, frames, "-o", tmp_path / "out", *arguments)
    assert code == 1
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_wrong_clips_give_one_line(frames, tmp_path, monkeypatch, capsys):
    (tmp_path / "text.mp4").write_text("not a video")
    (tmp_path / "empty").mkdir()
    one = tmp_path / "one"
    write_image(one / "0.png", torch.rand(3, 36, 40))
    for clip, message in (
        (tmp_path / "missing.mp4", "does not exist"),
        (tmp_path / "text.mp4", "cannot read"),
        (tmp_path / "empty", "contains no frames"),
        (one, "has only 1 frame"),
        (one / "0.png", "has only 1 frame"),
    ):
        code, _, err = run(monkeypatch, capsys, clip, "-o", tmp_path / "out")
        assert (code, len(err.splitlines())) == (1, 1), err
        assert message in err


@pytest.mark.parametrize(("frame", "expected"), [(3, [0, 1, 2, 3]), (4, [4, 5, 6, 7])])
def test_frames_beyond_a_cut_are_not_used(tmp_path, frame, expected):
    generator = torch.Generator().manual_seed(1)
    for number in range(8):
        if number in (0, 4):  # two scenes that have nothing in common
            scene = torch.rand(1, 3, 5, 6, generator=generator)
            scene = torch.nn.functional.interpolate(scene, (36, 40), mode="bicubic")[0].clamp(0, 1)
        write_image(tmp_path / f"{number}.png", scene.roll(number, -1))
    model = load_model("vsrt-s")
    sample = take_sample(tmp_path, model.spec, frame=frame)
    assert sample.numbers == expected
    assert torch.equal(sample.clip[0, sample.centre], read_image(tmp_path / f"{frame}.png"))


def test_a_shot_of_one_frame_has_no_flow_to_show(tmp_path, monkeypatch, capsys):
    generator = torch.Generator().manual_seed(2)
    for number in range(4):  # every frame is another scene
        scene = torch.rand(1, 3, 5, 6, generator=generator)
        picture = torch.nn.functional.interpolate(scene, (27, 35), mode="bicubic")[0].clamp(0, 1)
        write_image(tmp_path / "frames" / f"{number}.png", picture)
    code, _, _ = run(monkeypatch, capsys, tmp_path / "frames", "-o", tmp_path / "out")
    assert code == 0
    assert "no other frame, so there is no flow" in (tmp_path / "out" / "index.html").read_text()
    assert json.loads((tmp_path / "out" / "numbers.json").read_text())["frames"] == [2]


def test_a_single_frame_is_enough_for_a_single_image_model(tmp_path, monkeypatch, capsys):
    write_image(tmp_path / "0.png", torch.rand(3, 36, 40))
    code, _, _ = run(
        monkeypatch, capsys, tmp_path / "0.png", "-m", "bicubic", "-o", tmp_path / "out"
    )
    assert code == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert "estimates no optical flow" in page
    assert "has no learnt layers" in page
