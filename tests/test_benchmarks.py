"""The benchmarks' own claims that need no clock: equal traces, and what they cost."""

import json
import sys
from contextlib import ExitStack

import pytest

from conftest import ROOT, shared
from multihop.strategies.rules import preset

sys.path.insert(0, str(ROOT / "benchmarks"))

import loop
import run
from table import Row, figure


async def tallies(name):
    with ExitStack() as stack:
        return {data.name: await loop.compare(data, preset(name)) for data in loop.sets(stack)}


@pytest.mark.parametrize(
    "name", ["default", "paper", pytest.param("official", marks=pytest.mark.spacy)]
)
async def test_the_lean_loop_comes_to_the_traces_of_the_released_policy_with_half_its_tokens(name):
    shared("data")
    found = await tallies(name)  # ends the program when a trace differs
    assert set(found) == {"shipped", "hotpotqa", "2wikimultihopqa", "musique"}
    for data, tally in found.items():
        # One token after each sentence tells that it is over.
        assert tally.tokens <= tally.kept + tally.sentences, data
        assert tally.released_tokens >= 1.9 * tally.kept, data
        assert tally.sent <= tally.released_calls, data
    capped = [tally for tally in found.values() if tally.capped]
    assert sum(tally.capped_sent for tally in capped) <= 0.8 * sum(
        tally.capped_released for tally in capped
    )


def test_every_part_has_a_benchmark_and_a_place_in_the_docs():
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    for name in run.PARTS:
        assert (ROOT / "benchmarks" / f"{name}.py").is_file()
        assert page.count(f"<!-- {name} -->") == 1
    assert page.count("<!-- end -->") == len(run.PARTS)


def test_a_part_s_table_replaces_the_one_before(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Speed\n<!-- loop -->\nold\n<!-- end -->\ntext\n<!-- start -->\n<!-- end -->\n"
    )
    row = {
        "part": "loop",
        "what": "calls",
        "value": 3,
        "unit": "calls",
        "against": "all",
        "ratio": 0.75,
        "goal": "<= 0.5",
    }
    told = {"command": "python loop.py", "commit": "abc", "date": "1 May", "machine": "m"}
    run.write(page, "loop", {**told, "rows": [row]})
    text = page.read_text()
    assert "old" not in text
    assert "| calls | 3 calls | all | 0.750 | <= 0.5 (missed) |" in text
    assert text.endswith("text\n<!-- start -->\n<!-- end -->\n")
    with pytest.raises(SystemExit, match="no place for bm25"):
        run.write(page, "bm25", {**told, "rows": []})


@pytest.mark.parametrize(
    ("value", "ratio", "goal", "reached"),
    [
        (3, None, "<= 3", True),
        (9, 0.5, "<= 0.5", True),
        (9, 0.4, ">= 0.5", False),
        (1, 1, "", None),
    ],
)
def test_a_goal_is_met_by_the_ratio_where_there_is_one(value, ratio, goal, reached):
    assert Row("p", "w", value, "u", "a", ratio, goal).reached is reached


def test_figures_keep_the_digits_that_mean_something():
    assert [figure(x) for x in (1234567, 1234.56, 0.12345, 12.0)] == [
        "1,234,567",
        "1,234.6",
        "0.123",
        "12",
    ]
    assert json.dumps(figure(2.5)) == '"2.5"'
