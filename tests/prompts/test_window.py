import re

import pytest

from conftest import rows
from multihop.errors import ContextTooLong
from multihop.prompts.fit import fit
from multihop.prompts.window import shrink_max_tokens


async def count(texts):
    return [len(re.findall(r"\w+|[^\w\s]", text)) for text in texts]


async def attempts(given):
    """The prompt and max_tokens of each attempt, by the release's rule with our bound of two."""
    window, max_tokens = given["window_tokens"], given["max_tokens"]
    fitted = await fit(given["prompt"], limit=window, generation=max_tokens, count=count)
    asked = [max_tokens]
    if given["script"][0] == "error":
        [size] = await count([fitted.text])
        asked.append(shrink_max_tokens(size, max_tokens, window))
    return fitted.text, asked


async def test_completion_retry_golden():
    wrong = []
    for row in rows("golden/completion_retry.jsonl"):
        assert row["input"]["tokenizer"] == "regex"
        text, asked = await attempts(row["input"])
        # How long the release goes on after that (500 attempts, 50 s apart) is not followed.
        values = [value for value, _ in row["expected"]["max_tokens_runs"]]
        if text != row["expected"]["prompt_sent"] or asked[: len(values)] != values:
            wrong.append(row["id"])
    assert wrong == []


def test_room_enough_changes_nothing():
    assert shrink_max_tokens(10, 20, 30) == 20
    assert shrink_max_tokens(10, 20, 29) == 19
    assert shrink_max_tokens(29, 20, 30) == 1


def test_a_prompt_that_fills_the_window_is_an_error():
    with pytest.raises(ContextTooLong, match="prompt has 30 tokens and the window 30") as caught:
        shrink_max_tokens(30, 20, 30)
    assert (caught.value.needed, caught.value.window) == (50, 30)
