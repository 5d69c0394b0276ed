import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihop.metrics import bootstrap, holm, mcnemar, paired_bootstrap

patient = settings(deadline=None)  # the machine may be busy

BITS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60)


def only(a, b, both=0):
    """Scores where A alone is right `a` times, B alone `b` times."""
    return [1] * a + [0] * b + [1] * both, [0] * a + [1] * b + [1] * both


@pytest.mark.parametrize(
    ("a", "b", "p"),
    # Two-sided binomial tails at 1/2, from tables.
    [
        (0, 5, 0.0625),
        (0, 6, 0.03125),
        (1, 7, 0.0703125),
        (2, 10, 0.038574),
        (5, 15, 0.041389),
        (4, 4, 1.0),
    ],
)
def test_mcnemar_gives_the_binomial_table(a, b, p):
    assert mcnemar(*only(a, b, both=7)) == pytest.approx(p, abs=1e-6)
    assert mcnemar(*only(b, a)) == pytest.approx(p, abs=1e-6)


def test_mcnemar_of_two_that_never_differ_is_1():
    assert mcnemar([1, 0, 1], [1, 0, 1]) == 1


def test_mcnemar_counts_thousands_of_questions():
    assert mcnemar(*only(2000, 2000)) == 1
    assert 0 < mcnemar(*only(2100, 1900)) < 0.01


def test_mcnemar_refuses_scores_between():
    with pytest.raises(ValueError, match=r"scores of 0 and 1, found 0\.5"):
        mcnemar([1, 0.5], [0, 0])


@patient
@given(BITS)
def test_mcnemar_is_scipy_s_binomial_test(pairs):
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    a, b = zip(*pairs, strict=True)
    wins, losses = pairs.count((1, 0)), pairs.count((0, 1))
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert mcnemar(a, b) == pytest.approx(expected)


def test_holm_by_hand():
    # Sorted: .005 x 4, .01 x 3, .03 x 2, .04 x 1 raised to the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_of_none_and_of_one():
    assert holm([]) == []
    assert holm([0.2]) == [0.2]


@patient
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_holm_never_lowers_keeps_the_order_and_stays_within_bonferroni(p_values, shuffler):
    adjusted = holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1, len(p_values) * max(p_values))
    ranked = [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    assert ranked == sorted(adjusted)
    order = shuffler.sample(range(len(p_values)), len(p_values))
    assert holm([p_values[i] for i in order]) == [adjusted[i] for i in order]


def test_bootstrap_of_a_constant_difference_is_certain():
    found = paired_bootstrap([1.0] * 20, [0.5] * 20, samples=500)
    assert (found.mean, found.low, found.high, found.n) == (0.5, 0.5, 0.5, 20)
    assert found.p == 1 / 501


def test_bootstrap_of_equal_scores_finds_nothing():
    found = paired_bootstrap([0, 1, 1, 0], [0, 1, 1, 0], samples=200)
    assert (found.mean, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_bootstrap_agrees_with_the_normal_approximation_on_many_questions():
    noise = random.Random(1)
    b = [noise.random() for _ in range(400)]
    a = [x + noise.gauss(0.03, 0.3) for x in b]
    found = paired_bootstrap(a, b, samples=2000)
    differences = [x - y for x, y in zip(a, b, strict=True)]
    middle = sum(differences) / 400
    error = (sum((d - middle) ** 2 for d in differences) / 400) ** 0.5 / 20
    assert found.low == pytest.approx(middle - 1.96 * error, abs=error / 5)
    assert found.high == pytest.approx(middle + 1.96 * error, abs=error / 5)


def test_the_same_seed_gives_the_same_figures_and_another_seed_others():
    a, b = only(30, 20, both=10)
    assert paired_bootstrap(a, b, samples=300, seed=3) == paired_bootstrap(
        a, b, samples=300, seed=3
    )
    assert paired_bootstrap(a, b, samples=300, seed=3) != paired_bootstrap(
        a, b, samples=300, seed=4
    )


@patient
@given(BITS)
def test_swapping_a_and_b_turns_the_difference_round(pairs):
    a, b = zip(*pairs, strict=True)
    there, back = paired_bootstrap(a, b, samples=100), paired_bootstrap(b, a, samples=100)
    assert there.mean == -back.mean
    assert there.p == back.p
    assert there.low <= there.mean + 1e-9
    assert there.mean <= there.high + 1e-9 or len(pairs) > 1
    assert 0 < there.p <= 1


def test_unequal_numbers_of_questions_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        paired_bootstrap([1, 1], [1])
    with pytest.raises(ValueError, match="no question"):
        paired_bootstrap([], [])
    with pytest.raises(ValueError, match="shorter"):
        mcnemar([1, 1], [1])


def test_comparisons_bootstrapped_together_are_those_made_one_by_one():
    draw = random.Random(3)
    sizes = (40, 1, 40, 25)
    pairs = [([draw.random() for _ in range(n)], [draw.random() for _ in range(n)]) for n in sizes]
    together = bootstrap(
        [[x - y for x, y in zip(a, b, strict=True)] for a, b in pairs], samples=300, seed=7
    )
    assert together == [paired_bootstrap(a, b, samples=300, seed=7) for a, b in pairs]
    with pytest.raises(ValueError, match="no question"):
        bootstrap([[0.5], []])
