"""The wrappers together: what is sent, and that nothing changes by them."""

import asyncio

import pytest

from multihop.errors import BadInput
from multihop.lms.base import Prompt, Request, complete
from multihop.lms.fusing import FusingLM
from multihop.lms.layers import layered, questions_at_work
from multihop.lms.pacing import PacedLM
from multihop.lms.store import ReplyStore
from multihop.lms.wrapper import identity, innermost
from multihop.prompts.sentences import enough
from multihop.strategies import make
from multihop.testing import NextWordLM, ScriptedLM, ScriptedRetriever
from multihop.text import Passage, Question
from multihop.trace import trace

CHAIN = " Ode was written by Eva. Eva was born in Ulm. So the answer is: Ulm."


def follows(text):
    written = text.rpartition("A:")[2]
    rest = CHAIN[len(written) :] if CHAIN.startswith(written) else ""
    return rest[: rest.find(" ", 1)] if " " in rest[1:] else rest


def ircot(lm):
    passages = [Passage("ode", "Ode", "Ode is by Eva."), Passage("eva", "Eva", "Eva is of Ulm.")]
    return make("ircot", lm=lm, retriever=ScriptedRetriever({"Where is Eva?": passages}))


QUESTION = Question("Where is Eva?")


async def run(lm):
    result = await trace(ircot(lm), QUESTION)
    return [thought.text for thought in result.thoughts], result.answer.text, result


async def test_a_chain_without_new_passages_is_one_call():
    plain, inner = NextWordLM(follows), NextWordLM(follows)
    *alone, _ = await run(plain)
    lm = layered(inner)
    *lean, result = await run(lm)
    await lm.aclose()
    assert lean == alone
    assert (len(plain.requests), len(inner.requests)) == (4, 1)
    assert [call.fused for call in result.calls] == [False, True, True, True]


async def test_a_run_repeated_with_a_cache_asks_nothing(tmp_path):
    store = ReplyStore(tmp_path / "replies.sqlite")
    first, again = NextWordLM(follows), NextWordLM(follows)
    lm = layered(first, cache=store)
    *told, _ = await run(lm)
    await lm.aclose()
    *repeated, result = await run(layered(again, cache=store))
    await store.aclose()
    assert repeated == told
    assert first.requests
    assert not again.requests
    assert all(call.replayed for call in result.calls)


async def test_without_fusing_every_sentence_is_asked_for():
    inner = NextWordLM(follows)
    await run(layered(inner, fuse=False))
    assert len(inner.requests) == 4


async def test_a_reproducible_backend_is_asked_one_call_at_a_time_and_never_fused():
    class Counting(ScriptedLM):
        most = at_work = 0
        reproducible = True

        async def stream(self, request):
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            try:
                async for piece in super().stream(request):
                    yield piece
            finally:
                self.at_work -= 1

    inner = Counting(respond=lambda _: " Yes.", delay=0.005)
    lm = layered(inner, in_flight=8)
    request = Request(Prompt("Q?\nA:"), 8)
    replies = await asyncio.gather(*[complete(lm, request) for _ in range(4)])
    assert inner.most == 1
    assert len(inner.requests) == 4
    assert not any(reply.call.fused for reply in replies)


async def test_as_many_calls_are_in_flight_as_were_allowed():
    running = most = 0

    class Slow(NextWordLM):
        async def stream(self, request):
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                await asyncio.sleep(0.005)
                async for piece in super().stream(request):
                    yield piece
            finally:
                running -= 1

    lm = layered(Slow(lambda text: "" if text.endswith("Yes.") else " Yes."), in_flight=3)
    await asyncio.gather(*[complete(lm, Request(Prompt(f"Q{n}?\nA:"), 8)) for n in range(9)])
    assert most == 3


async def test_no_more_calls_are_in_flight_than_the_backend_has_slots():
    inner = ScriptedLM(respond=lambda _: " Yes.")
    inner.slots = 2
    assert layered(inner, in_flight=8).lm.most == 2
    assert layered(inner, in_flight=1).lm.most == 1
    assert not layered(inner).lm.adaptive
    assert layered(ScriptedLM()).lm.adaptive


async def test_streams_kept_open_give_way_to_other_tasks():
    inner = NextWordLM(follows)
    lm = layered(inner, in_flight=1)
    request = Request(Prompt("Q: Where is Eva?\nA:"), 50, ("\n",))
    replies = await asyncio.wait_for(
        asyncio.gather(*[complete(lm, request, until=enough()) for _ in range(3)]), 10
    )
    assert len({reply.text for reply in replies}) == 1


def test_a_backend_that_takes_batches_gets_them():
    class Batching(ScriptedLM):
        def stream_batch(self, batch, listening): ...

    lm = layered(Batching(), fuse=False)
    assert isinstance(lm, PacedLM)
    assert type(lm.lm).__name__ == "BatchedLM"


def test_questions_at_work_fill_a_server_and_do_not_crowd_slots():
    server, engine = ScriptedLM(), ScriptedLM()
    engine.slots = 2
    assert questions_at_work(layered(server), 64) == 80
    assert questions_at_work(server, 1) == 2
    assert questions_at_work(layered(engine), 64) == 2
    assert questions_at_work(engine, 1) == 1


def test_wrappers_look_like_the_model_inside():
    inner = ScriptedLM(window=77)
    inner.identity = {"weights": "abc"}
    lm = layered(inner)
    assert isinstance(lm, FusingLM)
    assert (lm.name, lm.window, identity(lm), innermost(lm)) == (
        "scripted",
        77,
        {"weights": "abc"},
        inner,
    )


def test_no_calls_in_flight_are_refused():
    with pytest.raises(BadInput, match="at least 1"):
        layered(ScriptedLM(), in_flight=0)
