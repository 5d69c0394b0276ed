"""`multihop experiment`, with a script for a model and a small index."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pytest

from adapter_folders import adapter_folder
from conftest import ROOT, shared
from multihop import runs
from multihop.experiments import config
from multihop.retrievers.bm25_index import build_index
from multihop.text import Passage


@pytest.fixture(autouse=True)
def unsynced(monkeypatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)


def questions(path: Path, *names: str, **more: object) -> None:
    lines = [
        {
            "id": name,
            "question": f"Where was Lost Gravity made, {name}?",
            "answers": ["Germany"],
            "gold_paragraph_ids": ["lost", "mack"],
            **more,
        }
        for name in names
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def prompt_file(path: Path, *names: str) -> None:
    path.write_text(
        "\n\n\n".join(
            f'# METADATA: {{"qid": "{name}"}}\nWikipedia Title: {name}\nOf {name}.\n\n'
            f"Q: Who is {name}?\nA: {name} is one. So the answer is: {name}."
            for name in names
        )
    )


FILE = """
name = "tiny"
scored = ["answer", "passages"]

[[datasets]]
name = "coasters"
dev = "dev.jsonl"
test = "test.jsonl"
index = "{index}"
demonstrations = ["one.txt", "two.txt", "three.txt"]

[[models]]
name = "scripted"
model = "{script}"

[[systems]]
strategy = "nor"

[[systems]]
strategy = "oner"
k = [1, 2]

[[systems]]
strategy = "ircot"
k = [1, 2]
"""


@pytest.fixture
def told(tmp_path, index, script) -> str:
    questions(tmp_path / "dev.jsonl", "d1", "d2")
    questions(tmp_path / "test.jsonl", "t1", "t2", "t3")
    for name in ("one", "two", "three"):
        prompt_file(tmp_path / f"{name}.txt", name)
    path = tmp_path / "tiny.toml"
    path.write_text(FILE.format(index=index, script=script))
    return str(path)


def test_a_table_of_strategies_side_by_side_from_one_command(multihop, told, tmp_path) -> None:
    done = multihop("experiment", "run", told)
    assert done.code == 0, done.err
    assert "coasters: ircot with scripted, dev, K=1, set 1" in done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert ["scripted", "ircot", "100.0", "±", "0.0", "[0.0]"] in lines
    assert ["coasters", "ircot", "100.0", "+50.0", "█" * 20] in lines
    folder = tmp_path / "runs" / "tiny"
    assert {"experiment.json", "tables.md", "tables.csv", "tables.json"} <= {
        path.name for path in folder.iterdir()
    }
    assert "prompt tokens" in (folder / "tables.md").read_text()
    again = multihop("experiment", "run", told)
    assert again.out == done.out
    assert " asked" not in again.err
    assert "dev, K" not in again.err


def test_each_run_is_an_ordinary_run_folder(multihop, told, tmp_path) -> None:
    multihop("experiment", "run", told)
    grid = tmp_path / "runs/tiny/scripted/coasters/ircot"
    scored = multihop("score", str(grid), "--json")
    assert scored.code == 0
    assert {r["run"] for r in json.loads(scored.out)} >= {"dev-k1-set1", "test-k2-set3"}


def test_showing_runs_nothing_and_tells_what_is_missing(multihop, told, tmp_path) -> None:
    early = multihop("experiment", "show", told)
    assert (early.code, early.out) == (2, "")
    assert "nothing was run yet" in early.err
    assert early.err.count("\n") == 1
    multihop("experiment", "run", told)
    folder = tmp_path / "runs" / "tiny"
    shutil.rmtree(folder / "scripted/coasters/ircot/test-k2-set2")
    Path(told).unlink()
    (tmp_path / "script.json").unlink()
    shown = multihop("experiment", "show", str(folder), "--json", "--metric", "all_gold@15")
    assert shown.code == 0
    assert "coasters: ircot with scripted: 1 of 3 runs on test at K=2" in shown.err
    found = json.loads(shown.out)
    assert found["complete"] is False
    by = {(f["system"], f["kind"]): f for f in found["figures"]}
    assert by["ircot", "passages"]["values"] == [100.0, None, 100.0]
    assert by["oner", "passages"]["costs"]["all_gold@15"] == 0.0
    rows = list(
        csv.DictReader(io.StringIO(multihop("experiment", "show", str(folder), "--csv").out))
    )
    assert [row["system"] for row in rows] == ["nor", "oner", "oner", "ircot", "ircot"]
    assert rows[1]["values"] == "100.0 100.0 100.0"


def test_another_rule_is_an_option_of_showing(multihop, told, tmp_path) -> None:
    for name, ids in (("dev", ("d1", "d2")), ("test", ("t1", "t2", "t3"))):
        questions(tmp_path / f"{name}.jsonl", *ids, gold_titles=["Lost Gravity", "Mack Rides"])
    multihop("experiment", "run", told)
    shown = multihop("experiment", "show", told, "--rule", "official", "--markdown")
    assert "rule: official" in shown.out
    assert "| scripted | coasters | ircot | title recall@15 | K=2 | 100.0 |" in shown.out
    assert (
        "| scripted | coasters | ircot | recall@15 | K=2"
        in (tmp_path / "runs/tiny/tables.md").read_text()
    )


def test_a_rule_that_no_question_can_be_judged_by_is_told(multihop, told) -> None:
    multihop("experiment", "run", told)
    shown = multihop("experiment", "show", told, "--rule", "official")
    assert shown.code == 2
    assert "title recall@15 applies to none of its finished questions" in shown.err


def test_checking_prints_the_plan_and_makes_nothing(multihop, told, tmp_path) -> None:
    done = multihop("experiment", "check", told)
    assert done.code == 0, done.err
    # NoR 3 runs; OneR and IRCoT 2 on dev and at most 6 on test, for they are scored in two ways.
    assert "19 runs, 53 questions" in done.out
    assert "3 sentences a chain" in done.out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (('"dev.jsonl"', '"gone.jsonl"'), "gone.jsonl"),
        (('"two.txt"', '"gone.txt"'), "gone.txt"),
        (("index =", "indx ="), "unknown key indx. Did you mean 'index'?"),
        (('index = "', 'index = "x'), "there is no index at"),
        (('"test.jsonl"', '"dev.jsonl"'), "say by dev_limit how many"),
        (('strategy = "nor"', 'strategy = "nor"\nk = [1]'), "nor searches nothing"),
    ],
)
@pytest.mark.parametrize("verb", ["check", "run"])
def test_a_mistake_is_one_line_and_nothing_is_made(multihop, told, edit, words, verb) -> None:
    Path(told).write_text(Path(told).read_text().replace(*edit))
    done = multihop("experiment", verb, told)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1
    assert not (Path(told).parent / "runs").exists()


def test_without_a_reader_the_chain_s_own_answer_counts(multihop, told, tmp_path) -> None:
    text = Path(told).read_text()
    head = text[: text.index("[[systems]]")]
    Path(told).write_text(
        f'{head}[[systems]]\nstrategy = "ircot"\nname = "with-reader"\nreader = "direct"\nk = [2]\n'
        '[[systems]]\nstrategy = "ircot"\nname = "without"\nreader = "none"\nk = [2]\n'
    )
    done = multihop("experiment", "run", told, "--json")
    assert done.code == 0, done.err
    found = {(f["system"], f["kind"]): f for f in json.loads(done.out)["figures"]}
    assert found["without", "answer"]["mean"] == 100.0
    with_reader, without = (found[name, "answer"]["costs"] for name in ("with-reader", "without"))
    assert with_reader["lm_calls"] == without["lm_calls"] + 1


def test_demonstrations_of_one_data_set_and_questions_of_another(multihop, told, tmp_path) -> None:
    text = Path(told).read_text()
    start, end = text.index("[[datasets]]"), text.index("[[models]]")
    other = (
        text[start:end]
        .replace("coasters", "rides")
        .replace('["one.txt", "two.txt", "three.txt"]', '["four.txt"]')
    )
    prompt_file(tmp_path / "four.txt", "four")
    Path(told).write_text(
        'transfers = ["rides_to_coasters"]\n'
        + text[:end]
        + other
        + text[end : text.index("[[systems]]")]
        + '[[systems]]\nstrategy = "oner"\nk = [2]\n'
    )
    done = multihop("experiment", "run", told)
    assert done.code == 0, done.err
    folder = tmp_path / "runs/tiny/scripted/rides_to_coasters/oner/test-k2"
    prompts = [call.prompt for _, trace in runs.read_folder(folder) for call in trace.calls]
    assert prompts
    assert all("Who is four?" in p and "Who is one?" not in p for p in prompts)
    assert all("Lost Gravity" in p for p in prompts)


def test_iirc_proposes_titles_before_it_searches(multihop, tmp_path) -> None:
    build_index(
        [
            Passage("lost", "Lost Gravity", "Lost Gravity was built by Mack Rides."),
            Passage("mack", "Mack Rides", "Mack Rides, which made Lost Gravity, is in Germany."),
            Passage("ulm", "Ulm", "Ulm has Mack and Gravity and Lost Rides."),
        ],
        tmp_path / "index",
    )
    script = {
        "rules": [
            {"prompt": "Generate titles of 3[^\n]*\nA:$", "text": '["Mack Rides"]'},
            {"prompt": "", "text": "So the answer is: Germany."},
        ]
    }
    (tmp_path / "s.json").write_text(json.dumps(script))
    pinned = {"id": "main", "title": "Lost Gravity", "text": "Mack Rides built Lost Gravity."}
    questions(
        tmp_path / "test.jsonl",
        "t1",
        "t2",
        dataset="iirc",
        pinned=pinned,
        gold_paragraph_ids=["mack"],
    )
    (tmp_path / "iirc.toml").write_text(
        'scored = ["answer", "passages"]\n[[datasets]]\nname = "iirc"\ntest = "test.jsonl"\n'
        'index = "index"\n[[models]]\nname = "s"\nmodel = "scripted:s.json"\n'
        '[[systems]]\nstrategy = "ircot"\n[[systems]]\nstrategy = "oner"\nreader = "none"\n'
        '[[systems]]\nstrategy = "nor"\n[metrics]\nrule = "official"\nmore = ["drop_f1"]\n'
    )
    checked = multihop("experiment", "check", str(tmp_path / "iirc.toml"))
    rows = [line.split() for line in checked.out.splitlines()]
    # Titles, three sentences and the reader; titles alone; the reader alone: of two questions.
    assert [row[-2] for row in rows if row[:1] == ["s"]] == ["10", "2", "2"]
    done = multihop("experiment", "run", str(tmp_path / "iirc.toml"), "--json")
    assert done.code == 0, done.err
    found = {(f["system"], f["kind"]): f for f in json.loads(done.out)["figures"]}
    assert found["ircot", "passages"]["mean"] == found["oner", "passages"]["mean"] == 100.0
    assert found["ircot", "answer"]["mean"] == 100.0
    assert found["oner", "passages"]["costs"]["lm_calls"] == 1.0
    for _, trace in runs.read_folder(tmp_path / "runs/iirc/s/iirc/ircot/test"):
        assert "ulm" not in trace.collected  # not among the proposed pages


def test_an_adapter_is_a_model_of_its_own_and_the_collapse_is_told(
    multihop, told, tmp_path
) -> None:
    adapter_folder(tmp_path / "loop")
    text = Path(told).read_text()
    model = text[text.index("[[models]]") : text.index("[[systems]]")]
    taught = model.replace('"scripted"', '"taught"') + 'adapter = "loop"\n\n'
    Path(told).write_text(text.replace(model, model + taught))
    done = multihop("experiment", "run", told, "--json")
    assert done.code == 0, done.err
    assert "Note: coasters with taught: the adapter was trained without demonstrations" in done.err
    found = json.loads(done.out)
    by = {(f["model"], f["system"], f["kind"]): f for f in found["figures"]}
    assert by["taught", "ircot", "answer"]["sets"] == [None]
    assert by["taught", "ircot", "answer"]["std"] is None
    assert by["scripted", "ircot", "answer"]["std"] == 0.0
    [path] = (tmp_path / "runs/tiny/taught/coasters/nor").iterdir()
    assert runs.manifest(path)["settings"]["adapter"] == "loop"


def test_a_budget_is_of_all_sittings_and_a_larger_one_goes_on(multihop, told, tmp_path) -> None:
    def asked() -> int:
        return sum(p.read_text().count("\n") for p in (tmp_path / "runs").rglob("traces*"))

    short = multihop("experiment", "run", told, "--run-budget-calls", "20")
    assert short.code == 1
    assert "The budget is used up" in short.err
    assert "runs missing" in short.out or "dev:" in short.out
    before = asked()
    assert before > 9  # runs of NoR are finished, and count
    assert multihop("experiment", "run", told, "--run-budget-calls", "20").code == 1
    assert asked() == before
    assert multihop("experiment", "run", told, "--run-budget-calls", "9999").code == 0


@pytest.mark.parametrize("name", ["table4.toml", "figure3.toml"])
def test_the_recipes_can_be_run_on_the_handed_slices(name, monkeypatch, tmp_path) -> None:
    from multihop.experiments import asked
    from multihop.experiments.plan import demonstrations, plan

    monkeypatch.setenv("DATA", str(shared("data")))
    monkeypatch.setenv("PROMPTS", str(shared("data/raw/ircot_prompts")))
    found = plan(config.read(ROOT / "recipes" / name))
    assert found.notes == ()
    looked = asked.look(found)
    assert {f.count for f in looked.fingerprints.values()} == {8, 20}
    for cell in found.cells():
        given = demonstrations(found, cell)
        assert given
        assert len(given.cot) == 15
