"""Where files are kept that nobody named a place for."""

import os
from pathlib import Path


def cache() -> Path:
    """What can be made again: MULTIHOP_CACHE_DIR, else multihop in the user's cache folder."""
    if given := os.environ.get("MULTIHOP_CACHE_DIR"):
        return Path(given).expanduser()
    folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder).expanduser() / "multihop"
