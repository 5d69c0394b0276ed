"""Seq2seq and causal models through transformers, on tiny random ones."""

import asyncio
import functools
import threading

import pytest

from adapter_folders import adapter_folder
from multihop.errors import (
    BadCompletion,
    BadInput,
    ContextTooLong,
    LMRefused,
    LMUnavailable,
    MissingExtra,
)
from multihop.lms.adapters import BaseModel
from multihop.lms.base import Prompt, Request, Turn, complete
from multihop.lms.batching import BatchedLM

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_models import causal_folder, seq2seq_folder, tiny_causal, tiny_seq2seq  # noqa: E402

from multihop.lms.transformers import TransformersLM  # noqa: E402


def ask(text: str = "who built lost gravity", **changes) -> Request:
    return Request(Prompt(text), **{"max_tokens": 12, **changes})


@pytest.fixture(scope="module", params=[tiny_causal, tiny_seq2seq])
def either(request):
    return request.param()


@pytest.fixture(scope="module")
def causal():
    return tiny_causal()


async def reference(lm, text: str, tokens: int) -> str:
    """What transformers itself writes, asked in the plainest way."""
    import transformers

    kind = transformers.AutoModelForSeq2SeqLM if lm.seq2seq else transformers.AutoModelForCausalLM
    folder = seq2seq_folder() if lm.seq2seq else causal_folder()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(text, return_tensors="pt")
    out = kind.from_pretrained(folder).generate(
        input_ids=encoded["input_ids"],
        attention_mask=encoded["attention_mask"],
        max_new_tokens=tokens,
        do_sample=False,
    )[0]
    if not lm.seq2seq:
        whole = tokenizer.decode(out, skip_special_tokens=True)
        return whole[len(text) :]
    return tokenizer.decode(out, skip_special_tokens=True)


async def test_the_stream_is_what_transformers_generates(either):
    text = "who built lost gravity"
    reply = await complete(either, ask(text))
    assert reply.text == await reference(either, text, 12)
    assert reply.samples[0].finish == "length"


async def test_tokens_of_prompt_and_text_are_counted(either):
    text = "who built lost gravity"
    reply = await complete(either, ask(text))
    [bare] = await either.count_tokens([text])
    assert reply.call.tokens.prompt == bare + either.seq2seq  # the encoder's end mark
    assert reply.call.tokens.generated == 12


async def test_a_sample_that_reaches_the_end_mark_stops(either):
    replies = await complete(either, ask(temperature=9.0, n=8, seed=1, max_tokens=60))
    finishes = {sample.finish for sample in replies.samples}
    assert "stop" in finishes
    assert all("</s>" not in sample.text for sample in replies.samples)
    assert replies.call.tokens.generated < 8 * 60


async def test_a_seed_repeats_samples_and_leaves_the_worlds_random_state_alone(either):
    import torch

    state = torch.get_rng_state()
    request = ask(temperature=1.0, n=3, seed=7)
    first, again = await complete(either, request), await complete(either, request)
    other = await complete(either, ask(temperature=1.0, n=3, seed=8))

    assert first.samples == again.samples
    assert first.samples != other.samples
    assert torch.equal(torch.get_rng_state(), state)


async def test_greedy_samples_are_one_given_several_times(either):
    reply = await complete(either, ask(n=3))
    assert len({sample.text for sample in reply.samples}) == 1
    assert reply.call.tokens.generated == 12


async def test_log_probabilities_are_the_models_own_whatever_the_temperature(either):
    import torch

    greedy = await complete(either, ask(logprobs=True))
    cold = await complete(either, ask(logprobs=True, temperature=0.01, seed=1))

    [sample] = greedy.samples
    assert len(sample.logprobs) == 12
    assert all(value <= 0 for value in sample.logprobs)
    assert cold.text == greedy.text
    assert torch.allclose(torch.tensor(cold.samples[0].logprobs), torch.tensor(sample.logprobs))


async def test_until_ends_generation_within_a_token_or_two(causal, monkeypatch):
    reply = await complete(causal, ask(max_tokens=200), until=lambda text: len(text) > 6)
    assert reply.samples[0].finish == "cut"
    assert reply.call.tokens.generated < 20


async def test_a_cancelled_call_leaves_the_engine_free(causal, monkeypatch):
    """The call is cancelled while the engine is at it: it writes no more than the token begun."""
    at_work, cancelled = threading.Event(), threading.Event()
    written = []
    generate = causal._generate

    def held(batch, give, heard, join):
        at_work.set()
        assert cancelled.wait(60)
        generate(batch, lambda pieces: written.append(pieces) or give(pieces), heard, join)

    with monkeypatch.context() as patch:
        patch.setattr(causal, "_generate", held)
        task = asyncio.create_task(complete(causal, ask(max_tokens=200)))
        assert await asyncio.to_thread(at_work.wait, 60)
        task.cancel()
        await asyncio.sleep(0)  # the cancellation reaches the call, which waits for the engine
        assert not task.done()
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(written) <= 2
    assert (await complete(causal, ask(max_tokens=1))).call.tokens.generated == 1


async def test_calls_at_the_same_time_do_not_mix(causal):
    texts = ["who built it", "the river rises in", "so the answer is"]
    alone = [(await complete(causal, ask(text))).text for text in texts]
    together = await asyncio.gather(*(complete(causal, ask(text)) for text in texts))
    assert [reply.text for reply in together] == alone


async def test_a_prompt_over_the_window_is_refused_with_both_counts(causal):
    with pytest.raises(ContextTooLong) as caught:
        await complete(causal, ask("river" + " river" * 249))
    assert caught.value.window == 256
    assert caught.value.needed == 250 + 12


async def test_t5_has_no_window_of_its_own():
    lm = tiny_seq2seq()
    assert lm.window is None
    reply = await complete(lm, ask("river" + " river" * 599, max_tokens=2))
    assert reply.call.tokens.prompt == 601
    assert tiny_seq2seq(window=100).window == 100


async def test_an_empty_prompt_and_an_unknown_adapter_are_refused(causal):
    with pytest.raises(LMRefused, match="prompt is empty"):
        await complete(causal, ask(""))
    with pytest.raises(LMRefused, match="no adapter 'x'"):
        await complete(causal, ask(adapter="x"))


async def test_chat_sends_the_turns_through_the_template():
    lm = tiny_causal(chat=True)
    fresh = Prompt("unused", (Turn("user", "who built it"),))
    begun = Prompt("unused", (*fresh.turns, Turn("assistant", "mack")))

    first = await complete(lm, Request(fresh, max_tokens=2))
    second = await complete(lm, Request(begun, max_tokens=2))

    assert first.call.prompt == "<user>who built it</s><assistant>"
    assert second.call.prompt == "<user>who built it</s><assistant>mack"


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
async def test_adapters_are_chosen_per_call(tmp_path):
    peft = pytest.importorskip("peft")
    import torch
    import transformers

    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        for name in ("wild", "odd"):
            base = transformers.AutoModelForCausalLM.from_pretrained(causal_folder())
            peft.get_peft_model(base, config).save_pretrained(tmp_path / name)
    lm = tiny_causal(adapters={name: tmp_path / name for name in ("wild", "odd")})

    plain = await complete(lm, ask())
    wild = await complete(lm, ask(adapter="wild"))
    odd = await complete(lm, ask(adapter="odd"))
    after = await complete(lm, ask())

    assert plain.text == after.text == (await complete(tiny_causal(), ask())).text
    assert len({wild.text, odd.text, plain.text}) == 3


def test_one_model_serves_several_event_loops(causal):
    texts = {asyncio.run(complete(causal, ask())).text for _ in range(2)}
    assert len(texts) == 1


async def test_a_closed_model_loads_again():
    lm = tiny_causal()
    first = await complete(lm, ask())
    await lm.aclose()
    assert (await complete(lm, ask())).text == first.text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"model": "/no/such/folder"}, "cannot be read"),
        ({"dtype": "float33"}, "dtype is 'float33'"),
    ],
)
def test_what_cannot_be_loaded_is_refused_at_once(options, why):
    with pytest.raises(BadInput, match=why):
        TransformersLM(**{"model": str(causal_folder()), **options})


def test_an_adapter_that_is_none_is_refused_at_once(tmp_path):
    pytest.importorskip("peft")
    with pytest.raises(BadInput, match=r"'a': .* has no adapter_config.json"):
        tiny_causal(adapters={"a": tmp_path})


def test_the_card_of_an_adapter_is_compared_with_the_model(tmp_path):
    pytest.importorskip("peft")
    folder = adapter_folder(tmp_path / "a")
    with pytest.raises(BadInput, match="was trained on HuggingFaceTB/SmolLM2-135M-Instruct, not"):
        tiny_causal(adapters={"a": folder})
    fitting = adapter_folder(tmp_path / "b", base=BaseModel(name=causal_folder().name))
    lm = tiny_causal(adapters={"b": str(fitting)})
    assert lm.adapters == {"b": fitting}
    assert set(lm.identity["adapters"]["b"]) == {"adapter_config.json", "adapter_model.safetensors"}
    with pytest.raises(BadInput, match="was trained on plain prompts"):
        tiny_causal(adapters={"b": fitting}, chat=True)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'multihop\[transformers\]'"):
        TransformersLM("x")


async def test_an_error_in_the_engines_thread_reaches_the_caller(monkeypatch):
    lm = tiny_causal()
    threads = []

    def broken(*args):
        threads.append(threading.current_thread().name)
        raise BadInput("broken weights")

    monkeypatch.setattr(lm, "_generate", broken)
    with pytest.raises(BadInput, match="broken weights"):
        await complete(lm, ask())
    assert threads[0].startswith("multihop-transformers")


async def test_scores_that_are_not_numbers_are_an_error_and_not_a_text():
    lm = tiny_causal()
    lm._loaded().lm_head.weight.data.fill_(float("nan"))
    with pytest.raises(BadCompletion, match="scores are not numbers"):
        await complete(lm, ask())


# --- Batches ---------------------------------------------------------------------------------

PROMPTS = (
    "who built lost gravity",
    "q: the river rises in peru and who built it? a: mack rides is a german maker so",
    "so",
    "lost gravity was built by mack rides. the answer is",
    "the river",
)


@pytest.fixture(params=[tiny_causal, tiny_seq2seq])
def exact(request):
    """In float64, where the order of adding never decides."""
    return request.param(dtype="float64")


def spied(lm, monkeypatch) -> list[int]:
    """Rows that the engine had in hand, one number per token."""
    model, costs = lm._loaded(), []
    inner = model.forward

    @functools.wraps(inner)  # transformers reads its signature
    def forward(*args, **kwargs):
        ids = kwargs.get("decoder_input_ids")
        costs.append(len(kwargs["input_ids"] if ids is None else ids))
        return inner(*args, **kwargs)

    monkeypatch.setattr(model, "forward", forward)
    return costs


async def both(lm, requests):
    alone = [await complete(lm, request) for request in requests]
    batched = BatchedLM(lm, padding=1)
    together = await asyncio.gather(*(complete(batched, request) for request in requests))
    return alone, together


def same(a, b) -> bool:
    import torch

    values = [torch.tensor(one.samples[0].logprobs) for one in (a, b)]
    return (
        a.samples[0].text == b.samples[0].text
        and a.samples[0].finish == b.samples[0].finish
        and a.call.tokens == b.call.tokens
        and a.call.prompt == b.call.prompt
        and torch.allclose(*values, atol=1e-4)
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("open_lm", [tiny_causal, tiny_seq2seq])
async def test_a_batch_writes_what_each_prompt_gets_alone(open_lm, dtype, monkeypatch):
    lm = open_lm(dtype=dtype)
    requests = [
        ask(text, max_tokens=5 * number + 3, logprobs=number % 2 == 0)
        for number, text in enumerate(PROMPTS)
    ]
    costs = spied(lm, monkeypatch)

    alone, together = await both(lm, requests)

    assert all(map(same, alone, together))
    lengths = [reply.call.tokens.generated for reply in alone]
    assert lengths == [3, 8, 13, 18, 23]
    # A row costs as long as it writes and not longer.
    rows = [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert costs[sum(lengths) :] == rows


async def test_stop_strings_and_limits_are_each_rows_own(exact):
    whole = [(await complete(exact, ask(text, max_tokens=30))).text for text in PROMPTS]
    stops = [(), (whole[1][9:12],), ("nothing like it",), (whole[3][4:5],), ()]
    requests = [
        ask(text, max_tokens=30 - number, stop=stop)
        for number, (text, stop) in enumerate(zip(PROMPTS, stops, strict=True))
    ]

    alone, together = await both(exact, requests)

    assert all(map(same, alone, together))
    assert {together[1].samples[0].finish, together[3].samples[0].finish} == {"stop"}


async def test_a_row_whose_stream_is_closed_leaves_the_batch(exact, monkeypatch):
    costs = spied(exact, monkeypatch)
    lm = BatchedLM(exact, padding=1)
    requests = [ask(text, max_tokens=40) for text in PROMPTS[:3]]
    alone = await complete(exact, requests[1])
    costs.clear()

    cut, kept, also_cut = await asyncio.gather(
        complete(lm, requests[0], until=lambda text: len(text) > 4),
        complete(lm, requests[1]),
        complete(lm, requests[2], until=lambda text: len(text) > 4),
    )

    assert same(kept, alone)
    assert cut.samples[0].finish == also_cut.samples[0].finish == "cut"
    assert costs[0] == 3
    assert costs[-1] == 1
    assert len(costs) == kept.call.tokens.generated


async def test_a_batch_that_nobody_listens_to_ends_in_the_engine_too(exact, monkeypatch):
    costs = spied(exact, monkeypatch)
    lm = BatchedLM(exact, padding=1)
    await asyncio.gather(
        *(complete(lm, ask(text, max_tokens=200), until=bool) for text in PROMPTS[:3])
    )
    after = await complete(lm, ask(PROMPTS[3], max_tokens=1))
    assert after.call.tokens.generated == 1
    assert len(costs) < 100


@pytest.mark.parametrize("n", [1, 3])
async def test_requests_join_a_running_batch_and_write_what_they_get_alone(monkeypatch, n):
    lm = tiny_causal(dtype="float64")
    # Shorter and longer prompts than those that run, ending before and after them.
    first = [ask(PROMPTS[0], max_tokens=9), ask(PROMPTS[3], max_tokens=30, logprobs=True)]
    later = [
        ask(PROMPTS[1], max_tokens=20, logprobs=True),
        ask(PROMPTS[2], max_tokens=1),
        ask(PROMPTS[4], max_tokens=15, n=n),
    ]
    alone = [await complete(lm, request) for request in first + later]
    costs = spied(lm, monkeypatch)
    batched, model = BatchedLM(lm, padding=1), lm._loaded()
    inner, ready, reached = model.forward, threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @functools.wraps(inner)
    def forward(*args, **kwargs):
        if len(costs) == 3:
            loop.call_soon_threadsafe(reached.set)
            assert ready.wait(10)
        return inner(*args, **kwargs)

    monkeypatch.setattr(model, "forward", forward)
    tasks = [asyncio.create_task(complete(batched, request)) for request in first]
    await reached.wait()
    tasks += [asyncio.create_task(complete(batched, request)) for request in later]
    await asyncio.sleep(0)  # they stand in the line
    ready.set()
    together = await asyncio.gather(*tasks)

    assert all(map(same, alone, together))
    assert costs[:6] == [2, 2, 2, 2, 3, 4]  # three prompts are read, one ends at its first token
    assert max(costs) == 4
    assert costs[-1] == 1


async def test_models_with_an_encoder_take_nobody_into_a_running_batch(monkeypatch):
    lm = tiny_seq2seq(dtype="float64")
    requests = [ask(text, max_tokens=9 + 4 * place) for place, text in enumerate(PROMPTS)]
    alone = [await complete(lm, request) for request in requests]
    batched = BatchedLM(lm, padding=1, most=2)
    together = await asyncio.gather(*(complete(batched, request) for request in requests))
    assert all(map(same, alone, together))


async def test_rows_that_a_cache_cannot_let_go_are_evaluated_afresh(exact, monkeypatch):
    monkeypatch.setattr("multihop.lms.transformers_rows._SELECTABLE", ())
    requests = [ask(text, max_tokens=4 * n + 3) for n, text in enumerate(PROMPTS)]
    alone, together = await both(exact, requests)
    assert all(map(same, alone, together))


async def test_samples_share_a_batch_and_seeded_ones_go_alone(exact, monkeypatch):
    costs = spied(exact, monkeypatch)
    lm = BatchedLM(exact, padding=1)
    free = [
        ask(text, max_tokens=6, temperature=1.0, n=n)
        for text, n in zip(PROMPTS[:2], (2, 3), strict=True)
    ]
    seeded = ask(PROMPTS[2], max_tokens=6, temperature=1.0, n=2, seed=4)
    alone = await complete(exact, seeded)
    costs.clear()

    one, other, third = await asyncio.gather(*(complete(lm, r) for r in (*free, seeded)))

    assert [len(reply.samples) for reply in (one, other)] == [2, 3]
    assert third.samples == alone.samples
    assert costs[0] == 5
    assert 2 in costs[1:]  # the seeded ones, after them


async def test_kinds_part_what_cannot_share_a_batch(causal):
    async def kind(**changes):
        return (await causal.prepare(ask(**changes))).kind

    greedy = await kind()
    assert await kind(max_tokens=3, stop=("x",), logprobs=True, n=5, seed=3) == greedy
    warm = await kind(temperature=0.5)
    assert await kind(temperature=0.5, n=3) == warm
    others = [await kind(temperature=0.5, top_p=0.9), await kind(temperature=0.7), greedy, warm]
    assert len(set(others)) == 4
    assert await kind(temperature=0.5, seed=1) != await kind(temperature=0.5, seed=1)


async def test_a_fault_of_one_prompt_reaches_no_other_of_its_batch(causal):
    lm = BatchedLM(causal)
    long, empty, good = await asyncio.gather(
        *(complete(lm, ask(text)) for text in ("river" + " river" * 249, "", PROMPTS[0])),
        return_exceptions=True,
    )
    assert isinstance(long, ContextTooLong)
    assert isinstance(empty, LMRefused)
    assert good.text == (await complete(causal, ask(PROMPTS[0]))).text


async def test_an_error_of_the_engine_reaches_all_of_its_batch(monkeypatch):
    lm = tiny_causal()

    def full(*args):
        raise LMUnavailable("no memory left")

    monkeypatch.setattr(lm, "_generate", full)
    batched = BatchedLM(lm)
    failures = await asyncio.gather(
        *(complete(batched, ask(text)) for text in PROMPTS[:2]), return_exceptions=True
    )
    assert [str(failure) for failure in failures] == ["no memory left"] * 2
