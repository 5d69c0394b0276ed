import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import rows
from multihop.errors import BadInput
from multihop.metrics import Mean, best, criterion, mean, over_sets, reported

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


def scored(system):
    return "answer" if system.endswith("_qa") else "passages"


def test_aggregate_golden():
    wrong = []
    for row in rows("golden/aggregate.jsonl"):
        name = reported(scored(row["input"]["system"]))
        table = over_sets([m and m[name] for m in row["input"]["test_metrics_per_prompt_set"]])
        expected = row["expected"]
        values = [None if v == "n/a" else v for v in expected["values"]]
        if (table.line, list(table.values), table.mean, table.std) != (
            expected["line_value"],
            values,
            expected.get("mean"),
            expected.get("std"),
        ):
            wrong.append(row["id"])
    assert wrong == []


def test_best_hp_golden():
    wrong = []
    for row in rows("golden/best_hp.jsonl"):
        grid = row["input"]["grid_in_order"]
        name = criterion(scored(row["input"]["system"]), "official")
        values = [m and m[name] for m in row["input"]["dev_metrics_in_order"]]
        if "error" in row["expected"]:
            with pytest.raises(BadInput, match="has no result yet"):
                best(grid, values, "official")
        else:
            setting, top = best(grid, values, "official")
            if {**setting, "max_metric_value": top} != row["expected"]:
                wrong.append(row["id"])
    assert wrong == []


def test_retrieval_is_chosen_by_title_recall_officially_and_by_what_is_reported_in_the_paper():
    assert criterion("passages", "official") == "title_recall"
    assert criterion("passages", "paper") == reported("passages") == "para_recall"
    assert criterion("answer", "official") == criterion("answer", "paper") == reported("answer")


def test_the_paper_s_rule_sees_differences_that_the_official_rule_rounds_away():
    grid, values = ["K=2", "K=4"], [0.7001, 0.7004]
    assert best(grid, values, "official") == ("K=2", 70.0)
    assert best(grid, values, "paper") == ("K=4", pytest.approx(70.04))


def test_an_empty_grid_has_no_best():
    with pytest.raises(BadInput, match="grid is empty"):
        best([], [], "paper")


def test_mean_and_standard_error_by_hand():
    # 1, 0, 0, 1: variance 1/3, so the error is sqrt(1/12).
    assert mean([1, 0, 0, 1]) == Mean(0.5, pytest.approx(math.sqrt(1 / 12)), 4)


def test_questions_without_a_score_are_left_out_and_counted():
    assert mean([1, None, 0]) == Mean(0.5, pytest.approx(0.5), 2, 1)
    assert mean([None]) == Mean(None, None, 0, 1)
    assert mean([0.25]) == Mean(0.25, None, 1)


@given(SHARES)
def test_mean_and_error_agree_with_the_statistics_module(values):
    found = mean(values)
    assert found.value == pytest.approx(statistics.fmean(values))
    if len(values) > 1:
        expected = statistics.stdev(values) / math.sqrt(len(values))
        assert found.error == pytest.approx(expected, abs=1e-9)


@given(SHARES, st.randoms(use_true_random=False))
def test_neither_mean_nor_table_depends_on_the_order(values, random):
    shuffled = random.sample(values, len(values))
    assert mean(shuffled).value == pytest.approx(mean(values).value)
    assert (over_sets(shuffled).mean, over_sets(shuffled).std) == (
        over_sets(values).mean,
        over_sets(values).std,
    )


@given(SHARES)
def test_the_best_value_is_the_highest_and_the_first_of_equals(values):
    place, top = best(range(len(values)), values, "official")
    percents = [round(100 * v, 1) for v in values]
    assert top == max(percents)
    assert place == percents.index(top)


def test_one_set_has_a_mean_but_no_deviation():
    table = over_sets([0.5])
    assert (table.mean, table.std, table.line) == (50.0, None, "** n/a **")
