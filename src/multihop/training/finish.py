"""The last step of a run: from the best weights to a folder with a card."""

import dataclasses
import hashlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

from multihop.errors import BadInput
from multihop.lms.adapters import Adapter, BaseModel, DataSet, PromptForm, TrainingSummary
from multihop.lms.digest import file_digest
from multihop.lms.gguf import DEFAULT, find_model
from multihop.strategies.rules import TRAINED
from multihop.text import Json
from multihop.training import card
from multihop.training.config import Config
from multihop.training.sft import Result

ADAPTER = "adapter"
"""The folder's name in that of the run."""

REPOSITORIES = {DEFAULT: "HuggingFaceTB/SmolLM2-135M-Instruct"}
"""Where the models that we know by a name of our own come from."""


def finish(config: Config, parts: Sequence[DataSet], result: Result) -> Adapter:
    """Make the adapter's folder, `adapter` in the run's.

    Args:
        config: Of the run.
        parts: What was learned from.
        result: Of the training: a LoRA adapter.

    Raises:
        BadInput: The name or the licence cannot stand on a card.
        MissingExtra: gguf or safetensors is not installed.
    """
    folder = Path(config.output.folder)
    base, weights = base_model(config.model.base)
    settings = plain_settings(config)
    return card.write(
        result.best,
        folder / ADAPTER,
        name=config.output.name,
        base=base,
        weights=weights,
        form=PromptForm(
            preset=TRAINED.name,
            words=config.data.words,
            shots=TRAINED.shots or 0,
            reader=TRAINED.reader,
            read_instruction=TRAINED.read_instruction,
        ),
        training=TrainingSummary(
            data=tuple(parts),
            config=hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
            seed=config.train.seed,
            steps=result.step,
            tokens=evaluated(folder / "curves.jsonl", result.step),
            loss=result.valid.get(""),
            settings=settings,
        ),
        licence=config.output.licence or "unknown",
    )


def base_model(name: str) -> tuple[BaseModel, Path | None]:
    """The base model as a card names it, and where its sizes can be read.

    Args:
        name: As the configuration says: see `config.Model.base`.
    """
    if name == DEFAULT or name.endswith(".gguf"):
        path = find_model(name)
        called = name if name == DEFAULT else path.stem
        repository = REPOSITORIES.get(name, "")
        return BaseModel(name=called, digest=file_digest(path), repository=repository), path
    folder = Path(name)
    if folder.is_dir():
        return BaseModel(name=folder.resolve().name), folder
    return BaseModel(name=name.rpartition("/")[2], repository=name), _cached(name)


def _cached(repository: str) -> Path | None:
    """The folder of a repository's config.json, which training has fetched."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    import huggingface_hub  # noqa: PLC0415

    found = huggingface_hub.try_to_load_from_cache(repository, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def plain_settings(config: Config) -> dict[str, Json]:
    """The configuration as JSON; of files only their names, so that no machine is told of."""
    settings: dict[str, Json] = json.loads(json.dumps(dataclasses.asdict(config)))
    model, data = _table(settings["model"]), _table(settings["data"])
    _table(settings["output"]).pop("folder")
    model["base"] = plain_model(config.model.base)
    data["lessons"] = Path(config.data.lessons).name
    data["never"] = [Path(path).name for path in config.data.never]
    data["sets"] = [
        {
            **json.loads(json.dumps(dataclasses.asdict(source))),
            "questions": [Path(path).name for path in source.questions],
            "index": Path(source.index).name,
        }
        for source in config.data.sets
    ]
    return settings


def plain_model(base: str) -> str:
    """A base model's name; of a path only its last part."""
    return Path(base).name if Path(base).exists() else base


def _table(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict)
    return value


def evaluated(curves: Path, step: int) -> int:
    """Tokens evaluated in training up to a step, over all sittings.

    Raises:
        BadInput: The file is missing or damaged.
    """
    total = newest = 0
    try:
        for line in curves.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record["step"] > step:
                break
            if record["tokens"] < newest:  # each sitting counts from 0
                total += newest
            newest = record["tokens"]
    except (OSError, ValueError, KeyError, TypeError) as broken:
        raise BadInput(f"{curves}: not the curves of a run ({broken}).") from None
    return total + newest
