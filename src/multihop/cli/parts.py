"""The options that choose parts, shared by every verb that runs strategies."""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from multihop import names
from multihop.cli import adapters, budgets
from multihop.errors import BadInput
from multihop.lms.adapters import Adapter
from multihop.lms.base import LanguageModel
from multihop.lms.layers import layered
from multihop.lms.store import ReplyStore
from multihop.retrievers.base import Retriever
from multihop.retrievers.batching import BatchedRetriever
from multihop.strategies import PRESETS, Demonstrations
from multihop.strategies.im_rag import making as im_rag
from multihop.strategies.official import open_demonstrations
from multihop.text import Json, Question
from multihop.trace import Strategy

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Parts:
    """What was chosen; None means the preset's, or the part's, own default.

    Attributes:
        strategies: Their names, in the order given.
        preset: "default", "trained", "paper" or "official".
        retriever: `KIND:TARGET`; None when none was named.
        retriever_options: Keywords of its constructor.
        model: `KIND:TARGET`.
        model_options: Keywords of its constructor.
        adapter: With its card, or its name alone.
        reader: "cot", "direct" or "none".
        k: Passages fetched per query.
        max_steps: Most sentences of the chain.
        max_passages: Most passages kept over all steps.
        demonstrations: All kinds of them.
        train: Questions with answers, for strategies that learn demonstrations from them.
        strategy_options: Further keywords of the strategies.
        calls: Most LM calls in flight.
        fuse: Read on from open streams where the next prompt allows it.
        cache: Keep replies on disk and give them again.
        reproducible: One call at a time, nothing reused.
        budgets: What a question and the whole run may cost.
    """

    strategies: tuple[str, ...]
    preset: str | None
    retriever: str | None
    retriever_options: dict[str, str]
    model: str
    model_options: dict[str, str]
    adapter: Adapter | str | None
    reader: str | None
    k: int | None
    max_steps: int | None
    max_passages: int | None
    demonstrations: Demonstrations | None
    train: tuple[Question, ...] | None
    strategy_options: dict[str, str]
    calls: int
    fuse: bool
    cache: bool
    reproducible: bool
    budgets: budgets.Budgets

    @classmethod
    def read(cls, given: dict[str, Any], *, several: bool = False) -> "Parts":
        """Check what the options gave.

        Args:
            given: The options' values by parameter name.
            several: Whether more than one strategy may be named.
        """
        chosen = dict(given)
        strategies = _strategies(chosen.pop("strategies"), several=several)
        model_options = pairs("--model-option", chosen.pop("model_options"))
        strategy_options = pairs("--strategy-option", chosen.pop("strategy_options"))
        wishes = adapters.Wishes(
            model=chosen["model"],
            preset=chosen["preset"],
            strategies=strategies,
            demonstrations=any(chosen[name] is not None for name in _DEMONSTRATIONS),
            model_options=model_options,
            strategy_options=strategy_options,
        )
        return cls(
            strategies=strategies,
            retriever=one_retriever(chosen.pop("index"), chosen.pop("retriever")),
            retriever_options=pairs("--retriever-option", chosen.pop("retriever_options")),
            model_options=model_options,
            strategy_options=strategy_options,
            adapter=adapters.choose(chosen.pop("adapter"), wishes),
            demonstrations=_demonstrations(chosen, strategy_options.get("family", "codex")),
            train=_train(chosen.pop("train"), strategies),
            budgets=budgets.Budgets.take(chosen, strategies),
            **chosen,
        )

    def open_retriever(self) -> Retriever | None:
        """Open the retriever, if one was named; BM25 asks as the preset does."""
        if self.retriever is None:
            if wanting := [name for name in self.strategies if name != "nor"]:
                raise BadInput(
                    f"{wanting[0]} searches: say where with --index DIR or --retriever "
                    "KIND:TARGET, or set MULTIHOP_INDEX. `multihop index` builds an index; "
                    "`multihop demo` needs none."
                )
            return None
        options = dict(self.retriever_options)
        if self.retriever.startswith("bm25:") and self.preset == "official":
            options.setdefault("form", "official")
        return names.open_retriever(self.retriever, options)

    def make(self, strategy: str, retriever: Retriever | None, lm: LanguageModel) -> Strategy:
        """Make one of the strategies."""
        return names.open_strategy(
            strategy,
            retriever=retriever,
            lm=lm,
            preset=self.preset,
            adapter=self.adapter,
            reader=self.reader,
            k=self.k,
            max_steps=self.max_steps,
            max_passages=self.max_passages,
            demonstrations=self.demonstrations,
            budget=self.budgets.of(strategy),
            train=self.train if names.takes(strategy, "train") else None,
            options=self.strategy_options,
        )

    def elsewhere(self) -> "Parts":
        """The same for another process, which does not know what the run has spent."""
        return replace(self, budgets=replace(self.budgets, run=None))

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator["Opened", None]:
        """The strategies over their opened parts, which are closed at the end."""
        async with self.opened_retriever() as retriever, self.opened_model() as lm:
            yield self.over(retriever, lm)

    @asynccontextmanager
    async def opened_retriever(self) -> AsyncGenerator[BatchedRetriever | None, None]:
        """The retriever, if one was named; closed at the end."""
        inner = self.open_retriever()
        if inner is None:
            yield None
            return
        retriever = BatchedRetriever(inner)
        try:
            yield retriever
        finally:
            await retriever.aclose()

    @asynccontextmanager
    async def opened_model(self) -> AsyncGenerator[LanguageModel, None]:
        """The model with its wrappers on; closed at the end."""
        async with AsyncExitStack() as closing:
            lm = open_lm(self.model, self._model_options, self.adapter)
            closing.push_async_callback(lm.aclose)
            self.budgets.check(lm.name)
            if warning := adapters.unchecked(self.adapter, lm.name):
                click.echo(f"multihop: {warning}", err=True)
            store = ReplyStore() if self.cache else None
            if store:
                closing.push_async_callback(store.aclose)
            calls = 1 if self.reproducible else self.calls
            lean = layered(lm, in_flight=calls, fuse=self._fused, cache=store)
            closing.push_async_callback(lean.aclose)
            yield lean

    def over(self, retriever: BatchedRetriever | None, lm: LanguageModel) -> "Opened":
        """The strategies over parts that are open already, and are closed by whoever opened them.

        Args:
            retriever: From `opened_retriever`, of this or of other parts with the same retriever.
            lm: From `opened_model`, likewise.
        """
        manifest = getattr(retriever.inner, "manifest", None) if retriever else None
        identity = getattr(retriever.inner, "identity", None) if retriever else None
        return Opened(
            {name: self.make(name, retriever, lm) for name in self.strategies},
            {
                "model_options": names.told(self._model_options),
                "retriever_options": names.told(self.retriever_options),
                "corpus": getattr(manifest, "content_hash", None),
                **({"retriever": dict(identity)} if identity else {}),
                "fuse": self._fused,
                "reproducible": self.reproducible,
            },
            lm,
        )

    @property
    def _model_options(self) -> dict[str, str]:
        exact = self.reproducible and self.model.startswith("local:")
        return {
            **self.model_options,
            **self._adapters_of_strategy(),
            **({"reproducible": "true"} if exact else {}),
        }

    def _adapters_of_strategy(self) -> dict[str, str]:
        """IM-RAG's own adapters, for a model that loads adapters itself."""
        folder = self.strategy_options.get("adapters")
        loads = self.model.partition(":")[0] in names.LOADING
        if "im-rag" not in self.strategies or not folder or not loads:
            return {}
        if "adapters" in self.model_options:
            return {}
        single = self.strategy_options.get("policy") == "single"
        found = im_rag.loadable(Path(folder), "single" if single else "two")
        return {"adapters": json.dumps({name: str(each.folder) for name, each in found.items()})}

    @property
    def _fused(self) -> bool:
        return self.fuse and not self.reproducible


def open_lm(
    name: str,
    options: Mapping[str, str] | None = None,
    adapter: Adapter | str | None = None,
) -> LanguageModel:
    """Open a model, and tell on stderr what takes long before the first answer.

    That is to write a model's weights anew, and to make demonstrations.
    """
    for work in ("multihop.lms.repacked", "multihop.strategies.dsp"):
        telling = logging.getLogger(work)
        telling.addHandler(_ON_STDERR)
        telling.setLevel(logging.INFO)
    card = adapter if isinstance(adapter, Adapter) else None
    return names.open_lm(name, options, adapter=card)


class _OnStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # nobody may be reading
            click.echo(self.format(record), err=True)


_ON_STDERR = _OnStderr()


@dataclass(frozen=True, slots=True)
class Opened:
    """What can be run.

    Attributes:
        strategies: By name, in the order given.
        record: What decides their results and stands in no strategy's settings.
        lm: The model that they ask, wrapped.
    """

    strategies: dict[str, Strategy]
    record: dict[str, Json]
    lm: LanguageModel


def options(command: Command) -> Command:
    """Give a command the options; `Parts.read` takes what it gets for them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = [
    click.option(
        "--index",
        metavar="DIR",
        envvar="MULTIHOP_INDEX",
        show_envvar=True,
        help="BM25 index to search; short for --retriever bm25:DIR.",
    ),
    click.option("--retriever", metavar="KIND:TARGET", help="What to search with."),
    click.option(
        "-m",
        "--model",
        metavar="KIND:TARGET",
        default=names.DEFAULT_LM,
        envvar="MULTIHOP_MODEL",
        show_envvar=True,
        show_default=True,
        help="Who writes: local:NAME, openai:MODEL@URL, transformers:NAME, ...",
    ),
    click.option(
        "-s",
        "--strategy",
        "strategies",
        metavar="NAME",
        default="ircot",
        show_default=True,
        help="ircot, oner, nor, self-ask, react, decomp, iter-retgen, dsp, adaptive-rag, "
        "self-consistency, im-rag, or one that another package brings; eval takes several, "
        "parted by commas.",
    ),
    click.option(
        "--preset",
        type=click.Choice(PRESETS),
        help="Our settings, those of a model that was taught the loop, the paper's, or its "
        "released code's. By default what the adapter was trained on, else default.",
    ),
    adapters.option,
    click.option(
        "--reader",
        type=click.Choice(["cot", "direct", "none"]),
        help="How the answer is read from the passages; none: from the chain.",
    ),
    click.option("-k", type=click.IntRange(1), metavar="N", help="Passages fetched per query."),
    click.option(
        "--max-steps",
        type=click.IntRange(1),
        metavar="N",
        help="Most sentences of the chain, follow-up questions, turns, or rounds.",
    ),
    click.option(
        "--max-passages",
        type=click.IntRange(1),
        metavar="N",
        help="Most passages kept over all steps.",
    ),
    click.option(
        "--demonstrations",
        metavar="FILE|official:DIR",
        help="Worked examples: a prompt file, or a data set's folder of IRCoT's prompt files, as "
        "official:ircot/prompts/hotpotqa. By default our own.",
    ),
    click.option(
        "--demonstration-set",
        type=click.IntRange(1, 3),
        metavar="1|2|3",
        help="Use one of the three sets of 15 of IRCoT's examples; by default all of a file.",
    ),
    click.option(
        "--distractors",
        type=click.IntRange(1, 3),
        metavar="1|2|3",
        help="Passages without use shown with each example of official:DIR; by default 2.",
    ),
    click.option(
        "--train",
        metavar="NAME",
        help="Questions with answers that dsp makes its demonstrations of: a file, or as eval "
        "takes them.",
    ),
    click.option(
        "-o",
        "--model-option",
        "model_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of the model's kind, as threads=2. May repeat.",
    ),
    click.option(
        "--retriever-option",
        "retriever_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of the retriever's kind, as form=paper. May repeat.",
    ),
    click.option(
        "--strategy-option",
        "strategy_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="A further setting of the strategy, as eviction=fifo. May repeat.",
    ),
    click.option(
        "--calls",
        type=click.IntRange(1),
        default=4,
        show_default=True,
        metavar="N",
        help="Most LM calls in flight; fewer while the server refuses or slows down.",
    ),
    click.option(
        "--fuse/--no-fuse",
        default=True,
        help="Whether the next sentence is read on from the stream of the last one where the "
        "prompt has only grown by it.",
    ),
    click.option(
        "--cache/--no-cache",
        default=False,
        envvar="MULTIHOP_CACHE",
        show_envvar=True,
        help="Whether replies are kept on disk and the same request is not sent again; see "
        "`multihop cache`.",
    ),
    click.option(
        "--reproducible",
        is_flag=True,
        help="One LM call at a time, nothing read on and nothing evaluated before: the embedded "
        "model then writes the same, bit for bit, in every run.",
    ),
    *budgets.OPTIONS,
]


_DEMONSTRATIONS = ("demonstrations", "demonstration_set", "distractors")


def _demonstrations(chosen: dict[str, Any], family: str) -> Demonstrations | None:
    """The demonstrations asked for, out of what the options gave; None when none were."""
    name, number, distractors = (chosen.pop(option) for option in _DEMONSTRATIONS)
    if name is None and number is None and distractors is None:
        return None
    return open_demonstrations(
        name,
        number=number,
        distractors=distractors,
        family="flan" if family == "flan" else "codex",  # the strategy refuses other families
    )


def _train(name: str | None, strategies: Sequence[str]) -> tuple[Question, ...] | None:
    """The training questions, if some strategy learns from any."""
    if name is None:
        return None
    if not any(names.takes(strategy, "train") for strategy in strategies):
        learning = [each for each in names.strategy_names() if names.takes(each, "train")]
        raise BadInput(
            f"--train is for {', '.join(learning)}; {' and '.join(strategies)} learn from none."
        )
    return tuple(names.open_questions(name))


def one_retriever(index: str | None, retriever: str | None) -> str | None:
    """The retriever's name from --index and --retriever; --retriever wins over the environment."""
    if (
        index
        and retriever
        and click.get_current_context().get_parameter_source("index")
        == (click.core.ParameterSource.COMMANDLINE)
    ):
        raise BadInput("--index DIR is short for --retriever bm25:DIR: give one of the two.")
    return retriever or (f"bm25:{index}" if index else None)


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE texts as a mapping."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadInput(f"{option} {text}: expected NAME=VALUE, as threads=2.")
        found[name.replace("-", "_")] = value
    return found


def _strategies(text: str, *, several: bool) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not found or (len(found) > 1 and not several):
        raise BadInput(f"--strategy {text}: expected {'names' if several else 'one name'}.")
    for name in found:
        names.known("strategy", name, names.strategy_names())
    return found
