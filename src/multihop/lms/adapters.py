"""Adapters: small files that change what a model writes, and the cards that say what they fit.

An adapter is a folder:

    card.json                    what it is (`AdapterCard`)
    README.md                    the same for people
    adapter_model.safetensors    peft's form, with adapter_config.json: transformers, vLLM
    adapter.gguf                 llama.cpp's form: the embedded engine

An adapter that meets another base model or other prompts than it was trained with writes worse
than none, and nothing else would tell. So what its card says is compared before it is used.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from multihop.errors import BadInput
from multihop.lms.digest import file_digest
from multihop.text import Json

FORMAT = 1
"""Version of card.json. Others are refused."""

CARD, GGUF = "card.json", "adapter.gguf"
PEFT = ("adapter_config.json", "adapter_model.safetensors")

Reader = Literal["cot", "direct", "none"]

_NOTHING: Mapping[str, Json] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptForm:
    """The prompts that an adapter was trained on.

    Attributes:
        preset: Name of the preset that writes them.
        words: Words of a passage shown.
        shots: Demonstrations before the question.
        reader: Who reads the answer unless told otherwise: "cot", "direct" or "none".
        read_instruction: Stands before the question where the bare answer is asked for.
    """

    preset: str = "trained"
    words: int = 70
    shots: int = 0
    reader: Reader = "cot"
    read_instruction: str = "Answer the following question.\n"

    def __str__(self) -> str:
        """In words, for messages."""
        shots = f"{self.shots} demonstrations" if self.shots else "no demonstrations"
        return f"preset {self.preset!r} ({shots}, passages of {self.words} words)"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """The model that an adapter adapts.

    Attributes:
        name: As users call it: "SmolLM2-135M-Instruct".
        digest: SHA-256 of the weights' file, where it was one file; else empty.
        repository: Hugging Face's name of it, as org/name; empty when it has none.
    """

    name: str
    digest: str = ""
    repository: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """What a part of the training examples was made from.

    Attributes:
        name: The data set, or the file.
        licence: Under which its questions and passages may be used.
        questions: How many of its questions were learned from.
        examples: How many examples were made of them.
    """

    name: str
    licence: str
    questions: int
    examples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary:
    """How an adapter was made.

    Attributes:
        data: What it learned from.
        config: SHA-256 of the configuration, or of what it said.
        seed: Of the run.
        steps: Optimizer steps of the weights that were kept.
        tokens: Evaluated in training.
        loss: Validation loss of these weights in nats a token; None without validation.
        settings: The configuration itself, and whatever else tells how.
    """

    data: tuple[DataSet, ...]
    config: str
    seed: int
    steps: int
    tokens: int
    loss: float | None = None
    settings: Mapping[str, Json] = field(default_factory=lambda: _NOTHING, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterCard:
    """What an adapter is, what it fits, and how it came to be.

    Attributes:
        name: Plain, without blanks or slashes; vLLM knows the adapter by it too.
        base: The model that it adapts.
        files: SHA-256 of its files, by name.
        form: The prompts that it was trained on.
        training: How it was made.
        scores: Measured results, by whatever names; they are shown, not used.
        licence: Of the adapter itself.
        created: The day, as 2026-12-01.
        multihop: The version that made it.
    """

    name: str
    base: BaseModel
    files: Mapping[str, str] = field(hash=False)
    form: PromptForm
    training: TrainingSummary
    licence: str
    created: str
    multihop: str
    scores: Mapping[str, Json] = field(default_factory=lambda: _NOTHING, hash=False)

    @property
    def digest(self) -> str:
        """What tells the adapter from others of its name: its files and its form."""
        text = json.dumps([dict(self.files), dataclasses.asdict(self.form)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """As card.json holds it."""
        return json.dumps({"format": FORMAT, **_plain(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> "AdapterCard":
        """Read a card.

        Args:
            text: What `to_json` gave.
            where: The file, for messages.

        Raises:
            BadInput: It is no card, of another format, or a value is not what it must be.
        """
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as broken:
            raise BadInput(f"{where}: not the card of an adapter: not JSON ({broken}).") from None
        if not isinstance(record, dict):
            raise BadInput(f"{where}: not the card of an adapter: no JSON object.")
        version = record.pop("format", None)
        if version != FORMAT:
            raise BadInput(
                f"{where}: a card of format {version!r}, this program reads {FORMAT}. "
                "Read it with the release that wrote it."
            )
        try:
            card = cast(AdapterCard, _read(cls, record, ""))
            _check(card)
        except ValueError as wrong:
            raise BadInput(f"{where}: not the card of an adapter: {wrong}.") from None
        return card


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter on disk.

    Attributes:
        folder: Where its files are.
        card: What it says of itself.
    """

    folder: Path
    card: AdapterCard

    @property
    def name(self) -> str:
        """The card's name, which requests use."""
        return self.card.name

    def file(self, name: str) -> Path:
        """One of its files, once its content is what the card says.

        Raises:
            BadInput: It is missing, not named by the card, or another.
        """
        path = self.folder / name
        if not path.is_file():
            hint = (
                f" Make it with `multihop train export {self.folder}`."
                if name == GGUF and (self.folder / PEFT[1]).is_file()
                else ""
            )
            raise BadInput(f"Adapter {self.name!r}: {self.folder} has no {name}.{hint}")
        if name not in self.card.files:
            raise BadInput(f"Adapter {self.name!r}: its card does not name {path}.")
        if file_digest(path) != self.card.files[name]:
            raise BadInput(
                f"Adapter {self.name!r}: {path} is not the file that its card names "
                "(another SHA-256). Fetch the adapter again, or make it and its card anew."
            )
        return path

    def gguf_for(self, model: Path, *, chat: bool = False) -> Path:
        """The file for the embedded engine, on this model file.

        Args:
            model: The base model's file.
            chat: Whether prompts are sent through the model's chat template.

        Raises:
            BadInput: The model is another than the adapter was trained on, the prompts are no
                plain text, or the file is bad.
        """
        self.check_plain(chat=chat)
        self._check_file(model)
        return self.file(GGUF)

    def _check_file(self, model: Path) -> None:
        base = self.card.base
        if base.digest:
            same = file_digest(model) == base.digest
            found = f"{model.name} is another file"
            wanted = f"{base.name} (SHA-256 {base.digest[:12]}...)"
        else:
            same = _letters(base.name) in _letters(model.name)
            found = f"{model.name} does not have it in its name"
            wanted = base.name
        if not same:
            raise BadInput(
                f"Adapter {self.name!r} was trained on {wanted}; {found}. "
                "Choose that model, or use no adapter."
            )

    def check_plain(self, *, chat: bool) -> None:
        """Make sure that prompts are sent as they were in training: as plain text.

        Raises:
            BadInput: A chat template is put around them.
        """
        if chat:
            raise BadInput(
                f"Adapter {self.name!r} was trained on plain prompts; a chat template changes "
                "them. Leave the chat setting out, or use no adapter."
            )

    def peft_for(self, model: str, *, chat: bool = False) -> Path:
        """The folder for transformers, on this model.

        The weights of a repository cannot be compared with those of a GGUF file, so names are:
        the repository's, or a local folder's: its own, or what its config.json calls it.

        Args:
            model: A Hugging Face repository, a local folder, or a .gguf file.
            chat: Whether prompts are sent through the tokenizer's chat template.

        Raises:
            BadInput: The model is another than the adapter was trained on, the prompts are no
                plain text, or a file is bad.
        """
        self.check_plain(chat=chat)
        base, folder = self.card.base, Path(model)
        if folder.is_file():
            self._check_file(folder)
            same = True
        elif folder.is_dir():
            same = not _last_parts(base.name, base.repository).isdisjoint(_called(folder))
        elif base.repository and "/" in model:
            same = model.lower() == base.repository.lower()
        else:
            same = _last_parts(model) == _last_parts(base.name)
        if not same:
            raise BadInput(
                f"Adapter {self.name!r} was trained on {base.repository or base.name}, not on "
                f"{model}. Choose that model (a folder of it is known by its name), or use no "
                "adapter."
            )
        for name in PEFT:
            self.file(name)
        return self.folder


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder. Its files are compared with the card when they are used.

    Raises:
        BadInput: The folder has no card, or a bad one.
    """
    try:
        text = (folder / CARD).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(
            f"{folder}: has no {CARD}, so it is not known which model and prompts it is for. "
            "docs/adapters.md says how to write one."
        ) from None
    except UnicodeDecodeError as broken:
        raise BadInput(f"{folder / CARD}: not the card of an adapter: {broken}.") from None
    return Adapter(folder, AdapterCard.from_json(text, str(folder / CARD)))


def find_adapter(name: str) -> Adapter:
    """The adapter that a name means.

    Args:
        name: One that this package carries, or the path of a folder.

    Raises:
        BadInput: There is none, or its card is bad.
    """
    ours = packaged()
    if name in ours:
        return read_adapter(ours[name])
    folder = Path(name).expanduser()
    if folder.is_dir():
        return read_adapter(folder)
    known = ", ".join(ours) or "none"
    raise BadInput(f"No adapter is named {name!r}, and no folder. Packaged: {known}.")


def packaged() -> dict[str, Path]:
    """The folders of the adapters that this package carries, by name."""
    root = files("multihop") / "data" / "adapters"
    if not isinstance(root, Path) or not root.is_dir():  # none, or inside of an archive
        return {}
    return {path.parent.name: path.parent for path in sorted(root.glob(f"*/{CARD}"))}


def packaged_for(base: str) -> Adapter | None:
    """The packaged adapter for a base model of this name; the first by name, if there are more.

    Raises:
        BadInput: A card is bad.
    """
    for folder in packaged().values():
        adapter = read_adapter(folder)
        if adapter.card.base.name == base:
            return adapter
    return None


def resolved(adapters: Mapping[str, "Path | str | Adapter"]) -> dict[str, Path | Adapter]:
    """What a backend was told to load: adapters where there is a card, else plain paths."""
    found: dict[str, Path | Adapter] = {}
    for name, given in adapters.items():
        if isinstance(given, Adapter):
            found[name] = given
        else:
            path = Path(given).expanduser()
            found[name] = read_adapter(path) if (path / CARD).is_file() else path
    return found


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _last_parts(*names: str) -> set[str]:
    return {name.rpartition("/")[2].lower() for name in names if name}


def _called(folder: Path) -> set[str]:
    """What a folder with a model may be called; Hugging Face's cache names the one above."""
    found = {folder.resolve().name}
    found |= {part.rpartition("--")[2] for part in folder.resolve().parts if "models--" in part}
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        found.add(str(config["_name_or_path"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the model itself will be refused for it
    return _last_parts(*found)


# --- The card's JSON ------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


_INNER: Mapping[str, type] = {
    "base": BaseModel,
    "form": PromptForm,
    "training": TrainingSummary,
    "data": DataSet,
}
"""The fields that are records themselves; `data` is a list of them."""


def _read(kind: type, record: object, where: str) -> object:
    if not isinstance(record, dict):
        raise ValueError(f"{where or 'it'} is no object")  # noqa: TRY004 - it is about a file
    known = {f.name: f for f in dataclasses.fields(kind)}
    if strange := sorted(record.keys() - known.keys()):
        raise ValueError(f"{where}{strange[0]} is unknown")
    values: dict[str, object] = {}
    for name, each in known.items():
        if name not in record:
            raise ValueError(f"{where}{name} is missing")
        values[name] = _value(name, each.type, record[name], where)
    return kind(**values)


def _value(name: str, declared: object, found: object, where: str) -> object:
    if name == "data":
        if not isinstance(found, list):
            raise ValueError(f"{where}data is no list")
        return tuple(_read(DataSet, each, f"{where}data.") for each in found)
    if name in _INNER:
        return _read(_INNER[name], found, f"{where}{name}.")
    fits = {
        str: isinstance(found, str),
        int: type(found) is int and found >= 0,
        float | None: found is None or type(found) in (int, float),
        Reader: found in get_args(Reader),
    }.get(cast(Any, declared), isinstance(found, dict))
    if not fits:
        raise ValueError(f"{where}{name} is {str(found)[:60]!r}")
    return found


def _check(card: AdapterCard) -> None:
    """What types do not say."""
    if not _NAME.fullmatch(card.name):
        raise ValueError(f"name is {card.name!r}; letters, digits, dots and dashes make a name")
    if not card.base.name:
        raise ValueError("base.name is empty")
    if card.base.digest and not _SHA256.fullmatch(card.base.digest):
        raise ValueError(f"base.digest is {card.base.digest!r}, no SHA-256")
    if card.form.words < 1:
        raise ValueError(f"form.words is {card.form.words}")
    if not card.files:
        raise ValueError("files names none")
    for name, digest in card.files.items():
        if os.path.basename(name) != name or not _NAME.fullmatch(name):  # noqa: PTH119
            raise ValueError(f"files names {name!r}, which is no plain file name")
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise ValueError(f"files.{name} is {str(digest)[:60]!r}, no SHA-256")
