"""Goes on from the tokens that a model wrote, not from what its tokenizer makes of their text.

A prompt that contains what was written before is text. Encoded anew it may be other tokens than
those written: a model that is trained on what it wrote would then be trained on something else
than it was asked. `Continuing` keeps the tokens of one question's calls and hands them on.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from multihop.lms.base import LanguageModel, Piece, Request
from multihop.lms.wrapper import LMWrapper, innermost


class TellsTokens(Protocol):
    """A backend that reads `Prompt.ids`, tells ids, and knows their text."""

    def text_of(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """The text that token ids add after others."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """One call in tokens.

    Attributes:
        request: As it was made.
        prompt: Ids of the prompt.
        ids: Ids written, the one that ended the text included.
        logprobs: One for each id, where they were asked for.
        finish: Why it ended.
    """

    request: Request
    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str


class Continuing(LMWrapper):
    """A model as one question, or one rollout, asks it: calls one after the other.

    Args:
        lm: Who answers.

    Attributes:
        calls: What was written, in order; empty where the backend tells no tokens.
    """

    def __init__(self, lm: LanguageModel) -> None:
        super().__init__(lm)
        backend = innermost(lm)
        self._backend = cast(TellsTokens, backend) if hasattr(backend, "text_of") else None
        self._kept: list[tuple[str, tuple[int, ...]]] = []
        self.calls: list[Written] = []

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Ask with the tokens that the prompt's beginning was written as."""
        if self._backend is None or request.n > 1:
            async for piece in self.lm.stream(request):
                yield piece
            return
        request = self._known(request)
        text, finish = "", ""
        prompt: tuple[int, ...] = ()
        ids: list[int] = []
        logprobs: list[float] = []
        async for piece in self.lm.stream(request):
            prompt = piece.prompt_ids or prompt
            ids += piece.ids
            logprobs += piece.logprobs
            text += piece.text
            finish = piece.finish or finish
            if finish and prompt and ids:
                self._keep(request, prompt, ids, text)
                self.calls.append(Written(request, prompt, tuple(ids), tuple(logprobs), finish))
            yield piece

    def _known(self, request: Request) -> Request:
        text = request.prompt.text
        begun = [(kept, ids) for kept, ids in self._kept if text.startswith(kept)]
        if not begun:
            return request
        kept, ids = max(begun, key=lambda entry: len(entry[0]))
        return replace(request, prompt=replace(request.prompt, ids=ids, covered=len(kept)))

    def _keep(self, request: Request, prompt: tuple[int, ...], ids: list[int], text: str) -> None:
        """Keep the tokens up to the stop string, or through it where they end with it."""
        assert self._backend is not None
        whole = [text + stop for stop in ("", *request.stop)]
        for many in range(len(ids), -1, -1):
            said = self._backend.text_of(prompt, ids[:many])
            if not any(each.startswith(said) for each in whole):
                continue
            shorter = many
            while shorter and self._backend.text_of(prompt, ids[: shorter - 1]) == said:
                shorter -= 1  # an end of text says nothing, and nothing goes on after it
            self._kept.append((request.prompt.text + said, (*prompt, *ids[:shorter])))
            return


def continuing(lm: LanguageModel) -> Continuing:
    """The model itself when it is one already, else wrapped."""
    return lm if isinstance(lm, Continuing) else Continuing(lm)
