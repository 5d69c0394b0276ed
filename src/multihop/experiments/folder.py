"""An experiment's folder.

    experiment.json                      what was told, resolved; the plan; versions and hashes
    MODEL/DATASET/SYSTEM/dev-k4-m2-set1  a run folder (`multihop.runs`) for each run
    tables.md, tables.csv, tables.json   the tables, as they were after the last sitting

Nothing that scoring reads names a place outside of the folder: it can be moved.
"""

import dataclasses
import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from multihop import __version__, files, names, runs, typed_toml
from multihop.errors import BadInput
from multihop.experiments.asked import Asked
from multihop.experiments.config import Experiment
from multihop.experiments.plan import Cell, Plan, demonstrations, entries_from
from multihop.prompts.own import own_demonstrations
from multihop.strategies import Demonstrations
from multihop.text import Json

FORMAT = 1
"""Version of experiment.json. Readers refuse others."""

EXPERIMENT = "experiment.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """How far a run is.

    Attributes:
        questions: How many it is of; None before it was begun.
        finished: Questions that came to an end.
        failed: Questions that ended in an error.
    """

    questions: int | None = None
    finished: int = 0
    failed: int = 0

    @property
    def done(self) -> bool:
        """Whether every question was asked."""
        return self.questions is not None and self.finished + self.failed >= self.questions


def status(folder: Path) -> Status:
    """How far the run in a folder is.

    Raises:
        BadInput: The folder is damaged.
    """
    if not (folder / runs.RUN).exists():
        return Status()
    ends: dict[str, bool] = {}
    for path in runs.trace_files(folder):
        for _, record in runs.read_raw(path):
            question = record.get("question")
            name = str(question.get("id")) if isinstance(question, dict) else ""
            ends[name] = ends.get(name, False) or not record.get("error")
    finished = sum(ends.values())
    return Status(_count(folder), finished, len(ends) - finished)


def _count(folder: Path) -> int | None:
    questions = runs.manifest(folder).get("questions")
    count = questions.get("count") if isinstance(questions, dict) else None
    return count if isinstance(count, int) else None


# --- What is recorded -----------------------------------------------------------------------


def specification(plan: Plan, cell: Cell) -> dict[str, Json]:
    """What decides a run's result, as far as the experiment tells it; it stands in its run.json.

    Where the corpus and the weights lie is no part of it: their hashes stand beside it.
    """
    entry = cell.entry
    system, model, data = plan.system(entry), plan.model(entry), plan.dataset(entry)
    return {
        "strategy": system.strategy,
        "preset": plan.preset(entry),
        "reader": system.reader or None,
        "k": cell.setting.k,
        "max_steps": system.max_steps or None,
        "max_passages": system.max_passages or None,
        "options": names.told({**model.strategy_options, **system.options}),
        "family": model.family,
        "model": model.model,
        "model_options": names.told(model.options),
        "adapter": Path(model.adapter).name or None,
        "fuse": model.fuse,
        "reproducible": model.reproducible,
        "retriever": (data.search or "").partition(":")[0] or None,
        "retriever_options": names.told(data.retriever_options),
        "demonstrations": _digest(plan, cell),
    }


def _digest(plan: Plan, cell: Cell) -> str:
    given = demonstrations(plan, cell)
    own = Demonstrations.from_cot(own_demonstrations())
    return (own if given is None else given).digest()


def resolved(plan: Plan, asked: Asked) -> dict[str, Json]:
    """All that experiment.json says but for times."""
    told = cast(dict[str, Any], json.loads(json.dumps(dataclasses.asdict(plan.experiment))))
    for model in told["models"]:
        model["options"] = names.told(model["options"])
    return {
        "format": FORMAT,
        "multihop": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "experiment": told,
        "plan": plan.to_dict(),
        "notes": list(plan.notes),
        "questions": {
            f"{name}/{part}": {"sha256": found.sha256, "count": found.count}
            for (name, part), found in asked.fingerprints.items()
        },
        "runs": _specifications(plan),
    }


def start(folder: Path, plan: Plan, asked: Asked) -> None:
    """Make the folder, or make sure that what it holds belongs to this experiment.

    How runs are scored may change at any time, and the grid, the data sets, models and systems
    may grow or shrink. What there is of a run must have been run as it would be now.

    Raises:
        BadInput: Runs in the folder were run otherwise; nothing was changed. Or there is
            something else in the folder.
    """
    record = resolved(plan, asked)
    path = folder / EXPERIMENT
    # Listed before the look for the file, which another process may just be making.
    others = not folder.is_dir() or any(
        not each.name.startswith(f".{EXPERIMENT}") for each in folder.iterdir()
    )
    if path.exists():
        read(folder)  # of this format
        _check(folder, plan, asked)
    elif folder.exists() and others:
        raise BadInput(f"{folder}: is not an experiment's folder and not empty. Choose another.")
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    started = read(folder)["started"] if path.exists() else now
    text = json.dumps({**record, "started": started, "latest": now}, indent=1)
    files.write(path, text + "\n")


def _specifications(plan: Plan) -> dict[str, Json]:
    """Of the runs that are certain; those of one grid differ in K, M and demonstrations alone."""
    return {cell.name: specification(plan, cell) for cell in plan.cells()}


def _check(folder: Path, plan: Plan, asked: Asked) -> None:
    for entry in plan.entries:
        for cell in (*entry.dev(), *(each for s in entry.grid for each in entry.test(s))):
            path = folder / cell.name
            if not (path / runs.RUN).exists():
                continue
            found = runs.manifest(path)
            parts, questions = found.get("parts"), found.get("questions")
            before = parts.get("experiment") if isinstance(parts, dict) else None
            now = specification(plan, cell)
            key = _differing(before if isinstance(before, dict) else {}, now)
            wanted = asked.fingerprints[entry.dataset, cell.part].sha256
            if not key and isinstance(questions, dict) and questions.get("sha256") != wanted:
                key = "other questions"
            if key:
                raise BadInput(
                    f"{path}: was run with {key}. Give the experiment another name or folder, or "
                    "the data set, system or model another name; or remove this run."
                )


def _differing(before: Mapping[str, Json], now: Mapping[str, Json]) -> str:
    for key, value in now.items():
        if before.get(key) != value:
            return f"{key} {json.dumps(before.get(key))} (now: {json.dumps(value)})"
    return ""


def read(folder: Path) -> dict[str, Any]:
    """What an experiment's folder says of itself.

    Raises:
        BadInput: It is none, or of another format.
    """
    path = folder / EXPERIMENT
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{folder}: is not an experiment's folder (no {EXPERIMENT}).") from None
    except ValueError as broken:
        raise BadInput(f"{path}: not JSON ({broken}).") from None
    version = record.get("format") if isinstance(record, dict) else None
    if version != FORMAT:
        raise BadInput(
            f"{path}: format {version!r}, this program reads {FORMAT}. "
            "Read it with the release that wrote it."
        )
    return cast(dict[str, Any], record)


def read_plan(folder: Path) -> Plan:
    """The plan that a folder was made by; nothing outside of the folder is looked at.

    Raises:
        BadInput: The folder is none of an experiment, or damaged.
    """
    record, where = read(folder), str(folder / EXPERIMENT)
    try:
        told = record["experiment"]
        experiment = typed_toml.record(Experiment, told, where)
        entries = entries_from(record["plan"], where)
        return Plan(experiment, entries, tuple(str(note) for note in record["notes"]))
    except KeyError as missing:
        raise BadInput(f"{where}: has no {missing}.") from None
