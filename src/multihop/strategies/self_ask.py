"""Self-ask: follow-up questions, each answered before the next (Press et al., 2022)."""

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from multihop.prompts.transcript import Example, TranscriptForm
from multihop.prompts.worked import Worked
from multihop.retrievers.base import Retriever
from multihop.strategies.budget import Budget
from multihop.strategies.collect import dead_end, look_up
from multihop.strategies.replies import bare, first_line, stated_in
from multihop.strategies.rules import repeats
from multihop.strategies.writing import FORCED_TOKENS, Writer
from multihop.text import Json, Question
from multihop.trace import Answer, Step, StopReason, Thought

NEEDED = "Are follow up questions needed here:"
FOLLOW_UP = "Follow up:"
INTERMEDIATE = "Intermediate answer:"
FINAL = "So the final answer is:"
UNKNOWN = "unknown"
"""Stands in the transcript where the reader wrote no intermediate answer."""

TURN_TOKENS = 96
"""Most tokens of one follow-up question or of the final answer."""

SYSTEM = (
    f"Answer the question by asking smaller ones. Write '{NEEDED} Yes.', then on a new line "
    f"'{FOLLOW_UP}' and a question that can be looked up. You are then told its "
    f"'{INTERMEDIATE}'. Ask on until the answer is known; then write '{FINAL}' and the bare answer."
)

_FOLLOW_UP = re.compile(r"follow[\s-]?up(?:[\s-]question)?(?:\s*\d+)?\s*:", re.IGNORECASE)
_FINAL = re.compile(r"\bfinal answer(?:\s+is\b\s*:?|\s*:)", re.IGNORECASE)
_INTERMEDIATE = re.compile(r"intermediate answer\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class SelfAsk:
    """Ask, look up, ask on.

    Paper, section 3 and figure 5: the LM says whether follow-up questions are needed and writes
    one; it is stopped where it would answer it, a search engine answers instead, and so on until
    the LM writes the final answer. Here passages are searched, and a reader that sees what one
    follow-up question brought writes its answer.

    Attributes:
        retriever: Finds passages.
        writer: Asks the LM. With a reader other than "none" the final answer is read afresh from
            all passages; the paper has none.
        hop_reader: The same LM as a reader of single hops.
        form: The prompt.
        k: Passages fetched per follow-up question.
        max_steps: Most follow-up questions.
        max_passages: Most passages collected over all of them.
        patience: Searches in a row that bring nothing new before the final answer is asked for.
        budget: What a question may cost; at its end the final answer is still asked for.
    """

    retriever: Retriever
    writer: Writer
    hop_reader: Writer
    form: TranscriptForm
    k: int = 4
    max_steps: int = 8
    max_passages: int = 15
    patience: int = 3
    budget: Budget = field(default_factory=Budget)
    name: str = "self-ask"

    @property
    def settings(self) -> dict[str, Json]:
        """Everything that decides the result."""
        return {
            **self.writer.settings,
            "form": self.form.digest(),
            "hop_demonstrations": self.hop_reader.demonstrations.digest(),
            "retriever": self.retriever.name,
            "k": self.k,
            "max_steps": self.max_steps,
            "max_passages": self.max_passages,
            "patience": self.patience,
            **self.budget.settings,
        }

    async def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question."""
        collected = self.writer.collecting(self.max_passages, question.pinned)
        asked: list[str] = []
        taken: list[Step] = []
        transcript, answer = NEEDED, ""
        stop: StopReason | None = None

        while stop is None:
            # Ask: the LM writes a follow-up question, or the final answer.
            reply = await self.writer.go_on(
                lambda _: self.form.prompt(f"Question: {question.text.strip()}", transcript),  # noqa: B023 - asked at once
                role="self-ask",
                stop=(f"\n{INTERMEDIATE}", "\nQuestion:"),
                max_tokens=TURN_TOKENS,
            )
            follow_up, answer = heard(reply.text)
            if not follow_up:
                yield Thought(f"{FINAL} {answer}" if answer else reply.text.strip(), reply.call)
                stop = "answered" if answer else "no_gain" if reply.text.strip() else "empty"
                break
            thought = Thought(follow_up, reply.call, kind="follow-up")
            yield thought
            asked.append(follow_up)
            taken.append(thought)
            if repeats(asked):
                stop = "no_gain"
                break

            # Answer: what the follow-up question finds is read for it alone.
            search = await look_up(self.retriever, follow_up, self.k, collected)
            yield search
            read = await self.hop_reader.read(
                replace(question, text=follow_up),
                [hit.passage for hit in search.hits],
                "answered",
            )
            intermediate = Thought(read.text, read.call, kind="intermediate answer")
            yield intermediate
            yes = " Yes." if transcript == NEEDED else ""
            transcript += f"{yes}\n{FOLLOW_UP} {follow_up}\n{INTERMEDIATE} {read.text or UNKNOWN}"

            taken += [search, intermediate]
            stop = (
                ("max_steps" if len(asked) >= self.max_steps else None)
                or dead_end(taken, self.patience, self.max_passages)
                or self.budget.ended(taken)
            )

        if self.writer.reader != "none":
            yield await self.writer.read(question, collected.passages, stop)
            return
        if answer:
            yield Answer(answer, stop, tuple(collected.passages))
            return
        # The final answer is asked for where none was written.
        reply = await self.writer.go_on(
            lambda _: self.form.prompt(
                f"Question: {question.text.strip()}", f"{transcript}\n{FINAL}"
            ),
            role="self-ask",
            max_tokens=FORCED_TOKENS,
        )
        answer = bare(reply.text)
        reason = "" if answer else "The model wrote no final answer when asked for it."
        yield Answer(answer, stop, tuple(collected.passages), reply.call, reason=reason)


def heard(written: str) -> tuple[str, str]:
    """What the LM asks next, or its final answer; both empty where there is neither.

    The first tag counts, and what stands behind it on its line or on the next one. Without a tag
    an answer stated in prose is one, and a line that ends in a question mark is a question.
    """
    text = _INTERMEDIATE.split(written)[0]  # from there on it answers itself
    follow_up, final = _FOLLOW_UP.search(text), _FINAL.search(text)
    if follow_up and (not final or follow_up.start() < final.start()):
        question = first_line(text[follow_up.end() :])
        if question:
            return question, ""
    if final:
        return "", bare(text[final.end() :])
    if answer := stated_in(text):
        return "", answer
    questions = [line.strip() for line in text.splitlines() if line.strip().endswith("?")]
    return (questions[0].rpartition(": ")[2] if questions else ""), ""


def self_ask_form(worked: Sequence[Worked]) -> TranscriptForm:
    """The prompt with demonstrations of worked questions."""
    examples = []
    for example in worked:
        hops = "".join(
            f"{FOLLOW_UP} {hop.question}\n{INTERMEDIATE} {hop.answer}\n" for hop in example.hops
        )
        written = f"{NEEDED} Yes.\n{hops}{FINAL} {example.answer}"
        examples.append(Example(f"Question: {example.question}", written))
    return TranscriptForm(SYSTEM, tuple(examples))
