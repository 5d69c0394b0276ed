"""Ways of answering a question. Each is one file whose loop follows its paper."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from multihop.errors import BadInput
from multihop.lms.adapters import Adapter, AdapterCard
from multihop.lms.base import LanguageModel
from multihop.prompts.demonstrations import CountTokens, read
from multihop.prompts.own import own_demonstrations
from multihop.prompts.worked import Worked, own_worked, single_hops
from multihop.retrievers.base import Retriever
from multihop.strategies import rules as _rules
from multihop.strategies.adapted import adapted
from multihop.strategies.budget import Budget, RunBudget
from multihop.strategies.decomp import DecomP, decomp_form
from multihop.strategies.ircot import IRCoT
from multihop.strategies.iter_retgen import IterRetGen
from multihop.strategies.no_retrieval import NoR
from multihop.strategies.one_step import OneR
from multihop.strategies.react import ReAct, react_form
from multihop.strategies.rules import PRESETS, Eviction, Preset, Reader
from multihop.strategies.self_ask import SelfAsk, self_ask_form
from multihop.strategies.writing import Demonstrations, Writer
from multihop.trace import Strategy

__all__ = [
    "IRCOT_PROMPTS",
    "NAMES",
    "PRESETS",
    "WITHOUT_LOOP",
    "Budget",
    "DecomP",
    "Demonstrations",
    "IRCoT",
    "IterRetGen",
    "NoR",
    "OneR",
    "ReAct",
    "RunBudget",
    "SelfAsk",
    "make",
]

NAMES = ("ircot", "oner", "nor", "self-ask", "react", "decomp", "iter-retgen")
IRCOT_PROMPTS = ("ircot", "oner", "nor", "iter-retgen")
"""Those whose prompts all have IRCoT's form, which adapters are trained on."""
WITHOUT_LOOP = ("oner", "nor")
"""Those that search once or never: a budget of a question has nothing to cut."""


def make(
    name: str,
    *,
    lm: LanguageModel,
    retriever: Retriever | None = None,
    preset: str | Preset | None = None,
    family: str = "codex",
    reader: str | None = None,
    k: int | None = None,
    max_steps: int | None = None,
    max_passages: int | None = None,
    words: int | None = None,
    shots: int | None = None,
    max_tokens: int | None = None,
    eviction: Eviction = "first",
    stop_early: bool | None = None,
    demonstrations: Path | Demonstrations | None = None,
    budget: Budget | None = None,
    count: CountTokens | None = None,
    adapter: str | AdapterCard | Adapter | None = None,
) -> Strategy:
    """A strategy by name.

    Args:
        name: One of `NAMES`.
        lm: Reasons and reads.
        retriever: Finds passages; "nor" needs none.
        preset: "default", "trained", "paper" or "official", or one made by `replace`. None is
            what the adapter was trained on, as its card says, else "default".
        family: "codex" (no instruction) or "flan" (the Flan-T5 prompts' instruction line).
        reader: "cot", "direct" or "none"; None is the preset's. "self-ask" and "react" have
            none unless one is asked for.
        k: Passages per query, or in ReAct titles named; None is the preset's, or the paper's.
        max_steps: Most sentences of a chain, follow-up questions, turns of ReAct, steps of
            DecomP, or the rounds of Iter-RetGen; None is the preset's, or the paper's.
        max_passages: Most passages collected; None is the preset's.
        words: Words of a passage shown; None is the preset's.
        shots: Demonstrations used; None is the preset's, 0 is none.
        max_tokens: Most tokens per call, thinking included; None is the preset's.
        eviction: "first" or "fifo".
        stop_early: Whether the reason step ends generation at its first sentence; None is
            the preset's.
        demonstrations: A chain-of-thought prompt file in the official format (the other
            kinds are made from it), or all kinds; None is our own.
        budget: Limits of one question's search; "oner" and "nor" have none to cut.
        count: Token counter for fitting; None is the LM's own.
        adapter: LoRA adapter for every call, loaded by the LM under its name. With its card,
            prompts are those that it was trained on, and others are refused; a name alone is
            taken at its word.

    Raises:
        BadInput: An unknown name, a value out of range, no retriever, prompts that the adapter
            was not trained on, or a budget of money and no price of the model.
    """
    if name not in NAMES:
        raise BadInput(f"No strategy is named {name!r}. Known: {', '.join(NAMES)}.")
    if name not in IRCOT_PROMPTS:
        _refuse(name, adapter, preset, family, demonstrations)
        reader = reader or ("cot" if name == "decomp" else "none")
    card = adapter.card if isinstance(adapter, Adapter) else adapter
    if isinstance(card, AdapterCard):
        rules = adapted(card, preset, family, shots, words, given=demonstrations is not None)
    elif isinstance(preset, Preset):
        rules = preset
    else:
        rules = _rules.preset(preset or "default", family)
    if reader is not None and reader not in get_args(Reader):
        raise BadInput(f"No reader is named {reader!r}. Known: {', '.join(get_args(Reader))}.")
    if eviction not in get_args(Eviction):
        raise BadInput(
            f"No eviction is named {eviction!r}. Known: {', '.join(get_args(Eviction))}."
        )
    positive = {
        "k": k,
        "max_steps": max_steps,
        "max_passages": max_passages,
        "words": words,
        "max_tokens": max_tokens,
    }
    for option, value in positive.items():
        if value is not None and value < 1:
            raise BadInput(f"{option} is {value}; it must be at least 1.")
    if shots is not None and shots < 0:
        raise BadInput(f"shots is {shots}; it must be at least 0.")
    if words is not None:
        rules = replace(rules, words=words)
    if shots is not None:
        rules = replace(rules, shots=shots)
    if max_tokens is not None:
        rules = replace(rules, generation=max_tokens)
    if stop_early is not None:
        rules = replace(rules, stop_early=stop_early)
    if demonstrations is None:
        demonstrations = Demonstrations.from_cot(own_demonstrations())
    elif isinstance(demonstrations, Path):
        demonstrations = Demonstrations.from_cot(read(demonstrations))
    writer = Writer(
        lm=lm,
        preset=rules,
        demonstrations=demonstrations,
        reader=reader or rules.reader,  # type: ignore[arg-type]
        eviction=eviction,
        count=count,
        adapter=card.name if isinstance(card, AdapterCard) else card,
        adapter_digest=card.digest if isinstance(card, AdapterCard) else "",
    )
    if name == "nor":
        if writer.reader == "none":
            raise BadInput("Strategy 'nor' is its reader; reader 'none' leaves nothing.")
        return NoR(writer)
    if retriever is None:
        raise BadInput(f"Strategy {name!r} needs a retriever, such as bm25:DIR.")
    cap = max_passages or rules.max_passages
    limits = (budget or Budget()).of(lm.name)
    if name in ("iter-retgen", "decomp") and writer.reader == "none":
        raise BadInput(f"Strategy {name!r} answers by its reader; reader 'none' leaves nothing.")
    match name:
        case "oner":
            return OneR(retriever, writer, k or rules.one_step_k, cap)
        case "iter-retgen":
            return IterRetGen(retriever, writer, k or 5, max_steps or 2, limits)
        case "react":
            form = react_form(_worked(rules))
            older_first = replace(writer, eviction="fifo")
            return ReAct(retriever, older_first, form, k or 5, max_steps or 7, cap, limits)
        case "ircot":
            loop: type[IRCoT | SelfAsk | DecomP] = IRCoT
            parts: dict[str, Any] = {}
        case "self-ask":
            loop, parts = SelfAsk, {"form": self_ask_form(_worked(rules))}
        case _:
            loop, parts = DecomP, {"form": decomp_form(_worked(rules))}
    if loop is not IRCoT:
        shown = single_hops(_worked(rules), rules.words, listed=loop is DecomP)
        reading = replace(writer, reader="direct", demonstrations=Demonstrations(direct=shown))
        parts["hop_reader"] = reading
    return loop(
        retriever,
        writer,
        **parts,
        k=k or rules.k,
        max_steps=max_steps or rules.max_steps,
        max_passages=cap,
        budget=limits,
    )


def _worked(rules: Preset) -> tuple[Worked, ...]:
    return own_worked()[: rules.shots]


def _refuse(
    name: str,
    adapter: str | AdapterCard | Adapter | None,
    preset: str | Preset | None,
    family: str,
    demonstrations: object,
) -> None:
    """Refuse what belongs to IRCoT's prompts alone."""
    if isinstance(adapter, AdapterCard | Adapter):
        raise BadInput(
            f"The adapter {adapter.name!r} was trained on other prompts than those of {name!r}. "
            "Use no adapter (--adapter none)."
        )
    chosen = preset.name if isinstance(preset, Preset) else preset
    if chosen not in (None, "default") or family != "codex":
        what = f"preset {chosen!r}" if chosen not in (None, "default") else f"family {family!r}"
        raise BadInput(f"Strategy {name!r} has no {what}: those are of IRCoT. Leave it out.")
    if demonstrations is not None and name != "decomp":
        raise BadInput(
            f"The demonstrations given are chains; {name!r} writes follow-up questions or actions "
            "and has its own. Leave them out."
        )
