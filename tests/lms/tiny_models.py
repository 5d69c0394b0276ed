"""Tiny random models with tokenizers trained on the spot."""

import tempfile
from functools import cache
from pathlib import Path

import pytest

WORDS = (
    "lost gravity was built by mack rides mack rides is a german maker of roller coasters "
    "the river rises in peru and who built it q a . , : so the answer is germany river"
)
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}"
    "{% if not loop.last %}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}</s><assistant>{% endif %}"
)


def _one_thread(torch) -> None:
    torch.set_num_threads(1)  # more wait for each other longer than such models compute


def _tokenizer(folder: Path, *, prefix: str) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    specials = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(
        [WORDS] * 4 + list("abcdefghijklmnopqrstuvwxyz0123456789?\n"), trainer
    )
    if prefix == "encoder":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", 1)]
        )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        chat_template=TEMPLATE,
    ).save_pretrained(folder)


@cache
def causal_folder() -> Path:
    """A Llama with 2 layers and a window of 256."""
    torch = pytest.importorskip("torch")
    _one_thread(torch)
    transformers = pytest.importorskip("transformers")
    folder = Path(tempfile.mkdtemp(prefix="tiny-llama-"))
    _tokenizer(folder, prefix="")
    config = transformers.LlamaConfig(
        vocab_size=120,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        initializer_range=0.4,
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@cache
def seq2seq_folder() -> Path:
    """A T5 with 2 layers."""
    torch = pytest.importorskip("torch")
    _one_thread(torch)
    transformers = pytest.importorskip("transformers")
    folder = Path(tempfile.mkdtemp(prefix="tiny-t5-"))
    _tokenizer(folder, prefix="encoder")
    config = transformers.T5Config(
        vocab_size=120,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        initializer_factor=3.0,
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def tiny_causal(**options):
    from multihop.lms.transformers import TransformersLM

    return TransformersLM(str(causal_folder()), device="cpu", **options)


def tiny_seq2seq(**options):
    from multihop.lms.transformers import TransformersLM

    return TransformersLM(str(seq2seq_folder()), device="cpu", **options)
