"""Steps, traces and their JSON."""

import json
from types import MappingProxyType
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihop.errors import BadInput, LMError
from multihop.text import Hit, Passage, Question
from multihop.trace import (
    Answer,
    Kind,
    LMCall,
    Search,
    StopReason,
    Thought,
    Titles,
    Tokens,
    Trace,
    fold,
    trace,
)

# Every code point, lone surrogates and NUL too.
texts = st.text(st.characters(codec=None), max_size=20)
passages = st.builds(
    Passage,
    id=st.sampled_from(["a", "b", "a#2"]),
    title=texts,
    text=texts,
    metadata=st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts, max_size=2),
)
tokens = st.builds(
    Tokens, *[st.none() | st.integers(min_value=0, max_value=10**6) for _ in range(3)]
)
seconds = st.floats(min_value=0, max_value=1e6)
calls = st.none() | st.builds(
    LMCall,
    role=texts,
    model=texts,
    prompt=texts,
    outputs=st.lists(texts, max_size=2).map(tuple),
    finishes=st.lists(st.sampled_from(["stop", "length", "cut"]), max_size=2).map(tuple),
    seconds=seconds,
    tokens=tokens,
    adapter=st.none() | texts,
    seed=st.none() | st.integers(),
    temperature=seconds,
    fused=st.booleans(),
    warnings=st.lists(texts, max_size=2).map(tuple),
)
hits = st.lists(st.builds(Hit, passages, st.floats(allow_nan=False)), max_size=3).map(tuple)
ids = st.lists(texts, max_size=3).map(tuple)
searches = st.builds(Search, texts, hits, ids, ids, titles=st.none() | ids, seconds=seconds)
steps = st.one_of(
    searches,
    st.builds(Thought, texts, calls, texts, st.sampled_from(get_args(Kind))),
    st.builds(Titles, ids, ids, st.lists(searches, max_size=2).map(tuple), calls),
    st.builds(
        Answer,
        texts,
        st.sampled_from(get_args(StopReason)),
        st.lists(passages, max_size=3).map(tuple),
        calls,
        calls,
        ids,
        texts,
        st.none() | st.floats(0, 1),
    ),
)
questions = st.builds(
    Question,
    text=texts,
    id=texts,
    answers=ids,
    gold_ids=ids,
    pinned=st.none() | passages,
    extra=st.dictionaries(texts, st.integers() | texts, max_size=2),
)
traces = st.builds(
    Trace,
    question=questions,
    strategy=texts,
    settings=st.dictionaries(texts, st.none() | st.integers() | texts, max_size=2),
    steps=st.lists(steps, max_size=4).map(tuple),
    started=texts,
    seconds=seconds,
    error=texts,
)


@given(traces)
def test_a_trace_reads_back_from_its_json_as_it_was(run):
    line = run.to_json()
    assert line.isascii()
    assert "\n" not in line
    assert Trace.from_json(line) == run


def test_two_passages_of_one_id_are_both_kept():
    one, other = Passage("a", "A", "one"), Passage("a", "A", "other")
    run = fold(Question("q"), "s", [Search("q", (Hit(one, 2.0), Hit(other, 1.0)), (), ())])
    back = Trace.from_json(run.to_json())
    assert [h.passage.text for h in back.searches[0].hits] == ["one", "other"]


def test_a_passage_is_written_once_however_often_it_was_found():
    passage = Passage("a", "A", "a text that is only written once")
    found = Search("q", (Hit(passage, 1.0),), ("a",), ("a",))
    run = fold(Question("q"), "s", [found, found, Answer("x", "answered", (passage,))])
    assert run.to_json().count(passage.text) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "runs:3: not JSON"),
        ("[" * 100_000, "runs:3: not JSON"),
        ("[]", "runs:3: expected a JSON object, found list"),
        ('{"version": 99}', "runs:3: trace has schema version 99, this program reads 1"),
        ('{"version": 1}', "runs:3: not a trace of schema version 1"),
        ("{}", "schema version None"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_place(line, message):
    with pytest.raises(BadInput, match=message):
        Trace.from_json(line, "runs:3")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("prompt_tokens", count) for count in ("12", 1.5, float("nan"), -1, True, 10**400, [])),
        *(("seconds", value) for value in (None, "1", float("nan"), float("inf"), -1)),
        *(("model", value) for value in (None, 3, ["m"])),
        *(("prompt", value) for value in (None, 3)),
        *(("fused", value) for value in (None, "no")),
    ],
)
def test_a_call_that_nobody_could_count_is_refused(field, value):
    said = LMCall("read", "m", "Q?", ("x",), ("stop",), 0.5, Tokens(1, 0, 2))
    line = json.loads(fold(Question("q"), "s", [Answer("x", "answered", (), said)]).to_json())
    record = line["steps"][0]["call"]
    assert field in record or field == "prompt_tokens"
    if field == "prompt_tokens":
        record["tokens"]["prompt"] = value
    else:
        record[field] = value
    with pytest.raises(BadInput, match="runs:3: not a trace of schema version 1"):
        Trace.from_dict(line, "runs:3")


def test_calls_of_earlier_releases_are_read():
    said = LMCall("read", "m", "Q?", ("x",), ("stop",), 0.5, Tokens(1, 0, 2))
    line = json.loads(fold(Question("q"), "s", [Answer("x", "answered", (), said)]).to_json())
    del line["steps"][0]["call"]["fused"], line["steps"][0]["call"]["replayed"]
    assert Trace.from_dict(line).calls == (said,)


def test_steps_of_earlier_releases_have_no_kind_and_no_confidence():
    line = json.loads(fold(Question("q"), "s", [Thought("x"), Answer("y", "answered")]).to_json())
    assert "kind" not in line["steps"][0]
    assert "confidence" not in line["steps"][1]
    assert Trace.from_dict(line).steps == (Thought("x"), Answer("y", "answered"))


@pytest.mark.parametrize(
    ("place", "field", "value"),
    [
        *((0, "kind", value) for value in ("song", None, [])),
        *((1, "confidence", value) for value in (1.5, -1, float("nan"), "high")),
    ],
)
def test_an_odd_kind_or_confidence_is_refused(place, field, value):
    line = json.loads(fold(Question("q"), "s", [Thought("x"), Answer("y", "answered")]).to_json())
    line["steps"][place][field] = value
    with pytest.raises(BadInput, match="not a trace"):
        Trace.from_dict(line)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, None])
def test_a_run_without_a_time_is_refused(seconds):
    line = json.loads(fold(Question("q"), "s", [Search("q", (), (), ())]).to_json())
    for record in (line, line["steps"][0]):
        before, record["seconds"] = record["seconds"], seconds
        with pytest.raises(BadInput, match="not a trace"):
            Trace.from_dict(line)
        record["seconds"] = before
    assert Trace.from_dict(line)


def test_an_unknown_step_or_stop_reason_is_refused():
    record = json.loads(fold(Question("q"), "s", [Answer("x", "answered")]).to_json())
    record["steps"][0]["stop"] = "bored"
    with pytest.raises(BadInput, match="unknown stop reason 'bored'"):
        Trace.from_dict(record)
    record["steps"][0]["step"] = "dance"
    with pytest.raises(BadInput, match="unknown step 'dance'"):
        Trace.from_dict(record)


def test_token_counts_add_up_and_stay_unknown_where_nobody_told():
    assert Tokens(1, None, 2) + Tokens(3, 4, None) == Tokens(4, 4, 2)
    assert Tokens() + Tokens() == Tokens(None, None, None)


class Slow:
    name = "slow"
    settings = MappingProxyType({"speed": 0})
    closed = False

    async def steps(self, question):
        try:
            yield Thought("one")
            yield Thought("two")
            raise LMError("broke")
        finally:
            self.closed = True


async def test_steps_are_told_as_they_happen_and_errors_can_be_kept():
    told = []
    run = await trace(Slow(), Question("q"), told.append, keep_errors=True)
    assert [t.text for t in told] == ["one", "two"]
    assert run.steps == tuple(told)
    assert run.error == "LMError: broke"
    assert run.settings == {"speed": 0}
    with pytest.raises(LMError):
        await trace(Slow(), Question("q"))


async def test_a_listener_that_fails_closes_the_strategy():
    strategy = Slow()

    def refuse(step):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await trace(strategy, Question("q"), refuse)
    assert strategy.closed


def test_calls_of_a_search_count_and_survive_json() -> None:
    call = LMCall("rerank", "m", "p", ("[1]",), ("stop",), 0.5, Tokens(3, 0, 1))
    reranked = Search("q", (), (), (), seconds=2.0, calls=(call,), warnings=("cut",))
    titles = Titles(("t",), (), (reranked,), call)
    trace = fold(Question("Q"), "s", [reranked, titles])
    assert trace.calls == (call, call, call)
    assert trace.tokens == Tokens(9, 0, 3)
    assert Trace.from_json(trace.to_json()) == trace


def test_a_search_without_calls_is_written_as_it_always_was() -> None:
    trace = fold(Question("Q"), "s", [Search("q", (), (), ())])
    [step] = trace.to_dict()["steps"]
    assert step.keys() == {"step", "query", "hits", "kept", "collected", "titles", "seconds"}
