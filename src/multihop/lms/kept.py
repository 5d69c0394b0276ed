"""Evaluated beginnings of prompts, kept on disk for the embedded engine.

Demonstrations stand at the beginning of every prompt of a run. What evaluating them gave is
written once, and read by every slot and every later process in a small part of that time.
"""

import hashlib
import os
from array import array
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from multihop import places

MOST = 1 << 30
"""Bytes kept in all; the files used longest ago go first."""


class KeptPrefixes:
    """The engine's files in the cache folder, by what they were made from.

    Attributes:
        folder: Where they are.
    """

    def __init__(self) -> None:
        self.folder = (places.cache() / "prefixes").absolute()

    def make(self) -> None:
        """Make the folder.

        Raises:
            OSError: That cannot be done.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def name(self, model: Path, adapter: Path | None, batch: int, ids: Sequence[int]) -> str:
        """The file's name for these tokens, evaluated by this model in batches of this size."""
        parts = [version("xllamacpp"), str(batch), *map(_state, (model, adapter))]
        digest = hashlib.sha256(os.fsencode("\0".join(parts)))
        digest.update(array("q", ids).tobytes())
        return f"{digest.hexdigest()[:40]}.bin"

    def touch(self, name: str) -> bool:
        """Whether the file is there; if so it is used now."""
        with suppress(FileNotFoundError):
            os.utime(self.folder / name)
            return True
        return False

    def put(self, draft: str, name: str) -> None:
        """Give a finished draft its name, and make room for it."""
        (self.folder / draft).replace(self.folder / name)
        files = [(file.stat(), file) for file in self.folder.glob("*.bin")]
        files.sort(key=lambda each: each[0].st_mtime)
        size = sum(state.st_size for state, _ in files)
        for state, file in files[:-1]:
            if size <= MOST:
                break
            file.unlink(missing_ok=True)
            size -= state.st_size

    def remove(self, name: str) -> None:
        """Remove a file that the engine cannot read."""
        (self.folder / name).unlink(missing_ok=True)


def _state(path: Path | None) -> str:
    """What changes when a file's content does; the content itself takes seconds to hash."""
    if path is None:
        return ""
    state = path.stat()
    return f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"
