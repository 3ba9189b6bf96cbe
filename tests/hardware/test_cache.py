"""Where the cache folder is."""

import sys
from pathlib import Path

import pytest

from vsrkit.hardware.cache import cache_directory


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
