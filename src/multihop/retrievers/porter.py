"""Porter's first stemmer, with the exact results of Lucene's.

Source: M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the two
changes that Porter himself made later (-bli for -abli, and -logi), and words of one or two
letters left alone. The steps are numbered as in the paper.

A word goes with its shape, one letter a character: c (consonant) or v (vowel). No character's
class depends on what follows it, so that the shape of a word's beginning is the beginning of
its shape; the paper's m (how often vowels are followed by a consonant) is a count in it.
"""

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
_STEP_4 = dict.fromkeys(
    ("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion",
     "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
    "",
)  # fmt: skip


def stem(word: str) -> str:
    """Stem one lower-case word.

    Args:
        word: Letters other than a to z, and anything else, count as consonants.
    """
    if len(word) <= 2:
        return word
    word, shape = _step_1(word, _shape(word))
    word, shape = _replaced(word, shape, _ENDINGS_2, 1)
    word, shape = _replaced(word, shape, _ENDINGS_3, 1)
    if not word.endswith("ion") or word.endswith(("sion", "tion")):
        word, shape = _replaced(word, shape, _ENDINGS_4, 2)
    return _step_5(word, shape)


class _Classes(dict[int, int]):
    """For `str.translate`: every character but the vowels is a consonant."""

    def __missing__(self, code: int) -> int:
        return ord("c")


_CLASSES = _Classes(str.maketrans("aeiouy", "vvvvvy"))


def _shape(word: str) -> str:
    """The word's letters as c and v; y is a vowel after a consonant."""
    shape = word.translate(_CLASSES)
    at = shape.find("y")
    while at >= 0:
        vowel = at and shape[at - 1] == "c"
        shape = f"{shape[:at]}{'v' if vowel else 'c'}{shape[at + 1 :]}"
        at = shape.find("y", at + 1)
    return shape


_Endings = dict[str, tuple[tuple[str, str, str], ...]]


def _endings(table: dict[str, str]) -> _Endings:
    """Suffix, replacement and its shape, longest suffix first, by their last two letters."""
    by_end: dict[str, list[tuple[str, str, str]]] = {}
    for suffix in sorted(table, key=len, reverse=True):
        row = (suffix, table[suffix], _shape(table[suffix]))
        by_end.setdefault(suffix[-2:], []).append(row)
    return {end: tuple(rows) for end, rows in by_end.items()}


_ENDINGS_2, _ENDINGS_3, _ENDINGS_4 = map(_endings, (_STEP_2, _STEP_3, _STEP_4))


def _replaced(word: str, shape: str, endings: _Endings, least: int) -> tuple[str, str]:
    """Replace the longest suffix of the table where the stem's measure is large enough."""
    for suffix, other, its_shape in endings.get(word[-2:], ()):
        if word.endswith(suffix):
            end = len(word) - len(suffix)
            if shape.count("vc", 0, end) >= least:
                return word[:end] + other, shape[:end] + its_shape
            break
    return word, shape


def _ends_double(word: str, shape: str) -> bool:
    """The paper's *d: the same consonant twice."""
    return word[-1:] == word[-2:-1] != "" and shape[-1] == "c"


def _ends_cvc(word: str, shape: str) -> bool:
    """The paper's *o: consonant, vowel, consonant other than w, x and y."""
    return shape.endswith("cvc") and word[-1] not in "wxy"


def _step_1(word: str, shape: str) -> tuple[str, str]:
    # 1a: plurals.
    if word[-1] == "s":
        if word.endswith(("sses", "ies")):
            word, shape = word[:-2], shape[:-2]
        elif not word.endswith("ss"):
            word, shape = word[:-1], shape[:-1]
    # 1b: -eed, -ed, -ing.
    if word.endswith("eed"):
        if "vc" in shape[:-3]:
            word, shape = word[:-1], shape[:-1]
    elif word.endswith("ed"):
        if "v" in shape[:-2]:
            word, shape = _mended(word[:-2], shape[:-2])
    elif word.endswith("ing") and "v" in shape[:-3]:
        word, shape = _mended(word[:-3], shape[:-3])
    # 1c: final y.
    if word.endswith("y") and "v" in shape[:-1]:
        word, shape = word[:-1] + "i", shape[:-1] + "v"
    return word, shape


def _mended(word: str, shape: str) -> tuple[str, str]:
    """Give a stem that lost -ed or -ing its e back, or undouble it."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e", shape + "v"
    if _ends_double(word, shape):
        return (word, shape) if word[-1] in "lsz" else (word[:-1], shape[:-1])
    if shape.count("vc") == 1 and _ends_cvc(word, shape):
        return word + "e", shape + "v"
    return word, shape


def _step_5(word: str, shape: str) -> str:
    # 5a: final e. 5b: final ll, by the measure of the word as it came in.
    whole = shape.count("vc")
    if word.endswith("e"):
        m = shape.count("vc", 0, len(word) - 1)
        if m > 1 or (m == 1 and not _ends_cvc(word[:-1], shape[:-1])):
            word, shape = word[:-1], shape[:-1]
    if word.endswith("l") and _ends_double(word, shape) and whole > 1:
        word = word[:-1]
    return word
