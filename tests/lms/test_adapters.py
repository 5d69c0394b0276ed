"""Cards, and what is refused for them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adapter_folders import CARD, FILES, adapter_folder
from multihop.errors import BadInput
from multihop.lms import adapters
from multihop.lms.adapters import (
    AdapterCard,
    BaseModel,
    PromptForm,
    find_adapter,
    packaged,
    packaged_for,
    read_adapter,
    resolved,
)
from multihop.lms.digest import file_digest


@pytest.fixture
def ours(tmp_path, monkeypatch) -> Path:
    """A place for packaged adapters."""
    monkeypatch.setattr(adapters, "files", lambda _: tmp_path)
    return tmp_path / "data" / "adapters"


def test_a_card_is_read_as_it_was_written() -> None:
    assert AdapterCard.from_json(CARD.to_json(), "here") == CARD
    bare = replace(CARD, scores={}, training=replace(CARD.training, data=(), loss=None))
    assert AdapterCard.from_json(bare.to_json(), "here") == bare


def test_its_digest_tells_files_and_form_but_not_scores() -> None:
    assert replace(CARD, scores={"a": 1}).digest == CARD.digest
    assert replace(CARD, form=PromptForm(words=71)).digest != CARD.digest
    assert replace(CARD, files={"adapter.gguf": "0" * 64}).digest != CARD.digest


def changed(*path: str | int, value: object = None) -> str:
    """The card's text with one value changed, or taken out."""
    record = json.loads(CARD.to_json())
    *outer, last = path
    inner = record
    for step in outer:
        inner = inner[step]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CARD.to_json()[:-20], "not JSON"),
        ("[]", "no JSON object"),
        ("[" * 100_000, "not JSON"),
        (changed("format", value=2), "format 2, this program reads 1"),
        (changed("format"), "format None"),
        (changed("base"), "base is missing"),
        (changed("base", value="SmolLM2"), "base. is no object"),
        (changed("base", "name"), "base.name is missing"),
        (changed("base", "name", value=""), "base.name is empty"),
        (changed("base", "digest", value="abc"), "base.digest is 'abc'"),
        (changed("name", value="../evil"), "name is '../evil'"),
        (changed("name", value=5), "name is '5'"),
        (changed("colour", value="red"), "colour is unknown"),
        (changed("form", "shots", value=-1), "form.shots is '-1'"),
        (changed("form", "shots", value=True), "form.shots is 'True'"),
        (changed("form", "words", value=0), "form.words is 0"),
        (changed("form", "reader", value="oracle"), "form.reader is 'oracle'"),
        (changed("files", value={}), "files names none"),
        (changed("files", "../adapter.gguf", value="0" * 64), "no plain file name"),
        (changed("files", "adapter.gguf", value="0"), "files.adapter.gguf is '0', no SHA-256"),
        (changed("files", "adapter.gguf", value=[1]), "no SHA-256"),
        (changed("training", "data", value={}), "training.data is no list"),
        (changed("training", "data", 0, "licence"), "training.data.licence is missing"),
        (changed("training", "loss", value="low"), "training.loss is 'low'"),
        (changed("scores", value=[1]), "scores is '\\[1\\]'"),
    ],
)
def test_a_corrupted_card_is_refused_in_one_line(text, message) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        AdapterCard.from_json(text, "here/card.json")
    assert str(refused.value).startswith("here/card.json: ")
    assert "\n" not in str(refused.value)


def test_a_folder_without_a_card_is_refused(tmp_path) -> None:
    with pytest.raises(BadInput, match=r"has no card\.json"):
        read_adapter(tmp_path)
    (tmp_path / "card.json").write_bytes(b"\xff")
    with pytest.raises(BadInput, match="not the card of an adapter"):
        read_adapter(tmp_path)


def test_a_file_that_is_not_the_cards_is_refused(tmp_path) -> None:
    adapter = read_adapter(adapter_folder(tmp_path / "a"))
    assert adapter.file("adapter.gguf").read_bytes() == FILES["adapter.gguf"]
    (tmp_path / "a" / "adapter.gguf").write_bytes(b"GGUF of somebody")
    with pytest.raises(BadInput, match=r"adapter\.gguf is not the file that its card names"):
        adapter.file("adapter.gguf")
    (tmp_path / "a" / "adapter.gguf").unlink()
    with pytest.raises(BadInput, match=r"has no adapter\.gguf.*multihop train export"):
        adapter.file("adapter.gguf")
    (tmp_path / "a" / "other.bin").write_bytes(b"")
    with pytest.raises(BadInput, match="its card does not name"):
        adapter.file("other.bin")


def test_another_model_file_is_refused(tmp_path) -> None:
    model, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    model.write_bytes(b"one")
    other.write_bytes(b"two")
    base = BaseModel(name="SmolLM2-135M-Instruct", digest=file_digest(model))
    adapter = read_adapter(adapter_folder(tmp_path / "a", base=base))
    assert adapter.gguf_for(model) == tmp_path / "a" / "adapter.gguf"
    assert adapter.peft_for(str(model)) == tmp_path / "a"
    message = r"'loop' was trained on SmolLM2-135M-Instruct \(SHA-256 .*\); other\.gguf is another"
    for refusing in (lambda: adapter.gguf_for(other), lambda: adapter.peft_for(str(other))):
        with pytest.raises(BadInput, match=message):
            refusing()


def test_where_no_digest_is_known_the_files_name_counts(tmp_path) -> None:
    adapter = read_adapter(adapter_folder(tmp_path / "a"))
    fitting, other = tmp_path / "smollm2-135m-instruct.Q8_0.gguf", tmp_path / "qwen2.gguf"
    fitting.write_bytes(b"one")
    other.write_bytes(b"two")
    assert adapter.gguf_for(fitting)
    with pytest.raises(BadInput, match=r"qwen2\.gguf does not have it in its name"):
        adapter.gguf_for(other)


def test_transformers_models_are_known_by_name(tmp_path) -> None:
    adapter = read_adapter(adapter_folder(tmp_path / "a"))
    cached = tmp_path / "models--HuggingFaceTB--SmolLM2-135M-Instruct" / "snapshots" / "abc"
    renamed, other = tmp_path / "mine", tmp_path / "qwen2"
    for folder in (cached, renamed, other, tmp_path / "smollm2-135m-instruct"):
        folder.mkdir(parents=True)
    (renamed / "config.json").write_text('{"_name_or_path": "SmolLM2-135M-Instruct"}')
    fitting = [
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "SmolLM2-135M-Instruct",
        *map(str, (cached, renamed, tmp_path / "smollm2-135m-instruct")),
    ]
    for model in fitting:
        assert adapter.peft_for(model) == tmp_path / "a"
    for model in ("HuggingFaceTB/SmolLM2-360M-Instruct", "me/SmolLM2-135M-Instruct", str(other)):
        with pytest.raises(BadInput, match="was trained on HuggingFaceTB/SmolLM2-135M-Instruct"):
            adapter.peft_for(model)


def test_a_chat_template_is_refused(tmp_path) -> None:
    adapter = read_adapter(adapter_folder(tmp_path / "a"))
    for refusing in (
        lambda: adapter.gguf_for(tmp_path / "none.gguf", chat=True),
        lambda: adapter.peft_for("HuggingFaceTB/SmolLM2-135M-Instruct", chat=True),
    ):
        with pytest.raises(BadInput, match="was trained on plain prompts"):
            refusing()


def test_names_mean_packaged_adapters_first_then_folders(tmp_path, ours, monkeypatch) -> None:
    adapter_folder(ours / "loop")
    mine = adapter_folder(tmp_path / "here" / "loop", form=PromptForm(words=50))
    monkeypatch.chdir(tmp_path / "here")
    assert packaged() == {"loop": ours / "loop"}
    assert find_adapter("loop").folder == ours / "loop"
    assert find_adapter("./loop").card.form.words == 50
    assert find_adapter(str(mine)).folder == mine
    with pytest.raises(
        BadInput, match=r"No adapter is named 'nope', and no folder. Packaged: loop"
    ):
        find_adapter("nope")


def test_the_packaged_adapter_of_a_model_is_found_by_the_models_name(ours) -> None:
    assert packaged_for("SmolLM2-135M-Instruct") is None
    adapter_folder(ours / "b", name="b")
    adapter_folder(ours / "a", name="a", base=BaseModel(name="Qwen2"))
    assert packaged_for("SmolLM2-135M-Instruct").name == "b"
    assert packaged_for("Phi") is None


def test_backends_take_folders_with_cards_and_bare_files(tmp_path) -> None:
    folder = adapter_folder(tmp_path / "a")
    bare = tmp_path / "bare.gguf"
    found = resolved({"a": str(folder), "b": bare, "c": read_adapter(folder)})
    assert found == {"a": read_adapter(folder), "b": bare, "c": read_adapter(folder)}


def test_what_this_package_carries_is_whole() -> None:
    """Every shipped adapter: card, files, form and a card for people."""
    for folder in packaged().values():
        adapter = read_adapter(folder)
        assert adapter.name == folder.name
        for name in adapter.card.files:
            assert adapter.file(name)
        assert (folder / "README.md").read_text("utf-8")
