"""LoRA adapters in llama.cpp's form, and what is refused."""

import json

import pytest

from multihop.errors import BadInput
from multihop.training.export import base_sizes, interleaved, peft_to_gguf
from tiny_gguf import INNER, LAYERS, PEFT_NAMES, WIDTH, peft_folder, tiny_gguf

np = pytest.importorskip("numpy")
gguf = pytest.importorskip("gguf")
pytest.importorskip("safetensors")

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
}


@pytest.fixture
def base(tmp_path):
    """A base model of which only the sizes are known."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_rows_of_a_heads_halves_take_turns() -> None:
    rows = np.arange(8)[:, None] * np.ones((1, 2))
    assert interleaved(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert interleaved(rows, 1)[:, 0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_a_file_holds_every_matrix_in_16_bits_under_llama_cpps_names(tmp_path, base) -> None:
    folder = peft_folder(tmp_path / "peft", alpha=6)
    into = peft_to_gguf(folder, base, tmp_path / "new" / "adapter.gguf")
    assert [path.name for path in into.parent.iterdir()] == ["adapter.gguf"]
    file = gguf.GGUFReader(into)
    told = {name: field.contents() for name, field in file.fields.items()}
    assert told["general.type"] == "adapter"
    assert told["general.architecture"] == "llama"
    assert told["adapter.type"] == "lora"
    assert told["adapter.lora.alpha"] == 6
    tensors = {tensor.name: tensor for tensor in file.tensors}
    assert len(tensors) == 2 * 7 * LAYERS
    assert {tensor.tensor_type.name for tensor in file.tensors} == {"F16"}
    from safetensors.numpy import load_file

    found = load_file(folder / "adapter_model.safetensors")
    for short, long in PEFT_NAMES.items():
        for side in "AB":
            ours = found[f"base_model.model.model.layers.1.{long}.lora_{side}.weight"]
            if side == "B" and short in ("attn_q", "attn_k"):
                ours = interleaved(ours, 4 if short == "attn_q" else 2)
            theirs = tensors[f"blk.1.{short}.weight.lora_{side.lower()}"].data
            assert np.array_equal(theirs, ours.astype(np.float16)), (short, side)


def test_only_the_layers_and_modules_that_were_trained_are_written(tmp_path, base) -> None:
    from safetensors.numpy import load_file, save_file

    folder = peft_folder(tmp_path / "peft")
    path = folder / "adapter_model.safetensors"
    some = {name: t for name, t in load_file(path).items() if ".layers.1.mlp." in name}
    save_file(some, path)
    file = gguf.GGUFReader(peft_to_gguf(folder, base, tmp_path / "a.gguf"))
    assert {tensor.name.split(".")[2] for tensor in file.tensors} == {
        "ffn_gate",
        "ffn_up",
        "ffn_down",
    }
    assert {tensor.name.split(".")[1] for tensor in file.tensors} == {"1"}


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_sizes_are_the_same_from_a_gguf_file_and_from_a_folder(tmp_path, architecture) -> None:
    kind = "mistral" if architecture == "llama" else architecture
    head = {"head_dim": 128} if architecture == "qwen3" else {}
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "model_type": kind, **head}))
    model = tiny_gguf(tmp_path / "model.gguf", architecture)
    assert base_sizes(tmp_path) == base_sizes(model)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; only LORA"),
        ({"bias": "all"}, "bias is 'all', which a GGUF adapter cannot hold"),
        ({"lora_bias": True}, "lora_bias is True"),
        ({"use_dora": True}, "use_dora is True"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save is \['lm_head'\]"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"r": 0}, "r is 0; it must be"),
        ({"r": "4"}, "r is '4'; it must be"),
        ({"lora_alpha": -1}, "lora_alpha is -1"),
        ({"lora_alpha": None}, "lora_alpha is None"),
        ({"r": 8}, r"has the shape \(4, 96\); with rank 8 on this base model it has \(8, 96\)"),
    ],
)
def test_what_a_gguf_adapter_cannot_hold_is_refused(tmp_path, base, config, message) -> None:
    folder = peft_folder(tmp_path / "peft", **config)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    with pytest.raises(BadInput, match=message):
        peft_to_gguf(folder, base, tmp_path / "adapter.gguf")
    assert not (tmp_path / "adapter.gguf").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gemma3"}, "architecture 'gemma3' cannot be exported. Known: llama, qwen2"),
        ({"hidden_size": 128}, "Was the adapter trained on another model?"),
        ({"num_hidden_layers": 1}, "is no part of a llama model with 1 layers"),
        ({"intermediate_size": None}, "cannot be exported"),
    ],
)
def test_another_base_model_is_refused(tmp_path, changes, message) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    with pytest.raises(BadInput, match=message):
        peft_to_gguf(peft_folder(tmp_path / "peft"), tmp_path, tmp_path / "adapter.gguf")


def rewritten(folder, change):
    from safetensors.numpy import load_file, save_file

    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def test_half_a_pair_strange_tensors_and_too_large_numbers_are_refused(tmp_path, base) -> None:
    first = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    changes = [
        (lambda t: t.pop(first), r"holds blk\.0\.attn_q\.weight\.lora_b.* but not"),
        (lambda t: t.update({"base_model.model.lm_head.lora_A.weight": t[first]}), "no part of"),
        (lambda t: t[first].__setitem__((0, 0), 1e5), "holds numbers that 16 bits cannot"),
        (lambda t: t[first].__setitem__((0, 0), np.nan), "holds numbers that 16 bits cannot"),
        (lambda t: t.clear(), "holds no LoRA matrices"),
    ]
    for number, (change, message) in enumerate(changes):
        folder = peft_folder(tmp_path / f"peft{number}")
        rewritten(folder, change)
        with pytest.raises(BadInput, match=message):
            peft_to_gguf(folder, base, tmp_path / "adapter.gguf")


def test_files_that_are_missing_or_damaged_are_refused(tmp_path, base) -> None:
    folder = peft_folder(tmp_path / "peft")
    with pytest.raises(BadInput, match=r"config\.json: there is no such file"):
        peft_to_gguf(folder, folder, tmp_path / "adapter.gguf")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(BadInput, match="not a GGUF language model"):
        peft_to_gguf(folder, tmp_path / "model.gguf", tmp_path / "adapter.gguf")
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(BadInput, match="no such file"):
        peft_to_gguf(folder, base, tmp_path / "adapter.gguf")
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(BadInput, match="not JSON"):
        peft_to_gguf(folder, base, tmp_path / "adapter.gguf")


@pytest.mark.torch
def test_bfloat16_and_damaged_weights(tmp_path, base) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    folder = peft_folder(tmp_path / "peft")
    path = folder / "adapter_model.safetensors"
    save_file({n: t.to(torch.bfloat16) for n, t in load_file(path).items()}, path)
    file = gguf.GGUFReader(peft_to_gguf(folder, base, tmp_path / "a.gguf"))
    assert len(file.tensors) == 2 * 7 * LAYERS
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadInput, match="not a readable safetensors file"):
        peft_to_gguf(folder, base, tmp_path / "b.gguf")
