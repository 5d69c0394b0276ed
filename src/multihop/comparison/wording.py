"""Figures as a person reads them: shares in percent, counts as they are."""

from statistics import NormalDist

from multihop.metrics import COUNTS, Mean

_FINE = frozenset(("steps", "searches", "lm_calls", "sent_calls", "replayed_calls", "seconds"))
"""Counts that are small enough for two decimals."""

SIGNIFICANT = 0.05
"""Corrected p-values up to it are pointed out."""

MINUS = "\N{MINUS SIGN}"


def label(name: str) -> str:
    """A metric's name in words, with its unit."""
    words = name.replace("_", " ")
    words = {"em": "EM", "f1": "F1", "drop f1": "DROP F1", "drop em": "DROP EM"}.get(words, words)
    words = words.replace("lm calls", "LM calls")
    unit = " (s)" if name == "seconds" else "" if name in COUNTS else " %"
    return ("time" if name == "seconds" else words) + unit


def figure(name: str, value: float) -> str:
    """A value of a metric: a share in percent, a count as it is."""
    scaled, digits = _scaled(name, value)
    return f"{scaled:,.{digits}f}".replace("-", MINUS)


def signed(name: str, value: float) -> str:
    """A difference, with its sign; of shares in percentage points."""
    scaled, digits = _scaled(name, value)
    text = f"{scaled:+,.{digits}f}".replace("-", MINUS)
    return text if any(c in "123456789" for c in text) else text[1:]


def _scaled(name: str, value: float) -> tuple[float, int]:
    if name not in COUNTS:
        return 100 * value, 1
    return value, 6 if name == "money" else 2 if name in _FINE else 0 if abs(value) >= 100 else 1


def bounds(name: str, mean: Mean, level: float) -> tuple[float, float] | None:
    """A mean's interval: so many standard errors to both sides, shares within [0, 1].

    None for fewer than two questions.
    """
    if mean.value is None or mean.error is None:
        return None
    reach = NormalDist().inv_cdf((1 + level) / 2) * mean.error
    low, high = max(0.0, mean.value - reach), mean.value + reach
    return low, high if name in COUNTS else min(1.0, high)


def probability(p: float) -> str:
    """A p-value."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.995 else "1"


def count(number: int, one: str, many: str = "") -> str:
    """A number and its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
