"""Demonstrations made once for a training set, and kept in a file."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from multihop import files
from multihop.errors import BadInput
from multihop.strategies.dsp.demonstrate import all_but, annotate, sample
from multihop.strategies.dsp.example import Example
from multihop.strategies.dsp.programs import BOOTSTRAPPED, Settings, attempt
from multihop.strategies.dsp.session import Session
from multihop.text import Json, Question
from multihop.trace import Trace

FORMAT = 1
"""Version of the file. Readers refuse others."""

TRAIN, KEPT = 16, 3
"""Training questions that are drawn, and demonstrations filled in (paper, section 3)."""


_LOG = logging.getLogger(__name__)


@dataclass
class Bootstrapped:
    """The demonstrations of a program, made at the first question and the same from then on.

    Attributes:
        program: Its name.
        settings: Its settings.
        train: Training questions with answers; no chains or queries are needed.
        draw: How many of them are drawn.
        keep: How many are filled in.
        file: Where they are written once they are made; None keeps them in memory alone.
        attempts: What was tried, as traces, in order; their cost is not in any question's.
        made: The demonstrations, once they are made or loaded.
        source: The digest of loaded ones; empty where `train` says it.
        tried: By question, what an attempt made, None where it was given up. With a file an
            interrupted making goes on after them.
    """

    program: str
    settings: Settings
    train: tuple[Question, ...] = ()
    draw: int = TRAIN
    keep: int = KEPT
    file: Path | None = None
    attempts: list[Trace] = field(default_factory=list)
    made: tuple[Example, ...] | None = None
    source: str = ""
    tried: dict[str, Example | None] = field(default_factory=dict)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Names what decides the demonstrations: the training questions and how many of them."""
        if self.source:
            return self.source
        told: list[Json] = [Trace(question, "").to_dict()["question"] for question in self.train]
        text = json.dumps([told, self.draw, self.keep], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    async def of(self, session: Session, x: Example) -> tuple[Example, ...]:
        """Demonstrations for a question, never one that shares a question with it.

        Args:
            session: Of the question; attempts run in sessions of their own.
            x: The question.
        """
        async with self._making:
            if self.made is None:
                self.made = await self._make(session)
                if self.file is not None:
                    self.save(self.file)
        return tuple(all_but(self.made, x))

    async def _make(self, session: Session) -> tuple[Example, ...]:
        raw = [Example.of(question) for question in self.train]
        own = replace(session, branch=0, steps=[], tell=lambda _: None)
        drawn = sample(own, raw, self.draw)
        if self.program not in BOOTSTRAPPED:
            return tuple(drawn)

        async def attempted(x: Example) -> Example | None:
            name = _name(x.question)
            if name not in self.tried:
                trying = replace(own, steps=[])
                shown = replace(x, demos=tuple(all_but(drawn, x)))
                done = await attempt(trying, self.program, shown, self.settings)
                told = Trace(x.question, f"dsp attempt: {'kept' if done else 'given up'}")
                self.attempts.append(replace(told, steps=tuple(trying.steps)))
                self.tried[name] = done and replace(done, augmented=True, demos=())
                kept = sum(made is not None for made in self.tried.values())
                _LOG.info(
                    "Demonstrations: %d of %d after %d attempts.", kept, self.keep, len(self.tried)
                )
                if self.file is not None:
                    self.save(self.file)
            return self.tried[name]

        filled = await annotate(drawn, attempted, k=self.keep)
        # Where nothing succeeds the labels are all that can be shown.
        return tuple(filled or drawn)

    # --- The file ---------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write demonstrations and attempts as JSON, at once or not at all."""
        record = {
            "format": FORMAT,
            "program": self.program,
            "settings": self.settings.to_dict(),
            "source": self.digest,
            "draw": self.draw,
            "keep": self.keep,
            "complete": self.made is not None,
            "demonstrations": [demo.to_dict() for demo in self.made or ()],
            "tried": {name: made and made.to_dict() for name, made in self.tried.items()},
            "attempts": [trace.to_dict() for trace in self.attempts],
        }
        files.write_record(path, record)

    @classmethod
    def load(cls, path: Path, program: str, settings: Settings) -> "Bootstrapped":
        """Read them back; `made` is None where the making was interrupted.

        Raises:
            BadInput: No such file, another format, or demonstrations of another program.
        """
        record = files.read_record(path, FORMAT, "demonstrations", again="Make them anew.")
        if record.get("program") != program:
            raise BadInput(
                f"{path}: holds demonstrations of the program {record.get('program')!r}, not of "
                f"{program!r}. Make some with --train FILE."
            )
        try:
            demos = tuple(Example.from_dict(demo) for demo in record["demonstrations"])
            attempts = [Trace.from_dict(trace, str(path)) for trace in record["attempts"]]
            tried = {
                str(name): None if made is None else Example.from_dict(made)
                for name, made in record["tried"].items()
            }
            complete = bool(record["complete"])
            source, draw, keep = str(record["source"]), int(record["draw"]), int(record["keep"])
        except (KeyError, TypeError, ValueError, AttributeError) as broken:
            raise BadInput(
                f"{path}: not demonstrations ({type(broken).__name__}: {broken})."
            ) from None
        made = demos if complete else None
        return cls(
            program, settings, (), draw, keep, None, attempts, made, source=source, tried=tried
        )


def _name(question: Question) -> str:
    return question.id or question.text


def check(train: Sequence[Question]) -> None:
    """Refuse a training set that no demonstration can be made of.

    Raises:
        BadInput: It is empty, or a question has no answer.
    """
    if not train:
        raise BadInput("The training questions are none. Give a file with some.")
    for question in train:
        if not question.answers:
            raise BadInput(
                f"The training question {question.id or question.text[:60]!r} has no answer. "
                "Demonstrations are made of questions with answers."
            )
