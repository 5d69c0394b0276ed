"""`complete` folds a stream into a reply."""

from dataclasses import replace

import pytest

from multihop.errors import BadCompletion, LMUnavailable
from multihop.lms.base import Piece, Prompt, Request, Turn, chat_text, complete
from multihop.testing import ScriptedLM
from multihop.trace import Tokens

REQUEST = Request(Prompt("Q:"), max_tokens=10)


class Pieces:
    """Streams given pieces, or raises a given error among them."""

    name = "pieces"
    window = None

    def __init__(self, *pieces):
        self.pieces = pieces
        self.given = 0
        self.closed = False

    async def stream(self, request):
        try:
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                self.given += 1
                yield piece
        finally:
            self.closed = True


async def test_pieces_are_joined_by_sample():
    lm = Pieces(
        Piece("a", 0, logprobs=(-1.0,)),
        Piece("x", 1),
        Piece("b", 0, finish="stop", logprobs=(-2.0,)),
        Piece("y", 1, finish="length", thinking="hm"),
    )
    reply = await complete(lm, replace(REQUEST, n=2))

    assert [(s.text, s.finish) for s in reply.samples] == [("ab", "stop"), ("xy", "length")]
    assert reply.samples[0].logprobs == (-1.0, -2.0)
    assert reply.call.outputs == ("ab", "xy")
    assert reply.call.thinking == "hm"


async def test_the_newest_counts_are_those_of_the_call():
    lm = Pieces(Piece("a", tokens=Tokens(5, 0, 1)), Piece("b", 0, "stop", tokens=Tokens(5, 0, 2)))
    assert (await complete(lm, REQUEST)).call.tokens == Tokens(5, 0, 2)


async def test_until_closes_the_stream_at_once():
    lm = Pieces(Piece("One. "), Piece("Two. "), Piece("Three.", finish="stop"))
    seen = []

    def two(text):
        seen.append(text)
        return "Two" in text

    reply = await complete(lm, REQUEST, until=two)

    assert (reply.text, reply.samples[0].finish) == ("One. Two. ", "cut")
    assert seen == ["One. ", "One. Two. "]
    assert (lm.given, lm.closed) == (2, True)


async def test_until_does_not_cut_what_has_ended_by_itself():
    reply = await complete(ScriptedLM("One."), REQUEST, until=lambda text: True)
    assert reply.samples[0].finish == "stop"


async def test_until_is_not_asked_about_nothing():
    lm = Pieces(Piece(""), Piece("", thinking="hm"), Piece("a", finish="stop"))
    reply = await complete(lm, REQUEST, until=lambda text: True)
    assert reply.samples[0].finish == "stop"


@pytest.mark.parametrize("pieces", [(), (Piece("half"),), (Piece("a", 0, "stop"), Piece("b", 1))])
async def test_a_stream_without_a_finish_is_a_bad_completion(pieces):
    with pytest.raises(BadCompletion, match="broke off after"):
        await complete(Pieces(*pieces), replace(REQUEST, n=2))


async def test_an_error_in_the_middle_is_not_half_an_answer():
    lm = Pieces(Piece("half an ans"), LMUnavailable("gone"))
    with pytest.raises(LMUnavailable, match="gone"):
        await complete(lm, REQUEST)
    assert lm.closed


async def test_an_error_of_until_closes_the_stream():
    lm = Pieces(Piece("a"), Piece("b", finish="stop"))
    with pytest.raises(ZeroDivisionError):
        await complete(lm, REQUEST, until=lambda text: 1 / 0)
    assert lm.closed


async def test_the_record_holds_what_was_asked_and_what_was_sent():
    lm = Pieces(Piece("a", 0, "stop", sent="[user] Q:", retries=2, warnings=("no seed",)))
    request = replace(
        REQUEST, stop=("\n",), temperature=0.7, seed=3, adapter="lora", role="read", max_tokens=5
    )
    call = (await complete(lm, request)).call

    assert (call.role, call.model, call.prompt) == ("read", "pieces", "[user] Q:")
    assert (call.max_tokens, call.stop, call.temperature, call.seed) == (5, ("\n",), 0.7, 3)
    assert (call.adapter, call.retries, call.warnings) == ("lora", 2, ("no seed",))
    assert call.seconds >= 0


async def test_the_prompts_text_is_what_was_sent_when_nothing_else_is_said():
    assert (await complete(ScriptedLM("a"), REQUEST)).call.prompt == "Q:"


def test_turns_are_shown_as_one_text():
    turns = (Turn("system", "Be brief."), Turn("user", "Hi"))
    assert chat_text(turns) == "[system]\nBe brief.\n\n[user]\nHi"
