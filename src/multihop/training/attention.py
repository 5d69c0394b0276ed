"""Attention over a tree of tokens that leaves out what no token of a block sees.

Torch's attention on a CPU computes the whole square of tokens and then hides most of it: in a
packed lesson five sixths. Here the tokens are taken in blocks, each with only those keys that one
of its tokens sees. The result is the same up to rounding.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "multihop_tree"
ROWS = 192
"""Tokens of a block: fewer see fewer keys, but make smaller products."""


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring tokens.

    Attributes:
        first: Place of the first one.
        last: Place after the last one.
        keys: Places of what they see, together.
        mask: Added to the scores: 0 where a token sees a key, minus infinity where not; of
            shape (batch, 1, tokens, keys).
    """

    first: int
    last: int
    keys: torch.Tensor
    mask: torch.Tensor


def blocks(mask: torch.Tensor, dtype: torch.dtype, rows: int = ROWS) -> list[Block]:
    """Cut a mask of booleans, of shape (batch, 1, tokens, tokens), into blocks."""
    found = []
    for first in range(0, mask.shape[2], rows):
        part = mask[:, :, first : first + rows]
        keys = part.any(dim=2).any(dim=0).any(dim=0).nonzero().squeeze(1)
        seen = part.index_select(3, keys)
        added = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, float("-inf"))
        found.append(Block(first, first + part.shape[2], keys, added))
    return found


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    tree: list[Block] | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in transformers' form; `tree` comes from the call of the model.

    Without one, as in a model that does not pass it on, the whole square is computed.
    """
    if tree is None:
        out, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **rest
        )
        return out, None
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    parts = [
        scaled_dot_product_attention(
            query[:, :, block.first : block.last],
            key.index_select(2, block.keys),
            value.index_select(2, block.keys),
            attn_mask=block.mask.to(query.dtype),
            dropout_p=dropout,
            scale=scaling,
        )
        for block in tree
    ]
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
