"""Run folders: nothing that was reported as written is lost or damaged."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihop import runs
from multihop.errors import BadInput
from multihop.text import Question
from multihop.trace import Answer, Trace


def made(name: str, text: str = "An answer.") -> Trace:
    return Trace(Question("What?", id=name), "test", steps=(Answer(text, "answered"),))


def ids(path: Path) -> list[str]:
    return [trace.question.id for _, trace in runs.read(path)]


def test_what_is_appended_is_read_back_with_its_line_number(tmp_path) -> None:
    path = tmp_path / "new" / "traces.jsonl"
    written = [made("a"), made("b", "Zwei\nZeilen \ud800")]
    offsets = [runs.append(path, trace) for trace in written]
    assert list(runs.read(path)) == [(1, written[0]), (2, written[1])]
    assert [runs.line_at(path, offset) for offset in offsets] == [1, 2]


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("three") / "traces.jsonl"
    for name in "abc":
        runs.append(path, made(name))
    return path.read_bytes()


@settings(deadline=None, max_examples=60)
@given(cut=st.integers(0, 2000))
def test_a_file_torn_anywhere_keeps_its_whole_lines_and_grows_again(
    three, tmp_path_factory, cut
) -> None:
    cut = min(cut, len(three))
    path = tmp_path_factory.mktemp("torn") / "traces.jsonl"
    path.write_bytes(three[:cut])
    # A line that lacks nothing but its end was whole.
    whole = three[:cut].count(b"\n") + (three[cut : cut + 1] == b"\n" and cut > 0)
    expected = list("abc")[:whole]

    assert ids(path) == expected
    runs.append(path, made("d"))
    assert ids(path) == [*expected, "d"]


def test_an_end_that_no_parser_takes_is_torn_too(tmp_path, three) -> None:
    path = tmp_path / runs.TRACES
    path.write_bytes(three + b"[" * 100_000)
    assert ids(path) == list("abc")
    runs.append(path, made("d"))
    assert ids(path) == list("abcd")


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path, three) -> None:
    path = tmp_path / "traces.jsonl"
    first, second, third = three.splitlines(keepends=True)
    path.write_bytes(first + second[:40] + b"\n" + third)
    with pytest.raises(BadInput, match=r"traces\.jsonl:2: not JSON"):
        ids(path)
    path.write_bytes(first + b"\xff\n" + third)
    with pytest.raises(BadInput, match=r"traces\.jsonl:2: not UTF-8"):
        ids(path)
    path.write_bytes(first + b"[]\n" + third)
    with pytest.raises(BadInput, match=r"traces\.jsonl:2: expected a JSON object"):
        list(runs.read_raw(path))


def test_processes_that_append_at_once_never_mix_their_lines(tmp_path) -> None:
    path = tmp_path / "traces.jsonl"
    program = """
import sys
from multihop import runs
from multihop.text import Question
from multihop.trace import Answer, Trace
path, name = sys.argv[1:]
from pathlib import Path
for number in range(20):
    answer = Answer(name * 20_000, "answered")
    runs.append(Path(path), Trace(Question("What?", id=f"{name}{number}"), "t", steps=(answer,)))
"""
    workers = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "ab"]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert sorted(ids(path)) == sorted(f"{name}{n}" for name in "ab" for n in range(20))


def test_a_run_may_be_started_again_only_as_itself(tmp_path) -> None:
    folder = tmp_path / "run"
    identity = {"strategy": "ircot", "settings": {"k": 4, "titles": ("a", "b")}}
    runs.start(folder, identity)
    before = (folder / runs.RUN).read_bytes()
    runs.start(folder, identity)
    with pytest.raises(BadInput) as refused:
        runs.start(folder, {"strategy": "ircot", "settings": {"k": 6, "titles": ["a", "b"]}})
    assert "holds a run with settings.k 4 (now: 6)" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (folder / runs.RUN).read_bytes() == before
    assert runs.manifest(folder)["settings"] == {"k": 4, "titles": ["a", "b"]}


@pytest.mark.parametrize(
    ("found", "wanted", "words"),
    [
        ({"k": 4}, {"k": 4, "adapter": None}, "no settings.adapter (now: null)"),
        ({"k": 4, "adapter": None}, {"k": 4}, "settings.adapter null (now: none)"),
        ({"k": None}, {"k": {"a": 1}}, 'settings.k null (now: {"a": 1})'),
        ({"o": {"a": 1}}, {"o": {"a": 1, "b": 2}}, "no settings.o.b (now: 2)"),
    ],
)
def test_a_setting_that_only_one_of_two_runs_has_is_named(tmp_path, found, wanted, words) -> None:
    runs.start(tmp_path / "run", {"settings": found})
    with pytest.raises(BadInput) as refused:
        runs.start(tmp_path / "run", {"settings": wanted})
    assert f"holds a run with {words}." in str(refused.value)


def test_a_folder_of_something_else_is_left_alone(tmp_path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(BadInput, match="is not a run folder and not empty"):
        runs.start(tmp_path, {})
    with pytest.raises(BadInput, match="is a file"):
        runs.start(tmp_path / "letter.txt", {})
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_start_that_was_killed_can_be_repeated(tmp_path) -> None:
    (tmp_path / f".{runs.RUN}.123").write_text('{"form')
    runs.start(tmp_path, {"strategy": "nor"})
    assert runs.manifest(tmp_path)["strategy"] == "nor"


def test_a_run_of_another_format_is_refused(tmp_path) -> None:
    (tmp_path / runs.RUN).write_text(json.dumps({"format": 99}))
    with pytest.raises(BadInput, match="run format 99, this program reads 1"):
        runs.start(tmp_path, {})
    with pytest.raises(BadInput, match=r"has no run\.json"):
        runs.manifest(tmp_path / "nowhere")


def test_runs_are_kept_where_the_user_says(monkeypatch, tmp_path) -> None:
    assert runs.home() == tmp_path / "runs"
    monkeypatch.delenv("MULTIHOP_RUNS")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert runs.home() == Path("/data/multihop/runs")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert runs.home() == Path(os.environ["HOME"]) / ".local/share/multihop/runs"


def test_questions_asked_on_one_day_go_to_one_file(tmp_path) -> None:
    noon = datetime(2026, 3, 4, 12, tzinfo=UTC)
    assert runs.asks(noon) == tmp_path / "runs" / "asks-2026-03-04" / "traces.jsonl"


def test_a_run_that_another_process_begins_between_two_looks_is_joined(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    look = type(folder).iterdir

    def begins(path):
        monkeypatch.undo()
        runs.start(folder, {"strategy": "ircot"})
        (folder / "traces.jsonl").touch()
        return look(path)

    monkeypatch.setattr(type(folder), "iterdir", begins)
    runs.check(folder, {"strategy": "ircot"})
    monkeypatch.setattr(type(folder), "iterdir", begins)
    with pytest.raises(BadInput, match="holds a run with strategy"):
        runs.check(folder, {"strategy": "oner"})
