"""Self-ask on scripted parts."""

import pytest
from neighbours import QUESTION, made

from multihop.errors import BadInput
from multihop.prompts.worked import own_worked
from multihop.strategies import Budget, Demonstrations, make
from multihop.strategies.self_ask import heard, self_ask_form
from multihop.testing import ScriptedLM, ScriptedRetriever
from multihop.trace import Trace, trace


async def test_follow_up_questions_are_answered_by_search_as_in_the_papers_figure():
    lm = ScriptedLM(
        " Yes.\nFollow up: Who composed Aida?\nIntermediate answer: Puccini\nSo the",
        "Giuseppe Verdi",
        "\nFollow up: Where was Giuseppe Verdi born?",
        "Le Roncole",
        "\nSo the final answer is: Le Roncole\n",
    )
    run = await trace(made("self-ask", lm), QUESTION)

    assert run.answer.text == "Le Roncole"
    assert run.answer.stop == "answered"
    assert [p.title for p in run.answer.passages] == ["Aida", "Giuseppe Verdi"]
    assert [type(step).__name__ + getattr(step, "kind", "") for step in run.steps] == [
        *("Thoughtfollow-up", "Search", "Thoughtintermediate answer") * 2,
        *("Thought", "Answer"),
    ]
    assert lm.prompts[-1].endswith(
        "Question: Where was the composer of Aida born?\n"
        "Are follow up questions needed here: Yes.\n"
        "Follow up: Who composed Aida?\n"
        "Intermediate answer: Giuseppe Verdi\n"
        "Follow up: Where was Giuseppe Verdi born?\n"
        "Intermediate answer: Le Roncole"
    )
    assert "Puccini" not in "".join(lm.prompts)  # it does not answer itself
    assert lm.prompts[1].endswith("Q: Who composed Aida?\nA:")
    assert "music by Giuseppe Verdi" in lm.prompts[1]
    assert "music by Giuseppe Verdi" not in lm.prompts[3]  # each hop sees its own passages
    assert Trace.from_json(run.to_json()) == run


def test_the_prompt_has_the_papers_form():
    assert self_ask_form(own_worked()[:1]).text == (
        "Question: Where was the composer of The Planets born?\n"
        "Are follow up questions needed here: Yes.\n"
        "Follow up: Who composed The Planets?\n"
        "Intermediate answer: Gustav Holst\n"
        "Follow up: Where was Gustav Holst born?\n"
        "Intermediate answer: Cheltenham\n"
        "So the final answer is: Cheltenham\n\n"
    )


@pytest.mark.parametrize(
    ("written", "question", "answer"),
    [
        (" Yes.\nFollow up: Who wrote it?", "Who wrote it?", ""),
        (" Yes. Follow-up question: Who wrote it?", "Who wrote it?", ""),
        ("\nFOLLOW UP 2:\nWho wrote it?\nSo the final answer is: x", "Who wrote it?", ""),
        ("\nNext question: Who wrote it?", "Who wrote it?", ""),  # a wrong tag
        (" No.\nSo the final answer is: Ulm.", "", "Ulm"),
        ("\nFinal answer: Ulm\n\nQ: next", "", "Ulm"),
        ("\nSo the final answer is: The answer is Ulm.", "", "Ulm"),
        ("\nSo the final answer is Ulm.\nFollow up: What?", "", "Ulm"),
        ("\nHe was born there, so the answer is Ulm. It is old.", "", "Ulm"),  # in prose
        ("\nIntermediate answer: Ulm\nFollow up: Who?", "", ""),  # it answers itself
        ("\nSo the final answer is:", "", ""),
        ("\nFollow up:\n", "", ""),
        ("It is late.", "", ""),
        ("", "", ""),
    ],
)
def test_a_turn_is_read_whatever_its_tags(written, question, answer):
    assert heard(written) == (question, answer)


@pytest.mark.parametrize(
    ("script", "stop", "searches"),
    [
        # A repeated question.
        (["Follow up: Who composed Aida?", "Verdi", "Follow up: who composed AIDA"], "no_gain", 1),
        # No tag at all, and nothing at all.
        (["It is late."], "no_gain", 0),
        ([""], "empty", 0),
        # No intermediate answer.
        (["Follow up: Who composed Aida?", "", ""], "empty", 1),
    ],
)
async def test_the_final_answer_is_asked_for_where_none_was_written(script, stop, searches):
    lm = ScriptedLM(*script, " Le Roncole.\nQuestion: more")
    run = await trace(made("self-ask", lm), QUESTION)
    assert (run.answer.text, run.answer.stop) == ("Le Roncole", stop)
    assert len(run.searches) == searches
    assert lm.prompts[-1].endswith("\nSo the final answer is:")


@pytest.mark.parametrize(
    ("retriever", "settings", "stop", "searches"),
    [
        (ScriptedRetriever({}), {}, "no_gain", 3),  # nothing is found
        (None, {"max_steps": 2}, "max_steps", 2),
    ],
)
async def test_an_endless_asker_is_ended(retriever, settings, stop, searches):
    def respond(request):
        asks = request.role == "self-ask" and not request.prompt.text.endswith("answer is:")
        return f"Follow up: Who is Verdi number {len(lm.requests)}?" if asks else "Le Roncole"

    lm = ScriptedLM(respond=respond)
    run = await trace(made("self-ask", lm, retriever, **settings), QUESTION)
    assert (run.answer.stop, run.answer.text) == (stop, "Le Roncole")
    assert len(run.searches) == searches


async def test_an_answer_that_never_comes_has_a_reason():
    run = await trace(made("self-ask", ScriptedLM("", "")), QUESTION)
    assert run.answer.text == ""
    assert run.answer.reason == "The model wrote no final answer when asked for it."


async def test_a_budget_ends_the_asking():
    lm = ScriptedLM("Follow up: Who composed Aida?", "Giuseppe Verdi", "Le Roncole")
    run = await trace(made("self-ask", lm, budget=Budget(calls=2)), QUESTION)
    assert (run.answer.stop, run.answer.text) == ("budget", "Le Roncole")


async def test_a_reader_may_answer_afresh():
    lm = ScriptedLM(
        "Follow up: Who composed Aida?", "Verdi", "So the final answer is: x", "Roncole"
    )
    run = await trace(made("self-ask", lm, reader="direct"), QUESTION)
    assert run.answer.text == "Roncole"
    assert "Intermediate" not in lm.prompts[-1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preset": "paper"}, "has no preset 'paper'"),
        ({"family": "flan"}, "has no family 'flan'"),
        ({"demonstrations": Demonstrations()}, "are chains"),
        ({"retriever": None}, "needs a retriever"),
    ],
)
def test_what_belongs_to_ircots_prompts_is_refused(given, message):
    with pytest.raises(BadInput, match=message):
        make("self-ask", lm=ScriptedLM(), **{"retriever": ScriptedRetriever({}), **given})
