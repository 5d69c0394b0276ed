"""Demonstrations: few-shot examples as data, read and written in the official file format.

A file holds examples parted by two blank lines; each begins with a line
`# METADATA: {"qid": "..."}`. An example's text is its paragraphs (`Wikipedia Title: ...`, a
newline, the text), a blank line, `Q: ` and the question, a newline, `A: ` and the chain or the
bare answer (IRCoT, Trivedi et al. 2023, appendix G).
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from multihop.errors import BadInput
from multihop.text import Json

METADATA = "# METADATA: "
BETWEEN = "\n\n\n"
"""Parts one example from the next, in files and in prompts."""

CountTokens = Callable[[Sequence[str]], Awaitable[list[int]]]
"""Tokens of each text, without special tokens."""

_NOTHING: Mapping[str, Json] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One worked example.

    Attributes:
        text: As it stands in a prompt, without its metadata line.
        metadata: The metadata line's data; `qid` names the example.
    """

    text: str
    metadata: Mapping[str, Json] = field(default_factory=lambda: _NOTHING, hash=False)

    @property
    def asked(self) -> str:
        """Everything before the answer: paragraphs and question."""
        return self.text.rpartition("\nA:")[0] or self.text

    @property
    def answered(self) -> str:
        """What follows the last `A:`: the chain, or the bare answer; "" where there is none."""
        _, mark, answer = self.text.rpartition("\nA:")
        return answer.strip() if mark else ""


def parse(content: str) -> tuple[Demonstration, ...]:
    """The examples of a file, in file order.

    Lines before the first metadata line form an example without metadata. A metadata line
    counts wherever it is indented. As in the release, a metadata line with nothing after it
    at the end of a file gives the example before it once more.

    Raises:
        BadInput: A metadata line is no JSON object.
    """
    found: list[Demonstration] = []
    metadata: Mapping[str, Json] = {}
    lines: list[str] = []
    for number, line in enumerate(content.strip().split("\n"), 1):
        if not line.strip().startswith(METADATA):
            lines.append(line)
            continue
        if lines:
            found.append(Demonstration("\n".join(lines), metadata))
        try:
            metadata = json.loads(line.strip().removeprefix(METADATA))
        except ValueError as broken:
            raise BadInput(
                f"line {number}: the metadata is not JSON ({broken}). "
                'Expected a line such as: # METADATA: {"qid": "..."}'
            ) from None
        if not isinstance(metadata, dict):
            raise BadInput(
                f"line {number}: the metadata is no JSON object. "
                'Expected a line such as: # METADATA: {"qid": "..."}'
            )
        lines = []
    if lines:
        found.append(Demonstration("\n".join(lines), metadata))
    elif found:
        found.append(found[-1])
    return tuple(found)


def read(path: Path) -> tuple[Demonstration, ...]:
    """The examples of a prompt file.

    Raises:
        BadInput: The file cannot be read, is no UTF-8 text, or holds no example.
    """
    try:
        found = tidy(parse(path.read_text(encoding="utf-8")))
    except OSError as failure:
        raise BadInput(
            f"{path}: cannot read the demonstrations ({failure.strerror}). Check the path."
        ) from None
    except UnicodeDecodeError as broken:
        raise BadInput(f"{path}: not UTF-8 text ({broken.reason} at {broken.start}).") from None
    except BadInput as broken:
        raise BadInput(f"{path}: {broken}") from None
    if not found:
        raise BadInput(f"{path}: holds no demonstration. See docs/prompts.md for the format.")
    return found


def render(demonstrations: Iterable[Demonstration]) -> str:
    """The file that `parse` reads back."""
    return BETWEEN.join(
        f"{METADATA}{json.dumps(dict(d.metadata))}\n{d.text}" for d in demonstrations
    )


def tidy(demonstrations: Iterable[Demonstration]) -> tuple[Demonstration, ...]:
    """Each example stripped; empty ones left out."""
    stripped = (Demonstration(d.text.strip(), d.metadata) for d in demonstrations)
    return tuple(d for d in stripped if d.text)


def select(
    demonstrations: Iterable[Demonstration],
    ids: Sequence[str],
    *,
    key: str = "qid",
    in_order: bool = True,
) -> tuple[tuple[Demonstration, ...], tuple[str, ...]]:
    """The examples whose metadata names one of `ids`, and warnings.

    Args:
        demonstrations: Candidates. An id that stands in two of them gives both.
        ids: Wanted ones; an unknown id is ignored, as in the release.
        key: Metadata key that holds the id.
        in_order: Sort by position in `ids`; else keep the order of the file.
    """
    kept: list[tuple[int, Demonstration]] = []
    warnings: list[str] = []
    for demonstration in demonstrations:
        if not demonstration.text.strip():
            continue
        if key not in demonstration.metadata:
            warnings.append(f"An example has no {key} in its metadata; skipped.")
        elif demonstration.metadata[key] in ids:
            kept.append((ids.index(str(demonstration.metadata[key])), demonstration))
    if in_order:
        kept.sort(key=lambda pair: pair[0])
    return tuple(d for _, d in kept), tuple(warnings)


async def drop_to_fit(
    demonstrations: Sequence[Demonstration],
    *,
    limit: int,
    generation: int,
    count: CountTokens,
    scale: float = 1,
    longest_first: bool = False,
) -> tuple[Demonstration, ...]:
    """Drop examples until they, a test example and the generation fit the limit.

    The test example is taken to be as long as the longest example left, times `scale`.
    Exactly the limit fits. A lone example is kept whatever its length; of several, all may go
    (IRCoT's release; the paper does not say). Fitting a whole prompt at call time is another
    rule: `prompts.fit`.

    Args:
        demonstrations: In prompt order.
        limit: The model's window in tokens.
        generation: Tokens kept free for the completion.
        count: Token counter.
        scale: Length of a test example over the longest example.
        longest_first: Drop the longest instead of the last.
    """
    kept = list(demonstrations)
    if len(kept) == 1:
        return tuple(kept)
    sizes = await count([d.text for d in kept])
    while kept and sum(sizes) + max(sizes) * scale + generation > limit:
        gone = sizes.index(max(sizes)) if longest_first else -1
        kept.pop(gone)
        sizes.pop(gone)
    return tuple(kept)
