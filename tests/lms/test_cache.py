"""Replies are given again, and only those that may be."""

import asyncio
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from contextlib import aclosing, closing, contextmanager
from dataclasses import fields, replace

import pytest
import store_processes
from hypothesis import given
from hypothesis import strategies as st
from store_processes import key, value

from multihop.errors import BadInput, LMUnavailable
from multihop.lms.base import Piece, Prompt, Request, Turn, complete
from multihop.lms.cache import CachedLM
from multihop.lms.digest import file_digest, folder_digests
from multihop.lms.fusing import FusingLM
from multihop.lms.store import SCHEMA, DamagedStore, ReplyStore, default_path, remove
from multihop.testing import ScriptedLM
from multihop.trace import Tokens

REQUEST = Request(Prompt("Q:", (Turn("user", "Q"),)), max_tokens=10)
CUT = replace(REQUEST, enough="first sentence")


class Pieces:
    """Streams given pieces; counts what it was asked, and how streams ended."""

    name = "pieces"
    window = None

    def __init__(self, *pieces, delay=0.0, identity=None):
        self.pieces = pieces
        self.delay = delay
        self.identity = identity or {}
        self.begun = asyncio.Event()
        self.asked = 0
        self.closed = 0
        self.aclosed = 0

    async def stream(self, request):
        self.asked += 1
        self.begun.set()
        try:
            await asyncio.sleep(self.delay)
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            await asyncio.sleep(0)  # closing a connection takes a turn of the loop
            self.closed += 1

    async def count_tokens(self, texts):
        return [len(text.split()) for text in texts]

    async def aclose(self):
        self.aclosed += 1


SENTENCES = (
    Piece("One", tokens=Tokens(5, 2, 1), sent="[user] Q:", retries=2, warnings=("no seed",)),
    Piece(". ", logprobs=(-0.1, float("-inf")), ids=(7, 8), tokens=Tokens(5, 2, 2)),
    Piece("Two \ud800é", thinking="hm"),
    Piece("", finish="length", tokens=Tokens(5, 2, 5)),
)


@pytest.fixture
async def store(tmp_path):
    store = ReplyStore(tmp_path / "replies.sqlite")
    yield store
    await store.aclose()


def cached(lm, store):
    return CachedLM(lm, store)


async def pieces_of(lm, request=REQUEST):
    async with aclosing(lm.stream(request)) as pieces:
        return [piece async for piece in pieces]


def first_sentence(text):
    return ". " in text


# --- Keys -----------------------------------------------------------------------------------

OTHER = {
    "max_tokens": 11,
    "stop": ("\n",),
    "temperature": 0.5,
    "top_p": 0.9,
    "n": 2,
    "seed": 1,
    "logprobs": True,
    "adapter": "lora",
    "enough": "first sentence",
}
OTHER_PROMPT = {
    "text": "Q: ",
    "turns": (Turn("assistant", "Q"),),
    "ask_next": "{chain}!",
    "ids": (7,),
    "covered": 1,
}


def test_every_field_of_a_request_is_either_in_the_key_or_known_not_to_be(store):
    lm = cached(Pieces(), store)
    assert {f.name for f in fields(Request)} == {*OTHER, "prompt", "role"}
    assert {f.name for f in fields(Prompt)} == {*OTHER_PROMPT, "shared"}
    requests = [
        REQUEST,
        *(replace(REQUEST, **{name: value}) for name, value in OTHER.items()),
        *(
            replace(REQUEST, prompt=replace(REQUEST.prompt, **{name: value}))
            for name, value in OTHER_PROMPT.items()
        ),
    ]
    assert len({lm.key(request) for request in requests}) == len(requests)
    same = replace(REQUEST, role="read", prompt=replace(REQUEST.prompt, shared=1))
    assert lm.key(same) == lm.key(REQUEST)


texts = st.text(st.characters(), max_size=5)
requests = st.builds(
    Request,
    prompt=st.builds(
        Prompt,
        text=texts,
        turns=st.lists(
            st.builds(Turn, st.sampled_from(["user", "assistant"]), texts), max_size=2
        ).map(tuple),
        ask_next=texts,
        shared=st.integers(0, 3),
    ),
    max_tokens=st.integers(1, 3),
    stop=st.lists(texts, max_size=2).map(tuple),
    temperature=st.sampled_from([0, 0.0, 0.5, 1]),
    top_p=st.sampled_from([0.5, 1, 1.0]),
    n=st.integers(1, 2),
    seed=st.none() | st.integers(0, 1),
    logprobs=st.booleans(),
    adapter=st.none() | texts,
    role=st.sampled_from(["reason", "read"]),
    enough=texts,
)


def plain(request):
    return replace(request, role="", prompt=replace(request.prompt, shared=0))


@given(requests, requests)
def test_keys_are_equal_when_requests_are_but_for_role_and_shared(key_lm, one, other):
    assert (key_lm.key(one) == key_lm.key(other)) == (plain(one) == plain(other))


@given(requests)
def test_whole_and_broken_numbers_of_the_same_value_have_the_same_key(key_lm, request_):
    same = replace(
        request_, temperature=float(request_.temperature), top_p=float(request_.top_p), role="x"
    )
    assert key_lm.key(same) == key_lm.key(request_)


@pytest.fixture(scope="module")
def key_lm(tmp_path_factory):
    return CachedLM(Pieces(), ReplyStore(tmp_path_factory.mktemp("keys") / "r.sqlite"))


def test_another_model_and_another_identity_have_other_keys(store):
    one, other = Pieces(identity={"weights": "a"}), Pieces(identity={"weights": "b"})
    named = Pieces(identity={"weights": "a"})
    named.name = "else"
    keys = {cached(lm, store).key(REQUEST) for lm in (one, other, named, Pieces())}
    assert len(keys) == 4
    assert cached(Pieces(identity={"weights": "a"}), store).key(REQUEST) in keys


# --- Replays --------------------------------------------------------------------------------


async def test_a_replay_is_what_the_model_gave(store):
    lm = Pieces(*SENTENCES)
    first = await pieces_of(cached(lm, store))
    again = await pieces_of(cached(lm, store))

    assert first == list(SENTENCES)
    assert again == [replace(SENTENCES[0], retries=0, replayed=True), *SENTENCES[1:]]
    assert lm.asked == 1


async def test_a_replayed_call_says_so_and_what_it_cost(store):
    lm = cached(Pieces(*SENTENCES), store)
    first, again = await complete(lm, REQUEST), await complete(lm, replace(REQUEST, role="read"))

    assert (first.call.replayed, again.call.replayed) == (False, True)
    assert again.samples == first.samples
    expected = replace(first.call, replayed=True, retries=0, role="read", seconds=0)
    assert replace(again.call, seconds=0) == expected
    assert (lm.hits, lm.misses, lm.joined) == (1, 1, 0)


async def test_what_was_fused_stays_marked(store):
    lm = cached(Pieces(Piece("a", finish="stop", fused=True)), store)
    await complete(lm, REQUEST)
    call = (await complete(lm, REQUEST)).call
    assert (call.fused, call.replayed) == (True, True)


async def test_replies_outlive_the_process_that_asked(store, tmp_path):
    await complete(cached(ScriptedLM("a"), store), REQUEST)
    await store.aclose()
    reply = await complete(cached(ScriptedLM(), ReplyStore(store.path)), REQUEST)
    assert reply.text == "a"


async def test_samples_and_seeded_sampling_are_kept(store):
    lm = Pieces(Piece("a", 0, "stop"), Piece("b", 1), Piece("c", 1, "length"))
    request = replace(REQUEST, n=2, temperature=0.7, seed=1)
    replies = [await complete(cached(lm, store), request) for _ in range(2)]
    assert lm.asked == 1
    assert [[s.text for s in reply.samples] for reply in replies] == [["a", "bc"]] * 2
    assert replies[1].call.finishes == ("stop", "length")


async def test_sampling_without_a_seed_asks_every_time(store):
    lm = Pieces(*SENTENCES)
    wrapped = cached(lm, store)
    for _ in range(2):
        assert not (await complete(wrapped, replace(REQUEST, temperature=0.1))).call.replayed
    assert lm.asked == 2
    assert (wrapped.hits, wrapped.misses, (await store.usage()).entries) == (0, 0, 0)


async def test_a_stream_that_ends_without_a_finish_is_not_kept(store):
    lm = Pieces(Piece("a", 0, "stop"), Piece("b", 1))
    for _ in range(2):
        await pieces_of(cached(lm, store), replace(REQUEST, n=2))
    assert lm.asked == 2


async def test_an_error_is_not_kept(store):
    lm = Pieces(Piece("half an ans"), LMUnavailable("gone"))
    wrapped = cached(lm, store)
    for _ in range(2):
        with pytest.raises(LMUnavailable, match="gone"):
            await complete(wrapped, REQUEST)
    assert (lm.asked, lm.closed) == (2, 2)


# --- Streams that are closed early ----------------------------------------------------------


async def test_a_cut_reply_is_kept_under_its_rule_and_cut_at_the_same_place(store):
    lm = Pieces(*SENTENCES)
    wrapped = cached(lm, store)
    replies = [await complete(wrapped, CUT, until=first_sentence) for _ in range(2)]

    assert [reply.text for reply in replies] == ["One. ", "One. "]
    assert [reply.call.finishes for reply in replies] == [("cut",), ("cut",)]
    assert [reply.call.tokens for reply in replies] == [Tokens(5, 2, 2)] * 2
    assert (lm.asked, wrapped.hits) == (1, 1)


async def test_reading_on_after_a_cut_reply_ends_in_cut(store):
    wrapped = cached(Pieces(*SENTENCES), store)
    await complete(wrapped, CUT, until=first_sentence)
    again = await pieces_of(wrapped, CUT)
    assert [piece.text for piece in again] == ["One", ". ", ""]
    assert [piece.finish for piece in again] == [None, None, "cut"]


async def test_every_sample_of_a_cut_reply_has_an_end(store):
    lm = Pieces(Piece("a", 1, "stop"), Piece("b", 0), Piece("c", 2), Piece("", 0, "stop"))
    request = replace(CUT, n=3)
    async with aclosing(cached(lm, store).stream(request)) as pieces:
        async for piece in pieces:
            if piece.index == 2:
                break
    reply = await complete(cached(lm, store), request)
    assert lm.asked == 1
    assert reply.call.finishes == ("cut", "stop", "cut")
    assert reply.call.outputs == ("b", "a", "c")


async def test_a_reply_that_was_cut_without_a_rule_is_not_kept(store):
    lm = Pieces(*SENTENCES)
    for _ in range(2):
        await complete(cached(lm, store), REQUEST, until=first_sentence)
    assert lm.asked == 2
    assert (await store.usage()).entries == 0


async def test_a_cut_reply_answers_nobody_with_another_rule(store):
    lm = Pieces(*SENTENCES)
    await complete(cached(lm, store), CUT, until=first_sentence)
    assert (await complete(cached(lm, store), REQUEST)).text == "One. Two \ud800é"
    assert lm.asked == 2


async def test_closing_closes_the_models_stream_before_it_returns(store):
    lm = Pieces(*SENTENCES)
    stream = cached(lm, store).stream(CUT)
    await anext(stream)
    await stream.aclose()
    assert lm.closed == 1


async def test_closing_from_another_task_keeps_the_reply_too(store):
    lm = Pieces(*SENTENCES)
    stream = cached(lm, store).stream(CUT)
    await anext(stream)
    await asyncio.create_task(stream.aclose())
    assert lm.closed == 1
    assert (await complete(cached(lm, store), CUT)).text == "One"


async def test_a_rule_that_fails_has_not_had_enough(store):
    def broken(text):
        raise BadInput("The splitter is not installed.")

    lm = Pieces(*SENTENCES)
    for wrapped in (cached(lm, store), cached(FusingLM(lm), store)):
        with pytest.raises(BadInput, match="splitter"):
            await complete(wrapped, CUT, until=broken)
    assert (lm.asked, lm.closed) == (2, 2)
    assert (await store.usage()).entries == 0
    assert not store.flights._flights
    assert (await complete(cached(lm, store), CUT, until=first_sentence)).text == "One. "


async def test_who_is_cancelled_between_two_pieces_has_not_had_enough(store):
    lm = Pieces(*SENTENCES)

    async def read():
        async with aclosing(cached(lm, store).stream(CUT)) as pieces:
            async for _ in pieces:
                await asyncio.sleep(60)

    task = asyncio.create_task(read())
    await lm.begun.wait()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lm.closed == 1
    assert (await store.usage()).entries == 0


async def test_who_is_cancelled_while_waiting_for_a_piece_leaves_nothing(store):
    lm = Pieces(*SENTENCES, delay=60)
    task = asyncio.create_task(complete(cached(lm, store), CUT))
    await lm.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lm.closed == 1
    assert (await store.usage()).entries == 0
    assert not store.flights._flights


# --- Equal requests at the same time --------------------------------------------------------


async def test_equal_requests_at_the_same_time_are_sent_once(store):
    lm = Pieces(*SENTENCES, delay=0.01)
    one, other = cached(lm, store), cached(lm, store)
    replies = await asyncio.gather(*(complete((one, other)[i % 2], REQUEST) for i in range(10)))

    assert lm.asked == 1
    assert {reply.text for reply in replies} == {"One. Two \ud800é"}
    assert sum(reply.call.replayed for reply in replies) == 9
    assert one.misses + other.misses == 1
    assert one.joined + other.joined == 9
    assert one.hits + other.hits == 0


async def test_those_who_wait_get_a_cut_reply_too(store):
    lm = Pieces(*SENTENCES, delay=0.01)
    wrapped = cached(lm, store)
    replies = await asyncio.gather(
        *(complete(wrapped, CUT, until=first_sentence) for _ in range(3))
    )
    assert [reply.text for reply in replies] == ["One. "] * 3
    assert (lm.asked, wrapped.joined) == (1, 2)


async def test_an_error_is_the_askers_own_and_the_next_one_asks(store):
    class Flaky(Pieces):
        async def stream(self, request):
            self.asked += 1
            asked = self.asked
            await asyncio.sleep(0.01)
            if asked < 3:
                raise LMUnavailable(f"attempt {asked}")
            yield Piece("a", finish="stop")

    lm = Flaky()
    wrapped = cached(lm, store)
    replies = await asyncio.gather(
        *(complete(wrapped, REQUEST) for _ in range(5)), return_exceptions=True
    )
    failures = sorted(str(reply) for reply in replies if isinstance(reply, LMUnavailable))
    assert failures == ["attempt 1", "attempt 2"]
    assert lm.asked == 3
    assert (wrapped.misses, wrapped.joined) == (3, 2)


async def test_when_the_asker_is_cancelled_the_next_one_asks(store):
    lm = Pieces(*SENTENCES, delay=0.02)
    wrapped = cached(lm, store)
    first = asyncio.create_task(complete(wrapped, REQUEST))
    await lm.begun.wait()
    others = [asyncio.create_task(complete(wrapped, REQUEST)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    replies = await asyncio.wait_for(asyncio.gather(*others), 10)
    assert {reply.text for reply in replies} == {"One. Two \ud800é"}
    assert lm.asked == 2


async def test_a_cancelled_waiter_disturbs_nobody(store):
    lm = Pieces(*SENTENCES, delay=0.02)
    wrapped = cached(lm, store)
    tasks = [asyncio.create_task(complete(wrapped, REQUEST)) for _ in range(4)]
    await lm.begun.wait()
    tasks[2].cancel()
    replies = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    assert isinstance(replies[2], asyncio.CancelledError)
    assert [reply.text for i, reply in enumerate(replies) if i != 2] == ["One. Two \ud800é"] * 3
    assert lm.asked == 1


async def test_a_task_that_reads_two_equal_streams_side_by_side_does_not_wait_for_itself(store):
    lm = Pieces(*SENTENCES)
    wrapped = cached(lm, store)

    async def read():
        found = []
        async with aclosing(wrapped.stream(REQUEST)) as one:
            async for piece in one:
                async with aclosing(wrapped.stream(REQUEST)) as other:
                    found.append((piece, await anext(other)))
        return found

    found = await asyncio.wait_for(read(), 10)
    assert len(found) == len(SENTENCES)


def test_several_event_loops_share_one_store(tmp_path):
    store = ReplyStore(tmp_path / "r.sqlite")
    lm = CachedLM(Pieces(*SENTENCES, delay=0.05), store)
    barrier, texts = threading.Barrier(4), []

    def run():
        barrier.wait()
        texts.append(asyncio.run(complete(lm, REQUEST)).text)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()

    assert texts == ["One. Two \ud800é"] * 4
    assert (lm.lm.asked, lm.misses, lm.joined + lm.hits) == (1, 1, 3)
    asyncio.run(store.aclose())


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_forgotten_whatever_happens_to_the_others(tmp_path, seed):
    chance = random.Random(seed)

    class Moody:
        name, window = "moody", None

        async def stream(self, request):
            await asyncio.sleep(chance.random() / 500)
            yield Piece("One. ")
            await asyncio.sleep(chance.random() / 500)
            if chance.random() < 0.3:
                raise LMUnavailable("moody")
            yield Piece("Two.", finish="stop")

    store = ReplyStore(tmp_path / "r.sqlite", max_bytes=1500)  # some are evicted again
    lm = CachedLM(Moody(), store)
    ends = []

    async def one(number):
        request = Request(Prompt(f"Q{number % 4}"), 5, enough=chance.choice(["", "rule"]))
        await asyncio.sleep(chance.random() / 200)
        if chance.random() < 0.2:
            asyncio.get_running_loop().call_later(
                chance.random() / 200, asyncio.current_task().cancel
            )
        until = first_sentence if chance.random() < 0.5 else None
        try:
            reply = await complete(lm, request, until=until)
        except (LMUnavailable, asyncio.CancelledError) as end:
            ends.append(type(end).__name__)
        else:
            ends.append(reply.text)
            assert reply.text in ("One. ", "One. Two.")

    async def all_of_them():
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(one(number))

    def loop():
        asyncio.run(all_of_them())

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert len(ends) == 120
    assert not store.flights._flights
    asyncio.run(store.aclose())


async def test_closing_the_model_writes_what_is_kept_and_leaves_the_store(store):
    lm = Pieces(*SENTENCES)
    wrapped = cached(lm, store)
    await complete(wrapped, REQUEST)
    await wrapped.aclose()
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("SELECT count(*) FROM replies").fetchone() == (1,)
    await wrapped.aclose()
    assert lm.aclosed == 2
    assert (await complete(wrapped, REQUEST)).call.replayed


# --- The store ------------------------------------------------------------------------------


async def names_in(store, *names):
    return [name for name in names if await store.get(key(name))]


async def test_what_was_not_used_for_longest_goes_first(tmp_path):
    noise = random.Random(1).randbytes(400).hex()  # hardly to be compressed
    store = ReplyStore(tmp_path / "r.sqlite", max_bytes=2200)
    for name in "abc":
        store.put(key(name), {"text": [noise]})
    assert (await store.usage()).entries == 3
    assert await store.get(key("a"))
    store.put(key("d"), {"text": [noise]})

    assert await names_in(store, *"abcd") == ["a", "c", "d"]
    assert (await store.usage()).entries == 3
    await store.aclose()


async def test_the_bound_holds_and_the_file_stays_near_it(tmp_path):
    chance = random.Random(1)
    store = ReplyStore(tmp_path / "r.sqlite", max_bytes=200_000)
    for number in range(400):
        store.put(key(number), {"text": [chance.randbytes(chance.randrange(3000)).hex()]})
        if number % 50 == 0:
            assert (await store.usage()).bytes <= 200_000
    usage = await store.usage()
    assert 150_000 < usage.bytes <= 200_000
    await store.aclose()
    assert store.path.stat().st_size < 300_000
    with closing(sqlite3.connect(store.path)) as db:
        counted = db.execute("SELECT count(*), sum(size) FROM replies").fetchone()
    assert counted == (usage.entries, usage.bytes)


async def test_a_record_over_the_bound_evicts_nothing(tmp_path):
    store = ReplyStore(tmp_path / "r.sqlite", max_bytes=1000)
    store.put(key("a"), {"text": ["a"]})
    store.put(key("b"), {"text": [random.Random(1).randbytes(2000).hex()]})
    assert await names_in(store, *"ab") == ["a"]
    await store.aclose()


async def test_times_of_use_are_kept_when_nothing_is_written(tmp_path):
    store = ReplyStore(tmp_path / "r.sqlite")
    for name in range(301):
        store.put(key(name), {"text": [str(name)]})
    for name in range(300):
        await store.get(key(name))
    assert oldest_first(store)[-1] != key(300)  # some times are written by and by
    await store.aclose()
    assert oldest_first(store) == [key(300), *(key(name) for name in range(300))]


def oldest_first(store):
    with closing(sqlite3.connect(store.path)) as db:
        return [row[0] for row in db.execute("SELECT key FROM replies ORDER BY used")]


async def test_the_first_record_of_a_key_stays(store):
    store.put(key("a"), {"text": ["first"]})
    store.put(key("a"), {"text": ["second"]})
    assert await store.get(key("a")) == {"text": ["first"]}
    assert (await store.usage()).entries == 1


async def test_a_store_is_emptied_and_goes_on(store):
    for number in range(20):
        store.put(key(number), {"text": [str(number)]})
    full = await store.usage()
    assert await store.clear() == full
    assert full.entries == 20
    assert (await store.usage()).entries == 0
    store.put(key("a"), {"text": ["a"]})
    assert await store.get(key("a")) == {"text": ["a"]}


def test_a_bound_below_one_is_refused(tmp_path):
    with pytest.raises(BadInput, match="max_bytes is 0"):
        ReplyStore(tmp_path / "r.sqlite", max_bytes=0)
    assert not list(tmp_path.glob("r.*"))


def test_the_place_follows_the_environment(tmp_path, monkeypatch):
    assert default_path() == tmp_path / "home" / "multihop" / "replies.sqlite"
    monkeypatch.setenv("MULTIHOP_CACHE_DIR", str(tmp_path / "own"))
    assert default_path() == tmp_path / "own" / "replies.sqlite"


def foreign(path):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE songs (name)")


def newer(path):
    asyncio.run(ReplyStore(path).aclose())
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")


def garbage(path):
    path.write_bytes(b"no database at all" * 100)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (foreign, "format 0, this program reads 1"),
        (newer, "format 2, this program reads 1"),
        (garbage, "damaged"),
    ],
)
def test_a_file_of_another_kind_is_refused_and_left_as_it_is(tmp_path, make, why):
    path = tmp_path / "replies.sqlite"
    make(path)
    before = path.read_bytes()
    with pytest.raises(DamagedStore, match=why) as refused:
        ReplyStore(path)
    assert str(path) in str(refused.value)
    assert "multihop cache --clear" in str(refused.value)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_opened_is_no_damage(tmp_path):
    (tmp_path / "r.sqlite").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "r.sqlite", tmp_path / "file" / "r.sqlite"):
        with pytest.raises(BadInput, match="cannot be used") as refused:
            ReplyStore(path)
        assert not isinstance(refused.value, DamagedStore)


async def damage_pages(path):
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


async def damage_value(path):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE replies SET value = substr(value, 1, 10)")


async def damage_tables(path):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE replies")


@pytest.mark.parametrize("damage", [damage_pages, damage_value, damage_tables])
async def test_damage_within_the_file_is_told_by_the_call_that_meets_it(tmp_path, damage):
    store = ReplyStore(tmp_path / "r.sqlite")
    lm = Pieces(*SENTENCES)
    await complete(cached(lm, store), REQUEST)
    await store.aclose()
    await damage(store.path)

    with pytest.raises(DamagedStore, match=r"damaged.*Nothing was changed"):
        await complete(cached(lm, store), REQUEST)
    assert lm.asked == 1
    assert not store.flights._flights
    await store.aclose()
    assert remove(store.path) > 0
    assert not list(tmp_path.glob("r.*"))


async def test_a_full_disk_costs_no_reply_and_is_told_once(tmp_path, caplog):
    store = ReplyStore(tmp_path / "r.sqlite")
    limit = "PRAGMA max_page_count = 1"  # SQLite takes the pages there are
    store._submit(lambda: store._open().execute(limit).fetchone()).result()
    lm = Pieces(Piece(random.Random(1).randbytes(50_000).hex(), finish="stop"))
    for number in range(3):
        request = replace(REQUEST, max_tokens=number + 1)
        assert (await complete(cached(lm, store), request)).text
    await store.flush()
    assert [record.message for record in caplog.records] == [
        f"{store.path}: replies cannot be kept (database or disk is full)."
    ]
    await store.aclose()


async def test_the_event_loop_does_not_wait_for_other_writers(store):
    lm = Pieces(*SENTENCES)
    await complete(cached(lm, store), REQUEST)
    await store.flush()
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    await complete(cached(lm, store), CUT)  # its writing waits in the store's thread
    flushed = asyncio.create_task(store.flush())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not flushed.done()
    other.execute("COMMIT")
    other.close()
    await asyncio.wait_for(flushed, 20)
    assert (await store.usage()).entries == 2


# --- Processes ------------------------------------------------------------------------------


def program(work, path, number):
    command = [sys.executable, store_processes.__file__, work, str(path), str(number)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def check(path):
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        counted = db.execute("SELECT count(*), ifnull(sum(size), 0) FROM replies").fetchone()
        assert db.execute("SELECT entries, bytes FROM total").fetchone() == counted
    return counted


@contextmanager
def processes(work, path, count):
    started = [program(work, path, number) for number in range(count)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_processes_share_one_store(tmp_path):
    path = tmp_path / "new" / "r.sqlite"
    with processes("hammer", path, 4) as started:
        for process in started:
            _, said = process.communicate(timeout=60)
            assert (process.returncode, said) == (0, "")
    entries, size = check(path)
    assert 0 < entries < 100  # the bound evicts some
    assert size <= 20_000


def test_what_was_put_is_written_before_python_exits(tmp_path):
    path = tmp_path / "r.sqlite"
    with processes("put_and_leave", path, 1) as [process]:
        assert process.communicate(timeout=60)[1] == ""
    assert check(path)[0] == 1


def test_a_kill_in_the_middle_of_writing_leaves_a_usable_store(tmp_path):
    path = tmp_path / "r.sqlite"
    asyncio.run(ReplyStore(path).aclose())
    with processes("write_forever", path, 2) as started:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and written(path) < 50:
            time.sleep(0.01)
        for process in started:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=10)

    entries, _ = check(path)
    assert entries >= 50
    with closing(sqlite3.connect(path)) as db:
        keys = [row[0] for row in db.execute("SELECT key FROM replies")]
    store = ReplyStore(path)
    for name in keys:
        number = int(name.decode().split(", ")[1].split(")")[0])
        assert asyncio.run(store.get(name)) == value(number)
    store.put(key("after"), {"text": ["goes on"]})
    assert asyncio.run(store.usage()).entries == entries + 1
    asyncio.run(store.aclose())


def written(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT entries FROM total").fetchone()[0]


def test_a_forked_process_opens_the_file_for_itself(tmp_path):
    store = ReplyStore(tmp_path / "r.sqlite")
    store.put(key("parent"), {"text": ["p"]})
    asyncio.run(store.flush())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(store,))
        child.start()
    child.join(30)
    assert child.exitcode == 0
    assert asyncio.run(store.get(key("child"))) == {"text": ["c"]}
    asyncio.run(store.aclose())
    assert check(store.path)[0] == 2


def in_child(store):
    async def work():
        assert await store.get(key("parent")) == {"text": ["p"]}
        store.put(key("child"), {"text": ["c"]})
        await store.aclose()

    asyncio.run(work())


# --- What identifies a model ----------------------------------------------------------------


def test_a_digest_is_of_the_content_and_read_once(tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    first = file_digest(path)
    assert first == hashlib.sha256(b"weights").hexdigest()
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("read again"))
    assert file_digest(path) == first
    monkeypatch.setattr("multihop.lms.digest._known", {})  # as in another process
    assert file_digest(path) == first


def test_a_changed_file_has_another_digest_even_at_the_same_size_and_time(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    first, then = file_digest(path), path.stat()
    time.sleep(0.02)  # a file system's clock may be coarse
    path.write_bytes(b"Weights")
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert file_digest(path) != first


def test_a_spoiled_or_unwritable_note_of_a_digest_does_no_harm(tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    first = file_digest(path)
    [note] = (tmp_path / "home" / "multihop" / "digests").iterdir()
    for spoil in (b"", b"\xff" * 64):
        note.write_bytes(spoil)
        monkeypatch.setattr("multihop.lms.digest._known", {})
        assert file_digest(path) == first
    monkeypatch.setattr("multihop.lms.digest._known", {})
    monkeypatch.setenv("MULTIHOP_CACHE_DIR", str(path))  # a file, so nothing can be kept there
    assert file_digest(path) == first


def test_a_folder_is_known_by_its_decisive_files(tmp_path):
    for name in ("adapter_config.json", "adapter.safetensors", "README.md"):
        (tmp_path / name).write_text(name)
    assert set(folder_digests(tmp_path, (".json", ".safetensors"))) == {
        "adapter_config.json",
        "adapter.safetensors",
    }


def openai(model="m", url="http://localhost:1/v1", **options):
    pytest.importorskip("aiohttp")
    from multihop.lms.openai import OpenAILM

    return OpenAILM(model, url, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://localhost:2/v1"},
        {"model": "other"},
        {"api": "completions"},
        {"prefill": "no"},
        {"thinking": "open"},
        {"thinking_tokens": 7},
        {"extra_body": {"reasoning_effort": "low"}},
    ],
)
def test_options_of_a_server_that_change_its_replies_change_the_key(store, options):
    assert cached(openai(), store).key(REQUEST) == cached(openai(), store).key(REQUEST)
    assert cached(openai(**options), store).key(REQUEST) != cached(openai(), store).key(REQUEST)


def test_no_secret_is_in_a_servers_identity(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret1")
    lm = openai(
        url="http://me:sk-secret2@localhost:1/v1?key=sk-secret3",
        headers={"Authorization": "sk-secret4"},
    )
    assert "secret" not in json.dumps(dict(lm.identity))


@pytest.mark.torch
def test_a_transformers_model_is_known_by_its_files_and_settings(store, tmp_path):
    import shutil

    from tiny_models import causal_folder

    from multihop.lms.transformers import TransformersLM

    def lm(**options):
        return TransformersLM(str(tmp_path / "model"), **options)

    shutil.copytree(causal_folder(), tmp_path / "model")
    first = cached(lm(), store).key(REQUEST)
    assert cached(lm(), store).key(REQUEST) == first
    assert cached(lm(dtype="bfloat16"), store).key(REQUEST) != first
    assert cached(lm(chat=True), store).key(REQUEST) != first
    config = tmp_path / "model" / "generation_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"top_k": 3}))
    assert cached(lm(), store).key(REQUEST) != first
