"""Batches from concurrent requests, on an engine that writes when the test says so."""

import asyncio
from contextlib import aclosing

import pytest

from multihop.errors import BadCompletion, BadInput, ContextTooLong, LMUnavailable
from multihop.lms.base import LanguageModel, Piece, Prompt, Request, complete
from multihop.lms.batching import BatchedLM, Prepared


class Engine:
    """Writes each prompt's words in upper case, a word of every row a step."""

    name = "engine"
    window = 100

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.costs: list[int] = []  # rows evaluated at each step
        self.step = asyncio.Semaphore(0)
        self.fails: Exception | None = None
        self.ended = 0

    async def prepare(self, request: Request) -> Prepared:
        words = len(request.prompt.text.split())
        if words > self.window:
            raise ContextTooLong("too long", words, self.window)
        kind = (request.adapter, request.temperature)
        return Prepared(request=request, kind=kind, tokens=words, rows=request.n)

    async def stream_batch(self, batch, listening, join):
        self.batches.append([one.request.prompt.text for one in batch])
        left = [one.request.prompt.text.upper().split() for one in batch]
        try:
            while any(left):
                await self.step.acquire()
                if self.fails:
                    raise self.fails
                heard = [place for place in range(len(batch)) if left[place] and listening(place)]
                if not heard:
                    return
                self.costs.append(len(heard))
                for place in heard:
                    word = left[place].pop(0)
                    yield place, Piece(word + " ", finish=None if left[place] else "stop")
        finally:
            self.ended += 1

    async def count_tokens(self, texts):
        return [len(text.split()) for text in texts]

    async def aclose(self) -> None:
        pass

    def run(self, steps: int = 10_000) -> None:
        for _ in range(steps):
            self.step.release()


@pytest.fixture
def engine():
    return Engine()


def ask(text: str, **changes) -> Request:
    return Request(Prompt(text), max_tokens=9, **changes)


def start(lm, *texts, **changes):
    return [asyncio.create_task(complete(lm, ask(text, **changes))) for text in texts]


async def ticks(number: int = 10) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def texts(tasks):
    return [reply.text for reply in await asyncio.gather(*tasks)]


async def test_it_is_a_language_model_with_the_engines_name(engine):
    lm = BatchedLM(engine)
    assert isinstance(lm, LanguageModel)
    assert (lm.name, lm.window) == ("engine", 100)
    assert await lm.count_tokens(["a b"]) == [2]


async def test_requests_of_the_same_breath_go_together(engine):
    tasks = start(BatchedLM(engine), "a b", "c d", "e f")
    engine.run()
    assert await texts(tasks) == ["A B ", "C D ", "E F "]
    assert engine.batches == [["a b", "c d", "e f"]]


async def test_an_idle_engine_gets_a_request_at_once_and_the_others_wait_for_it(engine):
    lm = BatchedLM(engine)
    first = start(lm, "a b")
    await ticks()
    later = start(lm, "c d", "e f")
    await ticks()
    assert engine.batches == [["a b"]]

    engine.run()

    assert await texts(first + later) == ["A B ", "C D ", "E F "]
    assert engine.batches == [["a b"], ["c d", "e f"]]


async def test_no_batch_is_larger_than_allowed(engine):
    tasks = start(BatchedLM(engine, most=2), *"abcde")
    engine.run()
    assert await texts(tasks) == ["A ", "B ", "C ", "D ", "E "]
    assert engine.batches == [["a", "b"], ["c", "d"], ["e"]]


async def test_samples_take_places_and_many_of_them_go_alone(engine):
    lm = BatchedLM(engine, most=3)
    tasks = [asyncio.create_task(complete(lm, ask("a"))) for _ in range(2)]
    streams = [lm.stream(ask("b", n=n)) for n in (2, 9)]
    tasks += [asyncio.create_task(anext(stream)) for stream in streams]
    engine.run()
    await asyncio.gather(*tasks)
    assert engine.batches == [["a", "a"], ["b"], ["b"]]
    for stream in streams:
        await stream.aclose()


async def test_only_requests_of_one_kind_share_a_batch_and_none_is_passed_over(engine):
    lm = BatchedLM(engine)
    tasks = (
        start(lm, "a") + start(lm, "b", adapter="x") + start(lm, "c") + start(lm, "d", adapter="x")
    )
    await ticks(3)
    tasks += start(lm, "e", "f", "g")  # many of the first kind come later
    engine.run()
    assert await texts(tasks) == ["A ", "B ", "C ", "D ", "E ", "F ", "G "]
    assert engine.batches == [["a", "c"], ["b", "d"], ["e", "f", "g"]]


async def test_a_stream_of_one_kind_never_starves_another(engine):
    lm = BatchedLM(engine, most=2)
    endless = start(lm, *"aaaaaaaa")
    other = start(lm, "b", adapter="x")
    engine.run()
    await asyncio.gather(*other)
    place = engine.batches.index(["b"])
    assert place == 4  # after those that came before it
    await asyncio.gather(*endless)

    engine.batches.clear()
    other = start(lm, "z", adapter="x")
    await ticks(1)
    later = start(lm, *"aaaa")
    await asyncio.gather(*other, *later)
    assert engine.batches[0] == ["z"]


async def test_prompts_of_like_length_go_together(engine):
    long, middle, short = "l " * 40, "m " * 35, "s " * 4
    tasks = start(BatchedLM(engine), long, short, middle, short)
    engine.run()
    await asyncio.gather(*tasks)
    assert engine.batches == [[long, middle], [short, short]]


async def test_padding_is_part_of_the_budget_of_tokens(engine):
    prompts = ["w " * n for n in (10, 9, 10, 10, 60)]
    tasks = start(BatchedLM(engine, most_tokens=30, padding=1), *prompts)
    engine.run()
    await asyncio.gather(*tasks)
    # The nearest in length first; the long one alone, though it is over the budget.
    assert [[len(text.split()) for text in batch] for batch in engine.batches] == [
        [10, 10, 10],
        [9],
        [60],
    ]


async def test_a_fault_of_one_request_reaches_no_other(engine):
    lm = BatchedLM(engine)
    bad, *good = start(lm, "w " * 200, "a", "b")
    engine.run()
    assert await texts(good) == ["A ", "B "]
    with pytest.raises(ContextTooLong):
        await bad
    assert engine.batches == [["a", "b"]]


async def test_an_error_of_a_batch_reaches_all_of_it_and_the_next_one_goes_well(engine):
    lm = BatchedLM(engine, most=2)
    tasks = start(lm, "a", "b", "c")
    await ticks()
    engine.fails = LMUnavailable("no memory left")
    engine.step.release()
    done = await asyncio.gather(*tasks[:2], return_exceptions=True)
    assert [str(failure) for failure in done] == ["no memory left"] * 2

    engine.fails = None
    engine.run()
    assert await texts(tasks[2:]) == ["C "]


async def test_a_closed_stream_stops_costing_and_harms_no_other(engine):
    lm = BatchedLM(engine)
    stream = lm.stream(ask("a b c d"))
    first = asyncio.create_task(anext(stream))
    other = start(lm, "e f g h")
    engine.run(1)
    assert (await first).text == "A "
    await stream.aclose()
    engine.run()
    assert await texts(other) == ["E F G H "]
    assert engine.costs == [2, 1, 1, 1]


async def test_a_batch_that_nobody_listens_to_ends(engine):
    lm = BatchedLM(engine)
    tasks = start(lm, "a b c d", "e f g h")
    engine.run(2)
    await ticks()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    after = start(lm, "i")
    engine.run(2)
    assert await texts(after) == ["I "]
    assert engine.costs == [2, 2, 1]
    assert engine.ended == 2


async def test_a_request_given_up_while_it_waits_is_never_asked(engine):
    lm = BatchedLM(engine)
    first = start(lm, "a")
    await ticks()
    waits, stays = start(lm, "b", "c")
    await ticks()
    waits.cancel()
    await ticks()
    engine.run()
    assert await texts([*first, stays]) == ["A ", "C "]
    assert engine.batches == [["a"], ["c"]]


async def test_a_request_given_up_before_its_batch_is_filled_leaves_the_line_working(engine):
    lm = BatchedLM(engine)
    stream = lm.stream(ask("a"))
    task = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)  # it stands in the line
    task.cancel()
    await ticks()
    engine.run()
    assert await texts(start(lm, "b")) == ["B "]
    assert engine.batches[-1] == ["b"]


async def test_a_reply_does_not_wait_for_the_others_of_its_batch(engine):
    short, long = start(BatchedLM(engine), "a", "b c d")
    engine.run(1)
    assert (await short).text == "A "
    assert not long.done()
    engine.run()
    assert (await long).text == "B C D "


# --- Engines that others can join ------------------------------------------------------------


class OpenEngine(Engine):
    """Takes more requests in before every step."""

    def __init__(self) -> None:
        super().__init__()
        self.joined: list[list[str]] = []

    async def stream_batch(self, batch, listening, join):
        self.batches.append([one.request.prompt.text for one in batch])
        batch = list(batch)
        left = [one.request.prompt.text.upper().split() for one in batch]
        while any(left):
            await self.step.acquire()
            running = [p for p in range(len(batch)) if left[p] and listening(p)]
            longest = max((batch[place].tokens for place in running), default=0)
            came = await asyncio.to_thread(join, len(running), longest)
            if came:
                self.joined.append([one.request.prompt.text for one in came])
            batch += came
            left += [one.request.prompt.text.upper().split() for one in came]
            for place in running + list(range(len(batch) - len(came), len(batch))):
                word = left[place].pop(0)
                yield place, Piece(word + " ", finish=None if left[place] else "stop")


@pytest.fixture
def open_engine():
    return OpenEngine()


async def test_an_engine_takes_those_that_wait_into_a_running_batch(open_engine):
    lm = BatchedLM(open_engine, padding=1)
    first = start(lm, "a b c")
    open_engine.run(1)
    await asyncio.sleep(0.01)
    later = start(lm, "d e", "f")
    open_engine.run()
    assert await texts(first + later) == ["A B C ", "D E ", "F "]
    assert open_engine.batches == [["a b c"]]
    assert open_engine.joined == [["d e", "f"]]


@pytest.mark.parametrize(
    ("options", "late", "joined"),
    [
        ({"most": 2, "padding": 1}, [{"text": "d e"}, {"text": "f g"}], [["d e"], ["f g"]]),
        # Nobody overtakes one of another kind, or one that does not fit.
        ({"padding": 1}, [{"text": "d e", "adapter": "x"}, {"text": "f g"}], []),
        ({}, [{"text": "d " * 50}, {"text": "f g"}], []),
        ({"most_tokens": 8, "padding": 1}, [{"text": "d e"}], []),
    ],
)
async def test_only_the_head_of_the_line_joins_and_only_where_it_fits(
    open_engine, options, late, joined
):
    lm = BatchedLM(open_engine, **options)
    first = start(lm, "a b c a b c")
    open_engine.run(1)
    await asyncio.sleep(0.01)
    for asked in late:
        first += start(lm, asked.pop("text"), **asked)
    open_engine.run()
    assert (await texts(first))[0] == "A B C A B C "
    assert open_engine.joined == joined


async def test_joining_never_starves_another_kind(open_engine):
    lm = BatchedLM(open_engine, most=2, padding=1)
    order = []

    async def one(text, **changes):
        await complete(lm, ask(text, **changes))
        order.append(text)

    async def endless(text):
        for _ in range(20):
            await one(text)

    streams = [asyncio.create_task(endless(text)) for text in ("a b", "c d e")]
    await ticks()
    other = asyncio.create_task(one("x", adapter="other"))
    open_engine.run()
    await asyncio.gather(other, *streams)
    assert order.index("x") <= 4


async def test_a_stream_can_be_left_unread_and_be_closed_by_another_task(engine):
    lm = BatchedLM(engine)
    stream = lm.stream(ask("a b c"))
    engine.run()
    assert (await anext(stream)).text == "A "
    assert await texts(start(lm, "d e")) == ["D E "]  # the unread one holds nobody up

    async def rest():
        async with aclosing(stream):
            return [piece.text async for piece in stream]

    assert await asyncio.create_task(rest()) == ["B ", "C "]


async def test_a_stream_that_ends_without_a_finish_is_broken(engine):
    class Silent(Engine):
        async def stream_batch(self, batch, listening, join):
            yield 0, Piece("half")

    with pytest.raises(BadCompletion, match="broke off"):
        await complete(BatchedLM(Silent()), ask("a"))


def test_one_model_serves_several_event_loops(engine):
    lm = BatchedLM(engine)

    async def go():
        engine.step = asyncio.Semaphore(100)
        return await texts(start(lm, "a", "b"))

    assert asyncio.run(go()) == asyncio.run(go()) == ["A ", "B "]
    assert len(lm._lines) == 0  # nothing keeps a loop that is gone


async def test_a_thousand_requests_go_through_a_batch_at_a_time(engine):
    engine.run()
    tasks = start(BatchedLM(engine, most=64), *["a"] * 1000)
    assert set(await texts(tasks)) == {"A "}
    assert len(engine.batches) == -(-1000 // 64)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"most": 0}, "most is 0"),
        ({"most_tokens": 0}, "most_tokens is 0"),
        ({"padding": 1.5}, "padding is 1.5"),
        ({"padding": float("nan")}, "padding is nan"),
    ],
)
def test_a_number_out_of_range_is_refused(engine, options, why):
    with pytest.raises(BadInput, match=why):
        BatchedLM(engine, **options)
