"""Where the pinned passage stands."""

import pytest

from multihop.errors import BadInput
from multihop.prompts.layout import pin
from multihop.text import Passage

MAIN = Passage("m", "Main", "main")
OTHER = Passage("o", "Other", "other")
REDIRECT = Passage("r", "Redirect", "main")


def test_the_first_passage_with_the_pinned_text_is_the_pinned_one():
    assert pin([MAIN, OTHER, REDIRECT], MAIN, "stay") == (MAIN, OTHER, REDIRECT)
    assert pin([MAIN, OTHER, REDIRECT], MAIN, "last") == (OTHER, REDIRECT, MAIN)
    assert pin([OTHER, MAIN, REDIRECT], MAIN, "first") == (MAIN, OTHER, REDIRECT)
    with pytest.raises(BadInput, match="under the title 'Redirect'"):
        pin([REDIRECT, MAIN], MAIN, "stay")


def test_a_text_with_other_outer_blanks_is_another_passage():
    blank = Passage("b", "Elsewhere", " main")
    assert pin([blank], MAIN, "stay") == (MAIN, blank)
