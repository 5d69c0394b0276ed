"""Demonstrate: which training examples a prompt shows, and how they are filled in (2.2)."""

import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from multihop.errors import BadInput
from multihop.metrics.answer import normalize
from multihop.strategies.dsp.example import Example, history
from multihop.strategies.dsp.session import Session
from multihop.text import Passage

Transformation = Callable[[Example], Awaitable[Example | None]]
"""From an example to a fuller one; None gives up."""

Vectorize = Callable[[Sequence[str]], Sequence[Mapping[str, float]]]
"""Texts as sparse vectors, by name of the dimension."""

YES_NO = frozenset({"yes", "no"})


async def annotate(
    train: Sequence[Example],
    *transformations: Transformation,
    k: int | None = None,
    return_all: bool = False,
) -> list[Example]:
    """Fill in training examples by running the program's own transformations on them.

    In order; each transformation gets what the one before it made. An example is filled in when
    none gave up; after `k` of those no more are tried.

    Args:
        train: Training examples.
        transformations: As of one attempt at the program.
        k: Most examples to fill in; None tries all.
        return_all: Append the others, raw, in their order: those that failed or were not tried.

    Returns:
        The filled-in ones, in order, marked `augmented`, with all that the stages produced.
    """
    done: list[Example] = []
    rest: list[Example] = []
    for example in train:
        if k is not None and len(done) >= k:
            rest.append(example)
            continue
        tried = example
        for transformation in transformations:
            made = await transformation(tried)
            if made is None:
                rest.append(example)
                break
            tried = made
        else:
            done.append(replace(tried, augmented=True, demos=()))
    return [*done, *rest] if return_all else done


def sample(session: Session, train: Sequence[Example], k: int) -> list[Example]:
    """`k` examples without replacement; the same for the same seed and branch."""
    shuffled = list(train)
    random.Random(session.seed_for("sample")).shuffle(shuffled)  # noqa: S311 - no secret
    return shuffled[:k]


def all_but(train: Sequence[Example], x: Example) -> list[Example]:
    """Training examples that share neither the question nor an earlier turn with `x`."""
    asked = _asked(x)
    return [example for example in train if not asked & _asked(example)]


def _asked(x: Example) -> set[str]:
    turns = [question for question, _ in history(x.question)]
    return {" ".join(text.split()).lower() for text in (x.text("question"), *turns)}


def knn(
    train: Sequence[Example],
    cast: Callable[[Example], str] = lambda x: x.text("question"),
    vectorize: Vectorize | None = None,
) -> Callable[[Example, int], list[Example]]:
    """Find the training examples nearest to one, never the one itself.

    Args:
        train: Vectorized once.
        cast: The text that is compared.
        vectorize: Makes vectors of texts; None weighs words by their rarity in `train`, as the
            words of BM25 are. (The paper takes the retriever's own representation.)

    Returns:
        A function from an example and `k` to the `k` nearest by cosine, nearest first; equal
        ones in training order.
    """
    texts = [cast(example) for example in train]
    vectorize = vectorize or _rare_words(texts)
    vectors = vectorize(texts)

    def nearest(x: Example, k: int) -> list[Example]:
        [mine] = vectorize([cast(x)])
        scores = {id(e): _cosine(mine, v) for e, v in zip(train, vectors, strict=True)}
        return sorted(all_but(train, x), key=lambda e: -scores[id(e)])[:k]

    return nearest


def _rare_words(texts: Sequence[str]) -> Vectorize:
    found = Counter(word for text in texts for word in set(normalize(text).split()))
    size = len(texts)

    def vectors(of: Sequence[str]) -> list[dict[str, float]]:
        return [
            {
                word: count * math.log(1 + size / (1 + found[word]))
                for word, count in Counter(normalize(text).split()).items()
            }
            for text in of
        ]

    return vectors


def _cosine(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    dot = sum(value * b.get(name, 0.0) for name, value in a.items())
    sizes = math.hypot(*a.values()) * math.hypot(*b.values()) if a and b else 0.0
    return dot / sizes if sizes else 0.0


async def crossval(
    session: Session,
    train: Sequence[Example],
    evaluate: Callable[[Sequence[Example], Example], Awaitable[float]],
    *,
    n: int,
    k: int,
    max_eval: int | None = None,
) -> list[Example]:
    """Of `n` sets of `k` demonstrations that which answers the rest of the training set best.

    Args:
        session: Gives the seed.
        train: Training examples, more than `k`.
        evaluate: The score of a program with these demonstrations on one held-out example.
        n: Sets that are drawn.
        k: Demonstrations in each.
        max_eval: Most held-out examples that a set is scored on; None takes all.

    Returns:
        The set with the highest mean; of equal ones that drawn first.

    Raises:
        BadInput: Nothing would be held out.
    """
    if not 0 < k < len(train) or n < 1:
        raise BadInput(
            f"crossval of {n} sets of {k} out of {len(train)} examples: at least one set, one "
            "example in it and one beside it are needed."
        )
    draws = random.Random(session.seed_for("crossval"))  # noqa: S311 - no secret
    best: tuple[float, list[Example]] | None = None
    for _ in range(n):
        order = list(train)
        draws.shuffle(order)
        chosen, held_out = order[:k], order[k:][:max_eval]
        scores = [await evaluate(chosen, example) for example in held_out]
        mean = sum(scores) / len(scores)
        if best is None or mean > best[0]:
            best = mean, chosen
    return best[1] if best else []


# --- Gates of an attempt ----------------------------------------------------------------------


def answer_match(prediction: str, answers: Sequence[str]) -> bool:
    """Whether a prediction is one of the accepted answers, after normalisation."""
    return normalize(prediction) in {normalize(answer) for answer in answers}


def passage_match(passages: Sequence[Passage], answers: Sequence[str]) -> bool:
    """Whether a passage holds an accepted answer, word by word, after normalisation."""
    wanted = [normalize(answer).split() for answer in answers]
    for passage in passages:
        words = normalize(f"{passage.title} {passage.text}").split()
        for answer in wanted:
            size = len(answer)
            if size and any(words[i : i + size] == answer for i in range(len(words) - size + 1)):
                return True
    return False


def supported(passages: Sequence[Passage], x: Example) -> bool:
    """The gate of an attempt's search: whether its passages can hold the answer.

    "yes" and "no" stand in any passage or in none: for those all gold titles (or ids) must have
    been found, where the data set names them; else the gate is open.
    """
    if {normalize(answer) for answer in x.answers} - YES_NO:
        return passage_match(passages, x.answers)
    wanted = {title.strip().lower() for title in x.question.gold_titles}
    if wanted:
        return wanted <= {passage.title.strip().lower() for passage in passages}
    return set(x.question.gold_ids) <= {passage.id for passage in passages}
