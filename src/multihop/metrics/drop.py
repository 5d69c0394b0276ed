"""DROP's EM and F1: lists of spans, token sets, numbers that must agree.

IRCoT chooses hyper-parameters by this F1 and reports IIRC with it.
"""

import re
import string
from collections.abc import Sequence

from multihop.metrics.answer import repair_unicode
from multihop.metrics.assignment import assign
from multihop.metrics.base import Score, harmonic

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def drop(
    predictions: Sequence[str], golds: Sequence[Sequence[str]], *, fix_unicode: bool = True
) -> Score:
    """DROP's EM, F1, precision and recall of a list answer.

    Spans are aligned one to one so that their token-set F1 sums highest; the three numbers are
    means over that one alignment, spans without a partner counting 0, rounded to 2 decimals.
    A gold span with a number scores only against a span that shares one. EM wants the same
    spans, in any order, and as many. A span without words has precision, or recall, 1.

    Args:
        predictions: The answer's spans; none counts as one empty span.
        golds: Accepted answers, at least one, each the list of its spans. The best counts: by
            EM, then F1, precision, recall.
        fix_unicode: Repair both sides first, as IRCoT's release does.

    Source: DROP evaluation script (Dua et al., NAACL 2019) with precision and recall as in
    the release of IRCoT.
    """
    if not golds:
        raise ValueError("There is nothing to compare with: the list of gold answers is empty.")
    if fix_unicode:
        predictions = [repair_unicode(span) for span in predictions]
        golds = [[repair_unicode(span) for span in gold] for gold in golds]
    scores = [_compare(predictions or [""], gold or [""]) for gold in golds]
    return max(scores, key=lambda s: (s.em, s.f1, s.precision, s.recall))


def normalize(text: str) -> str:
    """DROP's normal form: words parted at blanks and hyphens, numbers as floats.

    A word that Python reads as a number keeps its punctuation and becomes `str(float(word))`;
    of others ASCII punctuation and English articles go. So "3.140" and "$3.14" are one word,
    and "Jean-Luc" two.
    """
    words = (_word(word.lower()) for word in re.split("[ -]", text))
    return " ".join(word for word in words if word)


def _word(word: str) -> str:
    if not _is_number(word):
        word = word.translate(_PUNCTUATION)
    if _is_number(word):
        word = str(float(word))
    return " ".join(_ARTICLE.sub(" ", word).split())


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _compare(predictions: Sequence[str], gold: Sequence[str]) -> Score:
    ours, theirs = [normalize(span) for span in predictions], [normalize(span) for span in gold]
    em = float(set(ours) == set(theirs) and len(ours) == len(theirs))
    bags = [set(span.split()) for span in ours]
    pairs = [[_overlap(bag, set(span.split())) for bag in bags] for span in theirs]
    aligned = [pairs[row][column] for row, column in assign([[p[0] for p in r] for r in pairs])]
    spans = max(len(ours), len(theirs))
    f1, precision, recall = (
        # NumPy's way of rounding: on the scaled value, half to even. Scores as published need it.
        round(sum(pair[number] for pair in aligned) / spans * 100) / 100
        for number in range(3)
    )
    return Score(em, f1, precision, recall)


def _overlap(predicted: set[str], gold: set[str]) -> tuple[float, float, float]:
    """F1, precision and recall of two token sets."""
    numbers = {word for word in gold if _is_number(word)}
    if numbers and not numbers & predicted:
        return 0.0, 0.0, 0.0
    shared = len(predicted & gold)
    precision = shared / len(predicted) if predicted else 1.0
    recall = shared / len(gold) if gold else 1.0
    return harmonic(precision, recall), precision, recall
