"""The end of a run: what goes on the card."""

import json
from dataclasses import asdict, replace

import pytest

from multihop.errors import BadInput
from multihop.lms.adapters import DataSet, read_adapter
from multihop.training.config import Config, Data, Model, Output, Source, Train
from multihop.training.finish import base_model, evaluated, finish, plain_settings
from multihop.training.sft import Result
from tiny_gguf import peft_folder, tiny_gguf

PART = DataSet(name="Rivers", licence="CC0", questions=2, examples=9)


def config(tmp_path, base: str) -> Config:
    source = Source(
        name="Rivers",
        licence="CC0",
        questions=(str(tmp_path / "q.jsonl"),),
        index=str(tmp_path / "index"),
    )
    return Config(
        model=Model(base=base),
        data=Data(sets=(source,), never=(str(tmp_path / "dev.jsonl"),), words=50),
        train=Train(seed=3),
        output=Output(name="rivers", folder=str(tmp_path / "run"), licence="Apache-2.0"),
    )


def curves(tmp_path, *lines):
    path = tmp_path / "run" / "curves.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_tokens_are_counted_over_all_sittings_up_to_the_step(tmp_path) -> None:
    steps = [(1, 100), (2, 200), (2, 200), (3, 50), (4, 150), (5, 250)]
    path = curves(tmp_path, *({"step": step, "tokens": tokens} for step, tokens in steps))
    assert evaluated(path, 2) == 200
    assert evaluated(path, 4) == 350
    assert evaluated(path, 9) == 450
    with pytest.raises(BadInput, match="not the curves of a run"):
        evaluated(tmp_path / "none.jsonl", 1)


def test_settings_name_no_folder_and_are_the_same_wherever_the_files_are(tmp_path) -> None:
    base = tmp_path / "tiny.gguf"
    base.write_bytes(b"GGUF")
    here = config(tmp_path, str(base))
    settings = plain_settings(here)
    assert str(tmp_path) not in json.dumps(settings)
    assert settings["model"]["base"] == "tiny.gguf"
    assert settings["data"]["sets"][0]["questions"] == ["q.jsonl"]
    assert settings["data"]["never"] == ["dev.jsonl"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tiny.gguf").write_bytes(b"GGUF")
    assert plain_settings(config(elsewhere, str(elsewhere / "tiny.gguf"))) == settings
    assert asdict(here)["output"]["folder"]  # the configuration itself is as it was


def test_base_models_are_named_by_file_folder_or_repository(tmp_path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    file, weights = base_model(str(tmp_path / "tiny.gguf"))
    assert (file.name, len(file.digest), weights) == ("tiny", 64, tmp_path / "tiny.gguf")
    (tmp_path / "Qwen2-1B").mkdir()
    folder, weights = base_model(str(tmp_path / "Qwen2-1B"))
    assert (folder.name, folder.digest, weights) == ("Qwen2-1B", "", tmp_path / "Qwen2-1B")
    repository, _ = base_model("Qwen/Qwen2-1B")
    assert (repository.name, repository.repository) == ("Qwen2-1B", "Qwen/Qwen2-1B")


@pytest.mark.torch
def test_a_run_ends_with_an_adapter_that_can_be_served(tmp_path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("gguf")
    model = tiny_gguf(tmp_path / "tiny.gguf")
    curves(tmp_path, {"step": 1, "tokens": 100}, {"step": 2, "tokens": 220})
    result = Result(
        best=peft_folder(tmp_path / "run" / "best"),
        step=1,
        steps=2,
        valid={"": 0.5},
        finished=True,
        stopped_early=False,
    )
    chosen = config(tmp_path, str(model))
    adapter = finish(chosen, (PART,), result)
    assert adapter == read_adapter(tmp_path / "run" / "adapter")
    assert adapter.gguf_for(model)
    told = adapter.card
    assert (told.name, told.licence, told.form.words) == ("rivers", "Apache-2.0", 50)
    assert told.form.reader == "cot"
    summary = told.training
    assert (summary.data, summary.seed, summary.steps) == ((PART,), 3, 1)
    assert (summary.tokens, summary.loss) == (100, 0.5)
    again = finish(replace(chosen, train=Train(seed=4)), (PART,), result)
    assert again.card.training.config != summary.config
