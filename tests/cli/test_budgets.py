"""Budgets and prices on the command line."""

import json
from pathlib import Path

import pytest

from multihop import runs


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f'{{"id": "q{n}", "question": "Where {n}?"}}\n' for n in range(4)))
    return str(path)


@pytest.fixture
def prices(tmp_path: Path) -> str:
    path = tmp_path / "prices.toml"
    path.write_text('["scripted:*"]\nprompt = 0\ngenerated = 0\ncall = 0.25\n')
    return str(path)


def row(table: str, name: str) -> list[str]:
    """The cells of a report's row."""
    [line] = [line for line in table.splitlines() if line.startswith(name)]
    return line.removeprefix(name).split()


def test_a_run_that_is_used_up_says_what_is_left_and_goes_on_with_more(
    multihop, script, questions, tmp_path
) -> None:
    command = ("eval", questions, "-s", "nor", "-m", script, "--concurrency", "1")
    first = multihop(*command, "--run-budget-calls", "5")  # two a question
    assert first.code == 1
    assert first.err.splitlines()[-1] == (
        "The run's budget is used up (6 of 5 calls): 1 of 4 questions were left. "
        "The same command with a larger budget goes on."
    )
    assert row(first.out, "not asked yet") == ["1"]
    again = multihop(*command, "--run-budget-calls", "5")
    assert again.err.splitlines()[-1] == first.err.splitlines()[-1]
    more = multihop(*command, "--run-budget-calls", "8")
    assert more.code == 0
    assert "budget" not in more.err
    [folder] = (tmp_path / "runs").iterdir()
    assert len(list(runs.read(folder / runs.TRACES))) == 4


def test_the_end_of_a_run_ends_the_search_of_a_question(multihop, index, script, questions) -> None:
    options = ("--index", index, "-m", script, "--concurrency", "1", "--json")
    done = multihop("eval", questions, *options, "--run-budget-calls", "1")
    [report] = json.loads(done.out)
    assert (report["finished"], report["missing"]) == (1, 3)
    assert report["stops"] == {"budget": 1}
    assert report["without_answer"] == 0


def test_money_per_run_and_per_question(multihop, index, script, questions, prices) -> None:
    options = (
        "--index",
        index,
        "-m",
        script,
        "--concurrency",
        "1",
        "--prices",
        prices,
        "--json",
        "--no-fuse",
    )
    done = multihop("eval", questions, *options, "--run-budget-money", "0.5")
    assert "(1 of 0.5 in money): 3 of 4 questions" in done.err
    [report] = json.loads(done.out)
    assert report["means"]["money"]["mean"] == 1.0
    assert list(report["prices"].values()) == [
        {"prompt": 0, "generated": 0, "cached": None, "call": 0.25}
    ]
    done = multihop("eval", questions, *options, "--budget-money", "0.25")
    [report] = json.loads(done.out)
    assert report["stops"] == {"budget": 4}
    assert report["means"]["money"]["mean"] == 0.75


def test_score_reckons_money_by_the_table_it_is_given(
    multihop, script, questions, prices, monkeypatch
) -> None:
    into = f"{questions}-run"
    multihop("eval", questions, "-s", "nor", "-m", script, "--into", into)
    assert "money" not in multihop("score", into).out
    monkeypatch.setenv("MULTIHOP_PRICES", prices)
    assert row(multihop("score", into).out, "money") == ["0.500000", "±", "0.000000"]


def test_ask_shows_money_and_keeps_to_it(multihop, index, script, prices) -> None:
    options = ("--index", index, "-m", script, "--prices", prices, "--no-fuse")
    done = multihop("ask", "Where was Lost Gravity made?", *options, "--budget-money", "0.25")
    assert "the budget was used up" in done.err
    assert "0.75 in money" in done.err
    assert done.out == "Germany\n"


@pytest.mark.parametrize("limit", ["--budget-money", "--run-budget-money"])
def test_money_without_prices_or_without_the_models_is_refused(
    multihop, index, script, questions, limit
) -> None:
    command = ("eval", questions, "--index", index, "-m", script, limit, "1")
    done = multihop(*command)
    assert (done.code, done.out) == (2, "")
    assert "needs a price table" in done.err
    other = Path(questions).with_name("other.toml")
    other.write_text('["openai:*"]\nprompt = 1\ngenerated = 1\n')
    done = multihop(*command, "--prices", str(other))
    assert (done.code, done.out) == (2, "")
    [line] = done.err.splitlines()
    assert f"{other}: no price for the model {script!r}" in line
    assert not runs.home().exists()


def test_prices_alone_refuse_no_model(multihop, script, questions, tmp_path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('["openai:*"]\nprompt = 1\ngenerated = 1\n')
    done = multihop("eval", questions, "-s", "nor", "-m", script, "--prices", str(other))
    assert done.code == 0
    assert "money" not in done.out


def test_a_budget_of_a_question_is_refused_where_no_search_could_end(
    multihop, index, script, questions
) -> None:
    options = ("--index", index, "-m", script, "--budget-tokens", "100")
    done = multihop("eval", questions, "-s", "nor,oner", *options)
    assert (done.code, done.out) == (2, "")
    assert "--budget-tokens: there is no loop to end in nor or oner." in done.err
    assert multihop("ask", "Where?", "-s", "nor", *options).code == 2
    assert multihop("eval", questions, "-s", "nor,ircot", *options).code == 0


def test_a_budget_of_the_run_is_no_part_of_its_identity(
    multihop, index, script, questions, tmp_path
) -> None:
    command = ("eval", questions, "--index", index, "-m", script)
    multihop(*command)
    assert multihop(*command, "--run-budget-tokens", "9999999").code == 0
    assert multihop(*command, "--run-budget-seconds", "0.000001").code == 0  # nothing is left
    assert len(list((tmp_path / "runs").iterdir())) == 1
