"""Our models, retrievers, programs and demonstrations inside dspy; nothing is asked outside."""

import asyncio
import importlib
import sys
from dataclasses import replace

import pytest

from multihop.errors import BadInput, ContextTooLong, LMRefused, LMUnavailable, MissingExtra
from multihop.lms.base import Request
from multihop.strategies.dsp import DSP, Bootstrapped, Settings
from multihop.testing import ScriptedLM, TitleRetriever
from multihop.text import Passage, Question
from multihop.trace import Trace, trace

MILL = Passage("mill", "Old Mill", "The Old Mill was built by Ada Stone in 1820.")
ADA = Passage("ada", "Ada Stone", "Ada Stone was born in Leith.")
BRIDGE = Passage("bridge", "Iron Bridge", "The Iron Bridge was built by Tom Reed.")
TOM = Passage("tom", "Tom Reed", "Tom Reed was born in Perth.")
ASKED = "Where was the builder of the Old Mill born?"
TRAIN = Question("Where was the builder of the Iron Bridge born?", id="q2", answers=("Perth",))


def test_without_dspy_the_error_names_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "dspy", None)
    monkeypatch.delitem(sys.modules, "multihop.bridges.dspy_bridge", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'multihop\[dspy\]'"):
        importlib.import_module("multihop.bridges.dspy_bridge")


@pytest.fixture
def dspy():
    return pytest.importorskip("dspy", reason="needs the extra `dspy`")


@pytest.fixture
def bridge(dspy):
    return importlib.import_module("multihop.bridges.dspy_bridge")


def respond(request: Request) -> str:
    text = request.prompt.text.rpartition("Question:")[2]
    bridge = "Iron Bridge" in text
    if request.role == "h0":
        what = "Iron Bridge" if bridge else "Old Mill"
        return f" find who built it\nSearch query: {what}"
    who, where = ("Tom Reed", "Perth") if bridge else ("Ada Stone", "Leith")
    if request.role == "h1":
        return f" It was built by {who}.\nSearch query: {who}"
    return f" {who} was born in {where}.\nAnswer: {where}"


def strategy(*train: Question) -> DSP:
    settings = Settings(k=2, queries=2, chains=3)
    made = Bootstrapped("multihop", settings, train=train) if train else None
    return DSP(
        ScriptedLM(respond=respond),
        TitleRetriever(MILL, ADA, BRIDGE, TOM),
        program_settings=settings,
        demonstrations=made,
    )


@pytest.mark.dspy
def test_a_predictor_of_dspys_asks_our_model_in_turns_and_reports_its_tokens(dspy, bridge) -> None:
    ours = ScriptedLM("[[ ## answer ## ]]\nLeith\n\n[[ ## completed ## ]]")
    lm = bridge.language_model(ours, max_tokens=40)
    with dspy.context(lm=lm, track_usage=True, adapter=dspy.ChatAdapter()):
        done = dspy.Predict("question -> answer")(question=ASKED)
    assert done.answer == "Leith"
    request = ours.requests[0]
    assert [t.speaker for t in request.prompt.turns] == ["system", "user"]
    assert ASKED in request.prompt.turns[1].text
    assert (request.max_tokens, request.temperature) == (40, 0.0)
    usage = done.get_lm_usage()["scripted"]
    assert usage["prompt_tokens"] == len(request.prompt.text.split())
    assert usage["completion_tokens"] == 11
    assert lm.history[-1]["usage"]["completion_tokens"] == 11


@pytest.mark.dspy
def test_a_completion_model_gets_one_text(dspy, bridge) -> None:
    ours = ScriptedLM("Leith")
    assert bridge.language_model(ours, turns=False)("Where?") == ["Leith"]
    assert ours.requests[0].prompt.turns == ()
    assert ours.prompts == ["Where?"]


@pytest.mark.dspy
def test_awaited_calls_answer_and_a_cancelled_one_ends_generation(dspy, bridge) -> None:
    ended = []

    class Slow(ScriptedLM):
        async def stream(self, request):
            try:
                await asyncio.sleep(60)
                yield None
            finally:
                ended.append(request)

    async def ask() -> None:
        assert await bridge.language_model(ScriptedLM("Leith")).acall("Where?") == ["Leith"]
        call = asyncio.create_task(bridge.language_model(Slow()).acall("Where?"))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        for _ in range(100):
            if ended:
                break
            await asyncio.sleep(0.01)

    asyncio.run(ask())
    assert len(ended) == 1


@pytest.mark.dspy
def test_failures_of_ours_are_dspys_and_nothing_is_retried(dspy, bridge) -> None:
    errors = dspy.utils.exceptions
    for ours, theirs in (
        (ContextTooLong("too long"), errors.ContextWindowExceededError),
        (LMRefused("no such model"), errors.LMInvalidRequestError),
        (LMUnavailable("nobody answers"), errors.LMServerError),
    ):
        lm = ScriptedLM(ours)
        with pytest.raises(theirs, match=str(ours)):
            bridge.language_model(lm)("Where?")
        assert len(lm.requests) == 1


@pytest.mark.dspy
def test_what_our_models_cannot_carry_is_refused(dspy, bridge) -> None:
    ours = ScriptedLM("Leith")
    lm = bridge.language_model(ours)
    with pytest.raises(dspy.utils.exceptions.LMUnsupportedFeatureError, match="logprobs"):
        lm("Where?", logprobs=True)
    assert ours.requests == []


@pytest.mark.dspy
def test_our_retriever_is_dspys_and_a_tool(dspy, bridge) -> None:
    retriever = TitleRetriever(MILL, ADA)
    with dspy.context(rm=bridge.Searcher(retriever)):
        assert dspy.Retrieve(k=1)("the Old Mill and Ada Stone").passages == [
            f"Old Mill | {MILL.text}"
        ]
    tool = bridge.search_tool(retriever)
    assert tool(query="ada stone") == [f"Ada Stone | {ADA.text}"]
    assert (tool.name, list(tool.args)) == ("search", ["query"])


@pytest.mark.dspy
def test_the_multi_hop_program_is_a_module_whose_prediction_has_the_trace(dspy, bridge) -> None:
    program = bridge.Program(strategy())
    with dspy.context(track_usage=True):
        done = program(question=ASKED)
    assert done.answer == "Leith"
    assert done.context == [f"Old Mill | {MILL.text}", f"Ada Stone | {ADA.text}"]
    assert isinstance(done.trace, Trace)
    assert [s.query for s in done.trace.searches] == ["Old Mill", "Ada Stone"]
    assert done.get_lm_usage()["scripted"]["prompt_tokens"] == done.trace.tokens.prompt
    assert asyncio.run(program.acall(question=ASKED)).answer == "Leith"

    def right(example, prediction, trace=None) -> bool:
        return example.answer == prediction.answer

    devset = [dspy.Example(question=ASKED, answer="Leith").with_inputs("question")]
    evaluate = dspy.Evaluate(devset=devset, metric=right, display_progress=False)
    assert evaluate(program).score == 100.0


@pytest.mark.dspy
async def test_our_demonstrations_go_to_dspy_and_come_back_as_they_were(
    dspy, bridge, tmp_path
) -> None:
    own = strategy(TRAIN)
    await trace(own, Question(ASKED))
    made = own.demonstrations.made
    assert [x.augmented for x in made] == [True]
    demo = bridge.to_dspy(made[0])
    assert (demo.question, demo.answer) == (TRAIN.text, "Perth")
    assert demo.context == [f"Iron Bridge | {BRIDGE.text}", f"Tom Reed | {TOM.text}"]
    assert bridge.to_dspy(made[0], "h1").query == "Tom Reed"
    again = bridge.demonstrations([demo], settings=own.program_settings)
    assert again.made == made
    again.save(tmp_path / "demos.json")
    loaded = Bootstrapped.load(tmp_path / "demos.json", "multihop", own.program_settings)
    assert loaded.made == made
    done = await trace(replace(own, demonstrations=loaded), Question(ASKED))
    assert done.answer.text == "Leith"
    assert "Search query: Iron Bridge" in own.lm.prompts[-3]


@pytest.mark.dspy
async def test_demonstrations_that_dspy_bootstrapped_are_shown_by_our_program(dspy, bridge) -> None:
    found = dspy.Example(
        augmented=True,
        question=TRAIN.text,
        context=["Tom Reed | Tom Reed was born in Perth."],
        reasoning="Tom Reed built it.",
        answer="Perth",
    )
    x = bridge.from_dspy(found)
    assert x.stages["qa"].fields["rationale"] == "Tom Reed built it."
    assert [(p.title, p.text) for p in x.stages["qa"].fields["context"]] == [
        ("Tom Reed", "Tom Reed was born in Perth.")
    ]
    own = replace(strategy(), demonstrations=bridge.demonstrations([found]))
    await trace(own, Question(ASKED))
    assert "Tom Reed built it." in own.lm.prompts[-1]
    labelled = bridge.from_dspy(dspy.Example(question="Who?", answer="Ada"))
    assert (labelled.answers, labelled.augmented, labelled.stages) == (("Ada",), False, {})
    with pytest.raises(BadInput, match="cannot be read"):
        bridge.from_dspy(dspy.Example(answer="Ada"))
    with pytest.raises(BadInput, match="at least one"):
        bridge.demonstrations([])
