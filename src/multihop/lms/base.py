"""What a strategy may ask of a language model, and what it gets back.

A backend is one class with `stream`; everything else here is a function over it. Retries,
caching, batching and logging are wrappers with the same protocol.
"""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from multihop.errors import BadCompletion
from multihop.trace import LMCall, Tokens

Speaker = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length", "cut"]
"""Why a completion ended: the model or a stop string ended it; `max_tokens` did; or the
caller had enough and closed the stream."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a chat."""

    speaker: Speaker
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """The same request in two forms; a backend sends the one that its model takes.

    Attributes:
        text: For completion models, to the byte.
        turns: For chat models: demonstrations as turns, the test example last. When the last
            turn is the assistant's, it is an unfinished answer that the model continues.
            Empty when a prompt has no chat form: chat backends then send `text` as one turn.
        ask_next: Appended to the last user turn by chat backends that cannot continue an
            assistant turn, with that turn's text in place of `{chain}`.
        shared: How many characters at the beginning of `text` come again in other prompts
            (the demonstrations). A backend may keep them evaluated; it never changes the text.
        ids: Token ids of the first `covered` characters, as they were evaluated or written
            before. What a model has written is not always what its tokenizer makes of the text;
            a backend that reads them (`slotted`) goes on from its own tokens.
        covered: How many characters of `text` the ids stand for.
    """

    text: str
    turns: tuple[Turn, ...] = ()
    ask_next: str = "{chain}"
    shared: int = 0
    ids: tuple[int, ...] = ()
    covered: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One call.

    Attributes:
        prompt: What to continue.
        max_tokens: Most tokens to generate, at least 1.
        stop: Generation ends before any of these; they are not part of the text.
        temperature: 0 is greedy.
        top_p: Nucleus; 1 is off.
        n: Samples wanted of the same prompt.
        seed: Makes sampling repeatable where the backend can.
        logprobs: Ask for the log-probability of each generated token.
        adapter: Name of a LoRA adapter that the backend has loaded; None is the base model.
        role: What the call is for ("reason", "read", "titles"). Backends may keep a key-value
            cache per role; it never changes the text.
        enough: Name of the rule by which the caller will close the stream ("first sentence,
            light"); empty when it has none. It tells a cache what a cut text is good for.
    """

    prompt: Prompt
    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    n: int = 1
    seed: int | None = None
    logprobs: bool = False
    adapter: str | None = None
    role: str = "reason"
    enough: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """The next part of a streamed completion.

    Attributes:
        text: What was added to sample `index`; may be empty.
        index: Which of the `n` samples.
        finish: Set on a sample's last piece.
        logprobs: One per generated token in this piece, natural log, when asked for.
        tokens: Counts of the whole call so far, where told; the newest counts. A backend that
            can gives them with every piece, so that a stream closed early has them too; the
            others on the last piece of the stream.
        thinking: What a thinking model wrote before its answer; never part of `text`.
        sent: The prompt as it went out, when that is not `prompt.text`; on the first piece.
        retries: Failed attempts before this stream began; on the first piece. A backend may
            tell of each at once, with an empty piece before it waits. A server that wanted to
            be asked otherwise has not failed.
        warnings: What could not be asked as wanted, in words; on the first piece.
        ids: Token ids of `text`, where the backend tells them.
        prompt_ids: Token ids of the prompt, on a sample's first piece, where the backend tells.
        fused: Read from an earlier call's stream instead of asked for; on every piece. Where the
            rest had to be asked for after all, its pieces are not, and so the call is not: the
            text read before was then compared with that of its own request.
        replayed: Read from a cache instead of asked for; on the first piece. `tokens` is then
            what the call cost when it was made.
    """

    text: str
    index: int = 0
    finish: Finish | None = None
    logprobs: tuple[float, ...] = ()
    tokens: Tokens | None = None
    thinking: str = ""
    sent: str = ""
    retries: int = 0
    warnings: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    fused: bool = False
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished sample."""

    text: str
    finish: Finish
    logprobs: tuple[float, ...] = ()
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """Everything a call gave.

    Attributes:
        samples: `n` completions, in order; never fewer.
        call: The record that goes into the trace.
    """

    samples: tuple[Completion, ...]
    call: LMCall

    @property
    def text(self) -> str:
        """The first sample's text."""
        return self.samples[0].text


@runtime_checkable
class LanguageModel(Protocol):
    """Continues prompts.

    Attributes:
        name: As a user would name it, "openai:gpt-5@URL"; goes into every record.
        window: Tokens that prompt and completion may take together; None when unknown.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def window(self) -> int | None: ...  # noqa: D102

    def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Generate, piece by piece.

        Closing the generator ends generation, at the server too. A backend that cannot
        stream yields one piece a sample.

        Raises:
            LMUnavailable: Nobody answers, after bounded retries.
            LMRefused: Wrong key, model or request.
            ContextTooLong: Prompt and `max_tokens` exceed the window.
            BadCompletion: The reply breaks the protocol, or ended before its last piece.
        """
        ...

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, without special tokens.

        An estimate, rather high than low, where the backend has no tokenizer at hand.
        """
        ...

    async def aclose(self) -> None:
        """Free what the model holds. Calling it twice is harmless."""
        ...


@dataclass
class _Sample:
    text: str = ""
    thinking: str = ""
    finish: Finish | None = None
    logprobs: list[float] = field(default_factory=list)


async def complete(
    lm: LanguageModel,
    request: Request,
    *,
    until: Callable[[str], bool] | None = None,
) -> Reply:
    """Run one call to its end, or until its text is enough.

    Args:
        lm: Who answers.
        request: What is asked.
        until: Told the text so far after every piece; True closes the stream. For `n == 1`.

    Raises:
        BadCompletion: The stream ended without saying that a sample is finished.
    """
    began = time.perf_counter()
    samples = [_Sample() for _ in range(request.n)]
    tokens, sent, retries = Tokens(), "", 0
    fused = replayed = False
    warnings: tuple[str, ...] = ()
    async with aclosing(lm.stream(request)) as pieces:
        async for piece in pieces:
            sample = samples[piece.index]
            sample.text += piece.text
            sample.thinking += piece.thinking
            sample.logprobs += piece.logprobs
            sample.finish = piece.finish or sample.finish
            tokens, sent = piece.tokens or tokens, piece.sent or sent
            retries, warnings = max(retries, piece.retries), piece.warnings or warnings
            fused, replayed = piece.fused, replayed or piece.replayed
            if until and not sample.finish and piece.text:
                try:
                    had_enough = until(sample.text)
                except Exception as failure:  # closed, the stream would pass for one that is enough
                    await pieces.athrow(failure)
                    raise
                if had_enough:
                    sample.finish = "cut"
                    break
    for number, sample in enumerate(samples):
        if sample.finish is None:
            raise BadCompletion(
                f"{lm.name}: the stream of sample {number} broke off after "
                f"{len(sample.text)} characters without a finish reason."
            )
    done = tuple(
        Completion(s.text, s.finish or "stop", tuple(s.logprobs), s.thinking) for s in samples
    )
    call = LMCall(
        role=request.role,
        model=lm.name,
        adapter=request.adapter,
        prompt=sent or request.prompt.text,
        outputs=tuple(c.text for c in done),
        finishes=tuple(c.finish for c in done),
        thinking="".join(c.thinking for c in done),
        max_tokens=request.max_tokens,
        stop=request.stop,
        temperature=request.temperature,
        seed=request.seed,
        tokens=tokens,
        seconds=time.perf_counter() - began,
        retries=retries,
        fused=fused,
        replayed=replayed,
        warnings=warnings,
    )
    return Reply(done, call)


def chat_text(turns: Sequence[Turn]) -> str:
    """Turns as one readable text, for records of what was sent."""
    return "\n\n".join(f"[{turn.speaker}]\n{turn.text}" for turn in turns)
