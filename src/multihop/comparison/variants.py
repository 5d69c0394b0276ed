"""Whether two answers that do not match word for word may still say the same.

Rules of thumb over spelling alone, for sorting wrong answers; no metric uses them.
"""

import re
import unicodedata
from functools import lru_cache

from multihop.metrics.answer import normalize

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_MONTH = {name[:length]: n for n, name in enumerate(_MONTHS, 1) for length in (3, len(name))}
_MONTH["sept"] = 9
_NAMES = "|".join(sorted(_MONTH, key=len, reverse=True))
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(\d{3,4})"
_DATES = (  # order of the groups: day, month, year
    (re.compile(rf"\b{_DAY} (?:of )?({_NAMES}) {_YEAR}\b"), (1, 2, 3)),
    (re.compile(rf"\b({_NAMES}) {_DAY} {_YEAR}\b"), (2, 1, 3)),
    (re.compile(r"\b(\d{4}) (\d{1,2}) (\d{1,2})\b"), (3, 2, 1)),
)
_MONTH_YEAR = re.compile(rf"\b({_NAMES}) (?:of )?(\d{{4}})\b")

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_SMALL = {word: n for n, word in enumerate(_ONES)} | {
    word: 10 * n
    for n, word in enumerate(
        ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), 2
    )
}
_LARGE = {"thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALES = frozenset(
    ("hundred", "dozen", "percent", "per", *_LARGE, *(f"{word}s" for word in _LARGE))
)
"""Words that make another number of the one before them."""

_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    *("tenth", "eleventh", "twelfth"),
)
_ORDINAL = {
    word: f"{n}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(n, 'th') }" for n, word in enumerate(_ORDINALS, 1)
}
_LITTLE = frozenset(("of", "the", "and", "for", "in", "de", "a", "an"))
_BARE = re.compile(r"[^\w\s]")
_WORD = re.compile(r"\w+")


@lru_cache(maxsize=4096)
def plain(text: str) -> tuple[str, ...]:
    """The words of a text in one writing.

    Lower case without accents, articles and punctuation; numbers below a trillion and ordinals to
    the twelfth as digits; a date with its day as one word, as is a month with its year.
    """
    folded = unicodedata.normalize("NFKD", text.casefold())
    folded = "".join(c for c in folded if not unicodedata.combining(c))
    folded = folded.replace("&", " and ").replace("%", " percent ")
    folded = re.sub(r"(?<=\d),(?=\d{3}\b)", "", folded)
    folded = re.sub(r"(?<=\d)\.(?=\d)", "point", folded)
    folded = re.sub(r"['’`.]", "", folded)
    folded = " ".join(_BARE.sub(" ", folded).replace("_", " ").split())
    for form, groups in _DATES:
        folded = form.sub(lambda found, groups=groups: _date(found, groups), folded)  # type: ignore[misc]
    folded = _MONTH_YEAR.sub(lambda f: f" month{f[2]}x{_MONTH[f[1]]:02d} ", folded)
    return tuple(_numbers(normalize(folded).split()))


def _date(found: re.Match[str], groups: tuple[int, int, int]) -> str:
    day, month, year = (found[group] for group in groups)
    number = _MONTH.get(month) or (int(month) if month.isdigit() else 0)
    if not (1 <= number <= 12 and 1 <= int(day) <= 31):
        return found[0]
    return f" date{int(year):04d}x{number:02d}x{int(day):02d} "


def _numbers(words: list[str]) -> list[str]:
    """Number words as digits: "twenty five" as "25", "2 million" as "2000000"."""
    found: list[str] = []
    place = 0
    while place < len(words):
        value, used = _number(words[place:])
        if used:
            found.append(str(value))
            place += used
        else:
            found.append(_ORDINAL.get(words[place], words[place]))
            place += 1
    return found


def _number(words: list[str]) -> tuple[int, int]:
    """The number that a list of words begins with, and how many words it takes; 0 words: none."""
    total = current = used = 0
    last = 10**15  # of what was read, so that "two three" is no 5
    for word in words:
        if word in _SMALL and used and last in range(20, 100) and _SMALL[word] < 10:
            current, last = current + _SMALL[word], _SMALL[word]
        elif word in _SMALL and (not used or last >= 100):
            current, last = current + _SMALL[word], max(1, _SMALL[word])
        elif word.isdecimal() and word.isascii() and not used and len(word) < 16:
            current, last = int(word), 1
        elif word == "hundred" and used and 1 <= current % 1000 < 100:
            current, last = current * 100, 100
        elif word in _LARGE and used and current:
            total, current, last = total + current * _LARGE[word], 0, _LARGE[word]
        else:
            break
        used += 1
    return total + current, used


def contains(text: tuple[str, ...], part: tuple[str, ...]) -> bool:
    """Whether words stand in a text one after the other; no words stand nowhere.

    A number does not stand where the next word makes another of it ("5" in "5 percent").
    """
    if not part or len(part) > len(text):
        return False
    size = len(part)
    number = part[-1].isdecimal()
    for start in range(len(text) - size + 1):
        if text[start : start + size] == part:
            following = text[start + size : start + size + 1]
            if not (number and following and following[0] in _SCALES):
                return True
    return False


def variant(answer: str, gold: str) -> str:
    """How an answer may say what the gold one says; empty when it does not seem to.

    Returns:
        "another writing" of the same date, number or name; "other order" of the same words;
        "initials"; or "a longer or shorter form" of a person's name.
    """
    ours, theirs = plain(answer), plain(gold)
    if not ours or not theirs:
        return ""
    if ours == theirs or "".join(ours) == "".join(theirs):
        return "another writing"
    if len(ours) <= 6 and sorted(ours) == sorted(theirs):
        return "other order"
    if _initials(answer, gold) or _initials(gold, answer):
        return "initials"
    if _same_person(answer, gold):
        return "a longer or shorter form"
    return ""


def _initials(short: str, long: str) -> bool:
    letters = re.sub(r"[^\w]", "", short)
    words = [w for w in _WORD.findall(long) if w.lower() not in _LITTLE]
    return (
        2 <= len(letters) <= 6
        and letters.isupper()
        and len(words) == len(letters)
        and "".join(word[0] for word in words).upper() == letters
    )


def _same_person(one: str, other: str) -> bool:
    """Two or more names with the same first and last one, all of the shorter in the longer."""
    short, long = sorted((_WORD.findall(one), _WORD.findall(other)), key=len)
    if len(short) < 2 or len(long) - len(short) not in (1, 2):
        return False
    if not all(word[0].isupper() and word.isalpha() for word in (*short, *long)):
        return False
    rest = iter(plain(" ".join(long)))
    shorter = plain(" ".join(short))
    ends = plain(short[0]) == plain(long[0]) and plain(short[-1]) == plain(long[-1])
    return ends and all(word in rest for word in shorter)
