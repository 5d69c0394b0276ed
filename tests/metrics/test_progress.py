"""IM-RAG's tracker and rewards, by hand-made numbers."""

import math

import pytest

from multihop.errors import BadInput
from multihop.metrics import progress as p
from multihop.metrics import rewards
from multihop.text import Hit, Passage, Question
from multihop.trace import Answer, Search, Thought, fold

A, B, C, D = (Passage(name, name.upper(), f"text of {name}") for name in "abcd")
VECTORS = {"a": (1.0, 0.0), "b": (0.0, 1.0), "c": (0.6, 0.8), "d": (0.8, -0.6)}


def encode(texts):
    return [VECTORS[text[-1]] for text in texts]


def known(name):
    return {"a": A, "b": B, "c": C, "d": D}.get(name)


def trace(*shown, gold=("a", "b"), answer="Ulm", golds=("Ulm",)):
    """Turns that showed these passages; None is an invalid turn."""
    steps, collected = [], ()
    for n, passages in enumerate(shown):
        steps.append(Thought(f"query {n}", kind="query"))
        if passages is None:
            steps.append(Search("", (), (), collected))
            continue
        ids = tuple(x.id for x in passages)
        collected += ids
        hits = tuple(Hit(x, 1.0) for x in reversed(passages))
        steps.append(Search(f"query {n}", hits, ids, collected))
    steps.append(Answer(answer, "answered", reason="" if answer else "nothing"))
    return fold(Question("Where?", "q", tuple(golds), gold_ids=tuple(gold)), "im-rag", steps)


def cosine(**more):
    return p.Tracker("cosine", encode=encode, passage=known, **more)


def gains(tracker, made):
    return [round(step.gain, 6) for step in tracker.track(made)]


def test_distance_is_one_less_the_cosine_of_the_nearest_gold_passage_left():
    steps = cosine(removal="always").track(trace([C], [C]))
    assert [round(s.gain, 6) for s in steps] == [0.8, 0.6]
    assert [round(s.distance, 6) for s in steps] == [0.2, 0.4]
    assert [s.taken for s in steps] == [("b",), ("a",)]
    assert [s.left for s in steps] == [1, 0]


def test_removal_always_takes_a_gold_passage_away_even_when_it_was_far():
    steps = cosine(removal="always").track(trace([D], [A], [A]))
    assert [s.taken for s in steps] == [("a",), ("b",), ()]
    assert gains(cosine(removal="always"), trace([D], [A], [A])) == [0.8, 0.0, 0.0]


def test_removal_by_threshold_keeps_what_was_not_found():
    steps = cosine(removal="threshold", threshold=0.9).track(trace([D], [A], [C]))
    assert [s.taken for s in steps] == [(), ("a",), ()]
    assert gains(cosine(removal="threshold", threshold=0.9), trace([D], [A], [C])) == [0.8, 1, 0.8]


def test_the_gold_passage_itself_is_taken_whatever_the_threshold():
    [step] = cosine(threshold=1.0).track(trace([A]))
    assert step.taken == ("a",)


def test_only_the_first_passage_counts_unless_best_of_k():
    assert gains(cosine(), trace([D, B], gold=("b",))) == [-0.6]
    assert gains(cosine(best_of_k=True), trace([D, B], gold=("b",))) == [1.0]


def test_the_first_passage_is_the_first_kept_not_the_first_hit():
    assert gains(cosine(), trace([B, D], gold=("b",))) == [1.0]


def test_ids_count_a_gold_passage_anywhere_among_those_shown():
    steps = p.Tracker("id").track(trace([C, A], [D], [B]))
    assert [s.gain for s in steps] == [1, 0, 1]
    assert [s.taken for s in steps] == [("a",), (), ("b",)]
    always = p.Tracker("id", "always").track(trace([C], [D], [B]))
    assert [s.taken for s in always] == [("a",), ("b",), ()]


def test_recall_is_the_share_that_is_new_less_what_was_seen():
    assert gains(p.Tracker("recall"), trace([A, C], [C, B], [A])) == [0.5, 0.0, 0.0]


def test_an_invalid_turn_makes_no_progress():
    assert [s.gain for s in p.Tracker("id").track(trace(None, [A]))] == [0, 1]


@pytest.mark.parametrize("scorer", ["id", "recall", "cosine"])
def test_without_gold_passages_there_is_no_progress(scorer):
    tracker = p.Tracker(scorer, encode=encode, passage=known)
    assert [(s.gain, s.left) for s in tracker.track(trace([A], gold=()))] == [(0, 0)]


def test_a_gold_passage_without_a_text_is_told_of():
    with pytest.raises(BadInput, match="'zz'"):
        cosine().track(trace([A], gold=("zz",)))
    with pytest.raises(BadInput, match="encoder"):
        p.Tracker("cosine")


def test_progress_is_the_discounted_sum_from_exponent_one():
    assert math.isclose(p.progress([0.5, 1.0], 0.9), 0.9 * 0.5 + 0.81)
    assert p.progress([], 0.9) == 0


@pytest.mark.parametrize(("gamma", "turn"), [(0.9, 1), (0.5, 1), (0.3, 2), (0.25, 2), (0.2, 3)])
def test_the_turn_at_which_equation_six_stops_for_perfect_hits(gamma, turn):
    assert p.stop_turn([1.0, 1.0, 1.0], gamma, 0.3, 3) == turn


def test_one_unrelated_passage_stops_the_literal_rule_at_a_large_gamma():
    assert p.stop_turn([0.35, 1.0, 1.0], 0.9, 0.3, 3) == 1
    assert p.stop_turn([0.0, 0.0, 0.0], 0.9, 0.3, 3) == 3


def test_the_papers_reward_is_equation_four_without_the_kl_term():
    made = trace([A], [C], answer="in Ulm")
    found = rewards.reward(made, cosine(removal="always"), rewards.PAPER)
    assert math.isclose(found.answer, 2 / 3)
    assert math.isclose(found.total, 0.3 * 1 + 0.09 * 0.8 + 2 / 3)


def test_the_default_reward_weighs_progress_answer_and_format():
    found = rewards.reward(trace([A], None), p.Tracker("id"))
    assert found.gains == (1, 0)
    assert math.isclose(found.usable, 2 / 3)
    assert math.isclose(found.total, 0.5 * 0.9 + 1 + 0.2 * 2 / 3)


def test_what_follows_from_a_turn_counts_from_that_turn_on():
    found = rewards.reward(trace([A], [D], [B]), p.Tracker("id"))
    first, second, third, answer = found.from_turn
    assert math.isclose(first, 0.5 * (1 + 0.81) + 1 + 0.2)
    assert math.isclose(second, 0.5 * 0.9 + 1 + 0.2)
    assert math.isclose(third, 0.5 + 1 + 0.2)
    assert math.isclose(answer, 1.2)


def test_a_missing_answer_is_worth_nothing():
    found = rewards.reward(trace([D], answer=""), p.Tracker("id"))
    assert (found.answer, found.usable) == (0, 0.5)


def test_a_group_of_equal_rewards_has_no_advantage_at_all():
    same = [rewards.reward(trace([A]), p.Tracker("id"))] * 3
    for by_turn in (False, True):
        assert rewards.advantages(same, by_turn=by_turn, scaled=True) == [(0.0, 0.0)] * 3


def test_turns_are_compared_with_the_same_turns_of_the_others():
    group = [
        rewards.reward(trace(*shown), p.Tracker("id")) for shown in ([[A], [D]], [[D], [B]], [[D]])
    ]
    found = rewards.advantages(group, by_turn=True)
    assert [len(each) for each in found] == [3, 3, 2]
    assert math.isclose(sum(each[0] for each in found), 0, abs_tol=1e-12)
    assert found[1][1] > 0 > found[0][1]
    whole = rewards.advantages(group)
    assert whole[0][0] == whole[0][2]


def test_advantages_in_standard_deviations():
    assert rewards.centred([0.0, 2.0], scaled=True)[1] == pytest.approx(1 / math.sqrt(2), rel=1e-5)
    assert rewards.centred([0.1, 0.1, 0.1]) == [0, 0, 0]
    assert rewards.centred([]) == []


@pytest.mark.parametrize("wrong", [{"gamma": 0.0}, {"gamma": 1.1}, {"answer": -1.0}])
def test_weights_out_of_range_are_refused(wrong):
    with pytest.raises(BadInput):
        rewards.Weights(**wrong)
