r"""Reading answers out of what an LM wrote.

`stated` is our reading. The functions named `official_*` follow IRCoT's release to the byte,
its quirks included: answers travel as JSON, so the chain-of-thought reader's accents stay
escaped (`Zo\u00eb`) and `1e5` becomes `100000.0`.
"""

import json
import re

OFFICIAL_PATTERN = re.compile(r".* answer is:? (.*)\.?")
_STATED = re.compile(r"^.*\banswer is\b\s*:?\s*(.+?)\s*$", re.IGNORECASE | re.DOTALL)
_ABBREVIATED = re.compile(r"(?:^|[\s.])(?:\w\.)+$")


def stated(text: str) -> str | None:
    """The answer that a text states ("So the answer is: X."), or None.

    Case does not matter; quotes around the answer and one final full stop go, unless the
    stop belongs to an abbreviation ("U.S."). The last statement of several counts.
    """
    found = _STATED.match(text.strip())
    return tidy(found[1]) or None if found else None


def tidy(answer: str) -> str:
    """An answer without outer quotes and final full stop; accents stay as they are."""
    answer = answer.strip().strip('"“”').strip()
    if answer.endswith(".") and not _ABBREVIATED.search(answer):
        answer = answer[:-1].rstrip()
    return answer.strip('"“”').strip()


# --- IRCoT's release ------------------------------------------------------------------------


def official_exit(sentence: str) -> str | None:
    """The answer in the chain's last sentence, or None when it states none."""
    found = OFFICIAL_PATTERN.match(sentence)
    return _without_stop(found[1]) if found else None


def official_store(written: str) -> str:
    """What an LM wrote, as the release stores it: ASCII JSON, parsed first if it is JSON."""
    written = written.strip()
    try:
        return json.dumps(json.loads(written))
    except ValueError:
        return json.dumps(written)


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
    if not _is_json(answer):
        unescaped = _unescape(answer)
        if unescaped is not None and _is_json(unescaped):
            return json.dumps(json.loads(unescaped))
    return answer


def official_prediction(answer: str) -> str | list[object]:
    """A stage's answer as written to the prediction file: a JSON list or string unwrapped."""
    try:
        value = json.loads(answer)
    except ValueError:
        return answer
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
    does. Text that is no
    JSON loses quotes and brackets and is split at commas (so "Cooksville, Illinois" becomes
    two titles). A number or null, which ends the release's run, gives no title.
    """
    try:
        value = json.loads(stored)
    except ValueError:
        value = [part.strip() for part in re.sub(r'["\[\]]', "", stored).split(",")]
    if isinstance(value, str):
        return tuple(value)
    return tuple(str(title) for title in value) if isinstance(value, (list, dict)) else ()


def _without_quotes(text: str) -> str:
    return text[1:-1] if text.startswith('"') and text.endswith('"') else text


def _without_stop(answer: str) -> str:
    return answer.removesuffix(".")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _unescape(text: str) -> str | None:
    try:
        value = json.loads(f'"{text}"')
    except ValueError:
        return None
    return str(value)
