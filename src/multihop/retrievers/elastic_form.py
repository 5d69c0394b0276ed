"""The official IRCoT search: the request it sends to Elasticsearch, and what it does after.

Source: the released retriever server (StonyBrookNLP/ircot), as described by its behaviour.
The embedded BM25 and the Elasticsearch retriever both follow this module, so that they agree.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from multihop.errors import BadInput
from multihop.text import Json

BUFFER = 100
"""Hits asked of the engine, whatever k is; same-text hits collapse within these."""

SOURCE_FIELDS = ("id", "title", "paragraph_text", "url", "is_abstract", "paragraph_index")

DocumentType = Literal["title", "paragraph_text", "title_paragraph_text"]
"""What is searched: page titles, passages by text, or passages by text and title."""

Form = Literal["paper", "official", "text"]
"""How a query is asked.

`paper`: text and title are searched with the same words; only allowed titles compete; of
passages with the same text the best stays.
`official`: the released code's search, traps included.
`text`: the text alone; only allowed titles compete; nothing collapses. Elasticsearch's plain
`match`.
"""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Found(Generic[Item]):
    """One hit of the engine, before the official clean-up.

    Attributes:
        item: Whatever the engine names it by.
        score: The engine's score.
        text: `folded` text, or anything equal exactly when those are.
        title: `folded` title, or anything equal exactly when those are.
    """

    item: Item
    score: float
    text: Hashable
    title: Hashable


def folded(text: str) -> str:
    """What texts and titles are compared by: case and outer white space aside."""
    return text.strip().lower()


def search_body(
    text: str,
    corpus: str,
    *,
    document_type: DocumentType = "paragraph_text",
    allowed_titles: Sequence[str] | None = None,
    allowed_paragraph_types: Sequence[str] | None = None,
    paragraph_index: int | None = None,
    buffer: int = BUFFER,
) -> dict[str, Json]:
    """The body of the search request, equal to the official server's.

    Args:
        text: The query.
        corpus: Name of the data set; `hotpotqa` limits the search to abstracts.
        document_type: What is searched. `title` ignores everything below it.
        allowed_titles: One title must match; several only raise the score. The exact
            restriction comes afterwards, in `clean_passages`.
        allowed_paragraph_types: One type must match; several are looked for in the title, as
            the official server does by mistake. IRCoT never asks for any.
        paragraph_index: Raises the score of passages at this place of their page.
        buffer: Hits to ask for.

    Raises:
        BadInput: `paragraph_index` with another document type than `paragraph_text`.
    """
    if paragraph_index is not None and document_type != "paragraph_text":
        raise BadInput(
            f"paragraph_index={paragraph_index} with document type {document_type!r}: "
            "the official search knows it only for 'paragraph_text'."
        )
    if document_type == "title":
        return _body(
            {"must": [_match("title", text)], "filter": [_match("is_abstract", True)]}, BUFFER
        )

    should: list[Json] = [_match("paragraph_text", text)]
    must: list[Json] = []
    if document_type == "title_paragraph_text":
        should.append(_match("title", text))
    if allowed_titles is not None and len(allowed_titles) == 1:
        must.append(_match("title", allowed_titles[0]))
    elif allowed_titles:
        should += [{"bool": {"must": _match("title", title)}} for title in allowed_titles]
    if allowed_paragraph_types is not None and len(allowed_paragraph_types) == 1:
        must.append(_match("paragraph_type", allowed_paragraph_types[0]))
    elif allowed_paragraph_types:
        should += [{"bool": {"must": _match("title", kind)}} for kind in allowed_paragraph_types]
    if paragraph_index is not None:
        should.append(_match("paragraph_index", paragraph_index))

    clauses: dict[str, Json] = {"should": should}
    if must:
        clauses["must"] = must
    if corpus == "hotpotqa":
        clauses["filter"] = [_match("is_abstract", True)]
    return _body(clauses, buffer)


def clean_passages(
    found: Iterable[Found[Item]], k: int, titles: Collection[Hashable] | None = None
) -> list[Found[Item]]:
    """What the official server makes of the engine's hits.

    Of hits with the same text only the last one stays, with its own (lowest) score; the rest
    is sorted by score, equal scores in the engine's order; cut to `k`; and only then limited
    to the allowed titles, so that fewer than `k` may be left.

    Args:
        found: The engine's hits, in its order.
        k: Most passages to keep before titles are looked at.
        titles: Allowed titles in the form of `Found.title`; None allows all, none allows none.
    """
    last = {hit.text: hit for hit in found}  # a repeated key keeps its first place
    ranked = sorted(last.values(), key=lambda hit: hit.score, reverse=True)[:k]
    return [hit for hit in ranked if titles is None or hit.title in titles]


def clean_titles(found: Iterable[Found[Item]], k: int) -> list[Found[Item]]:
    """What the official server makes of the hits of a title search.

    Of hits with the same title the last one stays, at the place of the first; then cut. They
    are not sorted again.
    """
    return list({hit.title: hit for hit in found}.values())[:k]


def _match(field: str, value: Json) -> dict[str, Json]:
    return {"match": {field: value}}


def _body(clauses: dict[str, Json], size: int) -> dict[str, Json]:
    return {"size": size, "_source": list(SOURCE_FIELDS), "query": {"bool": clauses}}
