"""The benchmarks' own claims that need no clock: equal traces, and what they cost."""

import json
import sys
from contextlib import ExitStack

import pytest

from conftest import ROOT, shared
from multihop.strategies.rules import preset
from multihop.text import Question

sys.path.insert(0, str(ROOT / "benchmarks"))

import adapter
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


@pytest.mark.parametrize(
    ("question", "answer", "is_choice"),
    [
        ("Who is older, Ada Rao or Bo Lind?", "Bo Lind", True),
        ("Are both films Danish?", "no", True),
        ("Who made The Ferry?", "Ada Rao", False),
        ("Which Lindholm street is longest?", "Lind", False),
    ],
)
def test_a_question_is_a_choice_where_it_names_its_answer(question, answer, is_choice):
    assert adapter.choice(Question(question, answers=(answer,))) == is_choice


def test_recall_at_n_cuts_what_was_collected_and_fills_up_from_the_ranking():
    question = Question("?", gold_ids=("g1", "g2"))
    assert adapter.at(["a", "g1"], ["b", "g2"], question, 2) == 0.5
    assert adapter.at(["a", "g1"], ["b", "g2"], question, 4) == 1.0
    assert adapter.at(["a", "b", "g1"], ["g2"], question, 2) == 0.0


def test_the_adapter_tables_come_out_of_runs_alone(tmp_path, capsys, monkeypatch):
    data, runs = tmp_path / "data", tmp_path / "runs"
    data.mkdir()
    texts = {"f": ("The Ferry", "The Ferry was made by Ada Rao."), "r": ("Ada Rao", "Of Pune.")}
    (data / "toy_corpus.jsonl").write_text(
        "".join(json.dumps({"id": i, "title": t, "text": x}) + "\n" for i, (t, x) in texts.items())
    )
    record = {"question": "Where is the maker of The Ferry from?", "answers": ["Pune"]}
    lines = [{**record, "id": f"q{n}", "gold_paragraph_ids": ["f", "r"]} for n in range(3)]
    (data / "toy_dev.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rules = tmp_path / "rules.json"
    answer = {"prompt": "", "text": "So the answer is: Pune."}
    rules.write_text(json.dumps({"rules": [answer]}))
    given = ["adapter.py", str(data), str(runs), "--sets", "toy", "--only", "untrained"]
    monkeypatch.setattr(sys, "argv", [*given, "--model", f"scripted:{rules}"])
    adapter.main()
    first = capsys.readouterr().out
    assert "| untrained ircot | 3 | 100.0" in first
    assert "| BM25 alone | 3 |" in first
    monkeypatch.setattr(sys, "argv", [*given, "--tables", "--model", "scripted:gone"])
    adapter.main()
    assert capsys.readouterr().out == first
