"""Adaptive-RAG routes by the question, and its router is trained on runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from multihop import runs
from multihop.errors import BadInput
from multihop.strategies.adaptive_rag import AdaptiveRAG
from multihop.strategies.router import LinearRouter, PromptedRouter, features
from multihop.testing import ScriptedLM
from multihop.text import Question
from multihop.trace import Answer, LMCall, Strategy, Tokens, Trace, route_of, trace
from multihop.training import router as training


class Says:
    """A strategy that answers with its own name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings = {"says": name}

    async def steps(self, question: Question):
        yield Answer(f"{self.name}: {question.text}", "answered")


STRATEGIES: dict[str, Strategy] = {name: Says(name) for name in ("nor", "oner", "ircot")}
LINEAR = LinearRouter(("nor", "ircot"), (0.5, 0.0), {"names": (0.0, 1.0)}, {"digest": "d"})


async def test_the_router_reads_the_question_and_its_choice_answers_it() -> None:
    strategy = AdaptiveRAG(LINEAR, STRATEGIES)
    easy = await trace(strategy, Question("what is a bridge?"))
    hard = await trace(strategy, Question("Was Ada Stone born where Tom Reed died?"))
    assert [t.answer.text.partition(":")[0] for t in (easy, hard) if t.answer] == ["nor", "ircot"]
    assert [route_of(t.steps[0]) for t in (easy, hard)] == ["nor", "ircot"]
    assert [route_of(t.steps[1]) for t in (easy, hard)] == ["", ""]
    assert Trace.from_json(hard.to_json()) == hard


async def test_an_lm_chooses_by_a_letter_and_what_is_no_letter_leads_to_the_loop() -> None:
    lm = ScriptedLM(" A", "B.", "kind c? C", "I cannot say", "")
    router = PromptedRouter(lm)
    routes = [await router.route("Where was Ada born?") for _ in range(5)]
    assert [r.name for r in routes] == ["nor", "oner", "ircot", "ircot", "ircot"]
    assert [bool(r.reason) for r in routes] == [False, False, False, True, True]
    assert lm.prompts[0].endswith("Question: Where was Ada born?\nKind:")
    lm = ScriptedLM("B")
    found = await trace(AdaptiveRAG(PromptedRouter(lm), STRATEGIES), Question("Who?"))
    assert [c.role for c in found.calls] == ["route"]


def test_features_know_the_form_of_a_question_and_not_what_it_names() -> None:
    one = features("Who is the father of the director of Lost Gravity?")
    two = features("Who is the father of the director of Polish-Russian War?")
    assert {k: v for k, v in one.items() if k != "length"} == {
        k: v for k, v in two.items() if k != "length"
    }
    assert one["links"] == 2
    assert features("") == {
        "length": 0,
        "names": 0,
        "links": 0,
        "possessives": 0,
        "compares": 0,
        "numbers": 0,
    }


def test_a_saved_router_is_loaded_as_it_was_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    LINEAR.save(path)
    assert LinearRouter.load(path) == LINEAR
    for damage, message in (
        ({"format": 2}, "no router of format 1"),
        ({"bias": [1.0]}, "expected 2 finite numbers"),
        ({"weights": {"names": ["x", 1]}}, "no router"),
        ({"bias": [1.0, float("inf")]}, "finite"),
    ):
        path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
        with pytest.raises(BadInput, match=message):
            LinearRouter.load(path)
        LINEAR.save(path)
    with pytest.raises(BadInput, match="multihop train router"):
        LinearRouter.load(tmp_path / "none.json")


def run_folder(folder: Path, strategy: str, right: dict[str, bool], tokens: int) -> None:
    """A finished run: which questions were answered right, at what cost."""
    runs.start(folder, {"strategy": strategy, "questions": {"count": len(right)}})
    for text, correct in right.items():
        question = Question(text, id=text, answers=("gold",))
        call = LMCall("read", "m", "p", ("o",), ("stop",), 0.1, Tokens(tokens, 0, 1))
        answer = Answer("gold" if correct else "wrong", "answered", call=call)
        runs.append(folder / runs.TRACES, Trace(question, strategy, steps=(answer,)))


EASY = [f"what is word{n}?" for n in range(20)]
HARD = [f"Was Ada{n} Stone born where Tom Reed died?" for n in range(20)]


def three_runs(folder: Path) -> Path:
    everything = [*EASY, *HARD]
    run_folder(folder / "nor", "nor", {q: q in EASY for q in everything}, 10)
    run_folder(folder / "oner", "oner", {q: q in EASY[:5] for q in everything}, 50)
    run_folder(folder / "ircot", "ircot", {q: q in HARD[:18] for q in everything}, 200)
    return folder


def test_a_label_is_the_cheapest_strategy_that_was_right(tmp_path: Path) -> None:
    labels = training.label([three_runs(tmp_path)])
    found = dict(labels.by_question)
    assert {found[q] for q in EASY} == {"nor"}
    assert {found[q] for q in HARD} == {"ircot"}
    assert labels.unanswered == 2
    assert labels.costs == {"nor": 11, "oner": 51, "ircot": 201}
    assert len(training.label([tmp_path], None).by_question) == 38
    with pytest.raises(BadInput, match="nothing of oner, ircot"):
        training.label([tmp_path / "nor"])


async def test_a_router_trained_on_runs_tells_the_easy_from_the_hard(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    router = training.train(training.label([three_runs(tmp_path)]))
    assert (await router.route("what is word99?")).name == "nor"
    assert (await router.route("Was Eve Moss born where Sam Cole died?")).name == "ircot"
    assert router.made["confusion"] == {
        "nor": {"nor": 20, "ircot": 0},
        "ircot": {"nor": 0, "ircot": 20},
    }
    assert router.made["accuracy"] == 1
    assert router.made["accuracy_always"] == 0.5
    assert sum(router.shares("what is word99?").values()) == pytest.approx(1)
    assert training.train(training.label([tmp_path])) == router


def test_a_router_of_one_label_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    labels = replace(training.label([three_runs(tmp_path)]), by_question=(("a", "nor"),) * 9)
    with pytest.raises(BadInput, match="The labels are nor 9"):
        training.train(labels)


def test_the_command_line_trains_a_router_shows_its_table_and_overwrites_nothing(
    tmp_path: Path, multihop
) -> None:
    pytest.importorskip("sklearn")
    three_runs(tmp_path / "runs")
    call = ("train", "router", str(tmp_path / "runs"), "--into", str(tmp_path / "router.json"))
    done = multihop(*call)
    assert done.code == 0
    assert "needed" in done.out
    assert "accuracy 100.0 % over 5 folds; always nor: 50.0 %." in done.out
    assert LinearRouter.load(tmp_path / "router.json").routes == ("nor", "ircot")
    again = multihop(*call)
    assert again.code == 2
    assert "router.json: exists already" in again.err


async def test_by_name_it_is_made_of_the_three_strategies_and_a_routers_file(tmp_path) -> None:
    from multihop import names
    from multihop.testing import ScriptedRetriever

    LINEAR.save(tmp_path / "router.json")
    lm = ScriptedLM(respond=lambda _: "So the answer is: Leith.")
    strategy = names.open_strategy(
        "adaptive-rag",
        retriever=ScriptedRetriever({}),
        lm=lm,
        options={"router": str(tmp_path / "router.json"), "words": "50"},
    )
    found = await trace(strategy, Question("what is a bridge?"))
    assert found.answer is not None
    assert found.answer.text == "Leith"
    assert found.searches == ()
    hard = await trace(strategy, Question("Was Ada Stone born where Tom Reed died?"))
    assert len(hard.searches) == 1


async def test_a_report_tells_the_share_of_each_route_and_a_route_is_no_step(tmp_path) -> None:
    from multihop import evaluation
    from multihop.cli import report

    questions = [
        Question(text, id=str(n), answers=("x",))
        for n, text in enumerate([*EASY[:3], "Was Ada Stone born where Tom Reed died?"])
    ]
    await evaluation.evaluate(questions, AdaptiveRAG(LINEAR, STRATEGIES), tmp_path / "run")
    told = evaluation.score(tmp_path / "run")
    assert told.routes == {"nor": 3, "ircot": 1}
    assert told.means["steps"].value == 0
    assert ("routed to nor %", ["75.0"]) in report.rows([told])
