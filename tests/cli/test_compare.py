"""`multihop compare` on runs that `multihop eval` made."""

import csv
import json
from pathlib import Path

import pytest


@pytest.fixture
def run(multihop, index, script, tmp_path) -> str:
    path = tmp_path / "questions.jsonl"
    records = [
        {"id": "a", "question": "Where was Lost Gravity made?", "answers": ["Germany"]},
        {"id": "b", "question": "Who is not Germany?", "answers": ["Ulm"]},
        {"id": "c", "question": "Evil?", "answers": ["x"]},
        {"id": "d", "question": "Fail?", "answers": ["x"]},
    ]
    for record in records:
        record["gold_paragraph_ids"] = ["lost", "mack"]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    into = str(tmp_path / "run")
    options = ("--index", index, "-m", script, "-s", "ircot,oner,nor", "--into", into)
    assert multihop("eval", str(path), *options).code == 1  # one question fails
    return into


def test_compare_shows_differences_and_diagnoses(multihop, run) -> None:
    done = multihop("compare", run, "--against", "oner", "--samples", "100")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["metric", "run", "mean", "difference", "interval", "p", "(Holm)"]
    assert any(line.startswith("EM %") for line in lines)
    assert any(line.startswith("hop miss") for line in lines)
    assert "Compared on 3 of 4 questions" in done.out
    assert "ircot 1 failed, 0 not asked yet" in " ".join(done.out.split())


def test_compare_writes_what_it_is_asked_for(multihop, run, tmp_path) -> None:
    files = {name: tmp_path / name for name in ("r.html", "f.csv", "q.csv")}
    done = multihop(
        *("compare", run, "--samples", "100", "--metric", "all_gold", "--json"),
        *("--html", str(files["r.html"]), "--csv", str(files["f.csv"])),
        *("--questions", str(files["q.csv"])),
    )
    assert done.code == 0
    assert "3 of 3 questions with their traces" in done.err
    found = json.loads(done.out)
    assert found["reference"] == "ircot"
    assert [r["run"] for r in found["runs"]] == ["ircot", "nor", "oner"]
    assert sum(found["runs"][0]["diagnoses"].values()) == 3
    figures = list(csv.DictReader(files["f.csv"].read_text("utf-8").splitlines()))
    assert len(figures) == len(found["measured"])
    assert {"all_gold", "em"} <= {row["metric"] for row in figures}
    rows = list(csv.DictReader(files["q.csv"].read_text("utf-8").splitlines()))
    assert len(rows) == 12
    assert [row["compared"] for row in rows if row["id"] == "d"] == ["0", "0", "0"]
    text = files["r.html"].read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert "\x1b" not in text


def test_compare_prints_markdown(multihop, run) -> None:
    done = multihop("compare", run, "--markdown", "--samples", "100")
    lines = done.out.splitlines()
    assert lines[0] == "| metric | run | mean | difference | interval | p (Holm) |"
    assert "| diagnosis | ircot | nor | oner |" in lines


def test_misuse_is_one_line(multihop, run, tmp_path) -> None:
    cases = [
        ((run, "--against", "dsp"), "No run is named 'dsp'"),
        ((str(Path(run) / "nor"),), "There is one run."),
        ((run, run), "named twice"),
        ((run, "--metric", "f2"), "No metric is named 'f2'"),
        (
            (run, "--html", str(tmp_path / "none" / "r.html"), "--samples", "100"),
            "its folder does not exist",
        ),
    ]
    for arguments, message in cases:
        done = multihop("compare", *arguments)
        assert done.code == 2
        assert message in done.err
        assert done.err.count("\n") == 1
