"""Rows worked out in child processes: the same as here, in order, and nothing is left running."""

import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from multihop.errors import BadInput, CorpusError
from multihop.retrievers import bm25_rows
from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import build_index, change_index
from multihop.retrievers.bm25_rows import decoded, encoded, row, rows
from multihop.text import Passage

CORPUS = [
    Passage(f"p{n}", f"Title {n % 7}", f"The rides of number{n} \ud800 and É.", {"n": [n, None]})
    for n in range(29)
]


@pytest.fixture
def workers(monkeypatch):
    """Small chunks, and all child processes that were started."""
    started = []

    def start(*args, **kwargs):
        started.append(subprocess_popen(*args, **kwargs))
        return started[-1]

    subprocess_popen = subprocess.Popen
    monkeypatch.setattr("multihop.retrievers.bm25_rows.subprocess.Popen", start)
    monkeypatch.setattr(bm25_rows, "ALONE", 4)
    monkeypatch.setattr(bm25_rows, "CHUNK", 3)
    return started


def ended(workers) -> bool:
    return bool(workers) and all(worker.poll() is not None for worker in workers)


@pytest.mark.parametrize("count", [0, 3, 4, 5, 7, 8, 29])
def test_workers_make_the_same_rows_in_order(workers, count):
    assert list(rows(CORPUS[:count], 2)) == [(p, row(p)) for p in CORPUS[:count]]
    assert len(workers) == (2 if count > 4 else 0)
    assert count <= 4 or ended(workers)


def test_one_process_starts_no_worker(workers):
    assert [r for _, r in rows(CORPUS, 1)] == [row(p) for p in CORPUS]
    assert not workers


def test_passages_are_read_only_a_few_chunks_ahead(workers):
    read = []
    ready = rows((read.append(p) or p for p in CORPUS), 2)
    next(islice(ready, 4, None))  # the first that a worker made
    assert len(read) <= 4 + 3 * 7
    ready.close()
    assert ended(workers)


def test_a_stored_passage_comes_back_as_it_was():
    assert [decoded(encoded(passage)) for passage in CORPUS] == CORPUS


def test_a_failure_of_the_passages_ends_the_workers_and_keeps_the_old_index(workers, tmp_path):
    build_index([Passage("old", "", "coaster")], tmp_path, processes=2)

    def broken():
        yield from CORPUS[:20]
        raise BadInput("corpus.jsonl:21: broken")

    for change in (build_index, lambda add, index, **rest: change_index(index, add, **rest)):
        with pytest.raises(BadInput, match=":21"):
            change(broken(), tmp_path, processes=2)
        assert ended(workers)
        assert [p.id for p in BM25(tmp_path)] == ["old"]
        assert len([p for p in tmp_path.iterdir() if p.name.startswith("index-")]) == 1


def test_an_index_made_with_workers_is_the_same_as_one_made_without(workers, tmp_path):
    told: list[int] = []
    ours = build_index(CORPUS, tmp_path / "a", processes=2, progress=told.append)
    theirs = build_index(CORPUS, tmp_path / "b", processes=1)
    assert ours.content_hash == theirs.content_hash
    assert told == [29]
    assert list(BM25(tmp_path / "a")) == CORPUS
    manifest = change_index(
        tmp_path / "a", CORPUS[:20], delete=["p0"] + [p.id for p in CORPUS[1:20]]
    )
    assert manifest.content_hash == theirs.content_hash


def test_an_id_that_comes_again_in_another_chunk_is_noticed(workers, tmp_path):
    told: list[str] = []
    twice = [*CORPUS, Passage("p2", "", "again"), Passage("p20", "", "and again")]
    manifest = build_index(
        twice, tmp_path, processes=2, on_duplicate=lambda passage: told.append(passage.text)
    )
    assert (manifest.passages, told) == (29, ["again", "and again"])
    with pytest.raises(CorpusError, match="'p2' is there twice"):
        build_index(twice, tmp_path, processes=2)
    assert ended(workers)


def test_a_worker_that_dies_is_one_clear_line_and_changes_nothing(workers, tmp_path):
    build_index([Passage("old", "", "coaster")], tmp_path)

    def murderous():
        for passage in CORPUS:
            if passage.id == "p9":
                workers[0].kill()
            yield passage

    with pytest.raises(CorpusError, match="exit code -9"):
        build_index(murderous(), tmp_path, processes=2)
    assert ended(workers)
    assert [p.id for p in BM25(tmp_path)] == ["old"]


def test_what_cannot_be_stored_fails_as_it_does_without_workers(workers):
    odd = [*CORPUS, Passage("odd", "", "text", {"set": {1}})]  # no JSON
    for processes in (1, 2):
        with pytest.raises(TypeError, match="set"):
            list(rows(odd, processes))
    assert ended(workers)


def test_fewer_processes_than_one_are_refused(tmp_path):
    with pytest.raises(BadInput, match="at least 1"):
        build_index(CORPUS, tmp_path, processes=0)
    assert not list(tmp_path.iterdir())


PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from multihop.retrievers import bm25_rows
from multihop.retrievers.bm25_index import build_index
from multihop.text import Passage

def endless():
    n = 0
    while True:
        yield Passage(str(n), "", "The rides of a coaster")
        n += 1
        if n == 100:
            print("going", flush=True)
        if n >= 100:
            time.sleep(0.01)

bm25_rows.ALONE = bm25_rows.CHUNK = 5
build_index(endless(), sys.argv[1], processes=2)
"""  # with no guard around the call: workers import nothing of the program


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_worker_outlives_a_program_that_is_interrupted_or_killed(tmp_path, how, code):
    index, program = tmp_path / "index", tmp_path / "program.py"
    program.write_text(PROGRAM)
    build_index([Passage("old", "", "coaster")], index)
    process = subprocess.Popen(
        [sys.executable, str(program), str(index)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout.readline() == b"going\n"
    children = [
        int(child)
        for task in Path(f"/proc/{process.pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    assert len(children) == 2
    # Ctrl-C reaches the whole group, the workers too; a kill only the program.
    os.killpg(process.pid, how) if how == signal.SIGINT else os.kill(process.pid, how)
    assert process.wait(20) == code
    process.stdout.close()
    until = time.monotonic() + 20
    while any(alive(child) for child in children):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert [p.id for p in BM25(index)] == ["old"]
    if how == signal.SIGINT:
        assert len([p for p in index.iterdir() if p.name.startswith("index-")]) == 1


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
