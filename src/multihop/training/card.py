"""From a trained LoRA adapter to a folder that can be used and given away.

The folder holds the weights in 16 bits in both forms, `card.json`, which is read when the adapter
is used, and `README.md`, which says the same to people.
"""

import dataclasses
import importlib.util
import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from multihop import __version__, files
from multihop.errors import BadInput, MissingExtra
from multihop.lms.adapters import (
    CARD,
    GGUF,
    PEFT,
    Adapter,
    AdapterCard,
    BaseModel,
    PromptForm,
    TrainingSummary,
    read_adapter,
)
from multihop.lms.digest import file_digest
from multihop.text import Json
from multihop.training.export import peft_to_gguf

README = "README.md"

log = logging.getLogger(__name__)


def write(
    trained: Path,
    into: Path,
    *,
    name: str,
    base: BaseModel,
    training: TrainingSummary,
    licence: str,
    weights: Path | None = None,
    form: PromptForm | None = None,
    scores: Mapping[str, Json] | None = None,
) -> Adapter:
    """Make the folder of an adapter.

    Args:
        trained: What peft saved: adapter_config.json and adapter_model.safetensors.
        into: The folder; made when missing. What is there of another adapter is replaced.
        name: Plain, without blanks or slashes.
        base: The model that was trained.
        training: How.
        licence: Of the adapter.
        weights: The base model as a .gguf file or a folder with config.json, for llama.cpp's
            form. None leaves that out; so does, with a warning, an adapter that has none.
        form: The prompts that it was trained on; None is the preset "trained".
        scores: Measured results.

    Raises:
        BadInput: `trained` is no LoRA adapter, or a value cannot stand on a card.
        MissingExtra: safetensors, gguf or torch is not installed.
    """
    draft = AdapterCard(
        name=name,
        base=base,
        files=dict.fromkeys(PEFT, "0" * 64),  # not known yet
        form=form or PromptForm(),
        training=training,
        licence=licence,
        created=datetime.now(UTC).date().isoformat(),
        multihop=__version__,
        scores=dict(scores or {}),
    )
    AdapterCard.from_json(draft.to_json(), f"{into / CARD}")  # refuses what could not be read
    into.mkdir(parents=True, exist_ok=True)
    (into / CARD).unlink(missing_ok=True)  # until all is there again it is no adapter
    _copy(trained, into, base)
    if weights is None:
        (into / GGUF).unlink(missing_ok=True)
    else:
        try:
            peft_to_gguf(into, weights, into / GGUF)
        except BadInput as unfit:
            log.warning("%s: written without %s: %s", into, GGUF, unfit)
            (into / GGUF).unlink(missing_ok=True)
    return _put(into, dataclasses.replace(draft, files=_digests(into)))


def with_scores(folder: Path, scores: Mapping[str, Json]) -> Adapter:
    """Put measured results on a card, in place of those that it has.

    Raises:
        BadInput: The folder has no card, or a bad one.
    """
    card = read_adapter(folder).card
    return _put(folder, dataclasses.replace(card, scores=dict(scores)))


def with_gguf(folder: Path, weights: Path) -> Adapter:
    """Write an adapter's GGUF form, and put it on its card.

    Args:
        folder: The adapter's.
        weights: The base model as a .gguf file or a folder with config.json.

    Raises:
        BadInput: The adapter's other files are not those of its card, or it has no such form.
        MissingExtra: safetensors or gguf is not installed.
    """
    adapter = read_adapter(folder)
    for name in PEFT:
        adapter.file(name)
    peft_to_gguf(folder, weights, folder / GGUF)
    return _put(folder, dataclasses.replace(adapter.card, files=_digests(folder)))


def _put(folder: Path, card: AdapterCard) -> Adapter:
    files.write(folder / README, readme(card))
    files.write(folder / CARD, card.to_json())
    return Adapter(folder, card)


def _digests(folder: Path) -> dict[str, str]:
    names = (*PEFT, GGUF)
    return {name: file_digest(folder / name) for name in names if (folder / name).is_file()}


def _copy(trained: Path, into: Path, base: BaseModel) -> None:
    """The adapter in peft's form, its numbers in 16 bits."""
    config, weights = (trained / name for name in PEFT)
    for path in (config, weights):
        if not path.is_file():
            raise BadInput(f"{path}: there is no such file; {trained} is no LoRA adapter.")
    for package in ("torch", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "train")
    import torch  # noqa: PLC0415
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    found: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
    found["base_model_name_or_path"] = base.repository or base.name
    found["inference_mode"] = True
    if isinstance(found.get("target_modules"), list):  # of a set: in another order each time
        found["target_modules"].sort()
    tensors = {
        key: tensor.to(torch.float16).contiguous() for key, tensor in load_file(weights).items()
    }
    for key, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise BadInput(f"{weights}: {key} holds numbers that 16 bits cannot.")
    draft = into / f".{PEFT[1]}"
    save_file(tensors, draft, {"format": "pt"})
    draft.chmod(0o644)
    draft.replace(into / PEFT[1])
    files.write(into / PEFT[0], json.dumps(found, indent=1, sort_keys=True) + "\n")


# --- The card for people --------------------------------------------------------------------


def readme(card: AdapterCard) -> str:
    """The model card, as Markdown with the front matter that model hubs read."""
    base, form, training = card.base, card.form, card.training
    loss = "not measured" if training.loss is None else f"{training.loss:.4f} nats a token"
    return f"""\
---
license: {card.licence.lower()}
base_model: {base.repository or base.name}
library_name: peft
pipeline_tag: text-generation
tags: [lora, question-answering, multi-hop, ircot]
---

# {card.name}

A LoRA adapter that teaches {base.name} the loop of IRCoT (Trivedi et al., ACL 2023): write one
sentence of a chain of thought, search with it, write the next, state the answer. It is for
questions whose evidence stands in several passages. Made by multihop {card.multihop} on
{card.created}.

{_facts(card)}

## Data

{_data(training)}

## Training

Seed {training.seed}; {training.steps:,} steps, {training.tokens:,} tokens evaluated; validation
loss {loss}. SHA-256 of the configuration: `{training.config}`.
{_settings(training.settings)}
## Scores

{_scores(card.scores)}

## Prompts

It was trained on prompts of {form}, sent as plain text, not through a chat template: the passages,
`Q:` and the question, `A:` and the chain so far, which it goes on with. Where the bare answer is
wanted, `{form.read_instruction.strip()}` stands before the question. It has seen no others.

## Use

{_use(card)}

## Limits

An adapter does not make a model know more. Chains may be wrong where the passages are, and where a
question needs more hops than those that it learned from.

## Files

{_files(card)}
"""


def _facts(card: AdapterCard) -> str:
    base = card.base
    rows = [
        ("base model", base.repository or base.name),
        ("its weights' SHA-256", f"`{base.digest}`" if base.digest else "any, by name"),
        ("licence", card.licence),
        ("prompts", str(card.form)),
        ("reader", card.form.reader),
    ]
    return _table(("", ""), rows)


def _data(training: TrainingSummary) -> str:
    if not training.data:
        return "Not recorded."
    rows = [
        (part.name, part.licence, f"{part.questions:,}", f"{part.examples:,}")
        for part in training.data
    ]
    return _table(("data", "licence", "questions", "examples"), rows)


def _settings(settings: Mapping[str, Json]) -> str:
    if not settings:
        return ""
    return "\n```json\n" + json.dumps(dict(settings), indent=1) + "\n```\n"


def _scores(scores: Mapping[str, Json]) -> str:
    """A table of names and values; of several columns where each value is a table itself."""
    if not scores:
        return "Not measured yet."
    tables = [value for value in scores.values() if isinstance(value, dict)]
    if len(tables) < len(scores):
        return _table(("", ""), [(name, _worded(value)) for name, value in scores.items()])
    columns = list(dict.fromkeys(column for table in tables for column in table))
    rows = [
        (name, *(_worded(table.get(column)) for column in columns))
        for name, table in zip(scores, tables, strict=True)
    ]
    return _table(("", *columns), rows)


def _files(card: AdapterCard) -> str:
    rows = [(f"`{name}`", f"`{digest}`") for name, digest in card.files.items()]
    return _table(("file", "SHA-256"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _worded(value: Json) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _use(card: AdapterCard) -> str:
    base, name = card.base, card.name
    repository = base.repository or base.name
    model = f"local:{base.name}" if GGUF in card.files else f"transformers:{repository}"
    return f"""\
With multihop, which knows the prompts from `card.json` (give the folder where `{name}` is not
packaged):

```sh
multihop ask "QUESTION" --index INDEX --model {model} --adapter {name}
```

With peft:

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("{repository}")
model = PeftModel.from_pretrained(model, "path/to/{name}")
```

With vLLM, and multihop in front of it:

```sh
vllm serve {repository} --enable-lora --lora-modules {name}=path/to/{name}
multihop ask "QUESTION" --index INDEX --model openai:{repository}@http://localhost:8000/v1 \\
  --adapter path/to/{name}
```"""
