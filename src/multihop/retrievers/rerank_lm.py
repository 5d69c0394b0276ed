"""Rerankers that ask a language model.

`ListwiseReranker` shows it a window of passages and has it write their order; `YesNoReranker`
asks about one passage at a time and reads how sure the model is. Every call is in the ranking and
so in the trace.

Query likelihood proper (UPR, Sachan et al., EMNLP 2022) scores a passage by the log-probability of
the query's own tokens in the prompt. None of the backends tells log-probabilities of prompts,
only of what is generated, so it cannot be had; `YesNoReranker` is the pointwise method that can.
"""

import math
import re
from collections.abc import Sequence
from functools import partial

from multihop.errors import BadCompletion, BadInput, ContextTooLong
from multihop.lms.base import LanguageModel, Prompt, Reply, Request, Turn, complete
from multihop.retrievers.base import Ranking
from multihop.retrievers.cutting import cut, sound, titled
from multihop.retrievers.rerank import by_score
from multihop.retrievers.side_by_side import side_by_side
from multihop.text import Hit, Json, Query
from multihop.trace import LMCall

MARGIN = 64
"""Tokens left free in a model's window: chat templates need some that nobody counts."""

_BRACKETED = re.compile(r"\[\s*([0-9]{1,6})\s*\]")
_BARE = re.compile(r"(?<![0-9])[0-9]{1,6}(?![0-9])")


class ListwiseReranker:
    """Has a model order passages, a window of them at a time.

    As RankGPT (Sun et al., EMNLP 2023): the window begins with the worst hits and moves up by a
    stride, so that a good passage rises through all windows. A query with n hits takes
    1 + ceil((n - window) / stride) calls, one after the other; one with a single hit takes none.
    What a reply does not name keeps its order behind what it names, and is reported. Scores are
    1 / place.

    Args:
        lm: Who orders; closed with the reranker.
        window: Passages shown at once, at least 2.
        stride: How far the window moves, 1 to `window`.
        passage_tokens: Most tokens of a passage, and of the query, that are shown; fewer where
            the model's window needs it.
        max_tokens: Most tokens of a reply; None is enough for all numbers. A thinking model
            needs more.
        at_once: Most queries worked on at a time.

    Attributes:
        name: "listwise:LM".
        identity: What decides the order and is not in the name.

    Raises:
        BadInput: A number is out of its range.
    """

    def __init__(
        self,
        lm: LanguageModel,
        *,
        window: int = 20,
        stride: int = 10,
        passage_tokens: int = 200,
        max_tokens: int | None = None,
        at_once: int = 8,
    ) -> None:
        if not (window >= 2 and 1 <= stride <= window):
            raise BadInput(
                f"window is {window} and stride {stride}: a window holds at least 2 passages and "
                "moves by 1 to all of them."
            )
        _check_positive(passage_tokens=passage_tokens, max_tokens=max_tokens or 1, at_once=at_once)
        self.lm = lm
        self.name = f"listwise:{lm.name}"
        self.window = window
        self.stride = stride
        self.passage_tokens = passage_tokens
        self.max_tokens = max_tokens
        self.at_once = at_once
        self.identity: dict[str, Json] = {
            "window": window,
            "stride": stride,
            "passage_tokens": passage_tokens,
            "max_tokens": max_tokens,
        }

    async def rerank(
        self, queries: Sequence[Query], rankings: Sequence[Sequence[Hit]], k: int
    ) -> list[Ranking]:
        """Order the hits of each query; see `Reranker`.

        Raises:
            ContextTooLong: Not even the beginnings of a window's passages fit the model.
            LMError: The model failed.
        """
        jobs = [
            partial(self._one, query.text, hits, k)
            for query, hits in zip(queries, rankings, strict=True)
        ]
        return await side_by_side(jobs, self.at_once)

    async def aclose(self) -> None:
        """Close the model. Calling it twice is harmless."""
        await self.lm.aclose()

    async def _one(self, query: str, hits: Sequence[Hit], k: int) -> Ranking:
        if len(hits) < 2:
            return Ranking(Hit(hit.passage, 1.0) for hit in hits[:k])
        size = min(self.window, len(hits))
        room = self.max_tokens or 6 * size + 16
        query, passages, warnings = await _shown(
            self.lm,
            self.name,
            query,
            hits,
            most=self.passage_tokens,
            fixed=_ordering("", [""] * size).text,
            shown=size,
            room=room,
        )
        order = list(range(len(hits)))
        calls: list[LMCall] = []
        silent = 0
        end = len(order)
        while True:
            start = max(0, end - self.window)
            block = order[start:end]
            reply = await self._ask(query, [passages[n] for n in block], room)
            calls.append(reply.call)
            silent += len(named(reply.text, len(block))) < len(block)
            order[start:end] = [block[n] for n in order_in(reply.text, len(block))]
            if start == 0:
                break
            end -= self.stride
        if silent:
            warnings.append(
                f"{self.name}: {silent} of {len(calls)} replies did not name every passage; "
                "those not named kept their order."
            )
        best = [Hit(hits[n].passage, 1 / place) for place, n in enumerate(order, 1)]
        return Ranking(best[:k], calls, warnings)

    async def _ask(self, query: str, passages: Sequence[str], room: int) -> Reply:
        size = len(passages)
        request = Request(
            _ordering(query, passages), room, role="rerank", enough=f"{size} numbers in brackets"
        )
        return await complete(
            self.lm,
            request,
            until=lambda text: len(set(_numbers(_BRACKETED.findall(text), size))) == size,
        )


class YesNoReranker:
    """Asks of each passage whether it helps, and ranks by how sure the model is.

    The relevance generation of HELM (Liang et al., 2022): 1 + p where the model says yes with
    probability p, 1 - p where it says no. What is neither gets 1 and is reported. One call a
    passage.

    Args:
        lm: Who is asked; it must tell log-probabilities. Closed with the reranker.
        passage_tokens: Most tokens of a passage, and of the query, that are shown; fewer where
            the model's window needs it.
        at_once: Most calls at a time, over all queries.

    Attributes:
        name: "yes-no:LM".
        identity: What decides the order and is not in the name.

    Raises:
        BadInput: A number is out of its range.
    """

    def __init__(self, lm: LanguageModel, *, passage_tokens: int = 400, at_once: int = 8) -> None:
        _check_positive(passage_tokens=passage_tokens, at_once=at_once)
        self.lm = lm
        self.name = f"yes-no:{lm.name}"
        self.passage_tokens = passage_tokens
        self.at_once = at_once
        self.identity: dict[str, Json] = {"passage_tokens": passage_tokens}

    async def rerank(
        self, queries: Sequence[Query], rankings: Sequence[Sequence[Hit]], k: int
    ) -> list[Ranking]:
        """Order the hits of each query; see `Reranker`.

        Raises:
            BadCompletion: The model tells no log-probabilities.
            ContextTooLong: Not even the beginning of a passage fits the model.
            LMError: The model failed.
        """
        shown = [
            await _shown(
                self.lm,
                self.name,
                query.text,
                hits,
                most=self.passage_tokens,
                fixed=_question("", "").text,
                shown=1,
                room=1,
            )
            for query, hits in zip(queries, rankings, strict=True)
        ]
        jobs = [
            partial(self._ask, _question(text, passage))
            for text, passages, _ in shown
            for passage in passages
        ]
        answers = iter(await side_by_side(jobs, self.at_once))
        found = []
        for hits, (_, passages, warnings) in zip(rankings, shown, strict=True):
            own = [next(answers) for _ in passages]
            unsure = sum(score is None for score, _ in own)
            if unsure:
                warnings.append(
                    f"{self.name}: {unsure} of {len(own)} replies said neither yes nor no."
                )
            scores = [1.0 if score is None else score for score, _ in own]
            calls = [call for _, call in own]
            found.append(Ranking(by_score(hits, scores, k), calls, warnings))
        return found

    async def aclose(self) -> None:
        """Close the model. Calling it twice is harmless."""
        await self.lm.aclose()

    async def _ask(self, prompt: Prompt) -> tuple[float | None, LMCall]:
        request = Request(prompt, max_tokens=1, logprobs=True, role="rerank")
        reply = await complete(self.lm, request)
        sign = _yes_or_no(reply.text)
        if not sign:
            return None, reply.call
        if not reply.samples[0].logprobs:
            raise BadCompletion(
                f"{self.name}: the model tells no log-probabilities. Rerank with listwise:, "
                "which needs none."
            )
        return 1 + sign * min(1.0, math.exp(reply.samples[0].logprobs[0])), reply.call


def _yes_or_no(text: str) -> int:
    """1 for yes, -1 for no, 0 for neither; a token may be half of the word."""
    said = text.strip().strip("*\"'.").lower()
    return 1 if said in ("y", "ye", "yes") else -1 if said in ("n", "no") else 0


def order_in(text: str, n: int) -> list[int]:
    """The order that a model's text states for `n` passages numbered from 1.

    Always a permutation of `range(n)`, whatever the text: numbers that are no passage's and
    repeats are passed over, and passages that are not named follow in their order. Where
    numbers stand in brackets, others do not count.
    """
    first = named(text, n)
    return [*first, *(place for place in range(n) if place not in set(first))]


def named(text: str, n: int) -> list[int]:
    """The passages that a text names, from 0, each once, in order."""
    return _numbers(_BRACKETED.findall(text), n) or _numbers(_BARE.findall(text), n)


def _numbers(found: Sequence[str], n: int) -> list[int]:
    return list(dict.fromkeys(int(digits) - 1 for digits in found if 1 <= int(digits) <= n))


def _ordering(query: str, passages: Sequence[str]) -> Prompt:
    """The request to order passages."""
    many = len(passages)
    listed = "\n\n".join(f"[{number}] {text}" for number, text in enumerate(passages, 1))
    return _prompt(
        f"Here are {many} passages, each with its number in brackets. Which of them help most "
        f"to answer the query?\n\nQuery: {query}\n\n{listed}\n\nQuery: {query}\n\n"
        f"Order all {many} passages, the most helpful one first. Write only their numbers, as "
        "in [2] > [1].",
        "Order:",
    )


def _question(query: str, passage: str) -> Prompt:
    """The question whether a passage helps."""
    return _prompt(
        f"Passage: {passage}\n\nQuery: {query}\n\nDoes the passage hold something that is needed "
        "to answer the query? Answer with one word, Yes or No.",
        "Answer:",
    )


def _prompt(asked: str, begun: str) -> Prompt:
    return Prompt(f"{asked}\n\n{begun}", (Turn("user", asked),))


async def _shown(
    lm: LanguageModel,
    name: str,
    query: str,
    hits: Sequence[Hit],
    *,
    most: int,
    fixed: str,
    shown: int,
    room: int,
) -> tuple[str, list[str], list[str]]:
    """Query and passages as the model will see them, and what was cut, in words.

    Args:
        lm: Who reads.
        name: The reranker's, for messages.
        query: What was searched for.
        hits: All of the query's.
        most: Most tokens of each text.
        fixed: The prompt without its texts.
        shown: How many passages one prompt holds.
        room: Tokens to be generated.
    """
    [query], query_cut = await cut([sound(query)], most, lm.count_tokens)
    limit = most
    if lm.window is not None:
        # The query stands in the prompt twice.
        *_, counted, asked = await lm.count_tokens([fixed, query])
        limit = min(most, (lm.window - room - MARGIN - counted - 2 * asked) // shown)
    if limit < 8:
        raise ContextTooLong(
            f"{name}: {shown} passages do not fit the model's window of {lm.window} tokens with "
            f"more than {max(limit, 0)} tokens each. Show it fewer at once (window)."
        )
    passages, many = await cut([sound(titled(hit.passage)) for hit in hits], limit, lm.count_tokens)
    warnings = []
    if many:
        warnings.append(f"{name}: {many} of {len(hits)} passages were cut to {limit} tokens.")
    if query_cut:
        warnings.append(f"{name}: the query was cut to {most} tokens.")
    return query, passages, warnings


def _check_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise BadInput(f"{name} is {number}; it must be at least 1.")
