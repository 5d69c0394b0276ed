"""Experiments: order, choices by both rules, resumption, scores by hand."""

import json
import math
import os
import shutil
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import rows
from multihop import runs
from multihop.errors import BadInput, LMUnavailable
from multihop.experiments import asked, config, estimate, folder, results, running, tables
from multihop.experiments.plan import Cell, Plan, plan
from multihop.experiments.scores import Measure, Scores, over_questions, recall, score
from multihop.metrics import METRICS
from multihop.text import Hit, Passage, Question
from multihop.trace import Answer, Search, Trace

GOLD = ("p1", "p2", "p3", "p4")


class Fake:
    """Answers a share of the questions rightly and finds some of four gold passages."""

    def __init__(self, cell: Cell, right: float, found: int, aside: int, asked_for: list) -> None:
        self.name = cell.entry.system
        self.settings = {"k": cell.setting.k}
        self._cell, self._right, self._asked = cell, right, asked_for
        self._hits = tuple(
            Hit(Passage(f"other {name}" if n < aside else name, name.upper(), name), 1.0)
            for n, name in enumerate(GOLD[:found])
        )

    async def steps(self, question: Question) -> AsyncGenerator[object, None]:
        self._asked.append((self._cell.name, question.id))
        ids = tuple(hit.passage.id for hit in self._hits)
        yield Search(question.text, self._hits, ids, ids)
        number = int(question.id.rpartition("-")[2])
        yield Answer("yes" if number < self._right else "no", "answered")


@dataclass
class Fakes:
    """Opens fakes; what each is worth is told by its run's name."""

    right: dict[str, float] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
    aside: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)

    async def open(self, laid_out: Plan, cell: Cell) -> running.Ready:
        self.opened.append(cell.name)
        right = next((v for key, v in self.right.items() if key in cell.name), 5)
        found = next((v for key, v in self.found.items() if key in cell.name), 2)
        aside = next((v for key, v in self.aside.items() if key in cell.name), 0)
        return running.Ready(Fake(cell, right, found, aside, self.asked), {"corpus": "c"}, 1)


@pytest.fixture(autouse=True)
def unsynced(monkeypatch) -> None:
    """Nothing here is about power cuts, and a sync takes longer than all else."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def write(path: Path, name: str, count: int) -> str:
    lines = [
        {
            "id": f"{name}-{n}",
            "question": f"Is {n} in {name}?",
            "answers": ["yes"],
            "gold_paragraph_ids": list(GOLD),
            "gold_titles": [name.upper() for name in GOLD],
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture
def told(tmp_path) -> dict:
    demonstrations = []
    for number in (1, 2, 3):
        path = tmp_path / f"set{number}.txt"
        path.write_text(f'# METADATA: {{"qid": "x"}}\nQ: {number}?\nA: So the answer is: {number}.')
        demonstrations.append(str(path))
    return {
        "name": "tiny",
        "scored": ["answer"],
        "datasets": [
            {
                "name": "a",
                "dev": write(tmp_path / "dev.jsonl", "dev", 10),
                "test": write(tmp_path / "test.jsonl", "test", 10),
                "index": "i",
                "demonstrations": demonstrations,
            }
        ],
        "models": [{"name": "m"}],
        "systems": [{"strategy": "ircot", "k": [2, 4]}],
    }


async def run(told: dict, where: Path, fakes: Fakes, **options) -> tuple[Plan, int]:
    laid_out = plan(config.parse(told))
    left = await running.run(laid_out, asked.look(laid_out), where, fakes, **options)
    return laid_out, left


def figures(laid_out: Plan, where: Path) -> dict[tuple[str, str], results.Figure]:
    found = results.results(laid_out, where)
    return {(f.entry.system, f.kind): f for f in found.figures}


async def test_the_grid_is_run_on_dev_and_its_best_setting_on_test_with_all_sets(
    told, tmp_path
) -> None:
    fakes = Fakes(right={"dev-k2": 4, "dev-k4": 6})
    laid_out, left = await run(told, tmp_path / "e", fakes)
    assert left == 0
    assert fakes.opened == [
        "m/a/ircot/dev-k2-set1",
        "m/a/ircot/dev-k4-set1",
        "m/a/ircot/test-k4-set1",
        "m/a/ircot/test-k4-set2",
        "m/a/ircot/test-k4-set3",
    ]
    figure = figures(laid_out, tmp_path / "e")["ircot", "answer"]
    assert (figure.choice.setting.k, figure.choice.value) == (4, pytest.approx(60.0))
    assert figure.choice.grid == (pytest.approx(40.0), pytest.approx(60.0))
    assert figure.choice.by == "DROP F1"


async def test_of_equals_the_first_in_grid_order_wins(told, tmp_path) -> None:
    told["systems"][0]["k"] = [8, 2, 4]
    fakes = Fakes(right={"dev-k2": 5, "dev-k4": 5, "dev-k8": 5})
    laid_out, _ = await run(told, tmp_path / "e", fakes)
    assert figures(laid_out, tmp_path / "e")["ircot", "answer"].choice.setting.k == 2


async def test_mean_spread_and_error_of_three_sets_are_those_of_hand(told, tmp_path) -> None:
    fakes = Fakes(right={"test-k2-set1": 4, "test-k2-set2": 5, "test-k2-set3": 9})
    laid_out, _ = await run(told, tmp_path / "e", fakes)
    figure = figures(laid_out, tmp_path / "e")["ircot", "answer"]
    assert figure.over.values == (40.0, 50.0, 90.0)
    assert figure.over.mean == 60.0
    assert figure.over.std == 26.5  # sqrt((400 + 100 + 900) / 2) = 26.457...
    # Per question over the sets: four times 1, once 2/3, four times 1/3, once 0.
    each = [1] * 4 + [2 / 3] + [1 / 3] * 4 + [0]
    spread = math.sqrt(sum((v - 0.6) ** 2 for v in each) / 9)
    assert figure.error == pytest.approx(100 * spread / math.sqrt(10))
    assert figure.questions == 10
    assert tables.field(figure) == f"60.0 ± 26.5 [{figure.error:.1f}]"


async def test_kinds_may_choose_two_settings_and_share_runs(told, tmp_path) -> None:
    told["scored"] = ["answer", "passages"]
    fakes = Fakes(right={"dev-k2": 6, "dev-k4": 5}, found={"k2": 1, "k4": 3})
    laid_out, _ = await run(told, tmp_path / "e", fakes)
    found = figures(laid_out, tmp_path / "e")
    assert found["ircot", "answer"].choice.setting.k == 2
    assert found["ircot", "passages"].choice.setting.k == 4
    assert found["ircot", "passages"].over.values == (75.0, 75.0, 75.0)
    assert len(fakes.opened) == len(set(fakes.opened)) == 2 + 3 + 3


async def test_another_rule_runs_no_model_but_for_tests_of_another_choice(told, tmp_path) -> None:
    told["scored"] = ["passages"]
    # With K=2 half of the titles are found by other paragraphs of their pages.
    fakes = Fakes(aside={"dev-k2": 1})
    told["metrics"] = {"rule": "official"}
    official, _ = await run(told, tmp_path / "e", fakes)
    assert figures(official, tmp_path / "e")["ircot", "passages"].choice.by == "title recall@15"
    assert figures(official, tmp_path / "e")["ircot", "passages"].choice.setting.k == 2
    before = len(fakes.asked)
    told["metrics"] = {"rule": "paper"}
    paper = plan(config.parse(told))
    figure = figures(paper, tmp_path / "e")["ircot", "passages"]
    assert (figure.choice.setting.k, len(figure.missing)) == (4, 3)
    assert tables.field(figure) == "(test not run at K=4)"
    await run(told, tmp_path / "e", fakes)
    assert len(fakes.asked) == before + 30
    assert {name for name, _ in fakes.asked[before:]} == {
        f"m/a/ircot/test-k4-set{n}" for n in (1, 2, 3)
    }


async def test_a_finished_experiment_opens_nothing(told, tmp_path) -> None:
    await run(told, tmp_path / "e", Fakes())
    again = Fakes()
    await run(told, tmp_path / "e", again)
    assert again.opened == []


@pytest.mark.parametrize("after", [0, 1, 7, 13, 25, 49])
async def test_after_an_interruption_no_question_is_asked_twice(told, tmp_path, after) -> None:
    class Interrupted(BaseException):
        pass

    class Stopping(Fakes):
        async def open(self, laid_out: Plan, cell: Cell) -> running.Ready:
            ready = await super().open(laid_out, cell)
            inner = ready.strategy.steps

            async def steps(question):
                if len(self.asked) == after:
                    raise Interrupted
                async for step in inner(question):
                    yield step

            ready.strategy.steps = steps
            return ready

    first, second, whole = Stopping(), Fakes(), Fakes()
    with pytest.raises(Interrupted):
        await run(told, tmp_path / "e", first)
    laid_out, _ = await run(told, tmp_path / "e", second)
    assert len(first.asked) == after
    assert sorted(first.asked + second.asked) == sorted({*first.asked, *second.asked})
    other, _ = await run(told, tmp_path / "undisturbed", whole)
    assert sorted(first.asked + second.asked) == sorted(whole.asked)
    shown = [
        tables.records(results.results(p, tmp_path / n))
        for p, n in ((laid_out, "e"), (other, "undisturbed"))
    ]
    for figure in (*shown[0], *shown[1]):
        del figure["costs"]  # seconds differ
    assert shown[0] == shown[1]


async def test_a_folder_that_was_moved_is_scored_without_anything_else(told, tmp_path) -> None:
    laid_out, _ = await run(told, tmp_path / "e", Fakes(right={"k4": 7}))
    before = tables.markdown(results.results(laid_out, tmp_path / "e"))
    (tmp_path / "far").mkdir()
    shutil.move(tmp_path / "e", tmp_path / "far" / "away")
    for path in tmp_path.glob("*.*"):
        path.unlink()
    again = folder.read_plan(tmp_path / "far" / "away")
    assert again.entries == laid_out.entries
    assert tables.markdown(results.results(again, tmp_path / "far" / "away")) == before


async def test_a_grid_may_grow_and_what_was_run_stays(told, tmp_path) -> None:
    await run(told, tmp_path / "e", Fakes())
    told["systems"][0]["k"] = [2, 4, 6]
    more = Fakes()
    await run(told, tmp_path / "e", more)
    assert more.opened == ["m/a/ircot/dev-k6-set1"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"systems": [{"strategy": "ircot", "k": [2, 4], "max_steps": 3}]}, "max_steps null"),
        ({"preset": "paper"}, 'preset null (now: "paper")'),
        ({"models": [{"name": "m", "options": {"threads": 2}}]}, "model_options"),
        ({"dev_limit": 3}, "other questions"),
    ],
)
async def test_runs_that_were_made_otherwise_are_not_mixed_in(
    told, tmp_path, change, words
) -> None:
    await run(told, tmp_path / "e", Fakes())
    before = (tmp_path / "e" / folder.EXPERIMENT).read_bytes()
    with pytest.raises(BadInput) as refused:
        await run({**told, **change}, tmp_path / "e", Fakes())
    assert words in str(refused.value)
    assert (tmp_path / "e" / folder.EXPERIMENT).read_bytes() == before


async def test_an_edited_prompt_is_another_experiment(told, tmp_path) -> None:
    await run(told, tmp_path / "e", Fakes())
    shutil.copy(*told["datasets"][0]["demonstrations"][2:0:-1])
    with pytest.raises(BadInput, match="test-k2-set2: was run with demonstrations"):
        await run(told, tmp_path / "e", Fakes())


async def test_a_folder_of_something_else_is_left_alone(told, tmp_path) -> None:
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "thesis.tex").touch()
    with pytest.raises(BadInput, match="is not an experiment's folder"):
        await run(told, tmp_path / "e", Fakes())
    assert [path.name for path in (tmp_path / "e").iterdir()] == ["thesis.tex"]
    with pytest.raises(BadInput, match="is not an experiment's folder"):
        folder.read_plan(tmp_path / "e")


async def test_what_another_process_has_begun_to_write_is_no_obstacle(told, tmp_path) -> None:
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / f".{folder.EXPERIMENT}.4711").touch()
    _, left = await run(told, tmp_path / "e", Fakes())
    assert left == 0


async def test_the_folder_records_versions_hashes_and_no_keys(told, tmp_path) -> None:
    told["models"] = [
        {"name": "m", "model": "scripted:x", "options": {"api_key": "secret", "threads": 2}}
    ]
    await run(told, tmp_path / "e", Fakes())
    text = (tmp_path / "e" / folder.EXPERIMENT).read_text()
    record = json.loads(text)
    assert "secret" not in text
    assert {"multihop", "python", "platform", "started", "latest"} <= record.keys()
    assert record["questions"]["a/dev"]["count"] == 10
    assert record["runs"]["m/a/ircot/dev-k2-set1"]["model_options"] == {"threads": "2"}
    assert "secret" not in (tmp_path / "e" / "m/a/ircot/dev-k2-set1" / runs.RUN).read_text()


async def test_failures_are_told_in_the_table_and_are_in_no_mean(told, tmp_path) -> None:
    class Failing(Fakes):
        async def open(self, laid_out: Plan, cell: Cell) -> running.Ready:
            ready = await super().open(laid_out, cell)
            inner = ready.strategy.steps

            async def steps(question):
                if question.id == "test-0":
                    raise LMUnavailable("Nobody answers.")
                async for step in inner(question):
                    yield step

            ready.strategy.steps = steps
            return ready

    laid_out, _ = await run(told, tmp_path / "e", Failing(right={"test": 4}))
    figure = figures(laid_out, tmp_path / "e")["ircot", "answer"]
    assert (figure.failed, figure.questions) == (3, 9)
    assert figure.over.mean == 33.3
    assert tables.field(figure).endswith("(3 failed)")
    mended = Fakes(right={"test": 4})
    laid_out, _ = await run(told, tmp_path / "e", mended, retry_failed=True)
    assert {question for _, question in mended.asked} == {"test-0"}
    assert figures(laid_out, tmp_path / "e")["ircot", "answer"].over.mean == 40.0


# --- Questions ------------------------------------------------------------------------------


def test_a_question_of_dev_and_test_is_refused(told) -> None:
    told["datasets"][0]["test"] = told["datasets"][0]["dev"]
    with pytest.raises(BadInput, match="say by dev_limit how many"):
        asked.look(plan(config.parse(told)))
    copy = Path(told["datasets"][0]["dev"]).with_name("copy.jsonl")
    copy.write_bytes(Path(told["datasets"][0]["dev"]).read_bytes())
    told["datasets"][0]["test"] = str(copy)
    with pytest.raises(BadInput, match="10 questions are in dev and in test, as 'dev-0'"):
        asked.look(plan(config.parse(told)))


@pytest.mark.parametrize("sample", ["first", "random"])
def test_dev_and_test_of_one_file_have_no_question_in_common(told, sample) -> None:
    data = told["datasets"][0]
    data.update(dev=data["test"], dev_limit=3, test_limit=5)
    found = asked.look(plan(config.parse({**told, "sample": sample})))
    dev, test = ([q.id for q in found.questions["a", part]] for part in ("dev", "test"))
    assert (len(dev), len(test), len({*dev, *test})) == (3, 5, 8)
    if sample == "first":
        assert (dev[0], test[0]) == ("test-0", "test-3")
    else:
        other = asked.look(plan(config.parse({**told, "sample": sample, "seed": 1})))
        assert [q.id for q in other.questions["a", "dev"]] != dev


def test_questions_that_are_missing_are_told_with_their_data_set(told) -> None:
    told["datasets"][0]["dev"] = "nowhere.jsonl"
    with pytest.raises(BadInput, match=r"nowhere\.jsonl"):
        asked.look(plan(config.parse(told)))


# --- Scores ---------------------------------------------------------------------------------


def trace(answer: str, *, gold: str = "yes", collected: tuple[str, ...] = (), **extra) -> Trace:
    question = Question("?", id=answer, answers=(gold,), extra=extra)
    hits = tuple(Hit(Passage(t, t, f"text of {t}"), 1.0) for t in collected)
    return Trace(
        question,
        "s",
        steps=(Search("?", hits, collected, collected), Answer(answer, "answered")),
    )


def test_recall_is_by_text_where_the_question_has_the_paragraphs() -> None:
    gold = [{"title": "a", "text": "text of a"}, {"title": "b", "text": "text of c"}]
    assert recall(trace("x", collected=("a", "b"), gold_paragraphs=gold)) == 0.5
    by_id = Question("?", gold_ids=("a", "b", "c", "d"))
    by_title = Question("?", gold_titles=("A", "z"))
    for question, value in ((by_id, 0.5), (by_title, 0.5), (Question("?"), None)):
        one = trace("x", collected=("a", "b"))
        assert recall(Trace(question, "s", steps=one.steps)) == value


def test_the_official_numbers_are_those_of_the_release(tmp_path) -> None:
    from multihop.experiments.config import Metrics
    from multihop.experiments.scores import criterion, reported

    official, paper = Metrics(rule="official"), Metrics()
    traces = [
        trace("Lund, Tarn", gold="Lund, Tarn", answer_parts=["Lund", "Tarn"], dataset="iirc"),
        trace("Orla Venn", gold="Orla Venn", dataset="iirc"),
        trace("in 1987", gold="1987", dataset="iirc"),
    ]
    runs.append(tmp_path / "r" / runs.TRACES, *traces)
    measures = [criterion("answer", official), reported("answer", official)]
    found = score(tmp_path / "r", measures)
    # DROP F1 by hand: .33 (one of two spans aligns), 1, and .67, whose mean is .667 after rounding.
    assert found.shares["DROP F1"] == 0.667
    assert found.shares["F1"] == 0.667
    plain = score(tmp_path / "r", [reported("answer", paper)])
    assert plain.shares["F1"] == pytest.approx((0.33 + 1 + 0.67) / 3)


def test_an_answer_in_parts_loses_by_the_release_s_joining_and_not_by_ours(tmp_path) -> None:
    from multihop.experiments.config import Metrics
    from multihop.experiments.scores import reported

    one = trace("Lund, Tarn", gold="Lund, Tarn", answer_parts=["Lund", "Tarn"], dataset="iirc")
    last = Answer("Lund, Tarn", "answered", answers=("Lund", "Tarn"))
    runs.append(tmp_path / runs.TRACES, Trace(one.question, "s", steps=(one.steps[0], last)))
    shares = [
        score(tmp_path, [reported("answer", Metrics(rule=rule))]).shares["F1"]
        for rule in ("official", "paper")
    ]
    assert shares == [pytest.approx(0.33, abs=0.01), 1.0]


def test_official_recall_is_by_hashes_of_titles_and_paragraphs(tmp_path) -> None:
    from multihop.experiments.config import Metrics
    from multihop.experiments.scores import criterion, reported

    gold = [{"title": "a", "text": "text of a"}, {"title": "b", "text": "another"}]
    runs.append(tmp_path / runs.TRACES, trace("x", collected=("a", "b"), gold_paragraphs=gold))
    official = Metrics(rule="official")
    measures = [criterion("passages", official), reported("passages", official)]
    assert score(tmp_path, measures).shares == {"title recall@15": 1.0, "recall@15": 0.5}


def test_a_question_without_a_score_in_one_run_has_its_mean_over_the_others(tmp_path) -> None:
    measure = Measure("F1", METRICS["f1"])
    one, two = tmp_path / "1", tmp_path / "2"
    runs.append(one / runs.TRACES, trace("yes"), trace("no"))
    runs.append(two / runs.TRACES, Trace(trace("yes").question, "s", error="It fell over."))
    scored = [score(path, [measure]) for path in (one, two)]
    assert over_questions(scored, "F1").value == 0.5
    assert [run.failed for run in scored] == [0, 1]


def test_dev_runs_choose_as_the_release_chooses(told, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(results, "status", lambda path: folder.Status(1, 1))
    for row in rows("golden/best_hp.jsonl"):
        kind = "answer" if row["input"]["system"].endswith("_qa") else "passages"
        metrics = row["input"]["dev_metrics_in_order"]
        told["scored"] = [kind]
        told["systems"] = [{"strategy": "ircot", "k": [1 + n for n in range(len(metrics))]}]
        told["metrics"] = {"rule": "official"}
        laid_out = plan(config.parse(told))
        [entry] = laid_out.entries

        def scored(path, measures, metrics=metrics):
            numbers = metrics[int(path.name.split("-k")[1].split("-")[0]) - 1]
            names = {"DROP F1": "f1", "title recall@15": "title_recall"}
            shares = {m.name: numbers and numbers[names[m.name]] for m in measures}
            return Scores(1, 0, shares, {}, {})

        monkeypatch.setattr(results, "score", scored)
        if "error" in row["expected"]:
            with pytest.raises(BadInput):
                results.choose(laid_out, entry, kind, tmp_path)
            continue
        chosen = results.choose(laid_out, entry, kind, tmp_path)
        expected = {k: v for k, v in row["expected"].items() if k != "max_metric_value"}
        assert row["input"]["grid_in_order"][chosen.setting.k - 1] == expected, row["id"]
        assert chosen.value == row["expected"]["max_metric_value"], row["id"]


# --- Estimates and tables -------------------------------------------------------------------


def test_the_estimate_counts_runs_questions_and_calls(told, tmp_path) -> None:
    told["systems"] = [
        {"strategy": "nor"},
        {"strategy": "oner", "k": [5, 7]},
        {"strategy": "ircot", "k": [2, 4], "max_steps": 4},
    ]
    laid_out = plan(config.parse({**told, "preset": "paper"}))
    nor, oner, ircot = estimate.estimate(laid_out, asked.look(laid_out), tmp_path / "e")
    assert (nor.grid, nor.tests, nor.questions, nor.calls, nor.most) == (0, 3, 30, 30, 30)
    assert (oner.grid, oner.tests, oner.questions, oner.calls) == (2, 3, 50, 50)
    assert (ircot.calls, ircot.most) == (50 * 4, 50 * 5)
    assert not ircot.measured


async def test_the_estimate_takes_what_was_measured(told, tmp_path) -> None:
    laid_out, _ = await run(told, tmp_path / "e", Fakes())
    [found] = estimate.estimate(laid_out, asked.look(laid_out), tmp_path / "e")
    assert (found.measured, found.done, found.calls) == (True, 5, 0)


async def test_tables_have_systems_in_rows_and_data_sets_in_columns(told, tmp_path) -> None:
    other = {**told["datasets"][0], "name": "b", "demonstrations": []}
    told.update(
        scored=["answer", "passages"],
        datasets=[told["datasets"][0], other],
        systems=[{"strategy": "nor"}, {"strategy": "oner"}, {"strategy": "ircot"}],
    )
    fakes = Fakes(right={"nor": 2, "oner": 4, "ircot": 8}, found={"oner": 1, "ircot": 3})
    laid_out, _ = await run(told, tmp_path / "e", fakes)
    found = results.results(laid_out, tmp_path / "e")
    answers, retrieval, bars, cost = tables.tables(found)
    assert answers.head == ("model", "system", "a", "b")
    assert [row[:2] for row in answers.rows] == [("m", s) for s in ("nor", "oner", "ircot")]
    assert answers.rows[2][2:] == ("80.0 ± 0.0 [13.3]", "80.0 [13.3]")
    assert [row[1] for row in retrieval.rows] == ["oner", "ircot"]
    assert bars.rows[:2] == (
        ("a", "oner", "25.0", "", "█" * 5),
        ("a", "ircot", "75.0", "+50.0", "█" * 15),
    )
    assert cost.head[:4] == ("model", "data set", "system", "setting")
    assert found.complete
    assert found.notes == (
        "b with m: one set of demonstrations, so no standard deviation over sets",
    )
    lines = tables.csv_text(found).splitlines()
    assert len(lines) == 1 + 2 * (1 + 2 + 2)
    assert lines[0].startswith("model,dataset,system,kind,measure,mean,std,standard_error,")
    data = tables.as_json(found)
    assert data["complete"] is True
    assert data["figures"][0]["values"] == [20.0, 20.0, 20.0]
    text = tables.markdown(found)
    assert "| m | ircot | 80.0 ± 0.0 [13.3] | 80.0 [13.3] |" in text


async def test_an_unfinished_experiment_says_how_far_it_is(told, tmp_path) -> None:
    laid_out, _ = await run(told, tmp_path / "e", Fakes())
    shutil.rmtree(tmp_path / "e" / "m/a/ircot/test-k2-set3")
    figure = figures(laid_out, tmp_path / "e")["ircot", "answer"]
    assert tables.field(figure) == "(test: 20 asked, 1 of 3 runs missing)"
    assert figure.over.values == (50.0, 50.0, None)
    shutil.rmtree(tmp_path / "e" / "m/a/ircot/dev-k4-set1")
    figure = figures(laid_out, tmp_path / "e")["ircot", "answer"]
    assert tables.field(figure) == "(dev: 1 of 2 runs)"
    assert not results.results(laid_out, tmp_path / "e").complete
