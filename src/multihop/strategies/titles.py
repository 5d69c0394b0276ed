"""IIRC's first stage: pages that may help, proposed by the LM, mapped to real ones.

Trivedi et al. 2023, appendix B: three titles are asked for from the main passage and the
question; each is mapped to the best page of a title search; later searches are limited to
those pages.
"""

from collections.abc import Sequence

from multihop.retrievers.base import Retriever
from multihop.strategies.collect import ranking
from multihop.strategies.writing import Writer
from multihop.text import Query, Question
from multihop.trace import Search, Titles

ASKED = 3
"""Titles asked for; the model may give more or fewer."""


async def propose_titles(writer: Writer, retriever: Retriever, question: Question) -> Titles:
    """Ask for titles and map each to a page.

    A proposal that finds no page, a page found before, and (in presets that skip long
    passages) a page whose first passage is too long fall away.
    """
    proposed, call = await writer.titles(question, ASKED)
    searches, mapped = await map_titles(retriever, proposed, longest=writer.preset.longest)
    return Titles(proposed, mapped, searches, call)


async def map_titles(
    retriever: Retriever,
    proposed: Sequence[str],
    *,
    k: int = 1,
    cap: int = 15,
    longest: int | None = None,
) -> tuple[tuple[Search, ...], tuple[str, ...]]:
    """Map proposed titles to those of real pages.

    Args:
        retriever: Searches titles.
        proposed: In order; one search each.
        k: Pages taken per proposal (1).
        cap: Most pages in all.
        longest: A page whose first passage has more words falls away; None keeps all.

    Returns:
        The searches, and the pages' titles, each once.
    """
    searches: list[Search] = []
    mapped: list[str] = []
    for title in proposed:
        found = await ranking(retriever, Query(title, by_title=True), k)
        searches.append(found)
        for hit in found.hits:
            page = hit.passage
            too_long = longest is not None and len(page.text.split(" ")) > longest
            if not too_long and page.title not in mapped and len(mapped) < cap:
                mapped.append(page.title)
    return tuple(searches), tuple(mapped)
