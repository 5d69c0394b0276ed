"""What a small linear model sees of a question and an inner monologue.

Counts and shares alone: no words of the training questions, so that a few hundred runs are enough
to fit it and it means the same on another data set.
"""

import re
from collections.abc import Sequence

from multihop.metrics.answer import STOP_WORDS, normalize
from multihop.metrics.progress import Turn
from multihop.strategies.router import features as of_question

_OF_QUESTION = ("length", "names", "links", "possessives", "compares", "numbers")
_NAME = re.compile(r"[A-Z][\w'.-]*(?:\s+(?:of|the|and|[A-Z][\w'.-]*))*")


def content(text: str) -> set[str]:
    """Its words that say something, in lower case."""
    return {word for word in normalize(text).split() if word not in STOP_WORDS}


def features(question: str, turns: Sequence[Turn]) -> dict[str, float]:
    """Numbers about a question and the turns so far.

    Args:
        question: Its text.
        turns: Of the monologue; may be empty.
    """
    asked = of_question(question)
    found = {name: asked[name] for name in _OF_QUESTION}
    words = content(question)
    passages = [p for turn in turns for p in turn.passages]
    last = turns[-1] if turns else None
    read = content(" ".join(f"{p.title} {p.text}" for p in passages))
    newest = content(" ".join(f"{p.title} {p.text}" for p in last.passages)) if last else set()
    found["turns"] = float(len(turns))
    found["invalid"] = sum(not turn.valid for turn in turns) / max(len(turns), 1)
    found["passages"] = len(passages) / 10
    found["covered"] = _share(words, read)
    found["covered_last"] = _share(words, newest)
    found["last_invalid"] = float(bool(last and not last.valid))
    found["last_empty"] = float(bool(last and last.valid and not last.passages))
    query = content(last.query) if last else set()
    found["query_of_question"] = _share(query, words)
    found["query_of_passages"] = _share(query - words, read - newest)
    found["query_covered"] = _share(query, newest)
    title = content(last.passages[0].title) if last and last.passages else set()
    found["title_in_query"] = _share(title, query)
    found["title_in_question"] = _share(title, words)
    names = {name.strip().lower() for name in _NAME.findall(question[1:])}
    titles = {normalize(p.title) for p in passages}
    found["names_found"] = _share({normalize(n) for n in names} - {""}, titles)
    return found


def _share(of: set[str], among: set[str]) -> float:
    return len(of & among) / len(of) if of else 0.0
