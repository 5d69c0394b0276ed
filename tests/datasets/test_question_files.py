import json

import pytest

from conftest import shared
from multihop.datasets import QuestionFile
from multihop.errors import BadInput
from multihop.text import Passage, Question

FULL = {
    "id": "q1",
    "dataset": "musique",
    "question": "Where was the builder of Brask Mill born?",
    "answers": ["Lund", "Lund, Sweden"],
    "gold_titles": ["Brask Mill", "Jon Brask"],
    "gold_paragraph_ids": ["m", "b"],
    "type": "2hop",
    "decomposition": [{"question": "who built it?", "answer": "Jon Brask"}],
}


def write(path, *records):
    path.write_text(
        "".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records), "utf-8"
    )
    return QuestionFile(path)


def test_a_record_keeps_everything_it_says(tmp_path):
    [found] = write(tmp_path / "q.jsonl", FULL)
    assert found == Question(
        text="Where was the builder of Brask Mill born?",
        id="q1",
        answers=("Lund", "Lund, Sweden"),
        gold_ids=("m", "b"),
        gold_titles=("Brask Mill", "Jon Brask"),
        kind="2hop",
        extra={"dataset": "musique", "decomposition": FULL["decomposition"]},
    )


def test_a_question_alone_is_enough_and_is_named_by_its_line(tmp_path):
    found = list(
        write(
            tmp_path / "q.jsonl",
            "\ufeff",
            {"question": "Who?"},
            "\n",
            {"question": "Where?", "type": None},
        )
    )
    assert [(q.id, q.text, q.answers, q.kind) for q in found] == [
        ("1", "Who?", (), ""),
        ("3", "Where?", (), ""),
    ]


def test_the_main_passage_of_iirc_is_read(tmp_path):
    pinned = {"id": "p", "title": "Ode", "text": "A river."}
    [found] = write(tmp_path / "q.jsonl", {"question": "Who?", "pinned": pinned})
    assert found.pinned == Passage("p", "Ode", "A river.")
    assert "pinned" not in found.extra


def test_a_file_can_be_read_again(tmp_path):
    questions = write(tmp_path / "q.jsonl", FULL)
    assert list(questions) == list(questions)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"id": "x"}, r"no 'question' \(its fields: id\)"),
        ({"question": "  "}, "'question' is empty"),
        ({"question": 3}, r"'question' must be a string, found int \(3\)"),
        (
            {"question": "Who?", "answers": "Lund"},
            r"'answers' must be a list of strings, found str",
        ),
        (
            {"question": "Who?", "answers": ["Lund", 3]},
            r"'answers' must hold strings, found int \(3\)",
        ),
        ({"question": "Who?", "gold_paragraph_ids": [1]}, "'gold_paragraph_ids' must hold strings"),
        ({"question": "Who?", "id": 7}, "'id' must be a string"),
        ({"question": "Who?", "dataset": 7}, "'dataset' must be a string"),
        ({"question": "Who?", "answer_parts": []}, "'answer_parts' is empty"),
        ({"question": "Who?", "pinned": "Ode"}, "'pinned' must be an object"),
        ({"question": "Who?", "pinned": {"id": "p"}}, "in 'pinned': no 'title'"),
        ({"question": "Where?", "id": "q1"}, r"id 'q1' is also that of .*q\.jsonl:1"),
        ('{"question": \n', "not JSON"),
        ("[1]\n", "expected a JSON object, found list"),
    ],
)
def test_a_bad_line_is_refused_with_file_and_line(tmp_path, record, message):
    questions = iter(write(tmp_path / "q.jsonl", FULL, record))
    assert next(questions).id == "q1"
    with pytest.raises(BadInput, match=rf"q\.jsonl:2: .*{message}"):
        next(questions)


def test_bytes_that_are_not_utf_8_are_refused(tmp_path):
    (tmp_path / "q.jsonl").write_bytes(b'{"question": "Zo\xeb?"}\n')
    with pytest.raises(BadInput, match=r"q\.jsonl:1: not UTF-8 at byte 16"):
        list(QuestionFile(tmp_path / "q.jsonl"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"none\.jsonl: cannot be read \(No such file"):
        list(QuestionFile(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        ("hotpotqa_dev", 240, "5abcc96c5542996583600492"),
        ("2wikimultihopqa_dev", 394, "6aed324e0bd911eba7f7acde48001122"),
        ("musique_dev", 109, "3hop2__60649_90098_10557"),
        ("strategyqa_dev", 115, "42608d4f0243d307f6de"),
        ("bamboogle_dev", 63, "bamboogle_30"),
        ("fanoutqa_dev", 155, "d65057f597c21114"),
    ],
)
def test_handed_question_files_are_read(name, count, first):
    questions = list(QuestionFile(shared(f"data/{name}.jsonl")))
    assert (len(questions), questions[0].id) == (count, first)
    assert all(q.answers and q.extra["dataset"] == name.removesuffix("_dev") for q in questions)
