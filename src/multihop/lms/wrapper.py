"""What every wrapper of a language model has in common: it looks like the model inside."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

from multihop.lms.base import LanguageModel, Piece, Request
from multihop.text import Json


class LMWrapper:
    """Passes everything on; a wrapper overrides `stream`.

    Args:
        lm: Who answers.
    """

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm

    @property
    def name(self) -> str:
        """The model's own name: a wrapper changes no output, so it leaves no mark there."""
        return self.lm.name

    @property
    def window(self) -> int | None:
        """The model's own."""
        return self.lm.window

    @property
    def identity(self) -> Mapping[str, Json]:
        """The model's own; see `identity`."""
        return identity(self.lm)

    def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Pass the request on."""
        return self.lm.stream(request)

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count as the model does."""
        return await self.lm.count_tokens(texts)

    async def aclose(self) -> None:
        """Close the model."""
        await self.lm.aclose()


def identity(lm: LanguageModel) -> Mapping[str, Json]:
    """What decides a model's output beside its name and the request.

    A backend tells it by an attribute `identity`: a hash of its weights, how prompts are
    rendered, engine settings that change numbers. One without is taken by its name alone.
    """
    found: Mapping[str, Json] = getattr(lm, "identity", {})
    return found


def inwards(lm: LanguageModel) -> Iterator[LanguageModel]:
    """A model and what is inside it, the backend last."""
    yield lm
    while isinstance(lm, LMWrapper):
        lm = lm.lm
        yield lm


def innermost(lm: LanguageModel) -> LanguageModel:
    """The backend inside of all wrappers."""
    *_, backend = inwards(lm)
    return backend
