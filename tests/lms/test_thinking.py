"""Thinking and stop strings are found wherever a stream is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihop.lms.stops import StopCutter
from multihop.lms.thinking import ThinkingSplitter


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(p % (len(text) + 1) for p in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def split(pieces, **options):
    splitter = ThinkingSplitter(**options)
    fed = [splitter.feed(piece) for piece in pieces]
    fed.append(splitter.finish())
    return "".join(a for a, _ in fed), "".join(t for _, t in fed), splitter.stray


@pytest.mark.parametrize(
    ("text", "answer", "thinking"),
    [
        ("Mack Rides.", "Mack Rides.", ""),
        ("<think>a b</think>\n\nMack", "Mack", "a b"),
        ("\n <think>a</think>b", "b", "a"),
        ("<think></think>b", "b", ""),
        ("<think>never ends", "", "never ends"),
        ("<think>a</thin", "", "a</thin"),
        ("<think>a</think>", "", "a"),
        ("<think>a<think>b</think>c", "c", "a<think>b"),
        ("<think>a</think>b <think>c</think>", "b <think>c</think>", "a"),
        ("The tag <think> is odd", "The tag <think> is odd", ""),
        ("<thin", "<thin", ""),
        ("<thing>", "<thing>", ""),
        (" ", " ", ""),
        ("", "", ""),
    ],
)
def test_only_what_stands_before_the_answer_is_thinking(text, answer, thinking):
    assert split([text]) == (answer, thinking, False)
    assert split(list(text)) == (answer, thinking, False)


def test_a_prompt_may_have_opened_the_thinking():
    assert split(["a</th", "ink>\nb"], opened=True) == ("b", "a", False)


@pytest.mark.parametrize("pieces", [["a</think>b"], list("a</think>b"), ["a</", "think>"]])
def test_a_closing_tag_that_nothing_opened_is_noticed(pieces):
    assert split(pieces)[2]


PARTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "th", " ", "\n", "a", "é漢", "</", ">"]),
    max_size=12,
).map("".join)


@given(PARTS, st.lists(st.integers(0, 100), max_size=6), st.booleans())
def test_where_a_stream_is_cut_never_changes_the_split(text, places, opened):
    whole = split([text], opened=opened)
    assert split(cut(text, places), opened=opened) == whole
    assert split(list(text), opened=opened) == whole


@given(PARTS.filter(lambda text: "<think>" not in text and "</think>" not in text))
def test_text_without_tags_is_the_answer_to_the_byte(text):
    assert split([text]) == (text, "", False)


def keep(pieces, stops):
    cutter = StopCutter(stops)
    kept = "".join(cutter.feed(piece) for piece in pieces)
    return kept + cutter.finish(), cutter.hit


@pytest.mark.parametrize(
    ("text", "stops", "kept", "hit"),
    [
        ("One.\nTwo", ("\n",), "One.", True),
        ("One. Two", ("\n",), "One. Two", False),
        ("a STO", ("STOP",), "a STO", False),
        ("aab", ("ab",), "a", True),
        ("xabc", ("abc", "b"), "xa", True),  # "b" is complete first
        ("xbc", ("c", "bc"), "x", True),
        ("\nrest", ("\n",), "", True),
        ("abc", (), "abc", False),
        ("abc", ("",), "abc", False),
    ],
)
def test_text_ends_before_the_stop_string_that_is_complete_first(text, stops, kept, hit):
    assert keep([text], stops) == (kept, hit)
    assert keep(list(text), stops) == (kept, hit)


WORDS = st.text("ab\n", max_size=4)


@given(
    st.text("ab\nc", max_size=20),
    st.lists(WORDS, max_size=3),
    st.lists(st.integers(0, 100), max_size=6),
)
def test_where_a_stream_is_cut_never_changes_where_it_stops(text, stops, places):
    whole = keep([text], stops)
    assert keep(cut(text, places), stops) == whole
    assert keep(list(text), stops) == whole
    kept, hit = whole
    assert text.startswith(kept)
    assert hit == any(stop and stop in text for stop in stops)
    assert not any(stop and stop in kept for stop in stops)
