"""`multihop index` and `multihop search`, accidents included."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import read_manifest


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    write(path, ("ulm", "Ulm", "A city on the Danube."), ("aida", "Aida", "An opera by Verdi."))
    return path


def write(path: Path, *records: tuple[str, str, str]) -> Path:
    with path.open("w") as file:
        for passage_id, title, text in records:
            file.write(json.dumps({"id": passage_id, "title": title, "text": text}) + "\n")
    return path


def test_a_corpus_is_indexed_and_searched(multihop, corpus, tmp_path):
    folder = str(tmp_path / "made" / "index")
    built = multihop("index", str(corpus), "--into", folder)
    assert (built.code, built.out) == (0, "")
    assert built.err == f"{folder}: 2 passages.\n"  # no bar where nobody sees it
    found = multihop("search", "Where is the Danube?", "--index", folder)
    assert found.code == 0
    assert found.out.splitlines()[0].split()[0] == "1"
    assert "Ulm  [ulm]\n     A city on the Danube." in found.out


def test_results_are_json_on_request(multihop, index):
    found = multihop(
        "search", "roller coaster of Mack Rides", "--index", index, "-k", "2", "--json"
    )
    records = [json.loads(line) for line in found.out.splitlines()]
    assert [record["rank"] for record in records] == [1, 2]
    assert records[0].keys() == {"rank", "score", "id", "title", "text", "metadata"}


def test_nothing_of_a_passage_reaches_the_terminal_as_a_command(multihop, index):
    for extra in ((), ("--json",)):
        found = multihop("search", "evil screen", "--index", index, *extra)
        assert "Evil" in found.out
        assert not [c for c in found.out if (ord(c) < 32 and c != "\n") or c in "\x7f\x9b\u202e"]


def test_no_match_is_said_and_is_no_failure(multihop, index):
    found = multihop("search", "zzz", "--index", index)
    assert (found.code, found.out, found.err) == (0, "", "No passage matches.\n")


def test_forms_and_titles_are_selectable(multihop, index):
    at_ulm = ("--index", index, "--title", "ulm", "--json")
    # The official form asks the one title to match and no more; ours wants a word of the query.
    assert '"id": "ulm"' in multihop("search", "Mack Rides", "--form", "official", *at_ulm).out
    assert multihop("search", "Mack Rides", "--form", "paper", *at_ulm).out == ""
    found = multihop("search", "city", "--index", index, "--form", "text", "--title", "ulm")
    assert "[ulm]" in found.out


def test_passages_are_added_deleted_and_replaced(multihop, corpus, tmp_path):
    folder = str(tmp_path / "index")
    more = str(write(tmp_path / "more.jsonl", ("ulm", "Ulm", "A city with a minster.")))
    assert multihop("index", str(corpus), "--into", folder).code == 0
    taken = multihop("index", more, "--add", "--into", folder)
    assert taken.code == 2
    assert "more.jsonl:1: the id 'ulm' is taken" in taken.err
    assert multihop("index", more, "--add", "--delete", "ulm", "--into", folder).code == 0
    assert [p.text for p in BM25(folder)] == ["An opera by Verdi.", "A city with a minster."]
    assert multihop("index", "--delete", "ulm", "--delete", "aida", "--into", folder).code == 0
    assert len(BM25(folder)) == 0


def test_a_bad_line_stops_the_build_and_changes_nothing(multihop, corpus, tmp_path):
    folder = tmp_path / "index"
    multihop("index", str(corpus), "--into", str(folder))
    before = (folder / "manifest.json").read_bytes()
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "x", "title": "", "text": "fine"}\n{"id": "y"}\n')
    result = multihop("index", str(bad), "--into", str(folder))
    assert result.code == 2
    assert "bad.jsonl:2: passage has no 'title'" in result.err
    assert result.err.count("\n") == 1
    assert (folder / "manifest.json").read_bytes() == before


def test_bad_lines_are_skipped_counted_and_listed_on_request(multihop, corpus, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text(corpus.read_text() + '{"id": \x1b[2J}\n' + corpus.read_text() + "[]\n" * 30)
    result = multihop("index", str(bad), "--skip-bad", "--into", str(tmp_path / "index"))
    assert result.code == 0
    assert "Left out 33 that could not be read:" in result.err
    assert "bad.jsonl:3: not JSON" in result.err
    assert "bad.jsonl:4: the id 'ulm' is taken" in result.err
    assert "and 13 more." in result.err
    assert "\x1b" not in result.err
    assert read_manifest(tmp_path / "index").passages == 2


def test_the_manifest_records_how_passages_were_made(multihop, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "ulm.md").write_text("# Ulm\nA city.\n")
    (tmp_path / "notes" / "empty.txt").write_text(" ")
    result = multihop("index", str(tmp_path / "notes"), "--into", str(tmp_path / "index"))
    assert "empty.txt: holds no text." in result.err
    manifest = read_manifest(tmp_path / "index")
    assert manifest.source["paths"] == [str(tmp_path / "notes")]
    assert manifest.source["splitting"] == {"words": 100, "most": 150}
    assert manifest.settings["analyzer"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Name files or folders to index"),
        (("--add",), "Name files or folders to index"),
        (("--add", "--delete", "x"), "--add needs files"),
        (("nowhere.jsonl",), "nowhere.jsonl: no such file or folder"),
        (("--delete", "x"), "no index is here"),
        ((".", "--delete", "x"), "needs --add"),
    ],
)
def test_what_cannot_be_done_is_one_line(multihop, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = multihop("index", *arguments, "--into", str(tmp_path / "index"))
    assert result.code == 2
    assert message in result.err
    assert not (tmp_path / "index").exists()


def test_an_empty_query_a_missing_index_and_k_below_one_are_refused(multihop, index, tmp_path):
    assert "empty" in multihop("search", " ", "--index", index).err
    assert "no index is here" in multihop("search", "x", "--index", str(tmp_path)).err
    assert "at least 1" in multihop("search", "x", "--index", index, "-k", "0").err


MAIN = "from multihop.cli import main; main()"


def build_until(folder: Path, corpus: Path, ready) -> int:
    """Start a build as a process of its own and kill it, with no warning, when `ready`."""
    command = [sys.executable, "-c", MAIN, "index", str(corpus), "--into", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not ready() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    return process.wait()


def test_a_killed_build_leaves_the_old_index_and_the_next_one_works(multihop, corpus, tmp_path):
    folder = tmp_path / "index"
    multihop("index", str(corpus), "--into", str(folder))
    pipe = tmp_path / "endless.jsonl"
    os.mkfifo(pipe)  # the build can neither end nor fail before it is killed
    feed = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"""
import json
with open({str(pipe)!r}, "w") as out:
    for n in range(10**9):
        out.write(json.dumps({{"id": str(n), "title": "", "text": "mountain " * 50}}) + "\\n")
""",
        ],
        stderr=subprocess.DEVNULL,
    )

    def writing() -> bool:
        parts = [p for p in folder.glob("index-*") if p.name != read_manifest(folder).folder]
        return any(path.stat().st_size for part in parts for path in part.glob("*.store"))

    assert build_until(folder, pipe, writing) == -signal.SIGKILL
    feed.wait()
    assert len(list(folder.glob("index-*"))) == 2  # the half-built one is still there
    assert [p.id for p in BM25(folder)] == ["ulm", "aida"]
    assert "[ulm]" in multihop("search", "danube", "--index", str(folder)).out

    assert multihop("index", str(corpus), "--into", str(folder)).code == 0
    assert len(list(folder.glob("index-*"))) == 1
    assert [p.id for p in BM25(folder)] == ["ulm", "aida"]


def test_passages_are_made_as_asked_and_the_manifest_tells(multihop, tmp_path):
    text = " ".join(f"Sentence {n} has five words." for n in range(6))
    (tmp_path / "notes.txt").write_text(text)
    folder = str(tmp_path / "index")
    options = ("--passage-words", "15", "--most-words", "15", "--overlap", "5")
    built = multihop("index", str(tmp_path / "notes.txt"), "--into", folder, *options)
    assert built.err == f"{folder}: 3 passages.\n"
    splitting = {"words": 15, "most": 15, "overlap": 5}
    assert read_manifest(Path(folder)).source["splitting"] == splitting
    found = multihop("search", "sentence 3", "--index", folder)
    assert f"{tmp_path / 'notes.txt'}:1\n" in found.out


def test_a_search_may_be_limited_by_metadata(multihop, tmp_path):
    path = tmp_path / "c.jsonl"
    records = [
        {"id": str(n), "title": "", "text": "Rides.", "path": "a.pdf", "page": n} for n in (1, 2)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    folder = str(tmp_path / "index")
    multihop("index", str(path), "--into", folder)
    found = multihop("search", "rides", "--index", folder, "--where", "page=2", "--json")
    [record] = map(json.loads, found.out.splitlines())
    assert (record["id"], record["place"]) == ("2", "a.pdf#page=2")
    refused = multihop("search", "rides", "--index", folder, "--where", "page")
    assert refused.code == 2
    assert "--where page: expected FIELD=VALUE" in refused.err
