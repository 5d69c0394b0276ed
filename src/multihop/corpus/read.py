"""Reads passages from files and folders, one after the other.

Memory does not grow with the corpus: JSONL and plain text are read line by line, other
documents one at a time.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from multihop.corpus.duplicates import first_of_its_kind
from multihop.corpus.sections import Section
from multihop.corpus.split import Splitting, cut
from multihop.errors import BadInput, MissingExtra
from multihop.text import Json, Passage

READERS = {
    ".txt": "multihop.corpus.plain:sections",
    ".md": "multihop.corpus.web:markdown_sections",
    ".markdown": "multihop.corpus.web:markdown_sections",
    ".html": "multihop.corpus.web:html_sections",
    ".htm": "multihop.corpus.web:html_sections",
    ".pdf": "multihop.corpus.pdf:sections",
    ".docx": "multihop.corpus.word:sections",
}
"""Who reads a document, by the ending of its name; imported when the first one is met."""

SUFFIXES = (".jsonl", *READERS)
"""Endings of the files that are read, in lower case."""

LISTED = 1000
"""Rejections that are kept to be listed; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line or a document that was left out.

    Attributes:
        where: "file:line", or the file.
        reason: What was found and what to do.
    """

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class Reader:
    """Iterates over the passages of files and folders.

    A JSONL file holds a passage a line: `id` and `text`, `title` (may be empty), and other
    fields, which become metadata. Documents (`SUFFIXES`) are split into titled passages with
    ids `PATH#1`, `PATH#2`, ...; metadata has `path` and, where known, `headings`, `page` and
    `line`, the line that its first paragraph begins at.
    Folders are searched to any depth, in alphabetical order; other files in them, and names
    that begin with a dot, are passed over.

    Args:
        paths: Files and folders, in this order. What is named twice is read once.
        skip_bad: Count and list what cannot be read instead of raising.
        splitting: How documents are split.
        near_duplicates: Leave out passages whose text is so similar to that of one before, above
            0 and at most 1 (see `corpus.duplicates`); None leaves out none.

    Attributes:
        rejected: The first `LISTED` lines and documents that were left out.
        rejections: How many there were.
        without_text: Documents that were read and hold no text.
        left_out: Passages that were left out as near-duplicates.
        size: Bytes of all files.
        done: Bytes read so far.
        source: What decides the passages, for an index's manifest.

    Raises:
        BadInput: A path does not exist, is of an unknown kind, or nothing is there to read; no
            tokenizer is where one was named; the similarity is none.
        MissingExtra: A library is not installed that the splitting or comparing needs.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        skip_bad: bool = False,
        splitting: Splitting | None = None,
        near_duplicates: float | None = None,
    ) -> None:
        self.splitting = splitting or Splitting()
        self.near_duplicates = near_duplicates
        _ = self.splitting.measure  # what is missing is said before anything is read
        if near_duplicates is not None:
            first_of_its_kind(near_duplicates)
        self.skip_bad = skip_bad
        self.files = _files([Path(path) for path in paths])
        self.rejected: list[Rejected] = []
        self.rejections = 0
        self.without_text: list[str] = []
        self.left_out = 0
        self.size = sum(path.stat().st_size for path in self.files)
        self.done = 0
        self.source: dict[str, Json] = {
            "paths": [os.fspath(path) for path in paths],
            "splitting": {name: x for name, x in asdict(self.splitting).items() if x},
        }
        if near_duplicates is not None:
            self.source["near_duplicates"] = near_duplicates
        self._where = ""

    def __iter__(self) -> Iterator[Passage]:
        """Read from the beginning.

        Raises:
            BadInput: A bad line or document, unless `skip_bad`.
        """
        self.rejected, self.rejections, self.without_text, self.done = [], 0, [], 0
        self.left_out = 0
        is_first = None
        if self.near_duplicates is not None:
            is_first = first_of_its_kind(self.near_duplicates)
        for path in self.files:
            before = self.done
            for passage in self._lines(path) if _suffix(path) == ".jsonl" else self._document(path):
                if is_first and not is_first(passage.text):
                    self.left_out += 1
                    continue
                yield passage
            self.done = before + path.stat().st_size

    def reject(self, reason: str) -> None:
        """Say that the passage given out last cannot be used, as for an id that is taken.

        Raises:
            BadInput: With file and line, unless `skip_bad`.
        """
        found = Rejected(self._where, reason)
        if not self.skip_bad:
            raise BadInput(str(found))
        self.rejections += 1
        if len(self.rejected) < LISTED:
            self.rejected.append(found)

    def _lines(self, path: Path) -> Iterator[Passage]:
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    self._where = f"{path}:{number}"
                    self.done += len(line)
                    try:
                        passage = _passage(line)
                    except BadInput as bad:
                        self.reject(str(bad))
                        continue
                    if passage:
                        yield passage
        except OSError as broken:
            self._where = str(path)
            self.reject(f"cannot be read ({broken.strerror}).")

    def _document(self, path: Path) -> Iterator[Passage]:
        number = 0
        self._where = str(path)
        try:
            for section in _reader(_suffix(path))(path):
                for text, line in cut(section.paragraphs, self.splitting):
                    number += 1
                    yield Passage(
                        f"{path.as_posix()}#{number}",
                        section.title,
                        text,
                        _metadata(path, section, line),
                    )
        except BadInput as bad:
            self.reject(str(bad))
        else:
            if not number:
                self.without_text.append(str(path))


def _reader(suffix: str) -> Callable[[Path], Iterator[Section]]:
    module, _, name = READERS[suffix].partition(":")
    try:
        reader = getattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        raise MissingExtra(str(missing.name), "documents") from None
    return cast(Callable[[Path], Iterator[Section]], reader)


def _files(paths: Sequence[Path]) -> list[Path]:
    """All files to read, each once."""
    found: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            for inner in _walk(path):
                found.setdefault(inner.resolve(), inner)
        elif not path.exists():
            raise BadInput(f"{path}: no such file or folder.")
        elif _suffix(path) not in SUFFIXES:
            raise BadInput(
                f"{path}: files of this kind are not read. Known: {', '.join(SUFFIXES)}."
            )
        else:
            found.setdefault(path.resolve(), path)
    if not found:
        raise BadInput(
            f"{', '.join(map(str, paths))}: nothing to read here. "
            f"Known kinds of files: {', '.join(SUFFIXES)}."
        )
    return list(found.values())


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if not path.is_symlink():  # a link to a folder may lead round in a circle
                yield from _walk(path)
        elif _suffix(path) in SUFFIXES and path.is_file():
            yield path


def _suffix(path: Path) -> str:
    return path.suffix.lower()


_FIELDS = ("id", "title", "text")


def _passage(line: bytes) -> Passage | None:
    """The passage of a line; None for a blank one."""
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        raise BadInput(f"not UTF-8 at byte {broken.start} of the line.") from None
    if not text.strip():
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as broken:
        raise BadInput(f"not JSON ({broken}). Each line is one JSON object.") from None
    if not isinstance(record, dict):
        raise BadInput(
            f"expected a JSON object with id, title and text, found {type(record).__name__}."
        )
    passage_id, title, body = (_field(record, name) for name in _FIELDS)
    if not passage_id:
        raise BadInput("the id is empty. Each passage needs one of its own.")
    rest = {name: value for name, value in record.items() if name not in _FIELDS}
    return Passage(passage_id, title, body, rest)


def _field(record: dict[str, Json], name: str) -> str:
    if name not in record:
        raise BadInput(
            f"passage has no {name!r} (its fields: {', '.join(record) or 'none'}). "
            "Each line needs id, title and text; title may be empty."
        )
    value = record[name]
    if name == "id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # many corpora number their passages
    if not isinstance(value, str):
        raise BadInput(
            f"{name!r} must be a string, found {type(value).__name__} ({json.dumps(value)[:40]})."
        )
    return value


def _metadata(path: Path, section: Section, line: int | None) -> dict[str, Json]:
    metadata: dict[str, Json] = {"path": path.as_posix()}
    if section.headings:
        metadata["headings"] = list(section.headings)
    if section.page is not None:
        metadata["page"] = section.page
    if line is not None:
        metadata["line"] = line
    return metadata
