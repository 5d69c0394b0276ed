"""`--demonstrations`, `--demonstration-set` and `--distractors`."""

import json

import pytest

from multihop.prompts.demonstrations import Demonstration, render
from multihop.prompts.official import file_name, set_ids


@pytest.fixture
def folder(tmp_path):
    ids = sorted({id_ for number in (1, 2, 3) for id_ in set_ids("musique", number)})
    for distractors in (1, 2):
        examples = [
            Demonstration(
                f"Wikipedia Title: M{distractors}\nText.\n\nQ: {id_}?\nA: So the answer is: x.",
                {"qid": id_},
            )
            for id_ in ids
        ]
        path = tmp_path / "musique" / file_name("cot", distractors, "codex")
        path.parent.mkdir(exist_ok=True)
        path.write_text(render(examples))
    return path.parent


def prompt(result) -> str:
    assert result.code == 0, result.err
    trace = json.loads(result.out)
    return trace["steps"][-1]["call"]["prompt"]


def test_a_set_and_m_choose_the_examples_of_a_prompt(multihop, index, script, folder):
    asked = ("ask", "Where?", "-s", "oner", "--index", index, "-m", script, "--json")
    given = ("--demonstrations", f"official:{folder}", "--strategy-option", "shots=15")
    first = prompt(multihop(*asked, *given, "--demonstration-set", "3", "--distractors", "1"))
    asked_for = [line[3:-1] for line in first.splitlines() if line.startswith("Q: ")]
    assert asked_for[:-1] == list(set_ids("musique", 3))
    assert first.count("Wikipedia Title: M1") == 15
    assert "Wikipedia Title: M2" in prompt(multihop(*asked, *given))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--demonstrations", "nowhere.txt"), "nowhere.txt: cannot read the demonstrations"),
        (("--demonstration-set", "1"), "Say where it is, as official:"),
        (("--distractors", "1"), "our own demonstrations is one file"),
        (("--demonstrations", "official:no", "--distractors", "3"), "no: no such folder"),
    ],
)
def test_what_is_not_there_is_one_line(multihop, script, options, message):
    result = multihop("ask", "Where?", "-s", "nor", "-m", script, *options)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1
