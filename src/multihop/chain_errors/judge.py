"""A language model as judge of single sentences.

The judge sees the question, the passages that share most with the sentence, the sentences before
it, and the sentence. It answers with one of four words; anything else is `unparsable`, and is
counted as such. Our own prompt: an instruction and two examples that show all four words.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from multihop.chain_errors.chains import Chain, Sentence
from multihop.chain_errors.overlap import ranked
from multihop.chain_errors.verdicts import Key, Verdict
from multihop.errors import BadInput
from multihop.lms.base import LanguageModel, Prompt, Request, Turn, complete
from multihop.text import Passage

MOST_PASSAGES = 5
"""How many passages the judge is shown."""

WORDS = 350
"""Most words of a passage that it is shown, as in the strategies' prompts."""

MAX_TOKENS = 300
"""Most tokens of a reply; a verdict has few, but a thinking model thinks first."""

SPARE_TOKENS = 64
"""Kept free in the window, for special tokens."""

_WORDS: tuple[Verdict, ...] = tuple(w for w in get_args(Verdict) if w != "unparsable")
_LONGEST = 2 * max(map(len, _WORDS))

INSTRUCTION = (
    "Check one sentence against the passages. Answer with one of these verdicts and nothing "
    "else:\n"
    "supported: the passages say so, or it follows from what they say\n"
    "contradicted: the passages say otherwise\n"
    "not mentioned: the passages neither say nor deny it\n"
    "no claim: the sentence states no fact about the world"
)


@dataclass(frozen=True, slots=True)
class _Example:
    passages: tuple[Passage, ...]
    question: str
    verdicts: tuple[tuple[str, Verdict], ...]


_EXAMPLES = (
    _Example(
        (
            Passage(
                "",
                "Halden Viaduct",
                "The Halden Viaduct carries a railway over the river Sorn. It was designed by "
                "Ida Brandt and opened in 1874.",
            ),
            Passage(
                "",
                "Ida Brandt",
                "Ida Brandt (1831-1902) was an engineer from Lund. From 1880 she taught in Kiel.",
            ),
        ),
        "Where was the designer of the Halden Viaduct from?",
        (
            ("The Halden Viaduct was designed by Ida Brandt.", "supported"),
            ("She was from Kiel.", "contradicted"),
        ),
    ),
    _Example(
        (
            Passage(
                "",
                "Mara Teal",
                "Mara Teal is a novelist. Her first book, Low Water, came out in 1998.",
            ),
            Passage(
                "",
                "Low Water (film)",
                "Low Water is a film of 2006 by Jon Ferris, after the novel by Mara Teal.",
            ),
        ),
        "Who plays the lead in the film of Mara Teal's first book?",
        (
            ("The lead in Low Water is played by Edda Quist.", "not mentioned"),
            ("The cast of the film has to be found first.", "no claim"),
        ),
    ),
)


def verdict(reply: str) -> Verdict:
    """What a judge's reply says: one of the four words, else `unparsable`.

    Case, outer blanks and one final full stop do not matter; anything more does.
    """
    said = reply.strip().lower().removesuffix(".")
    return next((word for word in _WORDS if word == said), "unparsable")


async def judge(
    lm: LanguageModel,
    chains: Sequence[Chain],
    *,
    at_work: int = 4,
    max_tokens: int = MAX_TOKENS,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[Key, Verdict]:
    """Ask a model about every sentence that claims something.

    Args:
        lm: The judge, with the wrappers that it is to have (`lms.layers.layered`): a cache makes
            the verdicts repeatable and a second run free.
        chains: What to check.
        at_work: Sentences at work at once, at least 1.
        max_tokens: Most tokens of a reply.
        on_progress: Told how many of how many sentences are done.

    Returns:
        A verdict for every sentence. Those without a claim are `no claim`, unasked.

    Raises:
        BadInput: A sentence does not fit the judge's window even with one passage.
        LMError: A call failed. Nothing is taken for a verdict that is none.
    """
    verdicts: dict[Key, Verdict] = {}
    asked: list[tuple[Chain, Sentence]] = []
    for chain in chains:
        for sentence in chain.sentences:
            verdicts[chain.run, chain.question_id, sentence.number] = "no claim"
            if sentence.claims:
                asked.append((chain, sentence))
    done = 0

    async def work(waiting: Iterator[tuple[Chain, Sentence]]) -> None:
        nonlocal done
        for chain, sentence in waiting:
            prompt = await _fitting(lm, chain, sentence, max_tokens)
            request = Request(prompt, max_tokens, stop=("\n",), role="judge", enough="verdict")
            reply = await complete(lm, request, until=lambda text: len(text) > _LONGEST)
            verdicts[chain.run, chain.question_id, sentence.number] = verdict(reply.text)
            done += 1
            if on_progress:
                on_progress(done, len(asked))

    waiting = iter(asked)
    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(max(at_work, 1), len(asked))):
                workers.create_task(work(waiting))
    except BaseExceptionGroup as group:  # the first failure ended the others
        raise group.exceptions[0] from None
    return verdicts


def prompt(chain: Chain, sentence: Sentence, passages: Sequence[Passage]) -> Prompt:
    """The request about one sentence, as text and as turns."""
    before = [s.text for s in chain.sentences if s.number < sentence.number]
    test = _asked(passages, chain.question, before, sentence.text)
    turns = [Turn("system", INSTRUCTION)]
    blocks = [INSTRUCTION]
    for example in _EXAMPLES:
        earlier: list[str] = []
        for text, answer in example.verdicts:
            shown = _asked(example.passages, example.question, earlier, text)
            turns += [Turn("user", shown), Turn("assistant", answer)]
            blocks.append(f"{shown}\nVerdict: {answer}")
            earlier.append(text)
    turns.append(Turn("user", test))
    head = "\n\n\n".join(blocks) + "\n\n\n"
    return Prompt(f"{head}{test}\nVerdict:", tuple(turns), shared=len(head))


async def _fitting(lm: LanguageModel, chain: Chain, sentence: Sentence, max_tokens: int) -> Prompt:
    """The request with as many of the best passages as the window takes."""
    passages = ranked(sentence.text, chain.passages, MOST_PASSAGES)
    while True:
        written = prompt(chain, sentence, passages)
        if lm.window is None:
            return written
        [size] = await lm.count_tokens([written.text])
        if size + max_tokens + SPARE_TOKENS <= lm.window:
            return written
        if len(passages) < 2:
            raise BadInput(
                f"{lm.name}: sentence {sentence.number} of question {chain.question_id!r} and "
                f"one passage take {size} tokens, which with {max_tokens} for the reply do not "
                f"fit its window of {lm.window}. Take a judge with a larger one."
            )
        passages.pop()


def _asked(passages: Sequence[Passage], question: str, before: Sequence[str], sentence: str) -> str:
    """One question to the judge. Each part is one line, so that no text forges another part."""
    shown = [f"[{n}] {_line(p.title)}: {_line(p.text)}" for n, p in enumerate(passages, 1)]
    return "\n".join(
        [
            "Passages:",
            *(shown or ["(none)"]),
            f"Question: {_line(question)}",
            f"Written before: {_line(' '.join(before)) or '(nothing)'}",
            f"Sentence: {_line(sentence)}",
        ]
    )


def _line(text: str) -> str:
    return " ".join(text.split()[:WORDS])
