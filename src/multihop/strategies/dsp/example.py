"""The record that every transformation of DSP takes and gives (paper, section 2.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from multihop.text import Json, Passage, Question
from multihop.trace import Trace

Value = str | tuple[str, ...] | tuple[Passage, ...]
"""What a field holds: a text, several accepted answers, or passages."""

_NOTHING: Mapping[str, "Value"] = MappingProxyType({})
_NO_QUESTION = Question("")
_NO_STAGES: Mapping[str, "Stage"] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Stage:
    """What one step of the LM saw and wrote.

    Attributes:
        fields: Values of all fields of its template, inputs and outputs.
        steps: Numbers, from 0, of the steps in the session's stream that brought them: the calls
            that wrote the outputs and the searches that brought the passages.
    """

    fields: Mapping[str, Value]
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Example:
    """A question with everything that is known of it so far. It is never changed.

    Attributes:
        fields: By name: `question`, `answers` (accepted ones), `context` (passages), `history`
            (earlier turns of a conversation, as texts). What the LM wrote stands in `stages`, so
            that the next step is asked for it anew.
        stages: By name of the LM's step ("h0", "qa"), what it saw and wrote: a later prompt of
            the same step shows a demonstration as it was there.
        demos: Demonstrations for its prompts.
        augmented: Filled in by `annotate`; else it has the labels of the training set alone.
        question: Whence it comes; gold titles and ids stand there.
    """

    fields: Mapping[str, Value] = field(default_factory=lambda: _NOTHING, hash=False)
    stages: Mapping[str, Stage] = field(default_factory=lambda: _NO_STAGES, hash=False)
    demos: tuple["Example", ...] = ()
    augmented: bool = False
    question: Question = _NO_QUESTION

    @classmethod
    def of(cls, question: Question) -> "Example":
        """A question as an example: its text, its accepted answers, its earlier turns."""
        fields: dict[str, Value] = {"question": question.text}
        if question.answers:
            fields["answers"] = question.answers
        if turns := history(question):
            fields["history"] = tuple(f"{asked} {answered}".strip() for asked, answered in turns)
        return cls(fields, question=question)

    def having(self, **fields: Value) -> "Example":
        """The same with other fields."""
        return replace(self, fields={**self.fields, **fields})

    def at(self, stage: str, fields: Mapping[str, Value], steps: Sequence[int] = ()) -> "Example":
        """The same after a step of the LM."""
        kept = {**self.stages, stage: Stage(dict(fields), tuple(steps))}
        return replace(self, stages=kept)

    def seen_at(self, stage: str) -> Mapping[str, Value]:
        """All fields, those of one stage as they were there."""
        at = self.stages.get(stage)
        return {**self.fields, **at.fields} if at else self.fields

    def text(self, name: str) -> str:
        """A field that is a text; empty when it is not there."""
        value = self.fields.get(name, "")
        return value if isinstance(value, str) else ""

    def passages(self, name: str = "context") -> tuple[Passage, ...]:
        """A field of passages; none when it is not there."""
        return tuple(v for v in self.fields.get(name, ()) if isinstance(v, Passage))

    def to_dict(self) -> dict[str, Json]:
        """As JSON data, without its own demonstrations; `from_dict` gives the same back."""
        asked = Trace(self.question, "").to_dict()
        return {
            "question": asked["question"],
            "passages": asked["passages"],
            "fields": _to_json(self.fields),
            "stages": {
                name: {"fields": _to_json(stage.fields), "steps": list(stage.steps)}
                for name, stage in self.stages.items()
            },
            "augmented": self.augmented,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Json]) -> "Example":
        """Read back what `to_dict` gave.

        Raises:
            BadInput: Its question is none.
            KeyError, TypeError, ValueError: Something else is missing or of another kind.
        """
        empty = Trace(_NO_QUESTION, "").to_dict()
        asked = {name: record[name] for name in ("question", "passages")}
        return cls(
            _from_json(record["fields"]),
            {
                name: Stage(_from_json(_object(stage)["fields"]), _whole(_object(stage)["steps"]))
                for name, stage in _object(record["stages"]).items()
            },
            augmented=bool(record["augmented"]),
            question=Trace.from_dict({**empty, **asked}).question,
        )

    @property
    def answers(self) -> tuple[str, ...]:
        """The accepted answers."""
        return tuple(v for v in self.fields.get("answers", ()) if isinstance(v, str))


def history(question: Question) -> tuple[tuple[str, str], ...]:
    """Earlier turns of a conversation, question and answer, from the field `history`.

    It is a list of objects with `question` and `answer`, oldest first; other data sets' fields
    of that name are no conversation and give none.
    """
    turns = question.extra.get("history")
    if not isinstance(turns, list):
        return ()
    found = []
    for turn in turns:
        if not (isinstance(turn, dict) and isinstance(asked := turn.get("question"), str)):
            return ()
        found.append((asked, _text(turn.get("answer"))))
    return tuple(found)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


# --- JSON -------------------------------------------------------------------------------------


def _to_json(fields: Mapping[str, Value]) -> Json:
    def shown(value: str | Passage) -> Json:
        if isinstance(value, str):
            return value
        return {"id": value.id, "title": value.title, "text": value.text}

    return {
        name: value if isinstance(value, str) else [shown(each) for each in value]
        for name, value in fields.items()
    }


def _from_json(value: Json) -> dict[str, Value]:
    return {name: _read_value(each) for name, each in _object(value).items()}


def _read_value(value: Json) -> Value:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise TypeError(f"expected a text or a list, found {type(value).__name__}")
    if all(isinstance(each, str) for each in value):
        return tuple(str(each) for each in value)
    made = [_object(each) for each in value]
    return tuple(Passage(str(p["id"]), str(p["title"]), str(p["text"])) for p in made)


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    return value


def _whole(value: Json) -> tuple[int, ...]:
    if not isinstance(value, list) or any(type(each) is not int for each in value):
        raise TypeError(f"expected whole numbers, found {str(value)[:40]}")
    return tuple(each for each in value if isinstance(each, int))
