"""The analyzer: equal to Lucene's `english`, on recorded and on awkward text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import rows
from multihop.retrievers import english
from multihop.retrievers import words as words_module
from multihop.retrievers.english import STOP_WORDS, analyze
from multihop.retrievers.porter import stem
from multihop.retrievers.words import LONGEST, words


def test_every_recorded_text_is_cut_as_lucene_cuts_it():
    recorded = rows("golden/english_analyzer.jsonl")
    wrong = [row for row in recorded if analyze(row["text"]) != row["tokens"]]
    assert len(recorded) > 10_000
    assert not wrong, f"{len(wrong)} of {len(recorded)} differ, first {wrong[0]}"


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Foxes' and the fox's dens", ["fox", "fox", "den"]),
        ("O’Neil’s ＇s X＇S", ["o’neil", "s", "x"]),
        ("can't U.S.A. a.b:c 3:4", ["can't", "u.s.a", "a.b:c", "3", "4"]),
        ("1,000.5 1,x 3'4;5 -7 5%", ["1,000.5", "1", "x", "3'4;5", "7", "5"]),
        ("snake_case _x __ _1_", ["snake_cas", "_x", "_1_"]),
        ("naïve İstanbul ΟΔΟΣ", ["naïv", "istanbul", "οδοσ"]),
        ("東京タワーとひらがな", ["東", "京", "タワー", "と", "ひ", "ら", "が", "な"]),
        ("서울 ภาษาไทยx ＡＢ１２", ["서울", "ภาษาไทย", "x", "ａｂ１２"]),
        ("צה\"ל ה'5", ['צה"ל', "ה'5"]),
        ("♠ © BoK® 1️⃣ #️⃣ # 🇩🇪🇫🇷🇩", ["♠", "©", "bok", "®", "1️⃣", "#️⃣", "🇩🇪", "🇫🇷"]),
        ("👩‍👩‍👧 👍🏽👍 🤷‍♂️ ☎︎", ["👩‍👩‍👧", "👍🏽", "👍", "🤷‍♂️", "☎"]),
        ("a\u00adb x\u200by z\u0301s", ["a\u00adb", "x", "y", "z\u0301"]),
        ("\U0001d49cs", ["\U0001d49c"]),  # two UTF-16 units and an s: long enough to stem
        ("nul\0nul \ud800x\udfff", ["nul", "nul", "x"]),
        ("", []),
        ("to be or not to be", ["be", "be"][:0]),
    ],
)
def test_awkward_text_is_cut_as_lucene_cuts_it(text, terms):
    assert analyze(text) == terms


@pytest.mark.parametrize(
    "word", ["x" * 255, "x" * 256, "x" * 700, "é" * 300, "\U0001d49c" * 300, "é" + "_" * 700 + "z"]
)
def test_a_word_over_255_units_is_cut_and_nothing_of_it_is_lost(word):
    pieces = words(word)
    assert all(len(piece.encode("utf-16-le")) // 2 <= LONGEST for piece in pieces)
    assert "".join(pieces).replace("_", "") == word.replace("_", "")


@pytest.mark.parametrize(
    "text",
    ["_", "é_", "é" + "a'" * 9, "\u200d", "😀\ufe0f", "#\u0301", 'א"', "🇩", "é_\u0301", "x\u0301"],
)
def test_no_text_takes_more_than_its_length(text):
    def seconds(length: int) -> float:
        long = (text * length)[:length]
        began = time.process_time()
        words(long)
        return time.process_time() - began

    seconds(1000)
    assert seconds(100_000) < 2.0  # quadratic time would be minutes


@given(st.text(alphabet=st.characters(codec=None)))
def test_any_text_gives_terms_without_blanks(text):
    for term in analyze(text):
        assert term
        assert not any(char.isspace() for char in term)


@pytest.mark.parametrize("word", sorted(STOP_WORDS))
def test_stop_words_go_before_stemming_and_not_after(word):
    assert analyze(f"{word} {word.upper()} {word}'s") == []


def test_a_stem_may_look_like_a_stop_word():
    assert analyze("ase") == ["as"]


CLASSES = " ab'._é\t\xa0\u0301中カ👍\u200d\u3000İ\x85"


@given(st.lists(st.sampled_from(["mack", "Mack's", "x" * 130, "_" * 200, "1,000.5", "U.S."])))
def test_what_stands_between_blanks_is_cut_alone(pieces):
    assert analyze(" ".join(pieces)) == [term for piece in pieces for term in analyze(piece)]


@given(st.text(alphabet=st.one_of(st.sampled_from(CLASSES), st.characters(codec=None))))
def test_the_way_by_white_space_agrees_with_the_words_of_the_whole_text(text):
    assert analyze(text) == [term for term in map(english._term, words_module.words(text)) if term]


EUROPEAN = "".join(
    char for char in map(chr, range(0x20AD)) if words_module._EUROPEAN.fullmatch(char)
)


@given(st.text(alphabet=st.one_of(st.sampled_from("ab_1.,':;’ é"), st.sampled_from(EUROPEAN))))
def test_the_short_ways_agree_with_the_long_one(text):
    def told(found: list[str]) -> list[str]:
        return [word for word in found if word.strip("_")]

    assert told(words(text)) == told(words_module._any_words(text))
    assert told(words(text + "猫")) == told(words_module._any_words(text + "猫"))


def test_the_short_way_has_the_characters_of_the_table():
    for char in EUROPEAN:
        kind = words_module._CLASSES[ord(char)]
        assert kind in " AN_:,.'\"k", f"{char!r} is {kind}"
        assert (words(char) == [char]) == (kind in "AN_"), f"{char!r} is {kind}"
        for around, joins in (("x", ":.'"), ("1", ",.'")):
            whole = around + char + around
            assert (words(whole) == [whole]) == (kind in "AN_" + joins), f"{char!r} is {kind}"


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [  # the examples of Porter's paper, step by step
        ("caresses", "caress"), ("ponies", "poni"), ("ties", "ti"), ("cats", "cat"),
        ("feed", "feed"), ("agreed", "agre"), ("plastered", "plaster"), ("bled", "bled"),
        ("motoring", "motor"), ("sing", "sing"), ("conflated", "conflat"), ("troubled", "troubl"),
        ("sized", "size"), ("hopping", "hop"), ("tanned", "tan"), ("falling", "fall"),
        ("hissing", "hiss"), ("fizzed", "fizz"), ("failing", "fail"), ("filing", "file"),
        ("happy", "happi"), ("sky", "sky"), ("relational", "relat"), ("rational", "ration"),
        ("vietnamization", "vietnam"), ("triplicate", "triplic"), ("hopefulness", "hope"),
        ("revival", "reviv"), ("adoption", "adopt"), ("probate", "probat"), ("rate", "rate"),
        ("cease", "ceas"), ("controll", "control"), ("roll", "roll"),
        ("possibly", "possibl"), ("archaeology", "archaeolog"), ("as", "as"), ("ss", "ss"),
    ],
)  # fmt: skip
def test_words_are_stemmed_as_in_porters_paper(word, stemmed):
    assert stem(word) == stemmed
