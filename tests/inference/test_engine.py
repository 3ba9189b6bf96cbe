"""The engine: same output for any chunk and workers, no context across cuts, flat memory."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, gather, make_engine, split_shots, upscale_frames
from vsrkit.models.bicubic import Bicubic, BicubicConfig
from vsrkit.models.spec import Carried, Piece, Segments, Spec, Window
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.vsrt_small import SMALL, VSRTSmall

PLAIN = Precision("float32", channels_last=True)


class Echo(nn.Module):
    """Repeats pixels x2; adds up what it is given, so that a wrong frame shows."""

    def __init__(self, context, **rules):
        super().__init__()
        self.spec = Spec(scale=2, context=context, **rules)
        self.config = None

    def forward(self, clip, keep=None):
        least = max(self.spec.tile or self.spec.minimum, 1)
        assert min(clip.shape[-2:]) >= least
        assert all(side % self.spec.multiple == 0 for side in clip.shape[-2:])
        if self.spec.tile:
            assert clip.shape[-2:] == (least, least)
        big = clip.repeat_interleave(2, -1).repeat_interleave(2, -2)
        if isinstance(self.spec.context, Window) and self.spec.context.emits == "centre":
            middle = self.spec.context.size // 2
            return big[:, middle : middle + 1]
        return big if keep is None else big[:, keep]

    def step(self, frame, state):
        state = frame if state is None else (state + frame) / 2
        return state.repeat_interleave(2, -1).repeat_interleave(2, -2), state


def noise(frames, h=20, w=24):
    return list(torch.rand(frames, 3, h, w, generator=torch.Generator().manual_seed(frames)))


@pytest.mark.parametrize("context", [Window(1, "all"), Window(5), Window(5, "all"), Segments(4, 2)])
@pytest.mark.parametrize(
    "rules", [{}, {"tile": 16}, {"tile": 64}, {"minimum": 32}, {"multiple": 8}, {"multiple": 16}]
)
@pytest.mark.parametrize(("h", "w"), [(20, 24), (7, 50)])
def test_every_frame_comes_back_once_in_order_at_its_size(context, rules, h, w):
    frames = noise(11, h, w)
    out = list(upscale_frames(frames, Engine(Echo(context, **rules), PLAIN), cuts=[3, 4]))
    assert len(out) == 11
    for lr, sr in zip(frames, out, strict=True):
        wanted = lr.repeat_interleave(2, -1).repeat_interleave(2, -2)
        torch.testing.assert_close(sr, wanted, atol=1e-6, rtol=0)  # blending rounds


def test_a_carried_state_is_reset_at_a_cut():
    frames = noise(6)
    out = list(upscale_frames(frames, Engine(Echo(Carried()), PLAIN), cuts=[2]))
    again = list(upscale_frames(frames[2:], Engine(Echo(Carried()), PLAIN)))
    assert all(torch.equal(a, b) for a, b in zip(out[2:], again, strict=True))
    assert not torch.equal(out[1][:, ::2, ::2], frames[1])  # it did carry


def test_output_is_clamped_to_the_range_of_the_input():
    """A video has highlights above white; a model's overshoot is cut at what was there."""
    engine = Engine(Bicubic(BicubicConfig()), PLAIN)
    frame = noise(1, 8, 8)[0]
    (plain,) = upscale_frames([frame], engine)
    assert (plain.min(), plain.max()) == (0, 1)  # noise overshoots
    (bright,) = upscale_frames([frame * 1.2], engine)
    assert bright.max() == (frame * 1.2).max() > 1


def test_shots_are_split_at_cuts_without_reading_ahead():
    read = []

    def source():
        for number in range(6):
            read.append(number)
            yield number, number in (2, 3)

    sizes = []
    for shot in split_shots(source()):
        first = next(shot)
        sizes.append([first, *shot])
        assert len(read) <= sizes[-1][-1] + 2
    assert sizes == [[0, 1], [2], [3, 4, 5]]


def test_gather_hands_over_enough_frames():
    work = [Piece(torch.zeros(3, 3, 1, 1), slice(0, 2))] * 5
    assert [len(group) for group in gather(work, 1)] == [1] * 5
    assert [len(group) for group in gather(work, 4)] == [2, 2, 1]
    assert [len(group) for group in gather(work, 100)] == [5]


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    model = VSRTSmall(SMALL)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(0, 0.02)
    return make_engine(model, precision=PLAIN)


@pytest.fixture(scope="module")
def movie():
    """80 frames, a cut in the middle: two pictures that drift."""
    pictures = torch.rand(2, 3, 40, 120, generator=torch.Generator().manual_seed(0))
    return [pictures[n // 40, :, n % 5 : n % 5 + 18, n % 40 : n % 40 + 22] for n in range(80)]


@pytest.fixture(scope="module")
def upscaled(small, movie):
    return torch.stack(list(upscale_frames(movie, small, cuts=[40])))


@pytest.mark.parametrize("chunk", [1, 7, 16, 80])
def test_chunks_do_not_change_a_byte(small, movie, upscaled, chunk):
    out = torch.stack(list(upscale_frames(movie, small, cuts=[40], chunk=chunk)))
    assert torch.equal(out, upscaled)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_change_a_byte(small, movie, upscaled, workers):
    out = torch.stack(list(upscale_frames(movie, small, cuts=[40], chunk=7, workers=workers)))
    assert torch.equal(out, upscaled)


def test_threads_do_not_change_a_byte(small, movie, upscaled):
    """Workers share the cores, so each has fewer threads than one process alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        out = torch.stack(list(upscale_frames(movie[:20], small)))
    finally:
        torch.set_num_threads(before)
    one = torch.stack(list(upscale_frames(movie[:20], small)))
    assert torch.equal(out, one)


def test_nothing_before_a_cut_changes_anything_after_it(small, movie, upscaled):
    other = [1 - frame for frame in movie[:40]] + movie[40:]
    out = torch.stack(list(upscale_frames(other, small, cuts=[40])))
    assert torch.equal(out[40:], upscaled[40:])
    assert not torch.equal(out[:40], upscaled[:40])


def test_segment_borders_do_not_show(small, movie):
    """The step between neighbouring output frames is no larger at a segment's border."""
    still = [movie[0]] * (3 * SMALL.segment)
    out = torch.stack(list(upscale_frames(still, small)))
    steps = out.diff(dim=0).abs().mean((1, 2, 3))[SMALL.warmup : -SMALL.warmup]
    at_border = torch.tensor(
        [(t + 1) % SMALL.segment == 0 for t in range(SMALL.warmup, SMALL.warmup + len(steps))]
    )
    assert at_border.sum() == 2
    assert steps[at_border].max() <= 1.5 * steps[~at_border].max() + 1e-5


def test_the_released_net_runs_at_any_size():
    config = VSRTConfig(
        frames=3, depth=1, channels=4, extract_blocks=1, tower_blocks=1, reconstruct_blocks=1
    )
    frames = noise(4, 50, 90)
    out = list(upscale_frames(frames, VSRT(config)))
    assert [tuple(f.shape) for f in out] == [(3, 200, 360)] * 4


@pytest.mark.parametrize(
    "frames",
    [
        [torch.rand(20, 24)],
        [torch.rand(1, 20, 24)],
        [torch.zeros(3, 20, 24, dtype=torch.uint8)],
        [torch.rand(3, 20, 24), torch.rand(3, 20, 30)],
        [torch.rand(3, 20, 24).numpy()],
    ],
)
def test_tensors_that_are_not_frames_are_refused(frames):
    with pytest.raises(ValueError, match="H, W"):
        list(upscale_frames(frames, Bicubic(BicubicConfig())))


def test_bicubic_is_the_same_whole_or_tiled():
    frames = noise(1, 60, 60)
    whole = list(upscale_frames(frames, Engine(Bicubic(BicubicConfig()), PLAIN)))
    tiled = list(upscale_frames(frames, Engine(Bicubic(BicubicConfig()), PLAIN, tile=32)))
    inner = slice(48, -48)  # where two tiles meet they see different borders, faded out
    torch.testing.assert_close(whole[0], tiled[0], atol=0.05, rtol=0)
    assert (whole[0] - tiled[0])[:, inner, inner].abs().mean() < 1e-3


MEMORY = """
import resource, sys, torch
from dataclasses import replace
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import make_engine, upscale_frames

torch.set_num_threads(1)
config = SmallConfig(channels=16, tower_blocks=1, attention_channels=8, attention_heads=1)
engine = make_engine(VSRTSmall(config), precision=Precision("float32", True))
source = (torch.rand(3, 24, 24) for _ in range(2000))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for number, frame in enumerate(upscale_frames(source, engine, cuts=range(0, 2000, 170))):
    if number == 300:
        early = peak()
print(early, peak())
"""


@pytest.mark.slow
def test_memory_is_flat_over_two_thousand_frames():
    out = subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True)
    early, late = map(int, out.stdout.split())
    assert late <= 1.05 * early
