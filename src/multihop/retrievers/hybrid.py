"""Several retrievers asked at once, their rankings fused into one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from multihop.errors import BadInput, CorpusError, RetrieverError
from multihop.retrievers.base import Ranking, Retriever, calls_made, warnings_of
from multihop.retrievers.fusion import Fuse, rrf
from multihop.retrievers.side_by_side import side_by_side
from multihop.text import Hit, Json, Passage, Query


@dataclass(frozen=True, slots=True)
class Member:
    """One of a hybrid's retrievers.

    Attributes:
        retriever: Who searches.
        weight: How much its ranking counts; not below 0. With 0 it is not asked.
        depth: Hits asked of it; more when more are wanted in the end.
        options: What it was opened with; for records.
    """

    retriever: Retriever
    weight: float = 1.0
    depth: int = 100
    options: Mapping[str, Json] = field(default_factory=dict)


class Hybrid:
    """Asks several retrievers the same queries at the same time and fuses what they find.

    A passage is known by its id, so all must hold the same passages under the same ids: what they
    say about their corpora is compared at once, and hits of one id are compared as they come.

    Args:
        members: At least one.
        fuse: Makes one ranking of many; rrf by default, which asks nothing of scores.
        label: What `fuse` is called in records; by default its name.
        same_corpus: Refuse members whose content hashes differ. Without, passages of several
            corpora are ranked together; ids must still be different ones.

    Attributes:
        name: "hybrid:NAME+NAME".
        identity: What decides the ranking and is not in the name.

    Raises:
        BadInput: No members, or a weight or a depth that is none.
        CorpusError: They hold different corpora.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        fuse: Fuse = rrf,
        label: str = "",
        same_corpus: bool = True,
    ) -> None:
        if not members:
            raise BadInput("A hybrid needs at least one retriever.")
        for member in members:
            if not 0 <= member.weight < math.inf or member.depth < 1:
                raise BadInput(
                    f"{member.retriever.name}: weight {member.weight:g} and depth {member.depth}; "
                    "a weight is 0 or more, a depth at least 1."
                )
        self.members = tuple(members)
        if not any(member.weight for member in members):
            raise BadInput("All weights of the hybrid are 0: nothing would be asked.")
        self.fuse = fuse
        self.name = "hybrid:" + "+".join(member.retriever.name for member in members)
        self.identity: dict[str, Json] = {
            "fusion": label or getattr(fuse, "__name__", repr(fuse)),
            "members": [
                {
                    "name": member.retriever.name,
                    "weight": member.weight,
                    "depth": member.depth,
                    "options": dict(member.options),
                    "parts": dict(getattr(member.retriever, "identity", {})),
                }
                for member in members
            ],
        }
        if same_corpus:
            _check_corpora([member.retriever for member in members])

    @property
    def manifest(self) -> Any:
        """What the first member that knows its corpus says about it; None when none does."""
        found = (getattr(member.retriever, "manifest", None) for member in self.members)
        return next((manifest for manifest in found if manifest is not None), None)

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Rank the corpus for each query.

        Args:
            queries: Any number, in any order; may repeat.
            k: Most hits per query, at least 1.

        Raises:
            BadInput: `k` is below 1.
            RetrieverError: One of the searches failed, or passages of one id differ. The other
                searches are cancelled.
        """
        if k < 1:
            raise BadInput(f"k is {k}; ask for at least 1 hit.")
        if not queries:
            return []
        found = await side_by_side(
            [partial(_ask, member, queries, max(member.depth, k)) for member in self.members]
        )
        return [
            self._one(query, [rankings[n] for rankings in found], k)
            for n, query in enumerate(queries)
        ]

    async def aclose(self) -> None:
        """Close all members. Calling it twice is harmless."""
        for member in self.members:
            await member.retriever.aclose()

    def _one(self, query: Query, rankings: Sequence[Sequence[Hit]], k: int) -> list[Hit]:
        self._check_passages(rankings)
        hits = self.fuse(rankings, weights=[member.weight for member in self.members])
        if query.by_title:  # members may give another passage of the same page
            pages: dict[str, Hit] = {}
            for hit in hits:
                pages.setdefault(hit.passage.title.strip().lower(), hit)
            hits = list(pages.values())
        calls = [call for ranking in rankings for call in calls_made(ranking)]
        warnings = [warning for ranking in rankings for warning in warnings_of(ranking)]
        return Ranking(hits[:k], calls, dict.fromkeys(warnings))

    def _check_passages(self, rankings: Sequence[Sequence[Hit]]) -> None:
        """Make sure that an id means the same passage everywhere."""
        seen: dict[str, tuple[Passage, str]] = {}
        for member, ranking in zip(self.members, rankings, strict=True):
            name = member.retriever.name
            for hit in ranking:
                if not math.isfinite(hit.score):
                    raise RetrieverError(
                        f"{name}: the score of {hit.passage.id!r} is {hit.score}; "
                        "a score is a finite number."
                    )
                first, where = seen.setdefault(hit.passage.id, (hit.passage, name))
                if (first.title, first.text) != (hit.passage.title, hit.passage.text):
                    raise RetrieverError(
                        f"{self.name}: the id {hit.passage.id!r} is one passage in {where} and "
                        f"another in {name}. Build both from the same passages."
                    )


async def _ask(member: Member, queries: Sequence[Query], depth: int) -> list[list[Hit]]:
    if not member.weight:
        return [[] for _ in queries]
    rankings = await member.retriever.search(queries, depth)
    if len(rankings) != len(queries):
        raise RetrieverError(
            f"{member.retriever.name}: gave {len(rankings)} rankings for {len(queries)} queries."
        )
    return rankings


def _check_corpora(retrievers: Sequence[Retriever]) -> None:
    """Make sure that all hold the same corpus, as far as they tell."""
    told = []
    for retriever in retrievers:
        manifest = getattr(retriever, "manifest", None)
        if digest := getattr(manifest, "content_hash", None):
            told.append((retriever.name, digest, getattr(manifest, "passages", None)))
    for (one, digest, passages), (other, found, count) in pairwise(told):
        if digest != found:
            raise CorpusError(
                f"{one} and {other} hold different corpora ({passages} passages, content hash "
                f"{digest[:8]}, and {count}, {found[:8]}). Build both from the same passages, or "
                "set same_corpus=false to search both."
            )
