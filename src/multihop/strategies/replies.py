"""What every reading of a transcript needs: its first line, and an answer without its sentence."""

from multihop.prompts import answers
from multihop.prompts.sentences import light


def first_line(text: str) -> str:
    """The first line that says something; empty when none does."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def stated_in(text: str) -> str:
    """The first answer that a sentence of a text states; empty when none does."""
    if not answers.STATEMENT.search(text):  # spares the splitter
        return ""
    return next((found for sentence in light(text) if (found := answers.stated(sentence))), "")


def bare(text: str) -> str:
    """The answer that a text states; without a statement its first line."""
    return stated_in(text) or answers.tidy(first_line(text))
