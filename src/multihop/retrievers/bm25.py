"""BM25 in process, with the scores of Elasticsearch 7 (the paper's engine).

k1 = 1.2 and b = 0.75, lengths in Lucene's one-byte code, words as `english.analyze` cuts them.
Equal scores stand in document order.
"""

import asyncio
import os
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Literal, get_args

import tantivy
from tantivy import Occur

from multihop.errors import BadInput, IndexMismatch, RetrieverError
from multihop.retrievers.bm25_index import (
    Manifest,
    all_passages,
    cores,
    has_facets,
    open_index,
    passage_by_id,
    stored_passage,
)
from multihop.retrievers.bm25_rows import facet_key, folded_key
from multihop.retrievers.elastic_form import (
    BUFFER,
    Form,
    Found,
    clean_passages,
    clean_titles,
)
from multihop.retrievers.english import analyze
from multihop.text import Hit, Passage, Query, alternatives

_Found = Found[tantivy.DocAddress]
_Clause = tuple[Occur, tantivy.Query]


class BM25:
    """Searches an index made by `build_index`.

    The index as it is now stays open; a rebuild meanwhile is seen by those who open it later.

    Args:
        path: The index's folder.
        form: How queries are asked.
        title_weight: How much a word counts that stands in the title, next to one that stands
            in the text: the two scores are summed, so weighted. 1 is the paper's. Only `paper`
            has it: `official` is what was released, `text` looks at no titles. (Not BM25F of
            Robertson et al., CIKM 2004, which weights before the saturation of term frequency;
            the engine scores field by field.)

    Attributes:
        name: "bm25:PATH".
        form: As given.
        title_weight: As given.
        manifest: What the index says about itself.

    Raises:
        CorpusError: There is no index, or it is damaged.
        IndexMismatch: It is of another version.
    """

    def __init__(
        self, path: str | os.PathLike[str], form: Form = "paper", title_weight: float = 1.0
    ) -> None:
        if form not in get_args(Form):
            known = ", ".join(get_args(Form))
            raise BadInput(f"No query form is named {form!r}. Known: {known}.")
        if not 0 <= title_weight <= 1000:
            raise BadInput(f"title_weight is {title_weight}; it is a number from 0 to 1000.")
        if title_weight != 1 and form != "paper":
            raise BadInput(f"title_weight is for the form paper; the form {form!r} has none.")
        self.form = form
        self.title_weight = title_weight
        self.name = f"bm25:{os.fspath(path)}"
        self.manifest: Manifest
        self._open: tantivy.Searcher | None
        self.manifest, self._engine, self._open = open_index(path)
        self._schema = self._engine.schema
        self._has_facets = has_facets(self._engine)

    def __len__(self) -> int:
        """How many passages the index holds."""
        return self.manifest.passages

    def __iter__(self) -> Iterator[Passage]:
        """All passages, in document order."""
        return all_passages(self._engine, self._searcher(), self.manifest.next_number)

    def get(self, passage_id: str) -> Passage | None:
        """Look a passage up by its id; None when there is none."""
        return passage_by_id(self._engine, self._searcher(), passage_id)

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Rank the corpus for each query.

        Args:
            queries: Any number, in any order; may repeat.
            k: Most hits per query, at least 1.

        Returns:
            One ranking per query. A query without a single index term (empty, or stop words
            alone) has an empty ranking.

        Raises:
            BadInput: `k` is below 1.
            IndexMismatch: A query has a `where`, and the index is older than that.
            RetrieverError: The index was closed, or its files are gone.
        """
        if k < 1:
            raise BadInput(f"k is {k}; ask for at least 1 hit.")
        if any(query.where for query in queries) and not self._has_facets:
            raise IndexMismatch(
                f"{self.name}: the index is older than choosing by metadata. Build it anew."
            )
        found: list[list[Hit]] = [[]] * len(queries)
        waiting = deque(range(len(queries)))

        def answer() -> None:
            while waiting:
                try:
                    at = waiting.popleft()
                except IndexError:  # another thread took the last one
                    return
                found[at] = self._search(queries[at], k)

        loop = asyncio.get_running_loop()
        threads = [loop.run_in_executor(_threads(), answer) for _ in queries[: cores()]]
        try:
            await asyncio.gather(*threads)
        finally:
            waiting.clear()  # after a failure or a cancellation nobody wants the others
        return found

    async def aclose(self) -> None:
        """Close the index. Calling it twice is harmless."""
        self._open = None

    def _searcher(self) -> tantivy.Searcher:
        if self._open is None:
            raise RetrieverError(f"{self.name}: the index was closed. Open it again.")
        return self._open

    def _search(self, query: Query, k: int) -> list[Hit]:
        searcher = self._searcher()
        if query.titles is not None and not query.titles:
            return []  # no page is allowed
        try:
            ask = self._titles if query.by_title else self._passages
            found = ask(searcher, query, k)
            return [Hit(stored_passage(searcher, hit.item), hit.score) for hit in found]
        except (ValueError, OSError) as broken:
            raise RetrieverError(f"{self.name}: the search failed ({broken}).") from broken

    def _passages(self, searcher: tantivy.Searcher, query: Query, k: int) -> list[_Found]:
        words = self._words("text", query.text)
        if self.form != "text":
            words += self._words("title", query.text, self.title_weight)
        # Words side by side, and nothing else, let the engine skip what cannot be among the best.
        clauses = [(Occur.Should, word) for word in words]
        where = self._where(query)
        if self.form != "official":
            if query.titles is not None:
                one_of = (Occur.Must, self._one_of(query.titles))
                clauses = [(Occur.Must, _any(words)), one_of, *where]
            elif where:
                clauses = [(Occur.Must, _any(words)), *where]
            if self.form == "text":
                return self._rank(searcher, clauses, k)
            return self._distinct(searcher, clauses, k, "text")

        titles = query.titles or ()
        if len(titles) == 1:
            clauses.append((Occur.Must, _any(self._words("title", titles[0]))))
        else:
            clauses += [(Occur.Should, word) for t in titles for word in self._words("title", t)]
        if where:
            clauses = [(Occur.Must, tantivy.Query.boolean_query(clauses)), *where]
        found = self._rank(searcher, clauses, max(BUFFER, k))
        allowed = {folded_key(title) for title in titles} if titles else None
        return clean_passages(found, k, allowed)

    def _titles(self, searcher: tantivy.Searcher, query: Query, k: int) -> list[_Found]:
        clauses = [
            (Occur.Must, _any(self._words("title", query.text))),
            (Occur.MustNot, tantivy.Query.term_query(self._schema, "abstract", False)),
            *self._where(query),
        ]
        if self.form == "official":
            return clean_titles(self._rank(searcher, clauses, max(BUFFER, k)), k)
        if query.titles is not None:
            clauses.append((Occur.Must, self._one_of(query.titles)))
        return self._distinct(searcher, clauses, k, "title")

    def _words(self, field: str, text: str, weight: float = 1.0) -> list[tantivy.Query]:
        """One clause a word, a repeated word weighing as often as it occurs."""
        if not weight:
            return []
        term = tantivy.Query.term_query
        return [
            tantivy.Query.boost_query(term(self._schema, field, word, "freq"), weight * count)
            for word, count in Counter(analyze(text)).items()
        ]

    def _where(self, query: Query) -> list[_Clause]:
        """Passages that the query's `where` allows; adds nothing to scores."""
        term = tantivy.Query.term_query
        fields = [
            _any(
                [term(self._schema, "facets", facet_key(name, value), "basic") for value in values]
            )
            for name, values in alternatives(query.where).items()
        ]
        return [(Occur.Must, tantivy.Query.const_score_query(field, 0.0)) for field in fields]

    def _one_of(self, titles: Sequence[str]) -> tantivy.Query:
        """Passages with one of these titles; adds nothing to scores."""
        term = tantivy.Query.term_query
        keys = {folded_key(title) for title in titles}
        allowed = _any([term(self._schema, "title_key", key, "basic") for key in keys])
        return tantivy.Query.const_score_query(allowed, 0.0)

    def _distinct(
        self,
        searcher: tantivy.Searcher,
        clauses: list[_Clause],
        k: int,
        by: Literal["text", "title"],
    ) -> list[_Found]:
        """The k best hits no two of which have the same text, or title."""
        limit = k + 2
        while True:
            ranking = self._rank(searcher, clauses, limit)
            best: dict[Hashable, _Found] = {}
            for hit in ranking:
                best.setdefault(hit.text if by == "text" else hit.title, hit)
            if len(best) >= k or len(ranking) < limit:
                return list(best.values())[:k]
            limit *= 4

    def _rank(self, searcher: tantivy.Searcher, clauses: list[_Clause], limit: int) -> list[_Found]:
        """The engine's best hits, equal scores in document order."""
        query = tantivy.Query.boolean_query(clauses)
        asked = limit + 2
        while True:
            hits = searcher.search(query, asked, count=False).hits
            # Hits that tie with the last one wanted must all be there to be put in order.
            if len(hits) < asked or hits[-1][0] < hits[limit - 1][0]:
                break
            asked *= 4
        addresses = [address for _, address in hits]
        columns = [
            searcher.fast_field_values(name, addresses)
            for name in ("number", "text_key", "title_key")
        ]
        rows = sorted(zip(hits, *columns, strict=True), key=lambda row: (-row[0][0], row[1]))
        return [
            Found(address, score, text, title) for (score, address), _, text, title in rows[:limit]
        ]


@cache
def _threads() -> ThreadPoolExecutor:
    """The threads that search, one a core, whoever asks and however many do."""
    return ThreadPoolExecutor(cores(), thread_name_prefix="multihop-bm25")


os.register_at_fork(after_in_child=_threads.cache_clear)  # threads stay with the parent


def _any(clauses: list[tantivy.Query]) -> tantivy.Query:
    return tantivy.Query.boolean_query([(Occur.Should, clause) for clause in clauses])
