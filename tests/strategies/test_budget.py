"""Budgets of a question and of a run, on scripted parts."""

from dataclasses import replace

import pytest

from multihop.cost import Price, Prices
from multihop.errors import BadInput
from multihop.prompts.demonstrations import Demonstration
from multihop.strategies import Budget, Demonstrations, RunBudget, make
from multihop.strategies import budget as budget_module
from multihop.testing import ScriptedLM, TitleRetriever
from multihop.text import Passage, Question
from multihop.trace import Answer, LMCall, Search, Thought, Tokens, trace

SHOTS = Demonstrations.from_cot([Demonstration("Q: Who wrote Ode?\nA: So the answer is: Ida.")])
QUESTION = Question("In which country was Lost Gravity made?")
RIDE = Passage("lg", "Lost Gravity", "Lost Gravity is a roller coaster built by Mack Rides.")
PRICES = Prices({"m": Price(prompt=0, generated=0, call=0.1), "scripted": Price(0, 0, call=0.1)})
ANSWER = "So the answer is: Germany."


def call(prompt=6, generated=4, **more):
    done = LMCall(
        "reason", "m", "1234", ("12345",), ("stop",), 0.5, Tokens(prompt, None, generated)
    )
    return replace(done, **more)


def thoughts(*calls):
    return [Thought("t", each) for each in calls]


# --- Of a question --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "calls"),
    [
        (Budget(calls=3), 3),
        (Budget(tokens=30), 3),
        (Budget(seconds=1.5), 3),
        (Budget(money=0.3, prices=PRICES), 3),
        (Budget(money=0.8, prices=PRICES), 8),  # as floats they add up to less
    ],
)
def test_a_budget_ends_exactly_at_its_limit(budget, calls):
    assert budget.ended(thoughts(*[call()] * (calls - 1))) is None
    assert budget.ended(thoughts(*[call()] * calls)) == "budget"


def test_a_limit_is_not_reached_one_below_it():
    assert Budget(tokens=11).ended(thoughts(call())) is None
    assert Budget(tokens=10).ended(thoughts(call())) == "budget"
    assert Budget(money=0.1001, prices=PRICES).ended(thoughts(call())) is None


def test_without_a_limit_nothing_ends():
    assert Budget().ended(thoughts(*[call()] * 1000)) is None
    assert Budget(prices=PRICES).ended(thoughts(call(model="unpriced"))) is None


def test_tokens_that_are_not_told_are_estimated():
    silent = thoughts(call(None, None))  # four bytes and five
    assert Budget(tokens=3).ended(silent) == "budget"
    assert Budget(tokens=4).ended(silent) is None


def test_fused_and_replayed_calls_are_no_calls():
    steps = thoughts(call(), call(fused=True), call(replayed=True))
    assert Budget(calls=2).ended(steps) is None
    assert Budget(calls=1).ended(steps) == "budget"
    assert Budget(tokens=15).ended(steps) is None
    assert Budget(tokens=14).ended(steps) == "budget"  # 10 and the 4 that were read on
    assert Budget(money=0.11, prices=PRICES).ended(steps) is None


def test_both_calls_of_an_answer_count():
    steps = [Answer("a", "answered", call=call(), forced=call())]
    assert Budget(calls=2).ended(steps) == "budget"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"calls": -1}, "A budget of -1 calls"),
        ({"seconds": float("nan")}, "A budget of nan seconds"),
        ({"money": float("inf"), "prices": PRICES}, "A budget of inf money"),
        ({"money": 1.0}, "needs a price table"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused(limits, words):
    for kind in (Budget, RunBudget):
        with pytest.raises(BadInput, match=words):
            kind(**limits)


def ircot(lm, **settings):
    return make("ircot", lm=lm, retriever=TitleRetriever(RIDE), demonstrations=SHOTS, **settings)


async def test_money_ends_the_search_and_the_reader_still_answers():
    lm = ScriptedLM("Lost Gravity is one.", "Lost Gravity is two.", ANSWER)
    run = await trace(ircot(lm, budget=Budget(money=0.2, prices=PRICES)), QUESTION)
    assert (run.answer.stop, run.answer.text) == ("budget", "Germany")
    assert len(run.thoughts) == 2


async def test_an_answer_stated_at_the_limit_is_an_answer():
    run = await trace(ircot(ScriptedLM(ANSWER, ANSWER), budget=Budget(calls=1)), QUESTION)
    assert run.answer.stop == "answered"


async def test_a_chain_that_ends_by_budget_without_a_reader_is_asked_for_its_answer():
    lm = ScriptedLM("Lost Gravity is one.", " Germany.")
    run = await trace(ircot(lm, reader="none", budget=Budget(calls=1)), QUESTION)
    assert (run.answer.stop, run.answer.text) == ("budget", "Germany")
    assert len(run.calls) == 2


async def test_a_long_call_is_not_broken_off():
    lm = ScriptedLM("Lost Gravity is one.", ANSWER, delay=0.03)
    run = await trace(ircot(lm, budget=Budget(seconds=0.01)), QUESTION)
    assert [thought.text for thought in run.thoughts] == ["Lost Gravity is one."]
    assert (run.answer.stop, run.answer.text) == ("budget", "Germany")


async def test_with_a_main_passage_one_sentence_is_written_whatever_the_titles_cost():
    lm = ScriptedLM('["Lost Gravity"]', "Lost Gravity is one.", ANSWER)
    question = replace(QUESTION, pinned=Passage("main", "Main", "About rides."))
    run = await trace(ircot(lm, budget=Budget(calls=1)), question)
    assert run.answer.stop == "budget"
    assert len(run.thoughts) == 1


def test_a_model_without_a_price_is_refused_when_the_strategy_is_made():
    with pytest.raises(BadInput, match=r"no price for the model 'scripted'"):
        ircot(ScriptedLM(), budget=Budget(money=1, prices=Prices({"m": Price(1, 1)})))
    assert ircot(ScriptedLM(), budget=Budget(calls=1, prices=Prices({})))


def test_the_price_is_a_setting_where_it_decides():
    budget = Budget(money=1, prices=Prices({"m": Price(9, 9), "scrip*": Price(1, 2)}))
    settings = ircot(ScriptedLM(), budget=budget).settings
    assert settings["budget_money"] == 1
    assert settings["prices"] == {
        "scripted": {"prompt": 1, "generated": 2, "cached": None, "call": 0.0}
    }
    assert "prices" not in ircot(ScriptedLM(), budget=Budget(prices=PRICES)).settings


@pytest.mark.parametrize(("name", "calls"), [("oner", 1), ("nor", 1)])
async def test_a_strategy_without_a_loop_has_nothing_to_cut(name, calls):
    lm = ScriptedLM(ANSWER)
    retriever = TitleRetriever(RIDE)
    strategy = make(
        name, lm=lm, retriever=retriever, demonstrations=SHOTS, budget=Budget(seconds=0)
    )
    run = await trace(strategy, QUESTION)
    assert (run.answer.stop, len(run.calls)) == ("answered", calls)


# --- Of a run -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (RunBudget(calls=2), "2 of 2 calls"),
        (RunBudget(tokens=20), "20 of 20 tokens"),
        (RunBudget(money=0.2, prices=PRICES), "0.2 of 0.2 in money"),
    ],
)
def test_a_run_is_at_its_end_when_its_steps_have_used_it_up(run, words):
    run.begin()
    run.add(*thoughts(call()), Search("q", (), (), (), seconds=1e6))
    assert run.reached == ""
    run.add(*thoughts(call()))
    assert run.reached == words


def test_the_seconds_of_a_run_are_the_clocks_since_it_began(monkeypatch):
    now = 100.0
    monkeypatch.setattr(budget_module, "monotonic", lambda: now)
    run = RunBudget(seconds=5)
    run.add(*thoughts(call(seconds=1e6)))
    now = 1000.0
    assert run.reached == ""
    run.begin()
    now = 1004.0
    run.begin()  # it runs already
    assert run.reached == ""
    now = 1005.0
    assert run.reached == "5.0 of 5 seconds"


async def test_the_end_of_the_run_ends_the_search_of_a_question_at_work():
    run = RunBudget(calls=5)
    lm = ScriptedLM("Lost Gravity is one.", "Lost Gravity is two.", ANSWER)
    strategy = ircot(lm, budget=Budget(run=run))
    run.add(*thoughts(*[call()] * 3))
    result = await trace(strategy, QUESTION, run.add)
    assert (result.answer.stop, result.answer.text) == ("budget", "Germany")
    assert len(result.thoughts) == 2
    assert run.spent.calls == 6


def test_the_budget_of_a_run_is_no_setting():
    free, bound = (ircot(ScriptedLM(), budget=Budget(run=r)) for r in (None, RunBudget(calls=1)))
    assert free.settings == bound.settings
