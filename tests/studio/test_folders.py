"""What counts as a video of a folder, and that nothing outside of it is reached."""

import os

import pytest

from vsrkit.errors import VsrkitError
from vsrkit.studio.errors import RequestError
from vsrkit.studio.folders import (
    check_name,
    folder_of,
    free_name,
    is_regular,
    list_videos,
    open_folders,
)


def names(folder):
    (opened,) = open_folders([folder])
    found, truncated = list_videos(opened)
    assert not truncated
    return sorted(str(video.path.relative_to(folder)) for video in found)


def test_videos_are_found_in_subfolders(tmp_path):
    (tmp_path / "in" / "ner").mkdir(parents=True)
    for name in ("a.mp4", "in/b.MKV", "in/ner/c.webm", "notes.txt", "cover.svg", ".hidden.mp4"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / ".vsrkit-studio").mkdir()
    (tmp_path / ".vsrkit-studio" / "d.mp4").write_bytes(b"x")
    assert names(tmp_path) == ["a.mp4", "in/b.MKV", "in/ner/c.webm"]


def test_symbolic_links_and_devices_are_left_out(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.mp4").write_bytes(b"x")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "file.mp4").symlink_to(outside / "secret.mp4")
    (inside / "folder").symlink_to(outside)
    os.mkfifo(inside / "pipe.mp4")
    assert names(inside) == []


def test_a_folder_that_becomes_a_link_is_outside(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.mp4").write_bytes(b"x")
    inner = tmp_path / "inside" / "inner"
    inner.mkdir(parents=True)
    (inner / "a.mp4").write_bytes(b"x")
    folders = open_folders([tmp_path / "inside"])
    assert folder_of(inner / "a.mp4", folders) == folders[0]
    (inner / "a.mp4").unlink()
    inner.rmdir()
    inner.symlink_to(tmp_path / "outside")
    assert is_regular(inner / "a.mp4")
    assert folder_of(inner / "a.mp4", folders) is None
    assert folder_of(inner / ".." / "a.mp4", folders) is None


def test_given_folders_may_be_links_but_not_overlap(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    first, *rest = open_folders([tmp_path / "link", tmp_path / "a"])
    assert (first.path, first.uploads, rest) == (tmp_path / "a", True, [])
    with pytest.raises(VsrkitError, match="is inside"):
        open_folders([tmp_path / "a", tmp_path / "a" / "b"])
    with pytest.raises(VsrkitError, match="is not a folder"):
        open_folders([tmp_path / "none"])


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../a.mp4", "/etc/a.mp4", "a/b.mp4", "a\\b.mp4", ".a.mp4", "a\n.mp4", " a.mp4",
     "a.mp4 ", "a\0.mp4", "a" * 250 + ".mp4", "ü" * 150 + ".mp4", "\u202egpm.mp4"],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(name):
    with pytest.raises(RequestError) as refusal:
        check_name(name)
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    "name", ["a.mp4", "ü 1:2.mkv", "<img src=x onerror=alert(1)>.mp4", "'\".mp4"]
)
def test_other_names_are_kept(name):
    assert check_name(name) == name


def test_a_free_name_has_a_number(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"")
    (tmp_path / "a-2.mp4").symlink_to("nothing")
    assert free_name(tmp_path / "a.mp4", [tmp_path / "a-3.mp4"]) == tmp_path / "a-4.mp4"
