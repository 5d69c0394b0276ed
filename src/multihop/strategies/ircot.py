"""IRCoT: interleaving retrieval with chain-of-thought reasoning (Trivedi et al., ACL 2023)."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from multihop.retrievers.base import Retriever
from multihop.strategies.budget import Budget
from multihop.strategies.collect import look_up
from multihop.strategies.rules import Preset, waiting
from multihop.strategies.titles import propose_titles
from multihop.strategies.writing import Writer
from multihop.text import Json, Question
from multihop.trace import Answer, Search, Step, StopReason, Thought


@dataclass(frozen=True)
class IRCoT:
    """Retrieve with what was just reasoned, reason over what was just retrieved.

    Paper, section 3.1: the first query is the question. Then, in turns, the LM extends the
    chain of thought by one sentence over the passages collected so far, and that sentence
    fetches more, until an answer is stated or the step limit is reached. Section 3.2: a
    separate reader then answers from everything collected.

    Attributes:
        retriever: Finds passages.
        writer: Writes prompts by the preset and asks the LM; holds the reader.
        k: Passages fetched per query (paper: tuned over 2, 4, 6, 8).
        max_steps: Most sentences of the chain (paper 8, release 10).
        max_passages: Most passages collected over all steps (15).
        patience: Searches in a row that bring nothing new before the chain ends; only in
            presets that mend the release's endless repetition.
        budget: What a question may cost; at its end the reader still answers.
    """

    retriever: Retriever
    writer: Writer
    k: int = 6
    max_steps: int = 8
    max_passages: int = 15
    patience: int = 3
    budget: Budget = field(default_factory=Budget)
    name: str = "ircot"

    @property
    def settings(self) -> dict[str, Json]:
        """Everything that decides the result."""
        return {
            **self.writer.settings,
            "retriever": self.retriever.name,
            "k": self.k,
            "max_steps": self.max_steps,
            "max_passages": self.max_passages,
            "patience": self.patience,
            **self.budget.settings,
        }

    async def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question."""
        preset = self.writer.preset
        collected = self.writer.collecting(self.max_passages, question.pinned)
        thoughts: list[str] = []
        taken: list[Step] = []
        stop: StopReason | None = None

        # IIRC only: pages that may help are proposed from the main passage.
        titles = None
        if question.pinned is not None:
            proposed = await propose_titles(self.writer, self.retriever, question)
            titles = proposed.mapped
            yield proposed
            taken.append(proposed)

        while stop is None:
            # Retrieve: with the question, later with the newest sentence; further down the same
            # ranking when the model waits for what the sentence asks for.
            query = preset.query(question.text, thoughts)
            depth = self.k * (1 + waiting(thoughts))
            search = await look_up(self.retriever, query, depth, collected, titles)
            yield search

            # Reason: over everything collected; the first new sentence counts.
            thought = await self.writer.next_sentence(question, collected.passages, thoughts)
            yield thought
            thoughts.append(thought.text)

            taken += [search, thought]
            stop = (
                preset.stop(thoughts, self.max_steps)
                or runaway(preset, thought)
                or self._nothing_new(preset, taken)
                or self.budget.ended(taken)
            )

        # Read: answer afresh from everything collected.
        if self.writer.reader != "none":
            yield await self.writer.read(question, collected.passages, stop)
            return

        # Without a reader the chain's own answer counts (paper, table 6).
        if stop != "answered" and preset.mended:
            thought = await self.writer.conclude(question, collected.passages, thoughts)
            yield thought
            thoughts.append(thought.text)
        answer = preset.stated(thoughts[-1]) or ""
        passages = tuple(collected.passages)
        reason = "" if answer else "The chain states no answer."
        yield Answer(answer, stop, passages, reason=reason)

    def _nothing_new(self, preset: Preset, taken: list[Step]) -> StopReason | None:
        """Whether the last searches brought nothing: the release would go on all the same."""
        searches = [step for step in taken if isinstance(step, Search)]
        recent = searches[-self.patience :]
        full = len(recent[-1].collected) >= self.max_passages
        if preset.mended and len(recent) == self.patience and not full:
            return None if any(search.kept for search in recent) else "no_gain"
        return None


def runaway(preset: Preset, thought: Thought) -> StopReason | None:
    """Whether a sentence was cut by the token limit: the release would go on from its middle.

    A backend that cannot be stopped at the sentence may be cut later, in one that is not kept.
    """
    call = thought.call
    cut = call and call.finishes == ("length",) and call.outputs[0].strip() == thought.text
    return "no_gain" if preset.mended and cut else None
