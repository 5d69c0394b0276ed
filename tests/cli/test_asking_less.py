"""Options that decide how often a model is asked."""

import json
from pathlib import Path

import pytest

from multihop import runs

CHAIN = "Ode was written by Eva. Eva was born at Zug. So the answer is: Zug."


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f'{{"id": "q{n}", "question": "Where {n}?"}}\n' for n in range(3)))
    return str(path)


@pytest.fixture
def chain(tmp_path: Path) -> str:
    """A model that goes on with one chain, and a corpus that has nothing more to give."""
    sentences = CHAIN.split(". ")
    rules = [
        {"prompt": rf"A: {'. '.join(sentences[:n])}\.$", "text": " " + ". ".join(sentences[n:])}
        for n in (1, 2)
    ]
    path = tmp_path / "chain.json"
    path.write_text(json.dumps({"rules": [*rules, {"prompt": "", "text": " " + CHAIN}]}))
    return f"scripted:{path}"


def means(done):
    [report] = json.loads(done.out)
    return {name: row["mean"] for name, row in report["means"].items()}


def test_a_chain_that_finds_nothing_new_is_read_on_unless_told_otherwise(
    multihop, index, chain, questions
):
    command = ("eval", questions, "--index", index, "-m", chain, "--json")
    lean = means(multihop(*command))
    plain = means(multihop(*command, "--no-fuse"))
    assert (lean["lm_calls"], plain["lm_calls"]) == (4, 4)
    assert (lean["sent_calls"], plain["sent_calls"]) == (1, 4)


def test_a_repeated_run_with_a_cache_asks_nothing(multihop, index, chain, questions, tmp_path):
    command = ("eval", questions, "--index", index, "-m", chain, "--json", "--cache")
    first = multihop(*command, "--into", str(tmp_path / "a"))
    again = multihop(*command, "--into", str(tmp_path / "b"))
    assert "Cache: 0 of 12 LM calls were replayed." in first.err
    assert "Cache: 12 of 12 LM calls were replayed." in again.err
    assert means(again)["sent_calls"] == 0
    assert means(again)["lm_calls"] == means(first)["lm_calls"]


@pytest.mark.parametrize("option", ["--no-fuse", "--reproducible"])
def test_who_wants_nothing_read_on_is_given_no_such_text_by_the_cache(
    multihop, index, chain, questions, option
):
    command = ("eval", questions, "--index", index, "-m", chain, "--json", "--cache")
    multihop(*command)
    done = multihop(*command, option)
    assert "Cache: 0 of 12 LM calls were replayed." in done.err
    folder = Path(done.err.split("Run folder: ")[1].splitlines()[0])
    assert not any(call.fused for _, run in runs.read(folder / runs.TRACES) for call in run.calls)
    assert "Cache: 0 of 0" in multihop(*command, option).err  # the same run, asked to its end


def test_an_edited_script_is_another_model_to_the_cache(
    multihop, index, chain, questions, tmp_path
):
    command = ("eval", questions, "--index", index, "-m", chain, "--cache")
    multihop(*command, "--into", str(tmp_path / "a"))
    path = Path(chain.partition(":")[2])
    path.write_text(path.read_text().replace("Zug", "Bern"))
    again = multihop(*command, "--into", str(tmp_path / "b"))
    assert "Cache: 0 of 12 LM calls were replayed." in again.err


def test_a_reproducible_run_says_so_and_is_another_run(multihop, index, chain, questions, tmp_path):
    command = ("eval", questions, "--index", index, "-m", chain, "--into", str(tmp_path / "run"))
    done = multihop(*command, "--reproducible", "--json")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["parts"]["reproducible"] is True
    assert record["parts"]["fuse"] is False
    assert means(done)["sent_calls"] == 4
    other = multihop(*command)
    assert other.code == 2
    assert "fuse false (now: true)" in other.err or "reproducible true" in other.err


def test_ask_says_what_was_read_on(multihop, index, chain):
    done = multihop("ask", "Where?", "--index", index, "-m", chain)
    assert done.out == "Zug\n"
    assert "4 LM calls (3 read on)" in done.err


def test_no_calls_in_flight_are_refused(multihop, index, chain):
    done = multihop("ask", "Where?", "--index", index, "-m", chain, "--calls", "0")
    assert done.code == 2
    assert "--calls" in done.err
