"""What can be said of a sentence, whoever says it."""

from typing import Literal

Verdict = Literal["supported", "contradicted", "not mentioned", "no claim", "unparsable"]
"""`supported`: the passages say so, or it follows from them; `contradicted`: they say
otherwise; `not mentioned`: they say neither; `no claim`: the sentence states no fact (it gives
the answer, or names what is to be found); `unparsable`: the judge's reply is none of these."""

Key = tuple[str, str, int]
"""Names a sentence: run, question id, number in the chain."""

ERRORS: frozenset[Verdict] = frozenset({"contradicted", "not mentioned"})
"""These count as a factual error: the passages do not bear the sentence out."""


def is_error(verdict: Verdict) -> bool | None:
    """Whether a verdict is an error; None when it is no verdict."""
    return None if verdict == "unparsable" else verdict in ERRORS
