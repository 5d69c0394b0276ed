"""ReAct: thoughts, actions and observations in turns (Yao et al., 2022)."""

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from multihop.prompts.layout import paragraph
from multihop.prompts.sentences import light
from multihop.prompts.transcript import Example, TranscriptForm
from multihop.prompts.worked import Worked
from multihop.retrievers.base import Retriever
from multihop.strategies.budget import Budget
from multihop.strategies.collect import Collected, ranking
from multihop.strategies.replies import bare, first_line, stated_in
from multihop.strategies.writing import FORCED_TOKENS, Writer
from multihop.text import Hit, Json, Passage, Query, Question
from multihop.trace import Answer, LMCall, Search, Step, StopReason, Thought

TURN_TOKENS = 100
"""Most tokens of a thought with its action (paper)."""

FIRST_SENTENCES = 5
"""Sentences of a page that Search shows (paper); Lookup finds the others."""

PAGE_PASSAGES = 10
"""Most passages of the open page that one Lookup looks through."""

MISTAKES = 2
"""Turns in a row without an action, or with one made before, until the answer is asked for."""

GONE = "(no longer shown)"
"""Stands for an observation that the window has no room for."""

HEAD = (
    "Answer a question by taking turns of Thought, Action and Observation. There are three "
    "actions. Search[entity] opens the page of that name and shows its beginning; if there is no "
    "such page, it names similar ones. Lookup[words] shows the next sentence of the open page that "
    "holds the words. Finish[answer] gives the answer and ends the work. Some examples follow."
)
SYSTEM = HEAD.removesuffix(" Some examples follow.") + " After each action, wait for what you see."

Name = Literal["search", "lookup", "finish"]

_ACTION_LINE = re.compile(r"(?:^|\n)\s*Action(?:\s*\d+)?\s*:[ \t]*", re.IGNORECASE)
_BRACKETED = re.compile(r"\b(search|look\s?up|finish)\s*[\[(]", re.IGNORECASE)
_PLAIN = re.compile(r"\s*(search|look\s?up|finish)\b\s*:?\s*(.*)", re.IGNORECASE)
_THOUGHT = re.compile(r"^\s*Thought(?:\s*\d+)?\s*:\s*", re.IGNORECASE)
_OBSERVATION = re.compile(r"(?:^|\n)\s*Observation(?:\s*\d+)?\s*:", re.IGNORECASE)
_ASIDE = re.compile(r"\s*\([^)]*\)$")


@dataclass(frozen=True, slots=True)
class Action:
    """What the LM does next."""

    name: Name
    argument: str


@dataclass
class _Page:
    """The open page, and how far Lookup has gone in it."""

    passages: list[Passage]
    words: str = ""
    found: list[tuple[str, Passage]] = field(default_factory=list)
    told: int = 0


@dataclass(frozen=True)
class ReAct:
    """Think, act, observe.

    Paper, section 3: the actions are Search, which opens a Wikipedia page or names similar ones;
    Lookup, the next sentence of the page that holds a string; and Finish. Here a page is the
    passages of one title in the retriever's corpus: it is searched by title, and where no title
    is the entity's, the titles of a search over texts are named.

    Attributes:
        retriever: Finds pages by title, and passages of a page.
        writer: Asks the LM. With a reader other than "none" the answer is read afresh from all
            passages that were observed; the paper has none.
        form: The prompt.
        similar: Titles named where no page is found (paper 5).
        max_steps: Most turns (paper 7 for HotpotQA); then the answer is asked for.
        max_passages: Most passages observed.
        budget: What a question may cost; at its end the answer is still asked for.
    """

    retriever: Retriever
    writer: Writer
    form: TranscriptForm
    similar: int = 5
    max_steps: int = 7
    max_passages: int = 15
    budget: Budget = field(default_factory=Budget)
    name: str = "react"

    @property
    def settings(self) -> dict[str, Json]:
        """Everything that decides the result."""
        return {
            **self.writer.settings,
            "form": self.form.digest(),
            "retriever": self.retriever.name,
            "similar": self.similar,
            "max_steps": self.max_steps,
            "max_passages": self.max_passages,
            **self.budget.settings,
        }

    async def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question."""
        rules = self.writer.preset
        collected = Collected(
            self.max_passages, rules.duplicate, rules.longest, "first", question.pinned
        )
        page = _Page([question.pinned]) if question.pinned else None
        transcript = _Transcript(question, rules.words)
        searched: set[str] = set()
        taken: list[Step] = []
        answer, mistakes, number = "", 0, 0
        stop: StopReason | None = None

        while stop is None:
            # Think and act.
            number += 1
            thought, action = await self._turn(transcript, number)
            yield thought
            yield action
            taken += [thought, action]
            done = action_in(action.text)
            if not (thought.text or action.text):
                stop = "empty"
                break
            if done is None and (answer := stated_in(thought.text) or stated_in(action.text)):
                stop = "answered"  # in prose
                break
            if done and done.name == "finish" and done.argument:
                answer, stop = bare(done.argument), "answered"
                break

            # Observe.
            seen: str | Passage
            mistakes += 1
            if done is None or done.name == "finish" or not done.argument:
                seen = "No such action. It is Search[entity], Lookup[words] or Finish[answer]."
            elif done.name == "search" and _key(done.argument) in searched:
                seen = f"You have searched for [{done.argument}] before."
            elif done.name == "search":
                mistakes = 0
                searched.add(_key(done.argument))
                searches, seen = await self._search(done.argument, collected)
                for search in searches:
                    yield search
                taken += searches
                page = _Page([seen]) if isinstance(seen, Passage) else page
            elif page is None:
                seen = "No page is open. Search for one first."
            else:
                if page.words != _key(done.argument):
                    search = await self._open(page, done.argument, collected)
                    yield search
                    taken.append(search)
                seen = _next(page)
                mistakes = 0 if page.told <= len(page.found) else mistakes
            if isinstance(seen, str):
                yield Thought(seen, kind="observation")
            transcript.add(number, thought.text, action.text, seen)
            stop = (
                ("max_steps" if number >= self.max_steps else None)
                or ("no_gain" if mistakes >= MISTAKES else None)
                or self.budget.ended(taken)
            )

        passages = tuple(collected.passages)
        if self.writer.reader != "none":
            yield await self.writer.read(question, passages, stop)
            return
        if answer:
            yield Answer(answer, stop, passages)
            return
        # The answer is asked for where the limit came first.
        reply = await self.writer.go_on(
            lambda shown: self.form.prompt(
                transcript.asked, transcript.written(shown, transcript.finish)
            ),
            transcript.passages,
            role="react",
            stop=("]", "\n"),
            max_tokens=FORCED_TOKENS,
        )
        answer = bare(reply.text)
        reason = "" if answer else "The model finished without an answer when asked for it."
        yield Answer(answer, stop, passages, reply.call, reason=reason)

    async def _turn(self, transcript: "_Transcript", number: int) -> tuple[Thought, Thought]:
        """A thought and an action; the action is asked for where none came (as in the paper)."""

        async def go_on(end: str, stop: str) -> tuple[str, LMCall]:
            reply = await self.writer.go_on(
                lambda shown: self.form.prompt(transcript.asked, transcript.written(shown, end)),
                transcript.passages,
                role="react",
                stop=(stop,),
                max_tokens=TURN_TOKENS,
            )
            return reply.text, reply.call

        written, call = await go_on(f"Thought {number}:", f"\nObservation {number}:")
        thought, acted = parted(written)
        if acted:
            return Thought(thought, call), Thought(acted, kind="action")
        if not thought or stated_in(thought):
            return Thought(thought, call), Thought("", kind="action")
        acted, asked = await go_on(f"Thought {number}: {thought}\nAction {number}:", "\n")
        return Thought(thought, call), Thought(first_line(acted), asked, kind="action")

    async def _search(
        self, entity: str, collected: Collected
    ) -> tuple[list[Search], "str | Passage"]:
        """Open the page of that name, or name similar ones."""
        by_title = await ranking(self.retriever, Query(entity, by_title=True), self.similar)
        page = _titled(entity, by_title.hits)
        searches = [by_title]
        if page is None:
            searches.append(await ranking(self.retriever, Query(entity), self.similar))
            page = _titled(entity, searches[-1].hits)
        kept = collected.add([page]) if page else ()
        searches = [replace(search, collected=collected.ids) for search in searches]
        searches[-1] = replace(searches[-1], kept=kept)
        if page:
            return searches, page.passage
        titles = dict.fromkeys(
            hit.passage.title for s in reversed(searches) for hit in s.hits if hit.passage.title
        )
        named = "; ".join(list(titles)[: self.similar])
        return searches, f"Could not find [{entity}]. Similar: [{named}]." if named else (
            f"Could not find [{entity}], nor anything similar."
        )

    async def _open(self, page: _Page, words: str, collected: Collected) -> Search:
        """Look for words in the page: in what was shown, and in its other passages."""
        first = page.passages[0]
        search = await ranking(self.retriever, Query(words, (first.title,)), PAGE_PASSAGES)
        more = [hit.passage for hit in search.hits if hit.passage.title == first.title]
        page.passages = [first, *(p for p in more if p.id != first.id)]
        page.words, page.told = _key(words), 0
        page.found = [
            (sentence.strip(), passage)
            for passage in page.passages
            for sentence in light(passage.text)
            if page.words in sentence.lower()
        ]
        holding = {passage.id for _, passage in page.found}
        kept = collected.add([hit for hit in search.hits if hit.passage.id in holding])
        return replace(search, kept=kept, collected=collected.ids)


class _Transcript:
    """What was thought, done and seen."""

    def __init__(self, question: Question, words: int) -> None:
        pinned = question.pinned
        before = f"{paragraph(pinned.title, pinned.text, words)}\n\n" if pinned else ""
        self.asked = f"{before}Question: {question.text.strip()}"
        self._words = words
        self._parts: list[tuple[str, str | Passage]] = []

    @property
    def passages(self) -> list[Passage]:
        """Those that were shown, in order."""
        return [seen for _, seen in self._parts if isinstance(seen, Passage)]

    @property
    def finish(self) -> str:
        """Where the answer is asked for."""
        return f"Action {len(self._parts) + 1}: Finish["

    def add(self, number: int, thought: str, action: str, seen: "str | Passage") -> None:
        """Put a turn to the end."""
        turn = f"Thought {number}: {thought}\nAction {number}: {action}\nObservation {number}: "
        self._parts.append((turn, seen))

    def written(self, shown: Sequence[Passage], end: str) -> str:
        """All turns; passages that are not shown leave a word in their place."""
        lines = []
        for turn, seen in self._parts:
            text = seen if isinstance(seen, str) else beginning(seen, self._words)
            lines.append(turn + (text if isinstance(seen, str) or seen in shown else GONE))
        return "\n".join([*lines, end])


def beginning(passage: Passage, words: int) -> str:
    """What Search shows of a page: its first sentences, on one line."""
    text = " ".join(sentence.strip() for sentence in light(passage.text)[:FIRST_SENTENCES])
    return " ".join(text.split(" ")[:words])


def parted(written: str) -> tuple[str, str]:
    """Thought and action in what the LM wrote after `Thought n:`; the action may be missing."""
    text = _OBSERVATION.split(written)[0]  # from there on it answers itself
    tag = _ACTION_LINE.search(text)
    if tag:
        thought, action = text[: tag.start()], first_line(text[tag.end() :])
    elif found := _BRACKETED.search(text):
        thought, action = text[: found.start()], first_line(text[found.start() :])
    else:
        thought, action = text, ""
    return " ".join(_THOUGHT.sub("", thought).split()), action


def action_in(line: str) -> Action | None:
    """The action that a line says, or None: brackets may be round, missing or left open."""
    found = _BRACKETED.search(line)
    if found:
        argument = _inside(line[found.end() :], line[found.end() - 1])
        return Action(_name(found[1]), argument)
    plain = _PLAIN.match(line)
    return Action(_name(plain[1]), plain[2].strip(" .\"'")) if plain else None


def _name(written: str) -> Name:
    return cast(Name, written.lower().replace(" ", ""))


def _inside(text: str, opened: str) -> str:
    """What stands before the bracket that closes the one before it."""
    closing, depth = {"[": "]", "(": ")"}[opened], 1
    for place, character in enumerate(text):
        depth += (character == opened) - (character == closing)
        if depth == 0:
            return text[:place].strip(" \"'")
    return text.strip(" \"'")


def _key(text: str) -> str:
    return " ".join(text.lower().split())


def _titled(entity: str, hits: Sequence[Hit]) -> Hit | None:
    """The hit whose title is the entity's; what tells it from its namesakes may be missing."""
    wanted = re.sub(r"\W+", " ", entity).strip().lower()

    def same(title: str) -> bool:
        return re.sub(r"\W+", " ", title).strip().lower() == wanted

    exact = (hit for hit in hits if same(hit.passage.title))
    nearly = (hit for hit in hits if same(_ASIDE.sub("", hit.passage.title)))
    return next(exact, None) or next(nearly, None)


def _next(page: _Page) -> str:
    """The next sentence of the page that holds the words."""
    page.told += 1
    if page.told > len(page.found):
        return "No more results."
    return f"(Result {page.told} / {len(page.found)}) {page.found[page.told - 1][0]}"


def react_form(worked: Sequence[Worked]) -> TranscriptForm:
    """The prompt with demonstrations of worked questions."""
    examples = []
    for example in worked:
        lines, before = [], ""
        for number, hop in enumerate(example.hops, 1):
            lines += [
                f"Thought {number}: {before}I need to find out: {hop.question}",
                f"Action {number}: Search[{hop.passage.title}]",
                f"Observation {number}: {hop.passage.text}",
            ]
            before = f"{hop.sentence} "
        last = len(example.hops) + 1
        lines += [
            f"Thought {last}: {before}So the answer is {example.answer}.",
            f"Action {last}: Finish[{example.answer}]",
        ]
        examples.append(Example(f"Question: {example.question}", "\n".join(lines)))
    return TranscriptForm(SYSTEM, tuple(examples), HEAD)
