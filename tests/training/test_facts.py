"""Facts out of articles' first sentences; every text here is made up."""

import pytest

from multihop.text import Passage
from multihop.training import facts as rules
from multihop.training.facts import Fact, bare, compared, date, facts, same


def said(title: str, text: str, words: int = 70) -> list[str]:
    return [fact.sentence for fact in facts(Passage("p", title, text), words)]


@pytest.mark.parametrize(
    ("title", "text", "sentences"),
    [
        (
            "Ilse Varn (painter)",
            "Ilse Varn (3 May 1901 – June 7, 1980) was a Danish painter and teacher.",
            [
                "Ilse Varn was born on 3 May 1901.",
                "Ilse Varn died on June 7, 1980.",
                "The nationality of Ilse Varn is Danish.",
            ],
        ),
        (
            "Ole Brant",
            "Ole Brant( born 1950 in Bergen) is a Norwegian judge, the son of Karl Brant.",
            [
                "Ole Brant was born in 1950.",
                "The nationality of Ole Brant is Norwegian.",
                "The father of Ole Brant is Karl Brant.",
            ],
        ),
        (
            "The Ferry (1931 film)",
            "The Ferry is a 1931 Indian drama film directed by J. K. Rao and written by A. Sen.",
            [
                "The Ferry was released in 1931.",
                "The country of origin of The Ferry is Indian.",
                "The Ferry was directed by J. K. Rao.",
            ],
        ),
    ],
)
def test_a_first_sentence_gives_its_facts(title: str, text: str, sentences: list[str]) -> None:
    assert said(title, text) == sentences


def test_nothing_is_taken_from_beyond_the_words_that_are_shown() -> None:
    text = "The Ferry is a 1931 film about a river and its people, directed by Ada Rao."
    assert "The Ferry was directed by Ada Rao." in said("The Ferry", text)
    assert "The Ferry was directed by Ada Rao." not in said("The Ferry", text, words=12)


@pytest.mark.parametrize(
    "text",
    [
        "Oakdale is a village in the north of the county.",
        "The club (founded 1901) plays in the second division.",
        "Band (formed 1999 – 2004) was a quartet.",
    ],
)
def test_a_text_of_another_kind_gives_no_dates_of_birth(text: str) -> None:
    found = [f.relation for f in facts(Passage("p", "X", text), 70)]
    assert "director" not in found
    if "founded" in text or "village" in text:
        assert "date of birth" not in found


def test_dates_are_compared_by_year_then_month_then_day() -> None:
    assert date("3 May 1901") == (1901, 5, 3)
    assert date("June 7, 1980") == (1980, 6, 7)
    assert date("1950") == (1950, 0, 0)
    assert date("unknown") is None
    one, two = Fact("A", "date of birth", "3 May 1901"), Fact("B", "date of birth", "1950")
    assert compared(one, two, "earlier") == ("Thus, 1901 is earlier than 1950: A.", True)
    assert compared(one, two, "later") == ("Thus, 1950 is later than 1901: B.", False)
    near = Fact("C", "date of birth", "4 May 1901")
    assert compared(near, one, "earlier") == (
        "Thus, 3 May 1901 is earlier than 4 May 1901: A.",
        False,
    )


def test_dates_that_do_not_decide_are_not_compared() -> None:
    year, day = Fact("A", "date of birth", "1901"), Fact("B", "date of birth", "3 May 1901")
    assert compared(year, day, "earlier") is None
    assert compared(year, year, "earlier") is None
    assert compared(year, Fact("C", "date of birth", "long ago"), "earlier") is None


def test_words_for_one_country_are_the_same_country() -> None:
    one, two = (Fact(s, "country", v) for s, v in (("A", "American"), ("B", "United States")))
    assert same(one, two)[1]
    assert not same(one, Fact("C", "country", "Irish"))[1]


def test_a_title_is_named_without_what_tells_it_from_others() -> None:
    assert bare("Hypocrite (film)") == "Hypocrite"
    assert bare("(film)") == "(film)"


def test_every_relation_that_is_asked_about_can_be_stated_and_looked_for() -> None:
    for relation in (*rules.QUESTIONS, *rules.COMPARISONS, *rules.SAME):
        fact = Fact("Ilse Varn", relation, "1950")
        assert "Ilse Varn" in fact.sentence
        assert "1950" in fact.sentence
        assert fact.needed == f"The {relation} of Ilse Varn is needed."
