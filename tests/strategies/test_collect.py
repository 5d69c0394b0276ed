"""What of a ranking joins the collected passages."""

import math
from fractions import Fraction

import pytest

from multihop.errors import RetrieverError
from multihop.strategies.collect import Collected, look_up
from multihop.strategies.rules import same_pair
from multihop.strategies.titles import map_titles
from multihop.text import Hit, Passage, Question
from multihop.trace import Trace, fold


class Gives:
    """A retriever that gives what it was told, whatever it is asked."""

    name = "gives"

    def __init__(self, *rankings):
        self.rankings = list(rankings)

    async def search(self, queries, k):
        return self.rankings


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


async def look_both_ways(retriever):
    """By the loop's search and by the search for pages."""
    found = await look_up(retriever, "a", 2, Collected(5, same_pair))
    searches, _ = await map_titles(retriever, ["a"])
    return [found, *searches]


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
async def test_a_score_that_is_no_number_is_an_error_of_the_retriever(score):
    retriever = Gives([Hit(Passage("p", "P", ""), 1.0), Hit(Passage("q", "Q", ""), score)])
    with pytest.raises(RetrieverError, match=f"gives: the score of 'q' is {score}"):
        await look_up(retriever, "a", 2, Collected(5, same_pair))
    with pytest.raises(RetrieverError, match="the score of 'q'"):
        await map_titles(retriever, ["a"])


@pytest.mark.parametrize("rankings", [[], [hits("a"), hits("b")]])
async def test_a_ranking_too_many_or_too_few_is_an_error_of_the_retriever(rankings):
    with pytest.raises(RetrieverError, match=f"gave {len(rankings)} rankings for one query"):
        await look_up(Gives(*rankings), "a", 2, Collected(5, same_pair))
    with pytest.raises(RetrieverError, match="rankings for one query"):
        await map_titles(Gives(*rankings), ["a"])


async def test_scores_of_arrays_go_into_traces():
    for score in (Fraction(1, 2), 1, True):
        for search in await look_both_ways(Gives([Hit(Passage("p", "P", ""), score)])):
            [hit] = search.hits
            assert type(hit.score) is float
            line = fold(Question("?"), "s", [search]).to_json()
            assert Trace.from_json(line).steps == (search,)
