"""From a configuration to lessons, over a small index."""

import dataclasses
import json
from pathlib import Path

import pytest

from multihop.errors import BadInput
from multihop.retrievers.bm25_index import build_index
from multihop.text import Json, Passage
from multihop.training import lessons
from multihop.training.config import Config, Data, Source
from multihop.training.recipe import make_lessons

PASSAGES = [
    Passage("f", "The Ferry", "The Ferry is a 1931 Indian film directed by Ada Rao."),
    Passage("r", "Ada Rao", "Ada Rao (3 May 1901 – 1970) was an Indian director, born in Pune."),
    Passage("l", "Bo Lind", "Bo Lind (1 June 1899 – 1960) was a Swedish director."),
    Passage("c", "King of Clay", "King of Clay is a 1950 Swedish film directed by Bo Lind."),
]
QUESTION: dict[str, Json] = {
    "id": "q1",
    "question": "Where was the director of The Ferry born?",
    "answers": ["Pune"],
    "gold_paragraph_ids": ["f", "r"],
    "evidences": [["The Ferry", "director", "Ada Rao"], ["Ada Rao", "place of birth", "Pune"]],
}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    build_index(PASSAGES, folder)
    return folder


def questions(path: Path, *records: dict[str, Json]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def config(index: Path, *records: dict[str, Json], **changes: object) -> Config:
    file = questions(index.parent / "train.jsonl", *records)
    source = Source(name="own", licence="CC0-1.0", questions=(file,), index=str(index), drills=4)
    return Config(data=Data(sets=(source,), **changes))  # type: ignore[arg-type]


def test_questions_become_lessons_and_are_counted(index: Path) -> None:
    unusable = {**QUESTION, "id": "q2", "question": "Who?", "answers": []}
    made = make_lessons(config(index, QUESTION, unusable))
    assert {lesson.question for lesson in made.lessons} == {"q1", "drills"}
    [part] = made.parts
    assert (part.name, part.licence, part.questions) == ("own", "CC0-1.0", 1)
    assert part.examples == sum(len(lesson.examples) for lesson in made.lessons)
    assert made.without_chain == 1


@pytest.mark.parametrize(
    "held", [{"id": "q1", "question": "Another?"}, {"id": "x", "question": " where was THE director of The Ferry  born?"}]
)  # fmt: skip
def test_a_held_out_question_is_refused_by_id_and_by_words(
    index: Path, held: dict[str, Json]
) -> None:
    never = questions(index.parent / "dev.jsonl", held)
    with pytest.raises(BadInput, match=r"train\.jsonl: question 'q1' is also in .*dev\.jsonl"):
        make_lessons(config(index, QUESTION, never=(never,)))


def test_nothing_is_asked_about_gold_passages_of_held_out_questions(index: Path) -> None:
    held: dict[str, Json] = {
        "id": "d1",
        "question": "Who made what?",
        "gold_paragraph_ids": [p.id for p in PASSAGES],
    }
    never = questions(index.parent / "dev.jsonl", held)
    free = make_lessons(config(index, QUESTION, facts=9))
    kept = make_lessons(config(index, QUESTION, facts=9, never=(never,)))
    skills = [{e.skill for le in made.lessons for e in le.examples} for made in (free, kept)]
    assert "fact" in skills[0]
    assert "fact" not in skills[1]


def test_a_gold_passage_that_the_index_lacks_is_named(index: Path) -> None:
    with pytest.raises(BadInput, match="gold passage 'nowhere', which is not in the index"):
        make_lessons(config(index, {**QUESTION, "gold_paragraph_ids": ["f", "nowhere"]}))


def test_no_question_to_learn_from_is_an_error(index: Path) -> None:
    only = config(index, {**QUESTION, "answers": []})
    [source] = only.data.sets
    bare = dataclasses.replace(only.data, sets=(dataclasses.replace(source, drills=0),))
    with pytest.raises(BadInput, match="No lesson could be made"):
        make_lessons(dataclasses.replace(only, data=bare))


def test_only_the_skills_asked_for_are_taught(index: Path, tmp_path: Path) -> None:
    made = make_lessons(config(index, QUESTION, skills=("read",)))
    assert {e.skill for le in made.lessons for e in le.examples} == {"read"}
    file = tmp_path / "lessons.jsonl"
    lessons.write(file, make_lessons(config(index, QUESTION)).lessons)
    again = make_lessons(Config(data=Data(lessons=str(file), skills=("query", "read"))))
    assert {e.skill for le in again.lessons for e in le.examples} <= {"query", "read"}
