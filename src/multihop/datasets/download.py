"""One file from an address to a path, whatever happens on the way.

The file grows as `.NAME.part` beside its place, with a note of what it is part of, and takes its
name in one rename when its length and checksum are right. After a broken connection, or a kill,
the next attempt asks for the rest only, on the condition that the file at the server is still the
same (RFC 9110, sections 13.1.5 and 14). Whoever writes holds a lock on the part; a second process
waits and then finds the file there.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import multihop
from multihop.errors import BadInput, DownloadError

if TYPE_CHECKING:
    import httpx

Progress = Callable[[int, int | None], None]
"""Told the bytes that are there and, where it is known, the bytes of the whole file."""

CHUNK = 1 << 18
"""Bytes of a file that are read at once."""

HEAD = 1024
"""Bytes that are looked at before any are kept, to tell a web page from a file."""

TIMEOUT = 30.0
"""Seconds without an answer, or without a byte, after which a connection counts as broken."""

REDIRECTS = 10
"""Most redirects that are followed."""

LONGEST_PAUSE = 120.0
"""Most seconds that a server may ask to wait for."""

SPARE = 64 << 20
"""Bytes of disk that are left free."""

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that may be others in a moment."""

_PAGE = re.compile(
    rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head)\b", re.IGNORECASE | re.DOTALL
)
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


def download(
    url: str,
    path: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
    waiting: Callable[[], None] | None = None,
    tries: int = 5,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Fetch a file over HTTP.

    Nothing is done where the file is there already. What has come before a failure is kept for
    the next call.

    Args:
        url: Its address; redirects are followed.
        path: Where it goes.
        size: Its length in bytes, where it is known.
        sha256: The checksum, where it is known.
        progress: Told how far it is, whenever something has come.
        waiting: Called once when another process is fetching the same file.
        tries: Failures in a row after which it is given up; one that brought something new
            starts the count again.
        pause: Waits so many seconds between two tries: 1, 2, 4, ... at most 60, or as long as the
            server asks.

    Raises:
        BadInput: The address is none.
        DownloadError: The server refuses, has no such file, sends a web page instead, sends
            another file, or cannot be reached; or the disk is too small.
    """
    with claimed(path, waiting) as file:
        if file:
            _Transfer(url, path, file, size, sha256, progress).run(tries, pause)


def copy(
    source: Path,
    path: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
    waiting: Callable[[], None] | None = None,
) -> None:
    """Fetch a file from another folder, checked as `download` does.

    Args:
        source: The file.
        path: Where it goes.
        size: Its length in bytes, where it is known.
        sha256: The checksum, where it is known.
        progress: Told how far it is.
        waiting: Called once when another process is fetching the same file.

    Raises:
        DownloadError: There is no such file, it is another one, or the disk is too small.
    """
    with claimed(path, waiting) as file:
        if not file:
            return
        file.truncate(0)
        try:
            original = source.open("rb")
        except OSError as failure:
            raise DownloadError(f"{source}: cannot be read ({failure.strerror}).") from None
        with original:
            total = os.fstat(original.fileno()).st_size
            check_room(path, total)
            done = 0
            while chunk := original.read(CHUNK):
                write(file, chunk, path)
                done += len(chunk)
                if progress:
                    progress(done, total)
        if wrong := difference(part_of(path), size, sha256):
            file.truncate(0)
            raise DownloadError(f"{source}: {wrong}.")
        finish(file, path)


def part_of(path: Path) -> Path:
    """What a file is called while it is being fetched."""
    return path.with_name(f".{path.name}.part")


def difference(path: Path, size: int | None, sha256: str | None) -> str:
    """What is wrong with a file, in words; empty when it is as published.

    Args:
        path: The file.
        size: Its length in bytes, or None where it is not known.
        sha256: Its checksum, or None where it is not known.
    """
    found = path.stat().st_size
    if size is not None and found != size:
        return f"has {found:,} bytes, the published file has {size:,}"
    if sha256 is not None and (digest := digest_of(path)) != sha256.lower():
        return f"has sha256 {digest}, the published file has {sha256.lower()}"
    return ""


def digest_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_room(path: Path, needed: int) -> None:
    """Refuse to begin what the disk has no room for.

    Args:
        path: What is to be written.
        needed: Its bytes that are still to come.

    Raises:
        DownloadError: There are fewer free, less `SPARE`.
    """
    free = shutil.disk_usage(path.parent).free
    if free < needed + SPARE:
        raise DownloadError(
            f"{path}: needs {needed / 1e6:,.0f} MB and {free / 1e6:,.0f} MB are free. Make room, "
            "or set MULTIHOP_DATA to a folder on a larger disk."
        )


@contextmanager
def claimed(path: Path, waiting: Callable[[], None] | None = None) -> Generator[FileIO | None]:
    """The part of a file, locked and open for appending; None where the file is there already.

    A part that is empty in the end is removed.

    Args:
        path: The file.
        waiting: Called once when another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    told = False
    while not path.exists():
        with part.open("ab", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting and not told:
                    waiting()
                    told = True
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _still(part, file):
                continue  # the other one was done meanwhile, and the part has become the file
            if path.exists():
                part.unlink()
                continue
            try:
                yield file
            finally:
                if _still(part, file) and not os.fstat(file.fileno()).st_size:
                    part.unlink()
            return
    yield None


def _still(part: Path, file: FileIO) -> bool:
    try:
        return os.path.samestat(part.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def write(file: FileIO, chunk: bytes, path: Path) -> None:
    """Write to a part.

    Raises:
        DownloadError: The disk is full.
    """
    try:
        left = memoryview(chunk)
        while left:
            left = left[file.write(left) :]
    except OSError as failure:
        if failure.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise DownloadError(
            f"{path}: the disk is full. Make room and run this again; what has come is kept."
        ) from None


def finish(file: FileIO, path: Path) -> None:
    """Give a part that is complete the file's name."""
    os.fsync(file.fileno())
    part_of(path).replace(path)


# --- One file over HTTP ------------------------------------------------------------------------


class _Broken(Exception):
    """An attempt failed in a way that another may not.

    Args:
        reason: In words.
        wait: Seconds that the server asks to wait for, or None.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class _State:
    """What a part is part of, so that the rest can be asked for."""

    url: str = ""
    validator: str = ""  # a strong entity tag, or the date of the last change
    size: int | None = None

    @classmethod
    def read(cls, path: Path) -> "_State":
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):  # none, or torn by a kill: begin again
            return cls()


@dataclass
class _Transfer:
    url: str
    path: Path
    file: FileIO
    size: int | None
    sha256: str | None
    progress: Progress | None
    pieces: int = 0  # attempts that the part was put together from, earlier calls' too

    def run(self, tries: int, pause: Callable[[float], object]) -> None:
        import httpx  # noqa: PLC0415 - takes time, and only a download needs it

        failures, furthest = 0, self._there()
        self.pieces = int(furthest > 0)
        headers = {
            "accept-encoding": "identity",  # offsets count bytes of the file itself
            "user-agent": f"multihop/{multihop.__version__}",
        }
        with httpx.Client(
            follow_redirects=True, max_redirects=REDIRECTS, timeout=TIMEOUT, headers=headers
        ) as client:
            while True:
                try:
                    self._attempt(client)
                    self._check()
                    break
                except _Broken as broken:
                    there = self._there()
                    failures = 1 if there > furthest else failures + 1
                    furthest = max(furthest, there)
                    if failures >= tries:
                        raise DownloadError(self._given_up(str(broken), failures)) from None
                    pause(min(2.0 ** (failures - 1), 60.0) if broken.wait is None else broken.wait)
        finish(self.file, self.path)
        self._note.unlink(missing_ok=True)

    def _attempt(self, client: "httpx.Client") -> None:
        import httpx  # noqa: PLC0415

        start, state = self._resumable()
        if start and start == (state.size or self.size):
            return  # killed between the last byte and the rename
        headers = {}
        if start:
            headers["range"] = f"bytes={start}-"
            if state.validator:
                headers["if-range"] = state.validator
        try:
            with client.stream("GET", self.url, headers=headers) as response:
                self._receive(response, start, state)
        except httpx.TooManyRedirects:
            raise DownloadError(
                f"{self.url}: redirects more than {REDIRECTS} times. {self._by_hand}"
            ) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as wrong:
            raise BadInput(f"{self.url}: not an address to download from ({wrong}).") from None
        except httpx.DecodingError as wrong:
            raise DownloadError(f"{self.url}: cannot be decoded ({wrong}).") from None
        except httpx.TransportError as failure:
            raise _Broken(str(failure) or type(failure).__name__) from None

    def _resumable(self) -> tuple[int, _State]:
        """Where to go on, and what the part is part of; the beginning where it is not known."""
        start, state = self._there(), _State.read(self._note)
        known = state.validator or self.sha256
        most = state.size or self.size
        if start and (state.url != self.url or not known or (most is not None and start > most)):
            self._drop()
            return 0, _State()
        return start, state

    def _receive(self, response: "httpx.Response", start: int, state: _State) -> None:
        """Take what the server sends, after a look at what it is."""
        self._accept(response)
        headers = response.headers
        encoded = headers.get("content-encoding", "identity").lower() not in ("", "identity")
        chunks = response.iter_bytes() if encoded else response.iter_raw()
        first = b""
        while len(first) < HEAD and (chunk := next(chunks, b"")):
            first += chunk
        self._refuse_page(response, first)
        length = headers.get("content-length", "")
        coming = int(length) if length.isdecimal() and not encoded else None
        validator = _validator(headers)
        if response.status_code == 206:
            span = _RANGE.fullmatch(headers.get("content-range", ""))
            total = int(span[2]) if span and span[2] != "*" else state.size
            same = (
                span is not None
                and int(span[1]) == start
                and not encoded
                and (not state.validator or validator in ("", state.validator))
                and (state.size is None or total == state.size)
            )
            if not same:
                self._drop()
                raise _Broken("the file has changed, or the server sent another part of it")
        else:  # it cannot send parts, or the file has changed
            start, total, state = 0, coming, _State()
        if None not in (total, self.size) and total != self.size:
            raise DownloadError(
                f"{self.url}: has {total:,} bytes, the published file has {self.size:,}: it is "
                f"another file. {self._by_hand}"
            )
        total = self.size if total is None else total
        if total is not None:
            check_room(self.path, total - start)
        if not start:
            self._drop()
        note = _State(self.url, "" if encoded else validator or state.validator, total)
        self._note.write_text(json.dumps(asdict(note)), encoding="utf-8")
        self.pieces += 1
        self._append(first, chunks, start, total)

    def _append(self, first: bytes, rest: Iterator[bytes], start: int, total: int | None) -> None:
        done, chunk = start, first
        while chunk:
            write(self.file, chunk, self.path)
            done += len(chunk)
            if total is not None and done > total:
                break
            if self.progress:
                self.progress(done, total)
            chunk = next(rest, b"")
        if total is not None and done > total:
            self._drop()
            raise DownloadError(
                f"{self.url}: sends more than the {total:,} bytes of the file. {self._by_hand}"
            )
        if total is not None and done < total:
            raise _Broken(f"only {done:,} of {total:,} bytes came")

    def _accept(self, response: "httpx.Response") -> None:
        """Refuse what is no file."""
        status = response.status_code
        if status in (200, 206):
            return
        said = f"{status} {response.reason_phrase}".strip()
        if status == 416:  # the file has become shorter than the part
            self._drop()
            raise _Broken("the file has changed")
        if status in _AGAIN:
            wait = _asked_to_wait(response.headers.get("retry-after", ""))
            if wait is not None and wait > LONGEST_PAUSE:
                raise DownloadError(
                    f"{self.url}: the server answers {said} and asks to wait {wait:,.0f} seconds. "
                    "Run this again then; what has come is kept."
                )
            raise _Broken(f"the server answers {said}", wait)
        if status in (401, 403, 407):
            found = f"the server wants a login or a licence to be accepted ({said})"
        elif status in (404, 410):
            found = f"the file is gone ({said})"
        else:
            found = f"the server answers {said}"
        raise DownloadError(f"{self.url}: {found}. {self._by_hand}")

    def _refuse_page(self, response: "httpx.Response", begin: bytes) -> None:
        """Refuse a page to log in, to confirm or to be told of a quota, where a file was due."""
        if self.path.suffix.lower() in (".html", ".htm"):
            return
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in ("text/html", "application/xhtml+xml") or _PAGE.match(begin):
            title = _TITLE.search(begin)
            words = title[1].decode("utf-8", "replace").split() if title else ()
            called = f" ({' '.join(words)[:80]!r})" if words else ""
            raise DownloadError(
                f"{self.url}: a web page{called} comes instead of the file: to log in, to confirm, "
                f"or to be told of a limit. {self._by_hand}"
            )

    def _check(self) -> None:
        """Compare with what was published."""
        wrong = difference(part_of(self.path), self.size, self.sha256)
        if not wrong:
            return
        together = self.pieces > 1
        self._drop()
        if together:  # the pieces may be of two files
            raise _Broken(f"put together it {wrong}")
        raise DownloadError(
            f"{self.url}: {wrong}: it was changed, or damaged on the way. {self._by_hand}"
        )

    def _given_up(self, reason: str, failures: int) -> str:
        there = self._there()
        kept = f" The {there:,} bytes that came are kept: run this again to go on." if there else ""
        return f"{self.url}: {reason}; given up after {failures} tries.{kept} {self._by_hand}"

    @property
    def _by_hand(self) -> str:
        return (
            f"Download it by hand to {self.path} and run this again, or name another source with "
            "--mirror."
        )

    @property
    def _note(self) -> Path:
        return part_of(self.path).with_suffix(".json")

    def _there(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    def _drop(self) -> None:
        """Forget what has come."""
        self._note.unlink(missing_ok=True)
        self.file.truncate(0)
        self.pieces = 0


def _validator(headers: "httpx.Headers") -> str:
    """What tells this version of a file from others: a strong entity tag, or a date."""
    tag: str = headers.get("etag", "")
    date: str = headers.get("last-modified", "")
    return tag if tag.startswith('"') else date


def _asked_to_wait(header: str) -> float | None:
    """The seconds of a Retry-After header; None where there is none to be understood."""
    if header.strip().isdecimal():
        return float(header)
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
