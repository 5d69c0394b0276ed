"""The rows that an engine of transformers has in hand: tokens, masks and key-value cache.

`generate` is interrupted whenever rows leave or come, and goes on from here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_SELECTABLE = ("DynamicLayer", "DynamicSlidingWindowLayer")
"""Layers of a cache whose rows can be chosen. Others (recurrent states, fixed sizes) cannot, or
not all of their parts: rows that go on are then evaluated afresh."""

_JOINABLE = ("DynamicLayer",)
"""Layers that keep every column, so that rows of other lengths can be put beside them."""


@dataclass
class Rows:
    """Some rows, all at their last token.

    Attributes:
        written: Prompt and continuation, padded on the left; with an encoder, what the decoder
            wrote, or None before its first token.  # (rows, columns)
        mask: 1 where there is a token, of the encoder's prompt if there is an encoder.
        encoded: What the encoder gave, or None without one.  # (rows, prompt, size)
        cache: Keys and values of all columns but the last, by the name that this version of
            transformers has for it; empty when there is none to go on from.
    """

    written: Any
    mask: Any
    encoded: Any = None
    cache: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, prompts: Sequence[Sequence[int]], places: Sequence[int], padding: int, model: Any
    ) -> "Rows":
        """Rows at the end of their prompts; `places` says which prompt each row has."""
        import torch  # noqa: PLC0415

        encoder = model.get_encoder() if model.config.is_encoder_decoder else None
        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), padding)
        mask = torch.zeros((len(prompts), longest), dtype=torch.long)
        for number, prompt in enumerate(prompts):
            # Encoders count positions from the left; continuations begin at the right.
            part = slice(len(prompt)) if encoder else slice(longest - len(prompt), None)
            ids[number, part] = torch.tensor(prompt)
            mask[number, part] = 1
        ids, mask = ids.to(model.device), mask.to(model.device)
        chosen = torch.tensor(places, device=model.device)
        if encoder is None:
            return cls(ids[chosen], mask[chosen])
        encoded = encoder(input_ids=ids, attention_mask=mask)[0]
        return cls(None, mask[chosen], encoded[chosen])

    def inputs(self) -> dict[str, Any]:
        """What `generate` goes on from."""
        import torch  # noqa: PLC0415

        if self.encoded is None:
            return {"input_ids": self.written, "attention_mask": self.mask, **self.cache}
        from transformers.modeling_outputs import BaseModelOutput  # noqa: PLC0415

        inputs = {
            "encoder_outputs": BaseModelOutput(last_hidden_state=self.encoded),
            "attention_mask": self.mask,
        }
        if self.written is not None:
            # By the mask's length generate sees that the cache holds all but the last token.
            begun = torch.ones_like(self.written)
            inputs |= {"decoder_input_ids": self.written, "decoder_attention_mask": begun}
        return inputs | self.cache

    def take(self, out: Any) -> None:
        """Go on from what `generate` returned."""
        if self.encoded is None:
            fresh = out.sequences.shape[1] - self.written.shape[1]
            self.mask = _padded(self.mask, right=fresh, value=1)
        self.written = out.sequences
        # The name changed during transformers 5.
        name = "cache" if "cache" in out else "past_key_values"
        cache = out.get(name)
        self.cache = {name: cache} if _all(cache, _SELECTABLE) else {}

    @property
    def joinable(self) -> bool:
        """Whether other rows can be put beside these."""
        caches = self.cache.values()
        return self.encoded is None and bool(caches) and all(_all(c, _JOINABLE) for c in caches)

    def keep(self, stay: Sequence[int]) -> None:
        """Drop all rows but these."""
        import torch  # noqa: PLC0415

        if len(stay) == len(self.written):
            return
        chosen = torch.tensor(stay, dtype=torch.long, device=self.written.device)
        self.written, self.mask = self.written[chosen], self.mask[chosen]
        if self.encoded is not None:
            self.encoded = self.encoded[chosen]
        for cache in self.cache.values():
            cache.batch_select_indices(chosen)
        if stay and self.joinable:
            self._trim()

    def join(self, other: "Rows") -> None:
        """Put other rows below; both are joinable and have a cache."""
        import torch  # noqa: PLC0415

        columns = max(self.written.shape[1], other.written.shape[1])
        for rows in (self, other):
            left = columns - rows.written.shape[1]
            rows.written, rows.mask = _padded(rows.written, left), _padded(rows.mask, left)
            for layer in rows.layers():
                layer.keys = _padded(layer.keys, left, dim=-2)
                layer.values = _padded(layer.values, left, dim=-2)
        self.written = torch.cat([self.written, other.written])
        self.mask = torch.cat([self.mask, other.mask])
        for mine, its in zip(self.layers(), other.layers(), strict=True):
            mine.keys = torch.cat([mine.keys, its.keys])
            mine.values = torch.cat([mine.values, its.values])

    def _trim(self) -> None:
        """Cut columns on the left that are padding in every row."""
        empty = int(self.mask.argmax(dim=1).min())
        if empty:
            self.written, self.mask = self.written[:, empty:], self.mask[:, empty:]
            for layer in self.layers():
                layer.keys, layer.values = layer.keys[..., empty:, :], layer.values[..., empty:, :]

    def layers(self) -> list[Any]:
        """The cache's layers, of joinable rows."""
        return [layer for cache in self.cache.values() for layer in cache.layers]


def _all(cache: Any, kinds: Sequence[str]) -> bool:
    """Whether a cache has layers, and all of these kinds."""
    # With an encoder there are two; what holds for the decoder's holds for the other.
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", None) or []
    return bool(layers) and all(type(layer).__name__ in kinds for layer in layers)


def _padded(tensor: Any, left: int = 0, right: int = 0, *, dim: int = -1, value: int = 0) -> Any:
    import torch  # noqa: PLC0415

    sides = [0, 0] * (-1 - dim) + [left, right]
    return torch.nn.functional.pad(tensor, sides, value=value) if left or right else tensor
