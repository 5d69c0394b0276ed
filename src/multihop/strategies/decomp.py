"""DecomP for open-domain questions: a decomposer and its handlers (Khot et al., 2022)."""

import json
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from multihop.prompts.transcript import Example, TranscriptForm
from multihop.prompts.worked import Worked
from multihop.retrievers.base import Retriever
from multihop.strategies.budget import Budget
from multihop.strategies.collect import dead_end, look_up
from multihop.strategies.replies import first_line, stated_in
from multihop.strategies.rules import repeats
from multihop.strategies.writing import Writer
from multihop.text import Json, Passage, Question
from multihop.trace import Answer, Step, StopReason, Thought

RETRIEVE = "retrieve_odqa"
SINGLE = "singlehop_titleqa"
MULTI = "multihop_titleqa"
END = "[EOQ]"
"""End of questions: the last answer is the answer."""

FEW = 5
"""Most questions that one step becomes when it is put for each value of an answer."""

TURN_TOKENS = 96
"""Most tokens of one step of the decomposer."""

SYSTEM = (
    f"Break the question into smaller ones. Write one step a line: 'QS: (select) [{RETRIEVE}]' and "
    "a question that can be looked up, with #1, #2 for the answers of earlier steps. You are then "
    f"told its answer. When all is known, write 'QS: (select) [{MULTI}]' and the whole question, "
    f"then 'QS: {END}'."
)

Handler = Literal["retrieve", "single", "multi", "end"]

_HANDLERS: dict[str, Handler] = {
    **dict.fromkeys((RETRIEVE, "retrieve", "odqa", "search"), "retrieve"),
    **dict.fromkeys((SINGLE, "singlehop_rcqa", "singlehop_qa", "qa"), "single"),
    **dict.fromkeys((MULTI, "multihop_rcqa", "multihop_qa"), "multi"),
    "eoq": "end",
}
"""The release's names and the paper's."""

_STEP = re.compile(r"^\W*(?:QS?\s*:)?\s*(?:\((\w+)\))?\s*\[\s*(\w+)\s*\]\s*(.*)$", re.IGNORECASE)
_TAG = re.compile(r"^\s*(?:Q[SC]?|A)\s*:\s*|^\s*\(\w+\)\s*", re.IGNORECASE)
_TITLES = re.compile(r"^Titles:\s*\[.*?\]\.?\s*", re.IGNORECASE)
_QUESTION = re.compile(r"^Question:\s*", re.IGNORECASE)
_REFERENCE = re.compile(r"#(\d+)")


@dataclass(frozen=True, slots=True)
class Sub:
    """A step of the decomposer.

    Attributes:
        handler: Who is asked.
        question: What; with #1, #2 for earlier answers.
        each: It is put once for each value of the first answer that it names, and the answers
            are joined.
        unique: Of these answers each is kept once.
    """

    handler: Handler
    question: str
    each: bool = False
    unique: bool = False


@dataclass(frozen=True)
class DecomP:
    """Write a step, give it to its handler, write the next.

    Paper, section 4.4 and figure 9: the decomposer writes sub-questions one at a time. Each goes
    to `retrieve_odqa`, which searches and reads an answer from what it found; later ones name
    earlier answers. In the end `multihop_titleqa` answers the whole question from all passages.

    Attributes:
        retriever: Finds passages.
        writer: Asks the LM; its reader answers the whole question, direct or by reasoning as in
            the paper.
        hop_reader: The same LM as a reader of single hops.
        form: The decomposer's prompt.
        k: Passages fetched per sub-question (paper: tuned over 2, 4, 6).
        max_steps: Most steps of the decomposer (release 8).
        max_passages: Most passages collected over all of them.
        patience: Searches in a row that bring nothing new before the whole question is read.
        budget: What a question may cost; at its end the whole question is still read.
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
    name: str = "decomp"

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
        transcript, found = "QS:", list(collected.passages)
        answers: list[tuple[str, ...]] = []
        asked: list[str] = []
        taken: list[Step] = []
        stop: StopReason | None = None

        while stop is None:
            # Decompose: the LM writes the next step.
            reply = await self.writer.go_on(
                lambda _: self.form.prompt(f"QC: {question.text.strip()}", transcript),  # noqa: B023 - asked at once
                role="decompose",
                max_tokens=TURN_TOKENS,
            )
            written = first_line(reply.text)
            sub = step_in(written)
            thought = Thought(written, reply.call, kind="follow-up")
            yield thought
            taken.append(thought)
            if sub is None:
                if answer := stated_in(written):  # said in prose instead of asked for
                    yield Answer(answer, "answered", tuple(collected.passages))
                    return
                stop = "no_gain" if written else "empty"
                break
            if sub.handler == "end":
                if answers and (answer := ", ".join(answers[-1])):
                    yield Answer(answer, "answered", tuple(collected.passages))
                    return
                stop = "answered"  # by whoever reads the whole
                break
            if sub.handler == "multi":
                stop = "answered"
                break
            questions = [q for q in filled(sub, answers) if q]
            asked.append(" ".join([sub.handler, *questions]))
            if repeats(asked) or not questions:
                stop = "no_gain"
                break

            # Handle: search, and read what was found for this question alone.
            values: list[str] = []
            for each in questions:
                if sub.handler == "retrieve":
                    search = await look_up(self.retriever, each, self.k, collected)
                    yield search
                    taken.append(search)
                    found = [hit.passage for hit in search.hits]
                read = await self.hop_reader.read(replace(question, text=each), found, "answered")
                values += [v for v in listed(read.text) if not (sub.unique and v in values)]
                answer_read = Thought(read.text, read.call, kind="intermediate answer")
                yield answer_read
                taken.append(answer_read)
            answers.append(tuple(values))
            transcript += f" {written}\nA: {_told(found, values)}\nQS:"
            stop = (
                ("max_steps" if len(asked) >= self.max_steps else None)
                or dead_end(taken, self.patience, self.max_passages)
                or self.budget.ended(taken)
            )

        # The whole question is read from everything found, also where the decomposer gave up.
        yield await self.writer.read(question, collected.passages, stop)


def step_in(written: str) -> Sub | None:
    """The step that a line says, or None.

    A handler that is not known, and a question without one, are looked up: that is what nearly
    every step does.
    """
    line = first_line(written)
    if END.lower() in line.lower() and line.lower().index(END.lower()) < 20:
        return Sub("end", "")
    matched = _STEP.match(line)
    if not matched:
        bare = _TAG.sub("", _TAG.sub("", line)).strip()
        return Sub("retrieve", bare) if bare.endswith("?") else None
    operator, name, rest = (matched[1] or "").lower(), matched[2].lower(), matched[3].strip()
    rest = _QUESTION.sub("", _TITLES.sub("", rest)).strip()
    handler = _HANDLERS.get(name, "retrieve")
    if not rest and handler != "multi":
        return None
    each = operator.startswith(("project", "foreach"))
    return Sub(handler, rest, each, each and operator.endswith(("unique", "merge")))


def filled(sub: Sub, answers: Sequence[Sequence[str]]) -> list[str]:
    """The questions of a step, with earlier answers in the place of #1, #2.

    A reference to an answer that there is not, or that is empty, leaves no question.
    """
    numbers = [int(number) - 1 for number in _REFERENCE.findall(sub.question)]
    if any(not (0 <= n < len(answers)) or not any(answers[n]) for n in numbers):
        return []

    def put(first: str | None) -> str:
        def value(reference: re.Match[str]) -> str:
            number = int(reference[1]) - 1
            if first is not None and number == numbers[0]:
                return first
            return ", ".join(answers[number])

        return _REFERENCE.sub(value, sub.question)

    if sub.each and numbers:
        return [put(value) for value in list(answers[numbers[0]])[:FEW]]
    return [put(None)]


def listed(text: str) -> tuple[str, ...]:
    """The values of a reader's answer: a JSON list, or the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        bare = text.strip().strip("[]").strip('"').strip()
        return (bare,) if bare else ()
    except RecursionError:
        return ()
    values = value if isinstance(value, list) else [text]
    return tuple(str(v).strip() for v in values if str(v).strip())


def _told(found: Sequence[Passage], values: Sequence[str]) -> str:
    titles = list(dict.fromkeys(passage.title for passage in found))
    return json.dumps({"titles": titles, "answer": list(values)}, ensure_ascii=False)


def decomp_form(worked: Sequence[Worked]) -> TranscriptForm:
    """The decomposer's prompt with demonstrations of worked questions.

    Where a hop's question names the answer of an earlier one, that is written #1, #2.
    """
    examples = []
    for example in worked:
        lines: list[str] = []
        answers: list[str] = []
        for hop in example.hops:
            question = hop.question
            for number, answer in enumerate(answers, 1):
                question = question.replace(answer, f"#{number}")
            told = _told(example.shown(hop), [hop.answer])
            lines.append(f"QS: (select) [{RETRIEVE}] {question}\nA: {told}")
            answers.append(hop.answer)
        last = json.dumps([example.answer], ensure_ascii=False)
        lines.append(f"QS: (select) [{MULTI}] {example.question}\nA: {last}\nQS: {END}")
        examples.append(Example(f"QC: {example.question}", "\n".join(lines)))
    return TranscriptForm(SYSTEM, tuple(examples))
