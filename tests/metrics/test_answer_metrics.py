import ftfy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rows
from multihop.metrics import Score, hotpotqa, musique, squad, two_wiki
from multihop.metrics.answer import normalize

patient = settings(deadline=None)  # the machine may be busy

WORDS = st.lists(
    st.sampled_from(
        ["red", "blue", "the", "a", "yes", "no", "noanswer", "U.S.", "1987", "Zoë", "-"]
    ),
    max_size=5,
).map(" ".join)
TEXTS = st.one_of(WORDS, st.text(max_size=12))
EVERY = pytest.mark.parametrize("metric", [squad, musique, hotpotqa, two_wiki])


def test_squad_golden():
    wrong = []
    for row in rows("golden/metric_squad.jsonl"):
        prediction, gold = row["input"]["prediction"], row["input"]["gold"]
        expected = row["expected"]
        plain, mended = squad(prediction, [gold]), squad(prediction, [gold], fix_unicode=True)
        fixed = expected["metric_after_unicode_fix"]
        if (
            normalize(prediction) != expected["normalized_prediction"]
            or normalize(gold) != expected["normalized_gold"]
            or (plain.em, plain.f1) != pytest.approx((expected["em"], expected["f1"]), abs=1e-9)
            or (mended.em, mended.f1) != pytest.approx((fixed["em"], fixed["f1"]), abs=1e-9)
        ):
            wrong.append(row["id"])
    assert wrong == []


@pytest.mark.parametrize(
    ("file", "metric", "names"),
    [
        (
            "metric_hotpotqa_official",
            hotpotqa,
            {"em": "em", "f1": "f1", "prec": "precision", "recall": "recall"},
        ),
        (
            "metric_2wikimultihopqa_official",
            two_wiki,
            {"em": "em", "f1": "f1", "prec": "precision", "recall": "recall"},
        ),
        ("metric_musique_official", musique, {"em": "em", "f1": "f1"}),
    ],
)
def test_data_set_script_golden(file, metric, names):
    wrong = []
    for row in rows(f"golden/{file}.jsonl"):
        given_ = row["input"]
        score = metric(given_["prediction"], given_.get("golds") or [given_["gold"]])
        assert set(row["expected"]) == set(names)
        if any(
            getattr(score, ours) != pytest.approx(row["expected"][theirs], abs=1e-9)
            for theirs, ours in names.items()
        ):
            wrong.append(row["id"])
    assert wrong == []


def test_f1_of_three_words_against_two_by_hand():
    # "tall red mill" against "red mill": 2 shared of 3 predicted, of 2 wanted.
    score = squad("tall red mill", ["the Red Mill!"])
    assert score == Score(0.0, pytest.approx(0.8), pytest.approx(2 / 3), 1.0)


def test_a_repeated_word_counts_as_often_as_it_stands_in_both():
    assert squad("red red", ["red"]).f1 == pytest.approx(2 / 3)
    assert squad("red red", ["red red"]).f1 == 1


def test_each_number_is_the_best_over_the_golds_alone():
    # Against "a b" of SQuAD's words: P 1/2, R 1; against "x y z": P 1, R 2/3.
    score = squad("x y", ["x", "x y z"])
    assert score == Score(0.0, pytest.approx(0.8), 1.0, 1.0)


def test_yes_and_no_are_all_or_nothing_in_hotpotqa_but_words_in_squad():
    assert hotpotqa("yes it is", ["yes"]) == Score(0, 0, 0, 0)
    assert hotpotqa("it is", ["noanswer"]) == Score(0, 0, 0, 0)
    assert hotpotqa("Yes.", ["yes"]) == Score(1, 1, 1, 1)
    assert squad("yes it is", ["yes"]).f1 == 0.5


def test_two_empty_answers_match_but_have_no_f1_in_hotpotqa():
    assert hotpotqa("the", [""]) == Score(1, 0, 0, 0)
    assert squad("the", [""]) == Score(1, 1, 1, 1)


@EVERY
def test_no_gold_answer_is_refused_instead_of_scored_zero(metric):
    with pytest.raises(ValueError, match="list of gold answers is empty"):
        metric("x", [])


@EVERY
@patient
@given(prediction=TEXTS, golds=st.lists(TEXTS, min_size=1, max_size=3))
def test_scores_lie_between_0_and_1_and_em_is_yes_or_no(metric, prediction, golds):
    score = metric(prediction, golds)
    assert score.em in (0, 1)
    assert all(0 <= number <= 1 for number in (score.f1, score.precision, score.recall))


@EVERY
@patient
@given(prediction=TEXTS, gold=TEXTS)
def test_a_match_with_words_in_it_has_f1_1(metric, prediction, gold):
    for answer in (gold, f"The {gold}!", prediction):
        score = metric(answer, [gold])
        if score.em and normalize(gold):
            assert score == Score(1, 1, 1, 1)


@EVERY
@patient
@given(prediction=TEXTS, gold=TEXTS)
def test_swapping_sides_swaps_precision_and_recall(metric, prediction, gold):
    there, back = metric(prediction, [gold]), metric(gold, [prediction])
    assert (there.em, there.precision, there.recall) == (back.em, back.recall, back.precision)
    assert there.f1 == pytest.approx(back.f1)


@EVERY
@patient
@given(prediction=TEXTS, golds=st.lists(TEXTS, min_size=1, max_size=4), data=st.data())
def test_the_order_of_golds_does_not_matter(metric, prediction, golds, data):
    assert metric(prediction, golds) == metric(prediction, data.draw(st.permutations(golds)))


@EVERY
@patient
@given(prediction=TEXTS, golds=st.lists(TEXTS, min_size=1, max_size=3), more=TEXTS)
def test_one_more_gold_never_lowers_a_number(metric, prediction, golds, more):
    few, many = metric(prediction, golds), metric(prediction, [*golds, more])
    assert few.em <= many.em
    assert few.f1 <= many.f1
    assert few.precision <= many.precision
    assert few.recall <= many.recall


@patient
@given(words=st.permutations(["red", "mill", "1987", "Orla"]))
def test_f1_ignores_the_order_of_words_and_em_does_not(words):
    score = squad(" ".join(words), ["red mill 1987 Orla"])
    assert score.f1 == 1
    assert score.em == (words == ["red", "mill", "1987", "Orla"])


@patient
@given(TEXTS)
def test_normal_form_is_lower_case_single_blanked_and_without_articles(text):
    normal = normalize(text)
    assert normal == " ".join(normal.split())
    assert not {"a", "an", "the"} & set(normal.split())


def test_unicode_repair_is_ftfy_s():
    assert ftfy.fix_text("CafÃ©") == "Café"
    assert squad("CafÃ©", ["Café"]).em == 0
    assert squad("CafÃ©", ["Café"], fix_unicode=True).em == 1


def test_novel_f1_takes_no_words_that_the_conversation_has_said() -> None:
    from multihop.metrics.answer import novel

    said = ["Who built the mill?", "Ada Stone built it."]
    assert novel("Ada Stone was born in Leith", ["in Leith"], said).f1 == pytest.approx(2 / 3)
    assert novel("Ada Stone built the mill", ["Leith"], said).f1 == 0
    assert novel("it was Ada Stone", ["Ada"], said).f1 == 1  # nothing new on either side
