"""Who works on what in a run folder, so that any number of processes and hosts can share one.

Each process is a *worker*. Before it asks a question it takes a claim on it; when the trace is on
disk it gives the claim up. All of this is names in the run folder:

    .worker-ID         a living worker: locked by its process, touched every few seconds
    .claim-NAME.0      a symbolic link to the ID of the worker that has the claim
    .claim-NAME.1      the same, of the worker that took it over when the first had died; ...

A name is made at once or not at all, with its content, and by one worker only: the one thing
that is asked of the file system beside locks within a host. A claim is held by its highest
number. Numbers go away lowest first, so whoever takes a claim over looks, when he has made his
name, whether all those below it are still what he saw.

A claim says that nobody else *is at work* on a question, not that nobody has *done* it: look at
the traces after taking one. They are written before a claim is given up.

Whether a worker is dead:

- of the same host (the same boot of one kernel): its file's lock is free. The operating system
  sees to that at once, whatever ended the process.
- of another host: its file has not been touched for `LEASE` seconds *by the clock of the one who
  looks*, who looked at the beginning and at the end. Times of two clocks are never compared.

A worker that was cut off from the disk for longer than that and comes back finds its claims taken
(`holds`) and writes nothing. Only when it comes back between looking and writing can a question
have two lines; readers then count the first.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import socket
import threading
import time
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from multihop import runs
from multihop.errors import BadInput, MultihopError

LEASE = 60.0
"""Seconds without a sign of life after which a worker of another host is taken for dead."""

_WORKER, _CLAIM = ".worker-", ".claim-"


class Claims:
    """One worker's claims in one run folder; a context manager that registers the worker.

    Args:
        folder: The run folder; it exists.

    Attributes:
        worker: This worker's ID.
        traces: The file that this worker alone writes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._held: dict[str, int] = {}
        self._beats: dict[str, tuple[int, float]] = {}  # of other hosts: the last, and when seen
        self._end = threading.Event()

    def __enter__(self) -> Self:
        """Register, and take the first trace file that is free.

        Raises:
            BadInput: The file system has no symbolic links.
        """
        path = self._folder / f"{_WORKER}{self.worker}"
        unnamed = path.with_name(f".new{path.name}")
        self._file = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.write(self._file, _host().encode())
        unnamed.rename(path)  # from now on others see it, with lock and content
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()
        try:
            number = next(number for number in count() if self.take(f"traces-{number}"))
        except BaseException:
            self._leave()
            raise
        self.traces = runs.trace_file(self._folder, number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Give everything up, and clear away what the dead have left."""
        try:
            for name in [*self._held]:
                self.give_back(name)
            self._sweep()
        finally:
            self._leave()

    def _leave(self) -> None:
        self._end.set()
        self._heart.join()  # it uses the file
        (self._folder / f"{_WORKER}{self.worker}").unlink(missing_ok=True)
        os.close(self._file)

    def take(self, name: str) -> bool:
        """Claim something.

        Args:
            name: The number of some questions, or what else only one may have.

        Returns:
            Whether it is this worker's now; not while a living worker has it.
        """
        seen: list[str] = []
        for number in count():
            try:
                (self._folder / f"{_CLAIM}{name}.{number}").symlink_to(self.worker)
                break
            except FileExistsError:
                owner = self._owner(name, number)
                if owner == self.worker:  # made, and the network lost the answer
                    break
                if owner is None or not self._dead(owner):
                    return False
                seen.append(owner)
            except OSError as failure:
                if failure.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                    raise
                raise BadInput(
                    f"{self._folder}: its file system makes no symbolic links "
                    f"({failure.strerror}). Choose a folder elsewhere with --into."
                ) from None
        self._held[name] = len(seen)
        if any(self._owner(name, number) != owner for number, owner in enumerate(seen)):
            self.give_back(name)  # it was done or given back meanwhile
            return False
        for above in count(len(seen) + 1):  # left by one who died while it finished
            owner = self._owner(name, above)
            if owner is None:
                return True
            if not self._dead(owner):
                self.give_back(name)
                return False
            self._unlink(name, above)
        raise AssertionError  # `count` does not end

    def holds(self, name: str) -> bool:
        """Whether a claim is still this worker's."""
        number = self._held[name]
        return self._owner(name, number) == self.worker and self._owner(name, number + 1) is None

    def check(self, name: str) -> None:
        """Make sure of `holds`.

        Raises:
            MultihopError: Another worker has taken the claim over.
        """
        if not self.holds(name):
            raise MultihopError(
                f"{self._folder}: this process gave no sign of life for {LEASE:g} seconds, and "
                "another one took over what it was at. Repeat the command to join in again."
            )

    def finish(self, name: str) -> None:
        """Give up a claim on what is done: nobody needs it any more."""
        for number in range(self._held.pop(name) + 1):
            self._unlink(name, number)

    def give_back(self, name: str) -> None:
        """Give up a claim on what is not done."""
        if self.holds(name):
            self._unlink(name, self._held[name])
        del self._held[name]  # what was taken over is the other's to clear away

    def free(self, name: str) -> bool:
        """Whether `take` would do, as far as one can see."""
        for number in count():
            owner = self._owner(name, number)
            if owner is None:
                return True
            if not self._dead(owner):
                return False
        raise AssertionError  # `count` does not end

    def _owner(self, name: str, number: int) -> str | None:
        try:
            return str((self._folder / f"{_CLAIM}{name}.{number}").readlink())
        except FileNotFoundError:
            return None

    def _unlink(self, name: str, number: int) -> None:
        (self._folder / f"{_CLAIM}{name}.{number}").unlink(missing_ok=True)

    def _dead(self, worker: str) -> bool:
        try:
            file = os.open(self._folder / f"{_WORKER}{worker}", os.O_RDONLY)
        except FileNotFoundError:  # it ended
            return True
        try:
            if os.pread(file, 100, 0).decode() == _host():
                return _unlocked(file)
            beat, now = os.fstat(file).st_mtime_ns, time.monotonic()
        finally:
            os.close(file)
        last, since = self._beats.get(worker, (None, now))
        if beat != last:
            self._beats[worker] = beat, now
            return False
        return now - since > LEASE

    def _beat(self) -> None:
        while not self._end.wait(LEASE / 6):
            with contextlib.suppress(OSError):  # the disk may come back; `check` tells
                os.utime(self._file)

    def _sweep(self) -> None:
        names = [path.name for path in self._folder.iterdir()]
        for name in {n[len(_CLAIM) :].rpartition(".")[0] for n in names if n.startswith(_CLAIM)}:
            if self.take(name):
                self.finish(name)
        for name in names:
            if name.startswith(_WORKER) and self._dead(name[len(_WORKER) :]):
                (self._folder / name).unlink(missing_ok=True)


def _unlocked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # closing the file lets go
    except BlockingIOError:
        return False
    return True


def _host() -> str:
    """The running kernel: containers of one machine have it in common, two machines never."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
