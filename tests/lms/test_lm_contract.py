"""What every backend keeps, whatever is behind it."""

import asyncio
from dataclasses import replace

import pytest
from fake_server import Answer, FakeServer, chunk

from multihop.lms.base import LanguageModel, Prompt, Request, Turn, complete
from multihop.lms.pacing import PacedLM
from multihop.testing import ScriptedLM

TEXT = "Lost Gravity was built by Mack Rides.\nMack Rides is German."
REQUEST = Request(Prompt("Q: Who built it?\nA:", (Turn("user", "Who built it?"),)), max_tokens=12)


def written(body) -> Answer:
    """What a server that keeps the protocol does with TEXT."""
    text = TEXT
    for stop in body.get("stop", ()):
        text = text.split(stop)[0]
    words = [word for word in text.replace("\n", " \n ").split(" ") if word]
    limit = body["max_tokens"]
    finish = "stop" if len(words) <= limit else "length"
    usage = {"prompt_tokens": 5, "completion_tokens": min(len(words), limit), "total_tokens": 9}
    events = []
    for index in range(body.get("n", 1)):
        events += [chunk({"content": word + " "}, index=index) for word in words[:limit]]
        events.append(chunk({}, finish, index))
    return Answer(events=[*events, {"choices": [], "usage": usage}], delay=0.001)


def scripted():
    return ScriptedLM(respond=lambda request: TEXT, pieces=4)


def paced():
    return PacedLM(scripted(), 2)


def openai():
    pytest.importorskip("aiohttp")
    from multihop.lms.openai import OpenAILM

    server = FakeServer()
    server.default = lambda path, body: written(body)
    lm = OpenAILM("m", server.url, timeout=10)
    lm.server = server
    return lm


def local():
    pytest.importorskip("xllamacpp")
    from multihop.lms.local import LocalLM

    return LocalLM(window=256, threads=1)


def transformers():
    from tiny_models import tiny_causal

    return tiny_causal()


def seq2seq():
    from tiny_models import tiny_seq2seq

    return tiny_seq2seq()


def slotted():
    from tiny_models import causal_folder

    from multihop.lms.slotted import SlottedLM

    return SlottedLM(str(causal_folder()), device="cpu")


def batched():
    from tiny_models import tiny_causal

    from multihop.lms.batching import BatchedLM

    return BatchedLM(tiny_causal())


@pytest.fixture(
    params=[
        scripted,
        paced,
        openai,
        pytest.param(local, marks=pytest.mark.embedded),
        pytest.param(transformers, marks=pytest.mark.torch),
        pytest.param(seq2seq, marks=pytest.mark.torch),
        pytest.param(batched, marks=pytest.mark.torch),
        pytest.param(slotted, marks=pytest.mark.torch),
    ]
)
async def lm(request):
    lm = request.param()
    yield lm
    await lm.aclose()
    await lm.aclose()  # harmless
    if hasattr(lm, "server"):
        lm.server.close()


async def test_it_is_a_language_model(lm):
    assert isinstance(lm, LanguageModel)
    assert lm.name
    assert lm.window is None or lm.window > 0


async def test_every_sample_is_finished_and_recorded(lm):
    reply = await complete(lm, replace(REQUEST, n=2, temperature=0.0))
    assert len(reply.samples) == 2
    assert reply.call.outputs == tuple(sample.text for sample in reply.samples)
    assert set(reply.call.finishes) <= {"stop", "length"}
    assert reply.call.model == lm.name


async def test_stop_strings_end_the_text_and_are_not_in_it(lm):
    whole = await complete(lm, replace(REQUEST, max_tokens=40))
    at = len(whole.text) // 2
    stop = whole.text[at : at + 2]
    assert stop

    reply = await complete(lm, replace(REQUEST, max_tokens=40, stop=(stop,)))

    assert stop not in reply.text
    assert reply.samples[0].finish == "stop"


async def test_greedy_answers_repeat(lm):
    texts = {(await complete(lm, REQUEST)).text for _ in range(3)}
    assert len(texts) == 1


async def test_a_stream_can_be_closed_early_and_the_next_call_works(lm):
    await close_early(lm)
    reply = await complete(lm, REQUEST)
    assert reply.samples[0].finish in ("stop", "length")


async def close_early(lm):
    stream = lm.stream(replace(REQUEST, max_tokens=40))
    async for _ in stream:
        break
    await stream.aclose()


async def test_a_stream_can_be_closed_by_another_task_than_its_reader(lm):
    stream = lm.stream(replace(REQUEST, max_tokens=40))

    async def read():
        await anext(stream)

    await asyncio.create_task(read())
    await asyncio.create_task(stream.aclose())

    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    reply = await complete(lm, REQUEST)
    assert reply.samples[0].finish in ("stop", "length")


async def test_a_stream_left_unread_for_a_while_gives_the_same_text_to_another_task(lm):
    whole = await complete(lm, REQUEST)
    stream = lm.stream(REQUEST)
    first = await anext(stream)
    await asyncio.sleep(0.2)

    async def rest():
        return [piece async for piece in stream]

    pieces = [first, *await asyncio.create_task(rest())]

    assert "".join(piece.text for piece in pieces) == whole.text
    assert pieces[-1].finish == whole.samples[0].finish


async def test_tokens_are_counted_text_by_text(lm):
    empty, one, two, again = await lm.count_tokens(["", "river", "river river river", "river"])
    assert empty == 0
    assert 1 <= one == again < two
    assert await lm.count_tokens([]) == []


async def test_counts_are_whole_numbers_or_unknown(lm):
    tokens = (await complete(lm, REQUEST)).call.tokens
    assert all(n is None or n >= 0 for n in (tokens.prompt, tokens.cached, tokens.generated))
