"""Fusion: hand-computed values of each paper's formula, and what holds for any rankings."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihop.errors import BadInput
from multihop.retrievers import fusion
from multihop.retrievers.fusion import FUSIONS, combmnz, combsum, convex, rrf
from multihop.text import Hit, Passage


def ranking(**scores: float) -> list[Hit]:
    return [Hit(Passage(name, "", name), score) for name, score in scores.items()]


def table(hits: list[Hit]) -> dict[str, float]:
    return {hit.passage.id: hit.score for hit in hits}


A = ranking(x=4.0, y=3.0, z=2.0)
B = ranking(z=0.9, w=0.5, y=0.1)


def test_reciprocal_ranks_are_summed() -> None:
    assert list(table(rrf([A, B]))) == ["z", "y", "x", "w"]
    assert table(rrf([A, B])) == pytest.approx(
        {"z": 1 / 63 + 1 / 61, "y": 1 / 62 + 1 / 63, "x": 1 / 61, "w": 1 / 62}
    )


def test_combsum_adds_scores_between_worst_and_best() -> None:
    assert table(combsum([A, B])) == pytest.approx({"x": 1, "z": 1, "y": 0.5, "w": 0.5})


def test_combmnz_multiplies_by_the_rankings_that_have_the_passage() -> None:
    assert table(combmnz([A, B])) == pytest.approx({"z": 2, "x": 1, "y": 1, "w": 0.5})


def test_a_convex_combination_shares_one_among_the_weights() -> None:
    assert table(convex([A, B], weights=[3, 1])) == pytest.approx(
        {"x": 0.75, "y": 0.375, "z": 0.25, "w": 0.125}
    )


def test_each_ranking_may_have_a_scale_of_its_own() -> None:
    fused = convex([A, B], normalise=[fusion.least(0), fusion.least(-1)])
    assert table(fused)["z"] == pytest.approx(0.5 * 2 / 4 + 0.5)
    assert table(fused)["w"] == pytest.approx(0.5 * 1.5 / 1.9)


def test_dsp_sums_probabilities_so_that_two_lists_beat_one_better_place() -> None:
    lists = [ranking(a=3.0, b=2.9), ranking(c=3.0, b=2.9)]
    fused = combsum(lists, normalise=fusion.probabilities(1.0, by_best=False))
    one = math.exp(3) / (math.exp(3) + math.exp(2.9))
    assert table(fused) == pytest.approx({"b": 2 * (1 - one), "a": one, "c": one})
    assert [hit.passage.id for hit in FUSIONS["combsum_prob"](lists)] == ["b", "a", "c"]


def test_dividing_by_the_best_leaves_the_length_of_a_query_out() -> None:
    assert fusion.probabilities()([3.0, 1.5]) == pytest.approx(fusion.probabilities()([30.0, 15.0]))


def test_ties_stand_by_best_place_then_by_id() -> None:
    fused = combsum([ranking(b=1.0, d=1.0), ranking(a=1.0, c=1.0)])
    assert [hit.passage.id for hit in fused] == ["a", "b", "c", "d"]


def test_a_repeated_passage_counts_at_its_first_place() -> None:
    assert table(rrf([[*A, *A]])) == table(rrf([A]))


def test_a_ranking_of_weight_zero_is_as_if_it_were_not_there() -> None:
    for fuse in FUSIONS.values():
        assert fuse([A, B], weights=[1, 0]) == fuse([A], weights=[1])


@pytest.mark.parametrize(
    ("weights", "words"),
    [([1], "1 weights for 2 rankings"), ([1, -1], "1, -1"), ([1, math.nan], "nan")],
)
def test_weights_that_are_none_are_refused(weights, words) -> None:
    for fuse in FUSIONS.values():
        with pytest.raises(BadInput, match=words):
            fuse([A, B], weights=weights)


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(BadInput, match="no share"):
        convex([A, B], weights=[0, 0])
    with pytest.raises(BadInput, match="rrf's k is -1"):
        rrf([A], k=-1)
    with pytest.raises(BadInput, match="1 normalisations for 2 rankings"):
        combsum([A, B], normalise=[fusion.minmax])
    with pytest.raises(BadInput, match="temperature is 0"):
        fusion.probabilities(0)


# --- For any rankings -----------------------------------------------------------------------

scores = st.floats(-1e9, 1e9)
names = st.sampled_from("abcdefgh")


@st.composite
def some_ranking(draw) -> list[Hit]:
    found = draw(st.lists(st.tuples(names, scores), max_size=8))
    hits = [Hit(Passage(name, "", name), score) for name, score in found]
    return sorted(hits, key=lambda hit: -hit.score)


rankings = st.lists(some_ranking(), max_size=5)
fusions = pytest.mark.parametrize("fuse", FUSIONS.values(), ids=FUSIONS)


@fusions
@given(rankings, st.randoms())
def test_the_order_of_the_rankings_does_not_matter(fuse, lists, random) -> None:
    weights = [float(random.randint(1, 9)) for _ in lists]
    places = list(range(len(lists)))
    random.shuffle(places)
    shuffled = fuse([lists[p] for p in places], weights=[weights[p] for p in places])
    assert shuffled == fuse(lists, weights=weights)


@fusions
@given(rankings)
def test_each_passage_of_the_input_comes_out_once_best_first(fuse, lists) -> None:
    fused = fuse(lists)
    ids = [hit.passage.id for hit in fused]
    assert len(ids) == len(set(ids))
    assert set(ids) == {hit.passage.id for hits in lists for hit in hits}
    assert [hit.score for hit in fused] == sorted((hit.score for hit in fused), reverse=True)
    assert all(math.isfinite(hit.score) for hit in fused)


@fusions
@given(st.dictionaries(names, st.integers(-100, 100), max_size=8))
def test_one_ranking_keeps_its_order(fuse, scores) -> None:
    hits = sorted(ranking(**scores), key=lambda hit: (-hit.score, hit.passage.id))
    assert [hit.passage for hit in fuse([hits])] == [hit.passage for hit in hits]


@given(rankings, st.data())
def test_a_passage_that_rises_in_one_ranking_never_falls_in_the_fused_one(lists, data) -> None:
    movable = [n for n, hits in enumerate(lists) if len(hits) > 1]
    if not movable:
        return
    n = data.draw(st.sampled_from(movable))
    place = data.draw(st.integers(1, len(lists[n]) - 1))
    risen = list(lists[n])
    risen[place - 1], risen[place] = risen[place], risen[place - 1]
    name = risen[place - 1].passage.id
    before = [hit.passage.id for hit in rrf(lists)]
    after = [hit.passage.id for hit in rrf([*lists[:n], risen, *lists[n + 1 :]])]
    assert after.index(name) <= before.index(name)


@given(rankings, st.data())
def test_a_higher_score_never_falls_in_the_fused_ranking(lists, data) -> None:
    present = [(n, p) for n, hits in enumerate(lists) for p in range(len(hits))]
    if not present:
        return
    n, place = data.draw(st.sampled_from(present))
    hits = [h for i, h in enumerate(lists[n]) if h not in lists[n][:i]]
    chosen = lists[n][place].passage
    raised = [Hit(h.passage, h.score + 1e9 if h.passage.id == chosen.id else h.score) for h in hits]
    raised.sort(key=lambda hit: -hit.score)
    before = [hit.passage.id for hit in FUSIONS["combsum_score"](lists)]
    after = [
        hit.passage.id for hit in FUSIONS["combsum_score"]([*lists[:n], raised, *lists[n + 1 :]])
    ]
    assert after.index(chosen.id) <= before.index(chosen.id)
