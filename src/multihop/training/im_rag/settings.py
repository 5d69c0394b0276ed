"""A configuration as records and cards hold it."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multihop.text import Json
from multihop.training.finish import plain_model
from multihop.training.im_rag.config import Config


def flat(config: Config, tables: Sequence[str]) -> dict[str, Json]:
    """Tables of a configuration as JSON, of files only their names."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    plain["model"]["base"] = plain_model(config.model.base)
    plain["start"]["questioner"] = Path(config.start.questioner).name
    data = plain["data"]
    for source in data["sets"]:
        source["questions"] = [Path(name).name for name in source["questions"]]
        source["index"] = Path(source["index"]).name
    for name in ("never", "runs"):
        data[name] = [Path(each).name for each in data[name]]
    return {f"{table}.{key}": value for table in tables for key, value in plain[table].items()}
