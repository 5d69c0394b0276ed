"""What the BM25 engine is given of each passage, worked out in other processes for many.

Cutting a text into terms is most of the work of building an index, and Python does it on one
core. Workers are plain child processes that read chunks of passages from their standard input
and write rows to their standard output: they import nothing of the caller's program, hold no
locks of it, and end when their input does, so that none outlives it, however it dies.
"""

import contextlib
import hashlib
import itertools
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

from multihop.errors import CorpusError
from multihop.retrievers.content import digest
from multihop.retrievers.elastic_form import folded
from multihop.retrievers.english import term_line
from multihop.text import Passage, facets

ALONE = 5_000
"""Passages that are worked on in this process before workers are started."""

CHUNK = 1_000
"""Passages that a worker is sent at a time."""


class Row(NamedTuple):
    """What an index keeps of a passage.

    Attributes:
        title: The title's terms, with a blank between two.
        text: The text's terms, likewise.
        key: See `id_key`.
        text_key: See `folded_key`.
        title_key: Likewise, of the title.
        abstract: False if the passage says that it is none; those stay out of title searches.
        stored: The passage itself.
        digest: Of `stored`, 128 bits.
        facets: See `facet_key`; one for each value in its metadata.
    """

    title: str
    text: str
    key: int
    text_key: int
    title_key: int
    abstract: bool
    stored: bytes
    digest: bytes
    facets: tuple[int, ...]


def row(passage: Passage) -> Row:
    """Work out what the index keeps of a passage."""
    stored = encoded(passage)
    return Row(
        term_line(passage.title),
        term_line(passage.text),
        id_key(passage.id),
        folded_key(passage.text),
        folded_key(passage.title),
        passage.metadata.get("is_abstract") is not False,
        stored,
        digest(stored),
        tuple(sorted({facet_key(*facet) for facet in facets(passage.metadata)})),
    )


def rows(passages: Iterable[Passage], processes: int) -> Generator[tuple[Passage, Row], None, None]:
    """Each passage with its row, in order.

    Closing the iterator, or an exception in `passages`, ends the workers.

    Args:
        passages: Read once, a few chunks ahead of what was taken.
        processes: How many workers; below 2, none.

    Raises:
        CorpusError: A worker died.
    """
    ahead = iter(passages)
    if processes < 2 or not sys.executable:
        for passage in ahead:
            yield passage, row(passage)
        return
    for passage in itertools.islice(ahead, ALONE):
        yield passage, row(passage)
    if first := list(itertools.islice(ahead, CHUNK)):
        yield from _from_workers(first, ahead, processes)


def encoded(passage: Passage) -> bytes:
    """The passage as it is stored."""
    record = [passage.id, passage.title, passage.text]
    return _bytes(_JSON.encode([*record, dict(passage.metadata)] if passage.metadata else record))


def decoded(stored: bytes) -> Passage:
    """The passage as it was given."""
    return Passage(*json.loads(stored.decode("utf-8", "surrogatepass")))


def id_key(passage_id: str) -> int:
    """The term that an id is indexed by: any length and any character will do."""
    return _hash(passage_id)


def folded_key(text: str) -> int:
    """Equal for texts that are equal, case and outer white space aside."""
    return _hash(folded(text))


def facet_key(name: str, value: str) -> int:
    """The term that a field of metadata with this value is indexed by."""
    return _hash(f"{len(name)} {name} {value}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(_bytes(text), digest_size=8).digest(), "big")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # lone surrogates survive


_JSON = json.JSONEncoder(ensure_ascii=False)


# --- The caller's side -----------------------------------------------------------------------


def _from_workers(
    chunk: list[Passage], ahead: Iterator[Passage], processes: int
) -> Iterator[tuple[Passage, Row]]:
    """The rows of a chunk and of all passages after it.

    A thread a worker carries a chunk there and its rows back; it waits nearly all the time.
    """
    workers: list[_Worker] = []
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    carriers = ThreadPoolExecutor(processes, thread_name_prefix="multihop-index")
    try:
        for _ in range(processes):
            workers.append(worker := _Worker())
            idle.put(worker)
        under_way: deque[tuple[list[Passage], Future[list[Row]]]] = deque()
        while chunk or under_way:
            if chunk:
                under_way.append((chunk, carriers.submit(_carried, chunk, idle)))
                chunk = list(itertools.islice(ahead, CHUNK))
            if len(under_way) > 2 * processes or not chunk:
                sent, found = under_way.popleft()
                yield from zip(sent, found.result(), strict=True)
    finally:
        for worker in workers:
            worker.end()
        carriers.shutdown(cancel_futures=True)


def _carried(chunk: Sequence[Passage], idle: "queue.SimpleQueue[_Worker]") -> list[Row]:
    worker = idle.get()
    try:
        return worker.rows(chunk)
    finally:
        idle.put(worker)


class _Worker:
    """A child process that makes rows."""

    def __init__(self) -> None:
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )

    def rows(self, chunk: Sequence[Passage]) -> list[Row]:
        """The rows of a chunk.

        Raises:
            CorpusError: The worker died.
        """
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        try:
            _send(into, [(p.id, p.title, p.text, dict(p.metadata)) for p in chunk])
            found = pickle.load(out)  # noqa: S301 - from our own child
        except (OSError, ValueError, EOFError, pickle.UnpicklingError) as broken:
            code = self._process.wait()
            raise CorpusError(
                f"a worker that cuts texts into terms ended with exit code {code} ({broken!r}). "
                "Is there too little memory? One process does it too: processes=1."
            ) from broken
        if isinstance(found, Exception):
            raise found
        return list(map(Row._make, found))

    def end(self) -> None:
        """End it at once; whatever it was doing is no longer wanted."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what was still to be written is lost, as meant
                pipe.close()


def _send(pipe: IO[bytes], thing: object) -> None:
    pipe.write(pickle.dumps(thing, pickle.HIGHEST_PROTOCOL))
    pipe.flush()


# --- The worker's side -----------------------------------------------------------------------


def work(source: IO[bytes], into: IO[bytes]) -> None:
    """Answer chunks of passages with their rows until the source ends."""
    while True:
        try:
            chunk = pickle.load(source)  # noqa: S301 - from our own parent
        except EOFError:
            return
        try:
            found = [tuple(row(Passage(*fields))) for fields in chunk]
        except Exception as failure:  # noqa: BLE001 - any kind goes to the parent
            _send(into, failure)  # raised again in the parent
            raise SystemExit(1) from None
        _send(into, found)


def main() -> None:
    """Be a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    work(sys.stdin.buffer, sys.stdout.buffer)
