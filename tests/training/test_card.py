"""From what peft saved to a folder with a card."""

import json
import logging

import pytest

from adapter_folders import CARD, adapter_folder
from multihop.errors import BadInput
from multihop.lms.adapters import BaseModel, read_adapter
from multihop.training import card
from tiny_gguf import peft_folder, tiny_gguf

BASE = BaseModel(name="tiny-llama", repository="somebody/tiny-llama")


def written(tmp_path, **changes):
    settings = {
        "name": "loop",
        "base": BASE,
        "training": CARD.training,
        "licence": "Apache-2.0",
        **changes,
    }
    trained = peft_folder(tmp_path / "best", base_model_name_or_path="/home/me/models/tiny")
    return card.write(trained, tmp_path / "adapter", **settings)


@pytest.mark.torch
def test_a_folder_holds_both_forms_in_16_bits_and_both_cards(tmp_path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("gguf")
    from safetensors.torch import load_file

    adapter = written(tmp_path, weights=tiny_gguf(tmp_path / "tiny.gguf"), scores={"F1": 0.4})
    assert read_adapter(tmp_path / "adapter") == adapter
    assert sorted(path.name for path in adapter.folder.iterdir()) == [
        "README.md",
        "adapter.gguf",
        "adapter_config.json",
        "adapter_model.safetensors",
        "card.json",
    ]
    for name in adapter.card.files:
        assert adapter.file(name)
    tensors = load_file(adapter.folder / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    config = json.loads((adapter.folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "somebody/tiny-llama"
    assert config["inference_mode"] is True


@pytest.mark.torch
def test_where_llama_cpp_has_no_form_of_it_the_rest_is_written(tmp_path, caplog) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("gguf")
    model = tmp_path / "odd"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "odd"}')
    with caplog.at_level(logging.WARNING):
        adapter = written(tmp_path, weights=model)
    assert "written without adapter.gguf" in caplog.text
    assert sorted(adapter.card.files) == ["adapter_config.json", "adapter_model.safetensors"]
    assert "transformers:somebody/tiny-llama" in (adapter.folder / "README.md").read_text()


@pytest.mark.torch
def test_the_gguf_form_can_be_added_later(tmp_path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("gguf")
    adapter = written(tmp_path)
    assert "adapter.gguf" not in adapter.card.files
    whole = card.with_gguf(adapter.folder, tiny_gguf(tmp_path / "tiny.gguf"))
    assert read_adapter(adapter.folder) == whole
    assert whole.file("adapter.gguf")
    (adapter.folder / "adapter_model.safetensors").write_bytes(b"another")
    with pytest.raises(BadInput, match="is not the file that its card names"):
        card.with_gguf(adapter.folder, tmp_path / "tiny.gguf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"name": "my adapter"}, "name is 'my adapter'"), ({"name": "../up"}, r"name is '\.\./up'")],
)
def test_what_cannot_stand_on_a_card_is_refused_before_anything_is_written(
    tmp_path, changes, message
) -> None:
    pytest.importorskip("safetensors")
    with pytest.raises(BadInput, match=message):
        written(tmp_path, **changes)
    assert not (tmp_path / "adapter").exists()


def test_scores_are_put_on_the_cards(tmp_path) -> None:
    folder = adapter_folder(tmp_path / "a")
    scores = {"HotpotQA": {"F1": 0.28123, "EM": None}, "MuSiQue": {"F1": 0.04, "note": "a|b"}}
    adapter = card.with_scores(folder, scores)
    assert read_adapter(folder) == adapter
    assert adapter.card.scores == scores
    page = (folder / "README.md").read_text()
    assert "|  | F1 | EM | note |" in page
    assert "| HotpotQA | 0.2812 |  |  |" in page
    assert "| MuSiQue | 0.04 |  | a\\|b |" in page


def test_the_card_for_people_says_what_where_and_how() -> None:
    page = card.readme(CARD)
    for said in (
        "license: apache-2.0\nbase_model: HuggingFaceTB/SmolLM2-135M-Instruct",
        "| HotpotQA | CC BY-SA 4.0 | 197 | 1,200 |",
        "Seed 7; 139 steps, 223,000 tokens",
        "0.2500 nats a token",
        '"lr": 0.001',
        "preset 'trained' (no demonstrations, passages of 70 words)",
        "Answer the following question.",
        "PeftModel.from_pretrained",
        "--lora-modules loop=",
        CARD.files["adapter.gguf"],
    ):
        assert said in page, said
    assert all(len(line) < 200 for line in page.splitlines())
