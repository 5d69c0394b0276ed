"""`multihop ask`: steps as they happen, the answer alone on stdout, every trace kept."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from typing import ClassVar

import pytest

from multihop.cli.ask import _in_order
from multihop.text import Question
from multihop.trace import Answer, Trace

WHERE = "Where was Lost Gravity made?"


def test_the_answer_goes_to_stdout_and_the_steps_to_stderr(multihop, index, script) -> None:
    done = multihop("ask", WHERE, "--index", index, "-m", script)
    assert (done.code, done.out) == (0, "Germany\n")
    lines = [line.strip() for line in done.err.splitlines()]
    assert lines[0] == f"? {WHERE}"
    searches = [line for line in lines if "search" in line.split()[1:2]]
    assert [line.split(None, 2)[2] for line in searches] == [
        "was Lost Gravity made?",
        "Lost Gravity was built by Mack Rides.",
    ]
    assert "thought  Lost Gravity was built by Mack Rides." in lines
    assert any(line.startswith("+ [1] Lost Gravity") for line in lines)
    assert any(line.startswith("+ [2] Mack Rides") for line in lines)
    assert "stopped  answered: an answer was stated" in lines
    assert lines.index("stopped  answered: an answer was stated") < lines.index(
        "from     [1] Lost Gravity"
    )
    assert "[2] Mack Rides" in lines


def test_a_question_needs_no_verb(multihop, index, script) -> None:
    assert multihop(WHERE, "--index", index, "-m", script).out == "Germany\n"
    assert multihop("--index", index, "-m", script, WHERE).out == "Germany\n"


def test_index_and_model_may_come_from_the_environment(
    multihop, index, script, monkeypatch
) -> None:
    monkeypatch.setenv("MULTIHOP_INDEX", index)
    monkeypatch.setenv("MULTIHOP_MODEL", script)
    assert multihop(WHERE).out == "Germany\n"


def test_json_is_the_whole_trace(multihop, index, script) -> None:
    done = multihop("ask", WHERE, "--index", index, "-m", script, "--json")
    trace = Trace.from_json(done.out)
    assert trace.answer
    assert trace.answer.text == "Germany"
    assert len(trace.searches) == 2


def test_quiet_says_only_the_answer(multihop, index, script) -> None:
    done = multihop("ask", WHERE, "--index", index, "-m", script, "--quiet")
    assert (done.out, done.err) == ("Germany\n", "")


def test_prompts_are_shown_on_demand(multihop, index, script) -> None:
    done = multihop("ask", WHERE, "--index", index, "-m", script, "--prompts")
    assert f"Q: {WHERE}\nA:" in done.err
    assert f"Q: {WHERE}\nA:" not in multihop("show").out
    assert f"Q: {WHERE}\nA:" in multihop("show", "--prompts").out


def test_every_trace_is_kept_and_can_be_replayed(multihop, index, script, tmp_path) -> None:
    first = multihop("ask", WHERE, "--index", index, "-m", script)
    where = first.err.splitlines()[-1].removeprefix("  multihop show ")
    assert where.startswith(str(tmp_path / "runs" / "asks-"))
    multihop("ask", "Who else?", "--index", index, "-m", script)

    replayed = multihop("show", where)
    assert WHERE in replayed.out
    assert "answer   Germany" in replayed.out
    steps = [line for line in first.err.splitlines() if "search  " in line or "thought" in line]
    assert len(steps) == 4
    for line in steps:
        assert line in replayed.out.splitlines()
    assert "Who else?" in multihop("show").out  # the latest


def test_a_trace_of_a_question_that_failed_is_kept_too(multihop, index, script) -> None:
    done = multihop("ask", "Fail where?", "--index", index, "-m", script)
    assert done.code == 2
    assert done.out == ""
    [line] = [line for line in done.err.splitlines() if line.startswith("multihop:")]
    assert line.startswith("multihop: The model fell over. Trace: ")
    assert "failed   LMError: The model fell over." in multihop("show").out


def test_no_answer_says_why_and_is_not_success(multihop, index, script) -> None:
    done = multihop("ask", "Silent night?", "--index", index, "-m", script, "--quiet")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("multihop: no answer: ")


def test_a_trace_that_cannot_be_kept_takes_nobodys_answer_away(
    multihop, index, script, tmp_path
) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    done = multihop("ask", WHERE, "--index", index, "-m", script)
    assert (done.code, done.out) == (0, "Germany\n")
    assert "multihop: the trace was not kept" in done.err


def test_documents_and_models_cannot_control_the_terminal(multihop, index, script) -> None:
    asked = "Evil \x1b[31m?"
    done = multihop("ask", asked, "--index", index, "-m", script, "--prompts")
    shown = done.out + done.err + multihop("show", "--prompts").out
    for unsafe in ("\x1b", "\x07", "\x9b", "\u202e"):
        assert unsafe not in shown
    assert "[bold]Evil[/bold] ␛]0;owned␇" in shown
    assert "Evil ␛[5mblinks [red]." in shown
    assert "<U+202E>" in shown
    assert "[link=file:///etc/passwd]" in shown
    assert done.out == "␇x\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ask", WHERE], "ircot searches: say where with --index DIR"),
        (["ask", WHERE, "--index", "nowhere"], "nowhere"),
        (["ask", " ", "-s", "nor"], "The question: is empty"),
        (["ask", WHERE, "-s", "ircod"], "No strategy is named 'ircod'. Did you mean 'ircot'?"),
        (["ask", WHERE, "-s", "nor,oner"], "expected one name"),
        (["ask", WHERE, "-s", "nor", "-m", "scriptd:x"], "Did you mean 'scripted'?"),
        (["ask", WHERE, "-s", "nor", "-m", "scripted:none"], "none: there is no such script"),
        (["ask", WHERE, "-s", "nor", "-o", "threads"], "expected NAME=VALUE"),
        (["ask", WHERE, "--index", "a", "--retriever", "b:c"], "give one of the two"),
        (["ask", WHERE, "--retriever", "bm52:x"], "Did you mean 'bm25'?"),
        (["show", "nowhere"], "there is no such run folder or trace file"),
        (["show"], "no question was asked yet"),
    ],
)
def test_bad_input_is_one_line_and_code_2(multihop, arguments, words) -> None:
    done = multihop(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert words in done.err
    assert len(done.err.splitlines()) == 1


def test_a_mistyped_verb_names_the_nearest(multihop) -> None:
    done = multihop("serch")
    assert done.code == 2
    assert "No command is named 'serch'. Did you mean 'search'?" in done.err


def test_nor_needs_no_index(multihop, script) -> None:
    assert multihop("ask", WHERE, "-s", "nor", "-m", script).out


# --- Standard input -------------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from multihop.cli import main; main()", *arguments]


def piped(text: str | bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    content = text.encode() if isinstance(text, str) else text
    return subprocess.run(
        command(*arguments), input=content, capture_output=True, timeout=60, check=False
    )


def test_many_questions_give_a_json_line_each_in_order(index, script) -> None:
    lines = f'{WHERE}\n\n{{"id": "x", "question": "Fail here?"}}\nWho else?\n'
    done = piped(lines, "ask", "--index", index, "-m", script)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["id"], r["question"], r["answer"]) for r in records] == [
        ("", WHERE, "Germany"),
        ("x", "Fail here?", ""),
        ("", "Who else?", "Germany"),
    ]
    assert records[1]["error"] == "LMError: The model fell over."
    assert [p["id"] for p in records[0]["passages"]] == ["lost", "mack"]
    assert b"question 2: LMError: The model fell over." in done.stderr
    assert done.returncode == 1


def test_json_on_many_questions_is_a_trace_each(index, script) -> None:
    done = piped(f"{WHERE}\nWho else?\n", "ask", "--index", index, "-m", script, "--json")
    traces = [Trace.from_json(line) for line in done.stdout.decode().splitlines()]
    assert [t.question.text for t in traces] == [WHERE, "Who else?"]
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"question": \n', b"<stdin>:2: not JSON"),
        (b'{"text": "x"}\n', b"<stdin>:2: "),
        (b"\xff\xfe\n", b"<stdin>:2: not UTF-8"),
    ],
)
def test_a_bad_line_stops_with_its_number_after_those_before_it(index, script, line, words) -> None:
    done = piped(WHERE.encode() + b"\n" + line, "ask", "--index", index, "-m", script)
    assert done.returncode == 2
    [record] = done.stdout.splitlines()
    assert json.loads(record)["answer"] == "Germany"
    [error] = done.stderr.splitlines()
    assert words in error


def test_when_every_question_fails_the_reason_is_the_error(index, script) -> None:
    done = piped("Fail a?\nFail b?\n", "ask", "--index", index, "-m", script)
    assert done.returncode == 2
    last = done.stderr.decode().splitlines()[-1]
    assert last == "multihop: All 2 questions failed; the last: The model fell over."


def test_no_question_at_all_is_no_failure(index, script) -> None:
    done = piped("", "ask", "--index", index, "-m", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


async def test_answers_come_in_order_though_they_are_found_out_of_order() -> None:
    working = most = 0

    class Slower:
        name = "slower"
        settings: ClassVar[dict] = {}

        async def steps(self, question: Question) -> AsyncGenerator[Answer, None]:
            nonlocal working, most
            working += 1
            most = max(most, working)
            await asyncio.sleep(0.02 / (1 + int(question.text)))
            working -= 1
            yield Answer(question.text, "answered")

    async def questions() -> AsyncGenerator[Question, None]:
        for number in range(20):
            yield Question(str(number))

    found = [t.question.text async for t in _in_order(Slower(), questions(), 3)]
    assert found == [str(number) for number in range(20)]
    assert most == 3


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children can be interrupted even where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_answer_comes_before_the_next_question_is_written(index, script) -> None:
    with subprocess.Popen(
        command("ask", "--index", index, "-m", script),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(WHERE.encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["answer"] == "Germany"
        process.send_signal(signal.SIGINT)  # the thread still waits for a line
        assert process.wait(20) == 130


def test_a_reader_that_has_seen_enough_ends_it_quietly(index, script) -> None:
    with subprocess.Popen(
        command("ask", "--index", index, "-m", script, "--json"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(f"{WHERE}\n".encode() * 300)
        process.stdin.close()
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) != 0


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_an_evaluation_cleanly_and_it_resumes(index, tmp_path) -> None:
    script = tmp_path / "slow.json"
    rules = [{"prompt": "", "text": "So the answer is: 1."}]
    script.write_text(json.dumps({"delay": 0.03, "rules": rules}))
    asked = tmp_path / "questions.jsonl"
    asked.write_text("".join(json.dumps({"question": f"Q{n}?"}) + "\n" for n in range(40)))
    folder = tmp_path / "run"
    arguments = command(
        *("eval", str(asked), "-s", "nor", "-m", f"scripted:{script}", "--into", str(folder))
    )
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    journal = folder / "traces.jsonl"
    deadline = time.monotonic() + 30
    while not journal.exists() or journal.read_bytes().count(b"\n") < 5:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.decode().splitlines()[-1] == "multihop: Interrupted."
    assert b"Traceback" not in err
    before = journal.read_bytes()
    assert before.endswith(b"\n")
    assert before.count(b"\n") < 40
    subprocess.run(arguments, check=True, capture_output=True, env=dict(os.environ))
    assert journal.read_bytes().startswith(before)
    assert journal.read_bytes().count(b"\n") == 40
