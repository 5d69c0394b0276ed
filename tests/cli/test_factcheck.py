"""`multihop factcheck` from the command line."""

import csv
import json

import pytest

from runs_of_chains import folder, once, two_runs

JUDGE = {
    "rules": [
        {"prompt": "Sentence: [^\n]*Italy[^\n]*\nVerdict:$", "text": "contradicted"},
        {"prompt": "Sentence: [^\n]*1999[^\n]*\nVerdict:$", "text": "hard to say"},
        {"prompt": "", "text": "supported"},
    ]
}


@pytest.fixture
def found(tmp_path):
    return [str(run) for run in two_runs(tmp_path / "runs")]


@pytest.fixture
def judge(tmp_path):
    path = tmp_path / "judge.json"
    path.write_text(json.dumps(JUDGE))
    return f"scripted:{path}"


def test_runs_are_counted_side_by_side_over_the_same_questions(multihop, found) -> None:
    done = multihop("factcheck", *found)
    assert done.code == 0, done.err
    head, *lines = done.out.splitlines()
    assert head.split()[:2] == ["checked", "by"]
    assert [line.split()[:5] for line in lines[:2]] == [
        ["proxy", "ircot", "2", "50.0", "0.50"],
        ["proxy", "nor", "2", "100.0", "1.50"],
    ]
    assert lines[-1].split() == ["proxy", "ircot,", "nor", "2", "0", "1", "1"]
    assert done.err == "2 questions.\n"


def test_a_folder_of_several_strategies_is_taken_whole(multihop, found, tmp_path) -> None:
    assert multihop("factcheck", str(tmp_path / "runs")).out == multihop("factcheck", *found).out


def test_judge_proxy_and_person_are_compared(multihop, found, judge, tmp_path) -> None:
    sheet = tmp_path / "marks.csv"
    done = multihop("factcheck", *found, "--judge", judge, "--csv", str(sheet), "--json")
    assert done.code == 0, done.err
    assert "8 sentences to mark" in done.err
    assert "Cache: 2 of 8 verdicts were replayed." in done.err
    report = json.loads(done.out)
    [compared] = report["agreement"]
    # Ulm is a miss to the proxy alone; 1999 has no verdict of the judge.
    assert (compared["sentences"], compared["both_error"], compared["only_second"]) == (7, 2, 0)
    assert compared["only_first"] == 1
    judged = {c["run"]: c for c in report["counts"] if c["checker"] == "judge"}
    assert judged["nor"]["verdicts"]["unparsable"] == 1
    assert judged["nor"]["undecided"] == 1

    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["person"] = "error" if "Italy" in row["sentence"] else "ok"
    with sheet.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    again = multihop("factcheck", *found, "--read-back", str(sheet))
    assert again.code == 0, again.err
    lines = {tuple(line.split()[:2]): line.split() for line in again.out.splitlines() if line}
    assert lines["person", "ircot"][2:5] == ["2", "50.0", "0.50"]
    assert lines["proxy,", "judge"][2:5] == ["7", "85.7", "0.70"]
    assert lines["judge,", "person"][2:5] == ["7", "100.0", "1.00"]
    assert lines["proxy,", "person"][2:] == ["8", "75.0", "0.50", "2", "2", "0", "4"]


def test_a_repeated_command_asks_the_judge_nothing(multihop, found, judge) -> None:
    first = multihop("factcheck", *found, "--judge", judge)
    second = multihop("factcheck", *found, "--judge", judge)
    assert second.out == first.out
    assert "Cache: 8 of 8 verdicts were replayed." in second.err
    unkept = multihop("factcheck", *found, "--judge", judge, "--no-cache")
    assert unkept.out == first.out
    assert "Cache" not in unkept.err


def test_markdown_is_a_table(multihop, found) -> None:
    done = multihop("factcheck", *found, "--markdown")
    assert done.out.splitlines()[1].startswith("| --- | --- | ---: |")
    assert done.out.splitlines()[2].startswith("| proxy | ircot | 2 | 50.0 | 0.50 |")


def test_a_mistake_is_one_line(multihop, found, tmp_path) -> None:
    bare = str(folder(tmp_path / "bare", once("a", "Germany", reader="direct")))
    done = multihop("factcheck", bare)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "writes bare answers" in done.err
    done = multihop("factcheck", *found, "--judge", "nobody:x")
    assert (done.code, done.err.count("\n")) == (2, 1)
    done = multihop("factcheck", *found, "--chain", "loop")
    assert done.code == 2
    assert "nor: no chain has a sentence to check (it has no loop)" in done.err
