"""Lessons as a file."""

import json

import pytest

from multihop.errors import BadInput
from multihop.training import lessons
from tiny_hf import lessons as some


def test_what_is_written_is_read(tmp_path) -> None:
    path = tmp_path / "lessons.jsonl"
    made = some(3)
    lessons.write(path, made)
    assert lessons.read(path) == made


GOOD = {"prompt": "Q: a\u2028b?\nA:", "completion": " c", "skill": "next", "question": "q"}


def test_lines_end_at_line_feeds_only(tmp_path) -> None:
    path = tmp_path / "lessons.jsonl"
    path.write_text(json.dumps({"question": "q", "examples": [GOOD]}, ensure_ascii=False) + "\n")
    (lesson,) = lessons.read(path)
    assert lesson.examples[0].prompt == GOOD["prompt"]
    assert lesson.examples[0].weight == 1.0


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"question": "q", "examples": []}, "line 1: a lesson has"),
        ({"examples": [GOOD]}, "line 1: a lesson has"),
        ({"question": "q", "examples": [3]}, "line 1, example 1: not an object"),
        ({"question": "q", "examples": [{**GOOD, "prompt": ""}]}, "`prompt` must be text"),
        ({"question": "q", "examples": [{**GOOD, "completion": None}]}, "`completion` must be"),
        ({"question": "q", "examples": [GOOD, {**GOOD, "skill": "x"}]}, "example 2: `skill` is"),
        ({"question": "q", "examples": [{**GOOD, "weight": 0}]}, "`weight` is 0"),
        ({"question": "q", "examples": [{**GOOD, "weight": float("nan")}]}, "`weight` is nan"),
        ([], "expected a JSON object"),
    ],
)
def test_what_is_no_lesson_is_refused_with_its_line(tmp_path, record, words) -> None:
    path = tmp_path / "lessons.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(BadInput, match=words):
        lessons.read(path)


def test_files_without_lessons_are_refused(tmp_path) -> None:
    path = tmp_path / "lessons.jsonl"
    with pytest.raises(BadInput, match="No such file"):
        lessons.read(path)
    path.write_text("\n")
    with pytest.raises(BadInput, match="holds no lessons"):
        lessons.read(path)
    path.write_bytes(b"\xff\n")
    with pytest.raises(BadInput, match="not UTF-8"):
        lessons.read(path)
