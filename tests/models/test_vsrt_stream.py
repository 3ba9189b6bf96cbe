"""`vsrt-xs` passes a state forward: no frame waits for a later one."""

import pytest
import torch

from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.vsrt_stream import StreamConfig, VSRTStream


def awake() -> VSRTStream:
    """A small model with random values for the parameters that are initialised to zero."""
    torch.manual_seed(0)
    model = VSRTStream(StreamConfig(channels=8, blocks=1, flow_channels=8)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(0, 0.05)
    return model


@torch.no_grad()
def test_a_frame_depends_on_itself_and_all_earlier_frames():
    model, clip = awake(), torch.rand(1, 5, 3, 32, 36)
    changed = clip.clone()
    changed[:, 2] = torch.rand(3, 32, 36)
    differs = (model(clip) - model(changed)).abs().amax((0, 2, 3, 4)) > 0
    assert differs.tolist() == [False, False, True, True, True]


@torch.no_grad()
def test_given_flows_are_used_as_in_training():
    model, clip = awake(), torch.rand(2, 4, 3, 32, 32)
    frames = list(clip.unbind(1))
    found = torch.stack(model.along(frames, *model.flows(frames)), 1)
    # All pairs of frames pass the flow network as one batch.
    torch.testing.assert_close(found, model(clip), rtol=0, atol=1e-5)
    still = [None, *(torch.zeros(2, 2, 16, 16) for _ in range(3))]
    assert not torch.allclose(torch.stack(model.along(frames, still, still), 1), found)


def test_frames_come_out_before_the_next_one_is_read():
    read = []

    def frames():
        for number in range(4):
            read.append(number)
            yield torch.rand(3, 33, 35, generator=torch.Generator().manual_seed(number))

    engine = Engine(awake(), Precision("float32", channels_last=False))
    for number, frame in enumerate(upscale_frames(frames(), engine)):
        assert frame.shape == (3, 132, 140)
        assert read[-1] <= number + 1  # the second frame tells whether the shot goes on


@pytest.mark.parametrize("size", [(30, 40), (32, 33)])
def test_sizes_that_do_not_fit_the_grid_are_an_error(size):
    with pytest.raises(VsrkitError, match="upscale_frames pads"):
        awake()(torch.rand(1, 1, 3, *size))
