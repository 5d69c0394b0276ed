"""Whatever a model writes, a strategy comes to its end, and an empty answer has a reason."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbours import AIDA, QUESTION, VERDI

from multihop import names
from multihop.testing import ScriptedLM, TitleRetriever
from multihop.trace import Trace, trace

PIECES = [
    *("Yes.", "No.", "Follow up:", "Intermediate answer:", "So the final answer is:", "Who? "),
    *("Thought 2:", "Action 1:", "Observation 1:", "Search[Aida]", "Lookup[was]", "Finish["),
    *("Search[", "]", "Finish[Ulm]", "QS:", "(select)", "(foreach)", "[retrieve_odqa]", "#1", "#9"),
    *("[multihop_titleqa]", "[EOQ]", "A: [", '["Ulm", "Bonn"]', "the answer is Ulm.", "\n", " "),
    *("Aida", "Giuseppe Verdi", "\x00", "\ud800", "[[[[", "answer is:"),
]
outputs = st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join), min_size=1)


@pytest.mark.parametrize("name", ["self-ask", "react", "decomp", "iter-retgen", "self-consistency"])
@settings(max_examples=15, deadline=None)
@given(written=outputs)
def test_whatever_is_written_ends_in_an_answer_or_a_reason(name, written):
    lm = ScriptedLM(respond=lambda _: written[len(lm.requests) % len(written)])
    options = {"of": "react", "chains": "2"} if name == "self-consistency" else {}
    strategy = names.open_strategy(
        name, retriever=TitleRetriever(AIDA, VERDI), lm=lm, options={"shots": "1", **options}
    )
    run = asyncio.run(trace(strategy, QUESTION))
    assert bool(run.answer.text) != bool(run.answer.reason)
    assert len(run.calls) == len(lm.requests) <= 60
    assert Trace.from_json(run.to_json()) == run
