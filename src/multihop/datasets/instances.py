"""Questions with the paragraphs that they came with, in IRCoT's terms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from multihop.text import Json, Passage, Question

_NOTHING: Mapping[str, Json] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Context:
    """A paragraph that comes with a question.

    Attributes:
        title: Of its page.
        text: The paragraph.
        supporting: Whether the answer rests on it.
        id: The data set's own, or None.
    """

    title: str
    text: str
    supporting: bool
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """One record, as IRCoT's release understands it.

    Attributes:
        id: The data set's.
        question: As it is, outer blanks too; may be empty.
        answer: The gold answer's spans, all of them wanted; empty where it is not published, or
            where the question has none.
        contexts: Gold paragraphs and distractors, in the file's order, repeats too.
        pinned: IIRC's main passage; at most one in released files.
        valid_titles: Pages that the main passage links to; None where the record has none.
        metadata: `level`, `type`, `answer_type`, `simplified_answer_type`; None if missing.
        dataset: The record's, or empty.
        aliases: Other accepted answers, each whole.
        gold_titles: Titles of the gold paragraphs, where they are known though not all of the
            paragraphs are; else empty.
        extra: Other fields that the question keeps.
    """

    id: str
    question: str
    answer: tuple[str, ...]
    contexts: tuple[Context, ...]
    pinned: tuple[Context, ...]
    valid_titles: tuple[str, ...] | None
    metadata: Mapping[str, str | None]
    dataset: str = ""
    aliases: tuple[str, ...] = ()
    gold_titles: tuple[str, ...] = ()
    extra: Mapping[str, Json] = field(default_factory=lambda: _NOTHING, hash=False)

    @property
    def gold(self) -> tuple[Context, ...]:
        """The supporting contexts, in the file's order."""
        return tuple(context for context in self.contexts if context.supporting)

    def paragraphs(
        self,
        which: Literal["none", "gold", "all"],
        *,
        pinned: bool = False,
        drop_pinned_titles: bool = False,
        max_words: int | None = None,
    ) -> tuple[tuple[str, str], ...]:
        """(title, text) of the paragraphs asked for, no pair twice.

        What retrieval should find are the gold paragraphs without pinned titles.

        Args:
            which: Which contexts.
            pinned: Put the pinned passage first.
            drop_pinned_titles: Leave out every paragraph with the title of a pinned one.
            max_words: Cut texts after so many pieces between single blanks.
        """
        chosen = [*(self.pinned if pinned else ())]
        if which != "none":
            chosen += self.contexts if which == "all" else self.gold
        titles = {context.title for context in self.pinned} if drop_pinned_titles else set()
        pairs = dict.fromkeys((c.title, c.text) for c in chosen if c.title not in titles)
        return tuple(
            (title, text if max_words is None else " ".join(text.split(" ")[:max_words]))
            for title, text in pairs
        )

    def to_question(self) -> Question:
        """As a question of ours, without its contexts.

        Its gold paragraphs stand in `extra["gold_paragraphs"]` as {"title", "text"}, to be
        compared by `metrics.pid`, where all of them are known; `gold_ids` only where the file
        names all of them. An answer of several spans is one accepted answer, joined by ", ",
        with `answer_parts` beside it.
        """
        wanted = self.paragraphs("gold", drop_pinned_titles=True)
        ids = {(context.title, context.text): context.id for context in self.gold}
        gold_ids = tuple(name for pair in wanted if (name := ids[pair]) is not None)
        extra: dict[str, Json] = {name: value for name, value in self.metadata.items() if value}
        titles = self.gold_titles
        if not titles:
            titles = tuple(dict.fromkeys(title for title, _ in wanted))
            extra["gold_paragraphs"] = [{"title": title, "text": text} for title, text in wanted]
        if self.dataset:
            extra["dataset"] = self.dataset
        if len(self.answer) > 1:
            extra["answer_parts"] = list(self.answer)
        if self.valid_titles is not None:
            extra["valid_titles"] = list(self.valid_titles)
        main = self.pinned[0] if self.pinned else None
        whole = (", ".join(self.answer),) if self.answer else ()
        return Question(
            text=self.question,
            id=self.id,
            answers=tuple(dict.fromkeys((*whole, *self.aliases))),
            gold_ids=gold_ids if len(gold_ids) == len(wanted) else (),
            gold_titles=titles,
            kind=self.metadata.get("type") or "",
            pinned=Passage(main.id or f"{self.id}/main", main.title, main.text) if main else None,
            extra={**extra, **self.extra},
        )
