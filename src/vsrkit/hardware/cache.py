"""The folder where vsrkit keeps measurements and downloaded weights."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_directory() -> Path:
    """$VSRKIT_CACHE if set, else the user's cache folder (~/.cache/vsrkit on Linux)."""
    own = os.environ.get("VSRKIT_CACHE")
    return Path(own) if own else user_cache_path("vsrkit", appauthor=False, opinion=False)
