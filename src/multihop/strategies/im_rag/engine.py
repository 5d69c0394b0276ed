"""IM-RAG: a Questioner searches in an inner monologue, an Answerer answers from it.

Yang et al., SIGIR 2024 (arXiv 2405.13021), section 3. The same loop runs for users and for
training; what the paper leaves open is told in docs/im-rag.md.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from multihop.errors import ContextTooLong, RetrieverError
from multihop.lms.adapters import AdapterCard
from multihop.lms.base import LanguageModel, Prompt, Reply, Request, complete
from multihop.lms.continuing import continuing
from multihop.metrics.answer import normalize
from multihop.metrics.progress import Turn
from multihop.prompts import answers
from multihop.retrievers.base import Reranker, Retriever, calls_made, warnings_of
from multihop.strategies.budget import Budget
from multihop.strategies.collect import ranking
from multihop.strategies.im_rag import prompts
from multihop.strategies.im_rag.prompts import Heard, Invalid
from multihop.strategies.im_rag.stopping import Action, Decision, Fixed, StopPolicy
from multihop.strategies.replies import first_line
from multihop.text import Hit, Json, Passage, Query, Question
from multihop.trace import Answer, LMCall, Search, Step, StopReason, Thought

RefineWith = Literal["query", "both"]


@dataclass(frozen=True)
class IMRAG:
    """Questioner, Retriever, Refiner and Answerer.

    Attributes:
        lm: Writes queries and answers; has the adapters.
        retriever: Finds candidates.
        refiner: Orders them; None leaves the retriever's order.
        stop: When enough was searched.
        questioner, answerer: Names of the LM's adapters; None is the model alone. The same name
            twice is one policy for both, as in Search-R1.
        cards: Of these adapters, where known: they tell one adapter from another of its name.
        k: Passages passed on a turn (the paper's ablation shows 5).
        n_candidates: Passages that the refiner sees.
        max_turns: Most turns (N_max, 3 in the paper).
        im_window: Newest turns shown; None shows all (paper, algorithm 1).
        dedup: Passages of earlier turns are no candidates again.
        refine_with: "query" orders by the query (paper), "both" by question and query.
        words: Of a passage shown.
        max_query_tokens: A query that has no end by then is invalid.
        max_answer_tokens: Of the answer.
        temperature: 0 is greedy; training draws.
        seed: Of drawing; each call of each question has one of its own.
        budget: What a question may cost; at its end the Answerer still answers.
    """

    lm: LanguageModel
    retriever: Retriever
    refiner: Reranker | None = None
    stop: StopPolicy = field(default_factory=Fixed)
    questioner: str | None = "questioner"
    answerer: str | None = "answerer"
    cards: tuple[AdapterCard, ...] = ()
    k: int = 5
    n_candidates: int = 20
    max_turns: int = 3
    im_window: int | None = None
    dedup: bool = True
    refine_with: RefineWith = "query"
    words: int = 70
    max_query_tokens: int = 64
    max_answer_tokens: int = 32
    temperature: float = 0.0
    seed: int = 0
    budget: Budget = field(default_factory=Budget)

    @property
    def name(self) -> str:
        """As it is called; with the word oracle where gold passages decide."""
        return "im-rag-oracle" if self.stop.settings["stop"] == "oracle" else "im-rag"

    @property
    def settings(self) -> dict[str, Json]:
        """Everything that decides the result."""
        return {
            "lm": self.lm.name,
            "retriever": self.retriever.name,
            "refiner": self.refiner.name if self.refiner else "none",
            "questioner": self.questioner,
            "answerer": self.answerer,
            "adapters": {card.name: card.digest for card in self.cards},
            "prompts": prompts.HEAD_ACTION if self._action else prompts.HEAD,
            "k": self.k,
            "n_candidates": self.n_candidates,
            "max_turns": self.max_turns,
            "im_window": self.im_window,
            "dedup": self.dedup,
            "refine_with": self.refine_with,
            "words": self.words,
            "max_query_tokens": self.max_query_tokens,
            "max_answer_tokens": self.max_answer_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            **self.stop.settings,
            **self.budget.settings,
        }

    async def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question."""
        lm = continuing(self.lm)
        heard: list[Heard] = []
        turns: list[Turn] = []
        taken: list[Step] = []
        collected: list[Passage] = []
        decision = Decision(answer=False)
        stop: StopReason | None = None

        while stop is None:
            # Questioner: one query, from the question and the monologue so far.
            reply = await self._ask(lm, question, heard, prompts.query_prompt, len(turns))
            written = reply.text
            query = " ".join(first_line(written).removeprefix(prompts.QUERY).split())
            thought = Thought(query, reply.call, kind="query")
            yield thought
            if self._action and turns and query.strip(" .").upper() == prompts.ENOUGH:
                stop = "answered"
                break

            # Retriever and Refiner; an invalid query takes its turn and finds nothing.
            invalid = self._invalid(query, reply, turns)
            fresh: tuple[Passage, ...] = ()
            if invalid:
                why = prompts.OBSERVED[invalid].removeprefix("- ")
                ids = tuple(p.id for p in collected)
                search = Search("", (), (), ids, warnings=(why,))
            else:
                search, fresh = await self._search(question, query, collected)
            yield search
            heard.append(Heard(written, fresh, invalid))
            turns.append(Turn(query, invalid is None, fresh))

            # Progress Tracker, or what stands for it: search on, or answer.
            taken += [thought, search]
            if len(turns) >= self.max_turns:
                stop = "max_steps"
                continue
            decision = self.stop.decide(question, turns)
            stop = "answered" if decision.answer else self.budget.ended(taken)

        # Answerer: from the question and the whole monologue.
        reply = await self._ask(lm, question, heard, prompts.answer_prompt, len(turns))
        answer = answers.tidy(first_line(reply.text).removeprefix(prompts.ANSWER))
        reason = "" if answer else "The model wrote no answer."
        yield Answer(
            answer, stop, tuple(collected), reply.call, reason=reason, confidence=decision.sure
        )

    @property
    def _action(self) -> bool:
        return isinstance(self.stop, Action)

    async def _ask(
        self,
        lm: LanguageModel,
        question: Question,
        heard: Sequence[Heard],
        write: Callable[..., Prompt],
        turn: int,
    ) -> Reply:
        """One call; where the monologue does not fit the model its oldest turns are not shown."""
        querying = write is prompts.query_prompt
        window = list(heard[-self.im_window :]) if self.im_window else list(heard)
        many = len(window)
        while True:
            request = Request(
                write(question.text, window, self.words, action=self._action),
                max_tokens=self.max_query_tokens if querying else self.max_answer_tokens,
                stop=("\n",),
                temperature=self.temperature,
                seed=self._seed(question, turn, querying) if self.temperature else None,
                logprobs=self.temperature > 0,
                adapter=self.questioner if querying else self.answerer,
                role="question" if querying else "answer",
            )
            try:
                reply = await complete(lm, request)
            except ContextTooLong:
                if not window:
                    raise
                window = window[1:]
                continue
            if len(window) == many:
                return reply
            told = f"{many - len(window)} of {many} turns did not fit the model and were not shown."
            call = replace(reply.call, warnings=(*reply.call.warnings, told))
            return replace(reply, call=call)

    def _seed(self, question: Question, turn: int, querying: bool) -> int:
        text = f"{self.seed}:{question.id or question.text}:{turn}:{querying}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1

    def _invalid(self, query: str, reply: Reply, turns: Sequence[Turn]) -> Invalid | None:
        if reply.samples[0].finish == "length":
            return "long"
        if not normalize(query):
            return "empty"
        asked = {normalize(turn.query) for turn in turns}
        return "repeated" if normalize(query) in asked else None

    async def _search(
        self, question: Question, query: str, collected: list[Passage]
    ) -> tuple[Search, tuple[Passage, ...]]:
        """Retrieve, leave out what was shown before, refine; what is passed on is collected."""
        there = {p.id for p in collected}
        # As many more are asked for as may be left out, so that the refiner's list is full.
        more = len(there) if self.dedup else 0
        found = await ranking(self.retriever, Query(query), self.n_candidates + more)
        fresh = [hit for hit in found.hits if not (self.dedup and hit.passage.id in there)]
        warnings = found.warnings
        if again := sum(hit.passage.id in there for hit in found.hits[: self.n_candidates]):
            what = "left out" if self.dedup else "shown again"
            warnings += (f"{again} candidates were shown before and {what}.",)
        best, calls, told = await self._refine(question, query, fresh[: self.n_candidates])
        passages = tuple(hit.passage for hit in best)
        collected += [p for p in passages if p.id not in there]
        search = replace(
            found,
            kept=tuple(p.id for p in passages),
            collected=tuple(p.id for p in collected),
            calls=(*found.calls, *calls),
            warnings=(*warnings, *told),
        )
        return search, passages

    async def _refine(
        self, question: Question, query: str, hits: Sequence[Hit]
    ) -> tuple[list[Hit], tuple[LMCall, ...], tuple[str, ...]]:
        if self.refiner is None or not hits:
            return list(hits[: self.k]), (), ()
        wanted = f"{question.text} {query}" if self.refine_with == "both" else query
        rankings = await self.refiner.rerank([Query(wanted)], [hits], self.k)
        if len(rankings) != 1:
            raise RetrieverError(f"{self.refiner.name}: gave {len(rankings)} rankings for one.")
        known = {hit.passage.id for hit in hits}
        ids = [hit.passage.id for hit in rankings[0]]
        if len(set(ids)) != min(self.k, len(hits)) or not known.issuperset(ids):
            raise RetrieverError(
                f"{self.refiner.name}: gave {len(ids)} hits where {min(self.k, len(hits))} "
                "different ones of those given were wanted."
            )
        return list(rankings[0]), calls_made(rankings[0]), warnings_of(rankings[0])
