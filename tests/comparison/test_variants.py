"""Answers in one writing."""

import pytest

from multihop.comparison.variants import contains, plain, variant


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Second World War", "2nd world war"),
        ("twenty-five", "25"),
        ("two hundred thousand", "200000"),
        ("2 million", "2000000"),
        ("3,000 metres", "3000 metres"),
        ("two three", "2 3"),
        ("nineteen eighty four", "19 84"),
        ("5.3 million", "5point3 million"),
        ("U.S.", "us"),
        ("St. Peter's", "st peters"),
        ("Rock & Roll", "rock and roll"),
        ("45%", "45 percent"),
        ("Dvořák", "dvorak"),
    ],
)
def test_words_in_one_writing(text, words) -> None:
    assert plain(text) == tuple(words.split())


@pytest.mark.parametrize(
    "text",
    ["27 August 1846", "August 27, 1846", "27th of Aug 1846", "1846-08-27", "27 august, 1846"],
)
def test_a_date_is_one_word_in_every_writing(text) -> None:
    assert plain(text) == plain("27 August 1846")
    assert len(plain(text)) == 1


@pytest.mark.parametrize("text", ["45 August 1846", "1846-27-08", "May 1846", "1846"])
def test_what_is_no_date_stays(text) -> None:
    assert plain(text) != plain("27 August 1846")
    assert not any(word.startswith("date") for word in plain(text))


def test_a_number_does_not_stand_in_a_larger_one() -> None:
    assert contains(plain("He had five wives"), plain("5"))
    assert not contains(plain("5 percent of it"), plain("5"))
    assert not contains(plain("5.3 million"), plain("5"))
    assert not contains(plain("5 million"), plain("5"))
    assert contains(plain("5 million in all"), plain("five million"))


def test_words_stand_in_a_text_whole_and_in_order() -> None:
    assert contains(plain("a place in the sun"), plain("the sun"))
    assert not contains(plain("a place"), plain("ace"))
    assert not contains(plain("York New"), plain("New York"))
    assert not contains(plain("York"), plain("the"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Paris", "London"),
        ("1846", "27 August 1846"),
        ("New York City", "New York"),
        ("the", "a"),
        ("", "Cannes"),
        ("Kurt", "Kurt Cobain"),
        ("kurt donald cobain", "kurt cobain"),  # names are written large
        ("UN", "Ulm"),
        ("yes", "no"),
    ],
)
def test_what_is_no_variant(one, other) -> None:
    assert variant(one, other) == ""
    assert variant(other, one) == ""
