"""Which runs an experiment is made of, in what order, and where each is kept.

The paper's protocol (Trivedi et al. 2023, section 4.3): every K and M of the grid is run on dev
with the first set of demonstrations; the best setting is then run on test with every set. Where
there is nothing to choose, dev is not run.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from multihop import names
from multihop.datasets import ircot_experiments as release
from multihop.errors import BadInput
from multihop.experiments.config import (
    M_HERE,
    Dataset,
    Experiment,
    Kind,
    Metrics,
    Model,
    System,
    all_datasets,
)
from multihop.lms.adapters import Adapter, find_adapter
from multihop.strategies import Demonstrations
from multihop.strategies.official import OFFICIAL, open_demonstrations
from multihop.text import Json

Part = Literal["dev", "test"]


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """A point of the grid.

    Attributes:
        k: Passages per query; None is the preset's.
        m: Distractors in each demonstration; None where there is no choice.
    """

    k: int | None = None
    m: int | None = None

    def __str__(self) -> str:
        """As "K=4, M=2"."""
        known = (("K", self.k), ("M", self.m))
        return ", ".join(f"{name}={value}" for name, value in known if value is not None) or "-"


@dataclass(frozen=True, slots=True)
class Cell:
    """One run.

    Attributes:
        entry: What it belongs to.
        part: "dev" or "test".
        setting: K and M.
        set: Number of the set of demonstrations, from 1; None where there is one only.
    """

    entry: "Entry"
    part: Part
    setting: Setting
    set: int | None

    @property
    def name(self) -> str:
        """Its folder, below the experiment's."""
        bits = (("k", self.setting.k), ("m", self.setting.m), ("set", self.set))
        last = "-".join([self.part, *(f"{a}{b}" for a, b in bits if b is not None)])
        return f"{self.entry.model}/{self.entry.dataset}/{self.entry.system}/{last}"

    @property
    def title(self) -> str:
        """In words."""
        setting = "" if str(self.setting) == "-" else f", {self.setting}"
        which = "" if self.set is None else f", set {self.set}"
        entry = self.entry
        return f"{entry.dataset}: {entry.system} with {entry.model}, {self.part}{setting}{which}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One system with one model on one data set: a field of the tables.

    Attributes:
        model, dataset, system: Their names.
        grid: Settings, small K first, then small M.
        sets: Sets of demonstrations; (None,) is one without a number.
        kinds: What is scored.
        bare: Whether an adapter was trained without demonstrations, and is shown none.
    """

    model: str
    dataset: str
    system: str
    grid: tuple[Setting, ...]
    sets: tuple[int | None, ...]
    kinds: tuple[Kind, ...]
    bare: bool = False

    @property
    def chooses(self) -> bool:
        """Whether dev decides."""
        return len(self.grid) > 1

    def dev(self) -> list[Cell]:
        """The grid on dev with the first set; nothing where there is nothing to choose."""
        return [Cell(self, "dev", s, self.sets[0]) for s in self.grid] if self.chooses else []

    def test(self, setting: Setting) -> list[Cell]:
        """A setting on test, with every set."""
        return [Cell(self, "test", setting, each) for each in self.sets]


@dataclass(frozen=True)
class Plan:
    """What is run.

    Attributes:
        experiment: As it was told.
        entries: In the order of running: model by model, each over the data sets.
        notes: What is done otherwise than the file seems to say, and why.
    """

    experiment: Experiment
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    def dataset(self, entry: Entry) -> Dataset:
        """An entry's data set."""
        every = all_datasets(self.experiment)
        return next(each for each in every if each.name == entry.dataset)

    def model(self, entry: Entry) -> Model:
        """An entry's model."""
        return next(each for each in self.experiment.models if each.name == entry.model)

    def system(self, entry: Entry) -> System:
        """An entry's system."""
        return next(each for each in self.experiment.systems if each.name == entry.system)

    def preset(self, entry: Entry) -> str | None:
        """An entry's preset; None is what the adapter was trained on, else the default."""
        model = self.model(entry)
        usual = "" if model.adapter else self.experiment.preset
        return self.system(entry).preset or model.preset or usual or None

    def cells(self) -> Iterator[Cell]:
        """Every run that is certain, and those on test where nothing is chosen."""
        for entry in self.entries:
            yield from entry.dev() or entry.test(entry.grid[0])

    def scored_by(self, metrics: Metrics) -> "Plan":
        """The same runs, scored otherwise."""
        return dataclasses.replace(
            self, experiment=dataclasses.replace(self.experiment, metrics=metrics)
        )

    def to_dict(self) -> list[Json]:
        """The entries as JSON data."""
        return [
            {
                "model": entry.model,
                "dataset": entry.dataset,
                "system": entry.system,
                "grid": [[setting.k, setting.m] for setting in entry.grid],
                "sets": list(entry.sets),
                "kinds": list(entry.kinds),
                "bare": entry.bare,
                **({"release": told} if (told := release_name(self, entry)) else {}),
            }
            for entry in self.entries
        ]


def plan(experiment: Experiment) -> Plan:
    """Lay out an experiment.

    Raises:
        BadInput: An adapter is not there, or prompts are asked for that it was not trained on.
    """
    notes: list[str] = []
    entries = []
    for model in experiment.models:
        adapter = adapter_of(model)
        bare = isinstance(adapter, Adapter) and adapter.card.form.shots == 0
        for data in all_datasets(experiment):
            sets, why = _sets(data, bare=bare)
            if why:
                notes.append(f"{data.name} with {model.name}: {why}")
            for system in experiment.systems:
                ms = () if bare or system.strategy == "nor" else system.m
                entries.append(
                    Entry(
                        model.name,
                        data.name,
                        system.name,
                        _grid(system.k, ms),
                        sets,
                        tuple(kind for kind in system.kinds if kind in experiment.scored),
                        bare,
                    )
                )
                _check_dev(entries[-1], data)
    return Plan(experiment, tuple(entries), tuple(dict.fromkeys(notes)))


def _grid(ks: Sequence[int], ms: Sequence[int]) -> tuple[Setting, ...]:
    """Small K first, then small M: the first of equals is chosen, as in the release."""
    return tuple(Setting(k, m) for k in sorted(ks) or (None,) for m in sorted(ms) or (None,))


def _check_dev(entry: Entry, data: Dataset) -> None:
    if entry.chooses and not data.dev:
        raise BadInput(
            f"datasets, {data.name}: {entry.system} has {len(entry.grid)} settings to choose among "
            "and there are no dev questions. Name them by `dev`, or give one K and one M."
        )


def _sets(data: Dataset, *, bare: bool) -> tuple[tuple[int | None, ...], str]:
    """The sets of demonstrations, and why they are fewer than three where that may surprise."""
    if bare:
        return (None,), (
            "the adapter was trained without demonstrations, so there is one run on test, no "
            "standard deviation over sets, and nothing for M to choose"
        )
    if data.sets:
        return data.sets, ""
    if len(data.demonstrations) > 1:
        return tuple(range(1, len(data.demonstrations) + 1)), ""
    return (None,), "one set of demonstrations, so no standard deviation over sets"


def adapter_of(model: Model) -> Adapter | str | None:
    """A model's adapter, or the name by which a server knows it.

    Raises:
        BadInput: It is to be loaded here and is not there.
    """
    if not model.adapter:
        return None
    try:
        return find_adapter(model.adapter)
    except BadInput:
        loads = model.model.partition(":")[0] in names.LOADING and "adapters" not in model.options
        if loads or Path(model.adapter).expanduser().exists():
            raise
        return model.adapter


def demonstrations(plan: Plan, cell: Cell) -> Demonstrations | None:
    """The worked examples of a run; None is our own, or what the adapter was trained with.

    Raises:
        BadInput: They are not there, or not in the format.
    """
    data, model = plan.dataset(cell.entry), plan.model(cell.entry)
    if not data.demonstrations or cell.entry.bare:
        return None
    by_place = len(data.demonstrations) > 1
    name = data.demonstrations[(cell.set or 1) - 1 if by_place else 0]
    official = name.startswith(OFFICIAL)
    m = cell.setting.m
    if M_HERE in name:  # NoR shows no passages: any M has its examples
        name = name.replace(M_HERE, str(m or min(_ms(plan))))
    return open_demonstrations(
        name,
        number=None if by_place else cell.set,
        distractors=m if official else None,
        family=model.family,
    )


def _ms(plan: Plan) -> Sequence[int]:
    return [m for system in plan.experiment.systems for m in system.m] or [1]


# --- The release's names --------------------------------------------------------------------


def release_name(plan: Plan, entry: Entry) -> str | None:
    """What the release calls the experiment that an entry repeats; None when it is none of them."""
    system = plan.system(entry)
    reads = "" if system.reader == "none" else "_qa"
    name = f"{system.strategy}{reads}"
    model = "none" if name == "oner" else entry.model
    known = (
        name in get_args(release.System)
        and model in get_args(release.Model)
        and entry.dataset in get_args(release.Dataset)
    )
    if not known:
        return None
    return release.Experiment(
        cast(release.System, name), cast(release.Model, model), cast(release.Dataset, entry.dataset)
    ).config


def entries_from(records: object, where: str) -> tuple[Entry, ...]:
    """The entries that `Plan.to_dict` wrote.

    Raises:
        BadInput: It was something else.
    """
    try:
        return tuple(_entry(each) for each in cast(Sequence[Mapping[str, object]], records))
    except (KeyError, TypeError, ValueError) as broken:
        raise BadInput(f"{where}: the plan cannot be read ({broken!r}).") from None


def _entry(record: Mapping[str, object]) -> Entry:
    grid = cast(Sequence[Sequence[int | None]], record["grid"])
    return Entry(
        str(record["model"]),
        str(record["dataset"]),
        str(record["system"]),
        tuple(Setting(k, m) for k, m in grid),
        tuple(cast(Sequence[int | None], record["sets"])),
        tuple(cast(Sequence[Kind], record["kinds"])),
        bool(record["bare"]),
    )
