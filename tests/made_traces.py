"""Traces written by hand, a few steps each, for tests of comparisons."""

from collections.abc import Sequence
from pathlib import Path

from multihop import runs
from multihop.text import Hit, Json, Passage, Question
from multihop.trace import Answer, LMCall, Search, Step, StopReason, Thought, Tokens, Trace

CARMEN = Passage("carmen", "Carmen", "Carmen is an opera by Georges Bizet, after a novella.")
MERIMEE = Passage(
    "merimee",
    "Prosper Mérimée",
    "Prosper Mérimée was a French writer, born in Paris in 1803. He wrote the novella behind "
    "Carmen and died in Cannes in 1870.",
)
TOULON = Passage("toulon", "Toulon", "Toulon is a town on the coast of France near Marseille.")
ULM = Passage("ulm", "Ulm", "Ulm is a city on the Danube, far from any opera of note.")

QUESTION = Question(
    "In which town did the author of the novella behind the opera Carmen die?",
    id="q",
    answers=("Cannes",),
    gold_ids=("carmen", "merimee"),
    gold_titles=("Carmen", "Prosper Mérimée"),
    kind="bridge",
)


class Written:
    """A run being written down: each method adds a step as a strategy would."""

    def __init__(
        self, question: Question = QUESTION, strategy: str = "ircot", **settings: Json
    ) -> None:
        self.question, self.strategy, self.settings = question, strategy, settings
        self.steps: list[Step] = []
        self.collected: list[Passage] = [question.pinned] if question.pinned else []

    def search(
        self, *found: Passage, query: str = "", keep: Sequence[Passage] | None = None
    ) -> "Written":
        """A search; all of what is found is kept unless `keep` says what."""
        kept = [p for p in (found if keep is None else keep) if p not in self.collected]
        self.collected += kept
        self.steps.append(
            Search(
                query or self.question.text,
                tuple(Hit(p, 1.0) for p in found),
                tuple(p.id for p in kept),
                tuple(p.id for p in self.collected),
            )
        )
        return self

    def forget(self, passage: Passage) -> "Written":
        """The passage makes room before the next search."""
        self.collected.remove(passage)
        return self

    def think(self, text: str) -> "Written":
        self.steps.append(Thought(text, call("", text)))
        return self

    def answer(
        self,
        text: str,
        stop: StopReason = "answered",
        *,
        written: str | None = None,
        prompt: str | None = None,
        read: bool = True,
        seconds: float = 1.0,
    ) -> Trace:
        """The reader's answer over everything collected; the prompt shows all of it."""
        if prompt is None:
            prompt = "\n\n".join(f"Wikipedia Title: {p.title}\n{p.text}" for p in self.collected)
        words = f"So the answer is: {text}." if written is None else written
        self.steps.append(
            Answer(
                text,
                stop,
                tuple(self.collected),
                call(prompt, words) if read else None,
                reason="" if text else "The reader's text states no answer.",
            )
        )
        return Trace(
            self.question, self.strategy, self.settings, tuple(self.steps), seconds=seconds
        )


def call(prompt: str, text: str, role: str = "reason") -> LMCall:
    return LMCall(role, "scripted", prompt, (text,), ("stop",), 0.1, Tokens(100, 0, 10))


def failed(question: Question, error: str = "LMError: The model fell over.") -> Trace:
    return Trace(question, "ircot", error=error)


def run_folder(
    folder: Path, traces: Sequence[Trace], strategy: str = "ircot", count: int | None = None
) -> Path:
    """A run folder of these traces."""
    runs.start(
        folder,
        {
            "strategy": strategy,
            "settings": {"lm": "scripted", "k": 4},
            "questions": {"sha256": "", "count": len(traces) if count is None else count},
        },
    )
    if traces:
        runs.append(folder / runs.TRACES, *traces)
    return folder
