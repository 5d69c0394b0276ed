"""Fitting a whole prompt into a window at call time, as IRCoT's release does.

Traps of the rule, kept because a byte of the prompt depends on them: two blank lines inside a
paragraph count as a border between examples; when not even the test example fits, lines go
from its top, which may leave a text without its title or nothing at all.
"""

from dataclasses import dataclass
from typing import Literal

from multihop.prompts.demonstrations import BETWEEN, CountTokens

TOO_LONG = "The test example alone does not fit; lines were cut off its top."
ALONE = "The prompt holds no demonstration."


@dataclass(frozen=True, slots=True)
class Fitted:
    """A prompt that fits.

    Attributes:
        text: The prompt.
        dropped: How many examples went.
        lines_cut: How many lines went off the test example's top.
        warnings: What was lost, in words.
    """

    text: str
    dropped: int = 0
    lines_cut: int = 0
    warnings: tuple[str, ...] = ()


async def fit(
    prompt: str,
    *,
    limit: int,
    generation: int,
    count: CountTokens,
    drop: Literal["first", "last", "largest"] = "first",
) -> Fitted:
    """Drop examples until the prompt fits.

    Examples go while examples, test example and generation together reach the limit (equality
    is too long, unlike in `drop_to_fit`). Separators are not counted.

    Args:
        prompt: Examples and, last, the test example, parted by two blank lines.
        limit: The window in tokens.
        generation: Tokens kept free for the completion.
        count: Token counter.
        drop: Which example goes; the released configurations drop the first.
    """
    parts = [part.strip() for part in prompt.rstrip().split(BETWEEN)]
    parts = [part for part in parts if part]
    if not parts:
        return Fitted("")
    *examples, test = parts
    *sizes, test_size = await count(parts)
    warnings = [] if examples else [ALONE]

    before = len(examples)
    while examples and sum(sizes) + test_size + generation >= limit:
        gone = {"first": 0, "last": -1, "largest": sizes.index(max(sizes))}[drop]
        examples.pop(gone)
        sizes.pop(gone)
    text = BETWEEN.join([*examples, test])

    lines_cut = 0
    if sum(sizes) + test_size + generation > limit:
        warnings.append(TOO_LONG)
        lines = text.split("\n")
        fits = False
        while lines and not fits:
            lines.pop(0)
            lines_cut += 1
            [size] = await count(["\n".join(lines)])
            fits = size <= limit
        text = "\n".join(lines)
    return Fitted(text, before - len(examples), lines_cut, tuple(warnings))
