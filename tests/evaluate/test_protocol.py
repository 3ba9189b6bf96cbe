"""Evaluation protocols and the scores that need one."""

from math import inf

import pytest
import torch
from tests.data.trees import random_clip

from vsrkit.data.degrade import BD, BI, CRF, degrade
from vsrkit.errors import VsrkitError
from vsrkit.evaluate.protocol import PROTOCOLS, ClipScores, consistency, protocol_named
from vsrkit.models.layers.resample import imresize

RGB = PROTOCOLS["rgb"]


def test_protocols_describe_their_settings() -> None:
    assert PROTOCOLS["vid4-bd"].lr_kind == "bd"
    assert PROTOCOLS["vid4-crf25"].lr_kind is None
    assert PROTOCOLS["vid4-crf25"].degradation == CRF(25)
    assert PROTOCOLS["vid4-bd-matlab12"].degradation == BD(4, "matlab12")
    line = str(PROTOCOLS["vid4-crop8"])
    for part in ("Y (MATLAB", "border 8", "without first and last 2", "reflection_circle"):
        assert part in line
    assert PROTOCOLS["reds4"].at_scale(2).degradation == BI(2)
    with pytest.raises(VsrkitError, match="did you mean 'vid4-crf25'"):
        protocol_named("vid4crf25")


def test_consistency_needs_no_ground_truth() -> None:
    lr = degrade(random_clip(1), BI())[0]
    sr = imresize(lr.double(), 4)
    assert consistency(sr, lr, RGB) > consistency(sr.roll(2, dims=-1), lr, RGB) + 5
    flat = torch.full((3, 32, 32), 128 / 255)
    assert consistency(flat, torch.full((3, 8, 8), 128 / 255), RGB) == inf
    assert consistency(flat, torch.full((3, 8, 8), 128 / 255), PROTOCOLS["vid4-bd"]) == inf


def test_the_grid_of_the_output_is_scored_with_the_scale_of_the_protocol() -> None:
    hr = random_clip(1)[0].repeat(1, 2, 2)
    sr = hr.clone()
    sr[:, ::4] += 0.1
    with ClipScores(RGB, ("psnr", "grid")) as plain, ClipScores(RGB, ("grid",)) as lined:
        plain.add(hr, hr, hr[:, ::4, ::4])
        lined.add(sr, hr, hr[:, ::4, ::4])
    assert set(plain.means()) == {"psnr", "grid"}
    assert lined.means()["grid"] > plain.means()["grid"] + 3
