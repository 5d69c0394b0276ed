"""The proxy's rule, case by case."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import rows
from multihop.chain_errors.overlap import check, ranked
from multihop.prompts.answers import stated
from multihop.text import Passage

MACK = Passage("1", "Mack Rides", "Mack Rides is a maker of rides from Waldkirch in Germany.")
LOST = Passage("2", "Lost Gravity", "Lost Gravity opened on 24 March 2016, with 1,200 seats.")
ZOE = Passage("3", "Zoë Quist", "Zoë Quist (born 1971) is an Italian painter; she made 9 murals.")
ALL = (MACK, LOST, ZOE)


@pytest.mark.parametrize(
    "sentence",
    [
        "Mack Rides is from Germany.",
        "Mack Rides is a German maker.",  # found in its country
        "Zoe Quist's home is Italy.",  # no accent, possessive, and the country for the adjective
        "Lost Gravity opened on March 24th, 2016.",
        "Lost Gravity has 1200 seats.",
        "Lost Gravity opened in 2016 and Zoë Quist was born in 1971.",  # two passages
        "Under Zoë Quist nothing opened.",  # a first word that begins no name
        "She made nine murals.",
        "2016 - 1971 = 45.",  # the result is reckoned, not read
        "...",
    ],
)
def test_what_the_passages_hold_is_supported(sentence) -> None:
    found = check(sentence, ALL)
    assert (found.verdict, found.missing) == ("supported", ())


@pytest.mark.parametrize(
    ("sentence", "missing"),
    [
        ("Mack Rides is from Italy.", ("Italy",)),  # held by a passage about something else...
        ("Lost Gravity opened in 2017.", ("2017",)),
        ("Lost Gravity has 120 seats.", ("120",)),
        ("Zoë Quist was born in 1971 in Oslo.", ("Oslo",)),
        ("2016 - 1971 = 44.", ("44",)),
        ("Mack Rides, Lost Gravity and Zoë Quist are one.", ("Zoë", "Quist")),
    ],
)
def test_a_name_or_number_that_is_not_there_is_told(sentence, missing) -> None:
    passages = (MACK, LOST) if sentence.startswith("Mack Rides is from") else ALL
    found = check(sentence, passages)
    assert (found.verdict, found.missing) == ("not mentioned", missing)


def test_two_passages_together_may_bear_a_sentence_out_and_three_may_not() -> None:
    found = check("In Germany, 2016 and Zoë.", ALL)
    assert found.verdict == "not mentioned"
    assert len(found.passages) == 2
    assert len(found.missing) == 1


def test_a_sentence_without_names_needs_half_of_its_words() -> None:
    half = check("it made murals yesterday quickly", (ZOE,))
    assert (half.verdict, half.content) == ("supported", 0.5)
    less = check("it made sculptures yesterday", (ZOE,))
    assert (less.verdict, less.content) == ("not mentioned", pytest.approx(1 / 3))


def test_where_names_stand_other_words_are_not_asked_for() -> None:
    assert check("Mack Rides bankrupted countless competitors.", ALL).verdict == "supported"


def test_without_passages_nothing_is_supported_but_silence() -> None:
    assert check("Mack Rides is from Germany.", ()).verdict == "not mentioned"
    assert check("it was so painted", ()).verdict == "not mentioned"
    assert check("?!", ()).verdict == "supported"


def test_the_passage_that_covers_most_comes_first() -> None:
    found = check("Zoë Quist was born in 1971, after Germany.", ALL)
    assert [p.id for p in found.passages] == ["3", "1"]
    assert [p.id for p in ranked("Waldkirch in Germany", ALL, 1)] == ["1"]
    assert [p.id for p in ranked("nothing of it", ALL, 5)] == ["1", "2", "3"]


@given(st.text(max_size=60), st.permutations(ALL))
def test_any_text_gets_a_verdict_whatever_the_order_of_passages(sentence, passages) -> None:
    found = check(sentence, passages)
    assert found.verdict in ("supported", "not mentioned")
    assert 0 <= found.content <= 1
    assert check(sentence, passages) == found


@given(st.text(max_size=60))
def test_a_passage_bears_itself_out(text) -> None:
    assert check(text, [Passage("x", "", text)]).verdict == "supported"


def test_annotated_chains_are_nearly_always_borne_out_by_their_passages() -> None:
    """The rate of false alarms that docs/chain-errors.md gives."""
    alarms = checked = 0
    for name in ("hotpotqa", "2wikimultihopqa", "musique", "iirc"):
        for row in rows(f"data/{name}_demonstrations.jsonl"):
            passages = [Passage(str(p["id"]), p["title"], p["text"]) for p in row["paragraphs"]]
            for sentence in row["cot_sentences"]:
                if stated(sentence) is None:
                    checked += 1
                    alarms += check(sentence, passages).verdict != "supported"
    assert checked == 240
    assert alarms <= 11, json.dumps({"alarms": alarms})
