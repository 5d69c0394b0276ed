"""Porter's first stemmer, with the exact results of Lucene's.

Source: M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the two
changes that Porter himself made later (-bli for -abli, and -logi), and words of one or two
letters left alone. The steps are numbered as in the paper.
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
    word = _step_1(word)
    word = _replaced(word, _STEP_2, 1)
    word = _replaced(word, _STEP_3, 1)
    if not word.endswith("ion") or word.endswith(("sion", "tion")):
        word = _replaced(word, _STEP_4, 2)
    return _step_5(word)


def _shape(word: str) -> str:
    """The word's letters as c (consonant) and v (vowel); y is a vowel after a consonant."""
    shape = ""
    for char in word:
        vowel = char in "aeiou" or (char == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    """The paper's m: how often vowels are followed by a consonant."""
    return _shape(stem).count("vc")


def _has_vowel(stem: str) -> bool:
    return "v" in _shape(stem)


def _ends_double(word: str) -> bool:
    """The paper's *d: the same consonant twice."""
    return word[-1:] == word[-2:-1] != "" and _shape(word)[-1] == "c"


def _ends_cvc(word: str) -> bool:
    """The paper's *o: consonant, vowel, consonant other than w, x and y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _step_1(word: str) -> str:
    # 1a: plurals.
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    # 1b: -eed, -ed, -ing.
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            word = word[:-1]
    else:
        for suffix in ("ed", "ing"):
            if word.endswith(suffix) and _has_vowel(word[: -len(suffix)]):
                word = _mended(word[: -len(suffix)])
                break
    # 1c: final y.
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    return word


def _mended(stem: str) -> str:
    """Give a stem that lost -ed or -ing its e back, or undouble it."""
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _ends_double(stem):
        return stem if stem[-1] in "lsz" else stem[:-1]
    if _measure(stem) == 1 and _ends_cvc(stem):
        return stem + "e"
    return stem


def _replaced(word: str, suffixes: dict[str, str], least: int) -> str:
    """Replace the longest suffix of the table where the stem's measure is large enough."""
    found = max((s for s in suffixes if word.endswith(s)), key=len, default="")
    stem = word[: len(word) - len(found)]
    return stem + suffixes[found] if found and _measure(stem) >= least else word


def _step_5(word: str) -> str:
    # 5a: final e. 5b: final ll, by the measure of the word as it came in.
    whole = _measure(word)
    if word.endswith("e"):
        m = _measure(word[:-1])
        if m > 1 or (m == 1 and not _ends_cvc(word[:-1])):
            word = word[:-1]
    if word.endswith("l") and _ends_double(word) and whole > 1:
        word = word[:-1]
    return word
