r"""Reading answers out of what an LM wrote.

`stated` is our reading. The functions named `official_*` follow IRCoT's release to the byte,
its quirks included: answers travel as JSON, so the chain-of-thought reader's accents stay
escaped (`Zo\u00eb`) and `1e5` becomes `100000.0`.
"""

import json
import re
import warnings

OFFICIAL_PATTERN = re.compile(r".* answer is:? (.*)\.?")
STATEMENT = re.compile(r"\banswer is\b\s*:?", re.IGNORECASE)
"""Without these words nothing is stated."""

_ABBREVIATED = re.compile(r"(?:^|[\s.])(?:[^\W\d_]\.)+$")
_QUOTES = '"“”'


def stated(text: str) -> str | None:
    """The answer that a text states ("So the answer is: X."), or None.

    Case does not matter; quotes around the answer and one final full stop go, unless the
    stop belongs to an abbreviation ("U.S."). The last statement of several counts.
    """
    pieces = STATEMENT.split(text)
    return tidy(pieces[-1]) or None if len(pieces) > 1 else None


def tidy(answer: str) -> str:
    """An answer without outer quotes and final full stop; accents stay as they are."""
    answer = _unquoted(answer.strip())
    if answer.endswith(".") and not _ABBREVIATED.search(answer):
        answer = answer[:-1].rstrip()
    return _unquoted(answer)


def _unquoted(answer: str) -> str:
    """Quotes around all of it go; those around a part of it (`"A" and "B"`) stay."""
    inner = answer.strip(_QUOTES)
    return answer if any(mark in inner for mark in _QUOTES) else inner.strip()


def titles(written: str) -> tuple[str, ...]:
    """Titles out of IIRC's title generation, in our reading.

    As in the release, but a JSON string is one title, and nothing is no title.
    """
    value = _parsed(written)
    found = (value,) if isinstance(value, str) else official_titles(written)
    return tuple(title for title in found if title.strip())


# --- IRCoT's release ------------------------------------------------------------------------


def official_exit(sentence: str) -> str | None:
    """The answer in the chain's last sentence, or None when it states none."""
    found = OFFICIAL_PATTERN.match(sentence)
    return _without_stop(found[1]) if found else None


def official_store(written: str) -> str:
    """What an LM wrote, as the release stores it: ASCII JSON, parsed first if it is JSON."""
    written = written.strip()
    value = _parsed(written)
    return json.dumps(written if value is _NO_JSON else value)


def official_extract(
    stored: str, *, match_all: bool = True, drop_full_stop: bool = True
) -> str | None:
    """The chain-of-thought reader's answer, out of a stored text.

    Args:
        stored: From `official_store`.
        match_all: Without a statement the whole first line is the answer; else None.
        drop_full_stop: Take one final full stop off.
    """
    stored = _without_quotes(stored)
    found = OFFICIAL_PATTERN.match(stored) or (re.match(r"(.*)", stored) if match_all else None)
    if found is None:
        return None
    answer = _without_stop(found[1]) if drop_full_stop else found[1]
    if _parsed(answer) is _NO_JSON:
        value = _parsed(_unescaped(answer))
        if value is not _NO_JSON:
            return json.dumps(value)
    return answer


def official_prediction(answer: str) -> str | list[object]:
    """A stage's answer as written to the prediction file: a JSON list or string unwrapped."""
    value = _parsed(answer)
    return value if isinstance(value, (list, str)) else answer


def official_evaluated(prediction: str | list[object]) -> list[str]:
    """The answers that the release scores: a bracketed text is split at commas."""
    if isinstance(prediction, str):
        if prediction.strip().startswith("[") or prediction.strip().endswith("]"):
            bare = re.sub(r'["\[\]]', "", prediction)
            prediction = list(bare.split(","))
        else:
            prediction = [prediction]
    return [official_statement(str(part)) for part in prediction]


def official_statement(text: str) -> str:
    """What is scored of one predicted text: the answer it states, else all of it."""
    text = _without_quotes(text)
    found = OFFICIAL_PATTERN.match(text)
    return _without_stop(found[1]) if found else text


def official_titles(stored: str) -> tuple[str, ...]:
    """Titles out of IIRC's title generation.

    A JSON list, or an object's keys; a JSON string is taken letter by letter, as the release
    does. Text that is no JSON loses quotes and brackets and is split at commas (so
    "Cooksville, Illinois" becomes two titles). A number or null, which ends the release's
    run, gives no title.
    """
    value = _parsed(stored)
    if value is _NO_JSON:
        value = [part.strip() for part in re.sub(r'["\[\]]', "", stored).split(",")]
    if isinstance(value, str):
        return tuple(value)
    return tuple(str(title) for title in value) if isinstance(value, (list, dict)) else ()


def _without_quotes(text: str) -> str:
    return text[1:-1] if text.startswith('"') and text.endswith('"') else text


def _without_stop(answer: str) -> str:
    return answer.removesuffix(".")


_NO_JSON = object()


def _parsed(text: str) -> object:
    """What a text says as JSON, or `_NO_JSON`; brackets without end are none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NO_JSON


def _unescaped(text: str) -> str:
    """Backslash escapes resolved as Python writes them; the text itself where they are broken."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # for an unknown escape, which stays
        try:
            return text.encode().decode("unicode_escape")
        except UnicodeError:
            return text
