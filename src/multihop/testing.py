"""Public fakes: a scripted LM and a scripted retriever, for tests of your own code too."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path

from multihop.errors import BadInput, LMError, RetrieverError
from multihop.lms.base import Finish, Piece, Request
from multihop.lms.stops import StopCutter
from multihop.text import Hit, Json, Passage, Query, meets
from multihop.trace import Tokens


class ScriptedLM:
    """Replays completions in order and keeps every request it was given.

    Args:
        script: One entry per call: the text, or an error to raise. When `respond` is given
            it must be empty.
        respond: Computes the text of each call instead.
        pieces: Streams each text in pieces of this many characters; 0 sends it whole.
        window: What the `window` attribute says.
        delay: Seconds that each call takes.
        keep: Keep the requests; switch it off where there are very many.

    Attributes:
        requests: Every request, in order, when they are kept.
        closed_early: How many streams were closed before their end.
    """

    name = "scripted"

    def __init__(
        self,
        *script: str | LMError,
        respond: Callable[[Request], str] | None = None,
        pieces: int = 0,
        window: int | None = None,
        delay: float = 0.0,
        keep: bool = True,
    ) -> None:
        self.script = list(script)
        self.respond = respond
        self.pieces = pieces
        self.window = window
        self.delay = delay
        self.keep = keep
        self.requests: list[Request] = []
        self.closed_early = 0
        self.identity: Mapping[str, Json] = {}

    @property
    def prompts(self) -> list[str]:
        """The texts of all prompts, in order."""
        return [request.prompt.text for request in self.requests]

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Give the next `n` texts of the script, cut at the request's stop strings."""
        if self.keep:
            self.requests.append(request)
        if self.delay:
            await asyncio.sleep(self.delay)
        for index in range(request.n):
            text, finish = self._next(request)
            step = self.pieces or max(len(text), 1)
            parts = [text[i : i + step] for i in range(0, len(text), step)] or [""]
            for number, part in enumerate(parts):
                last = number == len(parts) - 1
                try:
                    yield Piece(
                        part,
                        index,
                        finish=finish if last else None,
                        tokens=Tokens(len(request.prompt.text.split()), 0, len(text.split()))
                        if last
                        else None,
                    )
                except GeneratorExit:
                    self.closed_early += not last
                    raise

    def _next(self, request: Request) -> tuple[str, Finish]:
        if self.respond:
            entry: str | LMError = self.respond(request)
        elif self.script:
            entry = self.script.pop(0)
        else:
            raise LMError(
                f"ScriptedLM has no text left for call {len(self.requests)}; "
                f"its prompt ends in {request.prompt.text[-80:]!r}."
            )
        if isinstance(entry, LMError):
            raise entry
        for stop in request.stop:
            entry = entry.split(stop, 1)[0]
        return entry, "stop"

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count words parted by white space."""
        return [len(text.split()) for text in texts]

    async def aclose(self) -> None:
        """Do nothing."""


class NextWordLM:
    """Writes word by word, each a function of all the text before it.

    Such a model is prefix-consistent: its answer to P + x is its answer to P with x taken off
    the front. Words are written only as they are read, and counted.

    Args:
        next_word: From the text so far, prompt included, to the next word with the blanks
            before it; "" ends the text.
        window: What the `window` attribute says.

    Attributes:
        requests: Every request, in order.
        written: Words written in all.
        open: Streams that have begun and not ended.
    """

    name = "next-word"

    def __init__(self, next_word: Callable[[str], str], *, window: int | None = None) -> None:
        self.next_word = next_word
        self.window = window
        self.requests: list[Request] = []
        self.written = 0
        self.open = 0

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Write until a stop string, the end of the text, or `max_tokens` words."""
        self.requests.append(request)
        prompt = len(request.prompt.text.split())
        self.open += 1
        try:
            for index in range(request.n):
                finish: Finish | None = None
                text, number = "", 0
                cutter = StopCutter(request.stop)
                while finish is None:
                    await asyncio.sleep(0)
                    word = self.next_word(request.prompt.text + text)
                    text, number, self.written = text + word, number + 1, self.written + 1
                    shown = cutter.feed(word)
                    if cutter.hit or not word:
                        finish = "stop"
                    elif number == request.max_tokens:
                        finish = "length"
                    if finish:
                        shown += cutter.finish()
                    counts = Tokens(prompt, 0, number)
                    yield Piece(shown, index, finish=finish, tokens=counts)
        finally:
            self.open -= 1

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count words parted by white space."""
        return [len(text.split()) for text in texts]

    async def aclose(self) -> None:
        """Do nothing."""


def scripted_lm(path: str) -> ScriptedLM:
    """A `ScriptedLM` that follows the rules in a file; the command line's `scripted:FILE`.

    The file is a JSON object: `rules`, a list of objects with `prompt`, a regular expression
    searched in the prompt's text (its dot matches line ends), and `text`, what is written, or
    `error`, what is raised as an LMError; the first rule that matches counts. `delay`: seconds
    that each call takes, at most a day. `pieces`: as in `ScriptedLM`.

    Raises:
        BadInput: No such file, or it says something else.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = json.loads(text)
        rules = [_rule(rule) for rule in content["rules"]]
        delay, pieces = _pace(**{k: v for k, v in content.items() if k in ("delay", "pieces")})
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such script.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, re.error) as broken:
        raise BadInput(
            f"{path}: not a script ({type(broken).__name__}: {broken}). It is a JSON object "
            'as {"rules": [{"prompt": "Q: Where.*A:$", "text": "In Ulm."}]}.'
        ) from None

    def respond(request: Request) -> str:
        for pattern, text, error in rules:
            if pattern.search(request.prompt.text):
                if error is not None:
                    raise LMError(error)
                return text
        raise LMError(f"{path}: no rule matches a prompt ending in {request.prompt.text[-80:]!r}.")

    lm = ScriptedLM(respond=respond, pieces=pieces, delay=delay, keep=False)
    lm.name = f"scripted:{path}"
    lm.identity = {"script": hashlib.sha256(text.encode()).hexdigest()}
    return lm


def _pace(delay: object = 0, pieces: object = 0) -> tuple[float, int]:
    """Seconds a call and letters a piece."""
    if not (isinstance(delay, int | float) and 0 <= delay <= 86_400):
        raise ValueError(f"delay is {delay!r}")
    if not (isinstance(pieces, int) and pieces >= 0):
        raise ValueError(f"pieces is {pieces!r}")
    return float(delay), pieces


def _rule(rule: Mapping[str, object]) -> tuple[re.Pattern[str], str, str | None]:
    """A rule's pattern, its text, and its error if it has one."""
    prompt, error = rule["prompt"], rule.get("error")
    text = rule["text"] if error is None else ""
    if not (isinstance(prompt, str) and isinstance(text, str) and isinstance(error, str | None)):
        raise TypeError(f"a rule's prompt, text and error are texts, found {dict(rule)}")
    return re.compile(prompt, re.DOTALL), text, error


class ScriptedRetriever:
    """Gives fixed rankings and keeps every query it was given.

    Args:
        rankings: From a query's text to its passages, best first, or to an error to raise.
            An unknown query gets an empty ranking.
    """

    name = "scripted"

    def __init__(self, rankings: Mapping[str, Sequence[Passage] | RetrieverError]) -> None:
        self.rankings = rankings
        self.queries: list[Query] = []

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Look each query up; scores count down from `k`."""
        self.queries += queries
        found = []
        for query in queries:
            passages = self.rankings.get(query.text, ())
            if isinstance(passages, RetrieverError):
                raise passages
            allowed = query.titles and {t.strip().lower() for t in query.titles}
            hits = [Hit(p, float(k - rank)) for rank, p in enumerate(passages[:k])]
            found.append(
                [h for h in hits if not allowed or h.passage.title.strip().lower() in allowed]
                if query.titles is None or query.titles
                else []
            )
        return found

    async def aclose(self) -> None:
        """Do nothing."""


class TitleRetriever:
    """Finds the passages whose title is named in the query, in the order given.

    Args:
        passages: The whole corpus.
    """

    name = "titles"

    def __init__(self, *passages: Passage) -> None:
        self.passages = passages
        self.queries: list[Query] = []

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """A passage matches when its title occurs in the query, case aside."""
        self.queries += queries
        return [
            [
                Hit(passage, 1.0)
                for passage in self.passages
                if passage.title and passage.title.lower() in query.text.lower()
                if meets(passage.metadata, query.where)
            ][:k]
            for query in queries
        ]

    async def aclose(self) -> None:
        """Do nothing."""
