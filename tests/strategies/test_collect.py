"""What of a ranking joins the collected passages."""

import pytest

from multihop.errors import RetrieverError
from multihop.strategies.collect import Collected
from multihop.strategies.rules import same_pair
from multihop.text import Hit, Passage


def hits(*titles):
    return [Hit(Passage(title, title, f"text of {title}"), 1.0) for title in titles]


@pytest.mark.parametrize("eviction", ["first", "fifo"])
def test_a_ranking_longer_than_the_cap_gives_its_best(eviction):
    collected = Collected(2, same_pair, eviction=eviction)
    assert collected.add(hits("a", "b", "c")) == ("a", "b")
    assert collected.ids == ("a", "b")


def test_with_fifo_a_ranking_pushes_out_older_ones_but_never_the_pinned():
    pinned = Passage("m", "Main", "main")
    collected = Collected(3, same_pair, eviction="fifo", pinned=pinned)
    collected.add(hits("a", "b"))
    assert collected.add(hits("c", "d", "e")) == ("c", "d")
    assert collected.ids == ("m", "c", "d")


def test_a_cap_of_one_holds_the_pinned_passage_alone():
    collected = Collected(1, same_pair, eviction="fifo", pinned=Passage("m", "Main", "main"))
    assert collected.add(hits("a")) == ()


def test_titles_are_compared_without_case_and_blanks():
    collected = Collected(5, same_pair)
    assert collected.add(hits("New York", "new york "), ["NewYork"]) == ("New York", "new york ")
    with pytest.raises(RetrieverError, match="returned 'York'"):
        collected.add(hits("York"), ["NewYork"])
