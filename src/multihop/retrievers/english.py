"""Words of a text as Lucene's `english` analyzer cuts them, so that BM25 scores agree.

The chain is Lucene's: word segmentation (UAX #29), possessive 's off, lower case, 33 stop
words off, Porter's first stemmer. Positions are not kept; BM25 needs none.
"""

import re
from functools import lru_cache

import regex

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their "
    "then there these they this to was will with".split()
)

MAX_TOKEN_LENGTH = 255
"""In UTF-16 units, as Lucene counts: a longer word is cut into pieces of this length."""


def analyze(text: str) -> list[str]:
    """Cut a text into index terms.

    Args:
        text: Anything, also empty, with NUL or with lone surrogates (which are no words).

    Returns:
        The terms in order, repeats included; none holds white space or is empty.
    """
    return [term for word in _words(text) if (term := _term(word))]


# --- Word segmentation (UAX #29) -------------------------------------------------------------

# The text is mapped to one class letter a character, and words are found in that string.
_PROPERTIES = {
    "E": r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]",
    "H": r"\p{WB=Hebrew_Letter}",
    "A": r"\p{WB=ALetter}",
    "N": r"\p{WB=Numeric}",
    "K": r"\p{WB=Katakana}",
    "_": r"\p{WB=ExtendNumLet}",
    ":": r"\p{WB=MidLetter}",
    ",": r"\p{WB=MidNum}",
    ".": r"\p{WB=MidNumLet}",
    "'": r"\p{WB=Single_Quote}",
    '"': r"\p{WB=Double_Quote}",
    "S": r"\p{LB=SA}",
    "J": r"\p{Script=Han}",
    "G": r"\p{Script=Hiragana}",
}


class _Classes(dict[int, str]):
    def __init__(self) -> None:
        self.patterns = [(k, regex.compile(p)) for k, p in _PROPERTIES.items()]

    def __missing__(self, code: int) -> str:
        char = chr(code)
        name = next((name for name, p in self.patterns if p.match(char)), " ")
        self[code] = name
        return name


_CLASSES = _Classes()
_LETTERS = "(?:(?:AE*|HE*)(?:(?:(?:_E*)*|[:.']E*)(?:AE*|HE*))*)"
_NUMBERS = "(?:NE*(?:(?:(?:_E*)*|[,.']E*)NE*)*)"
_RUN = f"""(?:KE*(?:(?:_E*)*KE*)*|(?:HE*(?:'E*|"E*HE*)|{_NUMBERS}|{_LETTERS})+)"""
_WORD = re.compile(f"(?:_E*)*{_RUN}(?:(?:_E*)+{_RUN})*(?:_E*)*|(?:SE*)+|JE*|GE*")
_ASCII_WORD = re.compile(
    r"\w+(?:(?:(?<=[A-Za-z])[:.'](?=[A-Za-z])|(?<=[0-9])[,;.'](?=[0-9]))\w+)*", re.ASCII
)


def _words(text: str) -> list[str]:
    if text.isascii():
        words = _ASCII_WORD.findall(text)
        if not words or max(map(len, words)) <= MAX_TOKEN_LENGTH:
            return words
    return _any_words(text)


def _any_words(text: str) -> list[str]:
    classes = text.translate(_CLASSES)
    words = []
    at = 0
    while found := _WORD.search(classes, at):
        start, at = found.span()
        if at - start > MAX_TOKEN_LENGTH // 2 and _units(text[start:at]) > MAX_TOKEN_LENGTH:
            at = _WORD.match(classes, start, _window_end(text, start)).end()
        words.append(text[start:at])
    return words


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _window_end(text: str, start: int) -> int:
    room = MAX_TOKEN_LENGTH
    for end in range(start, len(text)):
        room -= 1 + (text[end] > "\uffff")
        if room < 0:
            return end
    return len(text)


# --- One word --------------------------------------------------------------------------------


@lru_cache(1 << 17)
def _term(word: str) -> str:
    """The index term of a word; empty for a stop word."""
    if word[-2:-1] in ("'", "\u2019", "\uff07") and word[-1] in "sS":
        word = word[:-2]
    term = _lower(word)
    if term in STOP_WORDS or not term.strip("_"):
        return ""
    if all(char <= "\uffff" for char in term):
        return stem(term)
    units = term.encode("utf-16-le", "surrogatepass")
    split = "".join(chr(units[i] | units[i + 1] << 8) for i in range(0, len(units), 2))
    return stem(split).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _lower(word: str) -> str:
    # Java lowers character by character: no final sigma, and I with dot becomes plain i.
    if word.isascii() or not ("\u0130" in word or "\u03a3" in word):
        return word.lower()
    return "".join(char.lower()[0] for char in word)


# --- Porter's stemmer ------------------------------------------------------------------------

_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize",
    "bli": "ble", "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous",
    "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al", "iveness": "ive",
    "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble",
    "logi": "log",
}  # fmt: skip
_STEP_3 = {
    "icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "",
    "ness": "",
}  # fmt: skip
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion",
    "ou", "ism", "ate", "iti", "ous", "ive", "ize",
)  # fmt: skip


def stem(word: str) -> str:
    """Stem one lower-case word (Porter, 1980, with Porter's own later -bli and -logi).

    Args:
        word: Lower case; letters other than a to z count as consonants. Words of one or two
            characters stay as they are.
    """
    if len(word) <= 2:
        return word
    word = _step_1(word)
    word = _replace(word, _STEP_2)
    word = _replace(word, _STEP_3)
    word = _step_4(word)
    return _step_5(word)


def _consonants(word: str) -> str:
    """The word as c's and v's; y is a vowel after a consonant."""
    kinds = ""
    for char in word:
        vowel = char in "aeiou" or (char == "y" and kinds.endswith("c"))
        kinds += "v" if vowel else "c"
    return kinds


def _measure(stem: str) -> int:
    """Porter's m: how many vowel runs are followed by a consonant."""
    return _consonants(stem).count("vc")


def _ends_double(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _consonants(word)[-1] == "c"


def _ends_cvc(word: str) -> bool:
    return _consonants(word).endswith("cvc") and word[-1] not in "wxy"


def _step_1(word: str) -> str:
    # Plurals.
    if word.endswith("sses") or word.endswith("ies"):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    # -ed and -ing.
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            word = word[:-1]
    else:
        for suffix in ("ed", "ing"):
            if word.endswith(suffix) and "v" in _consonants(word[: -len(suffix)]):
                word = word[: -len(suffix)]
                if word.endswith(("at", "bl", "iz")):
                    word += "e"
                elif _ends_double(word):
                    if word[-1] not in "lsz":
                        word = word[:-1]
                elif _measure(word) == 1 and _ends_cvc(word):
                    word += "e"
                break
    # y after a vowel somewhere.
    if word.endswith("y") and "v" in _consonants(word[:-1]):
        word = word[:-1] + "i"
    return word


def _longest_suffix(word: str, suffixes: object) -> str:
    found = [s for s in suffixes if word.endswith(s)]  # type: ignore[attr-defined]
    return max(found, key=len, default="")


def _replace(word: str, table: dict[str, str]) -> str:
    suffix = _longest_suffix(word, table)
    if suffix and _measure(word[: -len(suffix)]) > 0:
        return word[: -len(suffix)] + table[suffix]
    return word


def _step_4(word: str) -> str:
    suffix = _longest_suffix(word, _STEP_4)
    if suffix == "ion" and word[:-3][-1:] not in ("s", "t"):
        return word
    if suffix and _measure(word[: -len(suffix)]) > 1:
        return word[: -len(suffix)]
    return word


def _step_5(word: str) -> str:
    whole = _measure(word)
    if word.endswith("e"):
        m = _measure(word[:-1])
        if m > 1 or (m == 1 and not _ends_cvc(word[:-1])):
            word = word[:-1]
    if word.endswith("l") and _ends_double(word) and whole > 1:
        word = word[:-1]
    return word
