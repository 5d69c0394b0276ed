"""Templates: a record as a prompt, a completion as fields (paper, section 2.4; spec of the layout).

instructions
---
raw demonstrations
---
the format, field by field
---
each augmented demonstration
---
known fields, and the first unknown one's prefix
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from multihop.lms.base import Prompt, Turn
from multihop.strategies.dsp.example import Example, Value
from multihop.text import Passage

BETWEEN = "\n\n---\n\n"
LEAD = "Follow this format."
LONG = 3
"""A template of more fields than this is long: a blank line parts its fields."""

Format = Callable[[Value], str]


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a template.

    Attributes:
        name: Of the example's field.
        prefix: Written before the value; one that ends in a newline puts it on lines of its own.
        description: What the format's guide says in the value's place.
        shown: Turns the value into text.
        given: Comes from the program and never from the LM: left out of a template where an
            example has none.
    """

    name: str
    prefix: str
    description: str
    shown: Format
    given: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """How a step of the LM is asked and read.

    Attributes:
        instructions: One line.
        fields: In order; those that the LM writes come last.
    """

    instructions: str
    fields: tuple[Field, ...]

    @property
    def long(self) -> bool:
        """Whether blank lines part the fields."""
        return len(self.fields) > LONG or any(f.prefix.endswith("\n") for f in self.fields)

    @property
    def last(self) -> Field:
        """The field that a completion must reach."""
        return self.fields[-1]

    def of(self, example: Example) -> "Template":
        """The template without the given fields that an example lacks."""
        have = [f for f in self.fields if not f.given or self._value(f, example.fields)]
        return replace(self, fields=tuple(have))

    def known(self, example: Mapping[str, Value]) -> list[Field]:
        """The fields up to the first that has no value."""
        found = []
        for each in self.fields:
            if not self._value(each, example):
                break
            found.append(each)
        return found

    def guide(self) -> str:
        """The format, field by field."""
        lines = [_line(each.prefix, each.description) for each in self.fields]
        return "\n\n".join([LEAD, ("\n\n" if self.long else "\n").join(lines)])

    def block(self, example: Mapping[str, Value], *, parted: bool, asks: bool = False) -> str:
        """One example.

        Args:
            example: Its fields; a demonstration's missing ones are left out.
            parted: A blank line between fields.
            asks: End with the first unknown field's prefix, for the LM to go on.
        """
        between = "\n\n" if parted else "\n"
        if not asks:
            values = [(f, self._value(f, example)) for f in self.fields]
            return between.join(_line(f.prefix, value) for f, value in values if value)
        known = self.known(example)
        lines = [_line(f.prefix, self._value(f, example)) for f in known]
        if len(known) < len(self.fields):
            lines.append(self.fields[len(known)].prefix.strip())
        return between.join(lines)

    def prompt(self, example: Example, demos: Sequence[Example], stage: str) -> Prompt:
        """The prompt of a stage, for completion models and for chat models.

        Args:
            example: The query.
            demos: Demonstrations; a raw one is shown when it has the last field.
            stage: Augmented ones are shown as they were at this stage.
        """
        raw = [
            self.block(_labelled(demo.fields), parted=self.long)
            for demo in demos
            if not demo.augmented and self._value(self.last, _labelled(demo.fields))
        ]
        augmented = [
            self.block(_labelled(demo.seen_at(stage)), parted=True)
            for demo in demos
            if demo.augmented and stage in demo.stages
        ]
        query = self.block(example.fields, parted=self.long, asks=True)
        if raw and not augmented and not self.long:
            before = [self.instructions, self.guide(), "\n\n".join(raw)]
            shared = BETWEEN.join(before) + "\n\n"
        else:
            before = [self.instructions, *(["\n\n".join(raw)] if raw else []), self.guide()]
            shared = BETWEEN.join([*before, *augmented]) + BETWEEN
        turns = self._turns(example, demos, stage)
        return Prompt(shared + query, turns, "", len(shared))

    def _turns(self, example: Example, demos: Sequence[Example], stage: str) -> tuple[Turn, ...]:
        """The same for a chat model: what is known from the user, what is wanted from the LM."""
        asked = self.known(example.fields)
        names = {f.name for f in asked}
        turns = [Turn("system", f"{self.instructions}\n\n{self.guide()}")]
        for demo in demos:
            fields = _labelled(demo.seen_at(stage) if demo.augmented else demo.fields)
            if not self._value(self.last, fields) or (demo.augmented and stage not in demo.stages):
                continue
            given = {name: value for name, value in fields.items() if name in names}
            told = {name: value for name, value in fields.items() if name not in names}
            turns += [
                Turn("user", self.block(given, parted=self.long)),
                Turn("assistant", self.block(told, parted=self.long)),
            ]
        query = self.block(example.fields, parted=self.long, asks=True)
        return (*turns, Turn("user", query))

    def read(self, completion: str, example: Example) -> dict[str, str]:
        """The fields that a completion gives, from the first unknown one on.

        A field's value is the text up to the next field's prefix at the beginning of a line;
        the last field takes the rest. A chat model may write the first prefix again.

        Returns:
            Fields in order, up to the first without a value.
        """
        wanted = self.fields[len(self.known(example.fields)) :]
        rest, found = completion, {}
        for number, each in enumerate(wanted):
            rest = (
                re.sub(rf"\s*{re.escape(each.prefix.strip())}", "", rest, count=1)
                if (rest.lstrip().startswith(each.prefix.strip()))
                else rest
            )
            following = wanted[number + 1].prefix.strip() if number + 1 < len(wanted) else ""
            parts = [rest, ""]
            if following:
                parts = re.split(rf"(?m)^[ \t]*(?={re.escape(following)})", rest, maxsplit=1)
            value = " ".join(parts[0].split())
            if not value:
                break
            found[each.name] = value
            if len(parts) == 1:
                break
            rest = parts[1]
        return found

    def stops(self) -> tuple[str, ...]:
        """What ends a completion: the next block, or the next example."""
        return ("\n---", f"\n{self.fields[0].prefix.strip()}")

    @staticmethod
    def _value(each: Field, example: Mapping[str, Value]) -> str:
        value = example.get(each.name)
        return each.shown(value) if value else ""


def _labelled(fields: Mapping[str, Value]) -> Mapping[str, Value]:
    """A demonstration's fields, the accepted answers as its answer where it has no other."""
    return {"answer": answers, **fields} if (answers := fields.get("answers")) else fields


def _line(prefix: str, value: str) -> str:
    return f"{prefix}{value}" if prefix.endswith(("\n", " ")) else f"{prefix} {value}"


# --- Formats --------------------------------------------------------------------------------


def plain(value: Value) -> str:
    """A text on one line; of several the first, as of accepted answers."""
    if isinstance(value, str):
        return " ".join(value.split())
    return " ".join(str(value[0]).split()) if value else ""


def lines(value: Value) -> str:
    """Texts, one a line."""
    return value if isinstance(value, str) else "\n".join(" ".join(str(v).split()) for v in value)


def passages(value: Value) -> str:
    """Passages in guillemets; several are numbered, each on a line."""
    shown = [
        f"\u00ab{f'{p.title} | ' if p.title else ''}{' '.join(p.text.split())}\u00bb"
        for p in value
        if isinstance(p, Passage)
    ]
    if len(shown) == 1:
        return shown[0]
    return "\n".join(f"[{number}] {text}" for number, text in enumerate(shown, 1))
