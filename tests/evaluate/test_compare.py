from base64 import b64decode
from pathlib import Path

import pytest
import torch
from tests.data.trees import random_clip, write_clip
from tests.pages import HOSTILE, constant_of, texts_of
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.data.degrade import BI, degrade
from vsrkit.errors import DataError, VsrkitError
from vsrkit.evaluate.compare import Box, compare_models, draw_grid, hardest_place, slider_page
from vsrkit.evaluate.metrics import measured, psnr
from vsrkit.models.layers.resample import imresize
from vsrkit.video.images import read_image


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    write_clip(tmp_path / "set" / "a", random_clip(5, 96, 128, seed=1))
    write_clip(tmp_path / "set" / "b", random_clip(3, 96, 128, seed=2))
    return tmp_path / "set"


def test_each_clip_gives_a_view_of_its_middle_frame(clips: Path) -> None:
    views = compare_models(["bicubic"], clips)
    assert [(view.clip, view.frame) for view in views] == [("a", 2), ("b", 1)]
    assert list(views[0].pictures) == ["bicubic", "ground truth"]
    hr = random_clip(5, 96, 128, seed=1)[2]
    sr = imresize(degrade(hr[None], BI()), 4)[0]
    torch.testing.assert_close(views[0].truth, hr)
    torch.testing.assert_close(views[0].pictures["bicubic"], sr.clamp(0, 1))
    whole = psnr(*(measured(x, channel="rgb") for x in (sr, hr)))
    assert views[0].psnr("bicubic", whole=True) == pytest.approx(whole)


def test_psnr_is_that_of_the_crop(clips: Path) -> None:
    (view,) = compare_models(["bicubic"], clips, crops=["a:8,16,40,24"], frame=4)
    assert (view.clip, view.frame, view.box) == ("a", 4, Box(8, 16, 40, 24))
    pair = [
        measured(x[:, 16:40, 8:48], channel="rgb") for x in (view.pictures["bicubic"], view.truth)
    ]
    assert view.psnr("bicubic") == pytest.approx(psnr(*pair))


def test_a_crop_without_a_clip_name_applies_to_all_clips(clips: Path) -> None:
    views = compare_models(["bicubic"], clips, crops=["0,0,32,32", "b:8,8,16,16"])
    assert [(v.clip, v.box.x) for v in views] == [("a", 0), ("b", 0), ("b", 8)]
    assert [v.clip for v in compare_models(["bicubic"], clips, clips=["b"])] == ["b"]


def test_the_worst_crop_is_found() -> None:
    hr = torch.zeros(3, 100, 200)
    sr = hr.clone()
    sr[:, 60:80, 120:150] = 1
    box = hardest_place(sr, hr)
    assert box.cut(sr).sum() == sr.sum()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"crops": ["1,2,3"]}, VsrkitError, "a crop is X,Y,W,H"),
        ({"crops": ["100,0,40,40"]}, VsrkitError, "is not inside the 128x96 frames of a"),
        ({"crops": ["c:0,0,8,8"]}, DataError, "no clip called 'c' to crop"),
        ({"frame": 4}, DataError, "clip b has frames 0 to 2, not 4"),
        ({"clips": ["c"]}, DataError, "no clip 'c'"),
    ],
)
def test_invalid_arguments_are_errors(clips: Path, arguments, error, message: str) -> None:
    with pytest.raises(error, match=message):
        compare_models(["bicubic"], clips, **arguments)


def test_the_grid_shows_crops_enlarged_by_an_integer_factor(clips: Path) -> None:
    (view,) = compare_models(["bicubic"], clips, crops=["a:8,16,40,24"])
    grid = draw_grid([view])
    crop = view.box.cut(view.truth).repeat_interleave(8, 1).repeat_interleave(8, 2)  # 320 wide
    assert torch.equal(grid[:, : 24 * 8, -8 - 320 : -8], crop)
    assert (grid[:, 24 * 8 + 4 :, -8 - 320 : -8] == 0).any()  # the caption below it
    assert draw_grid([view, view]).shape[1] == 2 * grid.shape[1]


def test_the_command_writes_a_picture_and_a_self_contained_page(
    clips: Path, tmp_path: Path
) -> None:
    words = ["compare", "-m", "bicubic", "--data", clips, "-o", tmp_path / "new" / "c.png"]
    words += ["--html", tmp_path / "c.html"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert read_image(tmp_path / "new" / "c.png").shape[0] == 3
    page = (tmp_path / "c.html").read_text()
    texts_of(page)
    content = constant_of(page, "views")
    assert [view["clip"] for view in content] == ["a", "b"]
    data = content[0]["pictures"]["ground truth"]["data"].removeprefix("data:image/png;base64,")
    (tmp_path / "inside.png").write_bytes(b64decode(data))
    assert torch.equal(read_image(tmp_path / "inside.png"), random_clip(5, 96, 128, seed=1)[2])


def test_names_cannot_break_out_of_the_page(clips: Path) -> None:
    name = HOSTILE.replace("/", "")
    (clips / "a").rename(clips / name)
    page = slider_page(compare_models(["bicubic"], clips, clips=[name]))
    texts_of(page)
    assert page.count("</script>") == 1
    assert constant_of(page, "views")[0]["clip"] == name
