"""Encoders give the same bytes for the same frames, whatever else the machine does."""

import pytest
import torch
from av.codec.context import ThreadType
from tests.clips import write_clip

from vsrkit.video.encode import choose_encoding, encode_all, open_encoder
from vsrkit.video.read import open_source


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le", "yuv422p10le"])
def test_h264_is_repeatable(tmp_path, pix_fmt):
    source = open_source(
        write_clip(tmp_path / "in.mkv", width=150, height=96, pix_fmt=pix_fmt, codec="ffv1")
    )
    encoding = choose_encoding(source.info, suffix=".mkv", height=96, width=150)
    # Threads by slices, PyAV's default, give other bytes, too seldom for a test to wait for.
    assert open_encoder(encoding).thread_type == ThreadType.FRAME
    frames = [frame + 0.02 * torch.randn_like(frame) for frame in source.frames()]
    first = list(encode_all(frames, encoding))
    for _ in range(3):
        assert list(encode_all(frames, encoding)) == first
