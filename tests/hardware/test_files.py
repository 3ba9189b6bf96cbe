"""Atomic writes: all of the content or none of it."""

import os
import sys
from pathlib import Path

import pytest

from vsrkit.hardware.files import cache_directory, temporary_path, write_atomically


@pytest.mark.parametrize("content", ["süß\n", "süß\n".encode(), ["sü".encode(), "ß\n".encode()]])
@pytest.mark.parametrize("sync", [False, True])
def test_text_bytes_and_chunks_are_written(tmp_path, content, sync):
    path = tmp_path / "new" / "folder" / "file.txt"
    write_atomically(path, content, sync=sync)
    assert path.read_bytes() == "süß\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def chunks():
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, chunks())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "file"
    with temporary_path(path) as temporary:
        temporary.write_text("content")
        assert not path.exists()
    assert path.read_text() == "content"
    assert not temporary.exists()


def test_temporary_names_of_shared_files_differ_between_processes(tmp_path, monkeypatch):
    names = set()
    for process in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        with temporary_path(tmp_path / "file", shared=True) as temporary:
            temporary.touch()
            names.add(temporary.name)
    assert names == {"file.1.part", "file.2.part"}


def test_the_environment_variable_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="the folder of Linux")
def test_the_default_on_linux(tmp_path, monkeypatch):
    monkeypatch.delenv("VSRKIT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == Path.home() / ".cache" / "vsrkit"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "vsrkit"
