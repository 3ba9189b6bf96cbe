"""Clips padded to what a model accepts."""

import pytest
import torch

from vsrkit.models.spec import Spec, Window, mirror_to, pad_clip, pad_frames, padded_size

ROW = torch.tensor([[1, 2, 3]])


@pytest.mark.parametrize(
    ("row", "repeat_edge", "expected"),
    [
        (ROW, True, [1, 2, 3, 3, 2, 1, 1, 2, 3]),
        (ROW, False, [1, 2, 3, 2, 1, 2, 3, 2, 1]),
        (ROW[:, :1], True, [1] * 9),
        (ROW[:, :1], False, [1] * 9),
    ],
)
def test_mirror(row, repeat_edge, expected):
    assert mirror_to(row, 1, 9, repeat_edge=repeat_edge).tolist() == [expected]
    assert mirror_to(row.T, 9, 1, repeat_edge=repeat_edge).flatten().tolist() == expected
    assert mirror_to(row, *row.shape, repeat_edge=repeat_edge) is row


def test_mirror_without_the_edge_equals_pytorch():
    x = torch.rand(2, 3, 11, 9)
    reflected = torch.nn.functional.pad(x, (0, 7, 0, 5), mode="reflect")
    assert torch.equal(mirror_to(x, 16, 16, repeat_edge=False), reflected)


def test_frames_are_padded_as_the_model_declares():
    x = ROW.float().view(1, 1, 1, 3)
    for kind, expected in (("edge", [1, 2, 3, 3, 3]), ("mirror", [1, 2, 3, 3, 2])):
        spec = Spec(scale=4, context=Window(1), multiple=5, extends_by=kind)
        size = padded_size(1, 3, spec)
        assert size == (5, 5)
        assert pad_frames(x, *size, spec)[0, 0, 4].tolist() == expected


def test_short_clips_repeat_their_last_frame():
    clip = torch.arange(2.0).view(2, 1, 1, 1)
    assert pad_clip(clip, 4).flatten().tolist() == [0, 1, 1, 1]
    assert pad_clip(clip, 2) is clip
