"""DecomP on scripted parts."""

import pytest
from neighbours import QUESTION, made

from multihop.errors import BadInput
from multihop.prompts.worked import own_worked
from multihop.strategies import Budget
from multihop.strategies.decomp import Sub, decomp_form, filled, listed, step_in
from multihop.testing import ScriptedLM, ScriptedRetriever
from multihop.trace import Trace, trace

FIRST = " (select) [retrieve_odqa] Who composed Aida?"
SECOND = " (select) [retrieve_odqa] Where was #1 born?"
LAST = " (select) [multihop_titleqa] Where was the composer of Aida born?"


async def test_answers_are_carried_from_step_to_step_as_in_the_papers_figure():
    lm = ScriptedLM(FIRST, '["Giuseppe Verdi"]', SECOND, '["Le Roncole"]', LAST, "Le Roncole")
    run = await trace(made("decomp", lm, reader="direct"), QUESTION)

    assert (run.answer.text, run.answer.stop) == ("Le Roncole", "answered")
    assert [s.query for s in run.searches] == [
        "Who composed Aida?",
        "Where was Giuseppe Verdi born?",
    ]
    assert [p.title for p in run.answer.passages] == ["Aida", "Giuseppe Verdi"]
    assert lm.prompts[4].endswith(
        "QC: Where was the composer of Aida born?\n"
        "QS: (select) [retrieve_odqa] Who composed Aida?\n"
        'A: {"titles": ["Aida"], "answer": ["Giuseppe Verdi"]}\n'
        "QS: (select) [retrieve_odqa] Where was #1 born?\n"
        'A: {"titles": ["Giuseppe Verdi"], "answer": ["Le Roncole"]}\n'
        "QS:"
    )
    assert lm.prompts[3].endswith("Q: Where was Giuseppe Verdi born?\nA:")
    assert "four acts" not in lm.prompts[3]  # a hop's reader sees its own passages
    assert "four acts" in lm.prompts[5]  # the last one sees all
    assert Trace.from_json(run.to_json()) == run


def test_the_prompt_has_the_papers_form():
    assert decomp_form(own_worked()[:1]).text == (
        "QC: Where was the composer of The Planets born?\n"
        "QS: (select) [retrieve_odqa] Who composed The Planets?\n"
        'A: {"titles": ["Enigma Variations", "The Planets"], "answer": ["Gustav Holst"]}\n'
        "QS: (select) [retrieve_odqa] Where was #1 born?\n"
        'A: {"titles": ["Enigma Variations", "Gustav Holst"], "answer": ["Cheltenham"]}\n'
        "QS: (select) [multihop_titleqa] Where was the composer of The Planets born?\n"
        'A: ["Cheltenham"]\n'
        "QS: [EOQ]\n\n"
    )


@pytest.mark.parametrize(
    ("written", "step"),
    [
        (" (select) [retrieve_odqa] Who?", Sub("retrieve", "Who?")),
        ("QS: [retrieve_odqa] Who?\nA: x", Sub("retrieve", "Who?")),
        ("(project_values) [retrieve_odqa] Is #1?", Sub("retrieve", "Is #1?", each=True)),
        ("(foreach_merge) [odqa] #1?", Sub("retrieve", "#1?", each=True, unique=True)),
        ('(select) [singlehop_titleqa] Titles: ["A"]. Question: Who?', Sub("single", "Who?")),
        ("(select) [multihop_rcqa] Who?", Sub("multi", "Who?")),
        ("[multihop_titleqa]", Sub("multi", "")),
        ("(select) [wikipedia] Who?", Sub("retrieve", "Who?")),  # a wrong tag
        ("(select) Who composed it?", Sub("retrieve", "Who composed it?")),
        ("Q: Who?", Sub("retrieve", "Who?")),
        (" [EOQ]", Sub("end", "")),
        ("QS: [eoq]", Sub("end", "")),
        ("(select) [retrieve_odqa]", None),
        ("It is late.", None),
        ("", None),
    ],
)
def test_a_step_is_read_whatever_its_tags(written, step):
    assert step_in(written) == step


@pytest.mark.parametrize(
    ("sub", "questions"),
    [
        (Sub("retrieve", "Is #1 in #2?"), ["Is A, B in C?"]),
        (Sub("retrieve", "Is #1 in #2?", each=True), ["Is A in C?", "Is B in C?"]),
        (Sub("retrieve", "No reference?", each=True), ["No reference?"]),
        (Sub("retrieve", "Is #4?"), []),
        (Sub("retrieve", "Is #3?"), []),  # an empty answer
        (Sub("retrieve", "Is #0?"), []),
    ],
)
def test_references_are_filled(sub, questions):
    assert filled(sub, [("A", "B"), ("C",), ()]) == questions


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('["A", "B"]', ("A", "B")),
        ('["A, of B"]', ("A, of B",)),
        ("A", ("A",)),
        ("1865", ("1865",)),
        ('["A', ("A",)),
        ("[]", ()),
        ("", ()),
        ("[" * 100_000, ()),
    ],
)
def test_a_readers_answer_is_a_list_or_a_text(text, values):
    assert listed(text) == values


@pytest.mark.parametrize(
    ("script", "stop"),
    [
        ([FIRST, "Verdi", " (select) [retrieve_odqa] Who composed AIDA"], "no_gain"),  # repeated
        ([FIRST, "", SECOND], "no_gain"),  # #1 has no answer
        (["It is late."], "no_gain"),
        ([""], "empty"),
        ([" [EOQ]"], "answered"),
    ],
)
async def test_the_whole_question_is_read_where_the_steps_end_early(script, stop):
    lm = ScriptedLM(*script, "So the answer is: Le Roncole.")
    run = await trace(made("decomp", lm), QUESTION)
    assert (run.answer.text, run.answer.stop) == ("Le Roncole", stop)


async def test_the_last_answer_counts_where_the_questions_end_without_a_reader():
    lm = ScriptedLM(FIRST, '["Giuseppe Verdi"]', " [EOQ]")
    run = await trace(made("decomp", lm), QUESTION)
    assert (run.answer.text, run.answer.stop) == ("Giuseppe Verdi", "answered")


async def test_the_same_passages_may_be_read_again_without_a_search():
    again = " (select) [singlehop_titleqa] Who composed Aida?"
    lm = ScriptedLM(FIRST, "Puccini", again, '["Giuseppe Verdi"]', " [EOQ]")
    run = await trace(made("decomp", lm), QUESTION)
    assert run.answer.text == "Giuseppe Verdi"
    assert len(run.searches) == 1
    assert "four acts" in lm.prompts[3]


async def test_an_answer_inside_prose_is_not_lost():
    run = await trace(made("decomp", ScriptedLM("So the answer is: Le Roncole.")), QUESTION)
    assert run.answer.text == "Le Roncole"


async def test_a_step_for_each_value_joins_their_answers():
    lm = ScriptedLM(
        " [retrieve_odqa] Which two?",
        '["Aida", "Giuseppe Verdi"]',
        " (project_values_flat_unique) [retrieve_odqa] What is #1?",
        '["x"]',
        '["x"]',
        " [EOQ]",
    )
    run = await trace(made("decomp", lm), QUESTION)
    assert [s.query for s in run.searches[1:]] == ["What is Aida?", "What is Giuseppe Verdi?"]
    assert run.answer.text == "x"


@pytest.mark.parametrize(
    ("settings", "retriever", "stop"),
    [
        ({"max_steps": 2}, None, "max_steps"),
        ({}, ScriptedRetriever({}), "no_gain"),
        ({"budget": Budget(calls=1)}, None, "budget"),
    ],
)
async def test_an_endless_decomposer_is_ended(settings, retriever, stop):
    def respond(request):
        asks = request.role == "decompose"
        return f" [retrieve_odqa] Who is Aida {len(lm.requests)}?" if asks else "Le Roncole"

    lm = ScriptedLM(respond=respond)
    run = await trace(made("decomp", lm, retriever, reader="direct", **settings), QUESTION)
    assert (run.answer.text, run.answer.stop) == ("Le Roncole", stop)


def test_it_needs_a_reader():
    with pytest.raises(BadInput, match="reader 'none' leaves nothing"):
        made("decomp", ScriptedLM(), reader="none")
