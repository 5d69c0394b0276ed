"""A strategy's run as a stream of typed steps, and its fold: the trace.

The stream is the only interface between a strategy and the world: the terminal prints it, the
server sends it, evaluation folds and scores it, training rewards it. Scoring a trace never
runs a model again.
"""

import json
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import reduce
from types import MappingProxyType
from typing import Literal, Protocol, get_args

from multihop.errors import BadInput, MultihopError
from multihop.text import Hit, Json, Passage, Question, json_object

VERSION = 1
"""Schema version of a trace's JSON. Readers refuse other versions."""

StopReason = Literal["answered", "max_steps", "empty", "no_gain", "budget", "abstained"]
"""Why a run ended.

`answered`: an answer was stated; `max_steps`: the step limit came first; `empty`: the model
wrote nothing; `no_gain`: the chain repeated itself or searching found nothing new;
`budget`: calls, tokens, seconds or money ran out, of the question or of the whole run;
`abstained`: several chains agreed too little for their answer to be given.
"""

Kind = Literal[
    "",
    "follow-up",
    "intermediate answer",
    "action",
    "observation",
    "draft",
    "chain",
    "vote",
    "route",
    "query",
]
"""What a thought is, where a strategy writes more than sentences of a chain.

Empty: a sentence of the chain. `follow-up`, `intermediate answer`: a smaller question and what was
read for it; `action`, `observation`: what a model does and what it is told; `draft`: an answer of a
round that is not the last; `chain`: where one of several chains begins; `vote`: its answer, and
what came of them all; `route`: the strategy that a router chose; `query`: what is searched for,
where that is no sentence of a chain.
"""

_NOTHING: Mapping[str, Json] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts of one call or of many, None where the backend does not tell.

    Attributes:
        prompt: Tokens of the prompt, cached ones included.
        cached: Those of them that the backend had evaluated before.
        generated: Tokens written, thinking included.
    """

    prompt: int | None = None
    cached: int | None = None
    generated: int | None = None

    def __add__(self, other: "Tokens") -> "Tokens":
        def add(a: int | None, b: int | None) -> int | None:
            return b if a is None else a if b is None else a + b

        return Tokens(
            add(self.prompt, other.prompt),
            add(self.cached, other.cached),
            add(self.generated, other.generated),
        )


def together(spent: Tokens, tokens: Tokens | None) -> Tokens:
    """Counts of two requests as one; unknown where one of them is not told."""
    tokens = tokens or Tokens()

    def both(a: int | None, b: int | None) -> int | None:
        return None if a is None or b is None else a + b

    return Tokens(
        both(spent.prompt, tokens.prompt),
        both(spent.cached, tokens.cached),
        both(spent.generated, tokens.generated),
    )


@dataclass(frozen=True, slots=True)
class LMCall:
    """One call of a language model, as it went out and as it came back.

    Attributes:
        role: What it was for: "reason", "read", "titles", ...
        model: The model's name.
        prompt: What was sent; for chat models its turns as one text.
        outputs: What came back, a text a sample, before any cutting of ours.
        finishes: Why each sample ended: "stop", "length" or "cut" (we had enough).
        seconds: From the request to the last piece.
        tokens: Counts as the backend tells them.
        adapter: LoRA adapter used, or None.
        max_tokens, stop, temperature, seed: As asked.
        thinking: What a thinking model wrote before its answer.
        retries: Failed attempts before this one.
        fused: The text was read from an earlier call's stream instead of asked for.
        replayed: The text came from a cache; `tokens` is what the call cost when it was made.
        warnings: What fitting the prompt to the window cost, in words.
    """

    role: str
    model: str
    prompt: str
    outputs: tuple[str, ...]
    finishes: tuple[str, ...]
    seconds: float
    tokens: Tokens = Tokens()
    adapter: str | None = None
    max_tokens: int = 0
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    seed: int | None = None
    thinking: str = ""
    retries: int = 0
    fused: bool = False
    replayed: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """A query and what it brought.

    Attributes:
        query: The words sent; empty when nothing was asked.
        hits: The ranking as the retriever gave it.
        kept: Ids of hits that joined the collected passages, in order.
        collected: Ids of all passages collected after this step, in order.
        titles: Titles that the search was limited to; None means no limit.
        seconds: Time the retriever took, its own LM calls included.
        calls: LM calls that the retriever made to find or rank the hits.
        warnings: What the ranking has missed, in words: passages shown cut to a model, ...
    """

    query: str
    hits: tuple[Hit, ...]
    kept: tuple[str, ...]
    collected: tuple[str, ...]
    titles: tuple[str, ...] | None = None
    seconds: float = 0.0
    calls: tuple[LMCall, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Thought:
    """One sentence of the chain.

    Attributes:
        text: The sentence that was kept; empty when the model wrote nothing.
        call: The call that wrote it; None when no model was asked.
        forced: Words that we put before the model's own, such as "So the answer is:".
        kind: What it is, where it is no sentence of a chain; see `Kind`.
    """

    text: str
    call: LMCall | None = None
    forced: str = ""
    kind: Kind = ""


@dataclass(frozen=True, slots=True)
class Titles:
    """Page titles that a model proposed, and the pages they were mapped to (IIRC).

    Attributes:
        proposed: As read from the model's output.
        mapped: Titles of the pages found for them; later searches are limited to these.
        searches: The title searches, in order.
        call: The call that proposed them.
    """

    proposed: tuple[str, ...]
    mapped: tuple[str, ...]
    searches: tuple[Search, ...]
    call: LMCall | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The last step: the answer and why the run ended.

    Attributes:
        text: The answer; empty only with a `reason`.
        stop: Why the run ended.
        passages: What the answer was read from, in the order shown.
        call: The reader's call; None when the chain's own answer was taken.
        forced: A second call, with the words "So the answer is:", where the reader's own text
            stated none.
        answers: The answer's parts when it is a list of several; else empty.
        reason: Why there is no answer, in words; empty when there is one.
        confidence: From 0 to 1, where the strategy tells it.
    """

    text: str
    stop: StopReason
    passages: tuple[Passage, ...] = ()
    call: LMCall | None = None
    forced: LMCall | None = None
    answers: tuple[str, ...] = ()
    reason: str = ""
    confidence: float | None = None


Step = Search | Thought | Titles | Answer
"""What strategies yield."""


def calls_of(step: Step) -> Iterator[LMCall]:
    """The LM calls that a step made, in order."""
    if not isinstance(step, Search) and step.call is not None:
        yield step.call
    if isinstance(step, Answer) and step.forced is not None:
        yield step.forced
    for search in searches_of(step):
        yield from search.calls


def searches_of(step: Step) -> tuple[Search, ...]:
    """The searches that a step made, in order; a query may be empty, and then none went out."""
    if isinstance(step, Search):
        return (step,)
    return step.searches if isinstance(step, Titles) else ()


def route_of(step: Step) -> str:
    """The strategy that a step tells was chosen; empty for every other step."""
    if isinstance(step, Thought) and step.kind == "route":
        return step.text.partition(" ")[0]
    return ""


class Strategy(Protocol):
    """A way of answering one question."""

    @property
    def name(self) -> str:
        """As the command line names it."""
        ...

    @property
    def settings(self) -> Mapping[str, Json]:
        """Everything that decides the result: recorded in each trace."""
        ...

    def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question; the last step is an `Answer`."""
        ...


@dataclass(frozen=True, slots=True)
class Trace:
    """A question's whole run.

    Attributes:
        question: What was asked.
        strategy: The strategy's name.
        settings: Its settings.
        steps: All steps, in order; the last is an `Answer` unless the run failed.
        started: When, in UTC, ISO 8601.
        seconds: How long the run took.
        error: One line about what ended the run early; empty when it ran to its end.
    """

    question: Question
    strategy: str
    settings: Mapping[str, Json] = field(default_factory=lambda: _NOTHING, hash=False)
    steps: tuple[Step, ...] = ()
    started: str = ""
    seconds: float = 0.0
    error: str = ""

    @property
    def answer(self) -> Answer | None:
        """The last step, when the run came to an answer."""
        return self.steps[-1] if self.steps and isinstance(self.steps[-1], Answer) else None

    @property
    def searches(self) -> tuple[Search, ...]:
        """The search steps, in order."""
        return tuple(s for s in self.steps if isinstance(s, Search))

    @property
    def thoughts(self) -> tuple[Thought, ...]:
        """The chain's sentences, in order."""
        return tuple(s for s in self.steps if isinstance(s, Thought))

    @property
    def calls(self) -> tuple[LMCall, ...]:
        """All LM calls, in order."""
        return tuple(call for step in self.steps for call in calls_of(step))

    @property
    def tokens(self) -> Tokens:
        """The sum over all calls; a count is None where a call's backend did not tell it."""
        return reduce(together, (call.tokens for call in self.calls), Tokens(0, 0, 0))

    @property
    def collected(self) -> tuple[str, ...]:
        """Ids of the passages collected by the last search, in order."""
        searches = self.searches
        return searches[-1].collected if searches else ()

    def to_dict(self) -> dict[str, Json]:
        """As JSON data; `from_dict` gives the same trace back."""
        table = _PassageTable()
        record: dict[str, Json] = {
            "version": VERSION,
            "question": _to_json(self.question, table),
            "strategy": self.strategy,
            "settings": dict(self.settings),
            "steps": [
                {"step": type(s).__name__.lower(), **_object(_to_json(s, table))}
                for s in self.steps
            ],
            "started": self.started,
            "seconds": self.seconds,
            "error": self.error,
        }
        record["passages"] = table.to_json()
        return record

    def to_json(self) -> str:
        """One line of ASCII JSON; odd characters, lone surrogates too, survive."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, record: Mapping[str, Json], where: str = "trace") -> "Trace":
        """Read back what `to_dict` gave.

        Args:
            record: The JSON data.
            where: File and line, for the error message.

        Raises:
            BadInput: Another schema version, or not a trace.
        """
        version = record.get("version")
        if version != VERSION:
            raise BadInput(
                f"{where}: trace has schema version {version!r}, this program reads {VERSION}. "
                "Read it with the release that wrote it."
            )
        try:
            passages = _read_passages(record["passages"])
            return cls(
                question=_read_question(record["question"], passages),
                strategy=str(record["strategy"]),
                settings=_object(record["settings"]),
                steps=tuple(_read_step(s, passages) for s in _array(record["steps"])),
                started=str(record["started"]),
                seconds=_seconds(record["seconds"]),
                error=str(record["error"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as broken:
            raise BadInput(
                f"{where}: not a trace of schema version {VERSION} "
                f"({type(broken).__name__}: {broken})."
            ) from None

    @classmethod
    def from_json(cls, line: str, where: str = "trace") -> "Trace":
        """Read one line of JSON; see `from_dict`."""
        return cls.from_dict(json_object(line, where), where)


async def trace(
    strategy: Strategy,
    question: Question,
    on_step: Callable[[Step], None] | None = None,
    *,
    keep_errors: bool = False,
) -> Trace:
    """Run a strategy on a question and fold its steps.

    Args:
        strategy: What to run.
        question: What to ask.
        on_step: Told every step as it happens.
        keep_errors: Put a `MultihopError` into the trace instead of raising it; the steps
            before it are kept.

    Raises:
        BadInput: The question is empty.
        MultihopError: Whatever the strategy's parts raise, unless `keep_errors`.
    """
    if not question.text.strip():
        raise BadInput("The question is empty. Ask something.")
    steps: list[Step] = []
    error = ""
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    try:
        async with aclosing(strategy.steps(question)) as stream:
            async for step in stream:
                steps.append(step)
                if on_step:
                    on_step(step)
    except MultihopError as failure:
        if not keep_errors:
            raise
        error = f"{type(failure).__name__}: {failure}"
    return Trace(
        question=question,
        strategy=strategy.name,
        settings=strategy.settings,
        steps=tuple(steps),
        started=started,
        seconds=time.perf_counter() - began,
        error=error,
    )


# --- JSON. Passages are written once, in a table, and named by key elsewhere. ---------------


class _PassageTable:
    def __init__(self) -> None:
        self.keys: dict[tuple[str, str, str, str], str] = {}
        self.passages: dict[str, Passage] = {}

    def key(self, passage: Passage) -> str:
        identity = (
            passage.id,
            passage.title,
            passage.text,
            json.dumps(dict(passage.metadata), sort_keys=True),
        )
        if identity not in self.keys:
            key, number = passage.id, 1
            while key in self.passages:  # the same id with other content
                number += 1
                key = f"{passage.id}#{number}"
            self.keys[identity] = key
            self.passages[key] = passage
        return self.keys[identity]

    def to_json(self) -> Json:
        return {
            key: {
                "id": p.id,
                "title": p.title,
                "text": p.text,
                **({"metadata": dict(p.metadata)} if p.metadata else {}),
            }
            for key, p in self.passages.items()
        }


_RARE: Mapping[type, tuple[str, ...]] = {
    Search: ("calls", "warnings"),
    Thought: ("kind",),
    Answer: ("confidence",),
}
"""Fields that most steps have no use for: left out where they are empty."""


def _to_json(value: object, table: _PassageTable) -> Json:
    if isinstance(value, Passage):
        return table.key(value)
    if isinstance(value, Hit):
        return [table.key(value.passage), value.score]
    if isinstance(value, tuple):
        return [_to_json(item, table) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _to_json(item, table) for key, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        record = {f.name: _to_json(getattr(value, f.name), table) for f in fields(value)}  # type: ignore[arg-type]
        rare = _RARE.get(type(value), ())
        return {k: v for k, v in record.items() if k not in rare or v not in (None, "", [])}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_to_json(item, table) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form in a trace.")


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    return value


def _array(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {type(value).__name__}")
    return value


def _number(value: Json) -> float:
    if not isinstance(value, (int, float)):
        raise TypeError(f"expected a number, found {type(value).__name__}")
    return value


def _seconds(value: Json) -> float:
    if not 0 <= _number(value) < math.inf:
        raise ValueError(f"seconds are {value}")
    return _number(value)


def _share(value: Json) -> float:
    if not 0 <= _number(value) <= 1:
        raise ValueError(f"a share is {value}")
    return _number(value)


def _strings(value: Json) -> tuple[str, ...]:
    return tuple(str(item) for item in _array(value))


def _read_passages(value: Json) -> dict[str, Passage]:
    table = {}
    for key, item in _object(value).items():
        record = _object(item)
        table[key] = Passage(
            str(record["id"]),
            str(record["title"]),
            str(record["text"]),
            _object(record.get("metadata", {})),
        )
    return table


def _read_question(value: Json, passages: Mapping[str, Passage]) -> Question:
    record = _object(value)
    pinned = record["pinned"]
    return Question(
        text=str(record["text"]),
        id=str(record["id"]),
        answers=_strings(record["answers"]),
        gold_ids=_strings(record["gold_ids"]),
        gold_titles=_strings(record["gold_titles"]),
        kind=str(record["kind"]),
        pinned=None if pinned is None else passages[str(pinned)],
        extra=_object(record["extra"]),
    )


_KINDS: Mapping[str, type] = {
    **dict.fromkeys(("role", "model", "prompt", "thinking"), str),
    **dict.fromkeys(("fused", "replayed"), bool),
}
"""Fields of a call that are taken as they are and read by cost and reports."""

_COUNTS = 1 << 63
"""Token counts are below it, so that sums of them stay numbers."""


def _read_call(value: Json) -> LMCall | None:
    if value is None:
        return None
    record = dict(_object(value))
    for name, kinds in _KINDS.items():
        if name in record and not isinstance(record[name], kinds):
            raise TypeError(f"a call's {name} is {json.dumps(record[name])[:80]}")
    counts = _object(record["tokens"])
    for name, count in counts.items():
        if count is not None and not (type(count) is int and 0 <= count < _COUNTS):
            raise ValueError(f"a call's {name} tokens are {json.dumps(count)[:80]}")
    record["tokens"] = Tokens(**counts)  # type: ignore[arg-type, assignment]
    record["seconds"] = _seconds(record["seconds"])
    for name in ("outputs", "finishes", "stop", "warnings"):
        record[name] = _strings(record[name])  # type: ignore[assignment]
    return LMCall(**record)  # type: ignore[arg-type]


def _read_hit(value: Json, passages: Mapping[str, Passage]) -> Hit:
    key, score = _array(value)
    return Hit(passages[str(key)], _number(score))


def _read_search(record: Mapping[str, Json], passages: Mapping[str, Passage]) -> Search:
    titles = record["titles"]
    return Search(
        query=str(record["query"]),
        hits=tuple(_read_hit(h, passages) for h in _array(record["hits"])),
        kept=_strings(record["kept"]),
        collected=_strings(record["collected"]),
        titles=None if titles is None else _strings(titles),
        seconds=_seconds(record["seconds"]),
        calls=tuple(c for item in _array(record.get("calls", [])) if (c := _read_call(item))),
        warnings=_strings(record.get("warnings", [])),
    )


def _read_step(value: Json, passages: Mapping[str, Passage]) -> Step:
    record = _object(value)
    match record["step"]:
        case "search":
            return _read_search(record, passages)
        case "thought":
            kind = record.get("kind", "")
            if kind not in get_args(Kind):
                raise ValueError(f"unknown kind of thought {kind!r}")
            return Thought(
                str(record["text"]),
                _read_call(record["call"]),
                str(record["forced"]),
                kind,  # type: ignore[arg-type]
            )
        case "titles":
            return Titles(
                proposed=_strings(record["proposed"]),
                mapped=_strings(record["mapped"]),
                searches=tuple(
                    _read_search(_object(s), passages) for s in _array(record["searches"])
                ),
                call=_read_call(record["call"]),
            )
        case "answer":
            stop = record["stop"]
            if stop not in get_args(StopReason):
                raise ValueError(f"unknown stop reason {stop!r}")
            confidence = record.get("confidence")
            return Answer(
                text=str(record["text"]),
                stop=stop,  # type: ignore[arg-type]
                passages=tuple(passages[str(key)] for key in _array(record["passages"])),
                call=_read_call(record["call"]),
                forced=_read_call(record["forced"]),
                answers=_strings(record["answers"]),
                reason=str(record["reason"]),
                confidence=None if confidence is None else _share(confidence),
            )
        case other:
            raise ValueError(f"unknown step {other!r}")


def fold(question: Question, strategy: str, steps: Iterable[Step]) -> Trace:
    """A trace of steps that ran elsewhere (a replay, a test)."""
    return Trace(question=question, strategy=strategy, steps=tuple(steps))
