"""DSP's primitives and programs, as its paper describes them."""

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from multihop.errors import BadInput
from multihop.lms.base import Request, chat_text
from multihop.retrievers.fusion import FUSIONS, probabilities
from multihop.strategies.budget import Budget
from multihop.strategies.dsp import DEFAULTS, DSP, Bootstrapped, Example, Session, Settings
from multihop.strategies.dsp.demonstrate import (
    all_but,
    annotate,
    answer_match,
    crossval,
    knn,
    passage_match,
    sample,
    supported,
)
from multihop.strategies.dsp.making import make
from multihop.strategies.dsp.predict import (
    SPARE_TOKENS,
    Completion,
    branch,
    compare,
    generate,
    likeliest,
    majority,
)
from multihop.strategies.dsp.prompts import COMPARE, FIRST_HOP, REASON, VANILLA
from multihop.strategies.dsp.search import COMBSUM, fused_retrieval, grounded, rank, retrieve
from multihop.testing import ScriptedLM, ScriptedRetriever
from multihop.text import Hit, Passage, Query, Question
from multihop.trace import Search, Thought, Trace, trace

MILL = Passage("mill", "Old Mill", "The Old Mill was built by Ada Stone in 1820.")
ADA = Passage("ada", "Ada Stone", "Ada Stone was born in Leith.")
LEITH = Passage("leith", "Leith", "Leith is a port.")
BRIDGE = Passage("bridge", "Iron Bridge", "The Iron Bridge was built by Tom Reed.")
TOM = Passage("tom", "Tom Reed", "Tom Reed was born in Perth.")
CORPUS = (MILL, ADA, LEITH, BRIDGE, TOM)

MILL_QUESTION = Question("Where was the builder of the Old Mill born?", id="q1", answers=("Leith",))
BRIDGE_QUESTION = Question(
    "Where was the builder of the Iron Bridge born?", id="q2", answers=("Perth",)
)


class Words:
    """Ranks passages by how many of their title's words a query has."""

    name = "words"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        self.batches.append([q.text for q in queries])
        found = []
        for query in queries:
            asked = set(query.text.lower().strip("?").split())
            scored = [Hit(p, float(len(asked & set(p.title.lower().split())))) for p in CORPUS]
            found.append(sorted((h for h in scored if h.score), key=lambda h: -h.score)[:k])
        return found

    async def aclose(self) -> None:
        pass


def session(*script: str, **more: object) -> Session:
    return Session(ScriptedLM(*script), more.pop("retriever", Words()), **more)  # type: ignore[arg-type]


def raw(question: str, *answers: str) -> Example:
    return Example.of(Question(question, answers=answers))


# --- Demonstrate ----------------------------------------------------------------------------


async def test_annotate_stops_at_k_keeps_the_order_and_marks_what_it_filled_in() -> None:
    train = [raw(f"q{n}", "a") for n in range(5)]
    tried = []

    async def even(x: Example) -> Example | None:
        tried.append(x.text("question"))
        return x.at("h0", {"query": "found"}) if int(x.text("question")[1]) % 2 == 0 else None

    filled = await annotate(train, even, k=2, return_all=True)
    assert tried == ["q0", "q1", "q2"]
    assert [(x.text("question"), x.augmented) for x in filled] == [
        ("q0", True),
        ("q2", True),
        ("q1", False),
        ("q3", False),
        ("q4", False),
    ]
    assert filled[0].stages["h0"].fields["query"] == "found"
    assert [x.text("question") for x in await annotate(train, even)] == ["q0", "q2", "q4"]


async def test_annotate_gives_each_transformation_what_the_one_before_it_made() -> None:
    async def first(x: Example) -> Example:
        return x.having(context=(MILL,))

    async def second(x: Example) -> Example | None:
        return x if x.passages() == (MILL,) else None

    assert len(await annotate([raw("q", "a")], first, second)) == 1


def test_samples_are_the_same_for_a_seed_and_differ_between_branches() -> None:
    train = [raw(f"q{n}", "a") for n in range(30)]
    one = session()
    assert sample(one, train, 9) == sample(one, train, 9)
    assert len({id(x) for x in sample(one, train, 9)}) == 9
    assert sample(one, train, 9) != sample(one.branched(1, 0.7), train, 9)
    assert sample(one, train, 9) != sample(replace(one, seed=1), train, 9)


def test_all_but_drops_whatever_shares_the_question_or_a_turn() -> None:
    talk = Question("And then?", extra={"history": [{"question": "Who  was Ada?", "answer": "x"}]})
    train = [raw("who was ada?", "a"), raw("And THEN?", "a"), raw("else", "a")]
    assert [x.text("question") for x in all_but(train, Example.of(talk))] == ["else"]


def test_knn_gives_the_nearest_first_ties_in_training_order_and_never_the_question_itself() -> None:
    train = [
        raw("Who built the iron bridge?", "a"),
        raw("Where is the port of Leith?", "a"),
        raw("Who built the bridge of iron?", "a"),
        raw("Who built the old mill?", "a"),
    ]
    nearest = knn(train)
    found = nearest(raw("Who built the iron bridge?"), 3)
    assert [train.index(x) for x in found] == [2, 3, 1]
    same = knn([raw("b c", "1"), raw("c b", "2")])(raw("b c d"), 2)
    assert [x.answers for x in same] == [("1",), ("2",)]


async def test_crossval_returns_the_set_that_answers_the_rest_best() -> None:
    train = [raw(f"q{n}", "a") for n in range(6)]
    seen = []

    async def evaluate(demos: Sequence[Example], held_out: Example) -> float:
        assert held_out not in demos
        seen.append(held_out)
        return float(train[3] in demos)

    chosen = await crossval(session(), train, evaluate, n=12, k=2, max_eval=3)
    assert train[3] in chosen
    assert len(chosen) == 2
    assert len(seen) == 12 * 3
    with pytest.raises(BadInput, match="one beside it"):
        await crossval(session(), train, evaluate, n=1, k=6)


def test_gates_compare_words_not_letters() -> None:
    assert answer_match("The Leith.", ["leith"])
    assert not answer_match("Leithen", ["Leith"])
    assert passage_match([ADA], ["the LEITH"])
    assert not passage_match([Passage("x", "", "He was born in Leithen.")], ["Leith"])
    assert not passage_match([ADA], ["the"])  # has no word left


def test_yes_and_no_are_gated_by_gold_titles_for_any_passage_would_do() -> None:
    question = Question("Same city?", answers=("no",), gold_titles=("Ada Stone", "Tom Reed"))
    x = Example.of(question)
    assert supported([ADA, TOM], x)
    assert not supported([ADA, Passage("n", "", "no")], x)


# --- Search -----------------------------------------------------------------------------------


async def test_one_query_is_a_plain_search_and_empty_ones_are_left_out() -> None:
    one = session()
    assert await retrieve(one, "old mill", 1) == (MILL,)
    assert await fused_retrieval(one, ["", "old mill", "  "], 1) == (MILL,)
    assert await fused_retrieval(one, [" "], 1) == ()
    assert one.retriever.batches == [["old mill"], ["old mill"]]  # type: ignore[attr-defined]


async def test_a_passage_in_two_lists_beats_a_better_one_in_one_list() -> None:
    script = {"a": [LEITH, MILL], "b": [ADA, MILL]}
    one = session(retriever=ScriptedRetriever(script))
    found = await fused_retrieval(one, ["a", "b"], 3, FUSIONS["combsum_score"])
    # ScriptedRetriever scores 9 and 8 at depth 9: 8 + 8 is more than 9.
    assert found == (MILL, ADA, LEITH)


def test_combsum_adds_probabilities_computed_by_hand() -> None:
    hits = [Hit(MILL, 10.0), Hit(ADA, 9.0)]
    first = 1 / (1 + math.exp(-1.0))  # scores over the best: 1 and 0.9, parted by tau 0.1
    assert probabilities()([hit.score for hit in hits]) == pytest.approx([first, 1 - first])
    fused = COMBSUM([hits, [Hit(ADA, 3.0)]])
    assert [(h.passage.id, h.score) for h in fused] == [
        ("ada", pytest.approx(2 - first)),
        ("mill", pytest.approx(first)),
    ]


@pytest.mark.parametrize("name", FUSIONS)
def test_every_fusion_ignores_the_order_of_lists_and_breaks_ties_by_rank_then_id(name) -> None:
    a, b = [Hit(MILL, 2.0), Hit(ADA, 1.0)], [Hit(TOM, 2.0), Hit(LEITH, 1.0)]
    one, two = FUSIONS[name]([a, b]), FUSIONS[name]([b, a])
    assert [h.passage.id for h in one] == ["mill", "tom", "ada", "leith"]
    assert [h.passage.id for h in two] == ["mill", "tom", "ada", "leith"]
    assert FUSIONS[name]([]) == []
    assert len(FUSIONS[name]([a, a, []])) == 2


async def test_queries_go_out_as_one_batch_each_once_and_every_query_becomes_a_step() -> None:
    one = session()
    found = await fused_retrieval(one, ["old mill", "ada stone", "old  mill"], 2)
    assert one.retriever.batches == [["old mill", "ada stone"]]  # type: ignore[attr-defined]
    assert found == (MILL, ADA)
    searches = [step for step in one.steps if isinstance(step, Search)]
    assert [(s.query, s.kept, s.collected) for s in searches] == [
        ("old mill", ("mill",), ("mill",)),
        ("ada stone", ("ada",), ("mill", "ada")),
    ]


async def test_rank_tells_the_retrievers_relevance_and_grounded_picks_by_it() -> None:
    one = session()
    assert await rank(one, "old mill", [ADA, MILL]) == [0.0, 2.0]
    assert await grounded(one, ["", "tom reed", "the ada stone"], [ADA]) == "the ada stone"


# --- Predict ----------------------------------------------------------------------------------

FILLED = replace(
    Example.of(BRIDGE_QUESTION).at(
        "qa",
        {
            "context": (BRIDGE, TOM),
            "question": BRIDGE_QUESTION.text,
            "rationale": "Tom Reed built it.",
            "answer": "Perth",
        },
    ),
    augmented=True,
)


def test_raw_demonstrations_and_a_short_template_share_the_last_block() -> None:
    x = replace(raw("Who?"), demos=(raw("What?", "this", "that"),))
    assert VANILLA.prompt(x, x.demos, "qa").text == (
        "Answer questions with short factual answers.\n\n---\n\n"
        "Follow this format.\n\nQuestion: ${the question}\n"
        "Answer: ${a short answer, often one to five words}\n\n---\n\n"
        "Question: What?\nAnswer: this\n\n"
        "Question: Who?\nAnswer:"
    )


def test_without_raw_demonstrations_the_guide_follows_the_instructions() -> None:
    x = Example.of(MILL_QUESTION).having(context=(ADA,))
    text = REASON.prompt(x, [FILLED], "qa").text
    blocks = text.split("\n\n---\n\n")
    assert len(blocks) == 4
    assert blocks[1].startswith("Follow this format.\n\nPassages:\n${")
    assert blocks[2] == (
        "Passages:\n[1] «Iron Bridge | The Iron Bridge was built by Tom Reed.»\n"
        "[2] «Tom Reed | Tom Reed was born in Perth.»\n\n"
        f"Question: {BRIDGE_QUESTION.text}\n\n"
        "Reasoning: Step by step, Tom Reed built it.\n\nAnswer: Perth"
    )
    assert blocks[3] == (
        "Passages:\n«Ada Stone | Ada Stone was born in Leith.»\n\n"
        f"Question: {MILL_QUESTION.text}\n\nReasoning: Step by step,"
    )


def test_raw_demonstrations_of_a_long_template_stand_before_the_guide() -> None:
    x = Example.of(MILL_QUESTION).having(context=(ADA,))
    text = REASON.prompt(x, [FILLED, raw("What?", "this"), raw("Which?", "that")], "qa").text
    blocks = text.split("\n\n---\n\n")
    assert blocks[1] == "Question: What?\n\nAnswer: this\n\nQuestion: Which?\n\nAnswer: that"
    assert blocks[2].startswith("Follow this format.")
    assert len(blocks) == 5


def test_a_demonstration_without_the_last_field_or_the_stage_is_not_shown() -> None:
    x = Example.of(MILL_QUESTION)
    text = FIRST_HOP.prompt(x, [FILLED, raw("What?", "this")], "h0").text
    assert "What?" not in text
    assert "Iron Bridge" not in text


def test_a_chat_prompt_says_the_same_in_turns() -> None:
    x = Example.of(MILL_QUESTION).having(context=(ADA,))
    turns = REASON.prompt(x, [FILLED], "qa").turns
    assert [t.speaker for t in turns] == ["system", "user", "assistant", "user"]
    assert turns[2].text == "Reasoning: Step by step, Tom Reed built it.\n\nAnswer: Perth"
    assert turns[3].text.endswith("Reasoning: Step by step,")
    echo = "Reasoning: Step by step, she was.\n\nAnswer: Leith"
    assert REASON.read(echo, x) == {"rationale": "she was.", "answer": "Leith"}


@pytest.mark.parametrize(
    ("completion", "fields"),
    [
        (" she was.\nAnswer: Leith", {"rationale": "she was.", "answer": "Leith"}),
        (
            " an Answer: is near\n\n  Answer:  Leith\nport",
            {"rationale": "an Answer: is near", "answer": "Leith port"},
        ),
        (" she was", {"rationale": "she was"}),
        (" she was.\nAnswer:", {"rationale": "she was."}),
        ("", {}),
        ("\nAnswer: Leith", {}),
    ],
)
def test_a_field_ends_where_the_next_ones_prefix_begins_a_line(completion, fields) -> None:
    x = Example.of(MILL_QUESTION).having(context=(ADA,))
    assert REASON.read(completion, x) == fields


async def test_an_incomplete_completion_is_continued_at_most_twice() -> None:
    x = Example.of(MILL_QUESTION).having(context=(ADA,))
    one = session(" she was born", "", " Leith")
    done = await generate(one, REASON, x, "qa", max_tokens=200)
    assert done.completions == (Completion({"rationale": "she was born", "answer": "Leith"}),)
    sizes = [request.max_tokens for request in one.lm.requests]  # type: ignore[attr-defined]
    assert sizes == [200, 100, 100]
    assert one.lm.prompts[1].endswith("Step by step, she was born\n\nAnswer:")  # type: ignore[attr-defined]

    failing = session(" she was born", "", "")
    done = await generate(failing, REASON, x, "qa", max_tokens=80)
    assert done.completions == ()
    assert done.longest == {"rationale": "she was born"}
    assert len(done.calls) == 3
    assert failing.counts == {"incomplete": 1, "continued": 2}
    assert [r.max_tokens for r in failing.lm.requests] == [80, 75, 75]  # type: ignore[attr-defined]


async def test_of_several_completions_the_incomplete_ones_are_dropped() -> None:
    x = Example.of(MILL_QUESTION).having(context=(ADA,))
    one = session(" a", " b\nAnswer: B", "", " d\nAnswer: D")
    done = await generate(one, REASON, x, "qa", n=4)
    assert [c.last for c in done.completions] == ["B", "D"]
    [request] = one.lm.requests  # type: ignore[attr-defined]
    assert (request.n, request.temperature) == (4, 0.7)
    assert request.seed is not None


async def test_demonstrations_go_first_then_passages_never_the_question() -> None:
    x = replace(
        Example.of(MILL_QUESTION).having(context=(MILL, ADA, LEITH)),
        demos=(FILLED, raw("What?", "this"), raw("Which?", "that")),
    )

    def tokens(demos: tuple[Example, ...]) -> int:
        prompt = REASON.prompt(x, demos, "qa")
        return max(len(prompt.text.split()), len(chat_text(prompt.turns).split()))

    spare = 50 + SPARE_TOKENS - 1  # one token too few
    for window, lost in (
        (tokens(x.demos) + spare, "1 of 3 demonstrations"),
        (tokens(()) + spare, "1 of 3 passages"),
    ):
        one = Session(ScriptedLM(" r\nAnswer: a", window=window), Words())
        done = await generate(one, REASON, x, "qa", max_tokens=50)
        assert any(lost in warning for warning in done.calls[0].warnings)
        prompt = one.lm.prompts[0]  # type: ignore[attr-defined]
        assert MILL_QUESTION.text in prompt
        assert "Which?" not in prompt


def test_majority_counts_normalised_values_and_gives_the_first_completion_that_has_the_winner():
    def answers(*texts: str) -> list[Completion]:
        return [Completion({"rationale": str(n), "answer": t}) for n, t in enumerate(texts)]

    assert majority(answers("x", "The Mill", "mill.")).fields["rationale"] == "1"
    assert majority(answers("b", "a", "a", "b")).last == "b"  # seen first
    assert majority(answers("", "", "c")).last == "c"  # empty ones do not vote
    assert majority(answers("", ".")).last == ""  # unless there is nothing else


def test_the_likeliest_completion_is_that_with_the_largest_mean() -> None:
    one = session()
    a, b = Completion({"q": "a"}, -2.0), Completion({"q": "b"}, -1.0)
    assert likeliest(one, [a, b]) is b
    assert one.counts["without_logprobs"] == 0
    assert likeliest(one, [Completion({"q": "a"}), Completion({"q": "b"})]).last == "a"
    assert one.counts["without_logprobs"] == 1


async def test_branches_have_seeds_of_their_own_and_are_the_same_on_a_rerun() -> None:
    lm = ScriptedLM(respond=lambda request: f" {request.seed}")
    one = Session(lm, Words())

    async def program(run: Session, x: Example) -> Example:
        done = await generate(run, VANILLA, x, "qa")
        return x.at("qa", dict(done.completions[0].fields))

    async def answers() -> list[object]:
        runs = await branch(one, program, raw("Who?"), 4)
        return [x.stages["qa"].fields["answer"] for x in runs]

    first = await answers()
    assert len(set(first)) == 4
    assert await answers() == first
    assert {r.temperature for r in lm.requests} == {0.7}


async def test_compare_shows_distinct_options_and_reads_a_letter_or_a_text() -> None:
    x = Example.of(MILL_QUESTION).having(context=(ADA,))
    given = ["Leith", "Perth", "leith.", "Oban"]
    one = session(" (B)", " oban", " maybe")
    assert (await compare(one, COMPARE, x, given))[0] == "Perth"
    assert "(A) Leith\n(B) Perth\n(C) Oban" in one.lm.prompts[0]  # type: ignore[attr-defined]
    assert (await compare(one, COMPARE, x, given))[0] == "Oban"
    assert (await compare(one, COMPARE, x, given))[0] == "Leith"
    assert one.counts["no_choice"] == 1
    assert await compare(one, COMPARE, x, ["Leith", "leith"]) == ("Leith", None)


# --- Programs ---------------------------------------------------------------------------------


def answerer(request: Request) -> str:
    """Plays an LM that reads well."""
    text = request.prompt.text
    if request.role == "h0":
        question = text.rpartition("Question:")[2]
        what = "iron bridge" if "Iron Bridge" in question else "old mill"
        return f" find who built the {what}\nSearch query: {what}"
    if request.role == "h1":
        who = "tom reed" if "Iron Bridge" in text.rpartition("Question:")[2] else "ada stone"
        return f" It was built by {who}.\nSearch query: {who}"
    where = "Perth" if "Iron Bridge" in text.rpartition("Question:")[2] else "Leith"
    return f" the builder was born in {where}.\nAnswer: {where}"


def dsp(lm: ScriptedLM, retriever: Words, *train: Question, **settings: object) -> DSP:
    own = replace(Settings(k=2, queries=10, chains=20), **settings)  # type: ignore[arg-type]
    made = Bootstrapped("multihop", own, train=train) if train else None
    return DSP(lm, retriever, program_settings=own, demonstrations=made)


async def test_the_second_hop_is_found_through_the_first_ones_summary() -> None:
    lm, retriever = ScriptedLM(respond=answerer), Words()
    found = await trace(dsp(lm, retriever), MILL_QUESTION)
    assert found.answer is not None
    assert found.answer.text == "Leith"
    assert [p.id for p in found.answer.passages] == ["mill", "ada"]
    assert found.collected == ("mill", "ada")
    assert Trace.from_json(found.to_json()) == found
    assert "Notes:\nIt was built by ada stone." in lm.prompts[-1]


async def test_a_multihop_question_costs_three_requests_and_two_batches_of_queries() -> None:
    lm, retriever = ScriptedLM(respond=answerer), Words()
    strategy = dsp(lm, retriever, BRIDGE_QUESTION)
    for question, calls, batches in (
        (MILL_QUESTION, 6, 4),
        (replace(MILL_QUESTION, text="Where was the builder of the Old Mill, please, born?"), 3, 2),
    ):
        lm.requests.clear()
        retriever.batches.clear()
        found = await trace(strategy, question)
        # The first question pays for the demonstration too: three greedy requests, two searches.
        assert len(lm.requests) == calls
        assert len(retriever.batches) == batches
        assert [r.n for r in lm.requests[-3:]] == [10, 10, 20]
        assert len(found.calls) == 3
    assert strategy.demonstrations is not None
    [demo] = strategy.demonstrations.made or ()
    assert demo.augmented
    assert demo.stages["h1"].fields["query"] == "tom reed"
    assert [r.n for r in lm.requests] == [10, 10, 20]
    assert "Search query: tom reed" in lm.prompts[1]


async def test_demonstrations_are_built_from_end_labels_alone_and_wrong_attempts_are_raw() -> None:
    wrong = replace(BRIDGE_QUESTION, id="q3", answers=("Oban",))
    no_gold = Question(BRIDGE_QUESTION.text, id="q4", answers=("Perth",))
    assert (no_gold.gold_ids, no_gold.gold_titles, no_gold.extra) == ((), (), {})
    for train, augmented in ((no_gold, True), (wrong, False)):
        strategy = dsp(ScriptedLM(respond=answerer), Words(), train)
        await trace(strategy, MILL_QUESTION)
        assert strategy.demonstrations is not None
        assert [d.augmented for d in strategy.demonstrations.made or ()] == [augmented]


async def test_no_prompt_shows_the_question_that_it_asks_as_a_demonstration() -> None:
    lm = ScriptedLM(respond=answerer)
    strategy = dsp(lm, Words(), MILL_QUESTION, BRIDGE_QUESTION)
    await trace(strategy, MILL_QUESTION)
    for prompt in lm.prompts:
        asked = prompt.rpartition("Question: ")[2].split("\n")[0]
        assert prompt.count(f"Question: {asked}") == 1


async def test_an_attempts_own_answer_is_never_in_its_prompt() -> None:
    lm = ScriptedLM(respond=answerer)
    await trace(dsp(lm, Words(), replace(BRIDGE_QUESTION, answers=("Secret",))), MILL_QUESTION)
    attempted = [
        p
        for p in lm.prompts
        if p.rpartition("Question: ")[2].startswith("Where was the builder of the Iron")
    ]
    assert attempted
    assert not any("Secret" in prompt for prompt in attempted)


async def test_a_variable_search_ends_when_the_lm_writes_na() -> None:
    def respond(request: Request) -> str:
        if request.role == "h1":
            return " Nothing is missing.\nSearch query: N/A"
        return answerer(request)

    retriever = Words()
    found = await trace(
        dsp(ScriptedLM(respond=respond), retriever, variable=True, hops=4), MILL_QUESTION
    )
    assert len(retriever.batches) == 1
    assert found.answer is not None
    assert found.answer.stop == "answered"

    endless = dsp(
        ScriptedLM(
            respond=lambda r: answerer(r) if r.role == "qa" else " more\nSearch query: leith"
        ),
        Words(),
        variable=True,
        hops=4,
    )
    found = await trace(endless, MILL_QUESTION)
    assert found.answer is not None
    assert found.answer.stop == "max_steps"


async def test_the_notebooks_variant_adds_the_question_and_shows_the_last_hop_alone() -> None:
    retriever = Words()
    found = await trace(
        dsp(ScriptedLM(respond=answerer), retriever, variant="notebook"), MILL_QUESTION
    )
    assert retriever.batches[0] == ["old mill", MILL_QUESTION.text]
    assert found.answer is not None
    assert "ada" in {p.id for p in found.answer.passages}


async def test_an_lm_that_writes_nothing_ends_with_a_reason_and_keeps_every_call() -> None:
    lm = ScriptedLM(respond=lambda _: "")
    found = await trace(dsp(lm, Words()), MILL_QUESTION)
    assert found.answer is not None
    assert found.answer.text == ""
    assert "No completion reached 'Answer:'" in found.answer.reason
    assert len(found.calls) == len(lm.requests) == 9


async def test_the_simple_programs_search_as_often_as_they_say() -> None:
    for program, searches, n in (
        ("vanilla", 0, 1),
        ("retrieve_then_read", 1, 1),
        ("openqa", 1, 20),
    ):
        lm, retriever = ScriptedLM(respond=answerer), Words()
        strategy = DSP(lm, retriever, program, DEFAULTS[program])
        found = await trace(strategy, MILL_QUESTION)
        assert len(retriever.batches) == searches
        assert [r.n for r in lm.requests] == [n]
        assert found.answer is not None
        assert "Leith" in found.answer.text


async def test_a_conversation_is_rewritten_and_read_with_its_earlier_turns() -> None:
    def respond(request: Request) -> str:
        return " ada stone birth" if request.role == "rewrite" else " Leith"

    question = Question(
        "Where was she born?",
        extra={"history": [{"question": "Who built the Old Mill?", "answer": "Ada Stone"}]},
    )
    lm, retriever = ScriptedLM(respond=respond), Words()
    found = await trace(DSP(lm, retriever, "convqa", DEFAULTS["convqa"]), question)
    assert retriever.batches == [["Who built the Old Mill? Where was she born?", "ada stone birth"]]
    assert "Conversation:\nWho built the Old Mill? Ada Stone" in lm.prompts[-1]
    assert found.answer is not None
    assert found.answer.text == "Leith"


async def test_saved_demonstrations_are_loaded_as_they_were(tmp_path) -> None:
    strategy = dsp(ScriptedLM(respond=answerer), Words(), BRIDGE_QUESTION)
    await trace(strategy, MILL_QUESTION)
    own = strategy.demonstrations
    assert own is not None
    own.save(tmp_path / "demos.json")
    again = Bootstrapped.load(tmp_path / "demos.json", "multihop", own.settings)
    assert again.made == own.made
    assert [t.strategy for t in again.attempts] == ["dsp attempt: kept"]
    lm = ScriptedLM(respond=answerer)
    await trace(replace(strategy, lm=lm, demonstrations=again), MILL_QUESTION)
    assert len(lm.requests) == 3
    assert "Search query: tom reed" in lm.prompts[0] + lm.prompts[1]
    with pytest.raises(BadInput, match="of the program 'multihop', not of 'openqa'"):
        Bootstrapped.load(tmp_path / "demos.json", "openqa", own.settings)
    damaged = json.loads((tmp_path / "demos.json").read_text())
    for name, value in (("stages", []), ("fields", {"question": 7}), ("augmented", None)):
        broken = {**damaged["demonstrations"][0], name: value}
        if value is None:
            del broken[name]
        (tmp_path / "demos.json").write_text(json.dumps({**damaged, "demonstrations": [broken]}))
        with pytest.raises(BadInput, match="not demonstrations"):
            Bootstrapped.load(tmp_path / "demos.json", "multihop", own.settings)
    (tmp_path / "demos.json").write_text('{"format": 1, "program": "multihop"}')
    with pytest.raises(BadInput, match="not demonstrations"):
        Bootstrapped.load(tmp_path / "demos.json", "multihop", own.settings)


def test_by_name_demonstrations_are_made_once_and_then_read_from_their_file(tmp_path) -> None:
    train, demos = tmp_path / "train.jsonl", tmp_path / "demos.json"
    train.write_text(
        json.dumps({"id": "q2", "question": BRIDGE_QUESTION.text, "answers": ["Perth"]}) + "\n"
    )
    settings = []
    for calls in (6, 3):
        lm = ScriptedLM(respond=answerer)
        strategy = make(Words(), lm, train=train, demos=demos, k=2)
        settings.append(strategy.settings)
        asyncio.run(trace(strategy, MILL_QUESTION))
        assert len(lm.requests) == calls
    assert settings[0] == settings[1]
    alone = make(Words(), ScriptedLM(), demos=demos, k=2)
    assert alone.settings == settings[0]
    with pytest.raises(BadInput, match="other training questions"):
        make(Words(), ScriptedLM(), train=train, demos=demos, draw=4)


async def test_making_demonstrations_goes_on_after_the_attempts_that_were_finished(tmp_path):
    demos = tmp_path / "demos.json"
    wrong = [replace(BRIDGE_QUESTION, id=f"w{n}", answers=("Oban",)) for n in range(3)]
    # Each shares its question with the others, which would leave no raw ones: give them their own.
    train = [replace(q, text=f"{q.text} ({q.id})") for q in [*wrong, BRIDGE_QUESTION]]

    class Interrupted(Exception):
        pass

    asked = []

    def until(number: int):
        def respond(request: Request) -> str:
            asked.append(request)
            if len(asked) == number:
                raise Interrupted
            return answerer(request)

        return respond

    first = make(Words(), ScriptedLM(respond=until(8)), train=train, demos=demos, k=2)
    with pytest.raises(Interrupted):
        await trace(first, MILL_QUESTION)
    kept = Bootstrapped.load(demos, "multihop", first.program_settings)
    assert kept.made is None
    assert len(kept.tried) == 2  # three calls each; the third attempt was broken off
    with pytest.raises(BadInput, match="was interrupted"):
        make(Words(), ScriptedLM(), demos=demos)
    lm = ScriptedLM(respond=answerer)
    second = make(Words(), lm, train=train, demos=demos, k=2)
    await trace(second, MILL_QUESTION)
    assert len(lm.requests) == 2 * 3 + 3
    whole = make(Words(), ScriptedLM(respond=answerer), train=train, k=2)
    await trace(whole, MILL_QUESTION)
    assert whole.demonstrations is not None
    assert Bootstrapped.load(demos, "multihop", first.program_settings).made == (
        whole.demonstrations.made
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"program": "multihops"}, "it can be multihop, openqa"),
        ({"fuse": "sum"}, "fuse is 'sum'"),
        ({"variant": "v3"}, "paper, notebook"),
        ({"k": 0}, "k is 0; it must be at least 1"),
        ({"demos": Path("none.json")}, "cannot be read"),
        ({"max_steps": 0}, "hops is 0"),
    ],
)
def test_what_dsp_cannot_do_is_refused_in_one_line(options, message) -> None:
    with pytest.raises(BadInput, match=message):
        make(Words(), ScriptedLM(), **options)


async def test_a_training_question_without_an_answer_is_refused_before_anything_is_asked(tmp_path):
    train = tmp_path / "train.jsonl"
    train.write_text('{"id": "x", "question": "Who?"}\n')
    with pytest.raises(BadInput, match="'x' has no answer"):
        make(Words(), ScriptedLM(), train=train)


async def test_a_budget_ends_the_hops_and_the_answer_is_still_read() -> None:
    lm, retriever = ScriptedLM(respond=answerer), Words()
    strategy = make(retriever, lm, budget=Budget(calls=1))
    found = await trace(strategy, MILL_QUESTION)
    assert found.answer is not None
    assert (found.answer.stop, len(retriever.batches), len(lm.requests)) == ("budget", 1, 2)


async def test_steps_come_as_they_happen_and_a_closed_stream_stops_the_program() -> None:
    lm = ScriptedLM(respond=answerer, delay=0.01)
    stream = dsp(lm, Words()).steps(MILL_QUESTION)
    first = await anext(stream)
    assert isinstance(first, Thought)
    await stream.aclose()
    asked = len(lm.requests)
    assert asked <= 2  # the program did not wait for its first step to be read
    await asyncio.sleep(0.05)
    assert len(lm.requests) == asked
