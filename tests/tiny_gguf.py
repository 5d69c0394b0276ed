"""A tiny random model as a GGUF file, and random LoRA adapters of it in peft's form."""

import json
from pathlib import Path

import numpy as np

WIDTH, INNER, HEADS, KEY_HEADS, LAYERS = 64, 96, 4, 2, 2
PEFT_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def head(architecture: str) -> int:
    """The width of a head; transformers knows no other of Qwen3 in a GGUF file."""
    return 128 if architecture == "qwen3" else WIDTH // HEADS


def shapes(architecture: str) -> dict[str, tuple[int, int]]:
    """Rows and columns of each layer."""
    queries, keys = HEADS * head(architecture), KEY_HEADS * head(architecture)
    return {
        "attn_q": (queries, WIDTH),
        "attn_k": (keys, WIDTH),
        "attn_v": (keys, WIDTH),
        "attn_output": (WIDTH, queries),
        "ffn_gate": (INNER, WIDTH),
        "ffn_up": (INNER, WIDTH),
        "ffn_down": (WIDTH, INNER),
    }


def letters() -> list[str]:
    """GPT-2's 256 printable stand-ins for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (chr(256 + n) for n in range(256 - len(plain)))
    return [chr(b) if b in plain else next(others) for b in range(256)]


def tiny_gguf(path: Path, architecture: str = "llama", seed: int = 1) -> Path:
    """Two layers; a token is a byte. The random numbers are as good in any order of rows."""
    import gguf

    dice = np.random.default_rng(seed)

    def matrix(*shape: int, scale: float = 1.5) -> np.ndarray:
        return (dice.standard_normal(shape) * scale / np.sqrt(shape[-1])).astype(np.float32)

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(head(architecture))
    writer.add_vocab_size(258)
    if architecture == "qwen3":
        writer.add_key_length(head(architecture))
        writer.add_value_length(head(architecture))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*letters(), "<|end|>", "ab"])
    writer.add_token_types([1] * 256 + [3, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(256)
    writer.add_add_bos_token(False)
    writer.add_tensor("token_embd.weight", matrix(258, WIDTH, scale=8))
    output = matrix(258, WIDTH, scale=3)
    output[:32] = output[127:] = 0  # it writes ASCII: other bytes may not make up characters
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for name, shape in shapes(architecture).items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", matrix(*shape))
            if architecture == "qwen2" and name in ("attn_q", "attn_k", "attn_v"):
                writer.add_tensor(f"blk.{layer}.{name}.bias", matrix(shape[0]))
        for name, size in (("attn_norm", WIDTH), ("ffn_norm", WIDTH)):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(size, np.float32))
        if architecture == "qwen3":
            for name in ("attn_q_norm", "attn_k_norm"):
                writer.add_tensor(f"blk.{layer}.{name}.weight", 1 + matrix(head(architecture)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def peft_folder(
    folder: Path,
    architecture: str = "llama",
    *,
    rank: int = 4,
    alpha: float = 8,
    seed: int = 2,
    **config,
) -> Path:
    """A LoRA adapter of all seven linear layers, its numbers large and random."""
    from safetensors.numpy import save_file

    dice = np.random.default_rng(seed)
    tensors = {}
    for layer in range(LAYERS):
        for name, (rows, columns) in shapes(architecture).items():
            start = f"base_model.model.model.layers.{layer}.{PEFT_NAMES[name]}"
            for side, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                values = dice.standard_normal(shape) / np.sqrt(shape[1])
                tensors[f"{start}.lora_{side}.weight"] = values.astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": [name.rpartition(".")[2] for name in PEFT_NAMES.values()],
        "base_model_name_or_path": "tiny",
        **config,
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def one_matrix(folder: Path, module: str, rows: int, columns: int) -> Path:
    """A LoRA adapter of one layer of some model, its numbers small and random."""
    from safetensors.numpy import save_file

    dice = np.random.default_rng(3)
    folder.mkdir(parents=True)
    start = f"base_model.model.{module}"
    tensors = {
        f"{start}.lora_{side}.weight": (dice.standard_normal(shape) / 100).astype(np.float32)
        for side, shape in (("A", (2, columns)), ("B", (rows, 2)))
    }
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    settings = {
        "peft_type": "LORA",
        "r": 2,
        "lora_alpha": 2,
        "bias": "none",
        "target_modules": [module.rpartition(".")[2]],
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder
