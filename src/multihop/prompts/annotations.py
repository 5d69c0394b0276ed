"""Questions annotated with chains: the source of demonstrations.

IRCoT's release keeps them in `prompt_generator/data_annotations/DATASET.jsonnet`, a list of

    question_id, question_text
    reasoning_steps   [{"cot_sent", "paragraphs": [{"title", "text_substring"}]}]

A step rests on the paragraph of that title in which the words of `text_substring` stand; a step
that rests on none has null for both. The last sentence states the answer. Of jsonnet only what
data needs is read: comments, strings in single quotes, keys without quotes, trailing commas.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multihop.errors import BadInput
from multihop.prompts.answers import official_exit
from multihop.prompts.making import Instance
from multihop.text import Json

Find = Callable[[str, str], Sequence[tuple[str, str]]]
"""Looks a page's paragraphs up by title and words; gives (title, text), the best first."""

SIMILAR = 95
"""A paragraph holds the words when `partial_ratio` is above this (of 100), as in the release."""

_TOKEN = re.compile(
    r"""
      (?P<skip>\s+|\#[^\n]*|//[^\n]*|/\*.*?\*/)
    | (?P<double>"(?:[^"\\]|\\.)*")
    | (?P<single>'(?:[^'\\]|\\.)*')
    | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark>[][{}:,])
    """,
    re.VERBOSE | re.DOTALL,
)

_ODD = re.compile(r"\\.|[\"\x00-\x1f]", re.DOTALL)
"""Pieces of a string that JSON may write otherwise: escapes, bare quotes, line ends."""


def read_annotations(path: Path) -> tuple[dict[str, Json], ...]:
    """The annotated questions of a file.

    Args:
        path: A list in jsonnet or JSON; or `.jsonl`, an instance a line.

    Raises:
        BadInput: The file cannot be read, or is not in the format.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as failure:
        raise BadInput(f"{path}: cannot be read ({failure.strerror}).") from None
    except UnicodeDecodeError as broken:
        raise BadInput(f"{path}: not UTF-8 text ({broken.reason} at {broken.start}).") from None
    if path.suffix == ".jsonl":
        lines = text.splitlines()
        found = [
            (f"{path}:{n}", jsonnet_data(line, f"{path}:{n}"))
            for n, line in enumerate(lines, 1)
            if line.strip()
        ]
    else:
        listed = jsonnet_data(text, str(path))
        if not isinstance(listed, list):
            raise BadInput(f"{path}: expected a list of annotated questions.")
        found = [(f"{path}: question {n}", record) for n, record in enumerate(listed, 1)]
    checked = tuple(_checked(record, where) for where, record in found)
    if not checked:
        raise BadInput(f"{path}: holds no annotated question.")
    return checked


def jsonnet_data(text: str, where: str) -> Json:
    """The value of jsonnet text that is data alone.

    Args:
        text: The text.
        where: Its file, for the error message.

    Raises:
        BadInput: It computes something, or is damaged.
    """
    try:
        value: Json = json.loads("".join(_as_json(text, where)))
    except (ValueError, RecursionError) as broken:
        raise BadInput(f"{where}: not a list or object of data ({broken}).") from None
    return value


def _as_json(text: str, where: str) -> Iterator[str]:
    """The same as JSON, token by token."""
    at, comma = 0, False
    while at < len(text):
        token = _TOKEN.match(text, at)
        if not token:
            line = text.count("\n", 0, at) + 1
            raise BadInput(
                f"{where}: line {line}: {text[at : at + 20]!r} is not data. Of jsonnet only lists, "
                "objects, strings and numbers are read."
            )
        at, found = token.end(), token[0]
        if token.lastgroup == "skip":
            continue
        if found == ",":
            comma = True
            continue
        if comma and found not in ("]", "}"):
            yield ","
        comma = False
        match token.lastgroup:
            case "single" | "double":
                yield '"' + _ODD.sub(_escaped, found[1:-1]) + '"'
            case "word" if found not in ("null", "true", "false"):
                yield f'"{found}"'  # a key
            case _:
                yield found


def _escaped(odd: re.Match[str]) -> str:
    """What JSON writes for a piece of a jsonnet string."""
    piece = odd[0]
    return "'" if piece == "\\'" else piece if len(piece) > 1 else json.dumps(piece)[1:-1]


def _checked(record: Json, where: str) -> dict[str, Json]:
    if not isinstance(record, dict):
        raise BadInput(f"{where}: expected an object, found {type(record).__name__}.")
    for name, kind in [("question_id", str), ("question_text", str), ("reasoning_steps", list)]:
        if not isinstance(record.get(name), kind):
            raise BadInput(
                f"{where}: no {name!r} (its fields: {', '.join(record) or 'none'}). An annotated "
                "question has question_id, question_text and reasoning_steps."
            )
    steps = record["reasoning_steps"]
    assert isinstance(steps, list)
    for step in steps:
        sound = (
            isinstance(step, dict)
            and isinstance(step.get("cot_sent"), str)
            and isinstance(paragraphs := step.get("paragraphs"), list)
            and all(isinstance(paragraph, dict) for paragraph in paragraphs)
        )
        if not sound:
            raise BadInput(f"{where}: each reasoning step needs 'cot_sent' and 'paragraphs'.")
    if not steps:
        raise BadInput(f"{where}: has no reasoning steps.")
    return record


def attach(annotation: Mapping[str, Any], instance: Mapping[str, Any], find: Find) -> Instance:
    """An annotated question with the paragraphs that its steps rest on.

    Question and answer are those of the annotation, so that a chain and a bare answer agree. A
    paragraph is looked for in the question's own contexts (for IIRC, in its main passage), then
    by `find`.

    Args:
        annotation: From `read_annotations`.
        instance: `contexts` and `pinned_contexts` of the same question, each {"title",
            "paragraph_text", "is_supporting"}.
        find: Looks paragraphs up in the corpus.

    Raises:
        BadInput: A paragraph is found nowhere, or the last sentence states no answer.
    """
    name = annotation["question_id"]
    steps = annotation["reasoning_steps"]
    answer = official_exit(steps[-1]["cot_sent"])
    if not answer:
        raise BadInput(
            f"Annotation {name}: the last sentence states no answer. It must end in: So the "
            "answer is: ..."
        )
    pinned = instance.get("pinned_contexts") or []
    near = [(c["title"], c["paragraph_text"]) for c in pinned or instance["contexts"]]

    def whole(paragraph: Mapping[str, Any]) -> dict[str, str | None]:
        title, words = paragraph.get("title"), paragraph.get("text_substring")
        if not title or not words:
            return {"title": None, "paragraph_text": None}
        text = _holding(title, words, near) or _holding(title, words, find(title, words))
        if text is None:
            raise BadInput(
                f"Annotation {name}: no paragraph of {title!r} holds {words!r}, neither among the "
                "question's contexts nor in the corpus. Name the corpus's index with --index."
            )
        return {"title": text[0], "paragraph_text": text[1]}

    return {
        **instance,
        "question_id": name,
        "question_text": annotation["question_text"],
        "answers_objects": [{"spans": [answer]}],
        "reasoning_steps": [
            {
                "cot_sent": step["cot_sent"],
                "paragraphs": [whole(paragraph) for paragraph in step["paragraphs"]],
            }
            for step in steps
        ],
    }


def _holding(
    title: str, words: str, paragraphs: Sequence[tuple[str, str]]
) -> tuple[str, str] | None:
    """The paragraph of the title that holds the words best, if well enough."""
    from rapidfuzz import fuzz  # noqa: PLC0415 - kept out of the floors' imports

    key = title.strip().lower()
    scored = [
        (fuzz.partial_ratio(words, text), (there, text))
        for there, text in paragraphs
        if there.strip().lower() == key
    ]
    score, found = max(scored, key=lambda pair: pair[0], default=(0, None))
    return found if score > SIMILAR else None
