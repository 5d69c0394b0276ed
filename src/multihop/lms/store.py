"""Finished replies on disk, shared by threads, event loops and processes.

One SQLite file in write-ahead mode: readers never wait, writers wait for each other, and a
process that is killed loses at most what it had not yet handed over. All work is done by one
thread of the store's own, in the order it was given, so no event loop waits for a disk.
"""

import asyncio
import fcntl
import json
import logging
import os
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from multihop import places
from multihop.errors import BadInput
from multihop.text import Json

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SCHEMA = 1
"""Version of the file's tables, in SQLite's `user_version`. Others are refused."""

MAX_BYTES = 1 << 30
"""What a store's records may take when nothing else is said."""

Record = dict[str, Json]
"""What is kept of a reply; `cache` says what is in it."""

_FILE = "replies.sqlite"
_BUSY = 30.0  # seconds that a writer waits for other processes
_ROW = 200  # bytes that a row takes beside its value: key, two indexes, headers
_UNSAVED = 256  # times of use that are kept in memory until something is written

_TABLES = """
CREATE TABLE replies (
    key BLOB NOT NULL UNIQUE,
    used REAL NOT NULL,
    size INTEGER NOT NULL,  -- before the value, so that evicting reads no values
    value BLOB NOT NULL
);
CREATE INDEX by_use ON replies (used);
CREATE TABLE total (entries INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO total VALUES (0, 0);
CREATE TRIGGER came AFTER INSERT ON replies BEGIN
    UPDATE total SET entries = entries + 1, bytes = bytes + NEW.size;
END;
CREATE TRIGGER went AFTER DELETE ON replies BEGIN
    UPDATE total SET entries = entries - 1, bytes = bytes - OLD.size;
END;
"""

_forked: list[list[sqlite3.Connection]] = []
"""Connections of a parent process: not to be used here, and not to be closed here either."""


class DamagedStore(BadInput):
    """A file that holds no records that can be read here; emptying it mends it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How full a store is.

    Attributes:
        entries: Replies in it.
        bytes: What they take, compressed, with their share of the indexes.
    """

    entries: int
    bytes: int


def default_path() -> Path:
    """Where replies are kept when no place is named."""
    return places.cache() / _FILE


class ReplyStore:
    """Records by key, bounded in size.

    Args:
        path: The file; made, with its folder, when it is not there. None is `default_path`.
        max_bytes: When the records take more, those are dropped that were not used for
            longest. The file may be larger by what is about to be written and by room that
            later records will take.

    Attributes:
        flights: Which keys are being asked for just now.

    Raises:
        DamagedStore: The file is damaged, or of another version.
        BadInput: It cannot be opened.
    """

    def __init__(self, path: Path | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        if max_bytes < 1:
            raise BadInput(f"max_bytes is {max_bytes}; the least is 1.")
        self.path = path or default_path()
        self.max_bytes = max_bytes
        self._begin()
        self._submit(self._open).result()

    async def get(self, key: bytes) -> Record | None:
        """The record of this key; None when there is none.

        Raises:
            DamagedStore: The file is damaged.
            BadInput: It cannot be read.
        """
        return await asyncio.wrap_future(self._submit(self._get, key))

    def put(self, key: bytes, record: Record) -> None:
        """Keep a record, soon; a record that is there already stays.

        Returns at once and needs no event loop. What was put is seen by every later `get`, is
        on disk after `flush`, and is written before Python exits. A disk that is full is no
        reason to lose a reply: what cannot be written is logged, once.
        """
        self._submit(self._put, key, json.dumps(record, separators=(",", ":")))

    async def usage(self) -> Usage:
        """Count what is in the store."""
        return await asyncio.wrap_future(self._submit(self._usage))

    async def clear(self) -> Usage:
        """Drop all records, for all processes that use the file.

        Returns:
            What was dropped.
        """
        return await asyncio.wrap_future(self._submit(self._clear))

    async def flush(self) -> None:
        """Wait until everything put so far is on disk."""
        await asyncio.wrap_future(self._submit(self._save_uses))

    async def aclose(self) -> None:
        """Write everything and close the file. A later call opens it again."""
        await asyncio.wrap_future(self._submit(self._close))

    # --- The thread ---------------------------------------------------------------------

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="multihop-replies")
        self._opened: list[sqlite3.Connection] = []
        self._uses: dict[bytes, float] = {}
        self._warned = False
        self.flights = Flights()
        weakref.finalize(self, _close, self._opened, self._pid)

    def _submit(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> "Future[T]":
        if self._pid != os.getpid():  # threads and connections do not outlive a fork
            _forked.append(self._opened)
            self._begin()
        return self._thread.submit(work, *args, **options)

    # --- In the thread ------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self._opened:
            return self._opened[0]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _alone(self.path.parent):
                db = sqlite3.connect(
                    self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False
                )
                try:
                    self._prepare(db)
                except BaseException:
                    db.close()
                    raise
        except (OSError, sqlite3.Error) as failure:
            raise self._refusal(failure) from failure
        self._opened.append(db)
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        [version] = db.execute("PRAGMA user_version").fetchone()
        [tables] = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version != SCHEMA and (version or tables):
            raise DamagedStore(
                f"{self.path}: the reply cache has format {version}, this program reads {SCHEMA}. "
                "Use the release that wrote it, keep another cache (MULTIHOP_CACHE_DIR=DIR), or "
                "empty this one with: multihop cache --clear"
            )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # a power cut may lose the newest, no more
        if not tables:
            db.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")

    def _refusal(self, failure: Exception) -> BadInput:
        if _is_damage(failure):
            return DamagedStore(
                f"{self.path}: the reply cache is damaged ({failure}). Nothing was changed. Empty "
                "it with `multihop cache --clear`, or keep another: MULTIHOP_CACHE_DIR=DIR."
            )
        return BadInput(
            f"{self.path}: the reply cache cannot be used ({failure}). "
            "Keep another: MULTIHOP_CACHE_DIR=DIR."
        )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the writer's place from its beginning."""
        db = self._open()
        with db:
            db.execute("BEGIN IMMEDIATE")
            yield db

    def _get(self, key: bytes) -> Record | None:
        try:
            found = self._open().execute("SELECT value FROM replies WHERE key = ?", (key,))
            row = found.fetchone()
            record: Record | None = row and json.loads(zlib.decompress(row[0]))
        except (sqlite3.Error, zlib.error, ValueError) as failure:
            raise self._refusal(failure) from failure
        if record is not None:
            self._uses[key] = time.time()
            if len(self._uses) >= _UNSAVED:
                self._save_uses()
        return record

    def _put(self, key: bytes, text: str) -> None:
        value = zlib.compress(text.encode("ascii"), 1)
        size = len(value) + _ROW
        if size > self.max_bytes:
            return
        with self._lenient(), self._writing() as db:
            db.execute(
                "INSERT INTO replies (key, used, size, value) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET used = excluded.used",
                (key, time.time(), size, value),
            )
            self._write_uses(db)
            self._evict(db)

    def _save_uses(self) -> None:
        if self._uses:
            with self._lenient(), self._writing() as db:
                self._write_uses(db)

    def _write_uses(self, db: sqlite3.Connection) -> None:
        uses = [(used, key) for key, used in self._uses.items()]
        db.executemany("UPDATE replies SET used = ? WHERE key = ?", uses)
        self._uses.clear()

    def _evict(self, db: sqlite3.Connection) -> None:
        [total] = db.execute("SELECT bytes FROM total").fetchone()
        if total <= self.max_bytes:
            return
        doomed: list[tuple[int]] = []
        with closing(db.execute("SELECT rowid, size FROM replies ORDER BY used, rowid")) as oldest:
            while total > self.max_bytes:
                row, size = oldest.fetchone()
                doomed.append((row,))
                total -= size
        db.executemany("DELETE FROM replies WHERE rowid = ?", doomed)

    @contextmanager
    def _lenient(self) -> Iterator[None]:
        """Log what cannot be written; reading says what is wrong with the file."""
        try:
            yield
        except (sqlite3.Error, BadInput) as failure:
            self._uses.clear()
            if not self._warned:
                self._warned = True
                log.warning("%s: replies cannot be kept (%s).", self.path, failure)

    def _usage(self) -> Usage:
        try:
            return Usage(*self._open().execute("SELECT entries, bytes FROM total").fetchone())
        except sqlite3.Error as failure:
            raise self._refusal(failure) from failure

    def _clear(self) -> Usage:
        try:
            with self._writing() as db:
                held = Usage(*db.execute("SELECT entries, bytes FROM total").fetchone())
                db.execute("DELETE FROM replies")
            self._uses.clear()
            # While others read, the file keeps its size; its room is used again.
            with suppress(sqlite3.OperationalError):
                db.execute("VACUUM")
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as failure:
            raise self._refusal(failure) from failure
        return held

    def _close(self) -> None:
        if self._opened:
            self._save_uses()
        _close(self._opened, self._pid)


def remove(path: Path) -> int:
    """Delete a store's files, whatever is in them.

    Returns:
        Bytes that they took.
    """
    files = [path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")]
    found = [file for file in files if file.exists()]
    taken = sum(file.stat().st_size for file in found)
    for file in found:
        file.unlink()
    return taken


def _is_damage(failure: Exception) -> bool:
    """Whether the file's content is at fault, not the disk or other processes."""
    if isinstance(failure, sqlite3.Error):
        # SQLITE_ERROR: a table is missing.
        damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
        return failure.sqlite_errorcode & 0xFF in damage
    return not isinstance(failure, OSError)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from opening at the same time: SQLite does not let two make a file."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _close(opened: list[sqlite3.Connection], pid: int) -> None:
    while opened and pid == os.getpid():
        opened.pop().close()


# --- What is being asked for ----------------------------------------------------------------


@dataclass
class _Flight:
    leader: "asyncio.Task[object] | None"
    waiting: list["Future[Record | None]"] = field(default_factory=list)


class Flights:
    """Keys that somebody in this process is asking a model for; all event loops share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[bytes, _Flight] = {}

    def join(self, key: bytes) -> "Future[Record | None] | None":
        """Wait for whoever is asking for `key`, or become that one.

        Returns:
            A future that gets the record, or None when there is none to share; or no future:
            then the caller leads, and must call `leave`.
        """
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                self._flights[key] = _Flight(asyncio.current_task())
                return None
            future: Future[Record | None] = Future()
            flight.waiting.append(future)
            return future

    def led_here(self, key: bytes) -> bool:
        """Whether the current task itself leads: waiting would be waiting for itself."""
        with self._lock:
            flight = self._flights.get(key)
            return flight is not None and flight.leader is asyncio.current_task()

    def leave(self, key: bytes, record: Record | None) -> None:
        """Wake all that wait. Without a record each of them tries to lead."""
        with self._lock:
            flight = self._flights.pop(key)
        for future in flight.waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(record)
