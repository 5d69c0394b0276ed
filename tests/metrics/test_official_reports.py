import pytest

from conftest import rows
from multihop.errors import BadInput
from multihop.metrics.official import dataset_report, drop_report, joined, support_report
from multihop.prompts.answers import official_evaluated

# Rows on which the release stops: an answer begins with "pid" (trap 7). Ours scores them.
BETTER = {
    "evaluate_set-009": {
        "em": 0.0,
        "f1": 0.0,
        "precision": 0.0,
        "recall": 0.0,
        "sp_em": 0.0,
        "count": 1,
    }
}


def test_evaluate_set_golden():
    wrong, better = [], set()
    for row in rows("golden/evaluate_set.jsonl"):
        golds, predictions = row["input"]["ground_truths"], row["input"]["predictions"]
        if row["input"]["prediction_type"] != "answer":
            ours = {"plain": support_report([(predictions[q], golds[q]) for q in golds])}
        else:
            ours = {
                "plain": drop_report(
                    golds, {q: official_evaluated(p) for q, p in predictions.items()}
                ),
                "official_iirc": drop_report(
                    golds, {q: official_evaluated(joined(p)) for q, p in predictions.items()}
                ),
            }
        for kind, expected in row["expected"].items():
            if "error" in expected:
                better.add(row["id"])
                assert ours[kind]["count"] == len(golds)
                for name, value in BETTER.get(row["id"], {}).items():
                    assert ours[kind][name] == value, (row["id"], name)
            elif ours[kind] != pytest.approx(expected, abs=1e-9):
                wrong.append((row["id"], kind))
    assert wrong == []
    assert better >= set(BETTER)


def test_joining_a_list_costs_iirc_its_match():
    golds, prediction = {"q": ["Lund", "Tarn"]}, ["Lund", "Tarn"]
    assert drop_report(golds, {"q": official_evaluated(prediction)})["em"] == 1
    report = drop_report(golds, {"q": official_evaluated(joined(prediction))})
    assert (report["em"], report["f1"]) == (0, 0.33)


def test_joining_leaves_texts_and_empty_lists_alone():
    assert joined("a, b") == "a, b"
    assert joined(["a"]) == "a"
    assert joined([1, 2]) == "1 2"
    assert joined([]) == []


def test_means_of_drop_numbers_are_rounded_on_the_scaled_value():
    # (0.67 + 3) / 4 is a hair under 0.9175; scaled to 917.5 it goes to the even 918.
    golds = {question: ["a1 b1"] for question in "1234"}
    spans = golds | {"4": ["a1"]}
    assert drop_report(golds, spans)["f1"] == 0.918


def test_data_set_reports_are_means_of_their_own_metric():
    golds = {"1": ["yes"], "2": ["Orla Venn"]}
    predictions = {"1": "yes it is", "2": "Venn"}
    assert dataset_report("hotpotqa", golds, predictions) == {
        "f1": 0.333,
        "em": 0,
        "precision": 0.5,
        "recall": 0.25,
        "count": 2,
    }
    assert dataset_report("2wikimultihopqa", golds, predictions)["f1"] == 0.333
    assert dataset_report("musique", golds, predictions) == {"f1": 0.583, "em": 0, "count": 2}


def test_an_unknown_data_set_is_named_with_the_known_ones():
    with pytest.raises(BadInput, match=r"'squad'. Known: hotpotqa, 2wikimultihopqa, musique"):
        dataset_report("squad", {"1": ["x"]}, {"1": "x"})


@pytest.mark.parametrize("report", [drop_report, lambda g, p: dataset_report("musique", g, p)])
def test_a_question_without_prediction_is_an_error_not_a_zero(report):
    with pytest.raises(BadInput, match="1 of 2 questions have no prediction, first '2'"):
        report({"1": ["x"], "2": ["y"]}, {"1": "x"})
    with pytest.raises(BadInput, match="no question to score"):
        report({}, {})
