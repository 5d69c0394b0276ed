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

    def name(
        self, model: Path, adapter: Path | None, batch: int, window: int, ids: Sequence[int]
    ) -> str:
        """The file's name for these tokens, evaluated by this model in batches of this size.

        Some models (Phi-3) place tokens otherwise in a window longer than what they began with.
        """
        parts = [version("xllamacpp"), str(batch), str(window), *map(_state, (model, adapter))]
        digest = hashlib.sha256(os.fsencode("\0".join(parts)))
        digest.update(array("q", ids).tobytes())
        return f"{digest.hexdigest()[:40]}.bin"

    def touch(self, name: str) -> bool:
        """Whether the file is there; if so it is used now."""
        with suppress(FileNotFoundError):
            os.utime(self.folder / name)
            return True
        return False

    def put(self, draft: str, name: str, written: int) -> None:
        """Give a finished draft its name, and make room for it.

        Args:
            draft: The file that the engine has written.
            name: What it is to be called.
            written: Bytes that the engine says it wrote: it does not mind a full disk.

        Raises:
            OSError: The draft is not whole, or cannot be renamed.
        """
        if not written or (self.folder / draft).stat().st_size != written:
            self.remove(draft)
            raise OSError(f"{self.folder}: the engine could not write the whole file")
        (self.folder / draft).replace(self.folder / name)
        files = []
        for file in self.folder.iterdir():  # drafts too: whoever wrote them may have been killed
            with suppress(FileNotFoundError):  # other processes make room as well
                state = file.stat()
                files.append((state.st_mtime, state.st_size, file))
        files.sort()
        total = sum(size for _, size, _ in files)
        for _, size, file in files[:-1]:
            if total <= MOST:
                break
            file.unlink(missing_ok=True)
            total -= size

    def remove(self, name: str) -> None:
        """Remove a file that the engine cannot read."""
        (self.folder / name).unlink(missing_ok=True)


def _state(path: Path | None) -> str:
    """What changes when a file's content does; the content itself takes seconds to hash."""
    if path is None:
        return ""
    state = path.stat()
    return f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"
