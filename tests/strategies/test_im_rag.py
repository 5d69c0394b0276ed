"""IM-RAG's loop, with a scripted model."""

import json
from dataclasses import replace

import pytest

from adapter_folders import adapter_folder
from multihop import names
from multihop.errors import BadInput, ContextTooLong, RetrieverError
from multihop.lms.adapters import PromptForm
from multihop.metrics.progress import Turn, turns
from multihop.retrievers.base import Ranking
from multihop.strategies.im_rag import (
    IMRAG,
    Action,
    Critic,
    Fixed,
    Linear,
    Oracle,
    PredictedProgress,
    prompts,
)
from multihop.strategies.im_rag.features import features
from multihop.strategies.im_rag.making import loadable, make
from multihop.testing import ScriptedLM, ScriptedRetriever
from multihop.text import Passage, Question
from multihop.trace import Trace, trace

SHIP, TOWN, NOISE, MORE = (
    Passage("ship", "Vasa", "The Vasa was built by Hybertsson."),
    Passage("town", "Hybertsson", "Hybertsson was born in Holland."),
    Passage("noise", "Ulm", "Ulm is a town."),
    Passage("more", "Oslo", "Oslo is another town."),
)
WHERE = Question(
    "Where was the builder of the Vasa born?", "q", ("Holland",), gold_ids=("ship", "town")
)
FOUND = {
    "builder of the Vasa": [SHIP, NOISE],
    "Hybertsson born": [SHIP, NOISE, TOWN],
    "town": [NOISE, MORE],
}


def im_rag(*script, **settings):
    lm = ScriptedLM(*script)
    settings.setdefault("k", 1)
    return lm, IMRAG(lm, ScriptedRetriever(FOUND), **settings)


TWO = (" builder of the Vasa", " Hybertsson born", " Holland.")


async def test_questioner_searches_in_turns_and_the_answerer_answers():
    lm, loop = im_rag(*TWO)
    run = await trace(loop, WHERE)
    assert [type(s).__name__ for s in run.steps] == ["Thought", "Search"] * 2 + ["Answer"]
    assert [t.text for t in run.thoughts] == ["builder of the Vasa", "Hybertsson born"]
    assert [s.kept for s in run.searches] == [("ship",), ("noise",)]
    assert run.answer.text == "Holland"
    assert [r.adapter for r in lm.requests] == ["questioner", "questioner", "answerer"]
    assert [r.role for r in lm.requests] == ["question", "question", "answer"]


async def test_the_monologue_holds_every_query_and_passage_in_order():
    lm, loop = im_rag(*TWO)
    await trace(loop, WHERE)
    assert lm.prompts[-1] == (
        f"{prompts.HEAD}\n\nQuestion: Where was the builder of the Vasa born?\n"
        "Query: builder of the Vasa\n- Vasa: The Vasa was built by Hybertsson.\n"
        "Query: Hybertsson born\n- Ulm: Ulm is a town.\n"
        "Answer:"
    )


async def test_each_prompt_goes_on_from_the_one_before_and_what_was_written():
    lm, loop = im_rag(*TWO)
    await trace(loop, WHERE)
    assert lm.prompts[1].startswith(lm.prompts[0] + TWO[0] + "\n")
    assert lm.prompts[2].removesuffix("Answer:").startswith(lm.prompts[1] + TWO[1] + "\n")


async def test_passages_shown_before_are_no_candidates_again_and_are_counted():
    _, loop = im_rag(*TWO, k=2)
    run = await trace(loop, WHERE)
    assert run.searches[1].kept == ("town",)
    assert run.searches[1].collected == ("ship", "noise", "town")
    assert run.searches[1].warnings == ("2 candidates were shown before and left out.",)
    _, loop = im_rag(*TWO, k=2, dedup=False)
    run = await trace(loop, WHERE)
    assert run.searches[1].kept == ("ship", "noise")
    assert run.searches[1].collected == ("ship", "noise")


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ("  ", "Invalid: the query is empty."),
        (" The Builder of the VASA!", "Invalid: this query was made before."),
    ],
)
async def test_an_invalid_query_takes_its_turn_and_nothing_is_searched(second, told):
    lm, loop = im_rag(TWO[0], second, " Holland")
    run = await trace(loop, WHERE)
    assert len(loop.retriever.queries) == 1
    assert [s.query for s in run.searches] == ["builder of the Vasa", ""]
    assert run.searches[1].warnings == (told,)
    assert f"Query:{second}\n- {told}\nAnswer:" in lm.prompts[-1]
    assert [t.valid for t in turns(run)] == [True, False]


async def test_a_query_without_an_end_is_invalid():
    class Long(ScriptedLM):
        def _next(self, request):
            text, _ = super()._next(request)
            return text, "length" if request.role == "question" else "stop"

    loop = IMRAG(Long(" and and and", " and so on", " Ulm"), ScriptedRetriever(FOUND))
    run = await trace(loop, WHERE)
    assert [s.query for s in run.searches] == ["", ""]
    assert run.searches[0].warnings == ("Invalid: the query is too long.",)
    assert loop.retriever.queries == []


async def test_only_the_newest_turns_are_shown_with_a_window():
    lm, loop = im_rag(*TWO, im_window=1)
    await trace(loop, WHERE)
    assert "builder of the Vasa\n" not in lm.prompts[2].split("Question:")[1].partition("\n")[2]
    assert "Query: Hybertsson born" in lm.prompts[2]


async def test_one_policy_for_both_roles_and_the_model_alone():
    lm, loop = im_rag(*TWO, answerer="questioner")
    await trace(loop, WHERE)
    assert {r.adapter for r in lm.requests} == {"questioner"}
    lm, loop = im_rag(*TWO, questioner=None, answerer=None)
    await trace(loop, WHERE)
    assert {r.adapter for r in lm.requests} == {None}


# --- Refiner ---------------------------------------------------------------------------------


class Backwards:
    """Orders by the reverse."""

    name = "backwards"

    def __init__(self, lose=0):
        self.queries, self.lose = [], lose

    async def rerank(self, queries, rankings, k):
        self.queries += [q.text for q in queries]
        return [Ranking(list(reversed(r))[: k - self.lose], warnings=("turned",)) for r in rankings]

    async def aclose(self):
        """Do nothing."""


async def test_the_refiner_chooses_what_is_passed_on():
    _, loop = im_rag(*TWO, refiner=Backwards())
    run = await trace(loop, WHERE)
    assert [s.kept for s in run.searches] == [("noise",), ("town",)]
    assert [hit.passage.id for hit in run.searches[0].hits] == ["ship", "noise"]
    assert run.searches[0].warnings == ("turned",)
    assert loop.refiner.queries == ["builder of the Vasa", "Hybertsson born"]
    assert turns(run)[1].passages == (TOWN,)


async def test_the_refiner_may_see_the_question_too():
    _, loop = im_rag(*TWO, refiner=Backwards(), refine_with="both")
    await trace(loop, WHERE)
    assert loop.refiner.queries[0] == f"{WHERE.text} builder of the Vasa"


async def test_a_refiner_that_loses_passages_is_an_error():
    _, loop = im_rag(*TWO, refiner=Backwards(lose=1), k=2)
    with pytest.raises(RetrieverError, match="backwards"):
        await trace(loop, WHERE)


# --- When it stops ---------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "searches"), [(1, 1), (2, 2), (3, 3), (9, 3)])
async def test_fixed_stops_after_so_many_turns_and_never_after_the_most(number, searches):
    lm, loop = im_rag(*TWO[:2], " town", stop=Fixed(number))
    lm.respond, lm.script = (
        (
            lambda request: (
                [*TWO[:2], " town"][request.prompt.text.count("\nQuery:") - 1]
                if request.role == "question"
                else " Holland"
            )
        ),
        [],
    )
    run = await trace(loop, WHERE)
    assert len(run.searches) == searches
    assert run.answer.stop == ("max_steps" if number >= 3 else "answered")


async def test_the_questioner_itself_may_say_that_it_is_enough():
    lm, loop = im_rag(TWO[0], " ENOUGH", " Holland", stop=Action())
    run = await trace(loop, WHERE)
    assert len(run.searches) == 1
    assert len(turns(run)) == 1
    assert lm.prompts[0].startswith(prompts.HEAD_ACTION)
    assert lm.prompts[-1].endswith("Hybertsson.\nAnswer:")


async def test_the_first_turn_always_searches():
    _, loop = im_rag(" ENOUGH", " ENOUGH", " Holland", stop=Action())
    run = await trace(loop, WHERE)
    assert [s.query for s in run.searches] == ["ENOUGH"]


async def test_the_oracle_stops_when_no_gold_passage_is_left_and_says_that_it_is_one():
    _, loop = im_rag(*TWO, k=3, max_turns=9, stop=Oracle())
    run = await trace(loop, WHERE)
    assert len(run.searches) == 2
    assert run.strategy == "im-rag-oracle"
    assert run.settings["stop"] == "oracle"
    assert Trace.from_json(run.to_json()).strategy == "im-rag-oracle"


async def test_the_oracle_by_equation_six_with_a_large_gamma_stops_after_one_hit():
    _, loop = im_rag(*TWO[:1], " Holland", stop=Oracle(gamma=0.9, phi=0.3))
    assert len((await trace(loop, WHERE)).searches) == 1
    _, loop = im_rag(*TWO, k=3, stop=Oracle(gamma=0.3, phi=0.3))
    assert len((await trace(loop, WHERE)).searches) == 2


async def test_without_gold_passages_the_oracle_stops_at_once():
    _, loop = im_rag(TWO[0], " Holland", stop=Oracle())
    assert len((await trace(loop, replace(WHERE, gold_ids=()))).searches) == 1


def linear(target, **weights):
    return Linear(target, weights.pop("bias", 0.0), weights, {"digest": "abc"})


async def test_the_critic_answers_once_it_is_sure_and_tells_how_sure():
    _, loop = im_rag(*TWO, " x", k=3, stop=Critic(linear("enough", turns=4.0, bias=-6.0), 0.8))
    run = await trace(loop, WHERE)
    assert len(run.searches) == 2
    assert run.answer.confidence == pytest.approx(0.8808, abs=1e-4)
    assert run.settings["stop_model"] == "abc"


async def test_predicted_progress_sums_up_what_each_turn_is_taken_for():
    policy = PredictedProgress(linear("gain", bias=0.9), gamma=0.9, phi=1.2)
    _, loop = im_rag(*TWO, stop=policy)
    assert len((await trace(loop, WHERE)).searches) == 2
    _, loop = im_rag(*TWO, stop=replace(policy, phi=0.5))
    loop.lm.script = [TWO[0], " Holland"]
    assert len((await trace(loop, WHERE)).searches) == 1


def test_a_linear_model_comes_back_from_its_file(tmp_path):
    made = linear("enough", turns=1.5)
    made.save(tmp_path / "critic.json")
    assert Linear.load(tmp_path / "critic.json", "enough") == made
    with pytest.raises(BadInput, match="'gain' is needed"):
        Linear.load(tmp_path / "critic.json", "gain")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": 9}', '{"format": 1, "target": "enough"}',
             '{"format": 1, "target": "enough", "bias": NaN, "weights": {}, "made": {}}']
)  # fmt: skip
def test_a_bad_file_of_a_linear_model_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BadInput, match=r"x\.json"):
        Linear.load(tmp_path / "x.json", "enough")


def test_features_of_nothing_and_of_anything_are_finite():
    for question, made in (
        ("", ()),
        (WHERE.text, (Turn("Vasa", True, (SHIP,)), Turn("", False))),
        ("??", (Turn("", True),)),
    ):
        found = features(question, made)
        assert all(abs(value) < 100 for value in found.values())
    assert features(WHERE.text, (Turn("x", True, (SHIP,)),))["covered"] > 0


# --- Limits ----------------------------------------------------------------------------------


class Narrow(ScriptedLM):
    """Refuses prompts of more than so many words."""

    most = 52

    async def stream(self, request):
        if len(request.prompt.text.split()) > self.most:
            raise ContextTooLong("too long")
        async for piece in super().stream(request):
            yield piece


async def test_what_does_not_fit_is_left_out_from_the_oldest_and_told():
    lm = Narrow(*TWO)
    run = await trace(IMRAG(lm, ScriptedRetriever(FOUND), k=2), WHERE)
    assert "built by Hybertsson" not in lm.prompts[-1]
    assert run.answer.call.warnings == ("1 of 2 turns did not fit the model and were not shown.",)
    lm = Narrow(*TWO)
    lm.most = 3
    with pytest.raises(ContextTooLong):
        await trace(IMRAG(lm, ScriptedRetriever(FOUND)), WHERE)


async def test_seeds_differ_from_call_to_call_and_are_the_same_again():
    seeds = []
    for _ in range(2):
        lm, loop = im_rag(*TWO, temperature=1.0, seed=3)
        await trace(loop, WHERE)
        seeds.append([r.seed for r in lm.requests])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3
    lm, loop = im_rag(*TWO)
    await trace(loop, WHERE)
    assert [r.seed for r in lm.requests] == [None] * 3


async def test_no_answer_has_a_reason():
    _, loop = im_rag(TWO[0], " ", stop=Fixed(1))
    run = await trace(loop, WHERE)
    assert (run.answer.text, run.answer.reason) == ("", "The model wrote no answer.")


async def test_traces_survive_json_with_all_of_it():
    _, loop = im_rag(*TWO, refiner=Backwards())
    run = await trace(loop, WHERE)
    assert Trace.from_json(run.to_json()) == run


# --- By name ---------------------------------------------------------------------------------


def test_it_is_made_by_name_with_options():
    made = names.open_strategy(
        "im-rag",
        retriever=ScriptedRetriever({}),
        lm=ScriptedLM(),
        options={
            "stop": "oracle",
            "k": "3",
            "refiner": "none",
            "im_window": "2",
            "stop_phi": "0.3",
        },
    )
    assert isinstance(made, IMRAG)
    assert (made.k, made.im_window, made.refiner, made.questioner) == (3, 2, None, None)
    assert made.stop.settings["stop_phi"] == 0.3
    assert "im-rag" in names.strategy_names()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"k": 0}, "k is 0"),
        ({"stop": "critic"}, "stop_model=FILE"),
        ({"stop": "magic"}, "magic"),
        ({"stop": "oracle", "stop_gamma": 2.0}, "stop_gamma"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, told):
    with pytest.raises(BadInput, match=told):
        make(ScriptedRetriever({}), ScriptedLM(), **settings)
    with pytest.raises(BadInput, match="retriever"):
        make(None, ScriptedLM())


def test_adapters_must_be_there_of_these_prompts_and_loaded(tmp_path):
    with pytest.raises(BadInput, match=r"card\.json"):
        make(ScriptedRetriever({}), ScriptedLM(), adapters=tmp_path)
    adapter_folder(tmp_path / "a" / "questioner", name="questioner")
    with pytest.raises(BadInput, match="not on those of im-rag"):
        loadable(tmp_path / "a", "single")
    form = PromptForm(preset="im-rag", words=50)
    for name in ("questioner", "answerer"):
        adapter_folder(tmp_path / "b" / name, name=name, form=form)
    assert list(loadable(tmp_path / "b")) == ["questioner", "answerer"]
    made = make(ScriptedRetriever({}), ScriptedLM(), adapters=tmp_path / "b")
    assert (made.questioner, made.answerer, made.words) == ("questioner", "answerer", 50)
    assert set(made.settings["adapters"]) == {"questioner", "answerer"}
    single = make(ScriptedRetriever({}), ScriptedLM(), adapters=tmp_path / "b", policy="single")
    assert (single.questioner, single.answerer) == ("questioner", "questioner")
    with pytest.raises(BadInput, match="50"):
        make(ScriptedRetriever({}), ScriptedLM(), adapters=tmp_path / "b", words=70)
    lm = ScriptedLM()
    lm.adapters = {}
    with pytest.raises(BadInput, match="has not loaded"):
        make(ScriptedRetriever({}), lm, adapters=tmp_path / "b")


def test_settings_are_json():
    made = make(ScriptedRetriever({}), ScriptedLM())
    assert json.loads(json.dumps(made.settings)) == made.settings
