"""Videos for browsers: the same frames at the same times, from time 0."""

from fractions import Fraction

import av
import pytest
from tests.clips import write_clip
from tests.studio.conftest import videos

from vsrkit.studio.errors import RequestError
from vsrkit.studio.remux import playable_file

SIZE = {"width": 64, "height": 48}


def frames(path):
    """Times in seconds from the first frame, and the samples of all frames."""
    with av.open(str(path)) as file:
        found = [(f.pts * f.time_base, f.to_ndarray().tobytes()) for f in file.decode(video=0)]
    return found[0][0], [(time - found[0][0], content) for time, content in found]


@pytest.mark.parametrize("name", ["a.mkv", "a.avi", "a.ts", "vp8.mkv", "vp9.mkv", "av1.mkv"])
def test_other_containers_are_copied(tmp_path, name):
    codec = {"vp8": "libvpx", "vp9": "libvpx-vp9", "av1": "libsvtav1"}.get(name[:3], "libx264")
    path = write_clip(tmp_path / name, codec=codec, frames=20, **SIZE)
    made = playable_file(path, tmp_path / "clip")
    assert made.suffix == (".webm" if codec.startswith("libvpx") else ".mp4")
    begin, found = frames(made)
    assert begin == 0
    assert found == frames(path)[1]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([name, made.name])


@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.m4v", "vp9.webm"])
def test_what_browsers_read_is_not_copied(tmp_path, name):
    codec = "libvpx-vp9" if name == "vp9.webm" else "libx264"
    path = write_clip(tmp_path / name, codec=codec, **SIZE)
    assert playable_file(path, tmp_path / "clip") == path


def test_the_first_frame_is_moved_to_zero(tmp_path):
    times = [50, 51, 54, 55]
    path = write_clip(tmp_path / "late.mp4", times=times, **SIZE)
    begin, found = frames(playable_file(path, tmp_path / "clip"))
    assert begin == 0
    assert [time for time, _ in found] == [Fraction(time - 50, 25) for time in times]


def test_a_rotation_is_kept(tmp_path):
    path = write_clip(tmp_path / "a.mkv", rotation=90, **SIZE)
    with av.open(str(playable_file(path, tmp_path / "clip"))) as file:
        assert next(file.decode(video=0)).rotation == 90


def test_other_codecs_are_refused(tmp_path):
    path = write_clip(tmp_path / "a.mkv", codec="ffv1", **SIZE)
    with pytest.raises(RequestError) as refusal:
        playable_file(path, tmp_path / "clip")
    assert refusal.value.status == 415


def test_the_library_plays(client, folder):
    path = write_clip(folder / "a.mkv", **SIZE)
    write_clip(folder / "b.mkv", codec="ffv1", **SIZE)
    found = videos(client)
    play = f"/api/videos/{found['a.mkv']['id']}/play"
    whole = client.get(play)
    assert (whole.status_code, whole.headers["content-type"]) == (200, "video/mp4")
    part = client.get(play, headers={"range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole.content[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{len(whole.content)}"
    assert client.get(play, headers={"range": "bytes=99999999-"}).status_code == 416
    assert client.get(f"/api/videos/{found['b.mkv']['id']}/play").status_code == 415
    path.write_bytes(write_clip(folder / "c.mkv", frames=9, **SIZE).read_bytes())
    videos(client)
    assert client.get(play).content != whole.content
