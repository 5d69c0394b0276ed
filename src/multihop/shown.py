"""Somebody else's text made fit to be shown: in a terminal, a page, a report.

Passages and model output are shown as they are, but their control characters are made visible, so
that no text can move a cursor, set a title, turn the reading order or hide a line.
"""

import re
from collections.abc import Mapping

from multihop.trace import StopReason

STOPS: Mapping[StopReason, str] = {
    "answered": "an answer was stated",
    "max_steps": "the step limit was reached",
    "empty": "the model wrote nothing",
    "no_gain": "the last step brought nothing new",
    "budget": "the budget was used up",
    "abstained": "the chains agreed too little",
}
"""Why a run ended, in words."""

SNIPPET = 160
"""Characters of a passage that are shown with its title."""

# C0 and C1 controls, DEL; characters that reorder or hide text; halves of surrogate pairs.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
_BLANKS = str.maketrans("\n\t\r", "   ")


def visible(text: str, *, lines: bool = False) -> str:
    """Text that a terminal can only print.

    Args:
        text: Anything.
        lines: Keep line ends and tabs; else they become blanks.
    """
    if not lines:
        text = text.replace("\r\n", " ").translate(_BLANKS)
    return _UNSAFE.sub(_name, text)


def _name(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if character in "\n\t":
        return character
    if code < 0x20:
        return chr(0x2400 + code)  # the pictures of control characters
    return f"<U+{code:04X}>"


def snippet(text: str, width: int = SNIPPET) -> str:
    """The beginning of a text, on one line."""
    text = visible(" ".join(text[: 4 * width].split()))
    return text if len(text) <= width else text[:width].rsplit(" ", 1)[0].rstrip(" ,;") + " …"
