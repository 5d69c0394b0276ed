"""What happens when output cannot be written: a line and an exit code, never a traceback."""

import errno
import os
import subprocess
import sys

import pytest

from multihop import runs
from multihop.cli.render import Drawing, terminal
from multihop.trace import Thought

FULL = "/dev/full"


def run(shell, *arguments, **environment):
    return subprocess.run(
        ["bash", "-c", f'"$0" -m multihop "$@" {shell}', sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.parametrize("shell", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_files_are_the_null_device(shell, tmp_path):
    ended = run(shell, "cache", "--json", MULTIHOP_CACHE_DIR=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert bool(ended.stdout) == (">&-" not in shell.replace("2>&-", ""))


def test_no_file_takes_the_place_of_a_closed_stdout(index, script, tmp_path):
    arguments = ("ask", "Where is it?", "--index", index, "-m", script, "--into", str(tmp_path))
    assert run("<&- >&- 2>&-", *arguments).returncode == 0
    assert len(list(runs.read(tmp_path / runs.TRACES))) == 1


@pytest.mark.skipif(not os.path.exists(FULL), reason="this system has no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("arguments", [("--help",), ("cache",)])
def test_a_full_disk_is_one_line_and_code_2(arguments, tmp_path):
    ended = run(f">{FULL}", *arguments, MULTIHOP_CACHE_DIR=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (2, "multihop: No space left on device.\n")
    assert run(f">{FULL} 2>{FULL}", *arguments).returncode == 2


@pytest.mark.parametrize("arguments", [("--help",), ("cache",)])
def test_a_reader_that_has_seen_enough_is_code_141_and_silence(arguments, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "multihop", *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"MULTIHOP_CACHE_DIR": str(tmp_path)},
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


SMALL = 'ulimit -f 4; exec "$0" "$@"'
"""No file of the process may pass 4 KiB; as a full disk, it tears the write. A process of its own:
the limit would hold for the file that the tests' own output may go to."""


def limited(*arguments):
    return subprocess.run(
        ["bash", "-c", SMALL, sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_trace_that_does_not_fit_on_the_disk_names_its_file(tmp_path):
    path = tmp_path / runs.TRACES
    program = f"""
from pathlib import Path
from multihop import runs
from multihop.text import Question
from multihop.trace import fold

path = Path({str(path)!r})
runs.append(path, fold(Question("Where?"), "nor", []))
try:
    runs.append(path, fold(Question("Where?" * 1000), "nor", []))
except OSError as failure:
    print(failure.errno, failure.filename, failure.strerror)
print(len(list(runs.read(path))))
runs.append(path, fold(Question("There?"), "nor", []))
"""
    ended = limited("-c", program)
    assert ended.stderr == ""
    assert ended.stdout == f"{errno.EFBIG} {path} File too large\n1\n"
    assert [trace.question.text for _, trace in runs.read(path)] == ["Where?", "There?"]


def test_a_run_on_a_full_disk_ends_with_one_line(index, script, tmp_path):
    (tmp_path / "q.jsonl").write_text('{"id": "1", "question": "Where is it?"}\n')
    arguments = ("--index", index, "-m", script, "--into", str(tmp_path / "run"))
    ended = limited("-m", "multihop", "eval", str(tmp_path / "q.jsonl"), *arguments)
    assert ended.returncode == 2
    assert ended.stderr.endswith(f"multihop: {tmp_path / 'run' / runs.TRACES}: File too large.\n")


def test_kinds_of_thoughts_are_told_apart(capsys):
    steps = [
        Thought("1 of 2", kind="chain"),
        Thought("Who wrote\x1b it?", kind="follow-up"),
        Thought("Ida", kind="intermediate answer"),
        Thought("Search[Ode]", kind="action"),
        Thought("No more results.", kind="observation"),
        Thought("Ida", kind="vote"),
    ]
    drawing = Drawing(terminal(stderr=False))
    for step in steps:
        drawing.step(step)
    assert [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()] == [
        ["chain", "1 of 2"],
        ["follow-up", "Who wrote␛ it?"],
        ["answer", "Ida"],
        ["action", "Search[Ode]"],
        ["observed", "No more results."],
        ["vote", "Ida"],
    ]
