"""A data set's published files into its folder, from their publisher or from a mirror."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from multihop.datasets import download
from multihop.datasets.archives import unpack
from multihop.datasets.base import Dataset, Published
from multihop.errors import BadInput, DownloadError


@dataclass(frozen=True, slots=True)
class Fetched:
    """What became of a published file.

    Attributes:
        file: Which.
        paths: The files that are now there; of an archive what was unpacked.
        fresh: Whether it was fetched just now; else it was there.
        checked: Whether its checksum is known, and was compared.
    """

    file: Published
    paths: tuple[Path, ...]
    fresh: bool
    checked: bool


def fetch(
    published: Published,
    folder: Path,
    *,
    mirror: str = "",
    progress: download.Progress | None = None,
    waiting: Callable[[], None] | None = None,
) -> Fetched:
    """Fetch a file, unless it is there, and unpack it if it is an archive.

    A file that a user has put into the folder by hand is taken as if it had been fetched, and
    checked in the same way. An archive whose files are all there is not fetched again.

    Args:
        published: What to fetch.
        folder: Where it goes.
        mirror: The folder that it is in elsewhere: an http or file address, or a path. Empty for
            its publisher's.
        progress: Told how far it is.
        waiting: Called once when another process is fetching the same file.

    Raises:
        BadInput: The mirror is none.
        DownloadError: It cannot be had, or is not what was published.
    """
    members = tuple(folder / name for name in published.members)
    if members and all(path.exists() for path in members):
        return Fetched(published, members, fresh=False, checked=False)
    path = folder / published.name
    fresh = not path.exists()
    if fresh:
        _bring(published, path, mirror, progress, waiting)
    elif wrong := download.difference(path, published.size, published.sha256):
        raise DownloadError(f"{path}: {wrong}. Delete it to fetch the published one.")
    checked = published.sha256 is not None
    if not published.members:
        return Fetched(published, (path,), fresh, checked)
    return Fetched(published, tuple(unpack(path, published.members, folder)), fresh, checked)


def wanted(
    dataset: Dataset, splits: Sequence[str] = (), *, corpus: bool = False
) -> list[Published]:
    """The published files that some parts of a data set are in.

    Args:
        dataset: Whose.
        splits: Names of splits.
        corpus: Whether what its corpus is made of is wanted too. With neither splits nor corpus,
            all files are.

    Raises:
        BadInput: There is no such split, or no corpus, or no published file holds it.
    """
    if not splits and not corpus:
        return list(dataset.files)
    names = [dataset.split(name).file for name in splits]
    if corpus:
        if dataset.corpus is None:
            raise BadInput(f"{dataset.title} has no corpus of its own.")
        names += dataset.corpus.files
    holders = {}
    for name in names:
        holder = next((f for f in dataset.files if name == f.name or name in f.members), None)
        if holder is None:
            raise BadInput(f"{dataset.title}: no published file is known that holds {name}.")
        holders[holder.name] = holder
    return list(holders.values())


def at_mirror(mirror: str, name: str) -> str | Path:
    """Where a mirror has a file: an address, or a path.

    Args:
        mirror: An http or file address, or a path, of a folder.
        name: The file's.

    Raises:
        BadInput: It is an address of another kind.
    """
    scheme = urlsplit(mirror).scheme if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", mirror) else ""
    if scheme in ("http", "https"):
        return f"{mirror.rstrip('/')}/{quote(name)}"
    if scheme == "file":
        return Path(url2pathname(urlsplit(mirror).path)) / name
    if scheme:
        raise BadInput(f"--mirror {mirror}: expected an http or file address, or a folder.")
    return Path(mirror).expanduser() / name


def _bring(
    published: Published,
    path: Path,
    mirror: str,
    progress: download.Progress | None,
    waiting: Callable[[], None] | None,
) -> None:
    if not mirror and not published.url:
        note = f" {published.note}" if published.note else ""
        raise DownloadError(
            f"{published.name}: no address of it is known.{note} Put it at {path} and run this "
            "again, or name a source with --mirror."
        )
    source = at_mirror(mirror, published.name) if mirror else published.url
    bring = (
        partial(download.copy, source)
        if isinstance(source, Path)
        else partial(download.download, source)
    )
    try:
        bring(
            path,
            size=published.size,
            sha256=published.sha256,
            progress=progress,
            waiting=waiting,
        )
    except DownloadError as failure:
        if published.note and not mirror:
            raise DownloadError(f"{failure} {published.note}") from None
        raise
