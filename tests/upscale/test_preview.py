"""A preview shows the same frames as the whole run and upscales few others."""

import pytest
import torch
from tests.inference.test_engine import PLAIN, Echo
from tests.scenes import scene
from tests.upscale.test_fidelity import folder

from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.layers.resample import fitted
from vsrkit.models.spec import Carried, Segments, Window
from vsrkit.upscale.options import Progress
from vsrkit.upscale.preview import LINE, chosen, preview_video
from vsrkit.video.images import read_image
from vsrkit.video.read import open_source


@pytest.mark.parametrize(
    ("shot", "frames", "numbers"),
    [
        (range(10), 1, [5]),
        (range(4, 8), 2, [5, 7]),
        (range(7, 8), 3, [7]),
        (range(6), 3, [1, 3, 5]),
    ],
)
def test_frames_are_spread_over_the_shot(shot, frames, numbers):
    assert chosen(shot, frames) == numbers


class Counting(Echo):
    """Counts the frames it was run on."""

    ran = 0

    def forward(self, clip, keep=None):
        self.ran += clip.shape[1]
        return super().forward(clip, keep)


def two_shots():
    return [scene(seed, 36, 64, 20)[:, :, n : n + 64] for seed in (1, 2) for n in range(20)]


@pytest.mark.parametrize("context", [Window(5), Window(5, "all"), Segments(4, 2), Carried()])
def test_preview_equals_the_whole_run(tmp_path, context):
    source = open_source(folder(tmp_path / "lr", two_shots()))
    model = Counting(context)
    made = preview_video(source, Engine(model, PLAIN), tmp_path / "out", frames=2)
    numbers = [5, 15, 25, 35]
    shots = [1, 1, 2, 2]
    names = [f"shot-{shot:04d}-frame-{n:06d}.png" for shot, n in zip(shots, numbers, strict=True)]
    assert [path.name for path in made] == names
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == names
    assert model.ran <= 4 * 8  # a window or a segment for each, not forty frames
    lr = list(source.frames())
    whole = list(upscale_frames(lr, Engine(Echo(context), PLAIN), cuts=[20]))
    for path, number in zip(made, numbers, strict=True):
        picture = read_image(path)
        assert picture.shape == (3, 72, 2 * 128 + LINE)
        half_step = 0.5 / 255 + 1e-6
        torch.testing.assert_close(picture[..., -128:], whole[number], atol=half_step, rtol=0)
        bicubic = fitted(lr[number], 72, 128).clamp(0, 1)
        torch.testing.assert_close(picture[..., :128], bicubic, atol=half_step, rtol=0)


def test_reports_progress(tmp_path):
    source = open_source(folder(tmp_path / "lr", two_shots()))
    events = []
    preview_video(
        source,
        Engine(Echo(Window(1)), PLAIN),
        tmp_path / "out",
        on_progress=events.append,
    )
    assert events[-2:] == [Progress(stage="upscale", done=n, total=2) for n in (1, 2)]
    assert Progress(stage="scan", done=40, total=40) in events
