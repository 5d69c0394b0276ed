"""Loads decoder-only models for torch, also out of GGUF files."""

import io
import logging
from contextlib import nullcontext, redirect_stderr
from typing import Any

from multihop.errors import BadInput
from multihop.lms.gguf import DEFAULT, find_model


def load_causal(name: str, dtype: Any, attention: str) -> tuple[Any, Any]:
    """A causal model and its tokenizer.

    Args:
        name: `SmolLM2-135M-Instruct` (the embedded model), a .gguf file, a folder in Hugging Face
            form, or a repository as org/repo.
        dtype: Of the weights.
        attention: Which attention transformers computes.

    Raises:
        BadInput: There is no such model, or it cannot be loaded.
    """
    import transformers  # noqa: PLC0415

    gguf = find_model(name) if name == DEFAULT or name.endswith(".gguf") else None
    where = str(gguf.parent) if gguf else name
    extra = {"gguf_file": gguf.name} if gguf else {}
    loud = logging.getLogger("transformers.modeling_gguf_pytorch_utils")
    level = loud.level
    loud.setLevel(logging.ERROR)
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    # For GGUF there is a bar of its own that nothing turns off.
    quiet = redirect_stderr(io.StringIO()) if gguf else nullcontext()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, **extra)
        with quiet:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                where, dtype=dtype, attn_implementation=attention, **extra
            )
    except (OSError, ValueError, ImportError) as failure:
        why = (str(failure).strip() or type(failure).__name__).splitlines()[0]
        raise BadInput(f"The model {name} cannot be loaded: {why}") from failure
    finally:
        loud.setLevel(level)
        if bars:
            transformers.utils.logging.enable_progress_bar()
    if gguf:
        _forget_quantization(model)
    model.config.use_cache = False
    model.config._name_or_path = name  # noqa: SLF001 - it is written into what is saved
    model.name_or_path = name  # likewise, by peft
    return model, tokenizer


def _forget_quantization(model: Any) -> None:
    """Say that the weights are plain numbers, which they are once a GGUF file has been read.

    transformers keeps the mark of the file, and then refuses to train or save the model.
    """
    model.hf_quantizer = None
    model.is_quantized = False
    for owner, mark in ((model, "quantization_method"), (model.config, "quantization_config")):
        if hasattr(owner, mark):
            delattr(owner, mark)
