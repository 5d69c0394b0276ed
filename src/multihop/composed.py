"""Retrievers, rerankers and strategies made of other parts, by the names that a user writes.

They hold names of other parts, so they stand on the floor that opens names:

    hybrid:bm25:DIR+http:URL                with the options fusion, weights, depth, ...
    rerank:bm25:DIR                         with the option by=cross-encoder:NAME, ...
    hybrid:FILE.toml and rerank:FILE.toml   where each part has options of its own

In a list a name begins at a `+` that is followed by a kind of retriever and a colon; any other
`+` is part of a path. A target that does not begin with a kind and a colon is a file.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from multihop import names, typed_toml
from multihop.errors import BadInput
from multihop.lms.base import LanguageModel
from multihop.lms.layers import layered
from multihop.retrievers.base import Retriever
from multihop.retrievers.fusion import (
    FUSIONS,
    NORMALISATIONS,
    Fuse,
    combmnz,
    combsum,
    convex,
    rrf,
)
from multihop.retrievers.hybrid import Hybrid, Member
from multihop.retrievers.rerank import Reranked
from multihop.retrievers.rerank_endpoint import EndpointReranker, Shape
from multihop.retrievers.rerank_lm import ListwiseReranker, YesNoReranker
from multihop.strategies import Budget
from multihop.strategies.self_consistency import SAMPLING, SampledLM, SelfConsistency
from multihop.text import Json
from multihop.trace import Strategy

_SCALED = {"combsum": combsum, "combmnz": combmnz, "convex": convex}
"""Fusions that take a normalisation; the others have theirs, or look at no scores."""

_OPENING: ContextVar[tuple[Path, ...]] = ContextVar("_OPENING", default=())
"""Files that are being read, so that none opens itself."""

Settings = TypeVar("Settings")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a rerank file.

    Attributes:
        name: `KIND:TARGET`.
        options: Keywords of its kind.
    """

    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Together:
    """A retriever of a hybrid file.

    Attributes:
        name: `KIND:TARGET`.
        weight: How much its ranking counts; 0 leaves it out.
        depth: Hits asked of it; 0 is as many as of the others.
        normalise: One of `NORMALISATIONS`; empty is as the others.
        options: Keywords of its kind.
    """

    name: str
    weight: float = typed_toml.number(1.0, 0.0)
    depth: int = typed_toml.number(0, 0)
    normalise: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> Retriever:
        """Open the retriever."""
        return names.open_retriever(self.name, self.options)


@dataclass(frozen=True, slots=True)
class HybridFile:
    """What a hybrid file says; see `hybrid` for the settings.

    Attributes:
        retriever: The retrievers, a table `[[retriever]]` each.
    """

    retriever: tuple[Together, ...] = ()
    fusion: str = "rrf"
    normalise: str = "minmax"
    depth: int = typed_toml.number(100, 1)
    rrf_k: float = typed_toml.number(60.0, 0.0)
    same_corpus: bool = True


@dataclass(frozen=True, slots=True)
class RerankFile:
    """What a rerank file says.

    Attributes:
        retriever: Who searches, `[retriever]`.
        reranker: Who orders what was found, `[reranker]`.
        depth: Hits that are ordered.
    """

    retriever: Part = Part()
    reranker: Part = Part()
    depth: int = typed_toml.number(50, 1)


def hybrid(
    target: str,
    *,
    fusion: str | None = None,
    normalise: tuple[str, ...] = (),
    weights: tuple[str, ...] = (),
    depth: int | None = None,
    rrf_k: float | None = None,
    same_corpus: bool | None = None,
) -> Hybrid:
    """Open retrievers that are asked together.

    Args:
        target: Names with `+` between them, or a file; see `HybridFile`. What is given here goes
            before what a file says.
        fusion: One of `FUSIONS`; "rrf" by default.
        normalise: One of `NORMALISATIONS` for all retrievers, or one for each; "minmax" by
            default. For combsum, combmnz and convex.
        weights: One number for each; 1 by default.
        depth: Hits asked of each; 100 by default.
        rrf_k: How little the first places differ; 60 by default. For rrf.
        same_corpus: Refuse retrievers that say that they hold different corpora; true by
            default.

    Raises:
        BadInput: Something is unknown, or is not as many as retrievers.
        MultihopError: Whatever a retriever raises that is opened.
    """
    given = {"fusion": fusion, "depth": depth, "rrf_k": rrf_k, "same_corpus": same_corpus}
    given = {name: value for name, value in given.items() if value is not None}
    listed = listed_names(target)
    where = target if listed is None else f"hybrid:{target}"
    with _read(HybridFile, target, listed) as said:
        settings = typed_toml.record(HybridFile, given, where)  # so that it is checked alike
        settings = replace(said, **{name: getattr(settings, name) for name in given})
        tables = settings.retriever if listed is None else tuple(map(Together, listed))
        if not tables:
            raise BadInput(f"{where}: no [[retriever]] with a name.")
        if normalise:
            each = _as_many(normalise, tables, f"{where}: normalise")
            tables = tuple(replace(t, normalise=n) for t, n in zip(tables, each, strict=True))
        if weights:
            each = _as_many(weights, tables, f"{where}: weights")
            tables = tuple(
                replace(t, weight=_weight(w, where)) for t, w in zip(tables, each, strict=True)
            )
        fuse, label = _fuse(settings, tables, where)
        members = [
            Member(t.open(), t.weight, t.depth or settings.depth, names.told(t.options))
            for t in tables
        ]
    return Hybrid(members, fuse=fuse, label=label, same_corpus=settings.same_corpus)


def rerank(
    target: str, *, by: str | None = None, depth: int | None = None, **options: str
) -> Reranked:
    """Open a retriever and a reranker.

    Args:
        target: The retriever's name, or a file; see `RerankFile`.
        by: The reranker's name; needed where `target` is no file, and goes before a file's.
        depth: Hits that are ordered; 50 by default.
        options: The reranker's own.

    Raises:
        BadInput: Something is unknown or missing.
        MultihopError: Whatever a part raises that is opened.
    """
    listed = listed_names(target)
    where = target if listed is None else f"rerank:{target}"
    with _read(RerankFile, target, listed) as said:
        searching = said.retriever if listed is None else Part(target)
        reranker = said.reranker if by is None else Part(by)
        if not searching.name:
            raise BadInput(f"{where}: no [retriever] with a name.")
        if not reranker.name:
            raise BadInput(
                f"{where}: by whom? Set by=KIND:TARGET; kinds: {', '.join(names.reranker_kinds())}."
            )
        ordering = names.open_reranker(reranker.name, {**reranker.options, **options})
        retriever = names.open_retriever(searching.name, searching.options)
    most = said.depth if depth is None else depth
    return Reranked(retriever, ordering, depth=most, options=names.told(searching.options))


def listwise(
    lm: str,
    *,
    window: int = 20,
    stride: int = 10,
    passage_tokens: int = 200,
    max_tokens: int | None = None,
    calls: int = 4,
    model_options: Mapping[str, Json] | None = None,
) -> ListwiseReranker:
    """Open a listwise reranker by its model's name.

    Args:
        lm: `KIND:TARGET` of a language model.
        window: As `ListwiseReranker`.
        stride: As `ListwiseReranker`.
        passage_tokens: As `ListwiseReranker`.
        max_tokens: As `ListwiseReranker`.
        calls: Most calls in flight.
        model_options: Keywords of the model's kind.
    """
    return ListwiseReranker(
        _open_lm(lm, calls, model_options),
        window=window,
        stride=stride,
        passage_tokens=passage_tokens,
        max_tokens=max_tokens,
        at_once=calls,
    )


def yes_no(
    lm: str,
    *,
    passage_tokens: int = 400,
    calls: int = 4,
    model_options: Mapping[str, Json] | None = None,
) -> YesNoReranker:
    """Open a reranker that asks about each passage, by its model's name; see `listwise`."""
    return YesNoReranker(
        _open_lm(lm, calls, model_options), passage_tokens=passage_tokens, at_once=calls
    )


def endpoint(
    target: str,
    *,
    shape: Shape = "cohere",
    body: Mapping[str, Json] | None = None,
    batch: int = 500,
    at_once: int = 4,
    timeout: float = 60.0,
    retries: int = 2,
    key_env: str = "MULTIHOP_RERANK_KEY",
) -> EndpointReranker:
    """Open a reranker behind an address, named URL or MODEL@URL; see `EndpointReranker`."""
    given = re.fullmatch(r"(?:(?P<model>.*?)@)?(?P<url>https?://.*)", target, re.DOTALL)
    if not given:
        raise BadInput(f"endpoint:{target}: expected endpoint:URL or endpoint:MODEL@URL.")
    return EndpointReranker(
        given["url"],
        given["model"] or "",
        shape=shape,
        body=body,
        batch=batch,
        at_once=at_once,
        timeout=timeout,
        retries=retries,
        key_env=key_env,
    )


def self_consistency(
    retriever: Retriever | None,
    lm: LanguageModel,
    *,
    of: str = "ircot",
    chains: int = 5,
    temperature: float = SAMPLING,
    seed: int = 0,
    least_agreement: float = 0.0,
    budget: Budget | None = None,
    **settings: object,
) -> SelfConsistency:
    """Self-consistency over any strategy; see `SelfConsistency`.

    Args:
        retriever: Where the strategy searches.
        lm: Who writes; asked for samples.
        of: The strategy's name.
        chains: How many.
        temperature: Of all calls.
        seed: Of the first chain; the next have the next ones.
        least_agreement: Below this share of chains no answer is given.
        budget: What a question may cost, all chains together.
        settings: The strategy's own.

    Raises:
        BadInput: No such strategy or setting, or a number out of range.
    """
    if of == "self-consistency":
        raise BadInput("Self-consistency of itself is nothing new. Name another strategy with of.")
    limits = (budget or Budget()).of(lm.name)
    texts = {name: value for name, value in settings.items() if isinstance(value, str)}
    others = {name: value for name, value in settings.items() if name not in texts}

    def chain(number: int, left: Budget) -> Strategy:
        return names.open_strategy(
            of,
            retriever=retriever,
            lm=SampledLM(lm, temperature, seed + number),
            options=texts,
            budget=left if left.limited or left.run else None,
            **others,
        )

    # What is left of a budget differs from question to question; without one, chains are made once.
    make: Callable[[int, Budget], Strategy] = chain if limits.limited else cache(chain)
    make(0, limits)  # refuses what is wrong before anything is asked
    return SelfConsistency(make, chains, temperature, seed, least_agreement, limits)


def listed_names(target: str) -> list[str] | None:
    """The names of retrievers in a list; None where the target is no list but a file."""
    kind = f"(?:{'|'.join(map(re.escape, names.retriever_kinds()))}):"
    if not re.match(kind, target):
        return None
    return re.split(rf"\+(?={kind})", target)


def _open_lm(name: str, calls: int, options: Mapping[str, Json] | None) -> LanguageModel:
    texts = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in (options or {}).items()
    }
    return layered(names.open_lm(name, texts), in_flight=calls, fuse=False)


@contextmanager
def _read(kind: type[Settings], target: str, listed: Sequence[str] | None) -> Iterator[Settings]:
    """What a file says, or the defaults for a list."""
    if listed is not None:
        yield kind()
        return
    path = Path(target).resolve()
    if path in _OPENING.get():
        raise BadInput(f"{target}: this file opens itself.")
    if not path.is_file():
        kinds = ", ".join(names.retriever_kinds())
        raise BadInput(
            f"{target}: expected KIND:TARGET of a retriever (kinds: {kinds}) or a TOML file, and "
            "there is no such file."
        )
    before = _OPENING.set((*_OPENING.get(), path))
    try:
        yield typed_toml.record(kind, typed_toml.read(path), target, needed=True)
    finally:
        _OPENING.reset(before)


def _as_many(texts: Sequence[str], tables: Sequence[object], where: str) -> Sequence[str]:
    """One for all, or one for each, as one for each."""
    if len(texts) not in (1, len(tables)):
        raise BadInput(f"{where}: {len(texts)} for {len(tables)} retrievers.")
    return texts if len(texts) == len(tables) else list(texts) * len(tables)


def _weight(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{where}: the weight {text!r} is no number.") from None


def _fuse(settings: HybridFile, tables: Sequence[Together], where: str) -> tuple[Fuse, str]:
    """The fusion, and what records call it."""
    name = names.known(f"fusion of {where}", settings.fusion, list(FUSIONS))
    scales = [table.normalise or settings.normalise for table in tables]
    for scale in scales:
        names.known(f"normalisation of {where}", scale, list(NORMALISATIONS))
    if name == "rrf":
        return partial(rrf, k=settings.rrf_k), f"rrf k={settings.rrf_k:g}"
    if name not in _SCALED:
        return FUSIONS[name], name
    functions = [NORMALISATIONS[scale] for scale in scales]
    return partial(_SCALED[name], normalise=functions), f"{name} {','.join(scales)}"
