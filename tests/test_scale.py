"""The cost model of large runs: its sums, its directions, and that the page holds its table."""

import asyncio
import subprocess
import sys
import time
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from multihop import evaluation
from multihop.strategies import make
from multihop.testing import ScriptedLM
from multihop.text import Question

sys.path.insert(0, str(ROOT / "benchmarks"))

import scale
from scale import LUCENE, OFFICIAL_HOTPOTQA, SERVED, TANTIVY, TERMS, Work, predict

WORK = Work(calls=4, searches=3, prompt=8000, evaluated=1000, generated=100, trace=50_000)
LM = scale.LM(read=1000, write=100, sequences=10, weights=1e9, token=1e5, window=1000)
ENGINE = scale.Search(query=0.01, build=100, size=500, heap=1e9)
ROUND = scale.Terms(busy=0.5, wait=0.2, cores=16, own=0.001)


def test_the_sums_are_those_worked_by_hand() -> None:
    need = predict(864_000, 50e6, WORK, LM, ENGINE, ROUND)  # ten questions a second
    assert need.tokens == 864_000 * 8100
    assert need.evaluated == 864e6
    assert need.lm_hours == pytest.approx(864_000 * 2 / 3600)  # 1 s read and 1 s written
    # 0.5 s of CPU a query; 0.1 s a shard; 30 queries a second are 15 s of CPU, half busy.
    assert (need.shards, need.cores) == (5, 30)
    assert need.search_memory == 50e6 * 500 + 5e9
    assert need.build_hours == pytest.approx(5000 / 30 / 3600)
    assert need.lm_memory == 1e9 + 10 * 1000 * 1e5
    latency = 1 + 100 * 10 / 100 + 3 * 0.1 + 0.004
    assert need.at_work == pytest.approx(10 * latency)
    assert need.replicas == 40  # 20 busy ones; their sequences would need 22.6 with as much room
    assert need.own_cores == pytest.approx(0.04)
    assert need.disk == 864_000 * 50_000


def test_sequences_may_be_what_replicas_are_bought_for() -> None:
    one_by_one = replace(LM, sequences=1, write=1000)
    assert predict(864_000, 1e6, WORK, one_by_one, ENGINE, ROUND).replicas == 23


def test_hours_on_one_machine_are_one_thing_after_the_other() -> None:
    seconds = 1 + 1 + 3 * 0.5 + 4 * scale.TERMS.own
    assert scale.hours(3600, 50e6, WORK, LM, ENGINE) == pytest.approx(seconds)


GROWS = [field.name for field in fields(scale.Need) if field.name != "build_hours"]


@given(
    questions=st.floats(1, 1e8),
    passages=st.floats(1, 1e10),
    more=st.floats(1, 100),
    engine=st.sampled_from([TANTIVY, LUCENE]),
    lm=st.sampled_from([scale.EMBEDDED, SERVED]),
)
def test_more_questions_and_more_passages_never_need_less(
    questions, passages, more, engine, lm
) -> None:
    def need(questions: float, passages: float, work: Work = OFFICIAL_HOTPOTQA) -> scale.Need:
        return predict(questions, passages, work, lm, engine, TERMS)

    base = need(questions, passages)
    for name in GROWS:
        slack = 1 - 1e-9
        assert getattr(need(questions * more, passages), name) >= getattr(base, name) * slack, name
    # More shards make the waiting shorter, so questions at work may become fewer, not the cores.
    wider = need(questions, passages * more)
    for name in ("tokens", "shards", "cores", "search_memory", "disk", "lm_hours"):
        assert getattr(wider, name) >= getattr(base, name), name
    longer = replace(OFFICIAL_HOTPOTQA, generated=65 * more)
    assert need(questions, passages, longer).replicas >= base.replicas


@given(st.floats(1.0, 100.0))
def test_a_faster_server_needs_no_more_replicas(faster) -> None:
    quick = replace(SERVED, read=SERVED.read * faster, write=SERVED.write * faster)
    work = replace(WORK, generated=5000)
    one = predict(1e6, 1e6, work, SERVED, LUCENE, TERMS)
    assert predict(1e6, 1e6, work, quick, LUCENE, TERMS).replicas <= one.replicas


def test_nonsense_is_refused() -> None:
    with pytest.raises(SystemExit, match="questions are 0 or more"):
        predict(-1, 1e6, WORK, LM, ENGINE, ROUND)
    with pytest.raises(SystemExit, match="known are read"):
        scale.changed(LM, ["reed=1"])
    with pytest.raises(SystemExit, match="NAME=NUMBER"):
        scale.changed(LM, ["read=fast"])
    assert scale.changed(LM, ["read=5"]).read == 5


def test_the_page_holds_the_table_that_the_model_prints() -> None:
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    printed = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "scale.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"<!-- scale -->\n{printed}<!-- end -->" in page, (
        "run: python benchmarks/scale.py --write docs/scale.md"
    )


async def test_a_finished_run_is_compared_with_its_prediction(
    tmp_path, capsys, monkeypatch
) -> None:
    """Four questions at once at a model of which each call takes 30 ms, written in three words."""
    delay, at_once = 0.03, 4
    lm = ScriptedLM(respond=lambda request: "So it is.", delay=delay, keep=False)
    questions = [Question(f"What is {n}?", id=f"q{n}") for n in range(24)]
    began = time.monotonic()
    nor = make("nor", lm=lm, retriever=None)
    await evaluation.evaluate(questions, nor, tmp_path, concurrency=at_once)
    took = time.monotonic() - began

    work, seconds, count = await asyncio.to_thread(scale.measured, tmp_path)
    assert count == 24
    assert work.searches == 0
    assert work.generated == 3 * work.calls
    model = scale.LM(1e12, 3 / delay * at_once, at_once, 0, 0, 0)
    told, actual = scale.check(tmp_path, model, at_once, 0.0)
    assert actual == seconds
    assert told == pytest.approx(work.calls * (delay + TERMS.own))
    assert told - work.calls * TERMS.own <= actual  # a prediction of an idle machine's best
    assert told * count / at_once * 0.9 <= took

    arguments = ["scale.py", "--check", str(tmp_path), "--at-once", "4"]
    monkeypatch.setattr(sys, "argv", arguments)
    scale.main()
    assert f"took {seconds:.2f} s" in capsys.readouterr().out
