"""IRCoT, OneR and NoR on scripted parts."""

import pytest

from multihop.errors import BadInput, LMUnavailable, RetrieverError
from multihop.prompts.demonstrations import Demonstration
from multihop.strategies import Budget, Demonstrations, make
from multihop.testing import ScriptedLM, ScriptedRetriever, TitleRetriever
from multihop.text import Passage, Question
from multihop.trace import Search, Titles, trace

LOST_GRAVITY = Passage(
    "lg", "Lost Gravity", "Lost Gravity is a roller coaster built by Mack Rides."
)
MACK_RIDES = Passage("mr", "Mack Rides", "Mack Rides is a company from Waldkirch, Germany.")
QUESTION = Question("In which country was Lost Gravity made?", answers=("Germany",))
SHOTS = Demonstrations.from_cot(
    [
        Demonstration(
            "Wikipedia Title: Ode\nOde is by Ida.\n\nQ: Who wrote Ode?\n"
            "A: Ode was written by Ida. So the answer is: Ida."
        )
    ]
)


def ircot(lm, retriever=None, **settings):
    return make(
        "ircot",
        lm=lm,
        retriever=retriever or TitleRetriever(LOST_GRAVITY, MACK_RIDES),
        **{"demonstrations": SHOTS, **settings},
    )


async def test_second_hop_is_found_through_the_first_thought():
    lm = ScriptedLM(
        "Lost Gravity was built by Mack Rides. Mack Rides is from Italy.",
        "Mack Rides is from Germany.",
        "So the answer is: Germany.",
        "Lost Gravity was built by Mack Rides. So the answer is: Germany.",
    )
    run = await trace(ircot(lm), QUESTION)

    assert run.answer.text == "Germany"
    assert run.answer.stop == "answered"
    assert [search.query for search in run.searches] == [
        "In country was Lost Gravity made?",
        "Lost Gravity was built by Mack Rides.",
        "Mack Rides is from Germany.",
    ]
    assert "Waldkirch" not in lm.prompts[0]  # not yet found
    assert "Waldkirch" in lm.prompts[1]
    assert "Italy" not in "".join(lm.prompts)  # only the first sentence is kept


async def test_the_reader_answers_afresh_and_never_sees_the_chain():
    lm = ScriptedLM("Lost Gravity was made in Peru.", "So the answer is: Peru.", "Germany.")
    run = await trace(ircot(lm, reader="direct"), QUESTION)
    assert run.answer.text == "Germany"
    assert "Peru" not in lm.prompts[-1]
    assert [p.id for p in run.answer.passages] == list(run.collected)


async def test_without_a_reader_the_chains_own_answer_counts():
    lm = ScriptedLM("Lost Gravity was built by Mack Rides.", "So the answer is: Germany.")
    run = await trace(ircot(lm, reader="none"), QUESTION)
    assert run.answer.text == "Germany"
    assert len(run.calls) == 2


async def test_a_chain_without_an_answer_is_asked_for_one():
    lm = ScriptedLM("Mack Rides builds rides.", "Lost Gravity is one.", " Germany.")
    run = await trace(ircot(lm, reader="none", max_steps=2), QUESTION)
    assert run.answer.text == "Germany"
    assert run.answer.stop == "max_steps"
    assert run.thoughts[-1].forced == "So the answer is:"
    assert lm.prompts[-1].endswith("Lost Gravity is one. So the answer is:")


async def test_a_repeated_sentence_ends_the_chain():
    lm = ScriptedLM("Mack Rides is old.", "mack rides is OLD!", "So the answer is: Germany.")
    run = await trace(ircot(lm), QUESTION)
    assert run.answer.stop == "no_gain"
    assert run.answer.text == "Germany"


async def test_searches_that_bring_nothing_new_end_the_chain():
    lm = ScriptedLM("One.", "Two.", "Three.", "Four.", "So the answer is: Germany.")
    run = await trace(ircot(lm, ScriptedRetriever({})), QUESTION)
    assert run.answer.stop == "no_gain"
    assert len(run.thoughts) == 3


class Endless(ScriptedLM):
    """Every completion runs to its token limit."""

    def _next(self, request):
        return super()._next(request)[0], "length"


async def test_a_sentence_cut_at_the_token_limit_ends_the_chain():
    lm = Endless("a film by a film by a film by", "a film by", "a film by")
    run = await trace(ircot(lm), QUESTION)
    assert run.answer.stop == "no_gain"
    assert len(run.thoughts) == 1


async def test_a_readers_text_cut_at_the_token_limit_is_no_answer():
    lm = Endless("So the answer is: x.", "Lost Gravity was built by", "")
    run = await trace(ircot(lm, preset="paper"), QUESTION)
    assert run.answer.text == ""
    assert "cut at its token limit" in run.answer.reason


@pytest.mark.spacy
async def test_the_release_repeats_itself_up_to_its_step_limit():
    lm = ScriptedLM(*["The mill is old."] * 10, "Germany")
    run = await trace(ircot(lm, preset="official"), QUESTION)
    assert run.answer.stop == "max_steps"
    assert len(run.thoughts) == 10


async def test_an_empty_sentence_ends_the_chain_and_the_reader_still_answers():
    lm = ScriptedLM("", "So the answer is: Germany.")
    run = await trace(ircot(lm), QUESTION)
    assert run.answer.stop == "empty"
    assert run.answer.text == "Germany"


async def test_a_trained_model_that_writes_nothing_waits_for_what_stands_further_down():
    pages = [Passage(f"p{n}", f"Page {n}", f"Page {n} is long.") for n in range(4)]
    first, needed = "In country was Lost Gravity made?", "The country of Mack Rides is needed."
    retriever = ScriptedRetriever({first: [LOST_GRAVITY], needed: [*pages, MACK_RIDES]})
    told, answer = "Mack Rides is from Germany.", "So the answer is: Germany."
    lm = ScriptedLM(needed, "", "", told, answer, answer)
    run = await trace(ircot(lm, retriever, preset="trained", k=2, max_passages=9), QUESTION)
    assert [(s.query, len(s.hits), s.kept) for s in run.searches] == [
        (first, 1, ("lg",)),
        (needed, 2, ("p0", "p1")),
        (needed, 4, ("p2", "p3")),
        (needed, 5, ("mr",)),
        ("Mack Rides is from Germany.", 0, ()),
    ]
    assert run.answer.stop == "answered"
    assert lm.prompts[3].endswith("A: The country of Mack Rides is needed.")


async def test_waiting_ends_and_a_first_sentence_without_words_ends_the_chain_at_once():
    lm = ScriptedLM("It is needed.", "", "", "", "So the answer is: Peru.")
    run = await trace(ircot(lm, preset="trained"), QUESTION)
    assert run.answer.stop == "empty"
    assert [thought.text for thought in run.thoughts] == ["It is needed.", "", "", ""]
    run = await trace(ircot(ScriptedLM("", "So the answer is: Peru."), preset="trained"), QUESTION)
    assert (run.answer.stop, len(run.thoughts)) == ("empty", 1)


async def test_an_empty_answer_has_a_reason():
    lm = ScriptedLM("So the answer is: Germany.", "", "")
    run = await trace(ircot(lm), QUESTION)
    assert run.answer.text == ""
    assert run.answer.reason == "The reader wrote nothing."


@pytest.mark.parametrize(
    ("budget", "thoughts"),
    [(Budget(calls=2), 2), (Budget(tokens=1), 1), (Budget(seconds=0.0), 1)],
)
async def test_a_spent_budget_ends_the_search_and_the_reader_still_answers(budget, thoughts):
    lm = ScriptedLM("One.", "Two.", "Three.", "So the answer is: Germany.", pieces=0)
    lm.script[thoughts:3] = []
    run = await trace(ircot(lm, budget=budget), QUESTION)
    assert run.answer.stop == "budget"
    assert len(run.thoughts) == thoughts
    assert run.answer.text == "Germany"


async def test_generation_ends_at_the_first_sentence_and_closes_the_stream():
    lm = ScriptedLM(
        "Lost Gravity was built by Mack Rides. " + "More. " * 50,
        "So the answer is: Germany.",
        "So the answer is: Germany.",
        pieces=4,
    )
    run = await trace(ircot(lm), QUESTION)
    assert lm.closed_early == 1
    assert run.thoughts[0].call.finishes == ("cut",)
    assert len(run.thoughts[0].call.outputs[0]) < 50


async def test_the_cap_keeps_what_came_first():
    passages = [
        Passage(f"p{n}", f"Title {n}", f"Text number {n} of its own kind.") for n in range(6)
    ]
    retriever = ScriptedRetriever(
        {"In country was Lost Gravity made?": passages[:3], "One.": passages[3:]}
    )
    lm = ScriptedLM("One.", "So the answer is: x.", "So the answer is: x.")
    run = await trace(ircot(lm, retriever, k=3, max_passages=4), QUESTION)
    assert run.collected == ("p0", "p1", "p2", "p3")


async def test_with_fifo_the_oldest_passages_make_room():
    passages = [
        Passage(f"p{n}", f"Title {n}", f"Text number {n} of its own kind.") for n in range(6)
    ]
    retriever = ScriptedRetriever(
        {"In country was Lost Gravity made?": passages[:3], "One.": passages[3:]}
    )
    lm = ScriptedLM("One.", "So the answer is: x.", "So the answer is: x.")
    run = await trace(ircot(lm, retriever, k=3, max_passages=4, eviction="fifo"), QUESTION)
    assert run.collected == ("p2", "p3", "p4", "p5")


async def test_the_demonstration_block_never_changes_within_a_run():
    lm = ScriptedLM("One is new.", "Two is new.", "So the answer is: x.", "So the answer is: x.")
    await trace(ircot(lm), QUESTION)
    block = "Wikipedia Title: Ode\nOde is by Ida.\n\nQ: Who wrote Ode?\n"
    assert all(prompt.startswith(block) for prompt in lm.prompts)


async def test_passages_go_before_demonstrations_when_the_window_is_small():
    long = [Passage(f"p{n}", f"Title {n}", f"{n} " + "word " * 40) for n in range(4)]
    retriever = ScriptedRetriever({"In country was Lost Gravity made?": long})
    lm = ScriptedLM("So the answer is: x.", "So the answer is: x.", window=500)
    run = await trace(ircot(lm, retriever), QUESTION)
    assert lm.prompts[0].startswith("Wikipedia Title: Ode")
    assert "Title 0" in lm.prompts[0]
    assert "Title 3" not in lm.prompts[0]
    assert run.calls[0].warnings == ("2 of 4 passages did not fit.",)


@pytest.mark.spacy
async def test_accents_in_answers_stay_as_they_are_except_in_the_release():
    script = ("So the answer is: Zoë.", "So the answer is: Zoë.")
    ours = await trace(ircot(ScriptedLM(*script)), QUESTION)
    theirs = await trace(ircot(ScriptedLM(*script), preset="official"), QUESTION)
    assert ours.answer.text == "Zoë"
    assert theirs.answer.text == "Zo\\u00eb"


async def test_oner_searches_once_and_nor_never():
    lm = ScriptedLM("So the answer is: Germany.", "So the answer is: Peru.")
    retriever = TitleRetriever(LOST_GRAVITY, MACK_RIDES)
    one = await trace(make("oner", lm=lm, retriever=retriever, demonstrations=SHOTS), QUESTION)
    none = await trace(make("nor", lm=lm, demonstrations=SHOTS), QUESTION)
    assert [type(step).__name__ for step in one.steps] == ["Search", "Answer"]
    assert [type(step).__name__ for step in none.steps] == ["Answer"]
    assert "Lost Gravity is a roller coaster" in lm.prompts[0]
    assert "roller coaster" not in lm.prompts[1]
    assert "Ode is by Ida" not in lm.prompts[1]  # demonstrations without passages too


async def test_a_failed_search_ends_the_question_with_its_error():
    retriever = ScriptedRetriever(
        {"In country was Lost Gravity made?": RetrieverError("the node is down")}
    )
    with pytest.raises(RetrieverError, match="the node is down"):
        await trace(ircot(ScriptedLM(), retriever), QUESTION)


async def test_a_failed_call_keeps_the_steps_before_it():
    lm = ScriptedLM("Lost Gravity was built by Mack Rides.", LMUnavailable("nobody answers"))
    run = await trace(ircot(lm), QUESTION, keep_errors=True)
    assert run.error == "LMUnavailable: nobody answers"
    assert len(run.searches) == 2
    assert run.answer is None


async def test_iirc_limits_the_search_to_the_proposed_pages():
    pinned = Passage("main", "Main Page", "The main passage names Lost Gravity.")
    lm = ScriptedLM(
        '["Lost Gravity"]',
        "Lost Gravity is a ride.",
        "So the answer is: x.",
        "So the answer is: x.",
    )
    retriever = ScriptedRetriever(
        {
            "Lost Gravity": [LOST_GRAVITY],
            "In country was Lost Gravity made?": [LOST_GRAVITY, MACK_RIDES],
        }
    )
    question = Question(QUESTION.text, pinned=pinned)
    run = await trace(ircot(lm, retriever), question)
    assert isinstance(run.steps[0], Titles)
    assert run.steps[0].mapped == ("Lost Gravity",)
    assert run.collected == ("main", "lg")
    assert all(s.titles == ("Lost Gravity",) for s in run.steps if isinstance(s, Search))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "ircott"}, "No strategy is named 'ircott'"),
        ({"reader": "loud"}, "No reader is named 'loud'"),
        ({"preset": "pape"}, "No preset is named 'pape'"),
        ({"k": 0}, "k is 0; it must be at least 1"),
        ({"shots": -1}, "shots is -1"),
        ({"retriever": None}, "needs a retriever"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    given = {
        "name": "ircot",
        "lm": ScriptedLM(),
        "retriever": TitleRetriever(),
        "demonstrations": SHOTS,
        **settings,
    }
    with pytest.raises(BadInput, match=message):
        make(given.pop("name"), **given)


async def test_an_empty_question_is_refused():
    with pytest.raises(BadInput, match="question is empty"):
        await trace(ircot(ScriptedLM()), Question("  "))


def test_settings_name_everything_that_decides_the_result():
    settings = ircot(ScriptedLM(), k=3, words=50).settings
    assert settings["k"] == 3
    assert settings["words"] == 50
    assert settings["preset"] == "default"
    assert settings["demonstrations"] == SHOTS.digest()


def test_chat_turns_show_demonstrations_and_leave_the_chain_to_be_continued():
    from multihop.prompts import layout

    test = layout.unfinished("Who?", ["Wikipedia Title: A\na"], "A is b.")
    turns = layout.CHAT_COT.turns(SHOTS.cot, test, "A is b.")
    assert [t.speaker for t in turns] == ["system", "user", "assistant", "user", "assistant"]
    assert turns[2].text == "Ode was written by Ida. So the answer is: Ida."
    assert turns[3].text == "Wikipedia Title: A\na\n\nQ: Who?"
    assert turns[4].text == "A is b."
