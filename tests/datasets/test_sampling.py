"""The paper's samples, and questions written in our own format."""

import random
from dataclasses import replace

import pytest

from conftest import shared
from multihop import names
from multihop.datasets import QuestionFile
from multihop.datasets.questions import question_line
from multihop.datasets.sampling import DEV, SEED, TEST, sample
from multihop.errors import BadInput
from multihop.text import Passage, Question

POOL = [Question(f"Q{number}?", id=f"q{number}", answers=("a",)) for number in range(700)]


def test_the_papers_samples_are_100_and_500_by_seed_13370():
    assert (DEV, TEST, SEED) == (100, 500, 13370)
    drawn = sample(POOL)
    assert drawn.dev == tuple(random.Random(13370).sample(POOL, 100))
    rest = [question for question in POOL if question not in drawn.dev]
    assert drawn.test == tuple(random.Random(13370).sample(rest, 500))
    assert not {q.id for q in drawn.dev} & {q.id for q in drawn.test}
    assert (drawn.drawn_from, drawn.without_answer) == (700, 0)


def test_the_same_seed_gives_the_same_and_another_others():
    assert sample(POOL, 10, 10) == sample(tuple(POOL), 10, 10)
    assert sample(POOL, 10, 10, seed=1).dev != sample(POOL, 10, 10).dev


def test_questions_without_an_answer_are_left_out_before():
    drawn = sample([Question("?", id="none"), *POOL[:5]], 2, 3)
    assert (drawn.drawn_from, drawn.without_answer) == (5, 1)
    assert {q.id for q in drawn.dev + drawn.test} == {q.id for q in POOL[:5]}


def test_too_few_questions_are_told():
    with pytest.raises(BadInput, match="takes 100 and 500 questions, and 599 have an answer"):
        sample(POOL[:599])


def test_what_can_be_read_once_or_shares_ids_is_refused():
    with pytest.raises(BadInput, match="read twice"):
        sample(iter(POOL))
    with pytest.raises(BadInput, match="share ids"):
        sample([*POOL, POOL[0]])


def test_a_question_written_is_read_back_as_it_was(tmp_path):
    asked = [
        Question("Where \ud800 is\nit?", id="1"),
        Question(
            "Who?",
            id="2",
            answers=("a", "b"),
            gold_ids=("p",),
            gold_titles=("P", "Q"),
            kind="bridge",
            pinned=Passage("m", "Main", "Text."),
            extra={"dataset": "iirc", "answer_parts": ["a", "b"], "level": "hard"},
        ),
    ]
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(map(question_line, asked)))
    read = list(QuestionFile(path))
    assert read == asked
    assert [dict(q.extra) for q in read] == [dict(q.extra) for q in asked]


def test_an_empty_question_is_not_written():
    with pytest.raises(BadInput, match="Question 'x' is empty"):
        question_line(Question(" ", id="x"))


@pytest.mark.parametrize(
    "name",
    [
        "hotpotqa:hotpot_dev_distractor_v1.slice.json",
        "2wikimultihopqa:2wikimultihopqa_dev.slice.json",
        "musique:musique_ans_v1.0_dev.slice.jsonl",
        "strategyqa:strategyqa_dev.slice.json",
        "fanoutqa:fanoutqa_dev.slice.json",
    ],
)
def test_published_questions_go_through_our_format_without_loss(name, tmp_path):
    kind, _, file = name.partition(":")
    asked = list(names.open_questions(f"{kind}:{shared('data/raw') / file}"))
    path = tmp_path / "q.jsonl"
    path.write_text("".join(question_line(question) + "\n" for question in asked))
    # The type stands in `kind`; some data sets say it in `extra` once more.
    wanted = [
        replace(q, extra={key: value for key, value in q.extra.items() if key != "type"})
        for q in asked
    ]
    assert list(QuestionFile(path)) == wanted
