"""Weights written anew as 8-bit blocks, which llama.cpp multiplies faster on CPUs.

For a batch of tokens llama.cpp has fast kernels (its repacked layouts, llamafile's `sgemm`) for
Q4_0, Q4_K, Q5_0, Q8_0, IQ4_NL, F16 and F32. Q4_1 and Q5_1 have none; other types are left alone.
The same values as Q8_0 are off by at most 1/220 of the largest of the 32 that share a scale. The
file's header is kept to the byte, but for its file type and the types and places of the tensors.
"""

import logging
import math
import os
import struct
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from multihop import places
from multihop.errors import BadInput, MissingExtra
from multihop.lms.digest import file_digest
from multihop.lms.gguf import (
    SCALARS,
    header_number,
    read_counts,
    read_number,
    read_text,
    skip_value,
)

FORMAT = 1
"""Part of the copies' names: what is written otherwise gets another number."""

MOST = 2 << 30
"""Bytes of one copy, and of all: those used longest ago go first."""

_SLOW = {3: 20, 7: 24}  # Q4_1 and Q5_1: bytes of a block of 32 weights
_SLOW_FILES = (3, 9)  # general.file_type of "mostly" these
_Q8_0, _Q8_0_BYTES, _Q8_0_FILE = 8, 34, 7
_CHUNK = 1 << 15  # blocks rewritten at a time: 4 MiB as floats

_refused: set[Path] = set()  # what this process could not write

log = logging.getLogger(__name__)


def fast_weights(path: Path) -> Path:
    """The file to load in place of this one: a Q8_0 copy, or the file itself.

    A copy is made of files at least half of which has no fast kernels, if it takes no more than
    `MOST`. It is written to the folder `weights` of the cache folder at the first call, which
    takes seconds; any number of processes may do so at once. Where it cannot be written, a
    warning says why and the file itself is used.

    Args:
        path: A GGUF model.

    Raises:
        BadInput: The file is not GGUF, or is cut off.
        MissingExtra: A copy is to be written, and the package gguf is not installed.
        OSError: The file cannot be read.
    """
    if header_number(path, "general.file_type") not in _SLOW_FILES:
        return path  # asked first: it stands near the beginning
    folder = (places.cache() / "weights").absolute()
    copy = folder / f"{file_digest(path)[:40]}.q8_0-{FORMAT}.gguf"
    if _touch(copy):
        return copy
    if copy in _refused:
        return path
    layout = _read_layout(path)
    if not layout.is_slow or layout.repacked.end > MOST:
        return path
    try:
        import gguf.quants  # noqa: F401, PLC0415 - before anything is written or said
    except ImportError:
        raise MissingExtra("gguf", "local") from None
    log.info("Preparing %s once, for faster use ...", path.name)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_draft(folder, path, layout).replace(copy)
    except OSError as failure:
        log.warning("%s is used as it is, for no faster copy can be kept: %s", path, failure)
        _refused.add(copy)
        return path
    _make_room(folder, copy)
    return copy


@dataclass(frozen=True, slots=True)
class _Tensor:
    """One tensor's entry in the header.

    Attributes:
        head: Its name, rank and dimensions, as they are written.
        weights: How many it has.
        kind: The format's number for its type.
        offset: Where its data begin, counted from where the first tensor's do.
        size: Bytes of its data.
    """

    head: bytes
    weights: int
    kind: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """A file's header: what stands before the tensors' entries, and these."""

    front: bytes
    tensors: tuple[_Tensor, ...]
    alignment: int

    @property
    def is_slow(self) -> bool:
        slow = sum(tensor.size for tensor in self.tensors if tensor.kind in _SLOW)
        return 2 * slow >= sum(tensor.size for tensor in self.tensors)

    @property
    def header(self) -> bytes:
        entries = (t.head + struct.pack("<IQ", t.kind, t.offset) for t in self.tensors)
        header = b"".join((self.front, *entries))
        return header.ljust(_aligned(len(header), self.alignment), b"\0")

    @property
    def end(self) -> int:
        """Bytes of the whole file."""
        return len(self.header) + max(t.offset + t.size for t in self.tensors)

    @property
    def repacked(self) -> "_Layout":
        """The same with Q8_0 for the types without fast kernels."""
        tensors, offset = [], 0
        for tensor in self.tensors:
            new = replace(tensor, offset=offset)
            if tensor.kind in _SLOW:
                new = replace(new, kind=_Q8_0, size=tensor.weights // 32 * _Q8_0_BYTES)
            tensors.append(new)
            offset = _aligned(offset + new.size, self.alignment)
        return replace(self, tensors=tuple(tensors))


def _read_layout(path: Path) -> _Layout:
    """Read a header; its file type is told as Q8_0."""
    with path.open("rb") as file:
        try:
            return _parse(file)
        except (ValueError, struct.error, KeyError) as failure:
            raise BadInput(f"{path}: not a usable GGUF model: {failure or 'cut off'}") from failure


def _parse(file: BinaryIO) -> _Layout:
    """Read a header; the format is described in ggml's docs/gguf.md."""
    count, entries = read_counts(file)
    alignment, types = 32, []
    for _ in range(entries):
        key, kind = read_text(file), read_number(file, "<I")
        place = file.tell()
        if key == b"general.alignment":
            alignment = read_number(file, SCALARS[kind])
            file.seek(place)
        elif key == b"general.file_type":
            types.append((SCALARS[kind], place))
        skip_value(file, kind)
    front = bytearray(_from(file, 0))
    for form, place in types:
        struct.pack_into(form, front, place, _Q8_0_FILE)
    rows = []
    for _ in range(count):
        start = file.tell()
        read_text(file)
        dimensions = [read_number(file, "<Q") for _ in range(read_number(file, "<I"))]
        head = _from(file, start)
        kind, offset = read_number(file, "<I"), read_number(file, "<Q")
        rows.append((head, math.prod(dimensions), kind, offset))
    # A tensor of a type unknown here ends where the next one begins.
    room = os.fstat(file.fileno()).st_size - _aligned(file.tell(), alignment)
    begins = sorted({offset for *_, offset in rows} | {room})
    ends = dict(pairwise(begins))
    tensors = []
    for head, weights, kind, offset in rows:
        size = ends[offset] - offset
        if kind in _SLOW:
            if weights % 32 or weights // 32 * _SLOW[kind] > size:
                raise ValueError("a tensor's data are cut off")
            size = weights // 32 * _SLOW[kind]
        tensors.append(_Tensor(head, weights, kind, offset, size))
    if not tensors or begins[-1] > room:
        raise ValueError("its tensors' data are cut off")
    return _Layout(bytes(front), tuple(tensors), alignment)


def _from(file: BinaryIO, start: int) -> bytes:
    """What was passed over since `start`."""
    size = file.tell() - start
    file.seek(start)
    return file.read(size)


def _aligned(place: int, alignment: int) -> int:
    return -(-place // alignment) * alignment


def _write_draft(folder: Path, path: Path, layout: _Layout) -> Path:
    number, name = tempfile.mkstemp(suffix=".draft", dir=folder)
    draft = Path(name)
    try:
        with path.open("rb") as source, os.fdopen(number, "wb") as target:
            new = layout.repacked
            target.write(new.header)
            begin, data = len(layout.header), len(new.header)
            for old, tensor in zip(layout.tensors, new.tensors, strict=True):
                source.seek(begin + old.offset)
                target.write(bytes(data + tensor.offset - target.tell()))
                _copy(source, target, old)
            target.flush()
            os.fsync(number)  # a name must not outlive its content when the machine fails
    except BaseException:  # an interrupt too
        draft.unlink(missing_ok=True)
        raise
    return draft


def _copy(source: BinaryIO, target: BinaryIO, tensor: _Tensor) -> None:
    import numpy as np  # noqa: PLC0415
    from gguf import GGMLQuantizationType, quants  # noqa: PLC0415

    step = _CHUNK * _SLOW.get(tensor.kind, _Q8_0_BYTES)
    for place in range(0, tensor.size, step):
        size = min(step, tensor.size - place)
        chunk = source.read(size)
        if len(chunk) != size:
            raise OSError("the model file has become shorter")
        if tensor.kind in _SLOW:
            blocks = np.frombuffer(chunk, np.uint8)[None]
            values = quants.dequantize(blocks, GGMLQuantizationType(tensor.kind))
            chunk = quants.quantize(values, GGMLQuantizationType.Q8_0).tobytes()
        target.write(chunk)


def _touch(copy: Path) -> bool:
    """Whether the copy is there; if so it is used now."""
    with suppress(OSError):
        # What was evaluated with it is kept under its time of change, so that stays.
        written = copy.stat().st_mtime_ns
        with suppress(PermissionError):  # another user's, shared for reading
            os.utime(copy, ns=(time.time_ns(), written))
        return True
    return False


def _make_room(folder: Path, newest: Path) -> None:
    files = []
    for file in folder.iterdir():  # drafts too: whoever wrote them may have been killed
        with suppress(FileNotFoundError):  # other processes make room as well
            state = file.stat()
            files.append((file == newest, state.st_atime, state.st_size, file))
    files.sort()
    total = sum(size for *_, size, _ in files)
    for *_, size, file in files[:-1]:
        if total <= MOST:
            break
        with suppress(OSError):  # another user's, perhaps
            file.unlink(missing_ok=True)
            total -= size
