"""Annotated questions: read out of jsonnet, joined with paragraphs, made into prompt files."""

import json
import random
import re

import pytest

from conftest import rows, shared
from multihop.errors import BadInput
from multihop.prompts.annotations import attach, jsonnet_data, read_annotations
from multihop.prompts.demonstrations import parse, read, render
from multihop.prompts.making import make_demonstration
from multihop.prompts.official import make_files
from multihop.prompts.sentences import light

ANNOTATED = r"""
[
    # 1
    {
        "question_id": "q1", // its name
        question_text: 'Who built the "Lost" ride\'s \"track\"?',
        "reasoning_steps": [
            { /* a
                 comment */
                "paragraphs": [{"title": "Ride", "text_substring": "The ride # is", }],
                'cot_sent': "It was\tbuilt by Mack. ",
            },
            {"paragraphs": [{"title": null, "text_substring": null}],
             "cot_sent": "So the answer is: Mack Inc..",},
        ],
    },
]
"""
INSTANCE = {
    "contexts": [
        {"title": "Other", "paragraph_text": "Nothing of use.", "is_supporting": False},
        {"title": "ride ", "paragraph_text": "So: The ride # is by Mack.", "is_supporting": True},
        {"title": "Ride", "paragraph_text": "Other words.", "is_supporting": False},
    ],
}


def words(text: str) -> int:
    return len(text.split())


@pytest.fixture
def annotation(tmp_path):
    path = tmp_path / "a.jsonnet"
    path.write_text(ANNOTATED)
    [found] = read_annotations(path)
    return found


def nothing(title, words):
    return []


def test_jsonnet_that_is_data_is_read(annotation):
    assert annotation["question_text"] == 'Who built the "Lost" ride\'s "track"?'
    first, last = annotation["reasoning_steps"]
    assert first["paragraphs"] == [{"title": "Ride", "text_substring": "The ride # is"}]
    assert first["cot_sent"] == "It was\tbuilt by Mack. "
    assert last["paragraphs"] == [{"title": None, "text_substring": None}]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a\\b",
        'q"q',
        "it's",
        "l\nine\ttab\r",
        "\u00e9\u2028\U0001f600",
        "# no // comment",
        "\\'",
    ],
)
def test_strings_of_json_are_strings_of_jsonnet(value):
    assert jsonnet_data(json.dumps(value), "f") == value
    assert jsonnet_data(json.dumps(value, ensure_ascii=False), "f") == value
    single = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    assert jsonnet_data(single, "f") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local x = 1; [x]", "f: "),
        ("[1 + 1]", r"f: line 1: '\+ 1\]' is not data"),
        ('["a" "b"]', "f: not a list or object of data"),
        ("[1, 2", "f: not a list or object of data"),
        ('["open]', "f: line 1"),
        ("[" * 100_000, "f: not a list"),
    ],
)
def test_jsonnet_that_computes_or_is_damaged_is_refused(text, message):
    with pytest.raises(BadInput, match=message):
        jsonnet_data(text, "f")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "expected a list of annotated questions"),
        ("[]", "holds no annotated question"),
        ("[3]", "question 1: expected an object, found int"),
        (
            '[{"question_id": "a", "question": "b"}]',
            r"no 'question_text' \(its fields: question_id, question\)",
        ),
        (
            '[{"question_id": "a", "question_text": "b", "reasoning_steps": []}]',
            "has no reasoning steps",
        ),
        (
            '[{"question_id": "a", "question_text": "b", "reasoning_steps": [{"cot_sent": "c"}]}]',
            "needs 'cot_sent' and 'paragraphs'",
        ),
    ],
)
def test_what_is_no_annotation_is_refused_with_its_place(tmp_path, content, message):
    path = tmp_path / "a.jsonnet"
    path.write_text(content)
    with pytest.raises(BadInput, match=message):
        read_annotations(path)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(BadInput, match=r"none\.jsonnet: cannot be read"):
        read_annotations(tmp_path / "none.jsonnet")


def test_a_step_gets_the_paragraph_that_holds_its_words_and_the_answer_is_the_chains(annotation):
    found = attach(annotation, INSTANCE, nothing)
    first, last = found["reasoning_steps"]
    assert first["paragraphs"] == [
        {"title": "ride ", "paragraph_text": "So: The ride # is by Mack."}
    ]
    assert last["paragraphs"] == [{"title": None, "paragraph_text": None}]
    assert found["answers_objects"] == [{"spans": ["Mack Inc."]}]


def test_what_no_context_holds_is_looked_up_in_the_corpus(annotation):
    asked = []

    def find(title, words):
        asked.append((title, words))
        return [("Ride", "Nothing."), ("Ride", "The ride # is from the corpus.")]

    found = attach(annotation, {"contexts": INSTANCE["contexts"][2:]}, find)
    assert found["reasoning_steps"][0]["paragraphs"][0]["paragraph_text"] == (
        "The ride # is from the corpus."
    )
    assert asked == [("Ride", "The ride # is")]


def test_for_iirc_only_the_main_passage_is_looked_at_before_the_corpus(annotation):
    main = {"title": "Ride", "paragraph_text": "The ride # is the main one.", "is_supporting": True}
    found = attach(annotation, {**INSTANCE, "pinned_contexts": [main]}, nothing)
    assert found["reasoning_steps"][0]["paragraphs"][0]["paragraph_text"] == main["paragraph_text"]


def test_a_paragraph_that_is_nowhere_is_told(annotation):
    with pytest.raises(
        BadInput, match=r"Annotation q1: no paragraph of 'Ride' holds 'The ride # is'"
    ):
        attach(annotation, {"contexts": []}, nothing)


def test_a_chain_without_an_answer_is_told(annotation):
    annotation["reasoning_steps"].pop()
    with pytest.raises(BadInput, match="Annotation q1: the last sentence states no answer"):
        attach(annotation, INSTANCE, nothing)


def test_all_files_of_the_release_are_made_and_those_for_flan_have_instructions(annotation):
    found = attach(annotation, INSTANCE, nothing)
    files = dict(make_files([found], splitter=light, count=words))
    assert len(files) == 2 * 2 * 4
    cot = files["gold_with_1_distractors_context_cot_qa_flan_t5.txt"][0]
    assert "\n\nQ: Answer the following question by reasoning step-by-step.\nWho built" in cot.text
    alone = files["no_context_direct_qa_flan_t5.txt"][0]
    assert alone.text.startswith("Q: Answer the following question.\nWho built")
    assert alone.text.endswith("\nA: Mack Inc.")
    codex = files["no_context_cot_qa_codex.txt"][0]
    assert codex.text.startswith("Q: Who built")
    passages = [
        re.findall(
            "Wikipedia Title: (.*)",
            files[f"gold_with_{m}_distractors_context_{k}_qa_codex.txt"][0].text,
        )
        for m in (1, 2)
        for k in ("cot", "direct")
    ]
    assert passages[0] == passages[1]
    assert passages[2] == passages[3]
    assert list(map(len, passages)) == [2, 2, 3, 3]
    assert {parse(render(examples)) == examples for examples in files.values()} == {True}


def test_iirc_shows_its_main_passage_first_to_codex_and_last_to_flan_and_has_titles(annotation):
    main = {"title": "Main", "paragraph_text": "The main passage.", "is_supporting": True}
    found = attach(
        annotation,
        {"contexts": INSTANCE["contexts"], "pinned_contexts": [main]},
        lambda title, words: [("Ride", "The ride # is.")],
    )
    files = dict(make_files([found], splitter=light, count=words))
    assert len(files) == 2 * 2 * 4 + 2
    codex = files["gold_with_2_distractors_context_cot_qa_codex.txt"][0].text
    flan = files["gold_with_2_distractors_context_cot_qa_flan_t5.txt"][0].text
    assert codex.startswith("Wikipedia Title: Main\n")
    assert "Wikipedia Title: Main\nThe main passage.\n\nQ: " in flan
    assert "The main passage." in files["no_context_cot_qa_codex.txt"][0].text
    assert files["no_context_open_llm_retrieval_codex.txt"][0].answered == '["Ride"]'
    assert files["no_context_open_llm_retrieval_flan_t5.txt"][0].answered == "Ride"


def blocks(text: str) -> list[str]:
    """Titles and passages; the handed ones have plain single blanks."""
    context = "\n\n" + text.rpartition("\n\nQ: ")[0]
    return sorted(" ".join(block.split()) for block in context.split("\n\nWikipedia Title: ")[1:])


@pytest.mark.parametrize("dataset", ["hotpotqa", "2wikimultihopqa", "musique"])
def test_released_annotations_give_the_released_examples_but_for_the_order_of_passages(dataset):
    file = f"data/raw/ircot_prompts/{dataset}_gold_with_3_distractors_context_cot_qa_codex.txt"
    released = {d.metadata["qid"]: d for d in read(shared(file))}
    checked = 0
    for row in rows(f"data/{dataset}_demonstrations.jsonl"):
        annotation = {
            "question_id": row["id"],
            "question_text": row["question"],
            "reasoning_steps": [
                {"cot_sent": step["cot_sentence"], "paragraphs": step["paragraphs"]}
                for step in row["reasoning_steps"]
            ],
        }
        contexts = [
            {"title": p["title"], "paragraph_text": p["text"], "is_supporting": p["is_gold"]}
            for p in row["paragraphs"]
        ]
        made = make_demonstration(
            attach(annotation, {"contexts": contexts}, nothing),
            distractors=3,
            kind="cot",
            rng=random.Random(0),
            splitter=lambda text: [text],  # what was cut is not cut again
            count=lambda text: 0,
        )
        theirs = released[row["id"]]
        assert made.answered == theirs.answered
        assert made.asked.rpartition("\n\nQ: ")[2] == theirs.asked.rpartition("\n\nQ: ")[2]
        ours, printed = blocks(made.text), blocks(theirs.text)
        assert len(ours) == len(printed)
        # A distractor that was cut in print may be handed in full.
        assert all(map(str.startswith, ours, printed)), row["id"]
        assert sum(map(str.__ne__, ours, printed)) <= 3, row["id"]
        checked += 1
    assert checked == len(released)
