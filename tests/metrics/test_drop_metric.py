import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rows
from multihop.metrics import Score, drop
from multihop.metrics.assignment import assign
from multihop.metrics.drop import normalize

patient = settings(deadline=None)  # the machine may be busy

SPANS = st.lists(
    st.lists(
        st.sampled_from(["red", "blue", "mill", "the", "7", "7.0", "8", "x-y"]), max_size=3
    ).map(" ".join),
    min_size=1,
    max_size=4,
)
# Few different values: ties decide which of equally good assignments is taken.
MATRICES = st.integers(0, 6).flatmap(
    lambda columns: st.lists(
        st.lists(st.sampled_from([0.0, 0.5, 2 / 3, 0.8, 1.0]), min_size=columns, max_size=columns),
        max_size=6,
    )
)


def numbers(score):
    return score.em, score.f1, score.precision, score.recall


def test_drop_golden():
    wrong = []
    for row in rows("golden/metric_drop.jsonl"):
        predictions, golds = row["input"]["predictions"], row["input"]["golds"]
        expected = row["expected"]
        right = numbers(drop(predictions, golds)) == pytest.approx(
            [expected[n] for n in ("em", "f1", "precision", "recall")], abs=1e-9
        )
        if "raw_without_unicode_fix" in expected:
            plain = numbers(drop(predictions, golds, fix_unicode=False))
            right = (
                right
                and plain == pytest.approx(expected["raw_without_unicode_fix"], abs=1e-9)
                and normalize(predictions[0]) == expected["normalized_prediction"]
                and normalize(golds[0][0]) == expected["normalized_gold"]
            )
        if not right:
            wrong.append(row["id"])
    assert wrong == []


def test_three_spans_against_two_by_hand():
    # Aligned: "tall mill" with "mill" (P 1/2, R 1, F1 2/3), "Lund" with "Lund" (1); one is left.
    assert drop(["tall mill", "Lund", "x"], [["Lund", "mill"]]) == Score(0, 0.56, 0.5, 0.67)


def test_a_repeated_word_counts_once():
    assert drop(["red red"], [["red"]]) == Score(0, 1, 1, 1)


def test_a_gold_number_must_be_in_the_prediction():
    assert drop(["mill of 1987"], [["1988 mill"]]) == Score(0, 0, 0, 0)
    assert drop(["mill of 1988"], [["mill"]]).f1 == 0.5


def test_precision_and_recall_come_from_the_alignment_that_f1_chose():
    # F1 prefers "x" with "x"; precision alone would be as well off with "y x" and "x".
    score = drop(["x", "z y"], [["x", "x z y w v"]])
    assert score == Score(0, 0.79, 1.0, 0.7)


def test_the_best_gold_is_chosen_as_a_whole():
    # One gold has the higher precision, the other the higher F1: no mixing.
    score = drop(["a1"], [["a1 b1 c1 d1", "e1"], ["a1 b1"]])
    assert score == Score(0, 0.67, 1.0, 0.5)


def test_halves_are_rounded_as_numpy_does():
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    # 1 of 8 gold spans with F1 2/3, ...: means whose third decimal decides.
    for found in range(1, 9):
        gold = [f"g{i}" for i in range(8)]
        score = drop(gold[:found], [gold])
        assert score.f1 == float(numpy.round(numpy.float64(found / 8), 2))


def test_no_span_is_one_empty_span():
    assert drop([], [[""]]) == drop([""], [[""]]) == Score(1, 1, 1, 1)
    assert drop([], [["Lund"]]) == Score(0, 0, 1, 0)


def test_no_gold_is_refused():
    with pytest.raises(ValueError, match="list of gold answers is empty"):
        drop(["x"], [])


@patient
@given(predictions=SPANS, golds=st.lists(SPANS, min_size=1, max_size=2))
def test_numbers_lie_between_0_and_1(predictions, golds):
    score = drop(predictions, golds)
    assert score.em in (0, 1)
    assert all(0 <= n <= 1 and round(n, 2) == n for n in numbers(score)[1:])


@patient
@given(spans=SPANS, data=st.data())
def test_the_gold_itself_in_any_order_is_a_match_with_f1_1(spans, data):
    assert drop(data.draw(st.permutations(spans)), [spans]) == Score(1, 1, 1, 1)


@patient
@given(predictions=SPANS, gold=SPANS, data=st.data())
def test_em_and_f1_ignore_the_order_of_spans(predictions, gold, data):
    score = drop(predictions, [gold])
    shuffled = drop(data.draw(st.permutations(predictions)), [data.draw(st.permutations(gold))])
    assert (score.em, score.f1) == (shuffled.em, pytest.approx(shuffled.f1, abs=0.011))


@patient
@given(MATRICES)
def test_the_assignment_is_scipy_s_ties_included(gains):
    optimize = pytest.importorskip("scipy.optimize", reason="SciPy is not installed")
    matrix = [row for row in gains if row]
    if not matrix:
        assert assign(matrix) == []
        return
    ours = assign(matrix)
    theirs = optimize.linear_sum_assignment([[-g for g in row] for row in matrix])
    assert ours == [(int(r), int(c)) for r, c in zip(*theirs, strict=True)]


@patient
@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=5))
def test_no_other_assignment_gains_more(gains):
    pairs = assign(gains)
    assert len({r for r, _ in pairs}) == len({c for _, c in pairs}) == min(len(gains), 3)
    longer = gains if len(gains) >= 3 else [list(column) for column in zip(*gains, strict=True)]
    best = max(
        sum(longer[row][column] for column, row in enumerate(chosen))
        for chosen in itertools.permutations(range(len(longer)), len(longer[0]))
    )
    assert sum(gains[r][c] for r, c in pairs) == best
