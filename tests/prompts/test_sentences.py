"""The first sentence of a text that is still being written."""

import re

import pytest

from multihop.prompts.sentences import enough, first_sentence


@pytest.mark.parametrize(
    "text",
    [
        "The book is by J. R. R. Tolkien. It is long.",
        "He lives in Washington, D.C. It is big.",
        "It is a U.S. Navy ship. It sank.",
        "By J. K. Rowling and E. B. White. Both wrote.",
        "Who's Afraid of Virginia Woolf? was written by Albee. It is a play.",
        "東京は首都です。大きいです。終わり。",
    ],
)
@pytest.mark.parametrize("piece", [r"(?s).", r"\s?\w{1,3}|\W"])
def test_a_text_is_never_cut_before_its_first_sentence_is_whole(text, piece):
    first, complete, seen = first_sentence(text), enough(), ""
    for part in re.findall(piece, text):
        seen += part
        if complete(seen):
            break
    else:
        pytest.fail("the second sentence was never seen")
    assert first_sentence(seen).strip() == first.strip()
    assert len(seen) < len(text)
