"""Any server that speaks OpenAI's API."""

import asyncio
import importlib.util
import logging
import os
import time
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from multihop.errors import BadInput, LMRefused, MissingExtra
from multihop.lms import openai_wire
from multihop.lms.base import Finish, Piece, Request
from multihop.lms.openai_failures import Failures, in_address, is_too_long, said, shown, status
from multihop.lms.openai_plan import Plan
from multihop.lms.stops import StopCutter
from multihop.lms.thinking import ThinkingSplitter
from multihop.text import Json
from multihop.trace import Tokens, together

log = logging.getLogger(__name__)

_FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "length": "length",
}


class _AskAgain(Exception):
    """The call went through, but has to be repeated by another plan."""

    def __init__(self, plan: Plan, spent: Tokens) -> None:
        super().__init__()
        self.plan = plan
        self.spent = spent


@dataclass
class _Sample:
    """What is known of one sample while it streams."""

    splitter: ThinkingSplitter
    cutter: StopCutter
    thinking: str = ""  # not given yet: shown in one piece, before the answer
    logprobs: tuple[float, ...] = ()  # not given yet: their text is held back
    measured: bool = False
    thought: bool = False
    wrote: bool = False
    finish: Finish | None = None

    def take(self, text: str, thinking: str, logprobs: tuple[float, ...]) -> str:
        answer, thought = self.splitter.feed(text)
        self.logprobs = () if thinking or thought else self.logprobs + logprobs
        self.measured = self.measured or bool(logprobs)
        return self._took(self.cutter.feed(answer), thinking + thought)

    def rest(self) -> str:
        answer, thought = self.splitter.finish()
        return self._took(self.cutter.feed(answer) + self.cutter.finish(), thought)

    def _took(self, answer: str, thinking: str) -> str:
        self.thinking += thinking
        self.thought = self.thought or bool(thinking)
        self.wrote = self.wrote or bool(answer)
        if self.cutter.hit:
            self.finish = "stop"
        return answer


@dataclass(frozen=True, slots=True)
class _Usage:
    counts: Tokens
    thinking: int


class OpenAILM:
    """A model behind an OpenAI-compatible server.

    Args:
        model: As the server calls it, or MODEL@URL. A request's `adapter` is sent in its
            place, as vLLM names LoRA adapters.
        url: The server's API, as "http://localhost:8000/v1". None is OpenAI's own, or what
            OPENAI_BASE_URL says.
        api: "chat" sends turns, "completions" sends text. "auto" asks for chat, and for a
            completion when the server has no chat or no chat template for the model.
        prefill: Whether an unfinished assistant turn is sent to be continued (vLLM, SGLang and
            llama.cpp can). "auto" tries, and asks for the next sentence as the prompt's
            `ask_next` says once a server has refused. A server that ignores the two fields
            without a word begins a new turn instead: say "no" for such a one.
        stream: False asks for whole replies, for servers that cannot stream.
        key_env: Environment variable that holds the key. Servers other than OpenAI's may
            need none.
        timeout: Seconds that one attempt waits for the server, the caller's own time between
            pieces aside.
        max_retries: Attempts after the first, for time-outs, lost connections and the
            statuses 408, 409, 425, 429 and 5xx. They wait 0.5 s, 1 s, 2 s ... up to 30 s, less
            up to half by chance, and never less than the server's Retry-After.
        window: Tokens that prompt and completion may take together; None when unknown.
        thinking: "open" for models whose chat template opens the thinking, so that replies
            begin inside it and only hold `</think>`; "auto" for all others.
        thinking_tokens: Granted beside a request's `max_tokens` to a model that was seen to
            think.
        headers: Sent with every request.
        extra_body: Fields added to every request, as `{"reasoning_effort": "low"}`.

    Raises:
        BadInput: The address or a number is not usable.
        LMRefused: OpenAI itself is asked without a key.
        MissingExtra: The `aiohttp` package is not installed.
    """

    def __init__(
        self,
        model: str,
        url: str | None = None,
        *,
        api: Literal["auto", "chat", "completions"] = "auto",
        prefill: Literal["auto", "yes", "no"] = "auto",
        stream: bool = True,
        key_env: str = "OPENAI_API_KEY",
        timeout: float = 120.0,
        max_retries: int = 5,
        window: int | None = None,
        thinking: Literal["auto", "open"] = "auto",
        thinking_tokens: int = 4096,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        if importlib.util.find_spec("aiohttp") is None:
            raise MissingExtra("aiohttp", "openai")
        if url is None and "@http" in model:
            model, _, url = model.partition("@")
        url = url or os.environ.get("OPENAI_BASE_URL") or None
        if not model:
            raise BadInput("The name of the model is empty.")
        bare = (url or "").rpartition("@")[2]  # before it stand a name and a password
        if url and not url.startswith(("http://", "https://")):
            raise BadInput(f"{bare!r} is no address of a server: it begins with http or https.")
        if url:
            try:
                there = urlsplit(url).hostname and urlsplit(url).port != 0
            except ValueError:
                there = False
            if not there:
                raise BadInput(f"{bare!r} names no server: it is like http://HOST:PORT/v1.")
        for word, value, least in (
            ("timeout", timeout, 0.001),
            ("max_retries", max_retries, 0),
            ("window", 1 if window is None else window, 1),
            ("thinking_tokens", thinking_tokens, 0),
        ):
            if not value >= least:
                raise BadInput(f"{word} is {value:g}; the least is {least:g}.")
        for word, choice, choices in (
            ("api", api, ("auto", "chat", "completions")),
            ("prefill", prefill, ("auto", "yes", "no")),
            ("thinking", thinking, ("auto", "open")),
        ):
            if choice not in choices:
                raise BadInput(f"{word} is {choice!r}; it can be {', '.join(choices)}.")
        key = os.environ.get(key_env, "").strip()
        if not key and not url:
            raise LMRefused(
                f"openai:{model}: no key. Set the environment variable {key_env}, "
                "or give the address of another server."
            )
        self.model = model
        self.url = url or "https://api.openai.com/v1"
        self.name = f"openai:{model}" + (f"@{shown(url)}" if url else "")
        self.window = window
        self._key = key
        self._headers = dict(headers or {})
        self._timeout = timeout
        self._opened = thinking == "open"
        secrets = (key, *self._headers.values(), *in_address(self.url))
        self._failures = Failures(self.name, self.url, key_env, secrets, timeout, max_retries)
        self._identity: dict[str, Json] = {
            "url": shown(self.url),
            "api": api,
            "prefill": prefill,
            "thinking": thinking,
            "thinking_tokens": thinking_tokens,
            "extra_body": cast("Json", dict(extra_body or {})),
        }
        self._answered = False
        self._plan = Plan(
            chat=api != "completions",
            prefill=prefill != "no",
            stream=stream,
            # OpenAI refuses the fields by which others count with every chunk.
            usage="last" if _is_openai(self.url) else "running",
            timings=not _is_openai(self.url),
            may_change=frozenset(
                name for name, how in (("chat", api), ("prefill", prefill)) if how == "auto"
            ),
            thinks=self._opened,
            room=thinking_tokens,
            extra=dict(extra_body or {}),
        )
        self._connections: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, openai_wire.Connections
        ] = weakref.WeakKeyDictionary()

    @property
    def identity(self) -> Mapping[str, Json]:
        """The server and the options as given, not what was learned; no headers and no key."""
        return self._identity

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Generate, as the server streams; thinking comes in one piece before the answer.

        Stop strings are kept here as well as at the server, and only here for models that
        think: servers apply them to the thinking too. Only a stream that has given nothing
        yet is tried again.

        Raises:
            LMUnavailable: No answer within `timeout` or after `max_retries`.
            LMRefused: Wrong key, model, address or request; content filtered.
            ContextTooLong: The server says that the prompt does not fit.
            BadCompletion: Garbage, or a stream that ends before its finish reason.
        """
        plan = self._plan
        spent: Tokens | None = None
        began, failed = time.perf_counter(), 0  # asking otherwise is no failure
        without_chat: Exception | None = None
        while True:
            begun = False
            try:
                async with aclosing(self._call(request, plan)) as pieces:
                    async for piece in pieces:
                        if not begun:
                            begun = self._answered = True
                            self._learn(plan)
                            piece = replace(  # noqa: PLW2901
                                piece, retries=failed, warnings=plan.warnings(request)
                            )
                        if spent:
                            counts = together(spent, piece.tokens)
                            piece = replace(piece, tokens=counts)  # noqa: PLW2901
                        yield piece
            except _AskAgain as again:
                plan, spent = again.plan, together(spent or Tokens(0, 0, 0), again.spent)
            except (openai_wire.Refused, openai_wire.Lost, TimeoutError) as caught:
                if begun:
                    raise self._failures.broken(caught) from caught
                failure: Exception = caught
                self._answered = self._answered or isinstance(caught, openai_wire.Refused)
                other = None
                if without_chat and status(caught) == 404:
                    failure = without_chat  # neither is there: the model or the address
                elif not is_too_long(caught):
                    param = str(getattr(caught, "param", None) or "")
                    other = plan.after_refusal(request, status(caught), said(caught), param)
                if other:
                    without_chat = caught if plan.chat and not other.chat else without_chat
                    plan = other
                else:
                    model, room = request.adapter or self.model, plan.most_tokens(request)
                    refusal = self._failures.refusal(failure, model, room)
                    if refusal:
                        raise refusal from None
                    failed += 1
                    yield Piece("", retries=failed)  # told before the wait
                    await self._failures.wait(failure, failed, began, known=self._answered)
            else:
                return

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Estimate one token per three bytes of UTF-8: a third too many for English prose."""
        return [-(-len(text.encode()) // 3) for text in texts]

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        connections = self._connections.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.aclose()

    def _learn(self, plan: Plan) -> None:
        """Keep what a plan that worked does without."""
        poorer = self._plan.poorer(plan)
        if poorer != self._plan:
            log.info("%s is asked so from now on: %s", self.name, poorer)
        self._plan = poorer

    def _ask(self, body: dict[str, Any], path: str) -> AsyncGenerator[Any, None]:
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            self._connections[loop] = openai_wire.Connections(
                self.url, self._key or "none", self._headers, self._timeout
            )
        return self._connections[loop].ask(path, body, self._timeout)

    # --- What comes back --------------------------------------------------------------------

    async def _call(self, request: Request, plan: Plan) -> AsyncGenerator[Piece, None]:
        """One attempt; samples that the server did not give are asked for one by one."""
        usage: _Usage | None = None
        samples: list[_Sample] = []
        if plan.many or request.n == 1:
            body, sent = plan.body(request, request.adapter or self.model)
            opened = self._opened and not plan.continues(request.prompt)
            samples = [
                _Sample(ThinkingSplitter(opened=opened), StopCutter(request.stop))
                for _ in range(request.n)
            ]
            async with aclosing(self._events(body, plan)) as events:
                async for event in events:
                    usage = _usage(event, usage, one=request.n == 1)
                    for choice in self._choices(event, plan):
                        piece = self._take(samples, choice, request, plan)
                        if piece:
                            if usage or sent:
                                counts = usage.counts if usage else None
                                piece = replace(piece, tokens=counts, sent=sent)
                            yield piece
                            sent = ""
                    if all(sample.cutter.hit for sample in samples):
                        break  # nothing to come is wanted
            rests = [sample.rest() for sample in samples]
            samples = self._finished(samples, plan)
            self._check_thinking(samples, usage, plan)
            if request.logprobs and any(s.wrote and not s.measured for s in samples):
                raise LMRefused(f"{self.name}: the server gives no log-probabilities.")
            for number, sample in enumerate(samples):
                last = number == len(samples) - 1
                yield Piece(
                    rests[number],
                    number,
                    sample.finish,
                    () if sample.cutter.hit else sample.logprobs,
                    usage.counts if usage and last else None,
                    sample.thinking,
                    sent,
                )
                sent = ""
        spent = usage.counts if usage else Tokens() if samples else Tokens(0, 0, 0)
        for number in range(len(samples), request.n):
            if plan.many:  # the server ignores `n`
                self._learn(replace(plan, many=False))
            seed = None if request.seed is None else request.seed + number
            counts = Tokens()
            async with aclosing(self.stream(replace(request, n=1, seed=seed))) as pieces:
                async for piece in pieces:
                    counts = piece.tokens or counts
                    yield replace(piece, index=number, tokens=together(spent, counts))
            spent = together(spent, counts)

    def _take(
        self, samples: Sequence[_Sample], choice: Any, request: Request, plan: Plan
    ) -> Piece | None:
        """What a chunk adds to its sample, once it is more than thinking."""
        index = _of(choice, "index") or 0
        if index not in range(len(samples)):
            raise self._failures.bad(f"sample {index!r} of {len(samples)} came, counted from 0")
        sample = samples[index]
        if sample.finish:  # what comes after a stop string
            return None
        logprobs = _logprobs(choice) if request.logprobs else ()
        written, thinking = _texts(choice, plan)
        if not (isinstance(written, str) and isinstance(thinking, str)):
            raise self._failures.bad(
                f"the text of a choice is no text: {self._failures.found(choice)}"
            )
        text = sample.take(written, thinking, logprobs)
        if sample.splitter.stray:
            raise self._failures.bad(
                "a lone </think> came, so what came before it was thinking and not the answer. "
                'Open the model with thinking="open"'
            )
        reason = _of(choice, "finish_reason")
        if reason and not sample.finish:
            sample.finish = self._finish(str(reason))
        if not text:
            return None
        piece = Piece(text, index, logprobs=sample.logprobs, thinking=sample.thinking)
        sample.thinking, sample.logprobs = "", ()
        return piece

    async def _events(self, body: dict[str, Any], plan: Plan) -> AsyncGenerator[Any, None]:
        """The reply's chunks, or the whole reply; waits `timeout` seconds in all."""
        path = "/chat/completions" if plan.chat else "/completions"
        fields = {**body, **body.pop("extra_body", {})}
        try:
            async with aclosing(self._ask(fields, path)) as events:
                async for event in events:
                    yield event
        except ValueError as failure:
            raise self._failures.bad(f"the reply is not JSON ({failure})") from failure

    def _choices(self, event: Any, plan: Plan) -> list[Any]:
        choices = _of(event, "choices")
        if isinstance(choices, list) and (choices or plan.stream):
            return choices
        if choices is None and plan.stream and _of(event, "usage"):
            return []
        held = "an empty list of choices" if choices == [] else self._failures.found(event)
        raise self._failures.bad(f"the reply holds no completion but {held}")

    def _finished(self, samples: list[_Sample], plan: Plan) -> list[_Sample]:
        """The samples that came; those at the end may be missing."""
        finished = [sample for sample in samples if sample.finish]
        broken = any(s.wrote or s.thought for s in samples if not s.finish)
        if not finished or broken:
            advice = ". If the server cannot stream, open the model with stream=False"
            raise self._failures.bad(
                "the reply ended without a finish reason"
                + (advice if plan.stream and not broken else "")
            )
        if finished != samples[: len(finished)]:
            raise self._failures.bad(f"of {len(samples)} samples some in the middle are missing")
        return finished

    def _check_thinking(self, samples: Sequence[_Sample], usage: _Usage | None, plan: Plan) -> None:
        """Learn that a model thinks; ask again when its thinking left no room to answer."""
        if plan.thinks or not (
            any(sample.thought for sample in samples) or (usage and usage.thinking)
        ):
            return
        better = replace(plan, thinks=True)
        if not any(sample.wrote for sample in samples):
            raise _AskAgain(better, usage.counts if usage else Tokens())
        self._learn(better)

    def _finish(self, reason: str) -> Finish:
        if reason in _FINISHES:
            return _FINISHES[reason]
        if reason == "content_filter":
            raise LMRefused(f"{self.name}: the server's content filter stopped the completion.")
        raise self._failures.bad(f"it ended for the unknown reason {reason!r}")


def _of(found: Any, name: str) -> Any:
    """A field of what should be an object; None when it is missing."""
    return found.get(name) if isinstance(found, dict) else None


def _texts(choice: Any, plan: Plan) -> tuple[Any, Any]:
    """Text and thinking of a choice, or of a chunk of one."""
    if not plan.chat:
        return _of(choice, "text") or "", ""
    part = _of(choice, "delta") or _of(choice, "message")  # the latter where all came at once
    thinking = _of(part, "reasoning_content") or _of(part, "reasoning")
    return _of(part, "content") or "", thinking or ""


def _logprobs(choice: Any) -> tuple[float, ...]:
    found = _of(choice, "logprobs")
    # llama.cpp gives completions the form of chat.
    of_tokens = _of(found, "content")
    values = [_of(token, "logprob") for token in of_tokens or ()]
    return tuple(values or _of(found, "token_logprobs") or ())


def _usage(event: Any, before: _Usage | None, *, one: bool) -> _Usage | None:
    """The counts so far, as every server words them; what is not told now stays as it was."""
    usage = _of(event, "usage")
    # llama.cpp's, which come with each chunk when asked for; they are one sample's.
    timings = _of(event, "timings") if one else None
    if usage is None and not isinstance(timings, dict):
        return before
    cached = _count(
        _of(_of(usage, "prompt_tokens_details"), "cached_tokens"),
        _of(usage, "prompt_cache_hit_tokens"),  # DeepSeek
        _of(usage, "cached_tokens"),  # Moonshot
    )
    prompt = _count(_of(usage, "prompt_tokens"))
    generated = _count(_of(usage, "completion_tokens"))
    if isinstance(timings, dict):
        hit, read = _count(timings.get("cache_n")), _count(timings.get("prompt_n"))
        cached = _count(cached, hit)
        # Without `cache_n` (until September 2025) the cached part is not known.
        prompt = _count(prompt, None if hit is None or read is None else hit + read)
        generated = _count(generated, timings.get("predicted_n"))
    written = _of(usage, "completion_tokens_details")
    old = before or _Usage(Tokens(), 0)
    return _Usage(
        Tokens(
            prompt=_count(prompt, old.counts.prompt),
            cached=_count(cached, old.counts.cached),
            generated=_count(generated, old.counts.generated),
        ),
        thinking=_count(_of(written, "reasoning_tokens"), old.thinking) or 0,
    )


def _count(*told: object) -> int | None:
    """The first that is a count; a number beyond all texts is none."""
    return next((n for n in told if type(n) is int and 0 <= n < 1 << 53), None)


def _is_openai(url: str) -> bool:
    """OpenAI's own service, or the same one hosted by Azure."""
    host = urlsplit(url).hostname or ""
    return host.endswith((".openai.com", ".openai.azure.com"))
