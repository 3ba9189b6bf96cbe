"""Writing a video: every frame, its colours, its tags; nothing half-written."""

from fractions import Fraction

import av
import pytest
import torch

from vsrkit.errors import VideoError
from vsrkit.video.read import read_video
from vsrkit.video.write import write_video


def test_frames_and_colours_come_back(tmp_path):
    colours = torch.tensor([[0.9, 0.1, 0.2], [0.1, 0.8, 0.3], [0.2, 0.3, 0.7]])
    frames = [colour[:, None, None].expand(3, 33, 46) for colour in colours]
    path = tmp_path / "a.mp4"
    assert write_video(path, frames, frames_per_second=Fraction(30000, 1001), crf=1) == 3
    back = list(read_video(path))
    assert len(back) == 3
    for wanted, found in zip(frames, back, strict=True):
        assert found.shape == (3, 34, 46)  # 4:2:0 has even sides
        torch.testing.assert_close(found[:, :33], wanted, atol=3 / 255, rtol=0)
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        assert stream.average_rate == Fraction(30000, 1001)
        frame = next(file.decode(stream))
        assert (frame.colorspace, frame.color_range) == (1, 1)  # BT.709, limited


def test_nothing_half_written_stays(tmp_path):
    def broken():
        yield torch.zeros(3, 16, 16)
        raise OSError(28, "No space left on device")

    with pytest.raises(VideoError, match="nothing was kept of it"):
        write_video(tmp_path / "a.mp4", broken(), frames_per_second=Fraction(25))
    assert list(tmp_path.iterdir()) == []
