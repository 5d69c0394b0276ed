"""DSP by name: what a user writes as options, checked and put together."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from multihop.datasets import QuestionFile
from multihop.errors import BadInput
from multihop.lms.adapters import Adapter
from multihop.lms.base import LanguageModel
from multihop.retrievers.base import Retriever
from multihop.retrievers.fusion import FUSIONS
from multihop.strategies.budget import Budget
from multihop.strategies.dsp import DEFAULTS, DSP, Bootstrapped
from multihop.strategies.dsp.bootstrapped import KEPT, TRAIN, check
from multihop.text import Question

VARIANTS = ("paper", "notebook")


def make(
    retriever: Retriever | None,
    lm: LanguageModel,
    *,
    program: str = "multihop",
    train: Path | Sequence[Question] | None = None,
    demos: Path | None = None,
    draw: int = TRAIN,
    keep: int = KEPT,
    k: int | None = None,
    max_passages: int | None = None,
    max_steps: int | None = None,
    variable: bool | None = None,
    queries: int | None = None,
    chains: int | None = None,
    fuse: str | None = None,
    variant: str | None = None,
    max_tokens: int | None = None,
    words: int = 100,
    seed: int = 0,
    adapter: str | Adapter | None = None,
    budget: Budget | None = None,
) -> DSP:
    """A program of DSP as a strategy.

    Args:
        retriever: Where it searches; "vanilla" never does, and is given one all the same.
        lm: Who writes.
        program: "multihop", "openqa", "convqa", "retrieve_then_read" or "vanilla".
        train: Training questions with answers, or a file of them in our own format, to make
            demonstrations of at the first question.
        demos: A file of demonstrations made before. With `train` too it is read when it is
            there, else made and written.
        draw: Training questions drawn.
        keep: Demonstrations filled in at most.
        k: Passages of a search; None is the program's, as for all that follow.
        max_passages: Most passages in one prompt of "multihop".
        max_steps: Its hops, or with `variable` the most of them.
        variable: The LM may end the search.
        queries: Completions whose queries are fused.
        chains: Completions that vote on the answer.
        fuse: How rankings become one.
        variant: "paper" or "notebook".
        max_tokens: Most tokens of a completion.
        words: Words of a passage that prompts show.
        seed: Of all samples.
        adapter: LoRA adapter of every call. One with a card was trained on other prompts.
        budget: What the search for a question may cost.

    Raises:
        BadInput: An unknown name, a number out of range, no retriever, or a file that holds no
            training questions or no demonstrations of the program.
    """
    choices = {
        "program": (program, DEFAULTS),
        "fuse": (fuse, FUSIONS),
        "variant": (variant, VARIANTS),
    }
    for option, (value, known) in choices.items():
        if value is not None and value not in known:
            raise BadInput(f"DSP's {option} is {value!r}; it can be {', '.join(known)}.")
    if retriever is None:
        raise BadInput("Strategy 'dsp' needs a retriever, such as bm25:DIR.")
    if isinstance(adapter, Adapter):
        raise BadInput(
            f"The adapter {adapter.name!r} was trained on other prompts than DSP's. "
            "Leave --adapter out."
        )
    given = {
        "k": k,
        "max_passages": max_passages,
        "hops": max_steps,
        "variable": variable,
        "queries": queries,
        "chains": chains,
        "fuse": fuse,
        "variant": variant,
        "max_tokens": max_tokens,
    }
    numbers = {**given, "draw": draw, "keep": keep, "words": words}
    for name, number in numbers.items():
        if isinstance(number, int) and not isinstance(number, bool) and number < 1:
            raise BadInput(f"DSP's {name} is {number}; it must be at least 1.")
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings = replace(DEFAULTS[program], **chosen)
    own: Bootstrapped | None = None
    if train is not None:
        questions = tuple(QuestionFile(train) if isinstance(train, Path) else train)
        check(questions)
        own = Bootstrapped(program, settings, questions, draw, keep, demos)
    if demos is not None and (own is None or demos.exists()):
        kept = Bootstrapped.load(demos, program, settings)
        if own is not None and own.digest != kept.digest:
            raise BadInput(
                f"{demos}: holds demonstrations made of other training questions, or of other "
                "numbers of them, than those given now. Name another file, or leave train out."
            )
        if kept.made is not None:
            own = kept
        elif own is None:
            raise BadInput(
                f"{demos}: its making was interrupted. Name the training questions again, with "
                "--train, and it goes on."
            )
        else:
            own.tried, own.attempts = kept.tried, kept.attempts
    return DSP(
        lm,
        retriever,
        program,
        settings,
        own,
        words=words,
        seed=seed,
        adapter=adapter,
        budget=(budget or Budget()).of(lm.name),
    )
