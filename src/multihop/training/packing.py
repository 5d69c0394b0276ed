"""Lays the examples of a lesson out as one sequence in which no token is evaluated twice.

The examples' tokens form a tree: what their prompts share at the beginning is one path, each
example branches off where it differs. The tree is written down as one row of tokens, parents
first. A token's position is its depth, and it attends to its ancestors and itself only. So every
example is computed just as it would be alone, and what is shared is computed once.

A token that nothing follows is only predicted, never read: it is a target, and takes no place.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from multihop.training.examples import Example, Lesson


class Tokenizer(Protocol):
    """What is asked of a tokenizer; those of transformers do."""

    def __call__(self, text: list[str], *, add_special_tokens: bool) -> Any:
        """A mapping whose "input_ids" are lists of token ids, one for each text."""
        ...


@dataclass(frozen=True, slots=True)
class Tokens:
    """An example as the model reads it.

    Attributes:
        prompt: Token ids of the prompt, with what the tokenizer puts before a text.
        completion: Token ids that follow, at least one.
        skill: What the example teaches.
        weight: Of each completion token in the loss.
    """

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    skill: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """A token that is to be predicted.

    Attributes:
        at: Place in the row of the token that it follows.
        token: Its id.
        weight: In the loss; the sum over the examples that share it.
        skill: What predicting it teaches.
    """

    at: int
    token: int
    weight: float
    skill: str


@dataclass(frozen=True, slots=True)
class Pack:
    """Examples as one row of tokens.

    Attributes:
        ids: The tokens.
        parents: For each token the place of the one before it in its examples, always a smaller
            number; -1 for a first token.
        positions: For each token how many are before it in its examples.
        targets: What is to be predicted, grouped by where: `at` never falls.
        plain: Tokens that the examples would take one by one.
        examples: How many there are.
    """

    ids: tuple[int, ...]
    parents: tuple[int, ...]
    positions: tuple[int, ...]
    targets: tuple[Target, ...]
    plain: int
    examples: int

    def __len__(self) -> int:
        """Tokens that are evaluated."""
        return len(self.ids)

    @property
    def weight(self) -> float:
        """Of all targets."""
        return sum(target.weight for target in self.targets)

    def mask(self) -> Any:
        """Which token (row) sees which (column).

        Returns:
            Booleans of shape (tokens, tokens), a numpy array; True is seen.
        """
        import numpy as np  # noqa: PLC0415 - comes with the extra

        seen = np.zeros((len(self), len(self)), dtype=bool)
        for place, parent in enumerate(self.parents):
            if parent >= 0:
                seen[place] = seen[parent]
            seen[place, place] = True
        return seen


def tokenize(lesson: Lesson, tokenizer: Tokenizer) -> list[Tokens]:
    """Tokens of a lesson's examples.

    A prompt is tokenized alone, as it is when the model is used. The completion's tokens are
    those of the whole text after the prompt's; where the tokenizer draws the border differently,
    the completion is tokenized alone.
    """
    examples: Sequence[Example] = lesson.examples
    prompts = _ids(tokenizer, [e.prompt for e in examples], special=True)
    wholes = _ids(tokenizer, [e.prompt + e.completion for e in examples], special=True)
    alone = _ids(tokenizer, [e.completion for e in examples], special=False)
    found = []
    for example, prompt, whole, completion in zip(examples, prompts, wholes, alone, strict=True):
        agrees = whole[: len(prompt)] == prompt and len(whole) > len(prompt)
        follows = whole[len(prompt) :] if agrees else completion
        found.append(Tokens(tuple(prompt), tuple(follows), example.skill, example.weight))
    return found


def _ids(tokenizer: Tokenizer, texts: list[str], *, special: bool) -> list[list[int]]:
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=special)["input_ids"]
    return ids


def pack(examples: Iterable[Tokens], limit: int) -> Iterator[Pack]:
    """Pack examples in their order; a new pack is begun where the next one would not fit.

    Args:
        examples: Best sorted so that neighbours share long beginnings. One that does not fit
            alone is left out; see `fits`.
        limit: Tokens of a pack.

    Yields:
        Packs, each with at least one target.
    """
    tree = _Tree()
    for example in examples:
        if not fits(example, limit):
            continue
        if tree.size_with(example) > limit:
            yield tree.pack()
            tree = _Tree()
        tree.add(example)
    if tree.targets:
        yield tree.pack()


def fits(example: Tokens, limit: int) -> bool:
    """Whether a pack of this size can hold the example, which needs a first token."""
    return len(example.prompt) > 0 and len(example.prompt) + len(example.completion) - 1 <= limit


class _Tree:
    """Tokens by what is before them."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.parents: list[int] = []
        self.positions: list[int] = []
        self.places: dict[tuple[int, int], int] = {}
        self.targets: dict[tuple[int, int, str], float] = {}
        self.plain = self.examples = 0

    def size_with(self, example: Tokens) -> int:
        """Tokens there would be."""
        read = (example.prompt + example.completion)[:-1]
        place, shared = -1, 0
        for token in read:
            if (place, token) not in self.places:
                break
            place = self.places[place, token]
            shared += 1
        return len(self.ids) + len(read) - shared

    def add(self, example: Tokens) -> None:
        place = -1
        first = len(example.prompt)
        whole = example.prompt + example.completion
        for number, token in enumerate(whole):
            if number >= first:
                key = (place, token, example.skill)
                self.targets[key] = self.targets.get(key, 0.0) + example.weight
            if number < len(whole) - 1:
                place = self._child(place, token, number)
        self.plain += len(whole) - 1
        self.examples += 1

    def _child(self, parent: int, token: int, depth: int) -> int:
        found = self.places.get((parent, token))
        if found is None:
            found = self.places[parent, token] = len(self.ids)
            self.ids.append(token)
            self.parents.append(parent)
            self.positions.append(depth)
        return found

    def pack(self) -> Pack:
        ordered = sorted(self.targets.items(), key=lambda item: item[0][0])
        return Pack(
            tuple(self.ids),
            tuple(self.parents),
            tuple(self.positions),
            tuple(Target(at, token, weight, skill) for (at, token, skill), weight in ordered),
            self.plain,
            self.examples,
        )
