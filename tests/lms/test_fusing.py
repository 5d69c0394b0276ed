"""Going on with an open stream: same texts, fewer calls, nothing left open."""

import asyncio
import gc
from contextlib import aclosing
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihop.errors import LMUnavailable
from multihop.lms import fusing
from multihop.lms.base import Piece, Prompt, Request, complete
from multihop.lms.cache import CachedLM
from multihop.lms.fusing import FusingLM
from multihop.lms.pacing import PacedLM
from multihop.lms.store import ReplyStore
from multihop.prompts.sentences import enough, first_sentence
from multihop.strategies import make
from multihop.testing import NextWordLM, ScriptedLM, ScriptedRetriever
from multihop.text import Passage, Question
from multihop.trace import Answer, Search, Thought, Tokens, trace

CHAIN = " Ode was written by Eva. Eva was born in Ulm. So the answer is: Ulm."
REQUEST = Request(Prompt("Q: Where?\nA:"), max_tokens=50, stop=("\n",))


def follows(text, chain=CHAIN):
    """The word after this text, when all texts go on as the chain does."""
    written = text.rpartition("A:")[2]
    if not chain.startswith(written) or chain == written:
        return ""
    rest = chain[len(written) :]
    return rest[: rest.find(" ", 1)] if " " in rest[1:] else rest


def babble(seed, common):
    """A word that depends on every character before it; `common` of 8 end a sentence."""

    def next_word(text):
        draw = crc32(f"{seed} {text}".encode())
        if draw % 97 == 0:
            return ""
        if draw % 53 == 0:
            return "\n"
        word = " " + ("Eva", "Ulm", "ode", "was", "is", "of")[draw // 97 % 6]
        if draw % 41 == 0:
            return " So the answer is: Ulm."
        return word + ("." if draw // 1000 % 8 < common else "")

    return next_word


def asked(text, **changes):
    return replace(REQUEST, prompt=Prompt(text), **changes)


async def sentence(lm, request):
    reply = await complete(lm, request, until=enough())
    return first_sentence(reply.text).strip(), reply


async def test_the_next_sentence_comes_from_the_open_stream_when_the_prompt_is_its_past():
    inner = NextWordLM(follows)
    lm = FusingLM(inner)
    first, one = await sentence(lm, REQUEST)
    second, two = await sentence(lm, asked(f"Q: Where?\nA: {first}"))
    third, three = await sentence(lm, asked(f"Q: Where?\nA: {first} {second}"))
    assert (first, second) == ("Ode was written by Eva.", "Eva was born in Ulm.")
    assert third == "So the answer is: Ulm."
    assert [one.call.fused, two.call.fused, three.call.fused] == [False, True, True]
    assert len(inner.requests) == 1
    assert (lm.asked, lm.fused) == (1, 2)
    await lm.aclose()
    assert inner.open == 0


async def test_a_changed_prompt_ends_the_stream_before_another_is_opened():
    inner = NextWordLM(follows)
    lm = FusingLM(inner)
    await sentence(lm, REQUEST)
    assert inner.open == 1
    async with aclosing(lm.stream(asked("More.\n\nQ: Where?\nA: Ode was written by Eva."))) as new:
        await anext(new)
        assert inner.open == 1
    assert len(inner.requests) == 2
    await lm.aclose()
    assert inner.open == 0


async def test_a_reader_asked_the_same_prompt_gets_the_stream_from_its_beginning():
    inner = NextWordLM(follows)
    lm = FusingLM(inner)
    await sentence(lm, REQUEST)
    whole = await complete(lm, replace(REQUEST, enough="answer"))
    assert whole.text == CHAIN
    assert whole.call.fused
    assert len(inner.requests) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 0.5},
        {"n": 2},
        {"seed": 1, "temperature": 0.5},
        {"max_tokens": 49},
        {"stop": ("\n", ";")},
        {"adapter": "questioner"},
        {"role": "read"},
        {"logprobs": True},
    ],
)
async def test_a_request_that_differs_in_more_than_its_text_is_sent(changed):
    inner = NextWordLM(follows)
    lm = FusingLM(inner)
    await sentence(lm, REQUEST)
    reply = await complete(lm, asked("Q: Where?\nA: Ode was written by Eva.", **changed))
    assert not reply.call.fused
    assert len(inner.requests) == 2
    await lm.aclose()
    assert inner.open == 0


@pytest.mark.parametrize("changed", [{"temperature": 0.5}, {"n": 2}])
async def test_sampled_streams_are_closed_at_once(changed):
    inner = NextWordLM(follows)
    lm = FusingLM(inner)
    async with aclosing(lm.stream(replace(REQUEST, **changed))) as pieces:
        await anext(pieces)
    assert inner.open == 0


async def test_a_backend_that_sent_another_text_than_the_prompt_is_asked_every_time():
    class Chat(NextWordLM):
        async def stream(self, request):
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield replace(piece, sent="[user]\nQ: Where?")

    inner = Chat(follows)
    lm = FusingLM(inner)
    first, _ = await sentence(lm, REQUEST)
    assert inner.open == 0
    await sentence(lm, asked(f"Q: Where?\nA: {first}"))
    assert len(inner.requests) == 2


@pytest.mark.parametrize("told", [{"sent": "[user]\nQ: Where?"}, {"thinking": "Ode, then."}])
@pytest.mark.parametrize("failed", [0, 1, 2])
async def test_a_text_that_stands_on_more_than_the_prompt_is_not_gone_on_with(told, failed):
    class Other(NextWordLM):
        async def stream(self, request):
            for attempt in range(failed):
                yield Piece("", retries=attempt + 1)
            more = told
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield replace(piece, **more)
                    more = {}

    inner = Other(follows)
    lm = FusingLM(inner)
    first, _ = await sentence(lm, REQUEST)
    assert inner.open == 0
    _, reply = await sentence(lm, asked(f"Q: Where?\nA: {first}"))
    assert not reply.call.fused
    assert len(inner.requests) == 2


async def test_a_stream_closed_before_its_first_word_is_not_kept():
    class Failing(NextWordLM):
        async def stream(self, request):
            yield Piece("", retries=1)
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield piece

    inner = Failing(follows)
    lm = FusingLM(inner)
    async with aclosing(lm.stream(REQUEST)) as pieces:
        assert (await anext(pieces)).retries == 1
    reply = await complete(lm, REQUEST)
    assert not reply.call.fused


async def test_a_whole_completion_serves_the_sentences_that_were_thrown_away():
    inner = ScriptedLM(CHAIN)  # in one piece, as a server that cannot stream
    lm = FusingLM(inner)
    await complete(lm, REQUEST)
    reply = await complete(lm, asked("Q: Where?\nA: Ode was written by Eva."))
    assert reply.text == " Eva was born in Ulm. So the answer is: Ulm."
    assert reply.call.fused
    assert len(inner.requests) == 1


async def test_a_completion_cut_by_its_limit_is_not_gone_on_with():
    inner = NextWordLM(follows)
    lm = FusingLM(inner)
    await complete(lm, replace(REQUEST, max_tokens=7))
    reply = await complete(lm, asked("Q: Where?\nA: Ode was written by Eva.", max_tokens=7))
    assert not reply.call.fused
    assert reply.text == " Eva was born in Ulm. So the"


async def test_a_limit_reached_on_the_way_gives_what_a_call_of_its_own_gives():
    inner = NextWordLM(follows)
    lm = FusingLM(inner)
    cut = replace(REQUEST, max_tokens=8)
    first, _ = await sentence(lm, cut)
    reply = await complete(lm, replace(cut, prompt=Prompt(f"Q: Where?\nA: {first}")))
    alone = await complete(NextWordLM(follows), inner.requests[-1])
    assert (reply.text, reply.samples[0].finish) == (alone.text, alone.samples[0].finish)
    assert inner.open == 0


async def test_a_stream_that_broke_while_it_waited_is_asked_for_anew():
    class Breaking(NextWordLM):
        async def stream(self, request):
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield piece
                    if len(self.requests) == 1 and piece.text == " Eva":
                        raise LMUnavailable("The connection was reset.")

    inner = Breaking(follows)
    lm = FusingLM(inner)
    first, _ = await sentence(lm, REQUEST)
    second, _ = await sentence(lm, asked(f"Q: Where?\nA: {first}"))
    assert second == "Eva was born in Ulm."
    assert len(inner.requests) == 2


@pytest.mark.parametrize("anew", [" Never.", " Eva", ""])
async def test_an_engine_that_contradicts_itself_ends_the_text_with_a_warning(anew):
    class Fickle(NextWordLM):
        def __init__(self):
            super().__init__(follows)

        async def stream(self, request):
            if self.requests:
                self.next_word = lambda text: "" if text.endswith(anew or "Eva.") else anew
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield piece

    lm = FusingLM(Fickle())
    cut = replace(REQUEST, max_tokens=8)
    first, _ = await sentence(lm, cut)
    reply = await complete(lm, replace(cut, prompt=Prompt(f"Q: Where?\nA: {first}")))
    assert reply.samples[0].finish == "length"
    assert reply.call.fused
    assert reply.call.warnings == ("The engine wrote another text when it was asked anew.",)


async def test_a_text_whose_tokens_differ_when_read_anew_is_asked_for_anew():
    class Ids(NextWordLM):
        same = True

        async def stream(self, request):
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield replace(piece, ids=(len(piece.text),) if piece.text else ())

        async def token_ids(self, text):
            written = text.partition("A:")[2]
            words = [len(word) + 1 for word in written.split()]
            return [0, *(words if self.same else words[:-1])]

    for same in (True, False):
        inner = Ids(follows)
        inner.same = same
        lm = FusingLM(inner)
        first, _ = await sentence(lm, REQUEST)
        second, reply = await sentence(lm, asked(f"Q: Where?\nA: {first}"))
        assert second == "Eva was born in Ulm."
        assert reply.call.fused == same
        await lm.aclose()


async def test_a_prompt_that_ends_within_a_token_is_asked_for_anew():
    class Ids(NextWordLM):
        async def stream(self, request):
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield replace(piece, ids=(1,))

    inner = Ids(follows)
    lm = FusingLM(inner)
    await complete(lm, REQUEST)
    reply = await complete(lm, asked("Q: Where?\nA: Ode was writ"))
    assert not reply.call.fused


async def test_a_stream_nobody_asks_on_is_closed_after_a_while():
    inner = NextWordLM(follows)
    lm = FusingLM(inner, patience=0.01)
    await sentence(lm, REQUEST)
    assert inner.open == 1
    await asyncio.sleep(0.05)
    assert inner.open == 0
    _, reply = await sentence(lm, asked("Q: Where?\nA: Ode was written by Eva."))
    assert not reply.call.fused


async def test_of_streams_read_side_by_side_one_is_kept_and_none_left_open():
    inner = NextWordLM(follows)
    lm = FusingLM(inner, patience=60)
    one, two = lm.stream(REQUEST), lm.stream(asked("Q: Who?\nA:"))
    await anext(one)
    await anext(two)
    await two.aclose()
    await one.aclose()
    await asyncio.sleep(0.01)
    assert inner.open == 1
    await lm.aclose()
    assert inner.open == 0


async def test_a_stream_that_cannot_be_closed_does_not_keep_the_model_from_closing():
    class Stuck(NextWordLM):
        closed = False

        async def stream(self, request):
            try:
                async for piece in super().stream(request):
                    yield piece
            finally:
                raise LMUnavailable("The connection was reset.")

        async def aclose(self):
            self.closed = True

    inner = Stuck(follows)
    lm = FusingLM(inner)
    await sentence(lm, REQUEST)
    with pytest.raises(LMUnavailable):
        await lm.aclose()
    assert inner.closed


def test_one_model_serves_several_event_loops_that_leave_streams_open(caplog):
    inner = NextWordLM(follows)
    lm = FusingLM(PacedLM(inner, 1))
    for _ in range(3):
        text, _ = asyncio.run(sentence(lm, REQUEST))
        assert text == "Ode was written by Eva."
        assert inner.open == 0
    asyncio.run(lm.aclose())
    assert not caplog.records


# --- Where others wait ----------------------------------------------------------------------


async def test_a_kept_stream_gives_its_place_to_a_call_that_waits():
    inner = NextWordLM(follows)
    lm = FusingLM(PacedLM(inner, 1), patience=60)
    await sentence(lm, REQUEST)
    # A search that asks the model itself, in a task of its own.
    reply = await asyncio.wait_for(asyncio.create_task(complete(lm, REQUEST)), 5)
    assert reply.text == CHAIN
    _, again = await sentence(lm, asked("Q: Where?\nA: Ode was written by Eva."))
    assert not again.call.fused
    await lm.aclose()
    assert inner.open == 0


async def test_a_stream_is_kept_for_a_short_search_though_others_wait():
    inner = NextWordLM(follows)
    lm = FusingLM(PacedLM(inner, 1), patience=60)
    await sentence(lm, REQUEST)
    other = asyncio.create_task(complete(lm, asked("Q: Who?\nA:")))
    await asyncio.sleep(0)
    _, reply = await sentence(lm, asked("Q: Where?\nA: Ode was written by Eva."))
    assert reply.call.fused
    await asyncio.wait_for(other, 5)
    await lm.aclose()


async def test_a_stream_is_kept_when_those_who_waited_got_other_places(monkeypatch):
    monkeypatch.setattr(fusing, "CROWDED", 0.02)
    inner = NextWordLM(follows)
    paced = PacedLM(inner, 2)
    lm = FusingLM(paced, patience=60)
    held = paced.stream(REQUEST)
    await anext(held)
    await sentence(lm, REQUEST)
    other = asyncio.create_task(complete(paced, REQUEST))
    await asyncio.sleep(0)
    assert paced.crowded
    await held.aclose()
    await other
    await asyncio.sleep(0.04)
    _, reply = await sentence(lm, asked("Q: Where?\nA: Ode was written by Eva."))
    assert reply.call.fused
    await lm.aclose()


async def test_a_text_that_has_come_to_its_end_takes_no_place_and_is_kept(monkeypatch):
    monkeypatch.setattr(fusing, "CROWDED", 0.0)
    paced = PacedLM(ScriptedLM(CHAIN, CHAIN, CHAIN, pieces=9), 1)
    lm = FusingLM(paced, patience=60)
    await complete(lm, REQUEST)
    held = paced.stream(REQUEST)
    await anext(held)
    other = asyncio.create_task(complete(paced, REQUEST))
    await asyncio.sleep(0.02)
    assert paced.crowded
    reply = await complete(lm, asked("Q: Where?\nA: Ode was written by Eva."))
    assert reply.call.fused
    await held.aclose()
    await other


async def test_more_questions_than_places_are_not_held_up_by_kept_streams(monkeypatch):
    monkeypatch.setattr(fusing, "CROWDED", 0.01)
    inner = NextWordLM(follows)
    lm = FusingLM(PacedLM(inner, 2), patience=60)

    async def question(number):
        for step in range(3):  # a changed prompt each time: nothing can be read on
            await sentence(lm, asked(f"{step} {number}\nQ: Where?\nA:"))
            await asyncio.sleep(0.05)  # a search

    await asyncio.wait_for(asyncio.gather(*map(question, range(6))), 5)
    await lm.aclose()
    assert inner.open == 0


async def test_a_task_that_waits_for_an_equal_call_holds_no_place_it_needs(tmp_path):
    store = ReplyStore(tmp_path / "replies.sqlite")
    lm = CachedLM(FusingLM(PacedLM(NextWordLM(follows), 1), patience=60), store)

    async def two(first):
        await complete(lm, replace(asked(first), enough="one"), until=enough())
        return await complete(lm, asked("Q: Both?\nA:"))

    both = asyncio.gather(two("Q: One?\nA:"), two("Q: Two?\nA:"))
    assert {reply.text for reply in await asyncio.wait_for(both, 5)} == {CHAIN}
    await lm.aclose()
    await store.aclose()


async def test_a_task_that_ends_leaves_no_stream_open():
    inner = NextWordLM(follows)
    lm = FusingLM(inner, patience=60)
    await asyncio.create_task(sentence(lm, REQUEST))
    await asyncio.sleep(0.01)
    gc.collect()
    assert inner.open == 0


async def test_tasks_do_not_read_from_one_anothers_streams():
    inner = NextWordLM(follows)
    lm = FusingLM(inner)
    await sentence(lm, REQUEST)
    _, reply = await asyncio.create_task(
        sentence(lm, asked("Q: Where?\nA: Ode was written by Eva."))
    )
    assert not reply.call.fused


async def test_a_cancelled_reader_leaves_no_stream_open():
    class Slow(NextWordLM):
        async def stream(self, request):
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    await asyncio.sleep(0.01)
                    yield piece

    inner = Slow(follows)
    task = asyncio.create_task(complete(FusingLM(inner), REQUEST))
    await asyncio.sleep(0.03)
    assert inner.open == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inner.open == 0


async def test_a_finished_stream_holds_no_place_of_the_backend():
    inner = NextWordLM(follows)
    await complete(FusingLM(inner), REQUEST)
    assert inner.open == 0


async def test_tokens_of_a_text_are_counted_once():
    inner = NextWordLM(follows)
    lm = FusingLM(inner)
    first, one = await sentence(lm, REQUEST)
    second, two = await sentence(lm, asked(f"Q: Where?\nA: {first}"))
    _, three = await sentence(lm, asked(f"Q: Where?\nA: {first} {second}"))
    generated = [reply.call.tokens.generated for reply in (one, two, three)]
    assert sum(generated) == inner.written
    assert [reply.call.tokens.prompt for reply in (one, two, three)] == [3, 0, 0]


@pytest.mark.parametrize("limit", [7, 8, 9, 12])
async def test_what_two_requests_wrote_for_one_text_is_added_up(limit):
    inner = NextWordLM(follows)
    lm = FusingLM(inner)
    cut = replace(REQUEST, max_tokens=limit)
    first, one = await sentence(lm, cut)
    two = await complete(lm, replace(cut, prompt=Prompt(f"Q: Where?\nA: {first}")))
    assert one.call.tokens.generated + two.call.tokens.generated == inner.written
    assert two.call.tokens.prompt == 8
    assert not two.call.fused  # it was sent
    assert lm.asked == len(inner.requests) == 2


async def test_a_part_of_the_counts_is_not_passed_off_as_the_sum():
    class Late(NextWordLM):
        async def stream(self, request):
            early = not self.requests
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield replace(piece, tokens=piece.tokens if early else None)

    lm = FusingLM(Late(follows))
    cut = replace(REQUEST, max_tokens=8)
    first, _ = await sentence(lm, cut)
    two = await complete(lm, replace(cut, prompt=Prompt(f"Q: Where?\nA: {first}")))
    assert two.call.tokens == Tokens()


async def test_counts_told_only_at_the_end_go_to_the_text_that_came_to_it():
    class Late(NextWordLM):
        async def stream(self, request):
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield piece if piece.finish else replace(piece, tokens=None)

    lm = FusingLM(Late(follows))
    first, one = await sentence(lm, REQUEST)
    two = await complete(lm, asked(f"Q: Where?\nA: {first}"))
    assert one.call.tokens == Tokens()
    assert two.call.tokens == Tokens(3, 0, 16)  # 15 words and the end


# --- Strategies over it ---------------------------------------------------------------------


def substance(step):
    """A step less what it cost."""
    match step:
        case Search():
            return replace(step, seconds=0.0)
        case Thought():
            return step.text, step.forced, step.call and step.call.prompt
        case Answer():
            return step.text, step.stop, step.passages, step.reason, step.call and step.call.prompt


WORDS = ("Eva", "Ulm", "ode", "was", "is", "of")


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    common=st.integers(0, 4),
    k=st.integers(1, 4),
    cap=st.integers(1, 6),
    generation=st.integers(3, 60) | st.just(1000),
    preset=st.sampled_from(["default", "paper"]),
    stop_early=st.booleans(),
    reader=st.sampled_from(["cot", "none"]),
)
async def test_fused_and_unfused_chains_are_the_same_for_a_prefix_consistent_model(  # noqa: PLR0917
    seed, common, k, cap, generation, preset, stop_early, reader
):
    corpus = [Passage(f"p{n}", w, f"{w} {n}.") for n, w in enumerate(WORDS)]

    class Find(ScriptedRetriever):
        async def search(self, queries, k):
            order = sorted(corpus, key=lambda p: crc32((p.id + queries[0].text).encode()))
            self.rankings = {queries[0].text: order}
            return await super().search(queries, k)

    async def run(lm):
        strategy = make(
            "ircot",
            lm=lm,
            retriever=Find({}),
            preset=preset,
            k=k,
            max_passages=cap,
            max_tokens=generation,
            stop_early=stop_early,
            reader=reader,
            shots=1,
        )
        return await trace(strategy, Question(f"Where {seed}?"))

    plain, inner = NextWordLM(babble(seed, common)), NextWordLM(babble(seed, common))
    alone, fused = await run(plain), await run(lm := FusingLM(inner))
    await lm.aclose()
    assert [substance(s) for s in fused.steps] == [substance(s) for s in alone.steps]
    assert [c.finishes for c in fused.calls] == [c.finishes for c in alone.calls]
    assert len(inner.requests) <= len(plain.requests)
    if generation == 1000:  # a limit met on the way makes a call write again what was served
        assert inner.written <= plain.written
    assert inner.open == 0


async def test_the_fold_of_pieces_says_what_was_fused():
    class Marked(ScriptedLM):
        async def stream(self, request):
            yield Piece(" a", fused=True)
            yield Piece(" b", finish="stop", fused=True)

    reply = await complete(Marked(), REQUEST)
    assert reply.call.fused
    assert not reply.call.replayed
