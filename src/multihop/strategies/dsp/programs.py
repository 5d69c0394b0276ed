"""The programs of the paper (section 3; appendix): demonstrate, search, predict.

Each is a function of a session and an example that holds its demonstrations, and each has an
attempt: the simpler run that fills in a training example, or gives up.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from multihop.metrics.answer import normalize
from multihop.retrievers.fusion import FUSIONS, Fuse
from multihop.strategies.dsp import prompts
from multihop.strategies.dsp.demonstrate import answer_match, supported
from multihop.strategies.dsp.example import Example, history
from multihop.strategies.dsp.predict import (
    Completion,
    Generated,
    generate,
    likeliest,
    majority,
)
from multihop.strategies.dsp.search import fused_retrieval, retrieve
from multihop.strategies.dsp.session import Session
from multihop.strategies.dsp.template import Template
from multihop.text import Json, Passage
from multihop.trace import LMCall, StopReason

ENOUGH = frozenset({"na", "n/a", "none", "n a"})
"""What the LM writes for a query when nothing is missing."""

ATTEMPT_K = 2
"""Passages of a search in an attempt (paper, section 2.2)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the paper sets; each program reads what concerns it.

    Attributes:
        k: Passages of a search (open-domain 7, conversational 5, each hop 5).
        max_passages: Most passages in one prompt of the multi-hop program (5).
        hops: Searches of the multi-hop program (2 for HotpotQA); with `variable` at most so many.
        variable: The LM may end the search with the query N/A.
        queries: Completions of a search step, whose queries are fused (10); 1 is greedy.
        chains: Completions that vote on the answer (20); 1 is greedy.
        fuse: How rankings become one.
        variant: "paper"; "notebook" is the multi-hop program of the first released notebook:
            the question is one more query, and each hop's context is the first summary and that
            hop's passages alone.
        max_tokens: Most tokens of a completion.
    """

    k: int = 5
    max_passages: int = 5
    hops: int = 2
    variable: bool = False
    queries: int = 10
    chains: int = 20
    fuse: str = "combsum_prob"
    variant: str = "paper"
    max_tokens: int = 150

    @property
    def fusion(self) -> Fuse:
        """The function of this name."""
        return FUSIONS[self.fuse]

    def to_dict(self) -> dict[str, Json]:
        """As JSON data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a program came to.

    Attributes:
        x: The example, with all stages.
        answer: Empty when no completion gave one.
        call: That which gave it.
        passages: What the last prompt showed.
        stop: Why the search ended.
        reason: Why there is no answer.
    """

    x: Example
    answer: str
    call: LMCall
    passages: tuple[Passage, ...] = ()
    stop: StopReason = "answered"
    reason: str = ""


Program = Callable[[Session, Example, Settings], Awaitable[Prediction]]


async def vanilla(session: Session, x: Example, settings: Settings) -> Prediction:
    """Answer from what the LM knows, after the training examples."""
    return await _answer(session, x, prompts.VANILLA, settings)


async def retrieve_then_read(session: Session, x: Example, settings: Settings) -> Prediction:
    """Search with the question once, read (1 passage; 2 for multi-hop questions)."""
    turns = [question for question, _ in history(x.question)]
    query = " ".join([*turns[:1], x.text("question")])
    x = x.having(context=await retrieve(session, query, settings.k))
    return await _answer(session, x, prompts.READ, settings)


async def openqa(session: Session, x: Example, settings: Settings) -> Prediction:
    """Search with the question once, let many chains of reasoning vote."""
    x = x.having(context=await retrieve(session, x.text("question"), settings.k))
    return await _answer(session, x, prompts.REASON, settings, n=settings.chains)


async def multihop(session: Session, x: Example, settings: Settings) -> Prediction:
    """Search hop by hop: each writes what it learned and what is to be found next."""
    question = x.text("question")
    found: list[tuple[Passage, ...]] = []
    notes: list[str] = []
    stop: StopReason = "answered"
    for hop in range(settings.hops):
        # Summary and queries, from what the hops before have brought.
        shown = _shared_out(found, settings.max_passages)
        step = await generate(
            session,
            _hop_template(hop, settings),
            x.having(context=shown) if hop else x,
            f"h{hop}",
            n=settings.queries,
            max_tokens=settings.max_tokens,
            logprobs=settings.queries > 1,
        )
        if not step.completions:  # no query was written: the question must do
            _tell(session, step, "")
            queries, summary = [question], ""
        else:
            best = (
                step.completions[0]
                if settings.variant == "notebook"
                else likeliest(session, step.completions)
            )
            number = _tell(session, step, _written(best))
            x = _reached(x.having(context=shown) if hop else x, f"h{hop}", best, [number])
            summary = best.fields["summary"]
            queries = [c.fields["query"] for c in step.completions]
            if settings.variable and hop and _enough(best.fields["query"]):
                notes.append(summary)
                break
            queries = [query for query in queries if not _enough(query)] or [question]
        if hop:  # the first hop's is a plan, it has seen nothing
            notes.append(summary)
        if settings.variant == "notebook":
            queries.append(question)
        found.append(await fused_retrieval(session, queries, settings.k, settings.fusion))
        if ended := session.budget.ended(session.steps):
            stop = ended
            break
    else:
        stop = "max_steps" if settings.variable else "answered"
    if settings.variant == "notebook":
        context = found[-1] if found else ()
    else:
        context = _shared_out(found, settings.max_passages)
    kept = tuple(note for note in notes if note)
    x = x.having(context=context, **({"notes": kept} if kept else {}))
    template = prompts.CONCLUDE if kept else prompts.REASON
    done = await _answer(session, x, template, settings, n=settings.chains)
    return replace(done, stop=stop)


async def convqa(session: Session, x: Example, settings: Settings) -> Prediction:
    """Rewrite the conversation's last question, many times, search with all and read."""
    question = x.text("question")
    turns = [asked for asked, _ in history(x.question)]
    queries = [" ".join([*turns[:1], question])]  # the simple one: first turn and last question
    if turns:
        step = await generate(
            session,
            prompts.REWRITE,
            x,
            "rewrite",
            n=settings.queries,
            max_tokens=settings.max_tokens,
        )
        first = step.completions[0] if step.completions else Completion({})
        number = _tell(session, step, _written(first))
        if step.completions:
            x = _reached(x, "rewrite", first, [number])
        queries += [c.fields["query"] for c in step.completions]
    found = await fused_retrieval(session, queries, settings.k, settings.fusion)
    template = prompts.REPLY if turns else prompts.READ
    return await _answer(session, x.having(context=found), template, settings)


PROGRAMS: Mapping[str, Program] = {
    "multihop": multihop,
    "openqa": openqa,
    "convqa": convqa,
    "retrieve_then_read": retrieve_then_read,
    "vanilla": vanilla,
}

DEFAULTS: Mapping[str, Settings] = {
    "multihop": Settings(),
    "openqa": Settings(k=7),
    "convqa": Settings(chains=1),
    "retrieve_then_read": Settings(k=1, chains=1),
    "vanilla": Settings(chains=1),
}
"""The paper's settings of each program."""

BOOTSTRAPPED = frozenset({"multihop", "openqa", "convqa"})
"""Programs whose demonstrations are filled in by `annotate`; the others show raw ones."""


# --- Attempts -------------------------------------------------------------------------------


async def attempt(session: Session, program: str, x: Example, settings: Settings) -> Example | None:
    """Run a program on a training example as demonstrations are made (section 2.2).

    Greedy, without votes, two passages a search, raw demonstrations alone. It gives up when no
    passage can hold the answer, and when the prediction is wrong.
    """
    plain = replace(settings, k=ATTEMPT_K, queries=1, chains=1)
    done = await PROGRAMS[program](session, x, plain)
    found = [p for step in done.x.stages.values() for p in _passages(step.fields)]
    if not supported(found, x):
        return None
    return done.x if done.answer and answer_match(done.answer, x.answers) else None


def _passages(fields: Mapping[str, object]) -> list[Passage]:
    context = fields.get("context", ())
    return [p for p in context if isinstance(p, Passage)] if isinstance(context, tuple) else []


# --- Parts of programs ------------------------------------------------------------------------


async def _answer(
    session: Session, x: Example, template: Template, settings: Settings, *, n: int = 1
) -> Prediction:
    """The last step: one greedy answer, or the most frequent of many."""
    step = await generate(session, template, x, "qa", n=n, max_tokens=settings.max_tokens)
    for call in step.calls[:-1]:  # the last is the answer's own
        session.think("", call)
    call, context = step.calls[-1], x.passages()
    if not step.completions:
        why = f"No completion reached {template.last.prefix!r}."
        return Prediction(x, "", call, context, reason=why)
    best = majority(step.completions)
    x = _reached(x, "qa", best, [len(session.steps)])
    if not normalize(best.last):
        return Prediction(x, "", call, context, reason="The answer has no word.")
    return Prediction(x, best.last, call, context)


def _reached(x: Example, stage: str, best: Completion, steps: Sequence[int]) -> Example:
    """The example after a stage, which keeps all that its prompt showed."""
    shown = {name: value for name, value in x.fields.items() if name != "answers"}
    return x.at(stage, {**shown, **best.fields}, steps)


def _tell(session: Session, step: Generated, text: str) -> int:
    """Put a step's calls into the stream, the text with the last; gives its number."""
    for call in step.calls[:-1]:
        session.think("", call)
    return session.think(text, step.calls[-1])


def _written(completion: Completion) -> str:
    return " \u2192 ".join(completion.fields.values())


def _hop_template(hop: int, settings: Settings) -> Template:
    if not hop:
        return prompts.FIRST_HOP
    return prompts.NEXT_HOP_OR_STOP if settings.variable else prompts.NEXT_HOP


def _enough(query: str) -> bool:
    return query.strip().lower().strip(".") in ENOUGH


def _shared_out(found: Sequence[Sequence[Passage]], most: int) -> tuple[Passage, ...]:
    """The best passages of every hop, none twice; later hops get what does not divide evenly.

    Of two hops and five passages, two and three (paper, section 3).
    """
    shown: dict[str, Passage] = {}
    hops = len(found)
    for number, passages in enumerate(found):
        share = most // hops + (number >= hops - most % hops)
        new = [p for p in passages if p.id not in shown][:share]
        shown.update((p.id, p) for p in new)
    return tuple(shown.values())
