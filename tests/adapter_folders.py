"""Folders of adapters whose weights are nobody's."""

import hashlib
from dataclasses import replace
from pathlib import Path

from multihop.lms.adapters import (
    AdapterCard,
    BaseModel,
    DataSet,
    PromptForm,
    TrainingSummary,
)

FILES = {
    "adapter.gguf": b"GGUF of nobody",
    "adapter_config.json": b"{}",
    "adapter_model.safetensors": b"nobody",
}
CARD = AdapterCard(
    name="loop",
    base=BaseModel(name="SmolLM2-135M-Instruct", repository="HuggingFaceTB/SmolLM2-135M-Instruct"),
    files={name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()},
    form=PromptForm(),
    training=TrainingSummary(
        data=(DataSet(name="HotpotQA", licence="CC BY-SA 4.0", questions=197, examples=1200),),
        config="c" * 64,
        seed=7,
        steps=139,
        tokens=223_000,
        loss=0.25,
        settings={"train": {"lr": 0.001}},
    ),
    licence="Apache-2.0",
    created="2026-12-01",
    multihop="0.1.0",
    scores={"2WikiMultihopQA": {"F1": 0.41}},
)


def adapter_folder(folder: Path, **changes) -> Path:
    """An adapter's folder, with changes of its card."""
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "card.json").write_text(replace(CARD, **changes).to_json())
    return folder
