"""VMAF, computed by the ffmpeg of the `eval` extra."""

from importlib.util import find_spec

import pytest
import torch
from tests.evaluate.test_temporal import texture
from torch import Tensor

from vsrkit.errors import VsrkitError
from vsrkit.evaluate import vmaf as vmaf_module
from vsrkit.evaluate.vmaf import VmafClip


def vmaf(sr: list[Tensor], hr: list[Tensor]) -> float:
    with VmafClip() as clip:
        for a, b in zip(sr, hr, strict=True):
            clip.add(a, b)
        return clip.score()


@pytest.mark.skipif(not find_spec("imageio_ffmpeg"), reason="the eval extra is not installed")
def test_vmaf_is_high_for_the_same_clip_and_low_for_noise() -> None:
    clip = [texture(96, 128, seed) for seed in (1, 1, 1)]
    noisy = [frame + 0.2 * torch.randn(frame.shape) for frame in clip]
    assert vmaf(clip, clip) > 95
    assert vmaf(noisy, clip) < 60


def test_vmaf_without_the_extra_is_an_error_that_names_the_package(monkeypatch) -> None:
    monkeypatch.setattr(vmaf_module, "vmaf_available", lambda: False)
    with pytest.raises(VsrkitError, match="pip install imageio-ffmpeg"):
        vmaf([torch.rand(3, 16, 16)], [torch.rand(3, 16, 16)])
