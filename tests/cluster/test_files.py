"""Files on several machines: found at their path, at an address, or received in blocks."""

import os

import pytest

from vsrkit.cluster import files as files_module
from vsrkit.cluster.files import (
    SharedFiles,
    complete,
    fetch_to_cache,
    is_here,
    receive,
)
from vsrkit.errors import VideoError
from vsrkit.hardware.files import file_digest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def shared(tmp_path, *names, size=1000, **options):
    paths = tuple(tmp_path / name for name in names)
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * size)
    return SharedFiles(file_digest(paths, **options), paths, **options)


def test_files_at_their_path_are_used_where_they_are(tmp_path):
    files = shared(tmp_path, "a.mkv")
    assert files.locate() == files.paths


def test_files_of_other_content_are_refused_before_they_are_read(tmp_path):
    files = shared(tmp_path, "a.mkv")
    assert files.locate()
    files.paths[0].write_bytes(b"other")
    with pytest.raises(VideoError, match=r"a.mkv has another content on this machine"):
        files.locate()
    files.paths[0].unlink()
    with pytest.raises(VideoError, match=r"a.mkv does not exist on this machine"):
        files.locate()


@pytest.mark.parametrize("size", [0, 1000, 2000])
def test_files_are_received_in_blocks_and_kept(tmp_path, monkeypatch, cache, size):
    monkeypatch.setattr(files_module, "BLOCK", 1000)
    files = shared(tmp_path, "1.png", "2.png", size=size, with_names=True)
    blocks = list(files.blocks())
    assert len(blocks) == 2 * max(1, size // 1000)
    for path in files.paths:
        path.unlink()
    assert not is_here(files)
    for block in blocks:
        receive(files, block)
    assert not is_here(files)
    assert complete(files)
    assert complete(files)  # by another worker of the same machine
    assert files.locate() == tuple(cache / "inputs" / files.digest / n for n in ("1.png", "2.png"))
    assert not list(cache.rglob("*.part"))


def test_a_damaged_copy_is_not_kept(tmp_path, cache):
    files = shared(tmp_path, "a.mkv")
    files.paths[0].unlink()
    receive(files, (0, 0, b"something else"))
    with pytest.raises(VideoError, match="was damaged on its way"):
        complete(files)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_an_address_is_fetched_once_and_again_when_it_changes(tmp_path, cache):
    pytest.importorskip("fsspec")
    original = shared(tmp_path, "a.mkv").paths[0]
    address = f"file://{original}"
    copy = fetch_to_cache(address)
    assert copy.read_bytes() == original.read_bytes()
    assert copy.name == "a.mkv"
    os.utime(copy, (1, 1))
    assert fetch_to_cache(address).stat().st_mtime == 1
    original.write_bytes(b"longer than before" * 100)
    assert fetch_to_cache(address).read_bytes() == original.read_bytes()


def test_workers_fetch_an_address_themselves_and_check_it(tmp_path):
    pytest.importorskip("fsspec")
    original = shared(tmp_path, "a.mkv").paths[0]
    elsewhere = tmp_path / "elsewhere" / "a.mkv"
    files = SharedFiles(file_digest([original]), (elsewhere,), address=f"file://{original}")
    assert files.locate()[0].read_bytes() == original.read_bytes()
    other = SharedFiles("0" * 32, (elsewhere,), address=f"file://{original}")
    with pytest.raises(VideoError, match="has another content here"):
        other.locate()


@pytest.mark.parametrize(
    "address", ["file:///nowhere/a.mkv", "nonsense://a.mkv", "http://127.0.0.1:1/a.mkv"]
)
def test_an_unreadable_address_is_explained_in_one_line(address):
    pytest.importorskip("fsspec")
    with pytest.raises(VideoError) as error:
        fetch_to_cache(address)
    line = str(error.value)
    assert f"cannot read {address}: " in line
    assert not line.endswith(f": {address}")  # gives a reason, also where a back end has none
    assert "\n" not in line
