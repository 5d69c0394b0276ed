"""ReAct on scripted parts."""

import pytest
from neighbours import AIDA, QUESTION, VERDI, made

from multihop.lms.base import chat_text
from multihop.prompts.worked import own_worked
from multihop.strategies import Budget
from multihop.strategies.react import HEAD, Action, action_in, parted, react_form
from multihop.strategies.writing import SPARE_TOKENS
from multihop.testing import ScriptedLM, ScriptedRetriever, TitleRetriever
from multihop.text import Hit, Passage
from multihop.trace import Search, Trace, trace


async def test_thoughts_actions_and_observations_take_turns_as_in_the_papers_figure():
    lm = ScriptedLM(
        " I need to find who composed Aida.\nAction 1: Search[Aida]\nObservation 1: an opera\nThou",
        " Giuseppe Verdi composed it.\nAction 2: Search[Giuseppe Verdi]",
        " He was born in Le Roncole.\nAction 3: Finish[Le Roncole]",
    )
    run = await trace(made("react", lm), QUESTION)

    assert (run.answer.text, run.answer.stop) == ("Le Roncole", "answered")
    assert [p.title for p in run.answer.passages] == ["Aida", "Giuseppe Verdi"]
    assert [t.text for t in run.thoughts] == [
        "I need to find who composed Aida.",
        "Search[Aida]",
        "Giuseppe Verdi composed it.",
        "Search[Giuseppe Verdi]",
        "He was born in Le Roncole.",
        "Finish[Le Roncole]",
    ]
    assert lm.prompts[-1].startswith(HEAD)
    assert lm.prompts[-1].endswith(
        "Question: Where was the composer of Aida born?\n"
        "Thought 1: I need to find who composed Aida.\n"
        "Action 1: Search[Aida]\n"
        "Observation 1: Aida is an opera with music by Giuseppe Verdi. It has four acts.\n"
        "Thought 2: Giuseppe Verdi composed it.\n"
        "Action 2: Search[Giuseppe Verdi]\n"
        "Observation 2: Giuseppe Verdi was an Italian composer born in Le Roncole. He wrote "
        "Nabucco early. Falstaff came late.\n"
        "Thought 3:"
    )
    assert Trace.from_json(run.to_json()) == run


def test_the_prompt_has_the_papers_form():
    lines = react_form(own_worked()[:1]).text.removeprefix(f"{HEAD}\n\n").splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        *("Question", "Thought 1", "Action 1", "Observation 1", "Thought 2", "Action 2"),
        *("Observation 2", "Thought 3", "Action 3", ""),
    ]
    assert lines[2] == "Action 1: Search[The Planets]"
    assert lines[-2] == "Action 3: Finish[Cheltenham]"


async def test_similar_titles_are_named_where_no_page_has_the_name():
    retriever = ScriptedRetriever({"Aïda opera": [AIDA, VERDI]})
    lm = ScriptedLM("x\nAction 1: Search[Aïda opera]", "y\nAction 2: Finish[z]")
    run = await trace(made("react", lm, retriever), QUESTION)
    assert run.thoughts[2].text == "Could not find [Aïda opera]. Similar: [Aida; Giuseppe Verdi]."
    assert run.thoughts[2].kind == "observation"
    assert "Observation 1: Could not find [Aïda opera]." in lm.prompts[1]
    assert [q.by_title for q in retriever.queries] == [True, False]
    assert run.answer.passages == ()  # named, not read


async def test_what_tells_a_page_from_its_namesakes_may_be_missing():
    film = Passage("film", "Aida (film)", "Aida is a film.")
    run = await trace(
        made(
            "react",
            ScriptedLM("x\nAction 1: Search[aida]", "y\nAction 2: Finish[z]"),
            ScriptedRetriever({"aida": [film]}),
        ),
        QUESTION,
    )
    assert [p.id for p in run.answer.passages] == ["film"]


class Pages:
    """Finds pages by title, and the other passages of a page."""

    name = "pages"

    async def search(self, queries, k):
        more = Passage("verdi-2", "Giuseppe Verdi", "Long. Verdi wrote Aida for Cairo. Late.")
        return [
            [Hit(VERDI, 1.0)] if query.by_title else [Hit(more, 2.0), Hit(VERDI, 1.0)]
            for query in queries
        ]

    async def aclose(self):
        """Do nothing."""


async def test_lookup_tells_the_next_sentence_of_the_page_that_holds_the_words():
    lm = ScriptedLM(
        "a\nAction 1: Search[Giuseppe Verdi]",
        *(f"b\nAction {n}: Lookup[wrote]" for n in (2, 3, 4)),
        "c\nAction 5: Finish[Cairo]",
    )
    run = await trace(made("react", lm, Pages()), QUESTION)
    assert [t.text for t in run.thoughts if t.kind == "observation"] == [
        "(Result 1 / 2) He wrote Nabucco early.",
        "(Result 2 / 2) Verdi wrote Aida for Cairo.",
        "No more results.",
    ]
    assert [p.id for p in run.answer.passages] == ["verdi", "verdi-2"]
    assert [s.query for s in run.steps if isinstance(s, Search)] == ["Giuseppe Verdi", "wrote"]


async def test_search_shows_the_beginning_of_a_page():
    long = Passage("long", "Long", " ".join(f"Sentence number {n} is here." for n in range(9)))
    lm = ScriptedLM("x\nAction 1: Search[Long]", "y\nAction 2: Finish[z]")
    await trace(made("react", lm, TitleRetriever(long)), QUESTION)
    assert "Sentence number 4 is here.\nThought 2:" in lm.prompts[1]


@pytest.mark.parametrize(
    ("written", "thought", "action"),
    [
        (" T.\nAction 1: Search[x]", "T.", "Search[x]"),
        (" T.\nAction: search[x]\nObservation 1: y\nThought 2", "T.", "search[x]"),
        (" T. Finish[x]", "T.", "Finish[x]"),  # in prose
        ("Thought 1: T.\nACTION 7:Lookup[x]", "T.", "Lookup[x]"),
        (" T\ntwo.", "T two.", ""),
        ("\nObservation 1: y", "", ""),
        ("", "", ""),
    ],
)
def test_a_turn_is_parted_in_thought_and_action(written, thought, action):
    assert parted(written) == (thought, action)


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("Search[The Planets (suite)]", Action("search", "The Planets (suite)")),
        ("Search[List [of] towers] to see", Action("search", "List [of] towers")),
        ("search [Aida", Action("search", "Aida")),
        ('Look up["born"]', Action("lookup", "born")),
        ("Finish(Le Roncole)", Action("finish", "Le Roncole")),
        ("Finish: Le Roncole.", Action("finish", "Le Roncole")),
        ("I will Finish[Le Roncole]", Action("finish", "Le Roncole")),
        ("Finish[]", Action("finish", "")),
        ("Go[there]", None),
        ("", None),
    ],
)
def test_an_action_is_read_whatever_its_brackets(line, action):
    assert action_in(line) == action


@pytest.mark.parametrize(
    ("script", "stop", "calls"),
    [
        (["T.", "Go[there]", "T.", "Come[back]"], "no_gain", 5),  # a wrong tag, twice
        (["T.\nAction 1: Search[Aida]"] + ["T.\nAction 2: Search[aida]"] * 2, "no_gain", 4),
        (["T.\nAction 1: Lookup[x]"] * 2, "no_gain", 3),  # no page is open
        (["T.\nAction 1: Finish[]"] * 2, "no_gain", 3),
        ([""], "empty", 2),
    ],
)
async def test_the_answer_is_asked_for_where_none_was_given(script, stop, calls):
    lm = ScriptedLM(*script, "Le Roncole]\nmore")
    run = await trace(made("react", lm), QUESTION)
    assert (run.answer.text, run.answer.stop, len(run.calls)) == ("Le Roncole", stop, calls)
    assert lm.prompts[-1].endswith(": Finish[")


async def test_an_action_is_asked_for_where_only_a_thought_came():
    lm = ScriptedLM(" I should search Aida.", " Search[Aida]", "Now.\nAction 2: Finish[Ulm]")
    run = await trace(made("react", lm), QUESTION)
    assert lm.prompts[1].endswith("Thought 1: I should search Aida.\nAction 1:")
    assert run.answer.text == "Ulm"


async def test_an_answer_inside_prose_is_not_lost():
    run = await trace(made("react", ScriptedLM("So the answer is Le Roncole.")), QUESTION)
    assert (run.answer.text, run.answer.stop) == ("Le Roncole", "answered")


async def test_an_endless_actor_is_ended():
    def respond(request):
        if request.prompt.text.endswith("Finish["):
            return "Le Roncole"
        return f"Still looking.\nAction 1: Search[Page {len(lm.requests)}]"

    lm = ScriptedLM(respond=respond)
    run = await trace(made("react", lm), QUESTION)
    assert (run.answer.text, run.answer.stop) == ("Le Roncole", "max_steps")
    assert sum(thought.kind == "action" for thought in run.thoughts) == 7


async def test_a_budget_ends_the_turns_and_a_missing_answer_has_a_reason():
    lm = ScriptedLM("x\nAction 1: Search[Aida]", "")
    run = await trace(made("react", lm, budget=Budget(calls=1)), QUESTION)
    assert (run.answer.text, run.answer.stop) == ("", "budget")
    assert "without an answer" in run.answer.reason


async def test_old_observations_make_room_in_a_small_window():
    script = [
        "x\nAction 1: Search[Aida]",
        "y\nAction 2: Search[Giuseppe Verdi]",
        "z\nAction 3: Finish[Le Roncole]",
    ]
    lm = ScriptedLM(*script)
    await trace(made("react", lm, max_tokens=100), QUESTION)
    whole = lm.requests[-1].prompt
    size = len((chat_text(whole.turns) + whole.ask_next).split())

    lm = ScriptedLM(*script, window=size - 1 + 100 + SPARE_TOKENS)
    run = await trace(made("react", lm, max_tokens=100), QUESTION)
    assert "Observation 1: (no longer shown)\nThought 2" in lm.prompts[-1]
    assert "born in Le Roncole" in lm.prompts[-1]
    assert run.calls[-1].warnings == ("1 of 2 passages did not fit.",)
    assert run.answer.text == "Le Roncole"
