"""Prompts go on from the tokens that were written."""

from collections.abc import AsyncGenerator

import pytest

from multihop.lms.base import Piece, Prompt, Request, complete
from multihop.lms.continuing import Continuing, continuing
from multihop.testing import ScriptedLM

LETTERS = "?abcdefghijklmnopqrstuvwxyz \n"


class Tokens:
    """Tokens are letters, and -2 is a blank and an a, which its tokenizer never makes; -1 ends."""

    name, window = "tokens", None

    def __init__(self, *texts):
        self.texts, self.asked = list(texts), []

    def text_of(self, before, ids):
        return "".join(" a" if n == -2 else "" if n == -1 else LETTERS[n] for n in ids)

    def encode(self, text):
        return [LETTERS.index(c) for c in text]

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        prompt = request.prompt
        ids = [*prompt.ids, *self.encode(prompt.text[prompt.covered :])]
        self.asked.append(ids)
        made = self.texts.pop(0)
        said = self.text_of((), made)
        for stop in request.stop:
            said = said.partition(stop)[0]
        yield Piece(said, ids=tuple(made), prompt_ids=tuple(ids), finish="stop")

    async def count_tokens(self, texts):
        return [len(text) for text in texts]

    async def aclose(self):
        """Do nothing."""


def request(text):
    return Request(Prompt(text), 8, stop=("\n",))


@pytest.mark.parametrize(
    ("written", "more", "then"),
    [
        ([-2, 2, 28], "q", [17, -2, 2, 28]),  # ended by a line end, which is kept
        ([-2, 2, -1], "q", [17, -2, 2, 28]),  # ended by the model: nothing goes on after that
        ([-2, 2, 28, 28], "q", [17, -2, 2, 28]),
    ],
)
async def test_the_next_prompt_has_the_tokens_that_were_written(written, more, then):
    lm = Tokens(written, [1, 28])
    kept = Continuing(lm)
    reply = await complete(kept, request("q"))
    assert reply.text == " ab"
    await complete(kept, request("q ab\nxq"))
    assert lm.asked[1] == [*then, 24, 17]
    assert [call.ids for call in kept.calls] == [tuple(written), (1, 28)]
    assert list(kept.calls[1].prompt) == lm.asked[1]


async def test_a_prompt_that_does_not_go_on_is_encoded_anew():
    lm = Tokens([-2, 28], [1, 28])
    kept = Continuing(lm)
    await complete(kept, request("q"))
    await complete(kept, request("p a\n"))
    assert lm.asked[1] == lm.encode("p a\n")


async def test_a_backend_without_tokens_is_asked_as_it_is():
    lm = ScriptedLM("one", "two")
    kept = continuing(lm)
    assert continuing(kept) is kept
    await complete(kept, request("q"))
    await complete(kept, request("qone\n"))
    assert [r.prompt.ids for r in lm.requests] == [(), ()]
    assert kept.calls == []
