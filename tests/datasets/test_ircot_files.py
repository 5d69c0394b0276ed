import json

import pytest

from conftest import rows
from multihop.datasets import InstanceFile
from multihop.datasets.ircot import read_instance
from multihop.errors import BadInput
from multihop.metrics import pid
from multihop.text import Passage

# Numbers and dates: the release takes them apart into characters (trap 8), ours are one span.
ONE_SPAN = {
    "data_reader-005": ("12",),
    "data_reader-006": ("4 May 1951",),
    "ground_truth-009": ("12",),
    "ground_truth-012": ("4 May 1951",),
}

MILL = {"title": "Brask Mill", "paragraph_text": "The mill is old.", "is_supporting": True}
ODE = {"title": "Ode", "paragraph_text": "A river.", "is_supporting": False}


def spans(*texts):
    return {"number": "", "date": {"day": "", "month": "", "year": ""}, "spans": list(texts)}


def record(**more):
    fields = {
        "question_id": "q1",
        "question_text": "Who?",
        "answers_objects": [spans("Orla Venn")],
        "contexts": [MILL, ODE],
    }
    return {k: v for k, v in (fields | more).items() if v is not ...}


def in_characters(answer):
    """Whether the release would take a gold answer apart: no spans, but a number or a date."""
    return not answer["spans"] or bool(answer["number"])


def as_read(instance, options):
    """Our record in the terms of the release's reader."""
    which = (
        "all" if options.get("add_paras") else "gold" if options.get("add_gold_paras") else "none"
    )
    pinned = options.get("add_pinned_paras", False)
    chosen = instance.paragraphs(
        which,
        pinned=pinned,
        drop_pinned_titles=options.get("remove_pinned_para_titles", False),
        max_words=options.get("max_num_words_per_para"),
    )
    metadata = {
        **instance.metadata,
        "pin_position": options.get("pin_position", "no_op"),
        "gold_titles": [c.title for c in instance.gold],
        "gold_paras": [c.text for c in instance.gold],
        "gold_ids": [c.id for c in instance.gold],
    }
    if pinned:
        metadata |= {
            "pinned_title": instance.pinned[0].title,
            "pinned_para": instance.pinned[0].text,
        }
    return {
        "qid": instance.id,
        "question": instance.question,
        "answer": list(instance.answer),
        "titles": [title for title, _ in chosen],
        "paras": [text for _, text in chosen],
        "pids": [pid(title, text) for title, text in chosen],
        "metadata": metadata,
        **({} if instance.valid_titles is None else {"valid_titles": list(instance.valid_titles)}),
    }


def test_data_reader_golden():
    wrong = []
    for row in rows("golden/data_reader.jsonl"):
        instance, expected = row["input"]["instance"], row["expected"]
        if "error" in expected:
            with pytest.raises(BadInput, match="begins with a title line"):
                read_instance(instance, row["id"])
            continue
        if all(in_characters(a) for a in instance["answers_objects"]):
            expected = {**expected, "answer": list(ONE_SPAN[row["id"]])}
        if as_read(read_instance(instance, row["id"]), row["input"]["options"]) != expected:
            wrong.append(row["id"])
    assert wrong == []


def test_ground_truth_golden():
    wrong = []
    for row in rows("golden/ground_truth.jsonl"):
        instance, kind, expected = (
            row["input"]["instance"],
            row["input"]["prediction_type"],
            row["expected"],
        )
        if "error" in expected:
            with pytest.raises(BadInput, match="begins with a title line"):
                read_instance(instance, row["id"])
            continue
        read = read_instance(instance, row["id"])
        wanted = read.paragraphs("gold", drop_pinned_titles=True)
        found = {
            "answer": list(read.answer),
            "titles": [title for title, _ in wanted],
            "pids": [pid(*pair) for pair in wanted],
        }[kind]
        truth = expected["ground_truth"]
        if kind == "answer" and all(in_characters(a) for a in instance["answers_objects"]):
            truth = list(ONE_SPAN[row["id"]])
        if found != truth:
            wrong.append(row["id"])
    assert wrong == []


def test_a_question_of_ours_knows_its_gold():
    question = read_instance(record(dataset="hotpotqa", type="bridge"), "x").to_question()
    assert (question.id, question.text, question.kind) == ("q1", "Who?", "bridge")
    assert (question.answers, question.gold_titles, question.gold_ids) == (
        ("Orla Venn",),
        ("Brask Mill",),
        (),
    )
    assert question.extra == {
        "dataset": "hotpotqa",
        "type": "bridge",
        "gold_paragraphs": [{"title": "Brask Mill", "text": "The mill is old."}],
    }


def test_ids_of_gold_paragraphs_are_used_when_all_have_one():
    known = {**MILL, "id": "m"}
    assert read_instance(record(contexts=[known, ODE]), "x").to_question().gold_ids == ("m",)
    other = {**MILL, "paragraph_text": "It burnt."}
    assert read_instance(record(contexts=[known, other]), "x").to_question().gold_ids == ()


def test_an_answer_of_several_spans_is_one_answer_with_parts():
    question = read_instance(record(answers_objects=[spans("Lund", "Tarn")]), "x").to_question()
    assert question.answers == ("Lund, Tarn",)
    assert question.extra["answer_parts"] == ["Lund", "Tarn"]


def test_the_main_passage_is_pinned_and_never_gold():
    main = {"title": "Brask Mill", "paragraph_text": "Main passage.", "is_supporting": True}
    instance = record(pinned_contexts=[main], valid_titles=["Ode"])
    question = read_instance(instance, "x").to_question()
    assert question.pinned == Passage("q1/main", "Brask Mill", "Main passage.")
    assert (question.gold_titles, question.extra["gold_paragraphs"]) == ((), [])
    assert question.extra["valid_titles"] == ["Ode"]


def test_the_pinned_passage_comes_first_when_shown():
    main = {"title": "Main", "paragraph_text": "Main passage.", "is_supporting": True}
    instance = read_instance(record(pinned_contexts=[main]), "x")
    assert [t for t, _ in instance.paragraphs("all", pinned=True)] == ["Main", "Brask Mill", "Ode"]


def test_of_equally_common_answers_the_first_counts():
    answers = [spans("b"), spans("a"), spans("a"), spans("b")]
    assert read_instance(record(answers_objects=answers), "x").answer == ("b",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question_id": ...}, "no 'question_id'"),
        ({"question_text": 3}, "'question_text' must be a string"),
        ({"answers_objects": []}, "'answers_objects' is empty"),
        ({"answers_objects": [spans()]}, "neither number nor spans nor date"),
        ({"answers_objects": "x"}, "'answers_objects' must be a list, found"),
        ({"contexts": ...}, "no 'contexts'"),
        ({"contexts": [{"title": "x"}]}, "in 'contexts': no 'paragraph_text'"),
        (
            {"contexts": [{**ODE, "is_supporting": "no"}]},
            "'is_supporting' of 'Ode' must be true or false",
        ),
        (
            {"contexts": [{**ODE, "paragraph_text": "Title: Ode\nA river."}]},
            "begins with a title line",
        ),
        ({"valid_titles": "Ode"}, "'valid_titles' must be a list"),
    ],
)
def test_a_bad_record_is_refused_with_file_and_line(tmp_path, change, message):
    path = tmp_path / "dev.jsonl"
    path.write_text(json.dumps(record()) + "\n" + json.dumps(record(**change)) + "\n")
    with pytest.raises(BadInput, match=rf"dev\.jsonl:2: .*{message}"):
        list(InstanceFile(path))


def test_a_file_gives_questions_of_its_data_set_and_can_be_read_again(tmp_path):
    path = tmp_path / "dev.jsonl"
    path.write_text(
        json.dumps(record()) + "\n\n" + json.dumps(record(question_id="q2", dataset="iirc")) + "\n"
    )
    questions = InstanceFile(path, dataset="musique")
    assert [(q.id, q.extra["dataset"]) for q in questions] == [("q1", "musique"), ("q2", "iirc")]
    assert len(list(questions)) == 2
