"""A LoRA adapter in peft's form, written in llama.cpp's.

Both hold two matrices a layer; names, one number and the order of some rows differ. llama.cpp
keeps the query and key weights of Llama models with the two halves of each head interleaved
(its rotary embedding turns neighbours, transformers' turns halves), so the rows of an adapter of
these weights go the same way. Left out, every shape still fits and the model writes nonsense.
"""

import importlib.util
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multihop.errors import BadInput, MissingExtra

PERMUTED: Mapping[str, bool] = {"llama": True, "qwen2": False, "qwen3": False}
"""The architectures that we know, as llama.cpp names them, and whether the rows of their query
and key weights are in another order than in transformers."""

_SAME_AS = {"mistral": "llama"}
"""transformers' names of what llama.cpp knows by another."""

MODULES: Mapping[str, str] = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""llama.cpp's names of the linear layers, by transformers'."""

_TENSOR = re.compile(
    r"base_model\.model\.model\.layers\.(\d+)\.([a-z_]+\.[a-z_]+)\.lora_([AB])\.weight"
)
_PLAIN_STARTS = (None, True, False, "gaussian", "orthogonal", "eva")
"""Ways to begin an adapter that leave the base model's weights as they were."""


@dataclass(frozen=True, slots=True)
class Base:
    """The sizes of a base model.

    Attributes:
        architecture: As llama.cpp names it.
        layers: Blocks.
        heads, key_heads: Attention heads of the queries, and of keys and values.
        head: Width of a head.
        width: Of the residual stream.
        inner: Width of the feed-forward layer.
    """

    architecture: str
    layers: int
    heads: int
    key_heads: int
    head: int
    width: int
    inner: int

    def sizes(self, module: str) -> tuple[int, int]:
        """Rows and columns of a layer's weights: what it gives and what it takes."""
        queries, keys = self.heads * self.head, self.key_heads * self.head
        return {
            "attn_q": (queries, self.width),
            "attn_k": (keys, self.width),
            "attn_v": (keys, self.width),
            "attn_output": (self.width, queries),
            "ffn_gate": (self.inner, self.width),
            "ffn_up": (self.inner, self.width),
            "ffn_down": (self.width, self.inner),
        }[module]


def base_sizes(path: Path) -> Base:
    """Read the sizes of a base model.

    Args:
        path: A .gguf file, or a folder with transformers' config.json.

    Raises:
        BadInput: It is neither, or of an architecture that we cannot export for.
    """
    base = _of_gguf(path) if path.is_file() else _of_folder(path)
    if base.architecture not in PERMUTED:
        raise BadInput(
            f"{path}: adapters of the architecture {base.architecture!r} cannot be exported. "
            f"Known: {', '.join(PERMUTED)}."
        )
    return base


def peft_to_gguf(peft_folder: Path, base: Path, into: Path) -> Path:
    """Write a LoRA adapter as a GGUF file.

    Args:
        peft_folder: adapter_config.json and adapter_model.safetensors.
        base: The model that it adapts: a .gguf file, or a folder with config.json.
        into: The file to write; replaced when it exists. Numbers are written in 16 bits.

    Returns:
        `into`.

    Raises:
        BadInput: The adapter or the base is none, the two do not fit, or the adapter has what
            llama.cpp has no place for: biases, DoRA, whole modules, ranks that differ.
        MissingExtra: gguf or safetensors is not installed.
    """
    for package in ("gguf", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "train")
    import gguf  # noqa: PLC0415

    rank, alpha = _settings(peft_folder)
    sizes = base_sizes(base)
    tensors = _tensors(peft_folder, sizes, rank)
    into.parent.mkdir(parents=True, exist_ok=True)
    draft = into.with_name(f".{into.name}.draft")
    writer = gguf.GGUFWriter(draft, sizes.architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for name in sorted(tensors, key=_order):
        writer.add_tensor(name, tensors[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return draft.replace(into)


def _order(name: str) -> tuple[int, str]:
    return int(name.split(".")[1]), name


def _settings(folder: Path) -> tuple[int, float]:
    """Rank and alpha, such that alpha / rank is what the product is scaled by."""
    path = folder / "adapter_config.json"
    config = _json(path, "a LoRA adapter in peft's form")
    if config.get("peft_type") != "LORA":
        raise BadInput(f"{path}: peft_type is {config.get('peft_type')!r}; only LORA is exported.")
    refused = {
        "bias": config.get("bias", "none") != "none",
        "lora_bias": config.get("lora_bias"),
        "use_dora": config.get("use_dora"),
        "modules_to_save": config.get("modules_to_save"),
        "rank_pattern": config.get("rank_pattern"),
        "alpha_pattern": config.get("alpha_pattern"),
        "fan_in_fan_out": config.get("fan_in_fan_out"),
        "layer_replication": config.get("layer_replication"),
        "trainable_token_indices": config.get("trainable_token_indices"),
        "target_parameters": config.get("target_parameters"),
        "use_qalora": config.get("use_qalora"),
        "alora_invocation_tokens": config.get("alora_invocation_tokens"),
        "init_lora_weights": config.get("init_lora_weights") not in _PLAIN_STARTS,
    }
    for name, unfit in refused.items():
        if unfit:
            raise BadInput(
                f"{path}: {name} is {config.get(name)!r}, which a GGUF adapter cannot hold. "
                "Train without it, or serve the adapter with transformers: or vLLM."
            )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise BadInput(f"{path}: r is {rank!r}; it must be a whole number of at least 1.")
    if not isinstance(alpha, int | float) or not (math.isfinite(alpha) and alpha > 0):
        raise BadInput(f"{path}: lora_alpha is {alpha!r}; it must be a number above 0.")
    return rank, float(alpha) * (math.sqrt(rank) if config.get("use_rslora") else 1.0)


def _tensors(folder: Path, base: Base, rank: int) -> dict[str, Any]:
    """All matrices by llama.cpp's names, rows in its order."""
    import safetensors  # noqa: PLC0415
    from safetensors.numpy import load_file  # noqa: PLC0415

    path = folder / "adapter_model.safetensors"
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file.")
    try:
        found = load_file(path)
    except (safetensors.SafetensorError, TypeError, ValueError) as broken:  # numpy has no bf16
        found = _through_torch(path, broken)
    tensors: dict[str, Any] = {}
    for name, matrix in found.items():
        known = _TENSOR.fullmatch(name)
        if not known or known[2] not in MODULES or int(known[1]) >= base.layers:
            raise BadInput(
                f"{path}: {name} is no part of a {base.architecture} model with {base.layers} "
                f"layers that can be exported. Layers: {', '.join(MODULES)}."
            )
        layer, module, side = int(known[1]), MODULES[known[2]], known[3]
        rows, columns = base.sizes(module)
        wanted = (rank, columns) if side == "A" else (rows, rank)
        if matrix.shape != wanted:
            raise BadInput(
                f"{path}: {name} has the shape {matrix.shape}; with rank {rank} on this base "
                f"model it has {wanted}. Was the adapter trained on another model?"
            )
        heads = {"attn_q": base.heads, "attn_k": base.key_heads}.get(module)
        turned = heads if side == "B" and PERMUTED[base.architecture] else None
        ordered = interleaved(matrix, turned) if turned else matrix
        tensors[f"blk.{layer}.{module}.weight.lora_{side.lower()}"] = _sixteen(ordered, name, path)
    if not tensors:
        raise BadInput(f"{path}: holds no LoRA matrices.")
    for name in tensors:
        other = name[:-1] + ("b" if name.endswith("a") else "a")
        if other not in tensors:
            raise BadInput(f"{path}: holds {name}, as llama.cpp calls it, but not {other}.")
    return tensors


def interleaved(matrix: Any, heads: int) -> Any:
    """Rows in llama.cpp's order: of each head's two halves by turns one.

    Args:
        matrix: [rows, anything], the heads' rows one after the other.
        heads: How many.
    """
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, -1, columns).swapaxes(1, 2).reshape(rows, columns)


def _sixteen(matrix: Any, name: str, path: Path) -> Any:
    import numpy as np  # noqa: PLC0415

    with np.errstate(over="ignore"):
        small = np.ascontiguousarray(matrix.astype(np.float16))
    if not np.isfinite(small).all():
        raise BadInput(f"{path}: {name} holds numbers that 16 bits cannot (beyond 65504, or none).")
    return small


def _through_torch(path: Path, broken: Exception) -> dict[str, Any]:
    """What numpy has no type for (bfloat16), as float32."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("torch", "train") from broken
    import safetensors  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    try:
        return {name: tensor.float().numpy() for name, tensor in load_file(path).items()}
    except (safetensors.SafetensorError, ValueError) as damaged:
        raise BadInput(f"{path}: not a readable safetensors file ({damaged}).") from None


def _of_gguf(path: Path) -> Base:
    if importlib.util.find_spec("gguf") is None:
        raise MissingExtra("gguf", "train")
    import gguf  # noqa: PLC0415

    try:
        fields = gguf.GGUFReader(path).fields
        architecture = str(fields["general.architecture"].contents())

        def number(name: str) -> int:
            return int(fields[f"{architecture}.{name}"].contents())

        heads, width = number("attention.head_count"), number("embedding_length")
        own = fields.get(f"{architecture}.attention.key_length")
        return Base(
            architecture=architecture,
            layers=number("block_count"),
            heads=heads,
            key_heads=number("attention.head_count_kv"),
            head=int(own.contents()) if own else width // heads,
            width=width,
            inner=number("feed_forward_length"),
        )
    except (KeyError, ValueError, TypeError, IndexError) as broken:
        raise BadInput(f"{path}: not a GGUF language model ({broken}).") from None


def _of_folder(path: Path) -> Base:
    file = path / "config.json"
    config = _json(file, "a model in transformers' form, nor a .gguf file")
    kind = str(config.get("model_type"))
    try:
        heads, width = int(config["num_attention_heads"]), int(config["hidden_size"])
        return Base(
            architecture=_SAME_AS.get(kind, kind),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            key_heads=int(config.get("num_key_value_heads") or heads),
            head=int(config.get("head_dim") or width // heads),
            width=width,
            inner=int(config["intermediate_size"]),
        )
    except (KeyError, ValueError, TypeError) as broken:
        raise BadInput(
            f"{file}: adapters of the architecture {kind!r} cannot be exported "
            f"({type(broken).__name__}: {broken}). Known: {', '.join(PERMUTED)}."
        ) from None


def _json(path: Path, what: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file; {path.parent} is not {what}.") from None
    except (ValueError, RecursionError) as broken:
        raise BadInput(f"{path}: not JSON ({broken}).") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path}: expected a JSON object.")
    return found
