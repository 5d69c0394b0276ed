"""Many sequences of different lengths in one pass of a decoder-only model.

The new tokens of all sequences, prompts and continuations alike, are laid out as one row: the
linear layers see one large product and nothing is padded. Only attention is computed sequence by
sequence, over keys and values that lie in one buffer per slot and are never copied. transformers
calls `attend` in the place of its own attention, so every model that it can attend for works.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

NAME = "multihop_ragged"


@dataclass(frozen=True, slots=True)
class Segment:
    """New tokens of one sequence.

    Attributes:
        slot: Where its keys and values are.
        before: Tokens of it evaluated before.
        ids: The new ones, at least one.
    """

    slot: int
    before: int
    ids: Sequence[int]


class Slots:
    """A model, and keys and values of as many sequences as there are slots.

    Args:
        model: Loaded with the attention `NAME`.
        number: Sequences.
        length: Most tokens of each. Memory is taken when it is first used.
    """

    def __init__(self, model: Any, number: int, length: int) -> None:
        self.model = model
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (number, heads, length, size)
        kind = {"dtype": model.dtype, "device": model.device}
        layers = range(config.num_hidden_layers)
        self.keys = [torch.empty(shape, **kind) for _ in layers]
        self.values = [torch.empty(shape, **kind) for _ in layers]
        self.groups = config.num_attention_heads // heads

    def evaluate(self, segments: Sequence[Segment]) -> torch.Tensor:
        """Evaluate new tokens.

        Args:
            segments: At most one for a slot.

        Returns:
            Logits after the last token of each segment, of shape (segments, vocabulary).
        """
        device = self.model.device
        ids = [token for segment in segments for token in segment.ids]
        places = [n for s in segments for n in range(s.before, s.before + len(s.ids))]
        ends, last = [], -1
        for segment in segments:
            last += len(segment.ids)
            ends.append(last)
        with torch.inference_mode():
            out = self.model(
                input_ids=torch.tensor([ids], device=device),
                position_ids=torch.tensor([places], device=device),
                logits_to_keep=torch.tensor(ends, device=device),
                use_cache=False,
                ragged=_Pass(self, segments),
            )
        return out.logits[0].float()


class _Pass:
    """One evaluation: where each sequence's tokens are in the row."""

    def __init__(self, slots: Slots, segments: Sequence[Segment]) -> None:
        self.slots = slots
        self.parts: list[tuple[Segment, int, int, torch.Tensor | None]] = []
        first = 0
        for segment in segments:
            number = len(segment.ids)
            self.parts.append((segment, first, first + number, self._mask(segment.before, number)))
            first += number

    def _mask(self, before: int, number: int) -> torch.Tensor | None:
        """What each new token sees: all before it and itself; a single one sees everything.

        Once for each group of heads, as `attend` puts them.
        """
        if number == 1:
            return None
        seen = torch.ones(number, before + number, dtype=torch.bool, device=self.slots.model.device)
        return seen.tril_(before).repeat(self.slots.groups, 1)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 - each sequence has its own
    *,
    ragged: _Pass,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in transformers' form; `ragged` comes from the call of the model.

    Heads that share keys are put one below the other as rows of one query, so that keys and
    values are read where they lie.
    """
    keys, values = ragged.slots.keys[module.layer_idx], ragged.slots.values[module.layer_idx]
    _, heads, total, size = query.shape
    shared = key.shape[1]
    groups = heads // shared
    out = torch.empty(1, total, heads, size, dtype=query.dtype, device=query.device)
    for segment, first, last, mask in ragged.parts:
        number, end = last - first, segment.before + last - first
        mine, its = keys[segment.slot], values[segment.slot]
        mine[:, segment.before : end] = key[0, :, first:last]
        its[:, segment.before : end] = value[0, :, first:last]
        rows = query[0, :, first:last].reshape(1, shared, groups * number, size)
        found = scaled_dot_product_attention(
            rows, mine[None, :, :end], its[None, :, :end], attn_mask=mask, scale=scaling
        )
        out[0, first:last] = (
            found.reshape(shared, groups, number, size)
            .permute(2, 0, 1, 3)
            .reshape(number, heads, size)
        )
    return out, None


def _no_mask(*_: Any, **__: Any) -> None:
    """Each sequence has its own."""


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, _no_mask)
