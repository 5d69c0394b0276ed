"""A tiny random Llama with a tokenizer of its own, as a folder in Hugging Face form."""

from pathlib import Path
from typing import Any


def tiny_llama(folder: Path, *, layers: int = 3) -> str:
    """Write one with grouped heads and about 20,000 parameters."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = {chr(code): code - 31 for code in range(32, 127)} | {"<unk>": 0, "\n": 96}
    inner = Tokenizer(models.BPE(vocab=letters, merges=[], unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")
    tokenizer.save_pretrained(str(folder))
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=96,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(str(folder))
    return str(folder)


def lessons(count: int = 12) -> list[Any]:
    """Lessons of three examples that share a beginning."""
    from multihop.training.examples import Example, Lesson

    made = []
    for n in range(count):
        name = f"q{n}"
        start = f"Town {n} is in land {n % 3}.\n\nQ: Where is town {n}?\nA:"
        made.append(
            Lesson(
                name,
                (
                    Example(start, f" Land {n % 3}.\n", "next", name),
                    Example(f"{start} Land {n % 3}.", f" It is: {n % 3}.\n", "next", name),
                    Example(f"Brief. {start}", f" {n % 3}\n", "read", name, 2.0),
                ),
            )
        )
    return made
