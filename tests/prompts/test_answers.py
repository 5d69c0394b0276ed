"""Answers and titles in what an LM wrote."""

import pytest

from multihop.prompts import answers


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So the answer is: Ulm.", "Ulm"),
        ("Answer is Ulm", "Ulm"),
        ("The answer is: Ulm. No, the answer is: Bonn.", "Bonn"),
        ("So the answer is: U.S.", "U.S."),
        ("So the answer is: 5.", "5"),
        ('So the answer is: "Ode".', "Ode"),
        ('So the answer is: "Ode" and "Elegy".', '"Ode" and "Elegy"'),
        ("Ode is by Ida.", None),
    ],
)
def test_the_last_statement_is_the_answer(text, answer):
    assert answers.stated(text) == answer


@pytest.mark.parametrize("text", ["So the answer is:", "So the answer is: .", "So the answer is :"])
def test_a_statement_that_breaks_off_states_no_answer(text):
    assert answers.stated(text) is None


def test_brackets_without_end_are_text_and_no_crash():
    endless = "[" * 5000
    assert answers.official_prediction(answers.official_store(endless)) == endless
    assert answers.official_titles(endless) == ("",)
    assert answers.official_extract(endless) == endless


def test_escapes_are_resolved_as_python_writes_them():
    # The release does so; unlike JSON it knows \\x and takes quotes that are not escaped.
    assert answers.official_extract(r"So the answer is: [\x22a\x22].") == '["a"]'
    assert answers.official_extract("So the answer is: [\\'a\\']") == "[\\'a\\']"
    assert answers.official_extract(r'The answer is: ["a", \"b\"]') == '["a", "b"]'
    assert answers.official_extract(r"The answer is: [\"a\/b\"]") == '["a/b"]'


def test_a_json_string_is_one_title_except_in_the_release():
    assert answers.titles('"Ulm"') == ("Ulm",)
    assert answers.official_titles('"Ulm"') == ("U", "l", "m")


def test_nothing_is_no_title_except_in_the_release():
    assert answers.titles("") == ()
    assert answers.official_titles("") == ("",)
