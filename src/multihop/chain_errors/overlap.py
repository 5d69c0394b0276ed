"""The proxy that asks no model: do a sentence's names, numbers and words stand in the passages?

A sentence is `supported` when the two passages that cover it best, taken together, hold

- every number of it (years and days of the month too; "1,200" is "1200", "19th" is "19"), and
- every name: a capitalised word of two letters or more that is not the sentence's first; the
  first word too when the next one is capitalised. Case, accents and a possessive 's do not
  count, and an adjective is found in its country's name and the other way ("Italian", "Italy").

The result of a sum that is right ("1864 - 1811 = 53") is not looked for.

One that has neither names nor numbers needs at least `CONTENT` of its words, less stop words
and stemmed. Else it is `not mentioned`. Two passages, because a comparison has two ("X is older
than Y").

The proxy sees neither order nor negation nor the verb: "A killed B" is supported by "B killed A".
It errs the other way where a passage gives a name in another form. How often it does is measured
in docs/chain-errors.md, where the thresholds come from.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from multihop.chain_errors.chains import Chain
from multihop.chain_errors.verdicts import Key, Verdict
from multihop.retrievers.english import analyze
from multihop.text import Passage

CONTENT = 0.5
"""Least share of the words of a sentence without names and numbers. Where there are some, asking
for words too costs four times the false alarms and finds little more."""

TOGETHER = 2
"""Most passages that may bear one sentence out."""

_WORD = re.compile(r"\d+(?:[.,]\d+)*(?:st|nd|rd|th|s)?(?!\w)|\w+(?:['’]\w+)*")
_NUMBER = re.compile(r"(\d+(?:[.,]\d+)*)(?:st|nd|rd|th|s)?")
_SUM = re.compile(r"(\d[\d,]*(?:\.\d+)?) ?([-–−+]) ?(\d[\d,]*(?:\.\d+)?) ?= ?(\d[\d,]*(?:\.\d+)?)")
_POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
_DIGITS = {word: str(number) for number, word in enumerate(_COUNTED.split())}

_ADJECTIVES = """
afghan:afghanistan albanian:albania algerian:algeria america:united american:united
argentine:argentina armenian:armenia australian:australia austrian:austria
azerbaijani:azerbaijan bangladeshi:bangladesh belgian:belgium bolivian:bolivia bosnian:bosnia
brazilian:brazil british:britain bulgarian:bulgaria canadian:canada chilean:chile chinese:china
colombian:colombia croatian:croatia cuban:cuba czech:czechoslovakia danish:denmark
dutch:netherlands egyptian:egypt english:england estonian:estonia ethiopian:ethiopia
finnish:finland french:france georgian:georgia german:germany ghanaian:ghana greek:greece
hungarian:hungary icelandic:iceland indian:india indonesian:indonesia iranian:iran iraqi:iraq
irish:ireland israeli:israel italian:italy jamaican:jamaica japanese:japan kenyan:kenya
korean:korea latvian:latvia lebanese:lebanon lithuanian:lithuania malaysian:malaysia
mexican:mexico moroccan:morocco nigerian:nigeria norwegian:norway pakistani:pakistan
persian:persia peruvian:peru philippine:philippines polish:poland portuguese:portugal
romanian:romania russian:russia scottish:scotland serbian:serbia slovak:slovakia
slovene:slovenia soviet:ussr spanish:spain swedish:sweden swiss:switzerland syrian:syria
thai:thailand tunisian:tunisia turkish:turkey ukrainian:ukraine venezuelan:venezuela
vietnamese:vietnam welsh:wales
"""
_COUNTRIES = dict(pair.split(":") for pair in _ADJECTIVES.split())
"""Countries by their adjectives; of names of several words, the first."""

_OPENING = """
according after although and as at because before both but by during for from he hence her his
how however in it its of on since so that the their there therefore these they this those thus
under until what when where which while who whose with
"""
_OPENERS = frozenset(_OPENING.split())
"""First words that begin no name although a capitalised word follows."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """What the proxy found.

    Attributes:
        verdict: "supported" or "not mentioned".
        passages: The passages that cover the sentence best, at most `TOGETHER`, best first.
        missing: Names and numbers that stand in none of them, as written.
        content: Share of the other words that stand in them, in [0, 1]; 1 when there are none.
    """

    verdict: Verdict
    passages: tuple[Passage, ...]
    missing: tuple[str, ...]
    content: float


def check(sentence: str, passages: Sequence[Passage]) -> Overlap:
    """Look for a sentence's names, numbers and words in the passages.

    Args:
        sentence: One that claims something; one without any word is supported by anything.
        passages: Where to look; titles count like text. With none nothing is supported but a
            sentence without words.
    """
    anchors, words = _parts(sentence)
    wanted = {*anchors, *words}
    chosen: list[Passage] = []
    held: set[str] = set()
    # The passage that holds most first, then the one that adds most; names and numbers weigh
    # more than any number of words.
    while len(chosen) < TOGETHER and held < wanted:
        gains = [_held(p, anchors, words) - held for p in passages]
        weights = [sum(1000 if term in anchors else 1 for term in gain) for gain in gains]
        best = max(weights, default=0)
        if not best:
            break
        place = weights.index(best)
        chosen.append(passages[place])
        held |= gains[place]
    missing = tuple(dict.fromkeys(shown for term, shown in anchors.items() if term not in held))
    share = len(words & held) / len(words) if words else 1.0
    supported = not missing if anchors else share >= CONTENT
    return Overlap("supported" if supported else "not mentioned", tuple(chosen), missing, share)


def by_overlap(chains: Sequence[Chain]) -> dict[Key, Verdict]:
    """The proxy's verdict on every sentence; those without a claim are `no claim`."""
    return {
        (chain.run, chain.question_id, sentence.number): check(
            sentence.text, chain.passages
        ).verdict
        if sentence.claims
        else "no claim"
        for chain in chains
        for sentence in chain.sentences
    }


def names_and_numbers(sentence: str) -> list[str]:
    """What of a sentence must stand in the passages, as written."""
    return list(_parts(sentence)[0].values())


def ranked(sentence: str, passages: Sequence[Passage], most: int) -> list[Passage]:
    """The passages that share most with a sentence, best first; equal ones in their order."""
    anchors, words = _parts(sentence)

    def weight(passage: Passage) -> int:
        held = _held(passage, anchors, words)
        return sum(3 if term in anchors else 1 for term in held)

    return sorted(passages, key=weight, reverse=True)[:most]


def _parts(sentence: str) -> tuple[dict[str, str], frozenset[str]]:
    """Names and numbers by what is looked for, as written; and the stems of the other words."""
    found = [match[0] for match in _WORD.finditer(_SUM.sub(_without_result, sentence))]
    anchors: dict[str, str] = {}
    words: set[str] = set()
    for place, word in enumerate(found):
        if number := _NUMBER.fullmatch(word):
            anchors[_digits(number[1])] = word
        elif _is_name(found, place):
            anchors[_name(word)] = word
        else:
            words.update(_stems(word))
    return anchors, frozenset(words - anchors.keys())


def _without_result(written: re.Match[str]) -> str:
    """A sum without its result where that is right, as it stands where it is wrong."""
    first, sign, second, result = (part.replace(",", "") for part in written.groups())
    reckoned = float(first) + float(second) * (1 if sign == "+" else -1)
    right = abs(reckoned - float(result)) < 1e-9 * max(1.0, abs(reckoned))
    return written[0].rpartition("=")[0] if right else written[0]


def _is_name(found: Sequence[str], place: int) -> bool:
    word = found[place]
    if len(word) < 2 or not word[0].isupper() or not _stems(word):
        return False
    if place > 0:
        return True
    follows = found[1] if len(found) > 1 else ""
    return follows[:1].isupper() and word.lower() not in _OPENERS


def _held(passage: Passage, anchors: dict[str, str], words: frozenset[str]) -> set[str]:
    """Which of the terms a passage holds."""
    plain, stems = _terms(passage.title, passage.text)
    return {term for term in anchors if term in plain} | (words & stems)


@lru_cache(4096)
def _terms(title: str, text: str) -> tuple[frozenset[str], frozenset[str]]:
    """What names and numbers are looked for among, and what words are."""
    plain: set[str] = set()
    stems: set[str] = set()
    for match in _WORD.finditer(f"{title}\n{text}"):
        word = match[0]
        if number := _NUMBER.fullmatch(word):
            plain.add(_digits(number[1]))
            stems.add(_digits(number[1]))
            continue
        plain.add(_name(word))
        stems.update(_stems(word))
    return frozenset(plain), frozenset(stems)


def _digits(number: str) -> str:
    return re.sub(r",(?=\d{3}(?!\d))", "", number)


def _folded(word: str) -> str:
    """Lower case, without accents, possessive 's and apostrophes."""
    word = unicodedata.normalize("NFKD", _POSSESSIVE.sub("", word).casefold())
    return "".join(c for c in word if not unicodedata.combining(c) and c not in "'’")


def _name(word: str) -> str:
    plain = _folded(word)
    return _COUNTRIES.get(plain, plain)


def _stems(word: str) -> list[str]:
    plain = _folded(word)
    return analyze(_DIGITS.get(plain, plain))
