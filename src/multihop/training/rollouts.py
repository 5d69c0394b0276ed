"""Lessons: the loop run over annotated questions, with the chain that it should write.

The retriever is asked for real, so contexts are those that the loop will meet: the gold passage
of the first hop beside what else the question finds, the second hop not there yet, then found or
still missing. At each state the example goes on as far as the passages support the chain, and
then says what is needed: what is not known is looked for, not made up. A line end stands after
the answer, and after what is needed, alone: were it learned after a fact, a search that finds
nothing new would leave a chain that seems to be at its end.
"""

import random
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from multihop.prompts import layout
from multihop.retrievers.base import Retriever
from multihop.strategies.collect import Collected
from multihop.strategies.rules import Preset
from multihop.text import Passage, Query, Question
from multihop.training.chains import Chain, Link
from multihop.training.examples import Example, Lesson, Skill
from multihop.training.facts import (
    COMPARISONS,
    QUESTIONS,
    SAME,
    Fact,
    bare,
    compared,
    facts,
    needed,
    same,
)


@dataclass(frozen=True, slots=True)
class Contexts:
    """How contexts are drawn.

    Attributes:
        loops: Runs of the loop per question, each with its own K.
        mixed: Contexts per question of gold passages among distractors, shuffled.
        k: Passages per query are drawn from these.
        cap: Most passages of a context, but for gold ones put in.
        distractors: Of a mixed context, drawn from 0 to this.
        lost: Share of unfound gold passages that stay missing; the question is then answered
            without, as the loop has to in the end.
        missing: Share of mixed contexts without their last gold passage.
        facts: Questions of one hop per context, about its passages.
        comparisons: Questions per context that compare two of its passages.
        weight: Of what those two kinds teach, beside 1 for the question itself.
        closed: Share of contexts beside which the question is also asked without passages; it is
            then answered at once, for there is nothing to reason over.
        seed: Of all draws; a question's draws depend on its id and this alone.
    """

    loops: int = 1
    mixed: int = 1
    k: tuple[int, ...] = (2, 3, 4)
    cap: int = 8
    distractors: int = 4
    lost: float = 0.3
    missing: float = 0.2
    facts: int = 2
    comparisons: int = 1
    weight: float = 0.5
    closed: float = 0.3
    seed: int = 0


@dataclass(frozen=True)
class Teacher:
    """Makes lessons.

    Attributes:
        retriever: The corpus that the loop searches.
        form: The preset whose prompts are learned.
        contexts: How contexts are drawn.
        never: Ids of passages about which nothing is asked: the gold ones of questions that
            the model will be measured on.
    """

    retriever: Retriever
    form: Preset
    contexts: Contexts = field(default_factory=Contexts)
    never: frozenset[str] = frozenset()

    async def lessons(
        self, question: Question, chain: Chain, gold: Sequence[Passage]
    ) -> AsyncGenerator[Lesson, None]:
        """All lessons of a question."""
        known = {passage.id: passage for passage in gold}
        for number in range(self.contexts.loops + self.contexts.mixed):
            draws = random.Random(f"{self.contexts.seed}:{question.id}:{number}")  # noqa: S311
            if number < self.contexts.loops:
                examples, passages = await self._loop(question, chain, known, draws)
            else:
                examples, passages = await self._mixed(question, chain, known, draws)
            examples += self._asked(question, passages, draws)
            if draws.random() < self.contexts.closed:
                alone = self._prompt(question.text, ())
                examples.append(Example(alone, f" {chain.statement}\n", "read", question.id))
            yield Lesson(question.id, tuple(dict.fromkeys(examples)))

    # --- The loop -----------------------------------------------------------------------------

    async def _loop(
        self, question: Question, chain: Chain, gold: Mapping[str, Passage], draws: random.Random
    ) -> tuple[list[Example], list[Passage]]:
        """The loop's states, with the chain as what it should have written."""
        k = draws.choice(self.contexts.k)
        collected = Collected(self.contexts.cap, self.form.duplicate)
        examples: list[Example] = []
        thoughts: list[str] = []
        asked: Link | None = None
        at = 0
        query = self.form.question_query(question.text)
        while True:
            collected.add((await self.retriever.search([Query(query)], k))[0])
            link = chain.links[at]
            if not self._there(link, collected):
                if link.needed and link is not asked:
                    examples.append(
                        self._example(question, collected, thoughts, [link.needed], "query")
                    )
                    thoughts.append(link.needed)
                    query, asked = link.needed, link
                    continue
                if asked is link and draws.random() < self.contexts.lost:
                    examples.append(
                        self._example(question, collected, thoughts, [chain.statement], "next")
                    )
                    return examples, collected.passages
                collected.passages.append(gold[str(link.passage)])
            ready = self._ready(chain, at, collected)
            finished = at + len(ready) > len(chain.links)
            after = None if finished else chain.links[at + len(ready)]
            examples.append(
                self._example(question, collected, thoughts, ready, "next", after=after)
            )
            thoughts.append(ready[0])
            at += 1
            if at == len(chain.links) or (finished and draws.random() < 0.5):
                break
            query = self.form.query(question.text, thoughts)
        return examples + self._read(question, chain, collected.passages), collected.passages

    async def _mixed(
        self, question: Question, chain: Chain, gold: Mapping[str, Passage], draws: random.Random
    ) -> tuple[list[Example], list[Passage]]:
        """Gold passages among distractors; sometimes the last one is missing."""
        query = Query(self.form.question_query(question.text))
        ranking = (await self.retriever.search([query], 15))[0]
        others = [hit.passage for hit in ranking if hit.passage.id not in gold]
        number = min(draws.randint(0, self.contexts.distractors), len(others))
        passages = [*gold.values(), *draws.sample(others, number)]
        last = next((n for n in reversed(range(len(chain.links))) if chain.links[n].passage), 0)
        missing = last and draws.random() < self.contexts.missing
        if missing:
            passages = [p for p in passages if p.id != chain.links[last].passage]
        draws.shuffle(passages)
        collected = Collected(len(passages), self.form.duplicate, passages=passages)
        if missing:
            ready = self._ready(chain, 0, collected)
            after = chain.links[len(ready)]
            example = self._example(question, collected, [], ready, "next", after=after)
            return [example] if example.completion.strip() else [], passages
        return self._read(question, chain, passages), passages

    def _there(self, link: Link, collected: Collected) -> bool:
        return link.passage is None or link.passage in collected.ids

    def _ready(self, chain: Chain, at: int, collected: Collected) -> list[str]:
        """The sentences from here on that the passages support; the answer after all of them."""
        ready: list[str] = []
        for link in chain.links[at:]:
            if not self._there(link, collected):
                return ready
            ready.append(link.sentence)
        return [*ready, chain.statement]

    def _read(self, question: Question, chain: Chain, passages: Sequence[Passage]) -> list[Example]:
        """Both readers: the whole chain, and the bare answer."""
        whole = " ".join([*(link.sentence for link in chain.links), chain.statement])
        instruction = self.form.read_instruction
        return [
            Example(self._prompt(question.text, passages), f" {whole}\n", "next", question.id),
            Example(
                self._prompt(question.text, passages, instruction=instruction),
                f" {chain.answer}\n",
                "read",
                question.id,
            ),
        ]

    def _example(
        self,
        question: Question,
        collected: Collected,
        thoughts: Sequence[str],
        said: Sequence[str],
        skill: Skill,
        *,
        after: Link | None = None,
    ) -> Example:
        """One state; `after` is the first link that its passages do not support."""
        prompt = self._prompt(question.text, collected.passages, " ".join(thoughts))
        said = [*said, after.needed] if after and after.needed else said
        end = "" if after and not after.needed else "\n"
        return Example(prompt, f" {' '.join(said)}{end}", skill, question.id)

    def _prompt(
        self, question: str, passages: Sequence[Passage], chain: str = "", instruction: str = ""
    ) -> str:
        shown = [layout.paragraph(p.title, p.text, self.form.words) for p in passages]
        return layout.whole((), layout.unfinished(question, shown, chain, instruction))

    # --- Questions about what happens to be there ---------------------------------------------

    def _asked(
        self, question: Question, passages: Sequence[Passage], draws: random.Random
    ) -> list[Example]:
        """Questions of one hop, and comparisons, that rules can answer from these passages."""
        said = [
            facts(passage, self.form.words) for passage in passages if passage.id not in self.never
        ]
        made = [
            *_some(list(_single(said, draws)), self.contexts.facts, draws),
            *_some(list(_pairs(said, draws)), self.contexts.comparisons, draws),
        ]
        return [
            Example(
                self._prompt(text, passages),
                f" {answer}\n",
                skill,
                question.id,
                self.contexts.weight,
            )
            for text, answer, skill in made
        ]

    def drills(self, passages: Sequence[Passage], number: int) -> list[Lesson]:
        """Comparisons whose facts are written down already: only the end is learned.

        They have no passages, so a thousand of them cost what a few dozen contexts do.

        Args:
            passages: Where facts are looked for.
            number: How many are made, at most; ten to a lesson.
        """
        draws = random.Random(f"{self.contexts.seed}:drills")  # noqa: S311
        people: dict[str, list[Fact]] = {}
        films: list[list[Fact]] = []
        for passage in passages:
            found = [] if passage.id in self.never else facts(passage, self.form.words)
            if any(fact.relation == "director" for fact in found):
                films.append(found)
            elif found:
                people[bare(passage.title)] = found
        everything = [*people.values(), *films]
        made: list[Example] = []
        for _ in range(20 * number):
            if len(made) >= number:
                break
            if draws.random() < 0.4:
                drill = _bridged(draws.sample(films, 2), people, draws) if len(films) > 1 else None
            else:
                pairs = list(_pairs(draws.sample(everything, min(2, len(everything))), draws))
                drill = _cut(draws.choice(pairs)) if pairs else None
            if drill:
                text, before, after = drill
                made.append(
                    Example(self._prompt(text, (), before), f" {after}\n", "fact", "drills")
                )
        return [Lesson("drills", tuple(made[n : n + 10])) for n in range(0, len(made), 10)]


_Made = tuple[str, str, Skill]


def _some(made: list[_Made], number: int, draws: random.Random) -> list[_Made]:
    return draws.sample(made, min(number, len(made)))


def _single(said: Sequence[Sequence[Fact]], draws: random.Random) -> Iterator[_Made]:
    for about in said:
        relations = {fact.relation: fact for fact in about}
        for relation, fact in relations.items():
            if relation in QUESTIONS:
                text = draws.choice(QUESTIONS[relation]).format(s=fact.subject)
                yield text, f"{fact.sentence} {_states(fact.value)}", "fact"
        born = relations.get("date of birth")
        if born and "date of death" not in relations and draws.random() < 0.5:
            text = f"When did {born.subject} die?"
            yield text, needed("date of death", born.subject), "query"


def _pairs(said: Sequence[Sequence[Fact]], draws: random.Random) -> Iterator[_Made]:
    for number, about in enumerate(said):
        for other in said[number + 1 :]:
            for one in about:
                two = next((f for f in other if f.relation == one.relation), None)
                if two is None or two.subject == one.subject:
                    continue
                first, second = (one, two) if draws.random() < 0.5 else (two, one)
                if made := _comparison(first, second, draws):
                    yield made


def _comparison(one: Fact, two: Fact, draws: random.Random) -> _Made | None:
    before = f"{one.sentence} {two.sentence}"
    if one.relation in COMPARISONS:
        pattern, wanted = draws.choice(COMPARISONS[one.relation])
        found = compared(one, two, wanted)
        if found is None:
            return None
        said, first = found
        answer = one.subject if first else two.subject
    elif one.relation in SAME:
        pattern = draws.choice(SAME[one.relation])
        said, equal = same(one, two)
        answer = "yes" if equal else "no"
    else:
        return None
    text = pattern.format(a=one.subject, b=two.subject)
    return text, f"{before} {said} {_states(answer)}", "fact"


def _cut(made: _Made) -> tuple[str, str, str]:
    """A comparison, its facts, and its end."""
    text, answer, _ = made
    facts_said, _, end = answer.partition(" Thus, ")
    return text, facts_said, f"Thus, {end}"


_OF_DIRECTORS = {
    "date of birth": (
        ("Which film has the director born first, {a} or {b}?", "earlier"),
        ("Which film has the director who is older, {a} or {b}?", "earlier"),
        ("Which film whose director was born later, {a} or {b}?", "later"),
        ("Which film has the director who is younger, {a} or {b}?", "later"),
    ),
    "date of death": (
        ("Which film has the director who died first, {a} or {b}?", "earlier"),
        ("Which film has the director died later, {a} or {b}?", "later"),
    ),
}


def _bridged(
    films: Sequence[Sequence[Fact]], people: Mapping[str, Sequence[Fact]], draws: random.Random
) -> tuple[str, str, str] | None:
    """A comparison of two films by their directors."""
    directed = [next(f for f in film if f.relation == "director") for film in films]
    relation = draws.choice(["date of birth", "date of death", "country of citizenship"])
    values = [
        next((f for f in people.get(film.value, ()) if f.relation == relation), None)
        for film in directed
    ]
    one, two = values
    if one is None or two is None or one.subject == two.subject:
        return None
    before = " ".join(f.sentence for f in (*directed, one, two))
    titles = {"a": directed[0].subject, "b": directed[1].subject}
    if relation in _OF_DIRECTORS:
        pattern, wanted = draws.choice(_OF_DIRECTORS[relation])
        found = compared(one, two, "earlier" if wanted == "earlier" else "later")
        if found is None:
            return None
        said, first = found
        return pattern.format(**titles), before, f"{said} {_states(titles['a' if first else 'b'])}"
    said, equal = same(one, two)
    text = "Are the directors of films {a} and {b} from the same country?".format(**titles)
    return text, before, f"{said} {_states('yes' if equal else 'no')}"


def _states(answer: str) -> str:
    return f"{layout.ANSWER} {answer}" + ("" if answer.endswith(".") else ".")
