"""Demonstrations as read from files, shown and dropped."""

import pytest

from multihop.errors import BadInput
from multihop.prompts.demonstrations import Demonstration, drop_to_fit, parse, select
from multihop.strategies import Demonstrations

ODE = Demonstration(
    "Wikipedia Title: FAQ\nQ: Is it?\nA: Yes.\n\n"
    "Q: Answer the following question by reasoning step-by-step.\nWho wrote Ode?\n"
    "A: Ode is by Ida. So the answer is: Ida."
)


async def words(texts):
    return [len(text.split()) for text in texts]


def test_only_the_last_answer_line_is_the_answer():
    assert ODE.asked.endswith("Who wrote Ode?")
    assert ODE.answered == "Ode is by Ida. So the answer is: Ida."


def test_an_example_without_an_answer_line_answers_nothing():
    assert Demonstration("Some words.").answered == ""
    assert Demonstrations.from_cot([Demonstration("Some words.")]).direct[0].text == "Some words."


def test_a_direct_example_holds_the_bare_answer_and_asks_for_no_steps():
    [direct] = Demonstrations.from_cot([ODE]).direct
    assert direct.text.endswith("Q: Answer the following question.\nWho wrote Ode?\nA: Ida")


def test_a_metadata_line_at_the_end_repeats_the_example_before_it():
    found = parse('# METADATA: {"qid": "a"}\nQ: q?\nA: a.\n# METADATA: {"qid": "b"}')
    assert [d.metadata["qid"] for d in found] == ["a", "a"]
    assert select(found, ["b"]) == ((), ())


@pytest.mark.parametrize("metadata", ["5", '["qid"]', "null", "{"])
def test_metadata_that_is_no_object_is_refused(metadata):
    with pytest.raises(BadInput, match="line 3: the metadata is"):
        parse(f"Q: q?\nA: a.\n# METADATA: {metadata}\nQ: q?\nA: a.")


async def test_a_lone_example_stays_and_of_several_all_may_go():
    long = Demonstration("word " * 50)
    assert await drop_to_fit([long], limit=10, generation=1, count=words) == (long,)
    assert await drop_to_fit([long, long], limit=10, generation=1, count=words) == ()
