"""What the writer asks of an LM, and what it makes of the replies."""

import asyncio
from dataclasses import replace

import pytest

from multihop.errors import BadInput, ContextTooLong
from multihop.lms.base import Piece
from multihop.prompts.demonstrations import Demonstration
from multihop.strategies import Demonstrations, make
from multihop.strategies.budget import Budget
from multihop.strategies.rules import default_query, preset
from multihop.strategies.writing import Writer
from multihop.testing import ScriptedLM, ScriptedRetriever, TitleRetriever
from multihop.text import Passage, Question
from multihop.trace import Search, Titles, trace

QUESTION = Question("Who wrote Ode?")
COT = Demonstration(
    "Wikipedia Title: Elegy\nElegy is by Per.\n\nQ: Who wrote Elegy?\n"
    "A: Elegy was written by Per. So the answer is: Per."
)
SHOTS = Demonstrations.from_cot([COT])
LONG = Demonstration("Q: " + "word " * 60 + "?\nA: So the answer is: x.")


def writer(lm, rules, shots=SHOTS, **settings):
    return Writer(lm, rules, shots, **settings)


class Whole(ScriptedLM):
    """Cannot be stopped: sends one piece, cut by the token limit."""

    async def stream(self, request):
        self.requests.append(request)
        yield Piece(self.script.pop(0), finish="length")


async def test_a_sentence_finished_before_the_token_limit_is_no_runaway():
    lm = Whole("Ode is old. It is by Ida and by Ida and", "So the answer is: Ida.", "It is: x")
    run = await trace(
        make("ircot", lm=lm, retriever=TitleRetriever(), demonstrations=SHOTS, reader="none"),
        QUESTION,
    )
    assert [t.text for t in run.thoughts] == ["Ode is old.", "So the answer is: Ida."]
    assert run.answer.stop == "answered"


async def test_a_search_that_finds_nothing_changes_no_demonstrations():
    lm = ScriptedLM("So the answer is: Ida.")
    await trace(
        make("oner", lm=lm, retriever=ScriptedRetriever({}), demonstrations=SHOTS), QUESTION
    )
    assert lm.prompts[0].startswith(COT.text)


async def test_a_forced_answer_that_only_repeats_our_words_is_no_answer():
    lm = ScriptedLM("Ode is old.", "So the answer is:")
    answer = await writer(lm, preset("default")).read(QUESTION, (), "answered")
    assert (answer.text, answer.reason) == ("", "The reader's text states no answer.")


async def test_a_concluded_chain_says_our_words_once():
    lm = ScriptedLM("So the answer is: Ida.")
    thought = await writer(lm, preset("default")).conclude(QUESTION, (), ["Ode is old."])
    assert thought.text == "So the answer is: Ida."


async def test_no_call_asks_for_more_tokens_than_the_limit():
    lm = ScriptedLM("Ode is old.", "Ida.")
    rules = replace(preset("default"), generation=16)
    await writer(lm, rules).read(QUESTION, (), "answered")
    assert [request.max_tokens for request in lm.requests] == [16, 16]


async def test_a_prompt_leaves_room_for_its_completion_and_a_forced_answer():
    passages = [Passage(str(n), f"Title {n}", "word " * 30) for n in range(9)]
    lm = ScriptedLM("Ode is old.", "Ida.", window=600)
    await writer(lm, preset("default")).read(QUESTION, passages, "answered")
    for request in lm.requests:
        turns = " ".join(turn.text for turn in request.prompt.turns)
        assert len(turns.split()) + request.max_tokens < 600
    assert "Title 4" in lm.prompts[0]


@pytest.mark.parametrize("eviction", ["first", "fifo"])
async def test_the_pinned_passage_is_shown_in_the_smallest_window(eviction):
    passages = [Passage(str(n), f"Title {n}", "word " * 30) for n in range(9)]
    for where in ("first", "last"):
        lm = ScriptedLM("So the answer is: x.", window=500)
        rules = replace(preset("default"), pin=where)
        question = replace(QUESTION, pinned=Passage("m", "Main", "main"))
        await writer(lm, rules, eviction=eviction).read(question, passages, "answered")
        assert "Wikipedia Title: Main" in lm.prompts[0]
        assert ("Title 0" in lm.prompts[0]) == (eviction == "first")


async def test_lines_cut_without_demonstrations_are_reported():
    lm = ScriptedLM("Ida")
    rules = replace(preset("paper"), limit=20, static_limit=None)
    passage = Passage("o", "Ode", "word " * 60)
    answer = await writer(lm, rules, Demonstrations()).read(QUESTION, [passage], "answered")
    assert "lines were cut" in answer.call.warnings[0]


async def test_all_dropped_demonstrations_are_reported_together():
    lm = ScriptedLM("Ida")
    rules = replace(preset("paper"), limit=440, static_limit=520)
    shots = Demonstrations.from_cot([LONG, LONG, LONG])
    answer = await writer(lm, rules, shots).read(QUESTION, (), "answered")
    assert answer.call.warnings == ("2 of 3 demonstrations did not fit.",)


async def test_two_blank_lines_part_a_prompt_in_the_release_alone():
    passage = Passage("o", "Ode", "top\n\n\n\nbottom")
    prompts = {}
    for name in ("paper", "official"):
        rules = replace(preset(name), limit=250, static_limit=None, generation=200)
        shots = Demonstrations.from_cot([LONG])
        lm = ScriptedLM("Ida")
        await writer(lm, rules, shots, reader="direct").read(QUESTION, [passage], "answered")
        prompts[name] = lm.prompts[0]
    assert "top\n\nbottom" in prompts["paper"]
    assert "top\n\n\nbottom" in prompts["official"]


@pytest.mark.parametrize(
    ("name", "reader", "stepwise"),
    [
        ("default", "direct", False),
        ("default", "cot", True),
        ("paper", "direct", False),
        ("paper", "cot", True),
        ("official", "cot", False),  # the release's readers are never asked for steps
    ],
)
async def test_the_flan_instruction_follows_the_reader(name, reader, stepwise):
    lm = ScriptedLM("So the answer is: Ida.")
    rules = preset(name, "flan")
    await writer(lm, rules, reader=reader).read(QUESTION, (), "answered")
    assert ("step-by-step" in lm.prompts[0].rpartition("Q: ")[2]) == stepwise


async def test_titles_that_are_none_are_reported():
    question = replace(QUESTION, pinned=Passage("m", "Main", "main"))
    lm = ScriptedLM("null", '"Ode"')
    asks = writer(lm, preset("default"))
    titles, call = await asks.titles(question, 3)
    assert (titles, call.warnings) == ((), ("The model's text names no title.",))
    assert (await asks.titles(question, 3))[0] == ("Ode",)


class Narrow(ScriptedLM):
    """Refuses what does not fit its window, counting words."""

    async def stream(self, request):
        needed = len(request.prompt.text.split()) + request.max_tokens
        if needed > 300:
            self.requests.append(request)
            raise ContextTooLong("too long", needed, 300)
        async for piece in super().stream(request):
            yield piece


async def test_the_release_asks_again_for_what_still_fits():
    lm = Narrow("Ida")
    answer = await writer(lm, preset("paper")).read(QUESTION, (), "answered")
    first, second = lm.requests
    assert first.max_tokens == 300
    assert second.max_tokens == 300 - len(second.prompt.text.split())
    assert answer.call.warnings == (f"Only {second.max_tokens} tokens were left to write.",)
    with pytest.raises(ContextTooLong):
        await writer(Narrow("Ida"), replace(preset("default"), generation=300)).read(
            QUESTION, (), "answered"
        )


async def test_counts_survive_other_questions_that_clear_them():
    async def count(texts):
        await asyncio.sleep(0)
        return [len(text) for text in texts]

    asks = writer(ScriptedLM(), preset("paper"), count=count)
    counted = await asyncio.gather(
        *(asks._count(["shared", *(f"{n}-{m}" for m in range(300))]) for n in range(9))
    )
    assert all(sizes[0] == len("shared") for sizes in counted)


def test_title_searches_count_against_a_budget_of_seconds():
    step = Titles(("Ode",), ("Ode",), (Search("Ode", (), (), (), seconds=2.0),))
    assert Budget(seconds=1.0).ended([step]) == "budget"
    assert Budget(seconds=3.0).ended([step]) is None


def test_a_question_of_question_words_is_still_asked():
    assert default_query("Who   is", ()) == "Who   is"


def test_an_unknown_eviction_is_refused():
    with pytest.raises(BadInput, match="No eviction is named 'lifo'"):
        make("nor", lm=ScriptedLM(), demonstrations=SHOTS, eviction="lifo")
