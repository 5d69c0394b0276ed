"""What the primitives work with while a program runs on one question."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from multihop.lms.base import LanguageModel
from multihop.retrievers.base import Retriever
from multihop.strategies.budget import Budget
from multihop.trace import Kind, LMCall, Step, Thought


@dataclass(frozen=True)
class Session:
    """One run of a program, or of one branch of it.

    Attributes:
        lm: Writes.
        retriever: Searches.
        seed: Of the run.
        branch: Which copy of the program this is; 0 outside a branch. It enters seeds, and so
            the keys of a reply cache.
        temperature: Of calls for one completion; a branch has another.
        adapter: LoRA adapter of every call.
        words: Words of a passage that prompts show; None shows all.
        budget: What the search may cost; looked at after each hop.
        tell: Gets every step as it happens.
        steps: All steps so far, of all branches.
        counts: What could not be done as wanted, by kind: "incomplete", "continued",
            "without_logprobs", "demonstrations_dropped", "passages_dropped".
    """

    lm: LanguageModel
    retriever: Retriever
    seed: int = 0
    branch: int = 0
    temperature: float = 0.0
    adapter: str | None = None
    words: int | None = None
    budget: Budget = field(default_factory=Budget)
    tell: Callable[[Step], None] = lambda _: None
    steps: list[Step] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, step: Step) -> int:
        """Put a step into the stream; gives its number."""
        self.steps.append(step)
        self.tell(step)
        return len(self.steps) - 1

    def think(self, text: str, call: LMCall, kind: Kind = "") -> int:
        """Put what an LM wrote into the stream."""
        return self.take(Thought(text, call, kind=kind))

    def branched(self, number: int, temperature: float) -> "Session":
        """A copy for one branch: other seeds, the same stream."""
        return replace(self, branch=number, temperature=temperature)

    def seed_for(self, *what: object) -> int:
        """A seed for sampling, other in each branch: 31 bits of a hash."""
        text = "\0".join(str(part) for part in (self.seed, self.branch, *what))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
