"""The nouns: passages, queries, hits and questions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from multihop.errors import BadInput

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""Whatever JSON can say."""

STOP_WORDS = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is",
    "it", "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there",
    "these", "they", "this", "to", "was", "will", "with",
})  # fmt: skip
"""Lucene's English stop words."""

_NOTHING: Mapping[str, Json] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Passage:
    """A titled piece of text: the unit that is indexed, found and shown to the LM.

    Attributes:
        id: Names the passage in its corpus; unique there.
        title: May be empty. Several passages may share one.
        text: The passage itself, without its title.
        metadata: Anything else that its source says (path, page number, ...).
    """

    id: str
    title: str
    text: str
    metadata: Mapping[str, Json] = field(default_factory=lambda: _NOTHING, hash=False)

    @property
    def place(self) -> str:
        """Where its source can be opened: "PATH#page=3", "PATH:LINE", a URL; or empty.

        Taken from `path`, `page`, `line` and `url` of the metadata. The page is written as
        browsers and PDF viewers take it.
        """
        path, page, line, url = map(self.metadata.get, ("path", "page", "line", "url"))
        if not isinstance(path, str) or not path:
            return url if isinstance(url, str) else ""
        if type(page) is int:
            return f"{path}#page={page}"
        return f"{path}:{line}" if type(line) is int else path


@dataclass(frozen=True, slots=True)
class Query:
    """What a retriever is asked.

    Attributes:
        text: The words to search with.
        titles: Only passages with one of these titles (case and outer blanks aside) may be
            returned; None means any passage. IIRC's loop searches so.
        by_title: Search page titles alone: the first passage of each page whose title
            matches best. IIRC's title mapping asks so.
        where: Only passages whose metadata say this may be returned: pairs of a field and a
            value, as `facets` writes them. Values of one field are alternatives; every field
            named must agree. None or nothing allows any passage.
    """

    text: str
    titles: tuple[str, ...] | None = None
    by_title: bool = False
    where: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage found for a query.

    Attributes:
        passage: What was found.
        score: Higher is better, on the retriever's own scale. Scores compare within one
            ranking only; fuse rankings by rank, not by score.
    """

    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class Question:
    """What a user, or a data set, asks.

    Attributes:
        text: The question.
        id: Names it in its data set; empty for a question typed by a user.
        answers: Accepted answers; empty when unknown.
        gold_ids: Ids of the annotated supporting passages.
        gold_titles: Their titles, where a data set names only those.
        kind: The data set's own type of question ("bridge", "3hop1", ...), or empty.
        pinned: IIRC's main passage: shown in every prompt, never searched for.
        extra: The record's other fields, as read.
    """

    text: str
    id: str = ""
    answers: tuple[str, ...] = ()
    gold_ids: tuple[str, ...] = ()
    gold_titles: tuple[str, ...] = ()
    kind: str = ""
    pinned: Passage | None = None
    extra: Mapping[str, Json] = field(default_factory=lambda: _NOTHING, hash=False)


def facets(metadata: Mapping[str, Json]) -> set[tuple[str, str]]:
    """What a passage can be chosen by: each field of its metadata with its value.

    A text stands for itself; numbers, true, false and null are written as JSON writes them. A
    list counts with each of its items, a field B inside a field A as A.B.
    """
    return set(_facets(metadata))


def _facets(metadata: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    waiting: list[tuple[str, Json]] = list(metadata.items())
    while waiting:  # no nesting is too deep
        name, value = waiting.pop()
        if isinstance(value, list):
            waiting += [(name, item) for item in value]
        elif isinstance(value, Mapping):
            waiting += [(f"{name}.{inner}", item) for inner, item in value.items()]
        else:
            yield name, value if isinstance(value, str) else json.dumps(value)


def alternatives(where: Sequence[tuple[str, str]] | None) -> dict[str, set[str]]:
    """The values that each field of `Query.where` may have."""
    allowed: dict[str, set[str]] = {}
    for name, value in where or ():
        allowed.setdefault(name, set()).add(value)
    return allowed


def meets(metadata: Mapping[str, Json], where: Sequence[tuple[str, str]] | None) -> bool:
    """Whether metadata say what `Query.where` asks for."""
    if not where:
        return True
    there = facets(metadata)
    return all(
        any((name, value) in there for value in values)
        for name, values in alternatives(where).items()
    )


def json_object(line: str, where: str, hint: str = "") -> dict[str, Json]:
    """The JSON object that a line of a user's file holds.

    Args:
        line: The text.
        where: File and line, for the error message.
        hint: A sentence that says what is needed, for the end of the message.

    Raises:
        BadInput: The line is no JSON, or no object.
    """
    hint = hint and f" {hint}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as broken:  # brackets without end nest too deep
        raise BadInput(f"{where}: not JSON ({broken}).{hint}") from None
    if not isinstance(record, dict):
        found = type(record).__name__
        raise BadInput(f"{where}: expected a JSON object, found {found}.{hint}")
    return record
