"""IM-RAG by name: what a user writes as options, checked and put together."""

from pathlib import Path
from typing import Literal

from multihop.errors import BadInput
from multihop.lms.adapters import Adapter, AdapterCard, read_adapter
from multihop.lms.base import LanguageModel
from multihop.lms.wrapper import innermost
from multihop.metrics.progress import Tracker
from multihop.retrievers.base import Reranker, Retriever
from multihop.strategies.budget import Budget
from multihop.strategies.im_rag.engine import IMRAG, RefineWith
from multihop.strategies.im_rag.prompts import FORM
from multihop.strategies.im_rag.stopping import (
    Action,
    Critic,
    Fixed,
    Linear,
    Oracle,
    PredictedProgress,
    StopPolicy,
)

QUESTIONER, ANSWERER = "questioner", "answerer"
"""The folders of adapters, and the names that requests use."""

Stop = Literal["fixed", "action", "critic", "predicted_progress", "oracle"]


def make(
    retriever: Retriever | None,
    lm: LanguageModel,
    *,
    adapters: Path | None = None,
    policy: Literal["two", "single"] = "two",
    refiner: Reranker | None = None,
    stop: Stop = "fixed",
    stop_turns: int = 2,
    stop_model: Path | None = None,
    stop_threshold: float = 0.5,
    stop_gamma: float | None = None,
    stop_phi: float | None = None,
    k: int | None = None,
    n_candidates: int = 20,
    max_steps: int | None = None,
    im_window: int | None = None,
    dedup: bool = True,
    refine_with: RefineWith = "query",
    words: int | None = None,
    max_query_tokens: int = 64,
    max_tokens: int = 32,
    temperature: float = 0.0,
    seed: int = 0,
    budget: Budget | None = None,
) -> IMRAG:
    """IM-RAG as a strategy.

    Args:
        retriever: Where it searches.
        lm: Who writes; it must have loaded the adapters, see `loadable`.
        adapters: The folder that holds the adapters `questioner` and `answerer`; None is the
            model alone, one that follows instructions.
        policy: "two" adapters; "single": the questioner answers too.
        refiner: Orders what was found; None leaves the retriever's order.
        stop: "fixed"; "action": the Questioner says so; "critic" and "predicted_progress": a small
            model does; "oracle": the gold passages do.
        stop_turns: Of "fixed".
        stop_model: Of "critic" and "predicted_progress", as `multihop train critic` made it.
        stop_threshold: Of "critic".
        stop_gamma: Of "predicted_progress" (0.9) and "oracle" (0.3).
        stop_phi: Of "predicted_progress" (1.2) and "oracle"; None lets the oracle stop when no
            gold passage is left.
        k: Passages passed on a turn (5).
        n_candidates: Passages that the refiner sees.
        max_steps: Most turns (3).
        im_window: Newest turns shown; None shows all.
        dedup: Passages of earlier turns are no candidates again.
        refine_with: "query", or "both": question and query.
        words: Of a passage shown; None is the adapters', else 70.
        max_query_tokens: A query that has no end by then is invalid.
        max_tokens: Of the answer.
        temperature: 0 is greedy.
        seed: Of drawing.
        budget: What a question may cost.

    Raises:
        BadInput: No retriever, a number out of range, an adapter that was trained on other
            prompts or is not loaded, or a stop policy without its model.
    """
    if retriever is None:
        raise BadInput("Strategy 'im-rag' needs a retriever, such as bm25:DIR.")
    numbers = {
        "stop_turns": stop_turns,
        "k": k,
        "n_candidates": n_candidates,
        "max_steps": max_steps,
        "im_window": im_window,
        "words": words,
        "max_query_tokens": max_query_tokens,
        "max_tokens": max_tokens,
    }
    for option, number in numbers.items():
        if number is not None and number < 1:
            raise BadInput(f"im-rag's {option} is {number}; it must be at least 1.")
    if temperature < 0:
        raise BadInput(f"im-rag's temperature is {temperature}; it must be 0 or more.")
    cards = tuple(each.card for each in loadable(adapters, policy).values())
    _check_loaded(lm, cards)
    shown = {card.form.words for card in cards}
    if len(shown) > 1 or (words is not None and shown - {words}):
        asked = f"; words is {words} now" if words is not None else ""
        raise BadInput(
            f"im-rag's adapters were trained on passages of {sorted(shown)} words{asked}. They "
            "must be the same: leave words out, or choose adapters of one training."
        )
    named = QUESTIONER if adapters else None
    return IMRAG(
        lm,
        retriever,
        refiner,
        _policy(
            stop,
            turns=stop_turns,
            model=stop_model,
            threshold=stop_threshold,
            gamma=stop_gamma,
            phi=stop_phi,
        ),
        questioner=named,
        answerer=named if policy == "single" or not adapters else ANSWERER,
        cards=cards,
        k=k or 5,
        n_candidates=max(n_candidates, k or 5),
        max_turns=max_steps or 3,
        im_window=im_window,
        dedup=dedup,
        refine_with=refine_with,
        words=words or next(iter(shown), 70),
        max_query_tokens=max_query_tokens,
        max_answer_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        budget=(budget or Budget()).of(lm.name),
    )


def loadable(folder: Path | None, policy: Literal["two", "single"] = "two") -> dict[str, Adapter]:
    """The adapters that a model has to load, by the names that requests use.

    Args:
        folder: Holds a folder for each; None holds none.
        policy: As in `make`.

    Raises:
        BadInput: One is missing, has another name than its folder, or was trained on other
            prompts.
    """
    if folder is None:
        return {}
    found = {}
    for name in (QUESTIONER,) if policy == "single" else (QUESTIONER, ANSWERER):
        adapter = read_adapter(folder / name)
        if adapter.card.form.preset != FORM:
            raise BadInput(
                f"{folder / name}: was trained on prompts of {adapter.card.form}, not on those "
                "of im-rag."
            )
        if adapter.name != name:
            raise BadInput(f"{folder / name}: the adapter there is called {adapter.name!r}.")
        found[name] = adapter
    return found


def _check_loaded(lm: LanguageModel, cards: tuple[AdapterCard, ...]) -> None:
    """A model of this process tells which adapters it has; a server is taken at its word."""
    inner = innermost(lm)
    loaded = getattr(inner, "adapters", None)
    if not isinstance(loaded, dict):
        return
    for card in cards:
        if card.name not in loaded:
            raise BadInput(
                f"{lm.name} has not loaded the adapter {card.name!r}. Give it to the model: "
                '-o \'adapters={"questioner": "DIR/questioner", ...}\'.'
            )


def _policy(
    stop: str,
    *,
    turns: int,
    model: Path | None,
    threshold: float,
    gamma: float | None,
    phi: float | None,
) -> StopPolicy:
    if gamma is not None and not 0 < gamma <= 1:
        raise BadInput(f"im-rag's stop_gamma is {gamma}; it must be above 0 and at most 1.")
    if stop in ("critic", "predicted_progress"):
        if model is None:
            raise BadInput(
                f"Stop policy {stop!r} needs its model: stop_model=FILE, which `multihop train "
                "critic` makes."
            )
        if stop == "critic":
            return Critic(Linear.load(model, "enough"), threshold)
        limit = 1.2 if phi is None else phi
        return PredictedProgress(Linear.load(model, "gain"), gamma or 0.9, limit)
    if model is not None:
        raise BadInput(f"Stop policy {stop!r} has no model; leave stop_model out.")
    match stop:
        case "fixed":
            return Fixed(turns)
        case "action":
            return Action()
        case "oracle":
            return Oracle(Tracker(), gamma or 0.3, phi)
    raise BadInput(
        f"No stop policy is named {stop!r}. Known: fixed, action, critic, predicted_progress, "
        "oracle."
    )
