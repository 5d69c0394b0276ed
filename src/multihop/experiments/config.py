"""What an experiment is told, from a TOML file.

    [[datasets]]   questions to choose on (dev) and to report on (test), and where to search
    [[models]]     who writes
    [[systems]]    strategies with their grids of K and M
    [metrics]      what is reported, and by what the best setting is chosen

Each system is run with each model on each data set. An unknown key, a wrong type or a value out
of range is refused with one line that names it.
"""

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from multihop import names, runs, typed_toml
from multihop.datasets.sampling import SEED
from multihop.errors import BadInput
from multihop.metrics.aggregate import Rule
from multihop.strategies.official import OFFICIAL
from multihop.typed_toml import number

Kind = Literal["answer", "passages"]
"""What of a run is scored: its answer, or the passages that it collected."""

M_HERE = "{m}"
"""In the name of demonstrations: where M stands."""

_OURS = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
_BETWEEN = "_to_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Questions, where to search for them, and worked examples.

    Attributes:
        name: As tables call it.
        test: Questions that are reported on, `KIND:PATH` or a file of ours.
        dev: Questions that the best setting is chosen on; needed where there is a choice. The
            same as `test`: the first `dev_limit` choose, those after them are reported on.
        index: BM25 index; short for `retriever = "bm25:DIR"`.
        retriever: `KIND:TARGET`.
        retriever_options: Keywords of its kind.
        demonstrations: A prompt file or `official:DIR`, out of which `sets` are chosen; or
            several, each a set. `{m}` in a name stands for M. None: our own, one set.
        sets: Numbers of the release's sets of 15. The first chooses the setting on dev.
        dev_limit, test_limit: Only so many questions; 0 is as the experiment says.
    """

    name: str
    test: str
    dev: str = ""
    index: str = ""
    retriever: str = ""
    retriever_options: Mapping[str, str] = field(default_factory=dict)
    demonstrations: tuple[str, ...] = ()
    sets: tuple[int, ...] = number((), 1, 3)  # type: ignore[arg-type]
    dev_limit: int = number(0, 0)
    test_limit: int = number(0, 0)

    @property
    def chosen_by_m(self) -> bool:
        """Whether M chooses among the demonstrations."""
        return any(n.startswith(OFFICIAL) or M_HERE in n for n in self.demonstrations)

    @property
    def search(self) -> str | None:
        """The retriever's name; None where there is none."""
        return self.retriever or (f"bm25:{self.index}" if self.index else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Who writes.

    Attributes:
        name: As tables call it.
        model: `KIND:TARGET`.
        options: Keywords of its kind.
        adapter: As `--adapter`; empty: none. One that was trained without demonstrations sees
            none: sets and M then fall together into one run.
        preset: Empty: the experiment's, or with an adapter what that was trained on.
        family: "flan" for prompts with an instruction, as the paper's Flan-T5 got them.
        strategy_options: Further keywords of the strategies, for this model.
        calls: Most LM calls in flight.
        fuse, cache, reproducible: As the options of `multihop eval`.
    """

    name: str
    model: str = names.DEFAULT_LM
    options: Mapping[str, str] = field(default_factory=dict)
    adapter: str = ""
    preset: Literal["", "default", "trained", "paper", "official"] = ""
    family: Literal["codex", "flan"] = "codex"
    strategy_options: Mapping[str, str] = field(default_factory=dict)
    calls: int = number(4, 1)
    fuse: bool = True
    cache: bool = False
    reproducible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A strategy with its settings.

    Attributes:
        strategy: "ircot", "oner", "nor", or one that another package brings.
        name: As tables call it; empty: the strategy.
        preset: Empty: the model's, or the experiment's.
        reader: "cot", "direct" or "none"; empty: the preset's. With "none" the chain's own
            answer counts, and oner only finds passages.
        k: K to choose among, passages per query; none: the preset's.
        m: M to choose among, distractors in each demonstration.
        max_steps, max_passages: 0: the preset's.
        options: Further keywords of the strategy.
    """

    strategy: str
    name: str = ""
    preset: Literal["", "default", "trained", "paper", "official"] = ""
    reader: Literal["", "cot", "direct", "none"] = ""
    k: tuple[int, ...] = number((), 1)  # type: ignore[arg-type]
    m: tuple[int, ...] = number((), 1)  # type: ignore[arg-type]
    max_steps: int = number(0, 0)
    max_passages: int = number(0, 0)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What of it can be scored."""
        if self.strategy == "nor":
            return ("answer",)
        if self.strategy == "oner" and self.reader == "none":
            return ("passages",)
        return ("answer", "passages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What is reported, and by what the best setting is chosen. None of it runs a model.

    Attributes:
        rule: "paper": by what is reported, answers' F1 or recall of paragraphs; the paper's
            text. "official": the released code, which rounds to 0.1 and chooses retrieval by
            recall of titles.
        answer, passages: Metric that the tables give; empty: the rule's.
        choose_answer, choose_passages: Metric that chooses on dev; empty: the rule's.
        more: Further metrics, in the JSON and CSV forms.
    """

    rule: Rule = "paper"
    answer: str = ""
    passages: str = ""
    choose_answer: str = ""
    choose_passages: str = ""
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment.

    Attributes:
        name: Names its folder.
        folder: Where runs are kept; empty: the name, in the folder of all runs.
        preset: "default", "trained", "paper" or "official", of models without an adapter; empty:
            default.
        scored: Which tables are made.
        dev_limit, test_limit: Only so many questions of each file; 0: all.
        sample: Which: the "first", or drawn at "random" with the draw of IRCoT's release.
        seed: Of the drawing; the release's is 13370.
        transfers: Out of distribution, as "hotpotqa_to_musique": demonstrations of one data
            set, all else of another.
        datasets, models, systems: What is run.
        metrics: How it is scored.
    """

    name: str = ""
    folder: str = ""
    preset: Literal["", "default", "trained", "paper", "official"] = ""
    scored: tuple[Kind, ...] = ("answer",)
    dev_limit: int = number(0, 0)
    test_limit: int = number(0, 0)
    sample: Literal["first", "random"] = "first"
    seed: int = number(SEED, 0)
    transfers: tuple[str, ...] = ()
    datasets: tuple[Dataset, ...] = ()
    models: tuple[Model, ...] = ()
    systems: tuple[System, ...] = ()
    metrics: Metrics = field(default_factory=Metrics)


def read(path: Path) -> Experiment:
    """Read an experiment; the paths in it are relative to its folder, $NAME and ~ expanded.

    Raises:
        BadInput: The file is no TOML, or a key or value is not as the classes here say.
    """
    found = parse(typed_toml.read(path), str(path))
    return _located(dataclasses.replace(found, name=found.name or path.stem), path.parent)


def parse(tables: Mapping[str, Any], where: str = "the experiment") -> Experiment:
    """An experiment of tables as TOML gives them.

    Raises:
        BadInput: A key or value is not as the classes here say.
    """
    found = typed_toml.record(Experiment, tables, where)
    models = found.models or (Model(name=names.DEFAULT_LM.partition(":")[2]),)
    systems = tuple(dataclasses.replace(s, name=s.name or s.strategy) for s in found.systems)
    found = dataclasses.replace(found, models=models, systems=systems)
    for what, group in (
        ("datasets", found.datasets),
        ("models", found.models),
        ("systems", found.systems),
    ):
        if not group:
            raise BadInput(f"{where}: no table [[{what}]]; there is nothing to run.")
        _unlike(where, what, [each.name for each in group])
    if found.name and not re.fullmatch(_OURS, found.name):
        raise BadInput(f"{where}: name is {found.name!r}; it must be a plain name.")
    if not found.scored:
        raise BadInput(f"{where}: scored is empty; known: answer, passages.")
    for data in found.datasets:
        _check_dataset(data, where)
    for system in found.systems:
        _check_system(system, found, where)
    for model in found.models:
        names.known("LM", model.model.partition(":")[0], names.lm_kinds())
        if "adapter" in model.strategy_options:
            raise BadInput(f"{where}: models, {model.name}: name the adapter by `adapter`.")
    wanted = {kind for system in found.systems for kind in system.kinds}
    if idle := [kind for kind in found.scored if kind not in wanted]:
        raise BadInput(f"{where}: scored has {idle[0]!r}, which no system gives.")
    if unused := [s.name for s in found.systems if not set(s.kinds) & set(found.scored)]:
        raise BadInput(
            f"{where}: systems, {unused[0]}: gives nothing of what is scored "
            f"({', '.join(found.scored)})."
        )
    for name in _metrics(found.metrics):
        names.open_metric(name)
    transferred = [_transfer(pair, found.datasets, where) for pair in found.transfers]
    _unlike(where, "datasets", [d.name for d in (*found.datasets, *transferred)])
    return found


def _metrics(metrics: Metrics) -> list[str]:
    given = (metrics.answer, metrics.passages, metrics.choose_answer, metrics.choose_passages)
    return [name for name in (*given, *metrics.more) if name]


def _unlike(where: str, what: str, given: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in given:
        if not re.fullmatch(_OURS, name):
            raise BadInput(
                f"{where}: {what}: the name {name!r} must be of letters, digits and ._+- alone, "
                "for it names a folder."
            )
        if name in seen:
            raise BadInput(f"{where}: {what}: two have the name {name!r}.")
        seen.add(name)


def _check_dataset(data: Dataset, where: str) -> None:
    here = f"{where}: datasets, {data.name}"
    if not data.test:
        raise BadInput(f"{here}: test is empty; there is nothing to report on.")
    if data.search:
        names.known("retriever", data.search.partition(":")[0], names.retriever_kinds())
    if data.index and data.retriever:
        raise BadInput(f"{here}: index is short for a bm25 retriever: give one of the two.")
    if data.sets and len(data.demonstrations) != 1:
        raise BadInput(
            f"{here}: sets are chosen out of one name in demonstrations; "
            f"there are {len(data.demonstrations)}."
        )
    if len(set(data.sets)) < len(data.sets):
        raise BadInput(f"{here}: sets is {list(data.sets)}; each may stand there once.")


def _check_system(system: System, found: Experiment, where: str) -> None:
    here = f"{where}: systems, {system.name}"
    names.known("strategy", system.strategy, names.strategy_names())
    if system.strategy == "nor" and (system.k or system.m):
        raise BadInput(f"{here}: nor searches nothing, so k and m change nothing. Leave them out.")
    if system.strategy == "nor" and system.reader == "none":
        raise BadInput(f"{here}: nor is its reader; reader none leaves nothing.")
    for what, values in (("k", system.k), ("m", system.m)):
        if len(set(values)) < len(values):
            raise BadInput(f"{here}: {what} is {list(values)}; each may stand there once.")
    for name in ("k", "reader", "preset", "max_steps", "max_passages", "adapter", "family"):
        if name in system.options:
            raise BadInput(f"{here}: options has {name!r}, which is a key of its own.")
    if system.strategy != "nor":
        for data in found.datasets:
            if data.search is None:
                raise BadInput(
                    f"{where}: datasets, {data.name}: {system.name} searches: give it an index "
                    "or a retriever."
                )
            if system.m and not data.chosen_by_m:
                raise BadInput(
                    f"{here}: m chooses among demonstrations, and those of {data.name} are one "
                    f"file. Name official:DIR, or a file with {M_HERE} in its name."
                )
            if not system.m and any(M_HERE in name for name in data.demonstrations):
                raise BadInput(f"{here}: the demonstrations of {data.name} need m.")


def _transfer(pair: str, datasets: Iterable[Dataset], where: str) -> Dataset:
    """The data set of an entry of `transfers`: questions of the second, examples of the first."""
    by_name = {data.name: data for data in datasets}
    for cut in re.finditer(_BETWEEN, pair):
        shown, asked = pair[: cut.start()], pair[cut.end() :]
        if shown in by_name and asked in by_name and shown != asked:
            return dataclasses.replace(
                by_name[asked],
                name=pair,
                demonstrations=by_name[shown].demonstrations,
                sets=by_name[shown].sets,
            )
    raise BadInput(
        f"{where}: transfers has {pair!r}; expected A{_BETWEEN}B of two of the data sets: "
        f"{', '.join(by_name)}."
    )


def all_datasets(experiment: Experiment) -> tuple[Dataset, ...]:
    """The data sets, then those of `transfers`."""
    transfers = (_transfer(t, experiment.datasets, experiment.name) for t in experiment.transfers)
    return (*experiment.datasets, *transfers)


# --- Places ---------------------------------------------------------------------------------


def _located(found: Experiment, folder: Path) -> Experiment:
    return dataclasses.replace(
        found,
        folder=typed_toml.located(found.folder, folder) or str(runs.home() / found.name),
        datasets=tuple(
            dataclasses.replace(
                data,
                dev=_named(data.dev, folder),
                test=_named(data.test, folder),
                index=typed_toml.located(data.index, folder),
                retriever=_named(data.retriever, folder, bare=False),
                demonstrations=tuple(_named(name, folder) for name in data.demonstrations),
            )
            for data in found.datasets
        ),
        models=tuple(
            dataclasses.replace(
                model,
                model=_named(model.model, folder, bare=False),
                adapter=_there(os.path.expandvars(model.adapter), folder),
            )
            for model in found.models
        ),
    )


def _named(name: str, folder: Path, *, bare: bool = True) -> str:
    """`KIND:PATH` or a path, from where the file is; a target that is no path stays."""
    kind, colon, target = os.path.expandvars(name).partition(":")
    if colon and re.fullmatch(r"[a-z0-9_-]+", kind):
        if kind in ("bm25", "official"):
            return f"{kind}:{typed_toml.located(target, folder)}"
        return f"{kind}:{_there(target, folder)}"
    return typed_toml.located(name, folder) if bare else os.path.expandvars(name)


def _there(target: str, folder: Path) -> str:
    """The target beside the file, if that is there; else as it is."""
    if not target:
        return target
    beside = folder / Path(target).expanduser()
    return str(beside) if beside.exists() else target
