"""multihop in `dspy`: our models, retrievers, programs and demonstrations as its own.

Written for dspy 3.4, whose LMs take an engine: one class that answers one request. Everything of
ours runs in one event loop in a thread of its own, so that a model is used from one loop whether
dspy calls it with or without `await`.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from multihop.errors import (
    BadInput,
    ContextTooLong,
    LMError,
    LMRefused,
    LMUnavailable,
    MissingExtra,
)
from multihop.lms.base import LanguageModel, Prompt, Reply, Request, Speaker, Turn, complete
from multihop.retrievers.base import Retriever
from multihop.strategies.dsp.bootstrapped import Bootstrapped
from multihop.strategies.dsp.example import Example, Stage, Value
from multihop.strategies.dsp.programs import DEFAULTS, Settings
from multihop.text import Hit, Passage, Query, Question
from multihop.trace import Strategy, Trace, trace

try:
    import dspy
    from dspy import lm15
except ImportError:
    raise MissingExtra("dspy", "dspy") from None

Result = TypeVar("Result")

MAX_TOKENS = 1000
"""Tokens of a completion where neither the LM nor the request says how many."""

RECORD = "multihop"
"""Field of a `dspy.Example` that keeps the whole of ours; no signature shows it."""

_SPEAKERS: dict[str, Speaker] = {"user": "user", "assistant": "assistant", "developer": "system"}
_CARRIED = {"max_tokens", "temperature", "top_p", "stop", "seed"}


# --- One loop for all -----------------------------------------------------------------------


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="multihop-dspy", daemon=True).start()
    return loop


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    """Wait for it; whatever interrupts the waiting ends the work too."""
    running = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return running.result()
    except BaseException:
        running.cancel()
        raise


async def _arun(work: Coroutine[Any, Any, Result]) -> Result:
    """The same for `await`; cancelling it cancels the work."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


# --- Language models ------------------------------------------------------------------------


def language_model(
    lm: LanguageModel,
    *,
    turns: bool = True,
    temperature: float | None = None,
    max_tokens: int = MAX_TOKENS,
    adapter: str | None = None,
    cache: bool = False,
) -> Any:
    """A language model of ours as a `dspy.LM`.

    Tokens stand in dspy's history and usage as the backend told them; a reply from our own cache
    counts none. dspy asks for n candidates by n equal calls: without a seed, and past a cache
    of ours, they differ.

    Args:
        lm: Who answers. The caller closes it.
        turns: Send prompts as turns; false sends their texts, parted by empty lines, for a
            completion model.
        temperature: Where a call says none; None is greedy.
        max_tokens: Where a call says none.
        adapter: LoRA adapter of every call.
        cache: Use dspy's cache, which knows models by name alone.
    """
    ours = (lm, turns, adapter)
    return dspy.LM(
        lm.name,
        engine=Engine(*ours),
        async_engine=AsyncEngine(*ours),
        temperature=temperature,
        max_tokens=max_tokens,
        cache=cache,
        num_retries=0,  # backends retry themselves
    )


class Engine:
    """Answers one request of dspy.

    Args:
        lm: Who answers.
        turns: Send prompts as turns.
        adapter: LoRA adapter of every call.
    """

    def __init__(self, lm: LanguageModel, turns: bool = True, adapter: str | None = None) -> None:
        self.lm, self.turns, self.adapter = lm, turns, adapter

    def complete(self, request: Any) -> Any:
        """One completion; errors are those that dspy expects of an engine."""
        return _run(self._complete(request))

    def stream(self, request: Any) -> Iterator[Any]:
        """The finished completion as events."""
        yield from lm15.response_to_events(self.complete(request))

    def close(self) -> None:
        """Do nothing: the model is the caller's."""

    async def _complete(self, request: Any) -> Any:
        asked = _request(request, self.turns, self.adapter)
        try:
            reply = await complete(self.lm, asked)
        except ContextTooLong as failure:
            raise lm15.ContextLengthError(str(failure)) from failure
        except (LMRefused, BadInput) as failure:
            raise lm15.InvalidRequestError(str(failure)) from failure
        except LMUnavailable as failure:
            raise lm15.ServerError(str(failure)) from failure
        except LMError as failure:
            raise lm15.ProviderError(str(failure)) from failure
        return _response(reply)


class AsyncEngine(Engine):
    """The same for `await`; cancelling the call ends generation."""

    async def complete(self, request: Any) -> Any:
        """One completion."""
        return await _arun(self._complete(request))

    async def stream(self, request: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        """The finished completion as events."""
        for event in lm15.response_to_events(await self.complete(request)):
            yield event

    async def aclose(self) -> None:
        """Do nothing: the model is the caller's."""


def _request(request: Any, turns: bool, adapter: str | None) -> Request:
    """A request of dspy's as ours. What we cannot carry is refused, never left out."""
    config = request.config
    for name in type(config).__dataclass_fields__:
        if name not in _CARRIED and getattr(config, name) is not None:
            raise lm15.UnsupportedFeatureError(
                f"multihop's models take no {name}.", feature=f"config.{name}"
            )
    if request.tools:
        raise lm15.UnsupportedFeatureError("multihop's models call no tools.", feature="tools")
    said = [Turn("system", _text(request.system))] if request.system else []
    for message in request.messages:
        if message.role not in _SPEAKERS:
            raise lm15.UnsupportedFeatureError(
                f"multihop's models take no {message.role!r} messages.", feature="messages"
            )
        said.append(Turn(_SPEAKERS[message.role], _text(message.parts)))
    text = "\n\n".join(turn.text for turn in said)
    return Request(
        Prompt(text, tuple(said) if turns else ()),
        max_tokens=config.max_tokens or MAX_TOKENS,
        stop=config.stop,
        temperature=config.temperature or 0.0,
        top_p=1.0 if config.top_p is None else config.top_p,
        seed=config.seed,
        adapter=adapter,
        role="dspy",
    )


def _text(parts: Any) -> str:
    if isinstance(parts, str):
        return parts
    for part in parts:
        if not isinstance(part, lm15.TextPart):
            raise lm15.UnsupportedFeatureError(
                f"multihop's models read text alone, found {part.type}.", feature="messages"
            )
    return "".join(part.text for part in parts)


def _response(reply: Reply) -> Any:
    sample, call = reply.samples[0], reply.call
    parts = [lm15.ThinkingPart(sample.thinking)] if sample.thinking else []
    return lm15.Response(
        id=None,
        model=call.model,
        message=lm15.Message.assistant([*parts, lm15.TextPart(sample.text)]),
        finish_reason="length" if sample.finish == "length" else "stop",
        usage=lm15.Usage(0, 0)
        if call.replayed
        else lm15.Usage(
            call.tokens.prompt, call.tokens.generated, cache_read_tokens=call.tokens.cached
        ),
    )


# --- Retrievers -----------------------------------------------------------------------------


class Found(dict[str, Any]):
    """A passage as dspy reads one: by key and by attribute.

    `long_text` is "Title | text", `pid` its id; `title`, `text` and `score` stand apart.
    """

    def __getattr__(self, name: str) -> Any:
        """A key as an attribute."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Searcher:
    """A retriever of ours as `dspy.configure(rm=...)` takes one.

    Args:
        retriever: Searches. The caller closes it.
        k: Passages of a search that names no number.
    """

    def __init__(self, retriever: Retriever, k: int = 3) -> None:
        self.retriever, self.k = retriever, k

    def __call__(self, query: str, k: int | None = None) -> list[Found]:
        """Passages for one query, best first; errors are ours."""
        hits = _run(self.retriever.search([Query(query)], k or self.k))[0]
        return [_found(hit) for hit in hits]


def search_tool(retriever: Retriever, k: int = 3, name: str = "search") -> Any:
    """A retriever of ours as a `dspy.Tool`, for `dspy.ReAct` and its like.

    Args:
        retriever: Searches. The caller closes it.
        k: Passages of a search.
        name: As the LM is told it.
    """
    searcher = Searcher(retriever, k)

    def search(query: str) -> list[str]:
        return [found.long_text for found in searcher(query)]

    return dspy.Tool(search, name=name, desc="Finds passages for a few words.")


def _found(hit: Hit) -> Found:
    p = hit.passage
    return Found(long_text=_shown(p), pid=p.id, title=p.title, text=p.text, score=hit.score)


def _shown(passage: Passage) -> str:
    return f"{passage.title} | {passage.text}" if passage.title else passage.text


# --- Programs -------------------------------------------------------------------------------


class Program(dspy.Module):  # type: ignore[misc]
    """A strategy of ours as a `dspy.Module`: DSP's multi-hop program, IRCoT, or any other.

    Its prediction has `answer`, `context` (the passages that the answer was read from),
    `reason` (why there is none) and `trace`, the whole run. Tokens of all its calls count in
    dspy's usage. It has no predictors that an optimizer of dspy's could change: its
    demonstrations are the strategy's.

    Args:
        strategy: As `multihop.names.open_strategy` or `multihop.strategies.dsp.making.make` give.
    """

    def __init__(self, strategy: Strategy) -> None:
        super().__init__()
        self.strategy = strategy

    def forward(self, question: str) -> Any:
        """Ask a question; errors of its parts are ours."""
        return _prediction(_run(trace(self.strategy, Question(question))))

    async def aforward(self, question: str) -> Any:
        """The same for `await`; cancelling it ends the run."""
        return _prediction(await _arun(trace(self.strategy, Question(question))))


def _prediction(done: Trace) -> Any:
    tracker = dspy.settings.usage_tracker
    for call in done.calls if tracker else ():
        if not (call.replayed or call.fused):
            counts = {
                "prompt_tokens": call.tokens.prompt,
                "completion_tokens": call.tokens.generated,
            }
            told = {name: count for name, count in counts.items() if count is not None}
            tracker.add_usage(call.model, told)
    answer = done.answer
    assert answer is not None  # a run that fails raises
    return dspy.Prediction(
        answer=answer.text,
        context=[_shown(passage) for passage in answer.passages],
        reason=answer.reason,
        trace=done,
    )


# --- Demonstrations -------------------------------------------------------------------------


def to_dspy(x: Example, stage: str = "qa") -> Any:
    """A demonstration of ours as a `dspy.Example`.

    Args:
        x: The demonstration.
        stage: Whose fields it has ("h0", "h1", "qa"): those that this step of the LM saw and
            wrote; of a raw one the labels alone. The rest is kept under `multihop`.
    """
    fields: dict[str, Any] = {}
    for name, value in x.seen_at(stage).items():
        if isinstance(value, str):
            fields[name] = value
        else:
            fields[name] = [_shown(v) if isinstance(v, Passage) else v for v in value]
    if "answer" not in fields and x.answers:
        fields["answer"] = x.answers[0]
    return dspy.Example(**fields, augmented=x.augmented, **{RECORD: x.to_dict()}).with_inputs(
        "question"
    )


def from_dspy(demo: Any, stage: str = "qa") -> Example:
    """A demonstration of dspy's as ours: exactly, when it was ours; else from its fields.

    `question` and `answer` (or `answers`) are labels. When it was `augmented`, all fields stand
    in one stage; "Title | text" in `context` become passages, `reasoning` is our `rationale`.

    Args:
        demo: A `dspy.Example` or a mapping.
        stage: The step of the LM that it shows.

    Raises:
        BadInput: It has no question, or an answer or a field that is no text.
    """
    given: dict[str, Any] = dict(demo.items())
    try:
        if RECORD in given:
            return Example.from_dict(given[RECORD])
        asked, answer = given["question"], given.get("answers", given.get("answer", ()))
        answers = (answer,) if isinstance(answer, str) else tuple(answer)
        x = Example.of(_labelled(asked, answers))
        shown = {
            ("rationale" if name == "reasoning" else name): _value(name, value)
            for name, value in given.items()
            if name not in ("augmented", "answers") and not name.startswith("dspy_")
        }
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as broken:
        raise BadInput(
            f"A demonstration of dspy's cannot be read ({type(broken).__name__}: {broken}). "
            "It needs a question and, for each field, a text or a list of texts."
        ) from None
    if not given.get("augmented"):
        return x
    return Example(x.fields, {stage: Stage(shown)}, augmented=True, question=x.question)


def demonstrations(
    demos: Iterable[Any], program: str = "multihop", settings: Settings | None = None
) -> Bootstrapped:
    """Demonstrations of dspy's for a program of ours; `save` writes the file that `demos` reads.

    Args:
        demos: What an optimizer of dspy's has found, or `to_dspy` has made.
        program: Whose they are.
        settings: Its settings; None is the paper's.

    Raises:
        BadInput: There are none, or one cannot be read.
    """
    made = tuple(from_dspy(demo) for demo in demos)
    if not made:
        raise BadInput("There are no demonstrations of dspy's. Give at least one.")
    told = json.dumps([x.to_dict() for x in made], sort_keys=True)
    return Bootstrapped(
        program,
        settings or DEFAULTS[program],
        draw=len(made),
        keep=len(made),
        made=made,
        source=hashlib.sha256(told.encode()).hexdigest()[:16],
    )


def _labelled(asked: object, answers: tuple[object, ...]) -> Question:
    texts = tuple(answer for answer in answers if isinstance(answer, str))
    if not isinstance(asked, str) or len(texts) < len(answers):
        raise TypeError("question and answers are texts")
    return Question(asked, answers=texts)


def _value(name: str, value: object) -> Value:
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence) or not all(isinstance(v, str) for v in value):
        raise TypeError(f"{name} is {type(value).__name__}")
    if name != "context":
        return tuple(value)
    return tuple(_passage(text) for text in value)


def _passage(text: str) -> Passage:
    """A passage from "Title | text"; its id is made of its text, which is all that is known."""
    title, bar, body = text.partition(" | ")
    number = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Passage(number, title if bar else "", body if bar else text)
