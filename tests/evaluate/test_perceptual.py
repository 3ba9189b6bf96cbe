"""LPIPS, tLPIPS, DISTS and NIQE: their definitions, and published values with real weights."""

import numpy as np
import pytest
import torch
from PIL import Image
from tests.evaluate.test_temporal import texture
from tests.paths import GOLDEN

from vsrkit.errors import DataError
from vsrkit.evaluate import niqe as niqe_module
from vsrkit.evaluate import perceptual
from vsrkit.evaluate.metric_weights import metric_available
from vsrkit.evaluate.niqe import niqe
from vsrkit.evaluate.perceptual import DISTS, LPIPS, VGG16, AlexNet, PerceptualScores
from vsrkit.hardware.files import cache_directory

USERS_CACHE = cache_directory()  # before tests get their own


@pytest.fixture
def real_weights(monkeypatch):
    """The weights in the user's cache directory; skips the test if they are not installed."""
    monkeypatch.setenv("VSRKIT_CACHE", str(USERS_CACHE))
    for name in ("lpips", "dists", "niqe"):
        if not metric_available(name):
            pytest.skip(f"vsrkit weights get {name}")


def picture(name):
    image = Image.open(GOLDEN / "lpips" / f"{name}.png").convert("RGB")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None] / 255


def random_lpips(seed=0):
    torch.manual_seed(seed)
    metric = LPIPS(AlexNet())
    for head in metric.heads:
        head.data.uniform_(0, 1)
    return metric.requires_grad_(False)


def test_lpips_is_the_weighted_distance_of_unit_features() -> None:
    metric = random_lpips()
    a, b = torch.rand(2, 1, 3, 40, 52)
    shift = torch.tensor([-0.030, -0.088, -0.188])[:, None, None]
    scale = torch.tensor([0.458, 0.448, 0.450])[:, None, None]
    expected = 0.0
    features = [[*metric.network((2 * x - 1 - shift) / scale)] for x in (a, b)]
    assert [f.shape[1] for f in features[0]] == [64, 192, 384, 256, 256]
    for head, x, y in zip(metric.heads, *features, strict=True):
        x, y = (torch.nn.functional.normalize(z, dim=1) for z in (x, y))
        expected += ((x - y) ** 2 * head[:, None, None]).sum(1).mean()
    assert float(metric(a, b)) == pytest.approx(float(expected), rel=1e-5)  # order of the sums
    assert float(metric(a, a)) == 0
    both = metric(torch.cat([a, b]), torch.cat([b, b]))
    assert both.shape == (2,)
    assert both[1] == 0


def test_dists_is_zero_for_equal_pictures_and_ignores_a_shift_of_texture_less_than_lpips() -> None:
    torch.manual_seed(0)
    metric = DISTS().requires_grad_(False)
    metric.alpha.data.uniform_(0, 1)
    metric.beta.data.zero_()  # only the means of features: where things are does not count
    noise = torch.rand(1, 3, 64, 64)
    # The frame wraps around, so the means of the picture itself stay equal.
    assert float(metric(noise, noise)) == pytest.approx(0, abs=1e-6)  # rounding of the sums
    shifted, other = noise.roll((16, 16), (2, 3)), noise.square()
    assert float(metric(noise, shifted)) < 0.1 * float(metric(noise, other))


def test_vgg16_has_its_five_stages() -> None:
    features = list(VGG16()(torch.rand(1, 3, 33, 48)))
    sizes = [(64, 33, 48), (128, 16, 24), (256, 8, 12), (512, 4, 6), (512, 2, 3)]
    assert [tuple(f.shape[1:]) for f in features] == sizes


def test_tlpips_compares_changes_and_begins_with_the_second_frame(monkeypatch) -> None:
    metric = random_lpips()
    monkeypatch.setattr(perceptual, "load_lpips", lambda network="alexnet": metric)
    a, b, c = torch.rand(3, 3, 40, 40)
    scores = PerceptualScores(frozenset({"lpips", "tlpips"}))
    assert set(scores.measure(a, b)) == {"lpips"}
    found = scores.measure(c, c)
    expected = abs(float(metric(c[None], a[None])) - float(metric(c[None], b[None])))
    assert found == {"lpips": 0.0, "tlpips": pytest.approx(expected, rel=1e-5)}


def test_niqe_fits_the_shape_of_a_known_distribution() -> None:
    gaussian = torch.randn(
        4, 96, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    shape, left, right = niqe_module._fit(gaussian)
    # 9,216 samples estimate the shape to a few percent.
    assert shape.tolist() == pytest.approx([2.0] * 4, rel=0.08)
    # A Gaussian of deviation 1 has the scale sqrt(2).
    assert left.tolist() == pytest.approx([2**0.5] * 4, rel=0.08)
    assert right.tolist() == pytest.approx([2**0.5] * 4, rel=0.08)


def test_niqe_of_too_small_frames_is_an_error() -> None:
    with pytest.raises(DataError, match=r"two blocks of 96x96 pixels, the frame is 100x191"):
        niqe(torch.rand(3, 191, 100))


@pytest.mark.weights
@pytest.mark.parametrize(
    ("name", "p0", "p1"), [("alexnet", 0.7219, 0.1376), ("vgg16", 0.5686, 0.4217)]
)
def test_lpips_of_the_authors_pictures(real_weights, name, p0, p1) -> None:
    """AlexNet's values are quoted by the authors; VGG16's were measured with this code."""
    metric = perceptual.load_lpips(name)
    reference = picture("ex_ref")
    assert float(metric(reference, picture("ex_p0"))) == pytest.approx(p0, abs=5e-5)
    assert float(metric(reference, picture("ex_p1"))) == pytest.approx(p1, abs=5e-5)


@pytest.mark.weights
def test_dists_equals_the_authors_code(real_weights) -> None:
    """Values of DISTS-pytorch 0.1 with the same VGG16."""
    metric = perceptual.load_dists()
    reference = picture("ex_ref")
    # 1e-5: sums of single precision.
    assert float(metric(reference, picture("ex_p0"))) == pytest.approx(0.387927, abs=1e-5)
    assert float(metric(reference, picture("ex_p1"))) == pytest.approx(0.225024, abs=1e-5)


@pytest.mark.weights
def test_niqe_is_worse_for_noise_than_for_structure(real_weights) -> None:
    frame = texture(256, 288, 1)
    noisy = (frame + 0.2 * torch.randn(frame.shape)).clamp(0, 1)
    assert niqe(noisy) > niqe(frame)
