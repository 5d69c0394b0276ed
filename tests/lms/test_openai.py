"""Every way in which a server can answer, against a fake one."""

import asyncio
import email.utils
import time

import pytest
from fake_server import (
    Answer,
    FakeServer,
    chat,
    chat_events,
    chunk,
    error,
    text,
    text_chunk,
    whole,
)

from multihop.errors import BadCompletion, BadInput, ContextTooLong, LMRefused, LMUnavailable
from multihop.lms import openai_failures
from multihop.lms.base import Prompt, Request, Turn, complete
from multihop.lms.openai import OpenAILM
from multihop.lms.pacing import PacedLM
from multihop.trace import Tokens

pytest.importorskip("aiohttp")

CHAIN = Prompt(
    "Q: Where was Lost Gravity made?\nA: Lost Gravity was built by Mack Rides.",
    (
        Turn("system", "Reason."),
        Turn("user", "Where was Lost Gravity made?"),
        Turn("assistant", "Lost Gravity was built by Mack Rides."),
    ),
    ask_next="\nSo far: {chain}\nNext sentence?",
)
FRESH = Prompt(CHAIN.text, CHAIN.turns[:2], CHAIN.ask_next)


def ask(prompt: Prompt = FRESH, **changes) -> Request:
    return Request(prompt, **{"max_tokens": 20, **changes})


@pytest.fixture
def server():
    server = FakeServer()
    yield server
    server.close()


@pytest.fixture
def pauses(monkeypatch):
    waited = []

    async def pause(seconds):
        waited.append(seconds)

    monkeypatch.setattr(openai_failures, "pause", pause)
    return waited


@pytest.fixture
async def lm(server):
    lm = OpenAILM("m", server.url, timeout=5)
    yield lm
    await lm.aclose()


@pytest.fixture
def open_lm(server):
    made = []

    def make(**options):
        made.append(OpenAILM("m", server.url, **{"timeout": 5, **options}))
        return made[-1]

    return make


async def ask_and_close(lm, request, **options):
    try:
        return await complete(lm, request, **options)
    finally:
        await lm.aclose()


# --- What is sent ----------------------------------------------------------------------------


async def test_turns_are_sent_and_the_unfinished_one_is_continued(server, lm):
    server.answers = [chat(" Mack Rides", " is German.")]

    reply = await complete(lm, ask(CHAIN, stop=("\n",), seed=3, top_p=0.9, temperature=0.5))

    path, body = server.requests[0]
    assert path == "/v1/chat/completions"
    assert body["messages"] == [
        {"role": "system", "content": "Reason."},
        {"role": "user", "content": "Where was Lost Gravity made?"},
        {"role": "assistant", "content": "Lost Gravity was built by Mack Rides."},
    ]
    assert body["continue_final_message"] is True
    assert body["add_generation_prompt"] is False
    sampling = {k: body[k] for k in ("max_tokens", "stop", "seed", "top_p", "temperature")}
    assert sampling == {
        "max_tokens": 20,
        "stop": ["\n"],
        "seed": 3,
        "top_p": 0.9,
        "temperature": 0.5,
    }
    assert reply.text == " Mack Rides is German."
    assert reply.call.prompt.endswith("[assistant]\nLost Gravity was built by Mack Rides.")


async def test_a_server_that_cannot_continue_a_turn_is_asked_for_the_next_sentence(server, lm):
    server.answers = [
        error("Unrecognized request argument supplied: add_generation_prompt"),
        chat("Next."),
        chat("Again."),
    ]

    first = await complete(lm, ask(CHAIN))
    await complete(lm, ask(CHAIN))

    bodies = [body for _, body in server.requests]
    assert first.text == "Next."
    assert first.call.retries == 0  # asked otherwise, not once more
    assert bodies[1]["messages"][-1] == {
        "role": "user",
        "content": "Where was Lost Gravity made?\n"
        "So far: Lost Gravity was built by Mack Rides.\nNext sentence?",
    }
    assert "continue_final_message" not in bodies[1]
    assert len(bodies) == 3  # remembered: not tried again
    assert bodies[2]["messages"] == bodies[1]["messages"]


async def test_prefill_no_and_yes_are_taken_at_their_word(server, open_lm):
    server.answers = [chat("Next."), error("no prefill here")]

    await ask_and_close(open_lm(prefill="no"), ask(CHAIN))
    with pytest.raises(LMRefused, match="no prefill here"):
        await ask_and_close(open_lm(prefill="yes", stream=False), ask(CHAIN))

    assert server.requests[0][1]["messages"][-1]["role"] == "user"
    assert len(server.requests) == 2


async def test_a_model_without_chat_is_asked_for_a_completion(server, lm):
    server.answers = [
        error("This is not a chat model. Did you mean v1/completions?", 404),
        text(" Mack", " Rides."),
        text("More."),
    ]

    reply = await complete(lm, ask(CHAIN))
    await complete(lm, ask(CHAIN))

    assert [path for path, _ in server.requests] == [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/completions",
    ]
    assert server.requests[1][1]["prompt"] == CHAIN.text
    assert reply.text == " Mack Rides."
    assert reply.call.prompt == CHAIN.text


async def test_a_model_without_a_chat_template_is_asked_for_a_completion(server, lm):
    server.answers = [error("default chat template is no longer allowed"), text("ok")]
    assert (await complete(lm, ask())).text == "ok"


async def test_a_prompt_without_turns_is_one_users_turn(server, lm):
    server.answers = [chat("x")]
    await complete(lm, ask(Prompt("Hello")))
    assert server.requests[0][1]["messages"] == [{"role": "user", "content": "Hello"}]


async def test_an_adapter_is_sent_as_the_model(server, lm):
    server.answers = [chat("x")]
    reply = await complete(lm, ask(adapter="my-lora"))
    assert server.requests[0][1]["model"] == "my-lora"
    assert reply.call.adapter == "my-lora"


async def test_max_completion_tokens_and_the_default_temperature_where_asked_for(server, lm):
    server.answers = [
        error("Use 'max_completion_tokens' instead.", param="max_tokens"),
        error("'temperature' does not support 0 with this model.", param="temperature"),
        chat("one"),
        chat("two"),
    ]

    first = await complete(lm, ask())
    second = await complete(lm, ask())

    _, body = server.requests[-1]
    assert "max_tokens" not in body
    assert "temperature" not in body
    assert body["max_completion_tokens"] == 20
    assert (first.call.retries, second.call.retries) == (0, 0)
    assert second.call.warnings == ("The server refuses temperature 0; its own default was used.",)


async def test_stop_strings_that_a_server_refuses_are_kept_here(server, lm):
    server.answers = [
        error("Unsupported parameter: 'stop' is not supported with this model.", param="stop"),
        chat("One sentence.", "\nAn", "other."),
    ]

    reply = await complete(lm, ask(stop=("\n",)))

    assert "stop" not in server.requests[1][1]
    assert reply.text == "One sentence."
    assert reply.samples[0].finish == "stop"


async def test_a_stop_string_cut_over_chunks_is_not_part_of_the_text(server, lm):
    server.answers = [chat("a ST", "O", "P b")]
    assert (await complete(lm, ask(stop=("STOP",)))).text == "a "


async def test_counts_with_every_chunk_are_asked_for_and_given_up(server, lm):
    server.answers = [
        error("Unknown field continuous_usage_stats in stream_options"),
        error("stream_options is not supported"),
        chat("x"),
        chat("y"),
    ]

    await complete(lm, ask())
    await complete(lm, ask())

    asked = [body.get("stream_options") for _, body in server.requests]
    assert asked == [
        {"include_usage": True, "continuous_usage_stats": True},
        {"include_usage": True},
        None,
        None,
    ]


async def test_a_server_that_cannot_stream_is_asked_for_the_whole(server, lm):
    server.answers = [error("streaming is not available", param="stream"), whole("All of it.")]
    assert (await complete(lm, ask())).text == "All of it."
    assert "stream" not in server.requests[1][1]


async def test_extra_fields_and_headers_are_sent_with_every_request(server, open_lm):
    server.answers = [chat("x")]
    lm = open_lm(extra_body={"reasoning_effort": "low"}, headers={"X-Team": "hops"})
    await ask_and_close(lm, ask())
    assert server.requests[0][1]["reasoning_effort"] == "low"
    assert server.headers[0]["x-team"] == "hops"


# --- What comes back -------------------------------------------------------------------------


async def test_counts_of_the_server_reach_the_record(server, lm):
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "total_tokens": 107,
        "prompt_tokens_details": {"cached_tokens": 64},
    }
    server.answers = [chat("x", usage=usage)]
    assert (await complete(lm, ask())).call.tokens == Tokens(100, 64, 7)


async def test_a_stream_closed_early_has_the_counts_that_came_with_its_chunks(server, lm):
    def usage(n):
        return {"prompt_tokens": 9, "completion_tokens": n, "total_tokens": 9 + n}

    events = [{**chunk({"content": f"word{n} "}), "usage": usage(n)} for n in range(1, 400)]
    server.answers = [Answer(events=events, delay=0.005)]

    reply = await complete(lm, ask(max_tokens=400), until=lambda text: "word3" in text)

    assert reply.text == "word1 word2 word3 "
    assert reply.samples[0].finish == "cut"
    assert reply.call.tokens == Tokens(9, None, 3)
    await lm.aclose()
    sent = server.sent
    await asyncio.sleep(0.1)
    assert server.sent - sent < 10  # the server noticed


def vllm(n, **details):
    usage = {"prompt_tokens": 90, "completion_tokens": n, "total_tokens": 90 + n}
    return {"usage": usage | details}


def llama(n, **cached):
    return {"timings": {"prompt_n": 26, "prompt_ms": 0.5, "predicted_n": n} | cached}


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        (vllm, Tokens(90, None, 3)),
        # SGLang, and vLLM with --enable-prompt-tokens-details
        (lambda n: vllm(n, prompt_tokens_details={"cached_tokens": 64}), Tokens(90, 64, 3)),
        (lambda n: vllm(n, prompt_tokens_details=None), Tokens(90, None, 3)),
        (lambda n: llama(n, cache_n=64), Tokens(90, 64, 3)),
        (llama, Tokens(None, None, 3)),  # llama.cpp until September 2025
        (lambda n: {"usage": None}, Tokens()),  # OpenAI, and many that count at the end only
        (lambda n: {}, Tokens()),
    ],
)
@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_a_stream_closed_early_is_counted_as_far_as_its_server_told(
    server, open_lm, api, told, counts
):
    one = (lambda text: chunk({"content": text})) if api == "chat" else text_chunk
    server.answers = [Answer(events=[one(f"word{n} ") | told(n) for n in range(1, 9)])]
    lm = open_lm(api=api)

    reply = await complete(lm, ask(), until=lambda text: "word3" in text)
    await lm.aclose()

    assert reply.samples[0].finish == "cut"
    assert reply.call.tokens == counts
    assert server.requests[0][1]["stream_options"]["continuous_usage_stats"] is True
    assert server.requests[0][1]["timings_per_token"] is True


@pytest.mark.parametrize("told", [True, -1, 1.5, "7", None, [], 10**400])
async def test_what_is_no_count_stays_unknown(server, lm, told):
    usage = {"prompt_tokens": told, "completion_tokens": told, "total_tokens": told}
    server.answers = [chat("x", usage=usage)]
    assert (await complete(lm, ask())).call.tokens == Tokens()


@pytest.mark.parametrize(
    ("usage", "last", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 64}}, {}, 64),
        ({"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 26}, {}, 64),  # DeepSeek
        ({"cached_tokens": 64}, {}, 64),  # Moonshot
        ({}, llama(7, cache_n=64), 64),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, {}, 0),
        ({}, {}, None),
    ],
)
async def test_cached_tokens_are_read_in_each_servers_words(server, lm, usage, last, cached):
    events = [chunk({"content": "x"}), chunk({}, "stop") | vllm(7, **usage) | last]
    server.answers = [Answer(events=events)]
    assert (await complete(lm, ask())).call.tokens == Tokens(90, cached, 7)


async def test_a_count_that_is_not_repeated_stays(server, lm):
    first = vllm(1, prompt_tokens_details={"cached_tokens": 64})
    server.answers = [Answer(events=[chunk({"content": "a"}) | first, chunk({}, "stop") | vllm(2)])]
    assert (await complete(lm, ask())).call.tokens == Tokens(90, 64, 2)


async def test_of_several_samples_only_the_last_count_is_believed(server, lm):
    events = [chunk({"content": "a"}, index=i) | llama(1, cache_n=64) for i in range(2)]
    events += [chunk({}, "stop", i) | llama(1, cache_n=64) for i in range(2)]
    server.answers = [Answer(events=[*events, {"choices": [], **vllm(2)}])]

    reply = await complete(lm, ask(n=2, temperature=1.0))

    assert reply.call.tokens == Tokens(90, None, 2)
    assert server.requests[0][1]["stream_options"] == {"include_usage": True}
    assert "timings_per_token" not in server.requests[0][1]


@pytest.mark.parametrize(
    ("words", "usage", "timings"),
    [
        ("Unrecognized request argument supplied: timings_per_token", True, False),
        ("property 'stream_options.continuous_usage_stats' is unsupported", False, False),
        ("Extra inputs are not permitted", False, False),
    ],
)
async def test_a_server_that_minds_a_field_is_asked_without_it_once_for_all(
    server, lm, words, usage, timings
):
    server.answers = [error(words, status=422), chat("x"), chat("y")]

    await complete(lm, ask(CHAIN))
    await complete(lm, ask(CHAIN))

    bodies = [body for _, body in server.requests]
    assert len(bodies) == 3
    for body in bodies[1:]:
        assert ("continuous_usage_stats" in body["stream_options"]) is usage
        assert ("timings_per_token" in body) is timings
        assert body["stream_options"]["include_usage"] is True
        assert body["continue_final_message"] is True  # that was not what it minded


async def test_a_server_that_minds_two_fields_without_naming_them_is_found_out(server, lm):
    server.answers = [error("Bad request"), error("Bad request"), chat("x"), chat("y")]
    await complete(lm, ask(CHAIN))
    await complete(lm, ask(CHAIN))
    body = server.requests[-1][1]
    assert len(server.requests) == 4
    assert body["stream_options"] == {"include_usage": True}
    assert body["messages"][-1]["role"] == "user"


@pytest.mark.parametrize(
    ("url", "strange"),
    [
        (None, False),
        ("https://api.openai.com/v1", False),
        ("https://eu.api.openai.com/v1/", False),
        ("https://mine.openai.azure.com/openai/v1", False),
        ("https://openai.com.example.org/v1", True),
        ("http://localhost:8000/v1", True),
    ],
)
def test_openai_is_never_sent_fields_that_it_would_refuse(monkeypatch, url, strange):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    body, _ = OpenAILM("m", url)._plan.body(ask(), "m")
    assert ("timings_per_token" in body.get("extra_body", {})) is strange
    assert ("continuous_usage_stats" in body["stream_options"]) is strange


async def test_the_users_own_word_on_a_field_counts(server, open_lm):
    server.answers = [chat("x")]
    await ask_and_close(open_lm(extra_body={"timings_per_token": False}), ask())
    assert server.requests[0][1]["timings_per_token"] is False


async def test_a_field_of_the_users_own_that_a_server_refuses_is_not_asked_again(server, open_lm):
    server.default = lambda path, body: error("no such field: timings_per_token")
    lm = open_lm(extra_body={"timings_per_token": True})
    with pytest.raises(LMRefused, match="no such field"):
        await ask_and_close(lm, ask())
    assert len(server.requests) == 2  # once more without counts by the chunk


async def test_an_empty_completion_is_a_completion(server, lm):
    server.answers = [chat(), whole(None)]
    reply = await complete(lm, ask())
    assert (reply.text, reply.samples[0].finish) == ("", "stop")


async def test_a_truncated_completion_says_so(server, lm):
    server.answers = [chat("half a sen", finish="length")]
    assert (await complete(lm, ask())).samples[0].finish == "length"


async def test_whole_replies_give_text_counts_and_finish(server, open_lm):
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    server.answers = [whole("Mack Rides.\nMore", usage=usage)]
    reply = await ask_and_close(open_lm(stream=False), ask(stop=("\n",)))
    assert reply.text == "Mack Rides."
    assert reply.call.tokens == Tokens(5, None, 2)


async def test_whole_text_completions_give_text_and_logprobs(server, open_lm):
    choice = {
        "index": 0,
        "text": " Paris",
        "finish_reason": "length",
        "logprobs": {"tokens": [" Paris"], "token_logprobs": [0.0]},
    }
    server.answers = [Answer({"id": "1", "object": "text_completion", "choices": [choice]})]
    lm = open_lm(stream=False, api="completions")
    reply = await ask_and_close(lm, ask(logprobs=True))
    assert server.requests[0][1]["logprobs"] == 1
    assert reply.samples[0].logprobs == (0.0,)


async def test_log_probabilities_are_one_per_token_in_chat_and_text(server, open_lm):
    def told(value):
        return {"content": [{"token": "x", "logprob": value, "top_logprobs": []}]}

    server.answers = [
        Answer(
            events=[
                chunk({"content": "a"}, logprobs=told(-0.5)),
                chunk({"content": "b"}, logprobs=told(-1.5)),
                chunk({}, "stop"),
            ]
        ),
        Answer(
            events=[
                text_chunk("a", logprobs={"token_logprobs": [-2.0]}),
                text_chunk("", "stop"),
            ]
        ),
    ]

    in_chat = await ask_and_close(open_lm(), ask(logprobs=True))
    in_text = await ask_and_close(open_lm(api="completions"), ask(logprobs=True))

    assert in_chat.samples[0].logprobs == (-0.5, -1.5)
    assert in_text.samples[0].logprobs == (-2.0,)


async def test_log_probabilities_that_do_not_come_are_an_error(server, lm):
    server.answers = [chat("Mack Rides.")]
    with pytest.raises(LMRefused, match="gives no log-probabilities"):
        await complete(lm, ask(logprobs=True))


async def test_samples_are_told_apart(server, lm):
    events = [
        chunk({"content": "b"}, index=1),
        chunk({"content": "a"}, index=0),
        chunk({}, "length", index=1),
        chunk({}, "stop", index=0),
    ]
    server.answers = [Answer(events=events)]
    reply = await complete(lm, ask(n=2))
    assert [(s.text, s.finish) for s in reply.samples] == [("a", "stop"), ("b", "length")]


@pytest.mark.parametrize("refuses", [True, False])
async def test_samples_that_a_server_does_not_give_are_asked_for_one_by_one(server, lm, refuses):
    usage = {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}
    singles = [chat(word, usage=usage) for word in "abc"]
    server.answers = [error("'n' must be 1", param="n"), *singles] if refuses else singles

    reply = await complete(lm, ask(n=3, seed=10, temperature=1.0))

    assert [sample.text for sample in reply.samples] == ["a", "b", "c"]
    assert [body["seed"] for _, body in server.requests[refuses:]] == [10, 11, 12]
    assert reply.call.tokens == Tokens(12, None, 3)
    assert [body.get("n") for _, body in server.requests[-2:]] == [None, None]


async def test_counts_of_samples_are_a_sum_only_where_all_of_them_are_told(server, lm):
    usage = {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}
    server.answers = [chat("a", usage=usage), chat("b"), chat("c", usage=usage)]
    reply = await complete(lm, ask(n=3, temperature=1.0))
    assert [sample.text for sample in reply.samples] == ["a", "b", "c"]
    assert reply.call.tokens == Tokens()


# --- Thinking --------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
async def test_reasoning_fields_are_thinking_and_not_text(server, lm, key):
    events = chat_events("Let me", " see.", finish=None, key=key) + chat_events("Mack Rides.")
    server.answers = [Answer(events=events)]
    reply = await complete(lm, ask())
    assert (reply.text, reply.samples[0].thinking) == ("Mack Rides.", "Let me see.")


async def test_tags_in_the_text_are_thinking_wherever_they_are_cut(server, lm):
    server.answers = [chat("<th", "ink>Let me\nsee.</", "think>\n\nMack", " Rides.")]
    reply = await complete(lm, ask())
    assert (reply.text, reply.samples[0].thinking) == ("Mack Rides.", "Let me\nsee.")


async def test_a_model_that_thinks_gets_room_and_its_stop_strings_are_kept_here(server, lm):
    spent = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    server.answers = [
        chat("<think>First,", usage=spent),  # the stop string ended the thinking
        chat("<think>First,\nsecond.</think>Mack", " Rides.\nMore", usage=spent),
        chat("<think>x</think>y"),
    ]

    reply = await complete(lm, ask(stop=("\n",)))
    await complete(lm, ask(stop=("\n",)))

    bodies = [body for _, body in server.requests]
    assert (reply.text, reply.samples[0].thinking) == ("Mack Rides.", "First,\nsecond.")
    assert [("stop" in body, body["max_tokens"]) for body in bodies] == [
        (True, 20),
        (False, 4116),
        (False, 4116),
    ]
    assert reply.call.retries == 0
    assert reply.call.tokens == Tokens()  # the second was closed before it told its own


async def test_hidden_thinking_that_used_up_the_tokens_is_asked_again_with_room(server, lm):
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "total_tokens": 30,
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    server.answers = [chat(finish="length", usage=usage), chat("Mack Rides.", usage=usage)]
    reply = await complete(lm, ask())
    assert reply.text == "Mack Rides."
    assert reply.call.tokens == Tokens(20, None, 40)


async def test_thinking_that_never_ends_is_an_empty_text_cut_by_its_length(server, lm):
    server.answers = [chat("<think>hm", finish="length"), chat("<think>hm hm", finish="length")]
    reply = await complete(lm, ask())
    assert (reply.text, reply.samples[0].finish) == ("", "length")
    assert reply.samples[0].thinking == "hm hm"


async def test_a_lone_closing_tag_is_an_error_and_not_an_answer(server, lm):
    server.answers = [chat("Let me see.", "</thi", "nk>Mack Rides.")]
    with pytest.raises(BadCompletion, match='thinking="open"'):
        await complete(lm, ask())


async def test_a_model_whose_prompt_opens_its_thinking(server, open_lm):
    server.answers = [chat("Let me see.", "</thi", "nk>Mack Rides.")]
    reply = await ask_and_close(open_lm(thinking="open"), ask(stop=("\n",)))
    assert (reply.text, reply.samples[0].thinking) == ("Mack Rides.", "Let me see.")


# --- What goes wrong -------------------------------------------------------------------------


async def test_a_dead_server_is_named_at_once(pauses):
    lm = OpenAILM("m", "http://127.0.0.1:9/v1", timeout=5)
    with pytest.raises(
        LMUnavailable, match=r"127.0.0.1:9/v1: the server cannot be reached: .*Check the addr"
    ):
        await ask_and_close(lm, ask())
    assert pauses == []


async def test_an_unknown_host_is_named_at_once(pauses):
    lm = OpenAILM("m", "http://no-such-host.invalid/v1", timeout=5)
    with pytest.raises(LMUnavailable, match="cannot be reached"):
        await ask_and_close(lm, ask())


async def test_retries_wait_longer_each_time_and_are_counted(server, lm, pauses):
    server.answers = [error("busy", 503), error("busy", 500), error("slow", 429), chat("x")]
    reply = await complete(lm, ask())
    assert reply.call.retries == 3
    assert 0.25 <= pauses[0] <= 0.5 <= pauses[1] <= 1 <= pauses[2] <= 2


async def test_retry_after_in_seconds_and_as_a_date_is_kept(server, lm, pauses):
    at = email.utils.formatdate(time.time() + 4, usegmt=True)
    server.answers = [
        error("slow down", 429, headers={"retry-after": "3"}),
        error("slow down", 503, headers={"Retry-After": at}),
        chat("x"),
    ]
    await complete(lm, ask())
    assert 3 <= pauses[0] < 3.2
    assert 2 < pauses[1] < 4.2


async def test_a_wait_longer_than_the_time_out_is_not_waited_for(server, lm, pauses):
    server.answers = [error("come back later", 429, headers={"retry-after": "3600"})]
    with pytest.raises(LMUnavailable, match="asks to wait 3600 s"):
        await complete(lm, ask())
    assert pauses == []


async def test_giving_up_says_how_often_and_how_long(server, open_lm, pauses):
    server.default = lambda path, body: error("overloaded", 500)
    with pytest.raises(LMUnavailable, match=r"failed 3 times in \d+ s; last: overloaded"):
        await ask_and_close(open_lm(max_retries=2), ask())
    assert len(server.requests) == 3


async def test_a_spent_quota_is_not_retried(server, lm, pauses):
    server.answers = [error("You exceeded your quota", 429, code="insufficient_quota")]
    with pytest.raises(LMRefused, match="exceeded your quota"):
        await complete(lm, ask())
    assert pauses == []


@pytest.mark.parametrize("status", [401, 403])
async def test_a_wrong_key_is_refused_and_never_shown(server, monkeypatch, status, caplog):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("MY_API_KEY", "sk-verysecret")
    server.answers = [error("Incorrect API key provided: sk-verysecret", status)]
    lm = OpenAILM("m", server.url, key_env="MY_API_KEY")
    with pytest.raises(LMRefused, match=r"provided: \*\*\*. Check the key in MY_API_KEY") as caught:
        await ask_and_close(lm, ask())
    assert server.headers[0]["authorization"] == "Bearer sk-verysecret"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "verysecret" not in caplog.text
    assert "verysecret" not in lm.name


async def test_a_wrong_model_is_refused_with_its_name(server, lm, pauses):
    server.default = lambda path, body: error("The model `m` does not exist.", 404)
    with pytest.raises(LMRefused, match=r"model `m` does not exist. Check the model's name \(m\)"):
        await complete(lm, ask())
    assert pauses == []


@pytest.mark.parametrize(
    ("answer", "needed", "window"),
    [
        (
            error(
                "This model's maximum context length is 4097 tokens. However, you requested "
                "5010 tokens (4990 in the messages, 20 in the completion).",
                code="context_length_exceeded",
            ),
            5010,
            4097,
        ),
        (
            error(
                "This model's maximum context length is 128000 tokens. However, your messages "
                "resulted in 130000 tokens.",
                code="context_length_exceeded",
            ),
            130020,
            128000,
        ),
        (
            error(
                "'max_tokens' or 'max_completion_tokens' is too large: 20. This model's maximum "
                "context length is 100 tokens and your request has 90 input tokens"
            ),
            110,
            100,
        ),
        (
            error("The decoder prompt (length 5000) is longer than the maximum model length of 96"),
            5020,
            96,
        ),
        (
            error(
                "request (3001 tokens) exceeds the available context size (2048 tokens), try "
                "increasing it",
                type="exceed_context_size_error",
            ),
            3021,
            2048,
        ),
        (error("max_tokens must be at least 1, got -186."), None, None),
    ],
)
async def test_a_prompt_over_the_window_is_told_in_each_servers_words(
    server, lm, answer, needed, window
):
    server.answers = [answer]
    with pytest.raises(ContextTooLong) as caught:
        await complete(lm, ask())
    assert (caught.value.needed, caught.value.window) == (needed, window)
    assert len(server.requests) == 1


async def test_a_refused_request_is_not_retried(server, open_lm, pauses):
    server.answers = [error("messages: too many cooks", 400)]
    with pytest.raises(LMRefused, match="answers 400: messages: too many cooks"):
        await ask_and_close(open_lm(stream=False), ask())
    assert pauses == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(b"<html>502</html>", headers={"content-type": "text/html"}), "holds no compl"),
        (Answer(b"{broken"), "not JSON"),
        (Answer(b'"just a string"'), "holds no completion"),
        (Answer({"choices": []}), "an empty list of choices"),
        (Answer({"choices": None}), "holds no completion"),
        (Answer({"hello": "world"}), "holds no completion"),
        (Answer({"choices": [{"index": 0, "message": {}}]}), "without a finish reason"),
        (whole("x", finish="sleepy"), "unknown reason 'sleepy'"),
    ],
)
async def test_garbage_in_a_whole_reply_is_a_bad_completion(server, open_lm, answer, why):
    server.answers = [answer]
    with pytest.raises(BadCompletion, match=why):
        await ask_and_close(open_lm(stream=False), ask())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(events=["{broken"]), "not JSON"),
        (Answer(events=['"text"']), "holds no completion"),
        (Answer(events=[{"hello": "world"}]), "holds no completion"),
        (Answer(events=[]), "open the model with stream=False"),
        (Answer(b"<html>hello</html>", headers={"content-type": "text/html"}), "<html>hello"),
        (Answer({"hello": "world"}), "holds no completion but {'hello': 'world'}"),
        (Answer(events=[chunk({"content": "x"}, index=-1)]), "sample -1 of 1"),
        (Answer(events=[chunk({"content": "x"}, index="a")]), "sample 'a' of 1"),
        (Answer(events=[chunk({"content": ["x"]})]), "no text"),
        (Answer(events=[chunk({"content": 7})]), "no text"),
        (Answer(events=[chunk({"reasoning": {"text": "x"}})]), "no text"),
        (chat("Mack Ri", finish=None), "without a finish reason"),
        (chat("Mack Ri", finish=None, done=False), "without a finish reason"),
        (chat("Mack Ri", finish=None, cut=True), "broke off"),
        (Answer(events=[chunk({"content": "x"}, index=4)]), "sample 4 of 1"),
        (
            Answer(events=[chunk({"content": "x"}), {"error": {"message": "out of memory"}}]),
            r"broke off \(out of memory\)",
        ),
    ],
)
async def test_garbage_and_half_a_stream_are_bad_completions(server, lm, answer, why):
    server.answers = [answer]
    with pytest.raises(BadCompletion, match=why):
        await complete(lm, ask())
    assert len(server.requests) == 1


async def test_a_whole_reply_in_place_of_a_stream_is_read(server, lm):
    server.answers = [whole("Mack Rides.")]
    assert (await complete(lm, ask())).text == "Mack Rides."


async def test_an_error_in_place_of_a_stream_is_told_and_tried_again(server, lm, pauses):
    server.answers = [error("The model is loading.", 200), chat("x")]
    reply = await complete(lm, ask())
    assert (reply.text, reply.call.retries) == ("x", 1)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_sends_us_on_is_not_followed_with_the_key(
    server, open_lm, code, stream, pauses
):
    other = FakeServer()
    place = other.url.replace("//", "//ann:secret@") + "/chat/completions?key=secret"
    server.answers = [Answer({}, code, {"location": place})]
    with pytest.raises(LMRefused, match=f"{code}: it sends us on, to {other.url}/chat") as caught:
        await ask_and_close(open_lm(stream=stream, headers={"api-key": "k-123456"}), ask())
    other.close()
    assert not other.requests
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("http://ann:hunter22@{}/v1", "hunter22"),
        ("http://annabel:x@{}/v1", "annabel"),
        ("http://ann:hunter%2022@{}/v1", "hunter 22"),
        ("http://{}/v1?key=hunter22", "hunter22"),
        ("http://{}/v1?a=b&key=hun%24ter", "hun$ter"),
        ("http://{}/v1?a=b&key=hun%24ter", "hun%24ter"),
    ],
)
async def test_a_key_in_the_address_is_never_shown(server, address, key, caplog):
    lm = OpenAILM("m", address.format(server.url[7:-3]), max_retries=0, timeout=5)
    server.answers = [error(f"Incorrect key: {key}", 401)]
    with pytest.raises(LMRefused, match=r"Incorrect key: \*\*\*") as caught:
        await ask_and_close(lm, ask())
    assert key not in str(caught.value) + caplog.text + lm.name


@pytest.mark.parametrize("length", range(188, 202, 2))
@pytest.mark.parametrize("stream", [True, False])
async def test_half_a_key_is_not_shown_where_a_message_is_cut(
    server, open_lm, monkeypatch, length, stream
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecret")
    words = "x" * length
    failures = [
        ({"odd": words + "sk-verysecret"}, 200, BadCompletion),
        ({"error": {"message": words + 300 * "y" + "sk-verysecret"}}, 401, LMRefused),
    ]
    for body, code, kind in failures:
        server.answers = [Answer(body, code)]
        with pytest.raises(kind) as caught:
            await ask_and_close(open_lm(stream=stream), ask())
        assert "sk-" not in str(caught.value)


async def test_a_call_asked_otherwise_is_no_sign_of_a_busy_server(server, open_lm):
    server.answers = [error("Unrecognized request argument supplied: stream_options"), chat("x")]
    paced = PacedLM(open_lm(), 8)
    assert (await ask_and_close(paced, ask())).text == "x"
    assert (paced.bound, paced.refusals) == (8, 0)


async def test_a_stream_that_breaks_before_its_first_text_is_tried_again(server, lm, pauses):
    server.answers = [Answer(events=[], cut=True), chat("x")]
    reply = await complete(lm, ask())
    assert (reply.text, reply.call.retries) == ("x", 1)


async def test_a_filtered_completion_is_refused(server, lm):
    server.answers = [chat("x", finish="content_filter")]
    with pytest.raises(LMRefused, match="content filter"):
        await complete(lm, ask())


async def test_a_server_that_never_answers_is_given_up(server, open_lm, pauses):
    server.default = lambda path, body: chat("x", delay=0.5)
    with pytest.raises(LMUnavailable, match=r"failed 2 times .* no answer within 0.1 s"):
        await ask_and_close(open_lm(timeout=0.1, max_retries=1), ask())


async def test_a_stream_that_never_ends_is_given_up(server, open_lm):
    server.answers = [chat(*["word "] * 10_000, delay=0.01)]
    with pytest.raises(LMUnavailable, match=r"had not ended after 0.2 s"):
        await ask_and_close(open_lm(timeout=0.2), ask())


async def test_the_callers_own_time_is_not_counted(server, open_lm):
    server.answers = [chat("a", "b", "c")]
    lm = open_lm(timeout=0.2)
    taken = []
    async for piece in lm.stream(ask()):
        taken.append(piece.text)
        await asyncio.sleep(0.1)
    await lm.aclose()
    assert "".join(taken) == "abc"


# --- Opening ---------------------------------------------------------------------------------


def test_openai_itself_needs_a_key(monkeypatch):
    with pytest.raises(LMRefused, match="Set the environment variable OPENAI_API_KEY"):
        OpenAILM("gpt-5")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234")
    assert OpenAILM("gpt-5").name == "openai:gpt-5"


def test_the_name_tells_the_address_but_no_secret_in_it():
    lm = OpenAILM("m@https://user:pass@host:8000/v1/?key=abc")
    assert lm.name == "openai:m@https://host:8000/v1"
    assert lm.model == "m"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "localhost:8000/v1"}, "begins with http"),
        ({"url": "http://"}, "names no server"),
        ({"url": "http://:80/v1"}, "names no server"),
        ({"url": "http://ann:secret@/v1"}, "^'/v1' names no server"),
        ({"url": "http://[::1/v1"}, "names no server"),
        ({"url": "http://host:99999/v1"}, "names no server"),
        ({"url": "http://host:port/v1"}, "names no server"),
        ({"model": ""}, "name of the model is empty"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"max_retries": -1}, "max_retries is -1"),
        ({"window": 0}, "window is 0"),
        ({"api": "chta"}, "api is 'chta'; it can be auto, chat, completions"),
        ({"thinking": "yes"}, "thinking is 'yes'"),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_once(options, why):
    with pytest.raises(BadInput, match=why):
        OpenAILM(**{"model": "m", "url": "http://localhost/v1", **options})


def test_one_model_serves_several_event_loops(server):
    server.default = lambda path, body: chat("x")
    lm = OpenAILM("m", server.url)

    async def once():
        return await ask_and_close(lm, ask())

    assert [asyncio.run(once()).text for _ in range(2)] == ["x", "x"]


async def test_the_estimate_of_tokens_is_rather_high(lm):
    assert await lm.count_tokens(["", "Lost Gravity was built by Mack Rides.", "漢字"]) == [
        0,
        13,
        2,
    ]


@pytest.mark.embedded
async def test_a_real_server_continues_turns_counts_and_refuses(monkeypatch):
    """llama.cpp's own server, as the embedded LM starts it."""
    pytest.importorskip("xllamacpp")
    from multihop.lms.local import LocalLM

    engine = LocalLM(window=512, threads=1)
    await complete(engine, ask(Prompt("Hello"), max_tokens=1))
    url = f"{engine._engine.url}/v1"
    monkeypatch.setenv("OPENAI_API_KEY", engine._engine.key)
    turns = (Turn("user", "What is the capital of France?"), Turn("assistant", "It is the city of"))
    lm = OpenAILM("m", url)
    in_text = OpenAILM("m", url, api="completions")
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    stranger = OpenAILM("m", url)

    first = await complete(lm, ask(Prompt("unused", turns), logprobs=True))
    again = await complete(lm, ask(Prompt("unused", turns)))
    plain = await complete(in_text, ask(Prompt("The capital of France is"), logprobs=True))
    cuts = [
        await complete(
            one, ask(Prompt("Once upon a time", turns)), until=lambda text: len(text) > 9
        )
        for one in (lm, in_text)
    ]
    with pytest.raises(ContextTooLong) as caught:
        await complete(lm, ask(Prompt("hello " * 600)))
    with pytest.raises(LMRefused, match="Invalid API Key"):
        await complete(stranger, ask())
    for model in (lm, in_text, stranger, engine):
        await model.aclose()

    assert first.text.startswith(" Paris")
    assert again.call.tokens.cached > 0
    assert plain.text.startswith(" Paris")
    assert len(plain.samples[0].logprobs) == plain.call.tokens.generated
    assert caught.value.window == 512
    for cut in cuts:
        assert cut.samples[0].finish == "cut"
        assert cut.call.tokens.prompt > cut.call.tokens.cached >= 0
        assert 0 < cut.call.tokens.generated < 20
