"""Where vsrkit keeps what it measured and fetched."""

import os
import platform
from pathlib import Path


def cache_directory() -> Path:
    """Where vsrkit keeps what it measured and fetched: $VSRKIT_CACHE, else the system's place."""
    if own := os.environ.get("VSRKIT_CACHE"):
        return Path(own)
    if platform.system() == "Windows":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "vsrkit"
    if platform.system() == "Darwin":
        return Path.home() / "Library" / "Caches" / "vsrkit"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vsrkit"
