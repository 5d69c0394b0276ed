import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rows
from multihop.errors import BadInput
from multihop.metrics import Score, answer_support_recall, pid, recall_at, support
from multihop.metrics.official import answer_support_report, support_report

patient = settings(deadline=None)  # the machine may be busy

NAMES = st.lists(st.sampled_from("abcdef"), max_size=6)

# Rows on which the release stops with an exception, and what ours gives instead.
BETTER = {
    # An answer that begins with "pid" is a text, not a hash (trap 7).
    "support_em_f1-023": {"title_em": 1.0, "title_f1": 1.0, "para_recall": 1.0, "count": 1},
    "support_em_f1-024": {"title_em": 0.0, "title_f1": 0.0, "para_recall": 0.0, "count": 1},
}
# Hashes against texts is a mistake of the caller in both.
REFUSED = {"support_em_f1-017"}


def test_support_golden():
    wrong, better, refused = [], set(), set()
    for row in rows("golden/support_em_f1.jsonl"):
        calls = [(c["predicted"], c["gold"]) for c in row["input"]["calls"]]
        normalized = row["input"]["do_normalize_answer"]
        if "error" not in row["expected"]:
            if support_report(calls, normalized=normalized) != pytest.approx(
                row["expected"], abs=1e-9
            ):
                wrong.append(row["id"])
        elif normalized:
            report = support_report(calls, normalized=True)
            better.add(row["id"])
            # Every row of the kind must be scored; those we know, with these numbers.
            assert report["count"] == len(calls)
            for name, value in BETTER.get(row["id"], {}).items():
                assert report[name] == value, (row["id"], name)
        else:
            refused.add(row["id"])
            with pytest.raises(BadInput, match="pids are compared with texts"):
                support_report(calls)
    assert wrong == []
    assert better >= set(BETTER)
    assert refused >= REFUSED


def test_pid_golden():
    wrong = [
        row["id"]
        for row in rows("golden/pid.jsonl")
        if pid(row["input"]["title"], row["input"]["paragraph_text"]) != row["expected"]["pid"]
    ]
    assert wrong == []


def test_answer_support_recall_golden():
    wrong = []
    for row in rows("golden/answer_support_recall.jsonl"):
        calls = [(c["paragraphs"], c["gold_answers"]) for c in row["input"]["calls"]]
        if answer_support_report(calls) != pytest.approx(row["expected"], abs=1e-9):
            wrong.append(row["id"])
    assert wrong == []


def test_support_by_hand():
    # 1 right of 2 found, of 3 wanted.
    assert support(["a", "x"], ["a", "b", "c"]) == Score(
        0, pytest.approx(0.4), 0.5, pytest.approx(1 / 3)
    )


def test_nothing_found_where_nothing_is_gold_is_a_match_without_recall():
    assert support([], []) == Score(1, 1, 0, 0)


@patient
@given(found=NAMES, gold=NAMES)
def test_support_numbers_lie_between_0_and_1_and_a_match_has_f1_1(found, gold):
    score = support(found, gold)
    assert score.em in (0, 1)
    assert all(0 <= n <= 1 for n in (score.f1, score.precision, score.recall))
    assert not score.em or score.f1 == 1


@patient
@given(found=NAMES, gold=NAMES, data=st.data())
def test_support_ignores_order_and_repeats(found, gold, data):
    shuffled = data.draw(st.permutations(found + found[:1]))
    assert support(shuffled, gold) == support(found, gold)


@patient
@given(found=NAMES, gold=NAMES)
def test_swapping_found_and_gold_swaps_precision_and_recall(found, gold):
    there, back = support(found, gold), support(gold, found)
    assert (there.em, there.f1) == (back.em, pytest.approx(back.f1))
    assert (there.precision, there.recall) == (back.recall, back.precision)


def test_recall_counts_only_what_was_collected_within_the_budget():
    found = ["x", "a", "y", "b"]
    assert recall_at(found, ["a", "b"], 1) == 0
    assert recall_at(found, ["a", "b"], 2) == 0.5
    assert recall_at(found, ["a", "b"], 9) == recall_at(found, ["b", "a", "a"]) == 1


def test_recall_without_gold_is_refused():
    with pytest.raises(ValueError, match="list of gold passages is empty"):
        recall_at(["a"], [])


@patient
@given(found=NAMES, gold=st.lists(st.sampled_from("abcdef"), min_size=1))
def test_recall_never_falls_when_the_budget_grows(found, gold):
    recalls = [recall_at(found, gold, budget) for budget in range(8)]
    assert recalls == sorted(recalls)
    assert recalls[0] == 0
    assert recalls[-1] == recall_at(found, gold) == support(found, gold).recall


def test_pid_ignores_case_blanks_accents_and_a_repeated_title():
    plain = pid("Brask Mill", "An old mill.")
    assert pid("brask  mill ", "Title: brask  mill\nan OLD mill. ") == plain
    assert pid("Bräsk Mill", "x").split("___")[1] == pid("Brsk Mill", "x").split("___")[1]
    assert pid("Brask Mill", "An old\nmill.") != plain


def test_a_title_line_of_another_page_stays_in_the_pid():
    assert pid("A", "Title: B\ntext") != pid("A", "text")


def test_an_answer_within_a_word_counts_as_supported():
    assert answer_support_recall(["A place"], ["ace", "mill"]) == 0.5


def test_answer_support_without_answers_is_refused():
    with pytest.raises(ValueError, match="list of gold answers is empty"):
        answer_support_recall(["x"], [])


def test_reports_over_no_question_are_refused():
    with pytest.raises(BadInput, match="no question"):
        support_report([])
    with pytest.raises(BadInput, match="no question"):
        answer_support_report([])


def test_the_release_s_extremes_of_paragraph_counts_are_kept_in_its_report():
    a, b = pid("A", "1"), pid("A", "2")
    # Three paragraphs of two titles, then one: the true maximum is 3.
    report = support_report([([a, b, pid("B", "1")], [a]), ([a], [a])])
    assert (report["max_predicted_paras"], report["min_predicted_paras"]) == (2, 1)
