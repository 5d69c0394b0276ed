"""Iter-RetGen on scripted parts."""

import pytest
from neighbours import AIDA, QUESTION, VERDI, made

from multihop.errors import BadInput
from multihop.strategies import Budget
from multihop.testing import ScriptedLM, ScriptedRetriever
from multihop.trace import Trace, trace

DRAFT = "Aida was composed by Giuseppe Verdi. So the answer is: Milan."


async def test_a_whole_generation_is_the_next_query_as_in_the_papers_figure():
    lm = ScriptedLM(DRAFT, "Giuseppe Verdi was born in Le Roncole. So the answer is: Le Roncole.")
    run = await trace(made("iter-retgen", lm), QUESTION)

    assert (run.answer.text, run.answer.stop) == ("Le Roncole", "answered")
    assert [search.query for search in run.searches] == [
        QUESTION.text,
        f"{DRAFT} {QUESTION.text}",
    ]
    assert [(t.text, t.kind) for t in run.thoughts] == [(DRAFT, "draft")]
    assert "four acts" in lm.prompts[0]
    assert "Le Roncole" in lm.prompts[1]
    assert "Milan" not in lm.prompts[1]  # a generation is a query, not a part of a prompt
    assert Trace.from_json(run.to_json()) == run


async def test_a_round_sees_what_its_own_query_found_alone():
    retriever = ScriptedRetriever({QUESTION.text: [AIDA], f"x {QUESTION.text}": [VERDI]})
    lm = ScriptedLM("x", "Le Roncole")
    run = await trace(made("iter-retgen", lm, retriever, reader="direct"), QUESTION)
    assert [p.id for p in run.answer.passages] == ["verdi"]
    assert "four acts" not in lm.prompts[1]


async def test_rounds_are_fixed():
    drafts = ["Giuseppe Verdi", "Aida again", "Giuseppe Verdi once more", "Le Roncole"]
    queries = [QUESTION.text, *(f"{draft} {QUESTION.text}" for draft in drafts)]
    found = [[AIDA], [VERDI], [AIDA], [VERDI], [AIDA]]
    retriever = ScriptedRetriever(dict(zip(queries, found, strict=True)))
    lm = ScriptedLM(*drafts)
    run = await trace(made("iter-retgen", lm, retriever, reader="direct", max_steps=4), QUESTION)
    assert [search.query for search in run.searches] == queries[:4]
    assert (run.answer.text, len(run.calls)) == ("Le Roncole", 4)


@pytest.mark.parametrize("written", ["So the answer is: Le Roncole.", "nonsense", ""])
async def test_a_round_that_finds_the_same_ends_the_rounds(written):
    lm = ScriptedLM(written, "Le Roncole.")  # asked for where none was stated
    retriever = ScriptedRetriever({})
    run = await trace(made("iter-retgen", lm, retriever, max_steps=5), QUESTION)
    assert (run.answer.text, run.answer.stop) == ("Le Roncole", "no_gain")
    assert len(run.searches) == 2


async def test_an_answer_that_never_comes_has_a_reason():
    run = await trace(made("iter-retgen", ScriptedLM(*[""] * 4), max_steps=2), QUESTION)
    assert run.answer.text == ""
    assert run.answer.reason == "The reader wrote nothing."


async def test_calls_of_every_round_are_in_the_trace():
    lm = ScriptedLM("Nothing stated about Giuseppe Verdi", "Verdi", DRAFT)
    run = await trace(made("iter-retgen", lm), QUESTION)
    assert len(run.calls) == 3
    assert run.answer.text == "Milan"


async def test_a_budget_ends_the_rounds_with_the_answer_at_hand():
    lm = ScriptedLM(DRAFT)
    run = await trace(made("iter-retgen", lm, max_steps=3, budget=Budget(calls=1)), QUESTION)
    assert (run.answer.text, run.answer.stop) == ("Milan", "budget")


def test_it_needs_a_reader():
    with pytest.raises(BadInput, match="reader 'none' leaves nothing"):
        made("iter-retgen", ScriptedLM(), reader="none")
