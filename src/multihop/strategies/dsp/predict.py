"""Predict: completions of a template, and the choice among them (section 2.4)."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from multihop.lms.base import Prompt, Reply, Request, chat_text, complete
from multihop.metrics.answer import normalize
from multihop.prompts.window import shrink_max_tokens
from multihop.strategies.dsp.example import Example, Value
from multihop.strategies.dsp.session import Session
from multihop.strategies.dsp.template import Template
from multihop.text import Passage
from multihop.trace import LMCall

SAMPLING = 0.7
"""Temperature of several completions (paper, section 2.4)."""

CONTINUED = 2
"""Most times that a completion which misses fields is asked for the rest."""

FEWEST = 75
"""Tokens that such a continuation gets at least."""

SPARE_TOKENS = 32
"""Kept free in a window beside prompt and completion, for a chat's own tokens."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion as fields.

    Attributes:
        fields: What it gives, in the template's order.
        logprob: Mean log-probability of its tokens; None where the backend tells none.
    """

    fields: dict[str, str]
    logprob: float | None = None

    @property
    def last(self) -> str:
        """The last field's value; empty when there is none."""
        return next(reversed(self.fields.values()), "")


@dataclass(frozen=True, slots=True)
class Generated:
    """What came of one step of the LM.

    Attributes:
        completions: Those that reach the last field, in order; none when nothing did.
        calls: All calls that were made, in order; the last gave the completions.
        longest: Where none reaches the last field, what was given at most.
    """

    completions: tuple[Completion, ...]
    calls: tuple[LMCall, ...]
    longest: dict[str, str] = field(default_factory=dict)


async def generate(
    session: Session,
    template: Template,
    x: Example,
    stage: str,
    *,
    n: int = 1,
    temperature: float | None = None,
    max_tokens: int = 150,
    logprobs: bool = False,
) -> Generated:
    """Ask the LM to fill in a template, `n` times in one request.

    Of several completions those with the most fields count. If none reaches the last field, the
    first of the longest is written into the prompt and the rest asked for, greedily, at most
    twice; what is then still missing is told by a result without completions.

    Args:
        session: The LM, and the branch.
        template: What is asked.
        x: Whose question; holds the demonstrations.
        stage: Name of the step.
        n: Completions wanted.
        temperature: None is the session's for one (0 outside a branch), 0.7 for several.
        max_tokens: Most tokens of each.
        logprobs: Ask for log-probabilities.
    """
    template = template.of(x)
    if temperature is None:
        temperature = session.temperature if n == 1 else max(session.temperature, SAMPLING)
    reply = await _ask(session, template, x, stage, n, temperature, max_tokens, logprobs=logprobs)
    calls = [reply.call]
    found = [
        Completion(
            template.read(sample.text, x),
            sum(sample.logprobs) / len(sample.logprobs) if sample.logprobs else None,
        )
        for sample in reply.samples
    ]
    whole = tuple(c for c in found if template.last.name in c.fields)
    if whole:
        return Generated(whole, tuple(calls))

    session.counts["incomplete"] += 1
    longest = max(found, key=lambda c: len(c.fields)).fields
    for _ in range(CONTINUED):
        session.counts["continued"] += 1
        filled = x.having(**longest)
        room = min(max_tokens, max(FEWEST, max_tokens // 2))
        reply = await _ask(session, template, filled, stage, 1, 0.0, room)
        calls.append(reply.call)
        longest = {**longest, **template.read(reply.text, filled)}
        if template.last.name in longest:
            return Generated((Completion(longest),), tuple(calls))
    return Generated((), tuple(calls), longest)


async def _ask(  # noqa: PLR0917 - the step's own numbers, in its order
    session: Session,
    template: Template,
    x: Example,
    stage: str,
    n: int,
    temperature: float,
    max_tokens: int,
    *,
    logprobs: bool = False,
) -> Reply:
    prompt, room, warnings = await _fitted(session, template, x, stage, max_tokens)
    sampled = temperature > 0
    request = Request(
        prompt,
        max_tokens=room,
        stop=template.stops(),
        temperature=temperature,
        n=n,
        seed=session.seed_for(stage) if sampled else None,
        logprobs=logprobs,
        adapter=session.adapter,
        role=stage,
    )
    reply = await complete(session.lm, request)
    warned = replace(reply.call, warnings=(*reply.call.warnings, *warnings))
    return replace(reply, call=warned)


async def _fitted(
    session: Session, template: Template, x: Example, stage: str, max_tokens: int
) -> tuple[Prompt, int, tuple[str, ...]]:
    """A prompt that fits the window: demonstrations go, raw ones first, then passages.

    Both from the end; the question never.
    """
    raw = [demo for demo in x.demos if not demo.augmented]
    augmented = [demo for demo in x.demos if demo.augmented]
    passages = _cut(session, x.passages())
    whole = len(raw) + len(augmented), len(passages)

    def made() -> Prompt:
        shown = replace(x, demos=()).having(context=tuple(passages)) if whole[1] else x
        demos = [_cut_demo(session, demo) for demo in (*augmented, *raw)]
        return template.of(shown).prompt(shown, demos, stage)

    prompt, room = made(), max_tokens
    if (window := session.lm.window) is not None:
        while (size := await _size(session, prompt)) + max_tokens + SPARE_TOKENS > window:
            for pile in (raw, augmented, passages):
                if pile:
                    pile.pop()
                    break
            else:
                room = shrink_max_tokens(size + SPARE_TOKENS, max_tokens, window)
                break
            prompt = made()
    lost = (whole[0] - len(raw) - len(augmented), whole[1] - len(passages))
    warnings = []
    for count, all_of, what in zip(lost, whole, ("demonstrations", "passages"), strict=True):
        if count:
            session.counts[f"{what}_dropped"] += count
            warnings.append(f"{count} of {all_of} {what} did not fit.")
    return prompt, room, tuple(warnings)


async def _size(session: Session, prompt: Prompt) -> int:
    longer = max(prompt.text, chat_text(prompt.turns), key=len)
    [size] = await session.lm.count_tokens([longer])
    return size


def _cut(session: Session, passages: Sequence[Passage]) -> list[Passage]:
    if session.words is None:
        return list(passages)
    return [replace(p, text=" ".join(p.text.split()[: session.words])) for p in passages]


def _cut_demo(session: Session, demo: Example) -> Example:
    stages = {
        name: replace(stage, fields={k: _cut_value(session, v) for k, v in stage.fields.items()})
        for name, stage in demo.stages.items()
    }
    return replace(demo, stages=stages)


def _cut_value(session: Session, value: Value) -> Value:
    if isinstance(value, tuple) and value and isinstance(value[0], Passage):
        return tuple(_cut(session, [p for p in value if isinstance(p, Passage)]))
    return value


# --- Choosing ---------------------------------------------------------------------------------


def majority(completions: Sequence[Completion], name: str | None = None) -> Completion:
    """The first completion that has the most frequent value, values normalised.

    Values without a word count only when all are so. Of equally frequent values that seen first
    wins.

    Args:
        completions: At least one.
        name: Of the field; None is the last.
    """
    values = [normalize(c.last if name is None else c.fields.get(name, "")) for c in completions]
    counts = Counter(value for value in values if value) or Counter(values)
    # most_common keeps the order of first sight among equals.
    [(winner, _)] = counts.most_common(1)
    return completions[values.index(winner)]


def likeliest(session: Session, completions: Sequence[Completion]) -> Completion:
    """The completion with the largest mean log-probability.

    Without log-probabilities the first, which is counted as "without_logprobs".
    """
    told = [c for c in completions if c.logprob is not None]
    if not told:
        session.counts["without_logprobs"] += 1
        return completions[0]
    return max(told, key=lambda c: c.logprob if c.logprob is not None else 0.0)


async def branch(
    session: Session,
    program: Callable[[Session, Example], Awaitable[Example]],
    x: Example,
    n: int,
    temperature: float = SAMPLING,
) -> list[Example]:
    """Run a whole program `n` times with other samples; they run at once.

    Branches are numbered from 1 in every call, and the number enters all seeds: the same call
    gives the same again.
    """
    runs = (program(session.branched(i, temperature), x) for i in range(1, n + 1))
    return list(await asyncio.gather(*runs))


async def compare(
    session: Session, template: Template, x: Example, candidates: Sequence[str], k: int = 4
) -> tuple[str, Generated | None]:
    """Let the LM pick among the most frequent candidates.

    Args:
        session: The LM.
        template: Has a field `options` and, last, `choice`, which is to name one by its letter.
        x: Whose question.
        candidates: In any number, with repeats.
        k: Most options shown.

    Returns:
        The pick, and the call's outcome; None when there was nothing to choose. A choice that
        names no option counts as "no_choice" and gives the most frequent.
    """
    counts = Counter(normalize(c) for c in candidates if normalize(c))
    first = {normalize(c): c for c in reversed(candidates)}
    options = [first[value] for value, _ in counts.most_common(k)]
    if len(options) < 2:
        return (options[0] if options else ""), None
    shown = tuple(f"({chr(65 + i)}) {text}" for i, text in enumerate(options))
    made = await generate(session, template, x.having(options=shown), "compare", max_tokens=20)
    told = made.completions[0].last if made.completions else ""
    for number, text in enumerate(options):
        letter = chr(65 + number)
        if told.strip("()., ").upper() == letter or told.startswith(f"({letter})"):
            return text, made
    named = [text for text in options if normalize(text) == normalize(told)]
    if not named:
        session.counts["no_choice"] += 1
    return (named or options)[0], made
