"""Whether an adapter writes the same in both engines: llama.cpp and transformers.

The embedded engine keeps weights and activations in 8 bits where transformers computes with 32,
so log-probabilities differ a little, and a near tie between two tokens may fall otherwise. What
is no near tie shows that something is wrong with the exported adapter.
"""

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multihop.errors import BadInput, MissingExtra
from multihop.lms.adapters import Adapter
from multihop.lms.base import LanguageModel, Prompt, Request
from multihop.lms.gguf import DEFAULT, find_model
from multihop.text import json_object

NEAR = 0.3
"""Nats. The engines' log-probabilities of a written token were seen to differ by up to 0.24 with
the embedded model and by 0.01 on average; each of two tokens may be off."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A token that the engines do not agree on.

    Attributes:
        prompt: The prompt's number, from 0.
        position: The token's in the continuation, from 0.
        local: What llama.cpp wrote.
        reference: What transformers would write there.
        margin: By how many nats transformers prefers its own.
    """

    prompt: int
    position: int
    local: str
    reference: str
    margin: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """What came out of a comparison.

    Attributes:
        prompts: Compared.
        unknown: Prompts that were not: the engine does not tell all tokens of characters that
            take several.
        equal: Prompts whose continuations are the same, token by token.
        tokens: Compared.
        differences: Where they are not, in order. Each token is compared after llama.cpp's own
            text, so what follows a difference counts too.
        near: Margin in nats below which a difference is a near tie.
        noise: Mean absolute difference of the tokens' log-probabilities, in nats.
        largest: The largest of them.
    """

    prompts: int
    unknown: int
    equal: int
    tokens: int
    differences: tuple[Difference, ...]
    near: float
    noise: float
    largest: float

    @property
    def near_ties(self) -> int:
        """Differences that are explained by rounding."""
        return sum(each.margin < self.near for each in self.differences)

    @property
    def real(self) -> tuple[Difference, ...]:
        """Those that are not."""
        return tuple(each for each in self.differences if each.margin >= self.near)


async def greedy_agreement(
    adapter: Adapter | None,
    prompts: Sequence[str],
    *,
    model: str = DEFAULT,
    reference: str | None = None,
    max_tokens: int = 48,
    near: float = NEAR,
    repack: bool = True,
    tell: Callable[[int], None] = lambda _: None,
) -> Agreement:
    """Compare greedy continuations of llama.cpp with what transformers would write.

    Args:
        adapter: In both forms; None compares the base model.
        prompts: Plain text. Continuations end with their line, as in the loop.
        model: The base model as `LocalLM` takes it.
        reference: The same for transformers: a folder, or a repository. None reads the numbers
            out of the GGUF file.
        max_tokens: Most tokens of a continuation.
        near: See `Agreement`.
        repack: As in `LocalLM`.
        tell: Called with the number of prompts compared so far.

    Raises:
        BadInput: No prompts, or the adapter does not fit the model.
        MissingExtra: torch, transformers or peft is not installed.
    """
    for package in ("torch", "transformers", "peft", "gguf"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "train")
    if not prompts:
        raise BadInput("No prompts to compare continuations of.")
    from multihop.lms.local import LocalLM  # noqa: PLC0415 - imports httpx

    name = adapter.name if adapter else None
    lm = LocalLM(model, adapters={name: adapter} if name and adapter else None, repack=repack)
    try:
        judge = _Judge.load(reference or str(find_model(model)), adapter)
        equal = unknown = 0
        for number, prompt in enumerate(prompts):
            asked = await lm.token_ids(prompt)
            continued = await _continued(lm, prompt, name, max_tokens)
            if continued is None:
                unknown += 1
            else:
                equal += judge.agrees(number, asked, *continued)
            tell(number + 1)
    finally:
        await lm.aclose()
    gaps = judge.gaps
    return Agreement(
        prompts=len(prompts) - unknown,
        unknown=unknown,
        equal=equal,
        tokens=judge.tokens,
        differences=tuple(judge.differences),
        near=near,
        noise=sum(gaps) / len(gaps) if gaps else 0.0,
        largest=max(gaps, default=0.0),
    )


async def _continued(
    lm: LanguageModel, prompt: str, adapter: str | None, most: int
) -> tuple[list[int], list[float | None]] | None:
    """Ids up to the end of the line, and their log-probabilities where the engine tells them.

    The engine tells no ids of tokens that end within a character, so nothing is known of some
    continuations: None.
    """
    ids: list[int] = []
    told: list[float | None] = []
    written: int | None = None
    request = Request(Prompt(prompt), most, adapter=adapter, logprobs=True)
    async with aclosing(lm.stream(request)) as pieces:
        async for piece in pieces:
            ids += piece.ids
            known = len(piece.logprobs) == len(piece.ids)
            told += piece.logprobs if known else [None] * len(piece.ids)
            if piece.tokens and piece.tokens.generated is not None:
                written = piece.tokens.generated
            if piece.finish == "stop" and written:
                written -= 1  # the end mark
            if "\n" in piece.text:
                break
    return (ids, told) if len(ids) == written else None


@dataclass
class _Judge:
    """The reference engine.

    Attributes:
        model, tokenizer: Of transformers.
        differences: Found so far.
        gaps: Of the log-probabilities, found so far.
        tokens: Compared so far.
    """

    model: Any
    tokenizer: Any
    differences: list[Difference] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    tokens: int = 0

    @classmethod
    def load(cls, name: str, adapter: Adapter | None) -> "_Judge":
        import torch  # noqa: PLC0415

        from multihop.lms.weights import load_causal  # noqa: PLC0415 - imports torch

        model, tokenizer = load_causal(name, torch.float32, "sdpa")
        if adapter:
            import peft  # noqa: PLC0415

            with warnings.catch_warnings():  # peft asks transformers in an old way
                warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
                model = peft.PeftModel.from_pretrained(model, str(adapter.folder))
        return cls(model.eval(), tokenizer)

    def agrees(
        self,
        number: int,
        prompt: Sequence[int],
        ids: Sequence[int],
        told: Sequence[float | None],
    ) -> bool:
        """Whether it would have chosen the same after the same text, at every token."""
        import torch  # noqa: PLC0415

        if not ids:
            return True
        before = len(self.differences)
        with torch.inference_mode():
            logits = self.model(torch.tensor([[*prompt, *ids]]), use_cache=False).logits
        rows = logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
        for position, (token, value, row) in enumerate(zip(ids, told, rows, strict=True)):
            if value is not None:
                self.gaps.append(abs(value - float(row[token])))
            best = int(row.argmax())
            if best != token:
                words = self.tokenizer.decode([token]), self.tokenizer.decode([best])
                margin = float(row[best] - row[token])
                self.differences.append(Difference(number, position, *words, margin))
        self.tokens += len(ids)
        return len(self.differences) == before


def read_prompts(path: Path) -> list[str]:
    """Prompts of a file: one JSON object a line, with the field "prompt".

    A trace is such an object too: the prompts of its calls.

    Raises:
        BadInput: The file is missing, or a line holds no prompt.
    """
    found: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file.") from None
    except UnicodeDecodeError as broken:
        raise BadInput(f"{path}: not UTF-8 ({broken}).") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path}:{number}"
            record = json_object(line, where)
            prompts = _prompts(record)
            if not prompts:
                raise BadInput(f'{where}: expected a field "prompt", or a trace with LM calls.')
            found += prompts
    return list(dict.fromkeys(found))


def _prompts(record: object) -> list[str]:
    """Every text under the name "prompt", at any depth."""
    if isinstance(record, dict):
        own = record.get("prompt")
        here = [own] if isinstance(own, str) and own else []
        return here + [text for value in record.values() for text in _prompts(value)]
    if isinstance(record, list):
        return [text for value in record for text in _prompts(value)]
    return []
