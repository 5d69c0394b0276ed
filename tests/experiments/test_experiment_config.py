"""Experiment files: what is read, and what is refused in one line."""

import dataclasses
import re
import tomllib

import pytest

from adapter_folders import adapter_folder
from conftest import ROOT
from multihop.errors import BadInput
from multihop.experiments.config import (
    Dataset,
    Experiment,
    Metrics,
    Model,
    System,
    all_datasets,
    parse,
    read,
)
from multihop.experiments.plan import Setting, demonstrations, plan

PAGE = (ROOT / "docs" / "experiments.md").read_text("utf-8")
DATA = {"name": "a", "test": "t.jsonl", "dev": "d.jsonl", "index": "i"}
OTHER = {**DATA, "name": "b", "index": "j"}
BASE = {"datasets": [DATA], "systems": [{"strategy": "ircot"}]}
RELEASE = {**DATA, "demonstrations": ["official:prompts/a"], "sets": [1, 2, 3]}


def test_a_system_is_named_by_its_strategy_and_the_model_is_the_default_one() -> None:
    found = parse(BASE)
    assert [system.name for system in found.systems] == ["ircot"]
    assert found.models == (Model(name="SmolLM2-135M-Instruct"),)
    assert found.metrics.rule == "paper"


def test_paths_are_from_where_the_file_is_and_variables_are_expanded(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PLACE", "/elsewhere")
    (tmp_path / "script.json").touch()
    (tmp_path / "dev.json").touch()
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[datasets]]\nname = "a"\ntest = "$PLACE/t.jsonl"\ndev = "hotpotqa:dev.json"\n'
        'retriever = "bm25:i"\ndemonstrations = ["official:p"]\n'
        '[[datasets]]\nname = "b"\ntest = "hotpotqa:dev"\nindex = "$PLACE/i"\n'
        '[[models]]\nname = "s"\nmodel = "scripted:script.json"\n'
        '[[models]]\nname = "u"\nmodel = "openai:m@http://$PLACE"\n'
        '[[systems]]\nstrategy = "ircot"\n'
    )
    found = read(path)
    first, second = found.datasets
    assert found.name == "mine"
    assert found.folder == str(tmp_path / "runs" / "mine")
    assert (first.test, first.dev) == ("/elsewhere/t.jsonl", f"hotpotqa:{tmp_path}/dev.json")
    assert (first.search, second.search) == (f"bm25:{tmp_path}/i", "bm25:/elsewhere/i")
    assert first.demonstrations == (f"official:{tmp_path}/p",)
    assert second.test == "hotpotqa:dev"  # a split: no such file is here
    assert [m.model for m in found.models] == [
        f"scripted:{tmp_path}/script.json",
        "openai:m@http:///elsewhere",
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sistems": []}, "unknown key sistems. Did you mean 'systems'?"),
        ({"metrics": {"rul": "paper"}}, "unknown key metrics.rul. Did you mean 'rule'?"),
        ({"metrics": {"rule": "mine"}}, "metrics.rule is 'mine'; known: paper, official"),
        (
            {"metrics": {"answer": "drop_fl"}},
            "No metric is named 'drop_fl'. Did you mean 'drop_f1'?",
        ),
        ({"dev_limit": -1}, "dev_limit is -1; it must be at least 0"),
        ({"test_limit": "all"}, "test_limit is 'all'; it must be a whole number"),
        ({"scored": ["answers"]}, "scored is 'answers'; known: answer, passages"),
        ({"scored": []}, "scored is empty"),
        ({"datasets": []}, r"no table \[\[datasets\]\]"),
        ({"datasets": [{"name": "a"}]}, "datasets, table 1: test missing"),
        ({"datasets": [DATA, DATA]}, "datasets: two have the name 'a'"),
        ({"datasets": [{**DATA, "name": "a/b"}]}, "for it names a folder"),
        ({"datasets": [{**DATA, "index": ""}]}, "ircot searches: give it an index"),
        ({"datasets": [{**DATA, "retriever": "bm25:x"}]}, "give one of the two"),
        ({"datasets": [{**DATA, "index": "", "retriever": "bm26:x"}]}, "Did you mean 'bm25'?"),
        ({"datasets": [{**DATA, "sets": [1]}]}, "sets are chosen out of one name"),
        (
            {"datasets": [{**RELEASE, "sets": [4]}]},
            "sets is 4; it must be at least 1 and at most 3",
        ),
        ({"datasets": [{**RELEASE, "sets": [1, 1]}]}, "each may stand there once"),
        ({"systems": [{"strategy": "ircott"}]}, "Did you mean 'ircot'?"),
        ({"systems": [{"strategy": "ircot", "k": [0]}]}, "k is 0; it must be at least 1"),
        ({"systems": [{"strategy": "ircot", "k": [2, 2]}]}, "each may stand there once"),
        ({"systems": [{"strategy": "ircot", "m": [1]}]}, "m chooses among demonstrations"),
        ({"systems": [{"strategy": "nor", "k": [1]}]}, "nor searches nothing"),
        ({"systems": [{"strategy": "nor", "reader": "none"}]}, "reader none leaves nothing"),
        ({"systems": [{"strategy": "oner", "options": {"k": 2}}]}, "which is a key of its own"),
        ({"systems": [{"strategy": "oner", "reader": "none"}]}, "'answer', which no system gives"),
        (
            {"systems": [{"strategy": "ircot"}, {"strategy": "oner", "reader": "none"}]},
            "oner: gives nothing of what is scored",
        ),
        ({"models": [{"name": "m", "model": "lokal:x"}]}, "Did you mean 'local'?"),
        ({"models": [{"name": "m", "options": {"x": [1]}}]}, "must be text, a number, true"),
        ({"transfers": ["a_to_b"]}, "expected A_to_B of two of the data sets: a"),
    ],
)
def test_what_is_wrong_is_named(changes, words) -> None:
    with pytest.raises(BadInput, match=words) as refusal:
        parse({**BASE, **changes}, "e.toml")
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_no_toml_or_is_missing_is_told(tmp_path) -> None:
    (tmp_path / "e.toml").write_text("name = ")
    with pytest.raises(BadInput, match=r"e\.toml: not TOML"):
        read(tmp_path / "e.toml")
    with pytest.raises(BadInput, match="No such file"):
        read(tmp_path / "other.toml")


@pytest.mark.parametrize("kind", [Experiment, Dataset, Model, System, Metrics])
def test_every_key_is_in_the_docs(kind) -> None:
    for each in dataclasses.fields(kind):
        if each.name not in ("datasets", "models", "systems", "metrics"):
            assert f"`{each.name}`" in PAGE, each.name


def test_the_example_in_the_docs_is_an_experiment() -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    found = plan(parse(tomllib.loads(example)))
    assert [len(entry.grid) for entry in found.entries] == [18, 12]
    assert found.to_dict()[1]["release"] == "ircot_qa_flan_t5_xl_hotpotqa"


def test_the_plan_has_the_grid_small_k_first_then_small_m() -> None:
    systems = [{"strategy": "ircot", "k": [4, 2], "m": [2, 1, 3]}]
    [entry] = plan(parse({"datasets": [RELEASE], "systems": systems})).entries
    assert [str(s) for s in entry.grid] == [f"K={k}, M={m}" for k in (2, 4) for m in (1, 2, 3)]
    assert [cell.name.split("/")[-1] for cell in entry.dev()][:2] == [
        "dev-k2-m1-set1",
        "dev-k2-m2-set1",
    ]
    assert [cell.name for cell in entry.test(Setting(4, 2))] == [
        f"SmolLM2-135M-Instruct/a/ircot/test-k4-m2-set{n}" for n in (1, 2, 3)
    ]


def test_where_there_is_nothing_to_choose_dev_is_not_run() -> None:
    systems = [{"strategy": "nor"}, {"strategy": "ircot", "k": [4]}]
    found = plan(parse({"datasets": [{**RELEASE, "dev": ""}], "systems": systems}))
    assert [entry.dev() for entry in found.entries] == [[], []]
    with pytest.raises(BadInput, match="there are no dev questions"):
        plan(
            parse(
                {
                    "datasets": [{**RELEASE, "dev": ""}],
                    "systems": [{"strategy": "ircot", "k": [2, 4]}],
                }
            )
        )


def test_models_come_one_after_the_other_each_over_all_data_sets() -> None:
    found = plan(
        parse(
            {
                "datasets": [DATA, OTHER],
                "models": [{"name": "small"}, {"name": "big"}],
                "systems": [{"strategy": "nor"}, {"strategy": "oner"}],
            }
        )
    )
    assert [(e.model, e.dataset, e.system) for e in found.entries] == [
        (model, data, system)
        for model in ("small", "big")
        for data in ("a", "b")
        for system in ("nor", "oner")
    ]


def test_out_of_distribution_has_the_examples_of_the_one_and_all_else_of_the_other() -> None:
    found = parse(
        {
            **BASE,
            "datasets": [RELEASE, {**OTHER, "demonstrations": ["official:prompts/b"]}],
            "transfers": ["a_to_b", "b_to_a"],
        }
    )
    first, second = all_datasets(found)[2:]
    assert (first.name, first.search, first.sets) == ("a_to_b", "bm25:j", (1, 2, 3))
    assert first.demonstrations == ("official:prompts/a",)
    assert (second.name, second.search, second.sets) == ("b_to_a", "bm25:i", ())
    assert second.demonstrations == ("official:prompts/b",)


def test_an_adapter_trained_without_demonstrations_has_one_run_and_no_m(tmp_path) -> None:
    folder = adapter_folder(tmp_path / "loop")
    found = plan(
        parse(
            {
                "preset": "paper",
                "datasets": [RELEASE],
                "models": [{"name": "plain"}, {"name": "taught", "adapter": str(folder)}],
                "systems": [{"strategy": "ircot", "k": [2, 4], "m": [1, 2]}],
            }
        )
    )
    plain, taught = found.entries
    assert (len(plain.grid), plain.sets) == (4, (1, 2, 3))
    assert (taught.grid, taught.sets) == ((Setting(2), Setting(4)), (None,))
    assert demonstrations(found, taught.test(taught.grid[0])[0]) is None
    assert [found.preset(entry) for entry in found.entries] == ["paper", None]
    [note] = found.notes
    assert note.startswith("a with taught: the adapter was trained without demonstrations")


def test_an_adapter_that_is_not_there_is_told_before_anything_runs() -> None:
    with pytest.raises(BadInput, match="No adapter is named 'nobody'"):
        plan(parse({**BASE, "models": [{"name": "m", "adapter": "nobody"}]}))


def test_an_experiment_of_the_release_bears_its_name() -> None:
    data = [{**RELEASE, "name": name} for name in ("hotpotqa", "iirc")]
    systems = [
        {"strategy": "ircot", "reader": "cot", "name": "with-reader"},
        {"strategy": "ircot", "reader": "none"},
        {"strategy": "oner", "reader": "none"},
        {"strategy": "nor"},
    ]
    found = plan(
        parse(
            {
                "scored": ["answer", "passages"],
                "datasets": data,
                "models": [{"name": "codex"}, {"name": "flan-t5-xl"}, {"name": "ours"}],
                "systems": systems,
            }
        )
    )
    names = [entry.get("release") for entry in found.to_dict()]
    assert names[:4] == [
        "ircot_qa_codex_hotpotqa",
        "ircot_codex_hotpotqa",
        "oner_hotpotqa",
        "nor_qa_codex_hotpotqa",
    ]
    assert names[12] == "ircot_qa_flan_t5_xl_iirc"
    assert names[16:] == [None, None, "oner_hotpotqa", None, None, None, "oner_iirc", None]
