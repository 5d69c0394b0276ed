"""Runs on the same questions: the statistics are those of multihop.metrics, and misfits are refused."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from made_traces import CARMEN, MERIMEE, QUESTION, ULM, Written, failed, run_folder
from multihop.comparison import compare
from multihop.errors import BadInput
from multihop.metrics import holm, mcnemar, mean, paired_bootstrap
from multihop.text import Question
from multihop.trace import Trace


def question(n: int, **changes) -> Question:
    return replace(QUESTION, id=f"q{n}", **changes)


def traces(kinds: str, strategy: str = "ircot", **changes) -> list[Trace]:
    """An answer a character: r(ight), w(rong), p(artly right), n(othing), f(ailed), - (not asked)."""
    said = {"r": "Cannes", "w": "Paris", "p": "Cannes in 1870", "n": ""}
    found = []
    for n, kind in enumerate(kinds):
        asked = question(n, **changes)
        if kind == "f":
            found.append(failed(asked))
        elif kind != "-":
            run = Written(asked, strategy).search(CARMEN, *([MERIMEE] if kind == "r" else [ULM]))
            found.append(run.think("So.").answer(said[kind], seconds=1 + n / 7))
    return found


def folders(tmp_path: Path, **answers: str) -> list[Path]:
    return [
        run_folder(tmp_path / name, traces(kinds, name), name, len(kinds))
        for name, kinds in answers.items()
    ]


def test_every_figure_is_that_of_the_metrics_alone(tmp_path) -> None:
    draw = random.Random(5)
    kinds = {name: "".join(draw.choices("rwpn", k=30)) for name in ("ircot", "oner", "nor")}
    found = compare(folders(tmp_path, **kinds), samples=400)
    assert found.shared == tuple(f"q{n}" for n in range(30))
    assert found.reference.name == "ircot"
    ps = []
    for measured in found.measured:
        run = next(r for r in found.runs if r.name == measured.run)
        a = found.values(run, measured.metric)
        b = found.values(found.reference, measured.metric)
        assert measured.mean == mean(a)
        if run is found.reference:
            assert (measured.difference, measured.p, measured.adjusted) == (None, None, None)
            continue
        assert measured.difference == paired_bootstrap(a, b, samples=400)
        binary = measured.metric == "em"
        assert measured.test == ("McNemar" if binary else "bootstrap")
        assert measured.p == (mcnemar(a, b) if binary else measured.difference.p)
        assert measured.above == sum(x > y for x, y in zip(a, b, strict=True))
        assert measured.below == sum(x < y for x, y in zip(a, b, strict=True))
        ps.append(measured)
    assert [m.adjusted for m in ps] == holm([m.p for m in ps])
    assert found.comparisons == len(ps) == 2 * len(found.metrics)


def test_figures_are_over_what_all_runs_have_finished(tmp_path) -> None:
    found = compare(folders(tmp_path, ircot="rwrf-r", oner="rrfwwr"), samples=100)
    assert found.shared == ("q0", "q1", "q5")
    assert found.questions == 6
    ircot, oner = found.runs
    assert (ircot.asked, ircot.failed, ircot.missing) == (6, 1, 1)
    assert (oner.asked, oner.failed, oner.missing) == (6, 1, 0)
    assert found.of(ircot, "em").mean.value == pytest.approx(2 / 3)
    assert found.of(oner, "em").mean.value == 1
    assert all(measured.mean.n == 3 for measured in found.measured)


def test_a_question_that_succeeded_when_asked_again_is_finished(tmp_path) -> None:
    again = run_folder(tmp_path / "a", [*traces("f"), *traces("r")], "ircot", 1)
    other = run_folder(tmp_path / "b", traces("w", "oner"), "oner", 1)
    assert compare([again, other], samples=100).shared == ("q0",)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"text": "Another question?"}, "text"),
        ({"answers": ("Lyon",)}, "answers"),
        ({"gold_ids": ("carmen",), "gold_titles": ("Carmen",)}, "gold_ids"),
        ({"gold_titles": ("Carmen", "Mérimée")}, "gold_titles"),
        ({"pinned": ULM}, "pinned"),
        ({"extra": {"dataset": "iirc"}}, "dataset"),
    ],
)
def test_other_questions_or_gold_under_the_same_id_are_refused(tmp_path, changes, field) -> None:
    one = run_folder(tmp_path / "one", traces("rw"))
    other = run_folder(tmp_path / "other", traces("rw", "oner", **changes), "oner")
    with pytest.raises(BadInput, match=f"other: the question 'q0' is not that of .*one: {field} "):
        compare([one, other])


def test_fields_that_no_metric_reads_may_differ(tmp_path) -> None:
    one = run_folder(tmp_path / "one", traces("rw"))
    other = run_folder(tmp_path / "other", traces("rw", "oner", extra={"level": "hard"}), "oner")
    assert len(compare([one, other], samples=100).shared) == 2


def test_runs_without_a_common_question_are_refused(tmp_path) -> None:
    one = run_folder(tmp_path / "one", traces("r-f"))
    other = run_folder(tmp_path / "other", traces("frr", "oner"), "oner")
    with pytest.raises(
        BadInput, match=r"No question was finished by every run \(.*ircot 1, oner 2"
    ):
        compare([one, other])


def test_one_run_or_a_run_twice_is_refused(tmp_path) -> None:
    one, other = folders(tmp_path, ircot="r", oner="w")
    with pytest.raises(BadInput, match="one run"):
        compare([one])
    with pytest.raises(BadInput, match="ircot: the run is named twice"):
        compare([one, other, one])
    with pytest.raises(BadInput, match="not a run folder"):
        compare([one, tmp_path])


def test_the_reference_is_found_by_name_or_folder(tmp_path) -> None:
    places = folders(tmp_path, ircot="r", oner="w")
    assert compare(places, against="oner", samples=100).reference.name == "oner"
    assert compare(places, against=str(places[1]), samples=100).reference.name == "oner"
    with pytest.raises(BadInput, match=r"No run is named 'nor'\. Name one of: ircot, oner"):
        compare(places, against="nor")


def test_runs_of_one_strategy_are_named_by_their_folders(tmp_path) -> None:
    places = [run_folder(tmp_path / x / "ircot", traces("rw")) for x in ("small", "large")]
    assert [r.name for r in compare(places, samples=100).runs] == ["small/ircot", "large/ircot"]


def test_recall_at_a_budget_that_no_run_exceeds_is_not_compared_again(tmp_path) -> None:
    places = folders(tmp_path, ircot="rwp", oner="rrr")
    found = compare(places, samples=100)
    assert [m for m in found.metrics if "recall" in m] == ["gold_recall"]
    from multihop.metrics import metric

    asked = compare(places, samples=100, more={"gold_recall@1": metric("gold_recall@1")})
    assert [m for m in asked.metrics if "recall" in m] == ["gold_recall", "gold_recall@1"]


def test_recall_of_titles_stands_in_where_no_passage_is_annotated(tmp_path) -> None:
    places = [
        run_folder(tmp_path / name, traces(kinds, name, gold_ids=()), name)
        for name, kinds in (("ircot", "rr"), ("oner", "ww"))
    ]
    found = compare(places, samples=100)
    assert [m for m in found.metrics if "recall" in m] == ["title_recall"]
    [ircot, oner] = found.runs
    assert ircot.rows["q0"].by_searches == (0.0, 1.0)
    assert oner.rows["q0"].by_passages == (0.0, 0.5, 0.5)


def test_a_metric_that_gives_no_number_is_refused(tmp_path) -> None:
    places = folders(tmp_path, ircot="r", oner="w")
    with pytest.raises(BadInput, match=r"ircot: the metric 'mine' is nan for question 'q0'"):
        compare(places, more={"mine": lambda _: float("nan")})


def test_questions_without_a_value_are_left_out_of_that_pair_alone(tmp_path) -> None:
    places = folders(tmp_path, ircot="rrww", oner="wrrw")

    def odd(trace: Trace) -> float | None:
        return None if trace.question.id == "q0" else float(trace.seconds)

    found = compare(places, more={"odd": odd}, samples=100)
    measured = found.of(found.runs[1], "odd")
    assert (measured.mean.n, measured.mean.unscored) == (3, 1)
    assert measured.difference
    assert measured.difference.n == 3
    assert found.of(found.runs[1], "em").mean.n == 4


def test_recall_follows_the_searches_and_the_passages(tmp_path) -> None:
    run = Written(question(0)).search(ULM, CARMEN).search(MERIMEE, query="Who wrote it?")
    one = run_folder(tmp_path / "a", [run.answer("Cannes")])
    other = run_folder(tmp_path / "b", [Written(question(0), "nor").answer("Cannes")], "nor")
    ircot, nor = (r.rows["q0"] for r in compare([one, other], samples=100).runs)
    assert ircot.by_passages == (0.0, 0.0, 0.5, 1.0)
    assert ircot.by_searches == (0.0, 0.5, 1.0)
    assert (nor.by_passages, nor.by_searches) == ((0.0,), (0.0,))
