"""Demonstrations made from annotated questions."""

import random

import pytest

from conftest import rows
from multihop.prompts.demonstrations import parse, render
from multihop.prompts.making import make_demonstration, make_titles_demonstration
from multihop.prompts.sentences import light, spacy, spacy_tokens


@pytest.mark.spacy
def test_demonstrations_are_made_as_by_the_releases_generator():
    failed = []
    for row in rows("golden/demo_generation.jsonl"):
        given = row["input"]
        if given.get("task") == "title_generation":
            # The generator lists titles as JSON for both families (the released flan files
            # do not); our "plain" style makes what those files show.
            made = make_titles_demonstration(given["instance"], "json")
        else:
            made = make_demonstration(
                given["instance"],
                distractors=given["distractor_count"],
                kind=given["qa_type"],
                rng=random.Random(given["python_random_seed_before"]),
                splitter=spacy,
                count=spacy_tokens,
                longest=given["max_paragraph_tokens"],
                pinned_last=given["pinned_at_bottom"],
            )
        if render([made]) != row["expected"]["text"].rstrip("\n"):
            failed.append(row["id"])
    assert not failed


INSTANCE = {
    "question_id": "q",
    "question_text": "Where was the writer of Ode born?",
    "answers_objects": [{"spans": ["Tarn"]}],
    "contexts": [
        {"title": "Ode", "paragraph_text": "Ode is by Ida.\nIt is short.", "is_supporting": True},
        {
            "title": "Lake",
            "paragraph_text": "One two. Three four. Five six.",
            "is_supporting": False,
        },
    ],
    "reasoning_steps": [
        {
            "cot_sent": "Ode is by Ida.",
            "paragraphs": [{"title": "Ode", "paragraph_text": "Ode is by Ida.\nIt is short."}],
        },
        {
            "cot_sent": "So the answer is: Tarn.",
            "paragraphs": [{"title": None, "paragraph_text": None}],
        },
    ],
}


def test_gold_passages_are_kept_whole_and_distractors_cut_at_a_sentence_end():
    made = make_demonstration(
        INSTANCE,
        distractors=3,
        kind="cot",
        rng=random.Random(0),
        splitter=light,
        count=lambda text: len(text.split()),
        longest=5,
    )
    assert "Wikipedia Title: Ode\nOde is by Ida. It is short." in made.text
    assert "Three four." in made.text
    assert "Five six." not in made.text
    assert made.text.endswith(
        "Q: Where was the writer of Ode born?\nA: Ode is by Ida. So the answer is: Tarn."
    )


def test_a_made_file_reads_back_as_it_was():
    made = [make_titles_demonstration(INSTANCE, "plain")]
    assert parse(render(made)) == tuple(made)
    assert made[0].answered == "Ode"
