"""Names of parts: "bm25:indexes/hotpotqa" gives an object.

A name is `KIND:TARGET`. Each kind is one line in a dict below and is imported when it is first
asked for. Other packages add kinds by entry point, in the groups `multihop.retrievers`,
`multihop.rerankers`, `multihop.stores`, `multihop.lms`, `multihop.strategies`, `multihop.metrics`
and `multihop.datasets`; a kind of ours cannot be replaced.

A kind is a callable. Retrievers, rerankers, stores and LMs are called with the target as one
string, and with the options given as keywords; a strategy with `retriever`, `lm` and its options; a
metric with a trace. A data set is a `datasets.base.Dataset`.
"""

import difflib
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from multihop import strategies, typed_toml
from multihop.datasets import QuestionFile
from multihop.datasets.base import Dataset
from multihop.errors import BadInput
from multihop.lms.adapters import Adapter
from multihop.lms.base import LanguageModel
from multihop.metrics import Metric, metric
from multihop.retrievers.base import Reranker, Retriever, Store
from multihop.text import Json, Question
from multihop.trace import Strategy

RETRIEVERS: dict[str, str] = {
    "bm25": "multihop.retrievers.bm25:BM25",
    "elastic": "multihop.retrievers.elastic:ElasticRetriever",
    "http": "multihop.retrievers.http:HttpRetriever",
    "hybrid": "multihop.composed:hybrid",
    "qdrant": "multihop.retrievers.qdrant:QdrantRetriever",
    "rerank": "multihop.composed:rerank",
}
RERANKERS: dict[str, str] = {
    "cross-encoder": "multihop.retrievers.cross_encoder:CrossEncoderReranker",
    "listwise": "multihop.composed:listwise",
    "yes-no": "multihop.composed:yes_no",
    "endpoint": "multihop.composed:endpoint",
}
STORES: dict[str, str] = {
    "elastic": "multihop.retrievers.elastic_index:ElasticStore",
    "qdrant": "multihop.retrievers.qdrant:QdrantStore",
}
LMS: dict[str, str] = {
    "local": "multihop.lms.local:LocalLM",
    "openai": "multihop.lms.openai:OpenAILM",
    "transformers": "multihop.lms.transformers:TransformersLM",
    "slotted": "multihop.lms.slotted:SlottedLM",
    "scripted": "multihop.testing:scripted_lm",
}
DATASETS: dict[str, str] = {
    "hotpotqa": "multihop.datasets.hotpotqa:HOTPOTQA",
    "2wikimultihopqa": "multihop.datasets.two_wiki:TWO_WIKI",
    "musique": "multihop.datasets.musique:MUSIQUE",
    "iirc": "multihop.datasets.iirc:IIRC",
    "strategyqa": "multihop.datasets.strategyqa:STRATEGYQA",
    "bamboogle": "multihop.datasets.bamboogle:BAMBOOGLE",
    "fanoutqa": "multihop.datasets.fanoutqa:FANOUTQA",
    "ircot": "multihop.datasets.ircot:IRCOT",
}

STRATEGIES: dict[str, str] = {
    "dsp": "multihop.strategies.dsp.making:make",
    "adaptive-rag": "multihop.strategies.adaptive_rag:make",
    "im-rag": "multihop.strategies.im_rag.making:make",
    "self-consistency": "multihop.composed:self_consistency",
}
"""Those beside the ones of `multihop.strategies`, which are there at once."""

LOADING = ("local", "transformers", "slotted")
"""Kinds that load adapters themselves."""

DEFAULT_LM = "local:SmolLM2-135M-Instruct"
"""Runs on any machine, needs no key, and is too small to be right often."""


def open_retriever(name: str, options: Mapping[str, str] | None = None) -> Retriever:
    """Open the retriever of this name.

    Args:
        name: `KIND:TARGET`, as "bm25:indexes/hotpotqa".
        options: Keywords of the kind's constructor; their texts are read as the types that
            it declares.

    Raises:
        BadInput: No such kind, no such option, or a value that does not fit.
        MultihopError: Whatever the part itself raises.
    """
    return cast(Retriever, _open("retriever", RETRIEVERS, name, options or {}))


def open_reranker(name: str, options: Mapping[str, str] | None = None) -> Reranker:
    """Open the reranker of this name, as "cross-encoder:NAME"; see `open_retriever`."""
    return cast(Reranker, _open("reranker", RERANKERS, name, options or {}))


def open_store(name: str, options: Mapping[str, str] | None = None) -> Store:
    """Open the store of this name, as "elastic:URL/NAME"; see `open_retriever`."""
    return cast(Store, _open("store", STORES, name, options or {}))


def open_lm(
    name: str, options: Mapping[str, str] | None = None, *, adapter: Adapter | None = None
) -> LanguageModel:
    """Open the language model of this name; see `open_retriever`.

    Args:
        name: `KIND:TARGET`, as "local:SmolLM2-135M-Instruct", "openai:MODEL@URL".
        options: Keywords of the kind's constructor.
        adapter: What requests will name. The kinds of `LOADING` load it, under its
            name, once it fits the model. Other kinds find it at a server that has loaded it, or
            not at all; `openai` is asked for completions of plain text.

    Raises:
        BadInput: No such kind, no such option, or a value that does not fit; the adapter does
            not fit the model, or what is sent is not what it was trained on.
        MultihopError: Whatever the part itself raises.
    """
    given: dict[str, object] = dict(options or {})
    kind = name.partition(":")[0]
    if adapter and kind in LOADING:
        loaded = _read(str(given.get("adapters", "{}")), Mapping, "option adapters")
        given["adapters"] = {**cast(Mapping[str, object], loaded), adapter.name: adapter}
    elif adapter and kind == "openai":
        adapter.check_plain(chat=given.get("api", "completions") != "completions")
        given["api"] = "completions"
    return cast(LanguageModel, _open("LM", LMS, name, given))


def open_strategy(
    name: str,
    *,
    retriever: Retriever | None,
    lm: LanguageModel,
    options: Mapping[str, str] | None = None,
    **settings: object,
) -> Strategy:
    """Make the strategy of this name.

    Args:
        name: One of `strategies.NAMES` or of `STRATEGIES`, or one that another package brings.
        retriever: Where it searches; None is enough for a strategy that never does.
        lm: Who writes.
        options: The strategy's own keywords as texts, read as the types that it declares.
        settings: The same as values; None means the strategy's default.

    Raises:
        BadInput: No such strategy or setting.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    make = _strategy(name)
    given = {"retriever": retriever, "lm": lm, **given, **_typed(make, options or {})}
    _check("strategy", name, make, (), given)
    return cast(Strategy, make(**given))


def takes(strategy: str, setting: str) -> bool:
    """Whether a strategy has a setting of this name.

    Raises:
        BadInput: No such strategy.
    """
    return setting in inspect.signature(_strategy(strategy)).parameters


def _strategy(name: str) -> Callable[..., object]:
    """What makes the strategy of this name."""
    if name in strategies.NAMES:
        return partial(strategies.make, name)
    if name in STRATEGIES:
        module, _, attribute = STRATEGIES[name].partition(":")
        return cast(Callable[..., object], getattr(import_module(module), attribute))
    others = _entry_points("strategies")
    return _load(others[known("strategy", name, strategy_names())])


_SECRETS = re.compile(
    r"headers?|([a-z]+_)*(key|secret|password)|((access|api|auth|bearer|hf)_)?token"
)
"""Options that open a door. They decide no result, and run folders are given to others."""


def told(options: Mapping[str, str]) -> dict[str, Json]:
    """Options as they are recorded: all but those that open a door."""
    return {name: value for name, value in options.items() if not _SECRETS.fullmatch(name)}


def strategy_names() -> list[str]:
    """All strategies, ours first."""
    ours = [*strategies.NAMES, *STRATEGIES]
    return [*ours, *sorted(_entry_points("strategies").keys() - {*ours})]


def open_metric(name: str) -> Metric:
    """The metric of this name: one that another package brings, or one of ours.

    Raises:
        BadInput: There is none.
    """
    if entry := _entry_points("metrics").get(name):
        return cast(Metric, _load(entry))
    return metric(name)


def open_questions(name: str) -> Iterable[Question]:
    """The questions of this name; they may be read again and again.

    Args:
        name: `KIND:PATH`, a file in a data set's own format, as "hotpotqa:dev.json";
            `KIND:SPLIT`, a split that was downloaded, as "hotpotqa:dev"; or the bare path of a
            file in our own format.

    Raises:
        BadInput: No such data set, split or file. What is in the file is checked when it is
            read.
    """
    kind, colon, target = name.partition(":")
    if colon and kind in dataset_names():
        return open_dataset(kind).questions(target)
    path = Path(name)
    if path.is_file():
        return QuestionFile(path)
    if colon:  # raises, for it is no kind
        known("data set", kind, dataset_names())
    if name in dataset_names():
        splits = " or ".join(f"{name}:{split.name}" for split in open_dataset(name).splits[:2])
        raise BadInput(f"{name} is a data set, not a file of questions: write {splits or name}.")
    found = "is a folder" if path.is_dir() else "does not exist"
    raise BadInput(f"{name or 'The file of questions'}: {found}. Name a file, or KIND:PATH.")


def located_questions(name: str, folder: Path) -> str:
    """A name of questions that stands in a file of `folder`, as it is named from here.

    Paths are relative to that folder; names of splits stay.
    """
    kind, colon, target = name.partition(":")
    if not colon or kind not in dataset_names():
        return typed_toml.located(name, folder)
    if target in {split.name for split in open_dataset(kind).splits}:
        return name
    return f"{kind}:{typed_toml.located(target, folder)}"


def open_dataset(name: str) -> Dataset:
    """The data set of this name.

    Raises:
        BadInput: There is none.
    """
    if name in DATASETS:
        module, _, attribute = DATASETS[name].partition(":")
        return cast(Dataset, getattr(import_module(module), attribute))
    others = _entry_points("datasets")
    return cast(Dataset, _load(others[known("data set", name, [*DATASETS, *others])]))


def dataset_names() -> list[str]:
    """All data sets, ours first."""
    return [*DATASETS, *sorted(_entry_points("datasets").keys() - {*DATASETS})]


def lm_kinds() -> list[str]:
    """All kinds of language models, ours first."""
    return [*LMS, *sorted(_entry_points("lms").keys() - {*LMS})]


def retriever_kinds() -> list[str]:
    """All kinds of retrievers, ours first."""
    return [*RETRIEVERS, *sorted(_entry_points("retrievers").keys() - {*RETRIEVERS})]


def reranker_kinds() -> list[str]:
    """All kinds of rerankers, ours first."""
    return [*RERANKERS, *sorted(_entry_points("rerankers").keys() - {*RERANKERS})]


def _open(what: str, ours: Mapping[str, str], name: str, options: Mapping[str, object]) -> object:
    kind, _, target = name.partition(":")
    group = f"{what.lower()}s"
    if kind in ours:
        module, _, attribute = ours[kind].partition(":")
        make = getattr(import_module(module), attribute)
    else:
        others = _entry_points(group)
        make = _load(others[known(what, kind, [*ours, *others])])
    given: tuple[str, ...] = (target,) if target else ()
    if what == "LM" and kind == "openai":
        given = model_at_url(target)
    read = _typed(make, options)
    _check(what, kind, make, given, read)
    return make(*given, **read)


def model_at_url(target: str) -> tuple[str, ...]:
    """The parts of MODEL@URL; a server's own model names may begin with an @."""
    at = target.rfind("@")
    return (target[:at], target[at + 1 :]) if at > 0 else (target,) if target else ()


def known(what: str, name: str, names: Collection[str]) -> str:
    """The name itself, when it is one of these.

    Raises:
        BadInput: It is not.
    """
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1)
    guess = f" Did you mean {close[0]!r}?" if close else ""
    raise BadInput(f"No {what} is named {name!r}.{guess} Known: {', '.join(names) or 'none'}.")


def _check(
    what: str,
    kind: str,
    make: Callable[..., object],
    given: tuple[str, ...],
    options: Mapping[str, Any],
) -> None:
    """Refuse what the callable would refuse, in the user's words."""
    signature = inspect.signature(make)
    keywords = [
        p.name
        for p in signature.parameters.values()
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    ][len(given) :]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    if not takes_any:
        for option in options:
            known(f"option of {what} {kind!r}", option, keywords)
    try:
        signature.bind(*given, **options)
    except TypeError as missing:
        hint = f" Write {kind}:TARGET." if not given and what != "strategy" else ""
        raise BadInput(f"The {what} {kind!r} cannot be opened so: {missing}.{hint}") from None


def _typed(make: Callable[..., object], options: Mapping[str, object]) -> dict[str, object]:
    """Options' texts as the types of the callable's parameters; what is no text stays."""
    called = make.func if isinstance(make, partial) else make
    try:
        hints = get_type_hints(called.__init__ if inspect.isclass(called) else called)
    except NameError:  # the package imports its types for type checkers only
        hints = {}
    parameters = inspect.signature(make).parameters.values()
    others = next((hints.get(p.name) for p in parameters if p.kind is p.VAR_KEYWORD), None)
    return {
        key: _read(value, hints.get(key, others), f"option {key}")
        if isinstance(value, str)
        else value
        for key, value in options.items()
    }


def _read(text: str, hint: object, where: str) -> object:
    """An option's text as the type that its parameter declares."""
    wanted = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    origins = {get_origin(each) or each for each in wanted}
    if origins & {str, Literal}:
        return text
    if Path in origins:
        return Path(text)
    if Reranker in origins:
        return None if text == "none" else open_reranker(text)
    if tuple in origins:
        return tuple(text.split(","))
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    words = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        Mapping: "a JSON object",
    }
    if NoneType in origins and value is None:
        return None
    for kind in words.keys() & origins:
        fits = {
            float: type(value) in (int, float),
            Mapping: isinstance(value, dict),
        }.get(kind, type(value) is kind)
        if fits:
            return value
    if expected := [word for kind, word in words.items() if kind in origins]:
        raise BadInput(f"{where}: expected {' or '.join(expected)}, found {text[:80]!r}.")
    return value


def _entry_points(group: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"multihop.{group}")}


def _load(entry: EntryPoint) -> Callable[..., object]:
    try:
        return cast(Callable[..., object], entry.load())
    except (ImportError, AttributeError) as broken:
        package = entry.dist.name if entry.dist else "its package"
        raise BadInput(
            f"{entry.name!r} is announced by {package} as {entry.value}, which cannot be "
            f"imported: {broken}. Mend or uninstall {package}."
        ) from broken
