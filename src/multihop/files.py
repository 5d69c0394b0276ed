"""Files that are written whole, and JSON files with a version in them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multihop.errors import BadInput


def write(path: Path, text: str, *, replace: bool = True) -> bool:
    """Give a file its content at once: readers see all of it or nothing, never a part.

    Args:
        path: The file.
        text: Its content.
        replace: Replace an existing file; else leave it as it is.

    Returns:
        Whether the file was written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if replace:
        temporary.replace(path)
        return True
    try:
        os.link(temporary, path)
    except FileExistsError:  # another process was first
        return False
    finally:
        temporary.unlink()
    return True


def write_record(path: Path, record: Mapping[str, object]) -> None:
    """Write JSON data, and make the file's folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, json.dumps(record, indent=1) + "\n")


def read_record(
    path: Path, version: int, what: str, *, again: str, missing: str = ""
) -> dict[str, Any]:
    """JSON data whose field `format` is the version wanted.

    Args:
        path: The file.
        version: The version that is read.
        what: What the file holds, as "router".
        again: What to do where it holds something else, as a sentence.
        missing: What to do where it cannot be read, as a sentence.

    Raises:
        BadInput: It cannot be read, is no JSON, or is of another version.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        hint = missing and f" {missing}"
        raise BadInput(f"{path}: cannot be read ({failure.strerror}).{hint}") from None
    except (ValueError, RecursionError) as broken:
        raise BadInput(f"{path}: not JSON ({broken}).") from None
    if not isinstance(record, dict) or record.get("format") != version:
        raise BadInput(f"{path}: no {what} of format {version}. {again}")
    return record
