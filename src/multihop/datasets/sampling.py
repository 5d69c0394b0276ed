"""The paper's samples: 100 questions to choose hyper-parameters on, 500 others to report.

IRCoT (Trivedi et al. 2023, section 4.1) draws both from the original dev file, without overlap.
Its release does so with Python's `random`, seeded with 13370 anew for each of the two, out of the
questions that have an answer, in the file's order; the test questions come from what the first
draw left. That rule is followed here. The release says that the rule may give other questions
than the released ones: for the very same questions read its files, `ircot:DATASET/dev` and
`ircot:DATASET/test`.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from multihop.errors import BadInput
from multihop.text import Question

DEV, TEST = 100, 500
"""Questions of the paper's samples."""

SEED = 13370
"""Of both draws, in IRCoT's release."""


@dataclass(frozen=True, slots=True)
class Samples:
    """What was drawn, in the order of drawing.

    Attributes:
        dev: For choices.
        test: For reports; none of them is in `dev`.
        drawn_from: How many questions there were to draw from.
        without_answer: How many more were left out because they have no answer.
    """

    dev: tuple[Question, ...]
    test: tuple[Question, ...]
    drawn_from: int
    without_answer: int


def sample(
    questions: Iterable[Question], dev: int = DEV, test: int = TEST, seed: int = SEED
) -> Samples:
    """Draw two samples without overlap.

    Args:
        questions: Those of the dev file, in its order, which decides who is drawn. Read twice and
            never held together: give a list or what `names.open_questions` gives.
        dev: How many to choose on.
        test: How many to report.
        seed: Of both draws.

    Raises:
        BadInput: The questions can be read only once, share ids, or too few have an answer: as
            in a split published without answers.
    """
    if iter(questions) is questions:
        raise BadInput("The questions are read twice: give a list or a QuestionFile.")
    ids: list[str] = []
    without = 0
    for question in questions:
        if question.answers:
            ids.append(question.id)
        else:
            without += 1
    if len(set(ids)) != len(ids):
        raise BadInput("The questions share ids: give each one of its own.")
    if dev < 0 or test < 0 or len(ids) < dev + test:
        raise BadInput(
            f"The sample takes {dev} and {test} questions, and {len(ids)} have an answer. "
            "Give the data set's whole dev split, or ask for fewer."
        )
    first = random.Random(seed).sample(ids, dev)  # noqa: S311 - the release's draw, no secret
    chosen = set(first)
    rest = [id_ for id_ in ids if id_ not in chosen]
    second = random.Random(seed).sample(rest, test)  # noqa: S311
    chosen.update(second)
    found = {question.id: question for question in questions if question.id in chosen}
    return Samples(
        tuple(found[id_] for id_ in first),
        tuple(found[id_] for id_ in second),
        len(ids),
        without,
    )
