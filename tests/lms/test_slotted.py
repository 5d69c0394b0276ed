"""Many sequences in one pass write what each would write alone."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from multihop.errors import BadInput, ContextTooLong, LMRefused
from multihop.lms.base import Prompt, Request, complete

pytestmark = pytest.mark.torch

PROMPTS = [
    "q : who built it ?\na :",
    "lost gravity was built by mack rides\n\nq : who built it ?\na :",
    "the river rises in peru\n\nlost gravity was built by mack rides\n\nq : the river ?\na :",
    "mack rides is a german maker of roller coasters",
]

LONG = " ".join(PROMPTS * 2)


@pytest.fixture(scope="module", params=["heads of their own", "shared heads"])
def folder(request, tmp_path_factory) -> Path:
    from tiny_models import causal_folder

    if request.param == "heads of their own":
        return causal_folder()
    import torch
    import transformers

    shared = tmp_path_factory.mktemp("shared")
    config = transformers.AutoConfig.from_pretrained(causal_folder())
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 4, 2, 8
    with torch.random.fork_rng([]):
        torch.manual_seed(5)
        transformers.LlamaForCausalLM(config).save_pretrained(shared)
    transformers.AutoTokenizer.from_pretrained(causal_folder()).save_pretrained(shared)
    return shared


def slotted(folder: Path, **options):
    from multihop.lms.slotted import SlottedLM

    return SlottedLM(str(folder), device="cpu", **{"dtype": "float64", **options})


def alone(folder: Path, **options):
    from multihop.lms.transformers import TransformersLM

    return TransformersLM(str(folder), device="cpu", dtype="float64", **options)


async def written(lm, requests):
    replies = await asyncio.gather(*(complete(lm, request) for request in requests))
    await lm.aclose()
    return replies


async def test_sequences_that_share_passes_write_what_each_writes_alone(folder) -> None:
    requests = [
        Request(Prompt(prompt), max_tokens=limit, logprobs=True)
        for prompt in PROMPTS
        for limit in (3, 17)
    ]
    together = await written(slotted(folder, slots=3), requests)
    one = alone(folder)
    for request, reply in zip(requests, together, strict=True):
        expected = await complete(one, request)
        assert reply.text == expected.text
        assert reply.samples[0].finish == expected.samples[0].finish
        assert reply.samples[0].logprobs == pytest.approx(expected.samples[0].logprobs, abs=1e-6)
    await one.aclose()


async def test_prompts_longer_than_a_pass_are_evaluated_in_pieces(folder, monkeypatch) -> None:
    requests = [Request(Prompt(prompt), max_tokens=9) for prompt in PROMPTS]
    whole = await written(slotted(folder), requests)
    monkeypatch.setattr("multihop.lms.slotted.CHUNK", 5)
    pieces = await written(slotted(folder), requests)
    assert [r.text for r in pieces] == [r.text for r in whole]


async def test_a_prompt_that_grew_goes_on_from_what_its_slot_holds(folder) -> None:
    lm = slotted(folder, slots=2)
    first = Request(Prompt(PROMPTS[2]), max_tokens=4)
    before = await complete(lm, first)
    grown = Request(Prompt(PROMPTS[2] + before.text + " ."), max_tokens=6)
    other = await complete(lm, Request(Prompt(PROMPTS[3]), max_tokens=4))
    again = await complete(lm, grown)
    assert before.call.tokens.cached == other.call.tokens.cached == 0
    assert again.call.tokens.cached >= before.call.tokens.prompt
    expected = await written(slotted(folder), [grown])
    assert again.text == expected[0].text
    await lm.aclose()


async def test_the_same_prompt_again_evaluates_one_token(folder) -> None:
    lm = slotted(folder)
    request = Request(Prompt(PROMPTS[1]), max_tokens=1)
    one, two = await complete(lm, request), await complete(lm, request)
    assert two.call.tokens.cached == one.call.tokens.prompt - 1
    assert one.text == two.text
    await lm.aclose()


async def test_a_prompt_that_only_begins_alike_leaves_a_kept_one_where_another_slot_is_free(
    folder,
) -> None:
    lm = slotted(folder, slots=2)
    first = await complete(lm, Request(Prompt(LONG), max_tokens=1))
    other = f"{LONG.split()[0]} gravity was built"
    await complete(lm, Request(Prompt(other), max_tokens=1))
    again = await complete(lm, Request(Prompt(LONG), max_tokens=1))
    assert again.call.tokens.cached == first.call.tokens.prompt - 1
    # Without another the oldest gives way.
    await complete(lm, Request(Prompt(PROMPTS[0]), max_tokens=1))
    again = await complete(lm, Request(Prompt(other), max_tokens=1))
    assert (again.call.tokens.cached or 0) < 3
    await lm.aclose()


async def test_more_requests_than_slots_are_all_answered(folder) -> None:
    requests = [Request(Prompt(PROMPTS[n % 4]), max_tokens=2 + n % 5) for n in range(23)]
    replies = await written(slotted(folder, slots=2), requests)
    assert [r.call.tokens.prompt > 0 for r in replies] == [True] * 23
    again = await written(slotted(folder, slots=7), requests)
    assert [r.text for r in replies] == [r.text for r in again]


async def test_a_stream_closed_early_stops_costing_and_its_slot_is_used_again(folder) -> None:
    lm = slotted(folder, slots=1)
    async with aclosing(lm.stream(Request(Prompt(PROMPTS[0]), max_tokens=200))) as pieces:
        async for _ in pieces:
            break
    reply = await asyncio.wait_for(
        complete(lm, Request(Prompt(PROMPTS[0]), max_tokens=2)), timeout=20
    )
    assert reply.call.tokens.cached == reply.call.tokens.prompt - 1
    await lm.aclose()


async def test_seeded_samples_are_the_same_again_and_differ_among_themselves(folder) -> None:
    request = Request(Prompt(PROMPTS[1]), max_tokens=12, n=3, temperature=1.3, top_p=0.9, seed=7)
    [one] = await written(slotted(folder), [request])
    crowd = [request, Request(Prompt(PROMPTS[3]), max_tokens=12)]
    two, _ = await written(slotted(folder), crowd)
    assert [s.text for s in one.samples] == [s.text for s in two.samples]
    assert len({s.text for s in one.samples}) > 1
    [later] = await written(slotted(folder), [replace(request, n=1, seed=8)])
    assert later.samples[0].text == one.samples[1].text


def adapter_at(folder: Path, where: Path, seed: int) -> Path:
    """A random LoRA adapter that changes what the model writes."""
    peft = pytest.importorskip("peft")
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
        adapted = peft.get_peft_model(model, config)
        for key, weight in adapted.named_parameters():
            if "lora_" in key:
                torch.nn.init.normal_(weight, std=0.5)
    adapted.save_pretrained(where)
    return where


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
async def test_an_only_adapter_is_merged_until_the_model_alone_is_asked(folder, tmp_path) -> None:
    adapters = {"one": adapter_at(folder, tmp_path / "one", seed=1)}
    lm, single = slotted(folder, adapters=adapters, slots=4), alone(folder, adapters=adapters)
    merged = []
    for adapter in ("one", "one", None, "one", None):
        requests = [Request(Prompt(prompt), max_tokens=8, adapter=adapter) for prompt in PROMPTS]
        for request, reply in zip(
            requests, await asyncio.gather(*(complete(lm, r) for r in requests)), strict=True
        ):
            assert reply.text == (await complete(single, request)).text
        merged.append(lm._merged)
    assert merged == [True, True, False, False, False]
    await lm.aclose()
    await single.aclose()


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
async def test_adapters_take_turns_and_do_not_read_each_others_keys(folder, tmp_path) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        adapter_at(folder, tmp_path / name, seed)
    adapters = {name: tmp_path / name for name in ("one", "two")}
    requests = [
        Request(Prompt(prompt), max_tokens=8, adapter=adapter)
        for prompt in PROMPTS
        for adapter in ("one", None, "two")
    ]
    together = await written(slotted(folder, adapters=adapters, slots=4), requests)
    single = alone(folder, adapters=adapters)
    for request, reply in zip(requests, together, strict=True):
        assert reply.text == (await complete(single, request)).text
    await single.aclose()
    assert len({reply.text for reply in together}) > 4


async def test_a_failure_in_the_engine_reaches_everybody_and_the_next_call_starts_anew(
    folder, monkeypatch
) -> None:
    lm = slotted(folder)
    request = Request(Prompt(PROMPTS[0]), max_tokens=3)
    expected = await complete(lm, request)

    def fail(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(lm._evaluator, "evaluate", fail)
    failures = await asyncio.gather(
        *(complete(lm, request) for _ in range(3)), return_exceptions=True
    )
    assert ["no memory left" in str(failure) for failure in failures] == [True] * 3
    monkeypatch.undo()
    assert (await complete(lm, request)).text == expected.text
    await lm.aclose()


async def test_what_cannot_be_asked_is_refused_before_anything_is_evaluated(folder) -> None:
    lm = slotted(folder, window=20)
    with pytest.raises(ContextTooLong, match="the window is 20"):
        await complete(lm, Request(Prompt(PROMPTS[2]), max_tokens=5))
    with pytest.raises(LMRefused, match="no adapter 'x'"):
        await complete(lm, Request(Prompt("q"), max_tokens=1, adapter="x"))
    with pytest.raises(LMRefused, match="prompt is empty"):
        await complete(lm, Request(Prompt(""), max_tokens=1))
    await lm.aclose()


def test_bad_options_are_refused(folder, tmp_path) -> None:
    with pytest.raises(BadInput, match="slots is 0"):
        slotted(folder, slots=0)
    with pytest.raises(BadInput, match="dtype is 'int8'"):
        slotted(folder, dtype="int8")
    with pytest.raises(BadInput, match="cannot be read"):
        slotted(tmp_path)
    with pytest.raises(BadInput, match="no adapter_config"):
        slotted(folder, adapters={"a": tmp_path})


def test_a_model_with_an_encoder_is_sent_elsewhere() -> None:
    from tiny_models import seq2seq_folder

    with pytest.raises(BadInput, match="Open it as transformers:"):
        slotted(seq2seq_folder())
