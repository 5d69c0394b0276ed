"""Configurations: what is read, and what is refused in one line."""

import dataclasses

import pytest

from conftest import ROOT
from multihop.errors import BadInput
from multihop.training.config import Config, Data, parse, read

PAGE = (ROOT / "docs" / "training.md").read_text("utf-8")
LESSONS = {"data": {"lessons": "l.jsonl"}}
SET = {"name": "own", "licence": "CC0", "questions": ["q.jsonl"], "index": "i"}


def test_what_is_not_said_has_its_default() -> None:
    found = parse(LESSONS)
    assert found == Config(data=Data(lessons="l.jsonl"))


def test_paths_are_from_where_the_file_is(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PLACE", "/elsewhere")
    (tmp_path / "model").mkdir()
    path = tmp_path / "c.toml"
    path.write_text(
        '[model]\nbase = "model"\n[data]\nnever = ["$PLACE/dev.jsonl"]\n'
        '[[data.sets]]\nname = "own"\nlicence = "CC0"\nquestions = ["q.jsonl", "musique:m.jsonl", "musique:train"]\n'
        'index = "../i"\n'
        '[output]\nname = "mine"\n'
    )
    found = read(path)
    assert found.model.base == str(tmp_path / "model")
    assert found.data.sets[0].questions == (
        str(tmp_path / "q.jsonl"),
        f"musique:{tmp_path / 'm.jsonl'}",
        "musique:train",
    )
    assert found.data.sets[0].index == str(tmp_path / "../i")
    assert found.data.never == ("/elsewhere/dev.jsonl",)
    assert found.output.folder == str(tmp_path / "mine")
    assert found.data.lessons == ""


def test_a_repository_is_no_path(tmp_path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[model]\nbase = "org/repo"\n[data]\nlessons = "l.jsonl"\n')
    assert read(path).model.base == "org/repo"


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"modle": {}}, r"unknown table \[modle\]"),
        ({"train": {"lrr": 1}}, "unknown key train.lrr"),
        ({"train": {"lr": 0}}, r"train.lr is 0; it must be above 0"),
        ({"train": {"lr": float("nan")}}, r"train.lr is nan"),
        ({"train": {"warmup": 1.5}}, r"at least 0 and at most 1"),
        ({"train": {"batch": 1.5}}, r"train.batch is 1.5; it must be a whole number"),
        ({"train": {"batch": True}}, r"train.batch is True; it must be a whole number"),
        ({"train": {"pack": 1}}, r"train.pack is 1; it must be true or false"),
        ({"train": {"schedule": "cos"}}, r"known: cosine, linear, constant"),
        ({"train": 3}, r"train must be a table"),
        ({"model": {"targets": "q_proj"}}, r"model.targets is 'q_proj'; it must be a list"),
        ({"model": {"targets": [1]}}, r"model.targets is 1; it must be text"),
        ({"model": {"method": "full", "layers": 2}}, "model.layers is for adapters"),
        ({"model": {"attention": "flash_attention_2"}}, "Set train.pack = false"),
        ({"data": {}}, r"needs either tables \[\[data.sets\]\] or `lessons`"),
        ({"data": {"lessons": "l", "sets": [SET]}}, "needs either"),
        ({"data": {"sets": [{"name": "own"}]}}, "table 1: licence, questions, index missing"),
        ({"data": {"sets": [{**SET, "questions": []}]}}, "table 1: no questions"),
        ({"data": {"sets": [SET], "k": [0]}}, "numbers of at least 1"),
        ({"data": {"lessons": "l", "skills": []}}, "nothing would be taught"),
        ({"data": {"lessons": "l", "skills": ["reed"]}}, "known: next, query, read, fact"),
        ({"output": {"name": "a/b"}}, "must be a plain name"),
    ],
)
def test_what_is_wrong_is_named(tables, words) -> None:
    with pytest.raises(BadInput, match=words) as refusal:
        parse({**LESSONS, **tables}, "c.toml")
    assert str(refusal.value).startswith("c.toml")
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_no_toml_is_refused(tmp_path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[model\n")
    with pytest.raises(BadInput, match="not TOML"):
        read(path)
    path.write_bytes(b'a = "\xff"')
    with pytest.raises(BadInput, match="not TOML"):
        read(path)
    with pytest.raises(BadInput, match="No such file"):
        read(tmp_path / "none.toml")


@pytest.mark.parametrize("table", ["model", "data", "train", "output"])
def test_the_docs_name_every_key_with_its_default(table) -> None:
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    said = {
        name.strip("` "): default.strip("` ")
        for names, values, *_ in (row for row in rows if len(row) > 2)
        for name, default in zip(
            names.strip("| ").split(", "), f"{values} , ".split(", "), strict=False
        )
    }
    for each in dataclasses.fields(type(getattr(Config(), table))):
        default = each.default
        assert f"{table}.{each.name}" in said
        written = said[f"{table}.{each.name}"]
        if isinstance(default, bool):
            assert written == str(default).lower()
        elif isinstance(default, int | float):
            assert float(written) == default, each.name
        elif isinstance(default, str) and default:
            assert written == default


def test_the_shipped_recipe_is_read() -> None:
    found = read(ROOT / "recipes" / "ircot-smollm2-135m.toml")
    assert {source.name for source in found.data.sets} == {"2WikiMultihopQA", "HotpotQA", "MuSiQue"}
    assert len(found.data.never) == 3
