"""Self-consistency on scripted parts."""

import pytest
from neighbours import AIDA, QUESTION, VERDI

from multihop import names
from multihop.errors import BadInput
from multihop.strategies import Budget
from multihop.testing import ScriptedLM, TitleRetriever
from multihop.trace import Trace, trace


def voting(*script, of="nor", **options):
    lm = ScriptedLM(*script)
    options = {"of": of, "chains": str(len(script)), **options}
    made = names.open_strategy(
        "self-consistency", retriever=TitleRetriever(AIDA, VERDI), lm=lm, options=options
    )
    return lm, made


def says(answer):
    return f"So the answer is: {answer}."


async def test_the_answer_of_most_chains_counts_as_in_the_papers_figure():
    lm, strategy = voting(says("Milan"), says("the Le Roncole"), says("le roncole"))
    run = await trace(strategy, QUESTION)

    assert (run.answer.text, run.answer.stop) == ("the Le Roncole", "answered")
    assert run.answer.confidence == pytest.approx(2 / 3)
    assert [(t.text, t.kind) for t in run.thoughts] == [
        *(("1 of 3", "chain"), ("Milan", "vote")),
        *(("2 of 3", "chain"), ("the Le Roncole", "vote")),
        *(("3 of 3", "chain"), ("le roncole", "vote")),
    ]
    assert [(r.temperature, r.seed) for r in lm.requests] == [(0.7, 0), (0.7, 1), (0.7, 2)]
    assert len(run.calls) == 3
    assert Trace.from_json(run.to_json()) == run


async def test_chains_may_be_of_any_strategy_and_their_searches_are_one_traces():
    chain = [
        *("Follow up: Who composed Aida?", "Giuseppe Verdi"),
        *("Follow up: Where was Giuseppe Verdi born?", "Le Roncole"),
        "So the final answer is: Le Roncole",
    ]
    lm = ScriptedLM(*chain, *chain[:2], "So the final answer is: Le Roncole")
    strategy = names.open_strategy(
        "self-consistency",
        retriever=TitleRetriever(AIDA, VERDI),
        lm=lm,
        k=2,
        options={"of": "self-ask", "chains": "2", "shots": "1", "seed": "7"},
    )
    run = await trace(strategy, QUESTION)
    assert (run.answer.text, run.answer.confidence) == ("Le Roncole", 1.0)
    assert [search.kept for search in run.searches] == [("aida",), ("verdi",), ()]
    assert run.collected == ("aida", "verdi")
    assert {request.seed for request in lm.requests} == {7, 8}
    assert len(run.calls) == len(lm.requests) == 8
    recorded = ("of", "chains", "temperature", "seed", "k", "shots", "least_agreement")
    assert [strategy.settings[key] for key in recorded] == ["self-ask", 2, 0.7, 7, 2, 1, 0.0]


async def test_below_the_least_agreement_no_answer_is_given():
    _, strategy = voting(
        says("Ulm"), says("Bonn"), says("Ulm"), says("Cork"), least_agreement="0.6"
    )
    run = await trace(strategy, QUESTION)
    assert (run.answer.text, run.answer.stop) == ("", "abstained")
    assert run.answer.reason == ("Only 2 of 4 chains answered 'Ulm': 0.50, and 0.6 was asked for.")
    assert run.answer.confidence == 0.5


@pytest.mark.parametrize(
    ("answers", "winner", "confidence"),
    [
        (["Ulm", "Bonn"], "Ulm", 0.5),  # of equals the first
        (["Bonn", "Ulm", "Ulm"], "Ulm", 2 / 3),
        (["", "Ulm", ""], "Ulm", 1 / 3),  # no answer is no vote
        (["The", "the"], "The", 1.0),  # nothing is left of it but itself
    ],
)
async def test_votes_are_counted(answers, winner, confidence):
    script = [says(answer) if answer else "" for answer in answers]
    lm = ScriptedLM(respond=lambda _: replies.pop(0))
    replies = [part for text in script for part in ([text] if text else ["", ""])]
    strategy = names.open_strategy(
        "self-consistency",
        retriever=None,
        lm=lm,
        options={"of": "nor", "chains": str(len(answers))},
    )
    run = await trace(strategy, QUESTION)
    assert run.answer.text == winner
    assert run.answer.confidence == pytest.approx(confidence)


async def test_where_no_chain_answers_there_is_a_reason_and_no_confidence_to_speak_of():
    lm, strategy = voting("", "", of="nor", chains="1")
    run = await trace(strategy, QUESTION)
    assert (run.answer.text, run.answer.confidence) == ("", 0.0)
    assert "No chain came to an answer: The reader wrote nothing." in run.answer.reason
    assert len(run.calls) == len(lm.requests) == 2


async def test_a_budget_is_for_all_chains_together():
    lm = ScriptedLM(*[says("Ulm")] * 9)
    strategy = names.open_strategy(
        "self-consistency",
        retriever=None,
        lm=lm,
        budget=Budget(calls=2),
        options={"of": "nor", "chains": "5"},
    )
    run = await trace(strategy, QUESTION)
    assert (run.answer.text, run.answer.stop, len(run.calls)) == ("Ulm", "budget", 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chains": "0"}, "at least 1"),
        ({"temperature": "0"}, "differ only above 0"),
        ({"least_agreement": "2"}, "it is a share"),
        ({"of": "self-consistency"}, "of itself"),
        ({"of": "ircod"}, "Did you mean 'ircot'"),
        ({"patience": "3"}, "option of strategy 'nor' is named 'patience'"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(BadInput, match=message):
        voting(says("Ulm"), **options)
