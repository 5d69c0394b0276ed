"""Where files are kept that nobody named a place for."""

import os
from pathlib import Path


def cache() -> Path:
    """What can be made again: MULTIHOP_CACHE_DIR, else multihop in the user's cache folder."""
    if given := os.environ.get("MULTIHOP_CACHE_DIR"):
        return Path(given).expanduser()
    folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder).expanduser() / "multihop"


def data_home() -> Path:
    """Downloads and what is built of them: MULTIHOP_DATA, else multihop/data in the user's."""
    if given := os.environ.get("MULTIHOP_DATA"):
        return Path(given).expanduser()
    folder = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(folder).expanduser() / "multihop" / "data"
