"""Supervised fine-tuning: lessons to an adapter, or to a whole model.

A run has a folder and goes on where it was after any kind of end:

    config.json      the settings, and a hash of the lessons; others are refused
    curves.jsonl     a line a step and a line a validation
    checkpoints/     adapter, optimizer and place in the data; the newest two
    best/            the adapter (or model) with the lowest validation loss so far
    result.json      what came out, once it is finished
"""

import hashlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from multihop.errors import BadInput, MissingExtra
from multihop.training.config import Config
from multihop.training.examples import Lesson

PACKAGES = ("torch", "transformers", "peft", "accelerate")
"""What the extra brings."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What there is to learn.

    Attributes:
        examples: That are learned.
        too_long: Examples that are left out because a pack cannot hold them.
        packs: Rows of tokens that hold the examples.
        tokens: Evaluated in a pass.
        plain: Tokens a pass would take without packing.
        targets: Tokens that are predicted in a pass; equal ones at the same place are one.
        valid: Examples for validation.
        parameters: Numbers that are trained.
    """

    examples: int
    too_long: int
    packs: int
    tokens: int
    plain: int
    targets: int
    valid: int
    parameters: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        step: Steps done.
        steps: Steps in all, unless it stops early.
        epoch: Passes over the lessons, with their fraction.
        loss: Of this step, in nats for a token; None when only a validation is told.
        valid: Newest validation loss by skill; "" is over all. Empty before the first.
        lr: Learning rate.
        tokens_per_second: Evaluated, over this sitting's training.
        targets_per_second: Learned, likewise.
        seconds: Of this sitting.
        left: Seconds to go at this speed; None before the first step.
    """

    step: int
    steps: int
    epoch: float
    loss: float | None
    valid: Mapping[str, float]
    lr: float
    tokens_per_second: float
    targets_per_second: float
    seconds: float
    left: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """What came out.

    Attributes:
        best: Folder of the adapter, or of the model when all of it was trained.
        step: Steps done when it was best; the last step when there was no validation.
        steps: Steps done in all.
        valid: Its validation loss by skill; "" is over all. Empty without validation.
        finished: False when it was interrupted; the same call goes on.
        stopped_early: Whether it ended because the validation loss rose no better.
    """

    best: Path
    step: int
    steps: int
    valid: Mapping[str, float]
    finished: bool
    stopped_early: bool


def split(lessons: Sequence[Lesson], share: float) -> tuple[list[Lesson], list[Lesson]]:
    """Training and validation lessons. A question's lessons are all in one of the two.

    A hash of the question's id decides, so more lessons do not move a question.
    """
    train: list[Lesson] = []
    valid: list[Lesson] = []
    for lesson in lessons:
        (valid if in_valid(lesson.question, share) else train).append(lesson)
    if not train:
        raise BadInput("No question is left to train on; lower data.valid or give more questions.")
    return train, valid


def in_valid(question: str, share: float) -> bool:
    """Whether a question of this id is kept for validation."""
    digest = hashlib.sha256(f"valid:{question}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < share


def train(
    config: Config,
    lessons_train: Sequence[Lesson],
    lessons_valid: Sequence[Lesson],
    folder: Path,
    *,
    resume: bool = True,
    tell: Callable[[Progress], None] | None = None,
    tell_sizes: Callable[[Sizes], None] | None = None,
) -> Result:
    """Train, from the beginning or from the newest checkpoint in the folder.

    Args:
        config: What to train and how.
        lessons_train: What is learned.
        lessons_valid: What is only looked at; none: no validation, no early stop.
        folder: Of the run; is made.
        resume: Go on from the newest checkpoint. Else what is there of a run is deleted.
        tell: Called after each step and each validation.
        tell_sizes: Called once, before the first step; not for a run that is finished.

    Raises:
        BadInput: The model cannot be trained, no lesson fits `max_tokens`, or the folder holds
            a run of another configuration or of other lessons.
        MissingExtra: torch, transformers, peft or accelerate is not installed.
    """
    need()
    from multihop.training import (  # noqa: PLC0415 - torch takes seconds to import
        claim,
        loop,
    )

    if not resume:
        (folder / claim.CONFIG).unlink(missing_ok=True)
    claim.check(config, folder)
    folder.mkdir(parents=True, exist_ok=True)
    claim.start(config, [*lessons_train, *lessons_valid], folder)
    return loop.run(
        config,
        lessons_train,
        lessons_valid,
        folder,
        resume=resume,
        tell=tell or (lambda _: None),
        tell_sizes=tell_sizes or (lambda _: None),
    )


def need() -> None:
    """Make sure that the extra is installed.

    Raises:
        MissingExtra: It is not.
    """
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "train")
