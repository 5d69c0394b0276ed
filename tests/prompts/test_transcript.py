"""Prompts whose answer is a transcript, and the worked questions that they show."""

import pytest

from multihop.prompts.transcript import Example, TranscriptForm
from multihop.prompts.worked import own_worked, single_hops
from multihop.strategies.decomp import decomp_form
from multihop.strategies.react import react_form
from multihop.strategies.self_ask import self_ask_form

FORM = TranscriptForm("Do so.", (Example("Question: Who?", "Answer: Ida"),), "Head.")


def test_both_forms_of_a_prompt_show_the_same():
    prompt = FORM.prompt("Question: Where?", "Answer:")
    assert prompt.text == ("Head.\n\nQuestion: Who?\nAnswer: Ida\n\nQuestion: Where?\nAnswer:")
    assert prompt.text[prompt.shared :] == "Question: Where?\nAnswer:"
    assert [(turn.speaker, turn.text) for turn in prompt.turns] == [
        ("system", "Do so."),
        ("user", "Question: Who?"),
        ("assistant", "Answer: Ida"),
        ("user", "Question: Where?"),
        ("assistant", "Answer:"),
    ]
    assert "{chain}" in prompt.ask_next


def test_an_edited_prompt_has_another_digest():
    others = [
        TranscriptForm("Do it.", FORM.examples, FORM.head),
        TranscriptForm(FORM.system, (), FORM.head),
        TranscriptForm(FORM.system, FORM.examples),
    ]
    assert len({form.digest() for form in (FORM, *others)}) == 4


@pytest.mark.parametrize("form", [self_ask_form, react_form, decomp_form])
def test_every_worked_question_is_shown_with_all_its_hops(form):
    for worked in own_worked():
        text = form([worked]).text
        assert worked.question in text
        assert text.count(worked.answer) >= 1
        assert "{" not in text.replace('{"titles"', "")
        assert [hop.answer in text for hop in worked.hops] == [True] * len(worked.hops)


def test_hops_of_all_places_are_shown_as_smaller_questions():
    shown = single_hops(own_worked()[:3], 5)
    assert [d.answered for d in shown] == ["Gustav Holst", "1857", "Rijksmuseum"]
    assert shown[0].text.startswith(
        "Wikipedia Title: Enigma Variations\nThe Enigma Variations are an\n"
    )
    assert [d.answered for d in single_hops(own_worked()[:1], 5, listed=True)] == [
        '["Gustav Holst"]'
    ]
