"""Which strategy a question needs: routers of Adaptive-RAG (Jeong et al., NAACL 2024).

A router reads the question alone. `LinearRouter` is a linear model over words and a few counts:
nothing to download, and asked without any library. `PromptedRouter` asks an LM.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from multihop import files
from multihop.errors import BadInput
from multihop.lms.base import LanguageModel, Prompt, Request, Turn, complete
from multihop.text import Json
from multihop.trace import LMCall

FORMAT = 1
"""Version of a router's file. Readers refuse others."""

ROUTES = ("nor", "oner", "ircot")
"""The strategies of the paper, cheapest first: no, one, many retrievals."""


@dataclass(frozen=True, slots=True)
class Route:
    """A router's choice.

    Attributes:
        name: The strategy.
        shares: How likely each is, by name, adding up to 1; empty where the router tells none.
        call: The LM call that chose; None when none was made.
        reason: Why the choice is not the router's own, in words; empty when it is.
    """

    name: str
    shares: Mapping[str, float] = field(default_factory=dict, hash=False)
    call: LMCall | None = None
    reason: str = ""


class Router(Protocol):
    """Chooses a strategy by the question."""

    @property
    def settings(self) -> dict[str, Json]:
        """What decides the choice."""
        ...

    async def route(self, question: str) -> Route:
        """Choose."""
        ...


# --- A linear model ---------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
_COMPARES = frozenset(
    ["both", "same", "or", "than", "older", "younger", "first", "earlier", "later", "more", "also"]
)


def features(question: str) -> dict[str, float]:
    """What the linear model sees of a question.

    Words and pairs of words in lower case that begin in lower case or begin the question (names
    say what it is about, not how hard it is), how long it is, how many names it has, how many
    of them hang together by "of" or "'s", whether it compares, and numbers.
    """
    words = _WORD.findall(question)
    plain = [w.lower() for n, w in enumerate(words) if n == 0 or w[:1].islower()]
    names = sum(
        1
        for n, w in enumerate(words)
        if n > 0 and w[:1].isupper() and not words[n - 1][:1].isupper()
    )
    found: dict[str, float] = {f"word={w}": 1.0 for w in plain}
    found.update({f"pair={a} {b}": 1.0 for a, b in pairwise(plain)})
    if plain:
        found[f"begins={' '.join(plain[:2])}"] = 1.0
    found["length"] = math.log1p(len(words))
    found["names"] = math.log1p(names)
    found["links"] = float(sum(w.lower() in ("of", "whose", "by", "that", "which") for w in words))
    found["possessives"] = float(sum(w.lower().endswith(("'s", "\u2019s")) for w in words))
    found["compares"] = float(any(w in _COMPARES for w in plain))
    found["numbers"] = float(any(w[0].isdigit() for w in words))
    return found


@dataclass(frozen=True)
class LinearRouter:
    """Chooses the strategy with the highest score.

    Attributes:
        routes: The strategies.
        bias: One a strategy.
        weights: By feature, one a strategy; features without any count for nothing.
        made: What it was trained on and how well it chose what it had not seen.
    """

    routes: tuple[str, ...]
    bias: tuple[float, ...]
    weights: Mapping[str, tuple[float, ...]] = field(hash=False)
    made: Mapping[str, Json] = field(default_factory=dict, hash=False)

    @property
    def settings(self) -> dict[str, Json]:
        """The model itself in short: which one it is."""
        return {"router": "linear", "routes": list(self.routes), "digest": self.made.get("digest")}

    async def route(self, question: str) -> Route:
        """Choose; of equal ones the cheapest."""
        shares = self.shares(question)
        return Route(max(self.routes, key=lambda name: shares[name]), shares)

    def shares(self, question: str) -> dict[str, float]:
        """How likely each strategy is, by name."""
        scores = list(self.bias)
        for name, value in features(question).items():
            for place, weight in enumerate(self.weights.get(name, ())):
                scores[place] += weight * value
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        return {n: p / sum(powers) for n, p in zip(self.routes, powers, strict=True)}

    def save(self, path: Path) -> None:
        """Write it as JSON, at once or not at all."""
        record = {
            "format": FORMAT,
            "routes": list(self.routes),
            "bias": list(self.bias),
            "weights": {name: list(values) for name, values in sorted(self.weights.items())},
            "made": dict(self.made),
        }
        files.write_record(path, record)

    @classmethod
    def load(cls, path: Path) -> "LinearRouter":
        """Read it back.

        Raises:
            BadInput: No such file, another format, or numbers that do not fit together.
        """
        record = files.read_record(
            path,
            FORMAT,
            "router",
            again="Train it anew.",
            missing="`multihop train router` makes one.",
        )
        try:
            routes = tuple(str(name) for name in record["routes"])
            bias = _numbers(record["bias"], len(routes))
            weights = {
                str(name): _numbers(values, len(routes))
                for name, values in record["weights"].items()
            }
            made = dict(record["made"])
        except (KeyError, TypeError, ValueError, AttributeError) as broken:
            raise BadInput(f"{path}: no router ({type(broken).__name__}: {broken}).") from None
        return cls(routes, bias, weights, made)


def _numbers(values: Sequence[float], count: int) -> tuple[float, ...]:
    found = tuple(float(value) for value in values)
    if len(found) != count or not all(math.isfinite(value) for value in found):
        raise ValueError(f"expected {count} finite numbers, found {list(values)[:4]}")
    return found


# --- An LM ------------------------------------------------------------------------------------

_KINDS = {
    "A": ("nor", "it can be answered from memory, without looking anything up"),
    "B": ("oner", "one search with the question finds all that is needed"),
    "C": ("ircot", "facts must be found one after the other"),
}

_EXAMPLES = (
    ("What is the capital of France?", "A"),
    ("When was the bridge over the Menai Strait opened?", "B"),
    ("Where was the composer of The Planets born?", "C"),
    ("Who wrote Hamlet?", "A"),
    ("Which ship was built first, the Vasa or the Mary Rose?", "C"),
)


@dataclass(frozen=True)
class PromptedRouter:
    """Asks an LM for a letter.

    Attributes:
        lm: Who is asked.
    """

    lm: LanguageModel

    @property
    def settings(self) -> dict[str, Json]:
        """The model."""
        return {"router": "prompted", "router_lm": self.lm.name}

    async def route(self, question: str) -> Route:
        """Choose; what is no letter of ours leads to the loop, which can answer anything."""
        kinds = "\n".join(f"{letter}: {words}" for letter, (_, words) in _KINDS.items())
        asked = f"What does answering a question take?\n{kinds}"
        shown = "\n\n".join(f"Question: {q}\nKind: {letter}" for q, letter in _EXAMPLES)
        turns = [Turn("system", f"{asked}\nWrite the letter alone.")]
        for q, letter in _EXAMPLES:
            turns += [Turn("user", f"Question: {q}"), Turn("assistant", letter)]
        prompt = Prompt(
            f"{asked}\n\n{shown}\n\nQuestion: {question}\nKind:",
            (*turns, Turn("user", f"Question: {question}")),
        )
        request = Request(prompt, max_tokens=16, stop=("\n",), role="route")
        reply = await complete(self.lm, request)
        named = re.search(r"\b([ABC])\b", reply.text)
        if named is None:
            why = f"The model named no kind ({reply.text.strip()[:40]!r})."
            return Route("ircot", call=reply.call, reason=why)
        return Route(_KINDS[named[1]][0], call=reply.call)
