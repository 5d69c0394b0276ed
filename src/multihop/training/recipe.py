"""From a configuration to lessons."""

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from multihop import names
from multihop.errors import BadInput
from multihop.lms.adapters import DataSet
from multihop.strategies.rules import TRAINED
from multihop.text import Passage, Question
from multihop.training import lessons
from multihop.training.chains import chain
from multihop.training.config import Config, Data, Source
from multihop.training.examples import Lesson


@dataclass(frozen=True, slots=True)
class Made:
    """Lessons, and where they are from.

    Attributes:
        lessons: In the order of the sets and their questions.
        parts: What was learned from, with counts.
        without_chain: Questions for which no rule made a chain; they are not learned from.
    """

    lessons: list[Lesson]
    parts: tuple[DataSet, ...] = ()
    without_chain: int = 0


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Questions that must not be learned from.

    Attributes:
        ids, texts: The file of each, by id and by text in lower case with single blanks.
        gold: Ids of their gold passages.
    """

    ids: dict[str, str]
    texts: dict[str, str]
    gold: frozenset[str]

    @classmethod
    def read(cls, files: tuple[str, ...]) -> "HeldOut":
        """Read the questions of files."""
        ids: dict[str, str] = {}
        texts: dict[str, str] = {}
        gold: set[str] = set()
        for name in files:
            for question in names.open_questions(name):
                ids[question.id] = texts[_plain(question.text)] = name
                gold.update(question.gold_ids)
        return cls(ids, texts, frozenset(gold))

    def refuse(self, question: Question, file: str) -> None:
        """Raise BadInput when it is one of them."""
        where = self.texts.get(_plain(question.text)) or self.ids.get(question.id)
        if where:
            raise BadInput(
                f"{file}: question {question.id!r} is also in {where}, which data.never keeps "
                "from training. Take it out of one of the two."
            )


def make_lessons(config: Config) -> Made:
    """The lessons that a configuration describes.

    Raises:
        BadInput: A file is missing or wrong, a question is held out, or a gold passage is not in
            the index.
        CorpusError: There is no index, or it is damaged.
    """
    if config.data.lessons:
        return Made(_skilled(lessons.read(Path(config.data.lessons)), config.data))
    return asyncio.run(_made(config.data))


async def _made(data: Data) -> Made:
    held_out = HeldOut.read(data.never)
    found: list[Lesson] = []
    parts = []
    lost = 0
    for source in data.sets:
        fresh, learned, without = await _of(source, data, held_out)
        fresh = _skilled(fresh, data)
        examples = sum(len(lesson.examples) for lesson in fresh)
        parts.append(
            DataSet(name=source.name, licence=source.licence, questions=learned, examples=examples)
        )
        found += fresh
        lost += without
    if not found:
        raise BadInput("No lesson could be made: no question has answers and gold passages.")
    return Made(found, tuple(parts), lost)


async def _of(source: Source, data: Data, held_out: HeldOut) -> tuple[list[Lesson], int, int]:
    """A set's lessons, the questions learned from, and those without a chain."""
    from multihop.retrievers.bm25 import BM25  # noqa: PLC0415 - brings the search engine
    from multihop.training.rollouts import Contexts, Teacher  # noqa: PLC0415 - needs it

    retriever = BM25(source.index)
    teacher = Teacher(
        retriever,
        dataclasses.replace(TRAINED, words=data.words),
        Contexts(
            loops=source.loops,
            mixed=source.mixed,
            k=data.k,
            cap=data.cap,
            facts=data.facts,
            comparisons=data.comparisons,
            seed=data.seed,
        ),
        held_out.gold,
    )
    found: list[Lesson] = []
    learned = without = 0
    try:
        for name in source.questions:
            for question in names.open_questions(name):
                held_out.refuse(question, name)
                gold = _gold(question, retriever.get, name)
                links = chain(question, gold, data.words)
                if links is None:
                    without += 1
                    continue
                learned += 1
                found += [lesson async for lesson in teacher.lessons(question, links, gold)]
        if source.drills:
            found += teacher.drills(list(retriever), source.drills)
    finally:
        await retriever.aclose()
    return found, learned, without


def _gold(question: Question, get: Callable[[str], Passage | None], name: str) -> list[Passage]:
    found = []
    for passage_id in question.gold_ids:
        passage = get(passage_id)
        if passage is None:
            raise BadInput(
                f"{name}: question {question.id!r} has the gold passage {passage_id!r}, which is "
                "not in the index. Index the corpus that the questions are about."
            )
        found.append(passage)
    return found


def _skilled(found: list[Lesson], data: Data) -> list[Lesson]:
    """Lessons less the examples of skills that are not to be taught."""
    kept = [
        Lesson(lesson.question, tuple(e for e in lesson.examples if e.skill in data.skills))
        for lesson in found
    ]
    return [lesson for lesson in kept if lesson.examples]


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
