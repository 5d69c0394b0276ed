"""Runs that end by their budget: nothing lost, nothing repeated, the rest for another sitting."""

import asyncio
import json
from pathlib import Path

import pytest

from multihop import evaluation, runs
from multihop.cost import Cost, Price, Prices
from multihop.errors import BadInput, LMError
from multihop.prompts.demonstrations import Demonstration
from multihop.strategies import Budget, Demonstrations, RunBudget, make
from multihop.testing import ScriptedLM, TitleRetriever
from multihop.text import Passage, Question
from multihop.trace import Answer, LMCall, Thought, Tokens, Trace

SHOTS = Demonstrations.from_cot([Demonstration("Q: Who wrote Ode?\nA: So the answer is: Ida.")])
RIDE = Passage("lg", "Lost Gravity", "Lost Gravity is a roller coaster built by Mack Rides.")
PRICES = Prices({"scripted": Price(prompt=0, generated=0, call=0.5)})
CALLS = 4
"""LM calls of an undisturbed question: three sentences and the reader's."""


def questions(count: int) -> list[Question]:
    return [Question(f"Is Lost Gravity {n}?", id=f"q{n}", answers=("x",)) for n in range(count)]


def write(request) -> str:
    if request.role == "read":
        return "x"
    chain = request.prompt.text.rpartition("\nA:")[2]
    return f"Lost Gravity has number {chain.count('number') + 1}."


def strategy(run: RunBudget | None = None, lm: ScriptedLM | None = None):
    return make(
        "ircot",
        lm=lm or ScriptedLM(respond=write),
        retriever=TitleRetriever(RIDE),
        reader="direct",
        demonstrations=SHOTS,
        max_steps=3,
        budget=Budget(run=run) if run else None,
    )


def kept(folder: Path) -> list[Trace]:
    return [trace for _, trace in runs.read(folder / runs.TRACES)]


def calls(folder: Path) -> int:
    return sum(len(trace.calls) for trace in kept(folder))


async def sitting(folder: Path, run: RunBudget | None, count: int = 5, **more) -> int:
    return await evaluation.evaluate(
        questions(count), strategy(run), folder, budget=run, **{"concurrency": 1, **more}
    )


@pytest.mark.parametrize(
    ("budget", "finished", "last"),
    [
        (2 * CALLS, 2, "max_steps"),  # exactly spent by two questions: no third is begun
        (2 * CALLS + 1, 3, "budget"),  # the third is begun and cut at its first sentence
        (2 * CALLS - 1, 2, "max_steps"),  # reached by the last sentence
        (2 * CALLS - 2, 2, "budget"),
        (5 * CALLS, 5, "max_steps"),
        (100, 5, "max_steps"),
    ],
)
async def test_a_question_is_begun_while_there_is_something_left(
    tmp_path, budget, finished, last
) -> None:
    left = await sitting(tmp_path, RunBudget(calls=budget))
    done = kept(tmp_path)
    assert left == 5 - finished
    assert [trace.question.id for trace in done] == [f"q{n}" for n in range(finished)]
    assert done[-1].answer.stop == last
    assert all(trace.answer.text == "x" for trace in done)  # the readers still answered
    report = evaluation.score(tmp_path)
    assert (report.finished, report.missing, report.failed) == (finished, left, 0)


async def test_the_same_run_goes_on_with_a_larger_budget(tmp_path) -> None:
    assert await sitting(tmp_path, RunBudget(calls=CALLS)) == 4
    before = (tmp_path / runs.TRACES).read_bytes()
    assert await sitting(tmp_path, RunBudget(calls=3 * CALLS)) == 2
    assert await sitting(tmp_path, None) == 0
    assert (tmp_path / runs.TRACES).read_bytes().startswith(before)
    assert [trace.question.id for trace in kept(tmp_path)] == [f"q{n}" for n in range(5)]
    assert calls(tmp_path) == 5 * CALLS
    assert evaluation.score(tmp_path).missing == 0


async def test_what_earlier_sittings_spent_counts(tmp_path) -> None:
    await sitting(tmp_path, RunBudget(calls=2 * CALLS))
    again = RunBudget(calls=2 * CALLS)
    assert await sitting(tmp_path, again) == 3
    assert calls(tmp_path) == 2 * CALLS
    assert again.spent == sum((Cost.of(trace.steps) for trace in kept(tmp_path)), Cost())
    assert again.reached == f"{2 * CALLS} of {2 * CALLS} calls"


async def test_what_failed_questions_spent_counts_too(tmp_path) -> None:
    lm = ScriptedLM("Lost Gravity has number 1.", LMError("gone"), *["So the answer is: x."] * 9)
    await evaluation.evaluate(questions(3), strategy(lm=lm), tmp_path, concurrency=1)
    assert [bool(trace.error) for trace in kept(tmp_path)] == [True, False, False]
    run = RunBudget(calls=5)  # 1 + 2 * (sentence and reader)
    retried = await evaluation.evaluate(
        questions(3), strategy(run), tmp_path, budget=run, retry_failed=True
    )
    assert retried == 1  # the failed question is left
    assert run.spent.calls == 5


async def test_the_seconds_of_earlier_sittings_do_not_count(tmp_path) -> None:
    runs.start(tmp_path, evaluation.identity(strategy(), evaluation.fingerprint(questions(2))))
    call = LMCall("read", "scripted", "p", ("x",), ("stop",), 1e6, Tokens(1, 0, 1))
    runs.append(
        tmp_path / runs.TRACES,
        Trace(questions(1)[0], "ircot", steps=(Answer("x", "answered", call=call),), seconds=1e6),
    )
    assert await sitting(tmp_path, RunBudget(seconds=1000), count=2) == 0


async def test_no_seconds_ask_nothing(tmp_path) -> None:
    assert await sitting(tmp_path, RunBudget(seconds=0)) == 5
    report = evaluation.score(tmp_path)
    assert (report.finished, report.missing, dict(report.means)) == (0, 5, {})


async def test_money_ends_a_run(tmp_path) -> None:
    run = RunBudget(money=0.5 * CALLS, prices=PRICES)
    assert await sitting(tmp_path, run) == 4
    assert run.reached == "2 of 2 in money"


@pytest.mark.parametrize("concurrency", [1, 2, 7])
@pytest.mark.parametrize("budget", [1, 5, 13])
async def test_a_run_overshoots_by_what_is_at_work(tmp_path, concurrency, budget) -> None:
    run = RunBudget(calls=budget)
    lm = ScriptedLM(respond=write, delay=0.001)
    left = await evaluation.evaluate(
        questions(20), strategy(run, lm), tmp_path, concurrency=concurrency, budget=run
    )
    # Of each question at work: the sentence being written and the reader's call.
    assert budget <= run.spent.calls <= budget + 2 * concurrency - 1
    assert run.spent.calls == calls(tmp_path) == len(lm.requests)
    assert left == 20 - len(kept(tmp_path))
    assert all(trace.answer.text == "x" for trace in kept(tmp_path))


async def test_strategies_share_the_budget_of_their_run(tmp_path) -> None:
    run = RunBudget(calls=7)
    lm = ScriptedLM(respond=lambda request: "So the answer is: x.")
    strategies = {
        name: make(name, lm=lm, retriever=TitleRetriever(RIDE), demonstrations=SHOTS)
        for name in ("nor", "oner")
    }
    left = await evaluation.evaluate_each(
        questions(5), strategies, tmp_path, budget=run, concurrency=1
    )
    assert left == 3
    assert [len(kept(tmp_path / name)) for name in strategies] == [4, 3]
    again = RunBudget(calls=7)
    assert (
        await evaluation.evaluate_each(
            questions(5), strategies, tmp_path, budget=again, concurrency=1
        )
        == 3
    )
    assert again.spent.calls == 7


async def test_a_strategy_that_knows_no_budgets_finishes_its_questions(tmp_path) -> None:
    class Own:
        name, settings = "own", {}

        async def steps(self, question):
            for _ in range(5):
                await asyncio.sleep(0)
                call = LMCall("reason", "m", "", ("",), ("stop",), 0.0, Tokens(1, 0, 1))
                yield Thought("t", call)
            yield Answer("x", "answered")

    run = RunBudget(tokens=11)
    left = await evaluation.evaluate(questions(4), Own(), tmp_path, budget=run, concurrency=1)
    assert left == 2
    assert [len(trace.steps) for trace in kept(tmp_path)] == [6, 6]


async def test_a_damaged_earlier_trace_is_refused_before_anything_runs(tmp_path) -> None:
    await sitting(tmp_path, RunBudget(calls=CALLS))
    path = tmp_path / runs.TRACES
    record = json.loads(path.read_text())
    del record["steps"][1]["call"]["tokens"]
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(BadInput, match=r"traces\.jsonl:1: not a trace"):
        await sitting(tmp_path, RunBudget(calls=100))
    assert len(path.read_text().splitlines()) == 1


async def test_a_budget_counts_a_run_once_however_often_it_goes_on(tmp_path) -> None:
    run = RunBudget(calls=3 * CALLS)
    assert await sitting(tmp_path / "a", run, 1) == 0
    assert run.spent.calls == CALLS
    assert await sitting(tmp_path / "a", run, 1) == 0  # nothing is left to ask
    assert run.spent.calls == CALLS
    assert await sitting(tmp_path / "b", run) == 3  # two questions' worth was left
    assert await sitting(tmp_path / "b", run) == 3
    assert run.spent.calls == calls(tmp_path / "a") + calls(tmp_path / "b") == 3 * CALLS
    other = RunBudget(calls=3 * CALLS + 1)
    assert await sitting(tmp_path / "b", other) == 1
    assert other.spent.calls == calls(tmp_path / "b")


async def test_a_model_without_a_price_is_refused_before_a_folder_is_made(tmp_path) -> None:
    run = RunBudget(money=1, prices=Prices({"other": Price(1, 1)}))
    with pytest.raises(BadInput, match="no price for the model 'scripted'"):
        strategy(run)
    with pytest.raises(BadInput, match="no price for the model 'scripted'"):
        await evaluation.evaluate(questions(3), strategy(), tmp_path / "run", budget=run)
    assert not (tmp_path / "run").exists()


# --- Reports --------------------------------------------------------------------------------


async def test_a_report_with_prices_has_money_and_the_prices(tmp_path) -> None:
    await sitting(tmp_path, None)
    report = evaluation.score(tmp_path, prices=Prices({"s*": Price(0, 0, call=0.5)}))
    assert report.means["money"].value == 0.5 * CALLS
    assert report.to_dict()["prices"] == {
        "scripted": {"prompt": 0, "generated": 0, "cached": None, "call": 0.5}
    }
    unpriced = evaluation.score(tmp_path, prices=Prices({"other": Price(1, 1)}))
    assert "money" not in unpriced.means
    assert unpriced.to_dict()["prices"] == {}
    assert "prices" not in evaluation.score(tmp_path).to_dict()
