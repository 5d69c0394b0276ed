"""The small rules in which the paper, its released code and our default differ.

Each rule is a plain function; a preset is the set of rules it picks. Sources: Trivedi et al.,
ACL 2023 (the paper) and its released code (the `official_*` functions, quirks included).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from multihop.errors import BadInput
from multihop.prompts import answers, layout, sentences
from multihop.text import Passage
from multihop.trace import StopReason

# --- Queries --------------------------------------------------------------------------------

WH_WORDS = frozenset(["who", "what", "when", "where", "why", "which", "how", "does", "is"])

_OFFICIAL_OPENINGS = ("thus ", "thus,", "so ", "so,", "that is,", "therefore", "hence")
_NUMBER = r"(\d[\d,]*\.?\d+|\d+)"
_ARITHMETIC = re.compile(rf"(.*){_NUMBER} ([+-]) {_NUMBER} = {_NUMBER}(.*)")
_CONCLUSION = re.compile(r"(thus|so|therefore|hence|that is),|(thus|therefore|hence) the\b")


def without_wh_words(text: str) -> str:
    """The text less its question words, pieces parted by single blanks."""
    return " ".join(p for p in text.split(" ") if p.strip().lower() not in WH_WORDS)


def official_reasoning(sentence: str) -> bool:
    """Whether the release takes a sentence for reasoning rather than fact.

    A test of prefixes: "Henceforth ..." and "So Solid Crew ..." count too.
    """
    return sentence.lower().startswith(_OFFICIAL_OPENINGS) or bool(_ARITHMETIC.match(sentence))


def official_query(question: str, thoughts: Sequence[str]) -> str:
    """The release's query: the last sentence that is no reasoning, less question words.

    The question when there is none, or a blank one. Empty: nothing is asked.
    """
    facts = [thought for thought in thoughts if not official_reasoning(thought)]
    text = facts[-1].strip() if facts else ""
    query = without_wh_words(text or question)
    return query if query.strip() else ""


def paper_query(question: str, thoughts: Sequence[str]) -> str:
    """The paper's query: the last sentence of the chain, at first the question."""
    return (thoughts[-1] if thoughts else question).strip()


def concludes(sentence: str) -> bool:
    """Whether a sentence draws a conclusion: it states the answer, counts, or says "thus"."""
    return (
        answers.stated(sentence) is not None
        or bool(_CONCLUSION.match(sentence.strip().lower()))
        or bool(_ARITHMETIC.match(sentence))
    )


def default_query(question: str, thoughts: Sequence[str]) -> str:
    """Our query: the last sentence that draws no conclusion, at first the question.

    Unlike the release's, names that begin like a conclusion ("So Solid Crew") are facts.
    """
    facts = [thought.strip() for thought in thoughts if thought.strip() and not concludes(thought)]
    return facts[-1] if facts else without_wh_words(question).strip() or question.strip()


# --- Duplicates -----------------------------------------------------------------------------


def official_duplicate(new: Passage, collected: Sequence[Passage]) -> bool:
    """The release's near-duplicate rule.

    Title and text both seen, though not of one passage, or one passage that is alike in both
    (rapidfuzz ratio of at least 90).
    """
    titles = {p.title for p in collected}
    texts = {p.text for p in collected}
    if new.title in titles and new.text in texts:
        return True
    return any(_alike(new.title, p.title) and _alike(new.text, p.text) for p in collected)


def _alike(one: str, other: str) -> bool:
    from rapidfuzz import fuzz  # noqa: PLC0415  # kept out of `import multihop`

    return fuzz.ratio(one, other) >= 90


def same_pair(new: Passage, collected: Sequence[Passage]) -> bool:
    """Exactly the same title and text: the paper's union of sets."""
    return any(new.title == p.title and new.text == p.text for p in collected)


def near_duplicate(new: Passage, collected: Sequence[Passage]) -> bool:
    """Our rule: the same passage, or one alike in title and text; never a mix of two."""
    return any(
        new.id == p.id or (_alike(new.title, p.title) and _alike(new.text, p.text))
        for p in collected
    )


# --- Stopping -------------------------------------------------------------------------------


def paper_stated(sentence: str) -> str | None:
    """The answer after the last `answer is:`, as the paper looks for it."""
    _, found, answer = sentence.rpartition("answer is:")
    return answer.strip().removesuffix(".") if found else None


def repeats(thoughts: Sequence[str]) -> bool:
    """Whether the last sentence says, letter for letter but for case and marks, an old one."""
    *before, last = [re.sub(r"\W+", " ", t).strip().lower() for t in thoughts]
    return bool(last) and last in before


def waiting(thoughts: Sequence[str]) -> int:
    """How many sentences at the end of a chain are empty."""
    return next((n for n, text in enumerate(reversed(thoughts)) if text), len(thoughts))


# --- Presets --------------------------------------------------------------------------------

Eviction = Literal["first", "fifo"]
Reader = Literal["cot", "direct", "none"]


@dataclass(frozen=True, slots=True)
class Preset:
    """One way to fill in what the papers leave to choice.

    Attributes:
        name: As recorded and as the command line names it.
        max_steps: Most sentences of a chain.
        k: Passages per query in the loop.
        one_step_k: Passages of OneR's single query.
        max_passages: Most passages collected.
        longest: Passages of more words (pieces parted by single blanks) are skipped.
        words: Words of a passage shown in prompts.
        query: From question and chain to the query; "" asks nothing.
        question_query: OneR's query.
        duplicate: Whether a hit is already collected.
        stated: The answer that a sentence states, or None.
        splitter: Name of the sentence splitter: "spacy" or "light".
        official_answers: Read what comes back as the release does: answers through JSON,
            sentences with their trailing blank.
        reason_instruction: Stands before the question in the loop.
        read_instruction: Stands before it for the direct reader and for titles; in the
            release for the reader that reasons too.
        limit: Window in tokens for the release's fitting; None fits by dropping passages,
            never demonstrations.
        static_limit: Window for the release's first dropping of demonstrations; None never
            drops there.
        generation: Most tokens per call.
        static_generation: Tokens kept free in the first dropping.
        pin: Where IIRC's main passage stands in prompts.
        shots: Demonstrations used; None is all.
        mended: Repetition ends a chain, and a missing answer is asked for.
        stop_early: The reason step ends generation when its first sentence is complete. What
            is kept stays the same; the release writes the whole chain and keeps one sentence.
        reader: The reader used unless told otherwise.
        waits: How many times in a row the model may write nothing: it waits for what its last
            sentence asks for, and the same query is asked further down its ranking. 0: a
            sentence without words ends the chain.
    """

    name: str
    max_steps: int
    k: int
    one_step_k: int
    query: Callable[[str, Sequence[str]], str]
    question_query: Callable[[str], str]
    duplicate: Callable[[Passage, Sequence[Passage]], bool]
    stated: Callable[[str], str | None]
    splitter: Literal["light", "spacy"]
    official_answers: bool
    longest: int | None = None
    words: int = 350
    max_passages: int = 15
    reason_instruction: str = ""
    read_instruction: str = ""
    limit: int | None = None
    static_limit: int | None = None
    generation: int = 300
    static_generation: int = 0
    pin: layout.Pin = "stay"
    shots: int | None = None
    mended: bool = False
    stop_early: bool = True
    reader: Reader = "cot"
    waits: int = 0

    def split(self, text: str) -> list[str]:
        """Sentences of a completion."""
        return sentences.spacy(text) if self.splitter == "spacy" else sentences.light(text)

    def stop(self, thoughts: Sequence[str], max_steps: int) -> StopReason | None:
        """Whether the chain ends here, and why."""
        if self.stated(thoughts[-1]) is not None:
            return "answered"
        if not thoughts[-1] and (len(thoughts) == 1 or waiting(thoughts) > self.waits):
            return "empty"
        if self.mended and repeats(thoughts):
            return "no_gain"
        return "max_steps" if len(thoughts) >= max_steps else None


OFFICIAL = Preset(
    name="official",
    max_steps=10,
    k=6,
    one_step_k=5,
    query=official_query,
    question_query=lambda question: official_query(question, ()),
    duplicate=official_duplicate,
    stated=answers.official_exit,
    splitter="spacy",
    official_answers=True,
    longest=600,
    limit=8000,
    static_limit=8000,
    generation=300,
    static_generation=300,
    stop_early=False,  # its splitter is a parser, which nothing binds to its first word
)
"""The released code, with the settings of its code-davinci-002 configurations."""

OFFICIAL_FLAN = replace(
    OFFICIAL,
    reason_instruction="Answer the following question by reasoning step-by-step.\n",
    read_instruction="Answer the following question.\n",
    limit=6000,
    static_limit=None,
    generation=200,
    static_generation=0,
    pin="last",
    reader="direct",
)
"""The released code, with the settings of its Flan-T5 configurations."""

PAPER = Preset(
    name="paper",
    max_steps=8,
    k=6,
    one_step_k=5,
    query=paper_query,
    question_query=lambda question: question.strip(),
    duplicate=same_pair,
    stated=paper_stated,
    splitter="light",
    official_answers=False,
    limit=8000,
    static_limit=8000,
    static_generation=300,
)
"""The paper's text; where it is silent, the released code without its bugs."""

PAPER_FLAN = replace(
    PAPER,
    reason_instruction=OFFICIAL_FLAN.reason_instruction,
    read_instruction=OFFICIAL_FLAN.read_instruction,
    limit=6000,
    static_limit=None,
    generation=200,
    static_generation=0,
    pin="last",
    reader="direct",
)

DEFAULT = Preset(
    name="default",
    max_steps=8,
    k=4,
    one_step_k=6,
    query=default_query,
    question_query=lambda question: default_query(question, ()),
    duplicate=near_duplicate,
    stated=answers.stated,
    splitter="light",
    official_answers=False,
    generation=200,
    shots=3,
    mended=True,
)
"""Ours: the paper's method with the traps of the released code mended."""

TRAINED = replace(
    DEFAULT,
    name="trained",
    k=3,
    max_passages=12,
    words=70,
    shots=0,
    read_instruction=OFFICIAL_FLAN.read_instruction,
    waits=2,
)
"""Ours, for a model that was taught the loop: no demonstrations, shorter passages, and fewer of
them, for its sentences name what they look for. It has learned to write no more once it has said
what is needed, so writing nothing is waiting for it. Only the direct reader has an instruction,
which tells its prompts from the loop's."""

_PRESETS = {
    ("official", "codex"): OFFICIAL,
    ("official", "flan"): OFFICIAL_FLAN,
    ("paper", "codex"): PAPER,
    ("paper", "flan"): PAPER_FLAN,
    ("default", "codex"): DEFAULT,
    ("default", "flan"): replace(
        DEFAULT,
        reason_instruction=OFFICIAL_FLAN.reason_instruction,
        read_instruction=OFFICIAL_FLAN.read_instruction,
        reader="direct",
    ),
    ("trained", "codex"): TRAINED,
}
PRESETS = ("default", "trained", "paper", "official")


def preset(name: str, family: str = "codex") -> Preset:
    """A preset by name.

    Args:
        name: "default", "trained", "paper" or "official".
        family: "codex": prompts as the paper's GPT-3 got them, no instruction. "flan": the
            instruction line of its Flan-T5 prompts, which "trained" has no form with.

    Raises:
        BadInput: No such preset.
    """
    if (name, family) not in _PRESETS:
        raise BadInput(
            f"No preset is named {name!r} for family {family!r}. "
            f"Presets: {', '.join(PRESETS)}; families: codex, flan."
        )
    return _PRESETS[name, family]
