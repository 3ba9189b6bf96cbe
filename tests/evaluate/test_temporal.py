import pytest
import torch
from skimage.registration import optical_flow_ilk
from torch import Tensor

from vsrkit.evaluate.temporal import Temporal, estimate_flow, warping_error
from vsrkit.models.layers.resample import imresize

ALL = frozenset({"warping_error", "warped_flicker", "tof", "flicker"})


def texture(height: int = 120, width: int = 140, seed: int = 0) -> Tensor:
    """Smooth random grey blobs of a few pixels: (3, H, W) in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, height // 4, width // 4, generator=generator)
    return imresize(coarse, 4).clamp(0, 1).expand(3, -1, -1)


def moved(x: Tensor, right: int, down: int, margin: int = 12) -> Tensor:
    """Shift the content of `x` and crop the margin."""
    h, w = x.shape[-2:]
    return x[:, margin - down : h - margin - down, margin - right : w - margin - right]


@pytest.mark.parametrize(("right", "down"), [(0, 0), (2, 0), (-3, 1), (5, -4)])
def test_flow_finds_a_shift(right: int, down: int) -> None:
    picture = texture()[:1] * 255
    flow = estimate_flow(moved(picture, 0, 0), moved(picture, right, down))
    inner = flow[:, 8:-8, 8:-8]  # without pixels that moved out of the frame
    assert (inner[0] - right).abs().median() < 0.02
    assert (inner[1] - down).abs().median() < 0.02


def test_flow_agrees_with_scikit_images_lucas_kanade() -> None:
    picture = texture()[:1] * 255
    a = moved(picture, 0, 0)
    b = (moved(picture, 1, 0) + moved(picture, 2, 0)) / 2  # a motion between two shifts
    ours = estimate_flow(a, b)
    v, u = optical_flow_ilk(a[0].numpy(), b[0].numpy(), radius=7)
    theirs = torch.stack([torch.from_numpy(u), torch.from_numpy(v)])
    assert (ours - theirs)[:, 10:-10, 10:-10].norm(dim=0).median() < 0.1


def test_a_perfect_output_has_no_temporal_error() -> None:
    picture, meter = texture(), Temporal(ALL)
    first = meter.measure(moved(picture, 0, 0), moved(picture, 0, 0))
    assert first == {}  # it has no predecessor
    scores = meter.measure(moved(picture, 2, 1), moved(picture, 2, 1))
    assert scores["flicker"] == 0
    assert scores["warped_flicker"] == 0
    assert scores["tof"] == 0
    assert scores["warping_error"] < 1e-4  # flow near borders is rough; without flow it is 5e-3


def test_flicker_worked_out_by_hand() -> None:
    still, meter = torch.full((3, 32, 32), 0.5), Temporal(frozenset({"flicker"}))
    meter.measure(still + 1 / 255, still)
    scores = meter.measure(still - 1 / 255, still)
    # Grey goes down by two steps of RGB; luma has 219 steps where RGB has 255.
    assert scores == {"flicker": pytest.approx(2 * 219 / 255, abs=1e-3)}


def test_warped_flicker_is_the_change_of_the_error_along_the_motion() -> None:
    picture, meter = 0.1 + 0.8 * texture(), Temporal(frozenset({"warped_flicker"}))
    meter.measure(moved(picture, 0, 0) + 0.02, moved(picture, 0, 0))
    steady = meter.measure(moved(picture, 2, 1) + 0.02, moved(picture, 2, 1))
    # A constant error does not flicker.
    assert steady["warped_flicker"] == pytest.approx(0, abs=1e-9)
    jumps = meter.measure(moved(picture, 4, 2) - 0.02, moved(picture, 4, 2))
    assert jumps["warped_flicker"] == pytest.approx(0.04**2, rel=1e-3)


def test_tof_is_the_distance_between_two_flows() -> None:
    picture, meter = texture(), Temporal(frozenset({"tof"}))
    meter.measure(moved(picture, 0, 0), moved(picture, 0, 0))
    scores = meter.measure(moved(picture, 4, 0), moved(picture, 1, 0))
    assert scores["tof"] == pytest.approx(3, abs=0.4)  # less near borders


def test_warping_error_worked_out_by_hand() -> None:
    before = torch.rand(3, 8, 10)
    flow = torch.zeros(2, 8, 10)
    flow[0] = 1  # everything was one pixel further right
    frame = before.roll(-1, dims=2) + 0.1
    visible = torch.ones(8, 10, dtype=torch.bool)
    # The last column comes from outside the frame and is not counted.
    assert warping_error(frame, before, flow, visible) == pytest.approx(0.01, rel=1e-4)
    frame[:, 2:5, 3] += 5  # occluded pixels are not counted either
    visible[2:5, 3] = False
    assert warping_error(frame, before, flow, visible) == pytest.approx(0.01, rel=1e-4)


def test_warping_error_grows_with_flicker_of_a_moving_scene() -> None:
    picture = texture()
    hr = [moved(picture, t, 0) for t in range(3)]
    steady, restless = Temporal(ALL), Temporal(ALL)
    for t, frame in enumerate(hr):
        calm = steady.measure(frame, frame)
        shaky = restless.measure(frame + 0.05 * (-1) ** t, frame)
    assert shaky["warping_error"] > calm["warping_error"] + 0.005
