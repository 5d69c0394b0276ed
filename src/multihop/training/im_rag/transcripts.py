"""Lessons for IM-RAG out of runs of its own loop.

For the cold start the loop is run with a teacher in the model's place: it asks what the chain of
an annotated question needs next, or repeats the searches of another run that ended well. The
retriever and the refiner are real, so what is learned is what the loop will meet. Transcripts that
found too little are left out. For the Answerer the trained Questioner searches, and the gold
answer is what follows.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from multihop import runs
from multihop.errors import BadInput
from multihop.evaluation import finished
from multihop.lms.adapters import DataSet
from multihop.lms.base import Piece, Request
from multihop.metrics.traces import f1, gold_recall
from multihop.strategies.im_rag import Action, Oracle, prompts
from multihop.text import Passage
from multihop.trace import Search, Step, Trace, trace
from multihop.training.chains import Chain, chain
from multihop.training.examples import Example, Lesson
from multihop.training.im_rag import parts
from multihop.training.im_rag.config import Config
from multihop.training.im_rag.parts import Asked, Corpora

AT_ONCE = 8
"""Questions worked on at a time."""


@dataclass
class Teacher:
    """Stands in the model's place for one question.

    Attributes:
        question: Its text.
        answer: What is answered.
        chain: What is needed, link by link; None where queries are given.
        queries: To be made in this order, each once.
        gold: Ids of the gold passages: when all came, it has enough.
        first: Ask with the question itself before anything else.
    """

    question: str
    answer: str
    chain: Chain | None = None
    queries: Sequence[str] = ()
    gold: frozenset[str] = frozenset()
    first: bool = False
    name: str = "teacher"
    window: int | None = None
    _asked: list[str] = field(default_factory=list)
    _found: tuple[str, ...] = ()

    def told(self, step: Step) -> None:
        """What a search has brought."""
        if isinstance(step, Search):
            self._found = step.collected

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Write the next query, or the answer; nothing when there is nothing to ask."""
        said = self.answer if request.role == "answer" else self._query()
        yield Piece(f" {said}" if said else "", finish="stop")

    def _query(self) -> str:
        if self._asked and self.gold and self.gold <= set(self._found):
            return prompts.ENOUGH
        for query in self._wanted():
            if query and query not in self._asked:
                self._asked.append(query)
                return query
        return ""

    def _wanted(self) -> list[str]:
        if self.chain is None:
            return list(self.queries)
        needed = next(
            (
                link.needed.strip().removesuffix(".")
                for link in self.chain.links
                if link.passage is not None and link.passage not in self._found
            ),
            "",
        )
        both = [self.question, needed] if self.first and not self._asked else [needed]
        # A link that cannot be asked for without knowing it is looked for with the question.
        return [*both, self.question]

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count words."""
        return [len(text.split()) for text in texts]

    async def aclose(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Made:
    """Lessons, and how they came about.

    Attributes:
        lessons: In the order of the questions.
        parts: What was learned from.
        kept: Transcripts that were learned from.
        dropped: Transcripts that found too little, or questions for which none could be made.
    """

    lessons: list[Lesson]
    parts: tuple[DataSet, ...]
    kept: int
    dropped: int


def lesson(run: Trace, answer: str, *, queries: bool = True) -> Lesson | None:
    """The calls of a run as examples: valid queries, and the answer given.

    Args:
        run: Of the loop.
        answer: What is to be answered from its monologue.
        queries: Teach the queries too.
    """
    name = run.question.id
    made = []
    steps = run.steps
    for place, thought in enumerate(steps):
        call = getattr(thought, "call", None)
        if not queries or call is None or call.role != "question":
            continue
        after = steps[place + 1] if place + 1 < len(steps) else None
        mark = thought.text == prompts.ENOUGH  # type: ignore[union-attr]
        if (isinstance(after, Search) and after.query) or mark:
            made.append(Example(call.prompt, f" {thought.text}\n", "query", name))  # type: ignore[union-attr]
    last = run.answer.call if run.answer else None
    if last is not None:
        made.append(Example(last.prompt, f" {answer}\n", "read", name))
    return Lesson(name, tuple(made)) if made else None


# --- Cold start -------------------------------------------------------------------------------


def cold_start(config: Config) -> Made:
    """Transcripts that a Questioner begins with.

    Raises:
        BadInput: A file is missing or wrong, a question is held out, a gold passage is not in
            its index, or no transcript found enough.
    """
    return asyncio.run(_cold_start(config))


async def _cold_start(config: Config) -> Made:
    train, valid = parts.questions(config)
    corpora = Corpora(config.data.sets, parts.refiner(config))
    replays = _replays(config)
    work = asyncio.Semaphore(AT_ONCE)

    async def one(asked: Asked) -> list[Lesson | None]:
        async with work:
            found = [
                await _taught(config, corpora, asked, t)
                for t in _teachers(config, corpora, asked, replays)
            ]
            distinct = dict.fromkeys(lesson for lesson in found if lesson)
            return [*distinct] or [None]

    try:
        every = [*train, *valid]
        found = await asyncio.gather(*(one(asked) for asked in every))
    finally:
        await corpora.aclose()
    return _made(config, every, found, "No transcript found enough; lower data.least_recall.")


def _teachers(
    config: Config, corpora: Corpora, asked: Asked, replays: Mapping[str, Sequence[str]]
) -> list[Teacher]:
    """Those who can teach this question: the rules, in two ways, and a run that ended well."""
    question = asked.question
    answer, gold = question.answers[0], frozenset(question.gold_ids)
    found = []
    if config.data.rules:
        passages = _gold(asked, corpora)
        links = chain(question, passages, config.loop.words)
        if links:
            found = [
                Teacher(question.text, answer, links, gold=gold, first=first)
                for first in (False, True)
            ]
    if queries := replays.get(question.id):
        found.append(Teacher(question.text, answer, queries=queries, gold=gold))
    return found


async def _taught(
    config: Config, corpora: Corpora, asked: Asked, teacher: Teacher
) -> Lesson | None:
    stop = Action() if config.loop.action else Oracle()
    loop = parts.loop(
        config, teacher, corpora.retrievers[asked.source], stop, refiner=corpora.refiner
    )
    run = await trace(loop, asked.question, teacher.told)
    if (gold_recall(run) or 0.0) < config.data.least_recall:
        return None
    return lesson(run, teacher.answer)


def _replays(config: Config) -> dict[str, list[str]]:
    """The queries of runs whose answer was right to some part, by question."""
    found: dict[str, list[str]] = {}
    for given in config.data.runs:
        for folder in runs.folders(Path(given)):
            for run in finished(folder):
                queries = [" ".join(s.query.split()) for s in run.searches if s.query.strip()]
                if queries and not run.error and (f1(run) or 0.0) > 0:
                    found.setdefault(run.question.id, list(dict.fromkeys(queries)))
    return found


def _gold(asked: Asked, corpora: Corpora) -> list[Passage]:
    found = []
    for name in asked.question.gold_ids:
        passage = corpora.passage(asked.source)(name)
        if passage is None:
            raise BadInput(
                f"Question {asked.question.id!r} has the gold passage {name!r}, which is not in "
                "the index. Index the corpus that the questions are about."
            )
        found.append(passage)
    return found


def _made(
    config: Config, asked: Sequence[Asked], found: Sequence[Sequence[Lesson | None]], nothing: str
) -> Made:
    lessons = [each for some in found for each in some if each]
    if not lessons:
        raise BadInput(nothing)
    taught = {each.question for each in lessons}
    examples = [0] * len(config.data.sets)
    for one, some in zip(asked, found, strict=True):
        examples[one.source] += sum(len(each.examples) for each in some if each)
    learned = [one for one in asked if one.question.id in taught]
    dropped = sum(each is None for some in found for each in some)
    return Made(lessons, parts.sets(config, learned, examples), len(lessons), dropped)


# --- Answerer ---------------------------------------------------------------------------------


def answering(config: Config, asked: Sequence[Asked], ran: Mapping[str, Trace]) -> Made:
    """Lessons for the Answerer: what the Questioner found, and the gold answer.

    Rows that lack a gold passage teach to answer from what there is; their share is limited, by
    a hash of the question, so that more questions do not change who stays.

    Args:
        config: Limits the share.
        asked: All questions.
        ran: The Questioner's runs, by question.

    Raises:
        BadInput: No run can be learned from.
    """
    whole = [a for a in asked if _complete(ran.get(a.question.id)) is True]
    lacking = [a for a in asked if _complete(ran.get(a.question.id)) is False]
    share = config.data.missing
    most = int(len(whole) * share / (1 - share) + 1e-9) if whole else len(lacking)
    lacking.sort(key=lambda a: hashlib.sha256(a.question.id.encode()).hexdigest())
    stay = {a.question.id for a in (*whole, *lacking[:most])}
    found = [
        [lesson(ran[a.question.id], a.question.answers[0], queries=False)]
        if a.question.id in stay
        else [None]
        for a in asked
    ]
    return _made(config, asked, found, "The Questioner's runs hold nothing to answer from.")


def _complete(run: Trace | None) -> bool | None:
    """Whether a run found all gold passages; None where it failed or is not there."""
    recall = gold_recall(run) if run and not run.error else None
    return None if recall is None else recall == 1
