"""Answer EM and F1 over token bags, as SQuAD and the multi-hop data sets define them.

A bag counts a repeated word as often as it occurs, so "red red" against "red" has F1 2/3.
DROP's F1 (`drop.py`) uses sets and gives 1 there; both are called F1.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

from multihop.metrics.base import Score, best_of_each, harmonic
from multihop.text import STOP_WORDS as LUCENES

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_ZERO = Score(0.0, 0.0, 0.0, 0.0)


def normalize(text: str) -> str:
    """Lower case, no ASCII punctuation, no English articles, single blanks.

    Punctuation goes before articles are looked for and leaves no blank, so "the-mill" is one
    word. Other scripts' punctuation and accents stay.

    Source: SQuAD evaluation script v1.1 (Rajpurkar et al., EMNLP 2016).
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def repair_unicode(text: str) -> str:
    """Mend text that was decoded wrongly, curly quotes, ligatures, HTML entities (ftfy)."""
    import ftfy  # noqa: PLC0415 - 40 ms that only some metrics need

    return ftfy.fix_text(text)


def squad(prediction: str, golds: Sequence[str], *, fix_unicode: bool = False) -> Score:
    """SQuAD's EM and token-bag F1, each number the best over the gold answers.

    Two texts of which one has no word left after `normalize` score 1 when both have none,
    else 0.

    Args:
        prediction: The answer.
        golds: Accepted answers, at least one.
        fix_unicode: Apply `repair_unicode` to both sides first. IRCoT's own reports do.

    Source: SQuAD evaluation script v1.1 and v2.0; precision and recall are the parts of its
    F1.
    """
    if fix_unicode:
        prediction, golds = repair_unicode(prediction), [repair_unicode(g) for g in golds]
    return best_of_each(_squad(prediction, gold) for gold in golds)


def musique(prediction: str, golds: Sequence[str]) -> Score:
    """MuSiQue's answer metric: SQuAD's, over the answer and its aliases.

    Source: MuSiQue `evaluate_v1.0.py` (Trivedi et al., TACL 2022).
    """
    return squad(prediction, golds)


def hotpotqa(prediction: str, golds: Sequence[str]) -> Score:
    """HotpotQA's EM and F1.

    Token bags like SQuAD's, but: when either side is "yes", "no" or "noanswer" and the two
    differ, everything is 0; and without a common word F1 is 0, so that two empty texts have
    EM 1 and F1 0. The official script knows one gold answer; of several the best counts, for
    each number alone.

    Source: HotpotQA `hotpot_evaluate_v1.py` (Yang et al., EMNLP 2018).
    """
    return best_of_each(_hotpotqa(prediction, gold) for gold in golds)


def two_wiki(prediction: str, golds: Sequence[str]) -> Score:
    """2WikiMultihopQA's EM and F1: HotpotQA's, each the best over the answer and its aliases.

    Source: 2WikiMultihopQA `2wikimultihop_evaluate_v1.1.py` (Ho et al., COLING 2020).
    """
    return hotpotqa(prediction, golds)


STOP_WORDS = LUCENES | {"were"}
"""English words that tell nothing of an answer: Lucene's, and the plural of "was"."""


def novel(prediction: str, golds: Sequence[str], history: Sequence[str] = ()) -> Score:
    """SQuAD's numbers over the words that are new in a conversation (nF1).

    Words that earlier turns hold, and stop words, are taken out of both sides, so that a reply
    gains nothing by repeating the question. Where nothing is left on both sides it is 1.

    Args:
        prediction: The reply.
        golds: Accepted replies, at least one.
        history: Earlier turns, and the question itself.

    Source: DSP (Khattab et al. 2022), section 3, for QReCC.
    """
    known = STOP_WORDS | {word for turn in history for word in normalize(turn).split()}

    def new(text: str) -> str:
        return " ".join(word for word in normalize(text).split() if word not in known)

    return best_of_each(_squad(new(prediction), new(gold)) for gold in golds)


def _squad(prediction: str, gold: str) -> Score:
    predicted, wanted = normalize(prediction), normalize(gold)
    if not predicted or not wanted:
        same = float(predicted == wanted)
        return Score(same, same, same, same)
    return _bags(predicted, wanted)


def _hotpotqa(prediction: str, gold: str) -> Score:
    predicted, wanted = normalize(prediction), normalize(gold)
    if predicted != wanted and {predicted, wanted} & {"yes", "no", "noanswer"}:
        return _ZERO
    return _bags(predicted, wanted)


def _bags(predicted: str, wanted: str) -> Score:
    em = float(predicted == wanted)
    ours, theirs = predicted.split(), wanted.split()
    shared = (Counter(ours) & Counter(theirs)).total()
    if not shared:
        return Score(em, 0.0, 0.0, 0.0)
    precision, recall = shared / len(ours), shared / len(theirs)
    return Score(em, harmonic(precision, recall), precision, recall)
