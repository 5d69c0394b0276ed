"""Shares of chains, and Cohen's kappa."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihop.chain_errors import agreement, by_overlap, choose, contrast, count
from runs_of_chains import ANSWER, RIGHT, WRONG, folder, loop, two_runs

VERDICTS = st.dictionaries(
    st.tuples(st.just("r"), st.sampled_from("abcdef"), st.integers(1, 3)),
    st.sampled_from(["supported", "contradicted", "not mentioned", "no claim", "unparsable"]),
)


def keys(verdicts):
    return {("r", str(n), 1): verdict for n, verdict in enumerate(verdicts)}


def test_the_proxy_counts_chains_with_an_error_and_errors_a_chain(tmp_path) -> None:
    chains = choose(two_runs(tmp_path)).chains
    ircot, nor = count(chains, by_overlap(chains), "proxy")
    assert (ircot.strategy, ircot.chains, ircot.with_error, ircot.per_chain) == ("ircot", 2, 1, 0.5)
    assert (nor.strategy, nor.chains, nor.with_error, nor.per_chain) == ("nor", 2, 2, 1.5)


def test_a_chain_that_only_answers_is_checked_and_has_no_error(tmp_path) -> None:
    chains = choose([folder(tmp_path / "r", loop("a", ANSWER), loop("b", RIGHT, WRONG))]).chains
    [found] = count(chains, by_overlap(chains), "proxy")
    assert (found.chains, found.with_error, found.sentences) == (2, 1, 2)
    assert found.share == 0.5


def test_chains_that_nobody_marked_are_in_no_count(tmp_path) -> None:
    run = folder(tmp_path / "r", loop("a", RIGHT, WRONG), loop("b", RIGHT, WRONG), loop("c", RIGHT))
    chains = choose([run]).chains
    marks = {("r", "a", 1): "supported", ("r", "b", 2): "contradicted"}
    [found] = count(chains, marks, "person")
    # a has a sentence without a mark and none with an error; b has an error whatever the other is.
    assert (found.chains, found.with_error, found.undecided) == (2, 1, 1)
    [none] = count(chains, {}, "person")
    assert (none.chains, none.share, none.per_chain) == (0, None, None)


def test_runs_are_compared_question_by_question(tmp_path) -> None:
    names = [f"q{n}" for n in range(8)]
    runs = [
        folder(tmp_path / "one", *(loop(name, RIGHT) for name in names)),
        folder(tmp_path / "two", *(loop(name, WRONG) for name in names)),
        folder(tmp_path / "three", *(loop(name, WRONG) for name in names)),
    ]
    chains = choose(runs).chains
    found = contrast(chains, by_overlap(chains), "proxy")
    assert [(c.first, c.second, c.only_first, c.only_second, c.n) for c in found] == [
        ("one", "two", 0, 8, 8),
        ("one", "three", 0, 8, 8),
        ("two", "three", 0, 0, 8),
    ]
    # 2 * 0.5 ** 8, three times and twice after Holm (never below an earlier one).
    assert [c.p for c in found] == [pytest.approx(3 / 128), pytest.approx(3 / 128), 1]


def test_questions_that_are_undecided_in_one_run_are_not_compared(tmp_path) -> None:
    chains = choose(two_runs(tmp_path)).chains
    verdicts = by_overlap(chains) | {("ircot", "a", 1): "unparsable"}
    [found] = contrast(chains, verdicts, "judge")
    assert (found.n, found.only_first, found.only_second, found.p) == (1, 0, 0, 1)


def test_kappa_by_hand() -> None:
    # 20 both, 5 and 10 alone, 15 neither: agreement 0.7, by chance 0.5, kappa 0.4.
    first = keys(["contradicted"] * 25 + ["supported"] * 25)
    second = keys(
        ["not mentioned"] * 20 + ["supported"] * 5 + ["contradicted"] * 10 + ["no claim"] * 15
    )
    found = agreement(("judge", first), ("person", second))
    assert (found.both, found.only_first, found.only_second, found.neither) == (20, 5, 10, 15)
    assert found.share == 0.7
    assert found.kappa == pytest.approx(0.4)


def test_kappa_is_not_defined_where_nothing_could_differ() -> None:
    same = keys(["supported"] * 3)
    assert agreement(("a", same), ("b", same)).share == 1
    assert agreement(("a", same), ("b", same)).kappa is None
    assert agreement(("a", same), ("b", {})).kappa is None
    assert agreement(("a", same), ("b", {})).share is None


def test_what_has_no_verdict_is_compared_with_nothing() -> None:
    found = agreement(
        ("judge", keys(["unparsable", "supported", "contradicted"])),
        ("person", keys(["supported", "unparsable", "contradicted"])),
    )
    assert (found.n, found.both) == (1, 1)


@given(VERDICTS, VERDICTS)
def test_agreement_is_symmetric_and_kappa_at_most_1(first, second) -> None:
    there, back = agreement(("a", first), ("b", second)), agreement(("b", second), ("a", first))
    assert (there.share, there.n, there.both) == (back.share, back.n, back.both)
    assert there.kappa == pytest.approx(back.kappa) if there.kappa is not None else True
    assert there.kappa is None or -1 <= there.kappa <= 1 + 1e-12
    itself = agreement(("a", first), ("a", first))
    assert itself.kappa in (None, pytest.approx(1))
