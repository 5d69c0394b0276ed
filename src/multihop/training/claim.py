"""Makes sure that a run folder goes on with the configuration that it began with.

`config.json` in the folder holds the settings and a hash of the lessons.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from multihop import files
from multihop.errors import BadInput
from multihop.text import Json
from multihop.training.config import Config
from multihop.training.examples import Lesson
from multihop.training.finish import plain_settings

CONFIG = "config.json"

FREE = ("train.threads", "train.save_minutes")
"""What may change between two sittings; so may all of [output]."""


def check(config: Config, folder: Path) -> None:
    """Make sure that the folder is free or holds this very run; change nothing.

    Raises:
        BadInput: It holds a run of other settings; the first one that differs is named.
    """
    _check(folder, _settings(config))


def start(config: Config, lessons: Sequence[Lesson], folder: Path) -> None:
    """Check, lessons too, and write down what the run is where that is not written yet.

    Raises:
        BadInput: As `check`, or the lessons are others.
    """
    wanted = _settings(config)
    digest = hashlib.sha256()
    for lesson in lessons:
        digest.update(json.dumps(asdict(lesson), sort_keys=True).encode() + b"\n")
    wanted["lessons"] = digest.hexdigest()
    _check(folder, wanted)
    if not (folder / CONFIG).exists():
        files.write(folder / CONFIG, json.dumps(wanted, indent=1, sort_keys=True) + "\n")


def _settings(config: Config) -> dict[str, Json]:
    tables = plain_settings(config)
    tables.pop("output")
    flat: dict[str, Json] = {}
    for table, values in tables.items():
        assert isinstance(values, dict)
        flat |= {f"{table}.{key}": value for key, value in values.items()}
    return {name: value for name, value in flat.items() if name not in FREE}


def _check(folder: Path, wanted: Mapping[str, Json]) -> None:
    path = folder / CONFIG
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise BadInput(f"{folder}: is a file. Choose another output.folder.") from None
    except ValueError as broken:
        raise BadInput(f"{path}: not JSON ({broken}).") from None
    for name, value in wanted.items():
        if name in found and found[name] == value:
            continue
        what = (
            "other lessons (the question files, the corpus or the rules have changed)"
            if name == "lessons"
            else f"{name} = {json.dumps(found.get(name))[:80]} (now: {json.dumps(value)[:80]})"
        )
        raise BadInput(
            f"{folder}: holds a run with {what}. Choose another output.folder, delete this one, "
            "or go on with its own settings."
        )
