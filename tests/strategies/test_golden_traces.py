"""Whole runs of the released IRCoT, replayed step by step with the preset `official`."""

from dataclasses import replace

import pytest

from conftest import rows
from golden import RecordedRetriever, counter, demonstrations, question
from multihop.lms.fusing import FusingLM
from multihop.metrics.support import pid
from multihop.retrievers.skipping import SkippingRetriever
from multihop.strategies import make
from multihop.strategies.rules import preset
from multihop.testing import ScriptedLM
from multihop.text import Passage
from multihop.trace import Answer, Search, Thought, Titles, Trace, trace

pytestmark = pytest.mark.spacy

STOPS = {
    "answer_found": "answered",
    "max_sentences": "max_steps",
    "empty_generation": "empty",
}


def calls(row):
    """The recorded LM calls, in order."""
    return [s["lm_call"] for r in row["expected"]["results"] for s in r["steps"] if "lm_call" in s]


def prefix_consistent(row):
    """Whether the script answers a prompt's continuation with the rest of its answer."""
    past = None
    for call in calls(row):
        text = " " + call["output"].split("\n")[0]
        if past and call["generation_parameters"] == past["generation_parameters"]:
            added = call["prompt"].removeprefix(past["prompt"])
            written = " " + past["output"].split("\n")[0]
            if call["prompt"].startswith(past["prompt"]) and written.startswith(added):
                if written[len(added) :] != text:
                    return False
                continue  # both belong to one text
        past = call
    return True


def build(row, *, lean=""):
    given = row["input"]
    system, flan = given["system"], given["model"].startswith("flan")
    rules = preset("official", "flan" if flan else "codex")
    if given["model_tokens_limit"]:
        rules = replace(rules, limit=given["model_tokens_limit"])
    lm = asked = ScriptedLM(*given["lm_outputs"])
    if lean:
        texts = {}
        for call in calls(row):
            texts.setdefault(call["prompt"], []).append(" " + call["output"])
        lm = ScriptedLM(respond=lambda r: texts[r.prompt.text].pop(0), pieces=3)
        asked = FusingLM(lm) if lean == "fuse" else lm
    retriever = RecordedRetriever(given["retriever_results"], given["failing_request_indices"])
    skipping = SkippingRetriever(retriever)
    strategy = make(
        {"ircot_qa": "ircot", "oner_qa": "oner", "nor_qa": "nor"}.get(system, system),
        lm=asked,
        retriever=skipping,
        preset=rules,
        stop_early=bool(lean),
        reader=None if system.endswith("_qa") else "none",
        k=given["bm25_retrieval_count"],
        demonstrations=demonstrations(given["prompt_files"], given["demo_qids"]),
        count=counter(given["tokenizer"]),
    )
    return strategy, lm, retriever, skipping


def table(run: Trace) -> dict[str, Passage]:
    found = {h.passage.id: h.passage for s in run.searches for h in s.hits}
    if run.question.pinned:
        found[run.question.pinned.id] = run.question.pinned
    return found


def stages(run: Trace):
    """Our steps as the recorder names its stages, with what it recorded of each."""
    passages = table(run)
    for step in run.steps:
        match step:
            case Search():
                kept = [passages[i] for i in step.collected]
                yield (
                    "retrieve",
                    {
                        "queries": [step.query] if step.query else [],
                        "titles_after": [p.title for p in kept],
                        "para_ids_after": [pid(p.title, p.text) for p in kept],
                    },
                )
            case Thought():
                yield ("reason", {"call": step.call, "sentence_kept": step.text})
            case Titles():
                yield ("generate_titles", {"call": step.call})
                yield (
                    "retrieve",
                    {
                        "queries": [s.query for s in step.searches],
                        "valid_titles_after": list(step.mapped),
                    },
                )
            case Answer() if step.call:
                yield ("read", {"call": step.call})


async def replay(row, *, lean=""):
    strategy, lm, retriever, skipping = build(row, lean=lean)
    given = row["input"]
    for instance, expected in zip(given["instances"], row["expected"]["results"], strict=True):
        run = await trace(strategy, question(instance))
        assert Trace.from_json(run.to_json()) == run
        wanted = [
            s
            for s in expected["steps"]
            if s["stage"] in ("retrieve", "reason", "read", "generate_titles")
        ]
        ours = list(stages(run))
        assert [name for name, _ in ours] == [s["stage"] for s in wanted]
        for (_, got), step in zip(ours, wanted, strict=True):
            if "lm_call" in step:
                call, asked = got["call"], step["lm_call"]
                assert call.prompt == asked["prompt"]
                settings = asked["generation_parameters"]
                assert call.max_tokens == settings.get("max_tokens", settings.get("max_length"))
                assert call.temperature == 0
                assert call.stop == ("\n",)  # the server's (codex) or the client's (flan)
                written, output = call.outputs[0], asked["output"].split("\n")[0]
                if lean:  # a text that goes on with its prompt begins with a blank
                    assert output.startswith(written[1:])
                else:
                    assert written == output
            if "sentence_kept" in step:
                assert got["sentence_kept"] == step["sentence_kept"]
            if step["stage"] == "retrieve":
                calls = step.get("retriever_calls", [])
                assert got["queries"] == [c["params"]["query_text"] for c in calls]
                for key in ("titles_after", "para_ids_after", "valid_titles_after"):
                    if key in got and key in step:
                        assert got[key] == step[key], key
        stop = run.answer.stop
        assert stop == STOPS.get(expected["stop_reason"], "answered")
        if given["system"].endswith("_qa"):
            prediction = list(run.answer.answers) or run.answer.text
            wanted = expected["prediction"]
            # The parts of a list are texts in ours; the release scores them as texts too.
            assert prediction == ([str(p) for p in wanted] if isinstance(wanted, list) else wanted)
        else:
            passages = table(run)
            kept = [passages[i] for i in run.collected]
            assert [pid(p.title, p.text) for p in kept] == expected["prediction"]
        assert len(run.thoughts) == expected["n_reason_steps"]
        warned = [w for c in run.calls for w in c.warnings if "lines were cut" in w]
        assert len(warned) == sum("Not enough space" in w for w in expected["warnings"])
        assert len(skipping.failures) >= sum("did not succeed" in w for w in expected["warnings"])
    fused = strategy.writer.lm.fused if lean == "fuse" else 0
    assert len(lm.requests) + fused == row["expected"]["n_lm_calls"]
    if not lean:
        assert len(lm.script) == row["expected"]["n_lm_outputs_unused"]
    params = [
        c["params"]
        for r in row["expected"]["results"]
        for s in r["steps"]
        for c in s.get("retriever_calls", [])
    ]
    asked = [
        {
            "query_text": query.text,
            "max_hits_count": k,
            "document_type": kind,
            **({"allowed_titles": list(query.titles)} if query.titles is not None else {}),
        }
        for kind, query, k in retriever.requests
    ]
    for param in params:
        param.pop("retrieval_method"), param.pop("corpus_name")
    assert asked == params
    return len(lm.requests), fused, lm.closed_early


async def test_every_recorded_run_is_replayed_to_the_byte():
    failed = {}
    for row in rows("golden/trace.jsonl"):
        try:
            await replay(row)
        except AssertionError as difference:
            failed[row["id"]] = str(difference)[:500]
    assert not failed


async def test_runs_that_stop_early_are_the_recorded_ones():
    cut = 0
    for row in rows("golden/trace.jsonl"):
        _, _, closed = await replay(row, lean="stop")
        cut += closed
    assert cut


async def test_runs_that_go_on_with_open_streams_are_the_recorded_ones():
    fused = 0
    # A script that contradicts its own earlier text says nothing about going on with it.
    consistent = [row for row in rows("golden/trace.jsonl") if prefix_consistent(row)]
    assert len(consistent) > 15
    for row in consistent:
        _, served, _ = await replay(row, lean="fuse")
        fused += served
    assert fused
