"""The exported adapter writes in llama.cpp what it writes in transformers."""

import json

import pytest

from multihop.errors import BadInput
from multihop.lms.adapters import BaseModel, TrainingSummary
from multihop.training import card, export
from multihop.training.agreement import Agreement, Difference, greedy_agreement, read_prompts
from tiny_gguf import peft_folder, tiny_gguf

PROMPTS = ["Q: Where does the Rhine rise?\nA:", "Lost Gravity was built by", "abababab"]
TRAINING = TrainingSummary(data=(), config="0" * 64, seed=0, steps=1, tokens=1)


def engines() -> None:
    for package in ("torch", "transformers", "peft", "gguf", "xllamacpp"):
        pytest.importorskip(package)


def an_adapter(tmp_path, architecture, **config):
    """A wild adapter in both forms, and its base model's file."""
    model = tiny_gguf(tmp_path / f"{architecture}.gguf", architecture)
    adapter = card.write(
        peft_folder(tmp_path / "peft", architecture, **config),
        tmp_path / "adapter",
        name="wild",
        base=BaseModel(name=architecture),
        training=TRAINING,
        licence="Apache-2.0",
        weights=model,
    )
    return adapter, str(model)


@pytest.mark.embedded
@pytest.mark.torch
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
async def test_an_exported_adapter_writes_the_same_in_both_engines(tmp_path, architecture) -> None:
    engines()
    adapter, model = an_adapter(tmp_path, architecture)
    base = await greedy_agreement(None, PROMPTS, model=model, max_tokens=16)
    told = await greedy_agreement(adapter, PROMPTS, model=model, max_tokens=16)
    assert base.real == told.real == ()
    assert (told.prompts, told.unknown) == (3, 0)
    assert told.tokens >= 3 * 8
    assert base.largest < 0.05
    assert told.largest < 0.05


@pytest.mark.embedded
@pytest.mark.torch
async def test_without_the_order_of_llamas_rows_it_writes_something_else(
    tmp_path, monkeypatch
) -> None:
    engines()
    monkeypatch.setattr(export, "PERMUTED", {"llama": False})
    adapter, model = an_adapter(tmp_path, "llama")
    told = await greedy_agreement(adapter, PROMPTS, model=model, max_tokens=16)
    assert told.real
    assert told.noise > 0.3


@pytest.mark.embedded
@pytest.mark.torch
async def test_rank_stabilised_scaling_is_kept(tmp_path) -> None:
    engines()
    adapter, model = an_adapter(tmp_path, "qwen2", use_rslora=True)
    told = await greedy_agreement(adapter, PROMPTS, model=model, max_tokens=16)
    assert told.real == ()
    assert told.largest < 0.05


async def test_nothing_to_compare_is_refused() -> None:
    engines()
    with pytest.raises(BadInput, match="No prompts"):
        await greedy_agreement(None, [])


def test_near_ties_are_counted_apart_from_what_rounding_cannot_explain() -> None:
    differences = tuple(Difference(0, n, "a", "b", margin) for n, margin in enumerate((0.1, 0.9)))
    told = Agreement(
        prompts=2,
        unknown=0,
        equal=1,
        tokens=20,
        differences=differences,
        near=0.3,
        noise=0.01,
        largest=0.1,
    )
    assert told.near_ties == 1
    assert [each.margin for each in told.real] == [0.9]


def test_prompts_are_read_from_lines_and_from_traces(tmp_path) -> None:
    path = tmp_path / "prompts.jsonl"
    traced = {"steps": [{"call": {"prompt": "Q: b?", "tokens": {"prompt": 5}}}, {"call": None}]}
    lines = [{"prompt": "Q: a?"}, traced, {"prompt": "Q: a?"}]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert read_prompts(path) == ["Q: a?", "Q: b?"]


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"text": "x"}', r'p.jsonl:1: expected a field "prompt"'), ("[1]", "expected a JSON object")],
)
def test_a_file_without_prompts_is_refused(tmp_path, content, message) -> None:
    (tmp_path / "p.jsonl").write_text(content)
    with pytest.raises(BadInput, match=message):
        read_prompts(tmp_path / "p.jsonl")
    with pytest.raises(BadInput, match="no such file"):
        read_prompts(tmp_path / "none.jsonl")
