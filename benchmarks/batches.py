"""Batches of transformers against one call after the other, on random weights.

Eight questions ask four times each, the next time when the last answer has come; answers are 6
to 40 tokens long and prompts about 50 to 170. One thread computes, and processor time is
compared: it does not depend on what else the machine does. `--full` takes the shape of
SmolLM2-135M (minutes), else a model of 12 million parameters. Needs the extra `transformers`.
"""

import asyncio
import logging
import random
import tempfile
import time
from itertools import chain
from pathlib import Path

import torch
import transformers
from table import Row, main
from tokenizers import Tokenizer, models, pre_tokenizers

from multihop.lms.base import LanguageModel, Prompt, Request, complete
from multihop.lms.batching import BatchedLM
from multihop.lms.transformers import TransformersLM

QUESTIONS, CALLS = 8, 4
SHAPES = {
    False: {"hidden_size": 320, "intermediate_size": 864, "num_hidden_layers": 8, "heads": 5},
    True: {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "heads": 9},
}


class Closed(TransformersLM):
    """Takes nobody into a batch that has begun."""

    def stream_batch(self, batch, listening, join=None):  # noqa: ARG002
        """Give what is generated for those who came in time."""
        return super().stream_batch(batch, listening, None)


def save(folder: Path, *, full: bool) -> None:
    words = {f"w{number}": number for number in range(2000)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="w0"
    ).save_pretrained(folder)
    shape = dict(SHAPES[full])
    heads = shape.pop("heads")
    config = transformers.LlamaConfig(
        vocab_size=49_152 if full else 2000,
        num_attention_heads=heads,
        num_key_value_heads=heads // 3 if full else 1,
        max_position_embeddings=2048,
        eos_token_id=None,
        bos_token_id=None,
        **shape,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def asked() -> list[list[Request]]:
    chance = random.Random(0)

    def one() -> Request:
        words = [f"w{chance.randrange(1, 2000)}" for _ in range(chance.randrange(50, 170))]
        return Request(Prompt(" ".join(words)), max_tokens=chance.randrange(6, 41))

    return [[one() for _ in range(CALLS)] for _ in range(QUESTIONS)]


async def run(lm: LanguageModel, questions: list[list[Request]]) -> list[list[str]]:
    async def answer(requests: list[Request]) -> list[str]:
        return [(await complete(lm, request)).text for request in requests]

    return await asyncio.gather(*map(answer, questions))


def rows(full: bool) -> list[Row]:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    questions = asked()
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), full=full)
        lm, closed = (
            kind(folder, device="cpu", dtype="float32") for kind in (TransformersLM, Closed)
        )
        for each in (lm, closed):
            asyncio.run(run(each, [[questions[0][0]]]))  # loads the weights
        found: list[Row] = []
        alone, texts = 0.0, None
        for what, one in (
            ("one call after the other", lm),
            ("batches that begin and end together", BatchedLM(closed)),
            ("batches that calls leave and join", BatchedLM(lm)),
        ):
            began = time.process_time()
            wrote = asyncio.run(run(one, questions))
            seconds = time.process_time() - began
            texts, alone = texts or wrote, alone or seconds
            same = sum(a == b for a, b in zip(chain(*texts), chain(*wrote), strict=True))
            found.append(
                Row(
                    "batches",
                    f"{what}; {same} of {QUESTIONS * CALLS} texts as alone",
                    seconds,
                    "s of processor time",
                    *((f"{alone:.3g} s one by one", seconds / alone) if one is not lm else ()),
                )
            )
    return found


if __name__ == "__main__":
    main(rows)
