"""The paper's sample: 100 questions to choose hyper-parameters on, 500 others to report.

IRCoT draws both from the original dev file, without overlap. Its release does so
with Python's `random`, seeded with 13370 anew for each of the two, out of the questions that have
an answer, in the file's order; the test questions come from what the first draw left. That rule
is followed here. The release says that the rule may give other questions than the released ones:
for the very same questions read its files, `ircot:DATASET/dev` and `ircot:DATASET/test`.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from multihop.errors import BadInput
from multihop.text import Question

SEED = 13370
DEV, TEST = 100, 500


@dataclass(frozen=True, slots=True)
class Sample:
    """Two sets of questions with none in common, each in the order of drawing.

    Attributes:
        dev: For choices.
        test: For reports.
    """

    dev: tuple[Question, ...]
    test: tuple[Question, ...]


def paper_sample(
    questions: Iterable[Question], *, seed: int = SEED, dev: int = DEV, test: int = TEST
) -> Sample:
    """Draw the sample.

    Args:
        questions: Those of the dev file. Read twice and never held together: give a list or what
            `names.open_questions` gives.
        seed: Of both draws.
        dev: How many to choose on.
        test: How many to report.

    Raises:
        BadInput: The questions can be read only once, share ids, or too few have an answer: as
            in a split published without answers.
    """
    if iter(questions) is questions:
        raise BadInput("The questions are read twice: give a list or a QuestionFile.")
    ids = [question.id for question in questions if question.answers]
    if len(set(ids)) != len(ids):
        raise BadInput("The questions share ids: give each one of its own.")
    if len(ids) < dev + test:
        raise BadInput(
            f"The sample takes {dev} and {test} questions, but only {len(ids)} have an answer. "
            "Give the data set's whole dev split, or ask for fewer."
        )
    first = random.Random(seed).sample(ids, dev)  # noqa: S311 - the release's draw, no secret
    chosen = set(first)
    rest = [name for name in ids if name not in chosen]
    second = random.Random(seed).sample(rest, test)  # noqa: S311
    chosen.update(second)
    found = {question.id: question for question in questions if question.id in chosen}
    return Sample(
        tuple(found[name] for name in first),
        tuple(found[name] for name in second),
    )
