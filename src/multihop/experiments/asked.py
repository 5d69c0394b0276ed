"""Which questions an experiment asks, and whether dev and test are apart."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from multihop import names
from multihop.datasets.sampling import sample
from multihop.errors import BadInput
from multihop.evaluation import Fingerprint, fingerprint
from multihop.experiments.config import Dataset, Experiment
from multihop.experiments.plan import Part, Plan
from multihop.text import Question


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of some questions, in their order; may be read again and again.

    Attributes:
        questions: All of them.
        begin: The first that counts, from 0.
        end: The first that counts no more; None: all count to the last.
    """

    questions: Iterable[Question]
    begin: int
    end: int | None

    def __iter__(self) -> Iterator[Question]:
        """From the beginning."""
        return islice(self.questions, self.begin, self.end)


def questions(experiment: Experiment, data: Dataset, part: Part) -> Iterable[Question]:
    """The questions of a part.

    Dev and test may be drawn from one file; then they have none in common.

    Raises:
        BadInput: No such questions, or too few of them to draw.
    """
    shared = data.dev == data.test
    dev = data.dev_limit or experiment.dev_limit
    test = data.test_limit or experiment.test_limit
    if shared and not dev:
        raise BadInput(
            f"datasets, {data.name}: dev and test are the same file; say by dev_limit how many of "
            "its questions choose the setting. Those after them are reported on."
        )
    source = names.open_questions(data.dev if part == "dev" else data.test)
    limit = dev if part == "dev" else test
    if experiment.sample == "random" and shared:
        if not test:
            raise BadInput(f"datasets, {data.name}: how many questions test draws: set test_limit.")
        drawn = sample(source, seed=experiment.seed, dev=dev, test=test)
        return drawn.dev if part == "dev" else drawn.test
    if experiment.sample == "random" and limit:
        return sample(source, seed=experiment.seed, dev=limit, test=0).dev
    begin = dev if shared and part == "test" else 0
    return Slice(source, begin, begin + limit if limit else None)


@dataclass(frozen=True, slots=True)
class Asked:
    """The questions of all data sets, by data set and part.

    Attributes:
        questions: They themselves.
        fingerprints: Their number and hash.
    """

    questions: dict[tuple[str, Part], Iterable[Question]]
    fingerprints: dict[tuple[str, Part], Fingerprint]


def look(plan: Plan) -> Asked:
    """Read all questions once, and make sure that none is in dev and in test.

    Raises:
        BadInput: A file is not there or not in its format, or a question is in both.
    """
    chosen: dict[tuple[str, Part], Iterable[Question]] = {}
    fingerprints: dict[tuple[str, Part], Fingerprint] = {}
    for entry in plan.entries:
        data = plan.dataset(entry)
        parts: tuple[Part, ...] = ("dev", "test") if entry.chooses else ("test",)
        for part in parts:
            key = (entry.dataset, part)
            if key in chosen:
                continue
            found = questions(plan.experiment, data, part)
            try:
                fingerprints[key] = fingerprint(found)
            except BadInput as broken:
                raise BadInput(f"datasets, {data.name}, {part}: {broken}") from None
            chosen[key] = found
    for name, part in chosen:
        if part == "dev" and (name, "test") in chosen:
            on_dev = {question.id for question in chosen[name, "dev"]}
            both = [q.id for q in chosen[name, "test"] if q.id in on_dev]
            if both:
                raise BadInput(
                    f"datasets, {name}: {len(both)} questions are in dev and in test, as "
                    f"{both[0]!r}: the setting would be chosen on what it is reported on. Take "
                    "others, or one file for both with limits."
                )
    return Asked(chosen, fingerprints)
