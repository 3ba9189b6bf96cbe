"""Self-ensemble: the mean over transformed clips, with the interface of the model."""

import pytest
import torch
from tests.data.trees import write_vid4
from torch import nn
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.animesr import AnimeSR, AnimeSRConfig
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig
from vsrkit.models.bicubic import Bicubic, BicubicConfig
from vsrkit.models.edvr import EDVR, EDVRConfig
from vsrkit.models.ensemble import Ensemble, views
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.spec import Carried, Segments, Spec, Window

BOTH_WAYS = Spec(scale=4, context=Segments(4, 2))

FLOAT32 = Precision("float32", channels_last=False)


def test_every_view_is_inverted_exactly():
    frames = torch.rand(2, 3, 5, 7)
    seen = views(BOTH_WAYS)
    assert len(set(seen)) == 16
    for view in seen:
        assert torch.equal(view.back(view.of(frames)), frames)


@pytest.mark.parametrize(
    ("context", "count"),
    [(Window(1, "all"), 8), (Carried(), 8), (Window(5), 16), (Segments(4, 2), 16)],
)
def test_time_is_reversed_only_for_models_that_use_past_and_future(context, count):
    seen = views(Spec(scale=4, context=context))
    assert len(seen) == count
    assert any(view.reverse for view in seen) == (count == 16)


def test_the_first_views_differ_in_space_and_time():
    first, second = views(BOTH_WAYS, 2)
    assert first == views(BOTH_WAYS, 1)[0]
    assert second.mirror
    assert second.reverse
    with pytest.raises(VsrkitError, match="1, 2, 4, 8 or 16 views, got 3"):
        views(BOTH_WAYS, 3)


def test_a_symmetric_model_is_not_changed():
    clip = torch.rand(1, 2, 3, 6, 9)
    bicubic = Bicubic(BicubicConfig())
    torch.testing.assert_close(Ensemble(bicubic)(clip), bicubic(clip), rtol=0, atol=1e-5)


def test_a_transformed_clip_gives_the_transformed_output():
    """The ensemble commutes with flips and transposition."""
    torch.manual_seed(0)
    net = Ensemble(EDVR(EDVRConfig(channels=4, groups=2, frames=3, reconstruct_blocks=1))).eval()
    clip = torch.rand(1, 3, 3, 8, 12)
    with torch.no_grad():
        plain = net(clip)
        for turned, back in [
            (clip.flip(-1), lambda sr: sr.flip(-1)),
            (clip.transpose(-1, -2), lambda sr: sr.transpose(-1, -2)),
            (clip.flip(1), lambda sr: sr),
        ]:
            torch.testing.assert_close(back(net(turned)), plain, rtol=0, atol=1e-5)
        assert (net.model(clip.flip(-1)).flip(-1) - net.model(clip)).abs().max() > 1e-3


def test_keep_selects_the_same_frames_in_reversed_views():
    net = Ensemble(BasicVSR(BasicVSRConfig(channels=4, blocks=1)), 2).eval()
    clip = torch.rand(1, 4, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(net(clip, keep=slice(0, 1)), net(clip)[:, :1], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("build", "config"),
    [
        (RRN, RRNConfig(channels=4, blocks=1)),
        (AnimeSR, AnimeSRConfig(channels=4, blocks=(2, 1, 1))),  # looks one frame ahead
    ],
)
def test_every_view_has_its_own_carried_state(build, config):
    torch.manual_seed(0)
    net = Ensemble(build(config)).eval()
    shot = torch.rand(3, 3, 6, 8)
    with torch.no_grad():
        streamed = torch.stack(list(upscale_frames(shot, Engine(net, FLOAT32))))
        whole = net(shot[None])[0].clamp(0, 1)
    torch.testing.assert_close(streamed, whole, rtol=0, atol=1e-5)


def test_it_has_the_interface_of_the_model():
    model = RRN(RRNConfig(channels=4, blocks=1))
    net = Ensemble(model)
    assert isinstance(net, nn.Module)
    assert net.spec == model.spec
    assert net.config is model.config


def test_the_command_line_option(tmp_path):
    write_vid4(tmp_path / "Vid4", frames=2)
    words = ["evaluate", "-m", "bicubic", "--ensemble", "--views", "2", "--data", tmp_path / "Vid4"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert "bicubic-ensemble-2" in done.output
