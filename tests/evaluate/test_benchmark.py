from pathlib import Path

import pytest
import torch
from tests.data.trees import random_clip, write_clip, write_vid4, write_vimeo
from torch import Tensor, nn

from vsrkit.data.degrade import BI, degrade, mod_crop
from vsrkit.data.frames import FrameFiles
from vsrkit.data.sets import FrameSet, PairedClip, open_set
from vsrkit.errors import DataError, VsrkitError
from vsrkit.evaluate.benchmark import evaluate
from vsrkit.evaluate.measure import Stopwatch
from vsrkit.evaluate.metrics import METRICS, measured, psnr, ssim
from vsrkit.evaluate.perceptual import PERCEPTUAL_METRICS
from vsrkit.evaluate.protocol import PROTOCOLS, Protocol
from vsrkit.models.bicubic import Bicubic, BicubicConfig
from vsrkit.models.layers.resample import fitted, imresize
from vsrkit.models.spec import Carried, Segments, Spec, Window
from vsrkit.models.zoo import load_model
from vsrkit.video.images import read_image, write_image

RGB = PROTOCOLS["rgb"]


class Blend(nn.Module):
    """Bicubic of the mean of all input frames, for any kind of temporal context."""

    def __init__(self, context) -> None:
        super().__init__()
        self.spec = Spec(scale=4, context=context)
        self.sizes: list[int] = []

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        self.sizes.append(clip.shape[1])
        mean = imresize(clip.mean(1, keepdim=True), 4)
        if isinstance(self.spec.context, Window) and self.spec.context.emits == "centre":
            return mean
        return mean.expand(-1, clip.shape[1], -1, -1, -1)[:, keep or slice(None)]

    def step(self, frame: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        state = frame if state is None else (state + frame) / 2
        return imresize(state, 4), state


def one_clip(tmp_path: Path, clip: Tensor, name: str = "a") -> FrameSet:
    write_clip(tmp_path / name, clip)
    return open_set("folder", tmp_path)


def test_bicubic_scores_equal_a_direct_computation(tmp_path: Path) -> None:
    clip = random_clip(3)
    result = evaluate(load_model("bicubic"), one_clip(tmp_path, clip), RGB, name="bicubic")
    sr = imresize(degrade(clip, BI()), 4)
    pairs = [
        (measured(a, channel="rgb"), measured(b, channel="rgb"))
        for a, b in zip(sr, clip, strict=True)
    ]
    assert result.clips[0].metrics["psnr"] == pytest.approx(sum(psnr(*p) for p in pairs) / 3)
    assert result.clips[0].metrics["ssim"] == pytest.approx(sum(ssim(*p) for p in pairs) / 3)
    assert result.average == result.clips[0].metrics
    assert (result.clips[0].frames, result.partial) == (3, False)
    assert result.seconds_per_frame > 0
    assert result.peak_memory_mb > 10


def test_the_average_is_over_clips_not_over_frames(tmp_path: Path) -> None:
    write_clip(tmp_path / "long", random_clip(5, seed=1))
    write_clip(tmp_path / "short", random_clip(1, seed=2) * 0.1)
    result = evaluate(load_model("bicubic"), open_set("folder", tmp_path), RGB)
    first, second = (clip.metrics["psnr"] for clip in result.clips)
    assert abs(first - second) > 5
    assert result.average["psnr"] == pytest.approx((first + second) / 2)


@pytest.mark.parametrize(
    "context", [Window(3), Window(3, "all"), Window(1, "all"), Carried(), Segments(2, 1)]
)
def test_models_with_any_temporal_context_run(tmp_path: Path, context) -> None:
    still = random_clip(1).expand(5, -1, -1, -1)
    bicubic = evaluate(load_model("bicubic"), one_clip(tmp_path, still), RGB)
    # The mean over time of a still clip is its frame.
    result = evaluate(Blend(context), open_set("folder", tmp_path), RGB)
    assert result.average["psnr"] == pytest.approx(bicubic.average["psnr"], abs=1e-3)
    assert result.clips[0].frames == 5


def test_the_padding_of_the_protocol_is_used(tmp_path: Path) -> None:
    frames = one_clip(tmp_path, random_clip(6))
    replicate = Protocol(name="replicate", channel="rgb", padding="replicate")
    circle = evaluate(Blend(Window(5)), frames, RGB).average["psnr"]
    assert evaluate(Blend(Window(5)), frames, replicate).average["psnr"] != circle


def test_lr_files_are_used_if_present_and_reported_if_not(tmp_path: Path) -> None:
    clip = random_clip(2)
    write_clip(tmp_path / "GT" / "a", clip)
    made = evaluate(load_model("bicubic"), open_set("folder", tmp_path), RGB)
    assert made.lr.startswith("made from the ground truth by BI x4")
    write_clip(tmp_path / "BIx4" / "a", 0.2 * degrade(clip, BI()))  # clearly different from BI
    read = evaluate(load_model("bicubic"), open_set("folder", tmp_path), RGB)
    assert read.lr == "read from the set's BIx4"
    assert read.average["psnr"] < made.average["psnr"] - 1


def test_only_the_centre_of_a_septuplet_is_scored_and_run(tmp_path: Path) -> None:
    write_vimeo(tmp_path, test=("00001/0001", "00001/0002"))
    model = Blend(Window(7))
    frames = open_set("vimeo90k-t", tmp_path)
    result = evaluate(model, frames, PROTOCOLS["vimeo90k-t"])
    assert model.sizes == [7, 7]  # one window for each septuplet, not seven
    assert [clip.frames for clip in result.clips] == [1, 1]
    lr = torch.stack(list(frames.clips[0].lr.read()))  # type: ignore[union-attr]
    hr = list(frames.clips[0].hr.read())[3]
    sr = imresize(lr.mean(0), 4)
    y = [measured(x, channel="y") for x in (sr, hr)]
    assert result.clips[0].metrics["psnr"] == pytest.approx(psnr(*y), abs=1e-3)
    recurrent = evaluate(Blend(Segments(7, 0)), frames, PROTOCOLS["vimeo90k-t"])
    assert recurrent.average["psnr"] == pytest.approx(result.average["psnr"], abs=1e-3)


def test_crop8_excludes_borders_and_end_frames(tmp_path: Path) -> None:
    clip = random_clip(6, 64, 64)
    frames = one_clip(tmp_path, clip)
    result = evaluate(load_model("bicubic"), frames, PROTOCOLS["vid4-crop8"])
    assert result.clips[0].frames == 2
    sr = imresize(degrade(clip, BI()), 4)
    expected = [
        psnr(*(measured(x, channel="y")[:, 8:-8, 8:-8] for x in (sr[n], clip[n]))) for n in (2, 3)
    ]
    assert result.average["psnr"] == pytest.approx(sum(expected) / 2)


def test_sizes_that_are_no_multiple_of_the_scale_are_cropped_with_a_note(tmp_path: Path) -> None:
    clip = random_clip(2, 50, 67)
    result = evaluate(load_model("bicubic"), one_clip(tmp_path, clip), RGB)
    assert result.clips[0].notes == ("67x50 was cropped to 64x48, a multiple of 4",)
    whole = one_clip(tmp_path / "cut", mod_crop(clip, 4))
    assert result.average == evaluate(load_model("bicubic"), whole, RGB).average


def test_compressed_input_is_worse(tmp_path: Path) -> None:
    y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    clip = torch.stack([torch.sin((x + t) / 9) * torch.cos(y / 7) for t in range(3)])
    clip = (clip[:, None] * 0.4 + 0.5).expand(-1, 3, -1, -1)
    frames = one_clip(tmp_path, clip)
    scores = [
        evaluate(load_model("bicubic"), frames, PROTOCOLS[name]).average["psnr"]
        for name in ("vid4", "vid4-crf15", "vid4-crf35")
    ]
    assert scores == sorted(scores, reverse=True)


def test_the_release_protocol_runs_on_tiles(tmp_path: Path) -> None:
    sizes = []

    class Recording(Blend):
        def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
            sizes.append(tuple(clip.shape[-2:]))
            return super().forward(clip, keep)

    frames = one_clip(tmp_path, random_clip(1, 288, 272))
    evaluate(Recording(Window(1, "all")), frames, PROTOCOLS["reds4-release"])
    assert sizes == [(64, 64)] * 4
    small = one_clip(tmp_path / "small", random_clip(1, 128, 272))
    with pytest.raises(DataError, match="needs LR frames of 64 pixels"):
        evaluate(Recording(Window(1, "all")), small, PROTOCOLS["reds4-release"])


def test_all_metrics_are_computed(tmp_path: Path) -> None:
    frames = one_clip(tmp_path, random_clip(3, 176, 180))
    names = tuple(m for m in METRICS if m != "vmaf" and m not in PERCEPTUAL_METRICS)
    result = evaluate(load_model("bicubic"), frames, RGB, metrics=names)
    assert tuple(result.average) == names
    small = one_clip(tmp_path / "small", random_clip(1))
    with pytest.raises(DataError, match="need 161 pixels"):
        evaluate(load_model("bicubic"), small, RGB, metrics=("ms_ssim",))


def test_a_metric_that_could_not_be_computed_is_noted(tmp_path: Path) -> None:
    write_clip(tmp_path / "one", random_clip(1))
    write_clip(tmp_path / "two", random_clip(2))
    frames = open_set("folder", tmp_path)
    result = evaluate(load_model("bicubic"), frames, RGB, metrics=("psnr", "flicker"))
    assert "flicker" in result.clips[1].metrics
    assert "flicker" not in result.average  # an average over half of the clips would mislead
    assert result.notes == (
        "flicker has no average: it needs two scored frames of each clip, one has one",
    )


def test_frames_are_saved_as_they_were_scored(tmp_path: Path) -> None:
    frames = one_clip(tmp_path / "set", random_clip(2))
    evaluate(load_model("bicubic"), frames, RGB, save_frames=tmp_path / "out")
    saved = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.glob("out/*/*"))
    assert saved == ["out/a/00000000.png", "out/a/00000001.png"]
    assert read_image(tmp_path / saved[0]).shape == (3, 48, 64)


def test_few_frames_are_in_memory_at_once(tmp_path: Path, monkeypatch) -> None:
    """Counts frames that were read and not yet scored, over a long clip."""
    frames = one_clip(tmp_path, random_clip(40, 16, 16))
    read = scored = most = 0
    original = FrameFiles.read

    def counting(self: FrameFiles):
        nonlocal read, most
        for frame in original(self):
            read += 1
            most = max(most, read - scored)
            yield frame

    monkeypatch.setattr(FrameFiles, "read", counting)

    def progress(clip: str, done: int, total: int) -> None:
        nonlocal scored
        scored = 2 * done  # each frame is read twice: to be degraded and to be compared

    evaluate(Blend(Segments(4, 2)), frames, RGB, on_progress=progress)
    assert read == 80
    assert most <= 12  # a segment, its warmup frames, and the one being compared


def test_a_clip_shorter_than_the_window_is_an_error_before_the_first_run(tmp_path: Path) -> None:
    write_clip(tmp_path / "a", random_clip(9))
    write_clip(tmp_path / "b", random_clip(4))
    model = Blend(Window(7))
    with pytest.raises(DataError, match="clip b has 4 frames, fewer than the 7"):
        evaluate(model, open_set("folder", tmp_path), RGB)
    assert model.sizes == []


def test_wrong_lr_sizes_are_an_error(tmp_path: Path) -> None:
    write_clip(tmp_path / "GT" / "a", random_clip(2))
    write_clip(tmp_path / "LR" / "a", random_clip(2, 24, 32))
    with pytest.raises(DataError, match=r"is 32x24, .* is 64x48: not 4 times as large"):
        evaluate(load_model("bicubic"), open_set("folder", tmp_path), RGB)


def test_a_damaged_frame_is_an_error(tmp_path: Path) -> None:
    frames = one_clip(tmp_path, random_clip(3))
    damaged = tmp_path / "a" / "00000001.png"
    damaged.write_bytes(damaged.read_bytes()[:-25])
    with pytest.raises(DataError, match=r"00000001\.png is damaged"):
        evaluate(load_model("bicubic"), frames, RGB)


def test_a_frame_of_another_size_is_an_error(tmp_path: Path) -> None:
    frames = one_clip(tmp_path, random_clip(3))
    write_image(tmp_path / "a" / "00000002.png", torch.rand(3, 40, 40))
    with pytest.raises(DataError, match=r"00000002\.png is 40x40"):
        evaluate(load_model("bicubic"), frames, RGB)


def test_a_clip_without_scored_frames_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="scores none of them"):
        evaluate(load_model("bicubic"), one_clip(tmp_path, random_clip(4)), PROTOCOLS["vid4-crop8"])


def test_partial_clips_are_marked(tmp_path: Path) -> None:
    write_vid4(tmp_path, frames=1)
    result = evaluate(load_model("bicubic"), open_set("vid4", tmp_path), PROTOCOLS["vid4"])
    assert result.partial
    assert all(clip.partial for clip in result.clips)


def test_the_stopwatch_excludes_time_spent_reading(monkeypatch) -> None:
    now = 0.0
    monkeypatch.setattr("vsrkit.evaluate.measure.perf_counter", lambda: now)

    def slow_reading():
        nonlocal now
        for _ in range(3):
            now += 10
            yield torch.zeros(1)

    def model(frames):
        nonlocal now
        for frame in frames:
            now += 1
            yield frame

    watch = Stopwatch()
    assert len(list(watch.outer(model(watch.inner(slow_reading()))))) == 3
    assert (watch.seconds, watch.frames) == (3.0, 3)


def test_paired_clips_with_missing_frames_are_partial(tmp_path: Path) -> None:
    write_clip(tmp_path, random_clip(2, 8, 8))
    frames = FrameFiles(tuple(sorted(tmp_path.glob("*.png"))))
    assert not PairedClip("a", frames, None).partial
    assert PairedClip("a", frames, None, full=3).partial


def test_a_protocol_with_a_fixed_scale_reduces_larger_outputs(tmp_path: Path) -> None:
    """`vid4-x2`: BI x2, the first ten frames; the output of a x4 model is reduced by two."""
    clip = random_clip(12)
    rules = PROTOCOLS["vid4-x2"]
    result = evaluate(load_model("bicubic"), one_clip(tmp_path, clip), rules)
    assert (result.clips[0].frames, result.protocol.degradation) == (10, BI(2))
    small = degrade(clip[:10], BI(2))
    sr = fitted(imresize(small, 4).clamp(0, 1), *clip.shape[-2:])
    pairs = [[measured(x, channel="y") for x in p] for p in zip(sr, clip[:10], strict=True)]
    assert result.average["psnr"] == pytest.approx(sum(psnr(*p) for p in pairs) / 10)


def test_a_model_of_a_smaller_scale_than_the_protocol_is_refused(tmp_path: Path) -> None:
    model = Bicubic(BicubicConfig(scale=1))
    with pytest.raises(VsrkitError, match="vid4-x2 compares at scale 2, this model upscales by 1"):
        evaluate(model, one_clip(tmp_path, random_clip(2)), PROTOCOLS["vid4-x2"])
