"""Question files: run without loss or repetition, scored without a model."""

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from multihop import evaluation, runs
from multihop.errors import BadInput, LMUnavailable, MultihopError
from multihop.text import Hit, Passage, Question
from multihop.trace import Answer, LMCall, Search, Thought, Tokens, Trace


class Fake:
    """Answers each question with its own text, or fails as told."""

    def __init__(self, name: str = "fake", **settings: object) -> None:
        self.name = name
        self.settings = settings
        self.asked: list[str] = []
        self.failing: set[str] = set()
        self.working = self.most = 0

    async def steps(self, question: Question) -> AsyncGenerator[Answer, None]:
        self.asked.append(question.id)
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            await asyncio.sleep(0)
            if question.id in self.failing:
                raise LMUnavailable("Nobody answers at http://x.")
            yield Answer(question.text, "answered")
        finally:
            self.working -= 1


def questions(count: int) -> list[Question]:
    return [Question(f"What is {n}?", id=f"q{n}", answers=(f"{n}",)) for n in range(count)]


def kept(folder: Path) -> list[str]:
    return [trace.question.id for _, trace in runs.read(folder / runs.TRACES)]


async def test_each_question_is_asked_once_and_kept(tmp_path) -> None:
    strategy = Fake()
    seen: list[evaluation.Progress] = []
    await evaluation.evaluate(questions(20), strategy, tmp_path / "run", on_progress=seen.append)
    assert (
        sorted(strategy.asked)
        == sorted(kept(tmp_path / "run"))
        == sorted(q.id for q in questions(20))
    )
    assert [p.done for p in seen] == list(range(21))
    assert {p.total for p in seen} == {20}


async def test_a_second_sitting_asks_only_what_is_missing(tmp_path) -> None:
    class Enough(Exception):
        pass

    def stop(progress: evaluation.Progress) -> None:
        if progress.done == 5:
            raise Enough

    first, second = Fake(), Fake()
    with pytest.raises(Enough):
        await evaluation.evaluate(questions(12), first, tmp_path / "run", on_progress=stop)
    done = kept(tmp_path / "run")
    assert len(done) >= 5
    await evaluation.evaluate(questions(12), second, tmp_path / "run")
    assert sorted([*done, *second.asked]) == sorted(q.id for q in questions(12))
    third = Fake()
    await evaluation.evaluate(questions(12), third, tmp_path / "run")
    assert third.asked == []


class InTurn(Fake):
    """Each question takes a little longer than the one before it."""

    async def steps(self, question: Question) -> AsyncGenerator[Answer, None]:
        for _ in range(8 * int(question.id[1:])):
            await asyncio.sleep(0)
        async for step in super().steps(question):
            yield step


async def test_nothing_is_still_being_written_when_an_evaluation_ends_early(
    tmp_path, monkeypatch
) -> None:
    begun: list[list[str]] = []
    append = runs.append

    def slow(path, *traces):
        begun.append([trace.question.id for trace in traces])
        time.sleep(0.05)  # meanwhile the others come to their ends
        return append(path, *traces)

    def stop(progress: evaluation.Progress) -> None:
        if progress.done == 1:
            raise KeyError

    monkeypatch.setattr(runs, "append", slow)
    with pytest.raises(KeyError):
        await evaluation.evaluate(questions(4), InTurn(), tmp_path / "run", on_progress=stop)
    assert begun == [["q0"], ["q1", "q2", "q3"]]
    assert kept(tmp_path / "run") == ["q0", "q1", "q2", "q3"]


async def test_what_waits_for_the_disk_is_written_together_and_told_when_it_is_there(
    tmp_path, monkeypatch
) -> None:
    writes = at_work = 0
    append = runs.append

    class Counted(InTurn):
        async def steps(self, question: Question) -> AsyncGenerator[Answer, None]:
            nonlocal at_work
            at_work += 1
            try:
                async for step in super().steps(question):
                    yield step
            finally:
                at_work -= 1

    def slow(path, *traces):
        nonlocal writes
        writes += 1
        give_up = time.monotonic() + 10
        while at_work and time.monotonic() < give_up:  # slower than every question, on any machine
            time.sleep(0.0005)
        return append(path, *traces)

    def told(progress: evaluation.Progress) -> None:
        if progress.latest:
            assert progress.latest.question.id in kept(tmp_path / "run")

    monkeypatch.setattr(runs, "append", slow)
    await evaluation.evaluate(
        questions(64), Counted(), tmp_path / "run", concurrency=32, on_progress=told
    )
    assert len(kept(tmp_path / "run")) == 64
    assert writes <= 32


async def test_a_disk_that_fails_ends_the_run_and_nothing_is_told_as_done(
    tmp_path, monkeypatch
) -> None:
    def full(path, *traces):
        raise OSError(28, "No space left on device")

    told: list[evaluation.Progress] = []
    monkeypatch.setattr(runs, "append", full)
    with pytest.raises(OSError, match="No space left"):
        await evaluation.evaluate(questions(9), Fake(), tmp_path / "run", on_progress=told.append)
    assert [progress.done for progress in told] == [0]


async def test_a_line_torn_by_a_kill_is_asked_again(tmp_path) -> None:
    folder = tmp_path / "run"
    await evaluation.evaluate(questions(5), Fake(), folder, concurrency=1)
    path = folder / runs.TRACES
    path.write_bytes(path.read_bytes()[:-30])
    again = Fake()
    await evaluation.evaluate(questions(5), again, folder)
    assert again.asked == ["q4"]
    assert kept(folder) == [q.id for q in questions(5)]


async def test_at_most_so_many_questions_are_at_work(tmp_path) -> None:
    strategy = Fake()
    await evaluation.evaluate(questions(30), strategy, tmp_path / "run", concurrency=3)
    assert strategy.most == 3


async def test_questions_are_taken_one_by_one_not_held_together(tmp_path) -> None:
    taken = finished = ahead = 0

    class Stream:
        def __iter__(self) -> Iterator[Question]:
            nonlocal taken
            taken = 0
            for question in questions(200):
                taken += 1
                yield question

    def count(progress: evaluation.Progress) -> None:
        nonlocal finished, ahead
        finished = progress.done
        if finished:
            ahead = max(ahead, taken - finished)

    await evaluation.evaluate(Stream(), Fake(), tmp_path / "run", concurrency=4, on_progress=count)
    assert finished == 200
    assert ahead <= 5  # four at work, and the other one of the last two


class Changing(list[Question]):
    """Others when they are read for the second time."""

    def __init__(self, first: list[Question], then: list[Question]) -> None:
        super().__init__(first)
        self.then = [first, then]

    def __iter__(self) -> Iterator[Question]:
        return iter(self.then.pop(0)) if len(self.then) > 1 else iter(self.then[0])


async def test_questions_that_were_added_meanwhile_are_another_run_s(tmp_path) -> None:
    asked = Changing(questions(3), questions(5))
    asked.then.insert(0, asked.then[0])  # for the check that it is no generator
    assert await evaluation.evaluate(asked, Fake(), tmp_path / "run") == 0
    assert evaluation.score(tmp_path / "run").missing == 0
    assert sorted(kept(tmp_path / "run")) == ["q0", "q1", "q2"]


@pytest.mark.parametrize("then", [questions(2), [*questions(2), Question("Else?", id="q2")]])
async def test_questions_that_changed_meanwhile_end_the_run_with_the_reason(tmp_path, then) -> None:
    asked = Changing(questions(3), then)
    asked.then.insert(0, asked.then[0])
    with pytest.raises(BadInput, match="changed while they were asked"):
        await evaluation.evaluate(asked, Fake(), tmp_path / "run")


async def test_strategies_take_turns_on_each_question(tmp_path) -> None:
    order: list[tuple[str, str]] = []
    strategies = {name: Fake(name) for name in ("nor", "oner")}
    await evaluation.evaluate_each(
        questions(3),
        strategies,
        tmp_path,
        concurrency=1,
        on_progress=lambda p: p.latest and order.append((p.latest.question.id, p.latest.strategy)),
    )
    assert order == [(f"q{n}", name) for n in range(3) for name in ("nor", "oner")]
    assert kept(tmp_path / "nor") == kept(tmp_path / "oner") == ["q0", "q1", "q2"]
    assert runs.folders(tmp_path) == [tmp_path / "nor", tmp_path / "oner"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": 6}, "settings.k 4 (now: 6)"),
        ({"name": "other"}, 'strategy "fake" (now: "other")'),
        ({"questions": 4}, "questions.sha256"),
        ({"record": {"corpus": "b"}}, 'parts.corpus "a" (now: "b")'),
    ],
)
async def test_another_run_is_refused_before_anything_is_changed(tmp_path, change, words) -> None:
    folder = tmp_path / "run"
    await evaluation.evaluate(questions(3), Fake(k=4), folder, record={"corpus": "a"})
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = Fake(change.get("name", "fake"), k=change.get("k", 4))
    with pytest.raises(BadInput) as refused:
        await evaluation.evaluate(
            questions(change.get("questions", 3)),
            other,
            folder,
            record=change.get("record", {"corpus": "a"}),
        )
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert other.asked == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("bad", ["foreign", "other run", "damaged"])
async def test_no_strategy_s_folder_is_made_when_another_s_is_refused(tmp_path, bad) -> None:
    fakes = {"nor": Fake("nor"), "oner": Fake("oner")}
    if bad == "foreign":
        (tmp_path / "oner").mkdir()
        (tmp_path / "oner" / "letter.txt").write_text("mine")
    else:
        await evaluation.evaluate(questions(2), Fake("oner", k=5), tmp_path / "oner")
    if bad == "damaged":
        fakes["oner"] = Fake("oner", k=5)
        (tmp_path / "oner" / runs.TRACES).write_text("{}\n")
    with pytest.raises(BadInput):
        await evaluation.evaluate_each(questions(2), fakes, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["oner"]
    assert fakes["nor"].asked == []


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([Question("A?")], "Question 1 has no id"),
        ([Question("A?", id="a"), Question("B?", id="a")], "Question 2 has the id of an earlier"),
        ([Question(" ", id="a")], r"Question 1 \('a'\) is empty"),
        ([], "There are no questions"),
    ],
)
async def test_bad_questions_are_refused_before_a_folder_is_made(tmp_path, asked, words) -> None:
    with pytest.raises(BadInput, match=words):
        await evaluation.evaluate(asked, Fake(), tmp_path / "run")
    with pytest.raises(BadInput, match="read twice"):
        await evaluation.evaluate(iter(questions(2)), Fake(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


async def test_a_failed_question_is_kept_reported_and_asked_again_only_by_wish(tmp_path) -> None:
    folder = tmp_path / "run"
    strategy = Fake()
    strategy.failing = {"q1", "q3"}
    await evaluation.evaluate(questions(5), strategy, folder)
    report = evaluation.score(folder)
    assert (report.questions, report.finished, report.failed, report.missing) == (5, 3, 2, 0)
    assert dict(report.failures) == dict.fromkeys(
        ("q1", "q3"), "LMUnavailable: Nobody answers at http://x."
    )
    assert report.means["em"].n == 3

    strategy.asked.clear()
    await evaluation.evaluate(questions(5), strategy, folder)
    assert strategy.asked == []
    strategy.failing = {"q3"}
    await evaluation.evaluate(questions(5), strategy, folder, retry_failed=True)
    assert sorted(strategy.asked) == ["q1", "q3"]
    report = evaluation.score(folder)
    assert (report.finished, report.failed) == (4, 1)
    assert sorted(run.question.id for run in evaluation.finished(folder)) == [
        q.id for q in questions(5)
    ]


async def test_failures_in_a_row_end_the_run_with_the_reason(tmp_path) -> None:
    strategy = Fake()
    strategy.failing = {q.id for q in questions(100)}
    with pytest.raises(MultihopError, match=r"5 questions in a row failed.*Nobody answers") as end:
        await evaluation.evaluate(
            questions(100), strategy, tmp_path / "run", give_up_after=5, concurrency=2
        )
    assert "--retry-failed" in str(end.value)
    assert 5 <= len(kept(tmp_path / "run")) <= 6


async def test_failures_parted_by_successes_do_not_end_the_run(tmp_path) -> None:
    strategy = Fake()
    strategy.failing = {f"q{n}" for n in range(0, 40, 2)}
    await evaluation.evaluate(
        questions(40), strategy, tmp_path / "run", give_up_after=3, concurrency=1
    )
    assert evaluation.score(tmp_path / "run").failed == 20


async def test_a_run_of_which_everything_fails_ends_with_the_reason(tmp_path) -> None:
    strategy = Fake()
    strategy.failing = {"q0", "q1"}
    with pytest.raises(MultihopError, match=r"All 2 questions failed.*Nobody answers"):
        await evaluation.evaluate(questions(2), strategy, tmp_path / "run")


# --- Scores ---------------------------------------------------------------------------------


def scored(tmp_path: Path, *traces: Trace) -> evaluation.Report:
    runs.start(tmp_path, {"strategy": "ircot", "questions": {"count": len(traces) + 1}})
    for trace in traces:
        runs.append(tmp_path / runs.TRACES, trace)
    return evaluation.score(tmp_path)


def test_means_and_standard_errors_are_those_worked_by_hand(tmp_path) -> None:
    def run(name: str, said: str, stop: str, tokens: Tokens, finish: str = "stop") -> Trace:
        call = LMCall("read", "m", "p", (said,), (finish,), 0.5, tokens)
        found = tuple(f"p{n}" for n in range(8))
        return Trace(
            Question("?", id=name, answers=("red fox",), gold_ids=("p1", "p6")),
            "ircot",
            steps=(
                Search("?", tuple(Hit(Passage(p, p, p), 1.0) for p in found), found, found),
                Thought("So."),
                Answer(said, stop, call=call, reason="" if said else "Nothing."),
            ),
            seconds=2.0,
        )

    report = scored(
        tmp_path,
        run("a", "The red fox", "answered", Tokens(10, 4, 2)),
        run("b", "fox", "max_steps", Tokens(30, None, 4), "length"),
        run("c", "", "max_steps", Tokens(20, None, 0)),
    )

    f1 = [1, 2 / 3, 0]
    mean = sum(f1) / 3
    error = math.sqrt(sum((x - mean) ** 2 for x in f1) / 2) / math.sqrt(3)
    assert report.means["f1"].value == pytest.approx(mean)
    assert report.means["f1"].error == pytest.approx(error)
    assert report.means["em"].value == pytest.approx(1 / 3)
    assert report.means["gold_recall@5"].value == 0.5
    assert report.means["gold_recall@15"].value == 1.0
    assert "title_recall" not in report.means
    assert report.means["prompt_tokens"].value == 20
    cached = report.means["cached_tokens"]
    assert (cached.value, cached.error, cached.n, cached.unscored) == (4, None, 1, 2)
    assert report.stops == {"max_steps": 2, "answered": 1}
    assert (report.without_answer, report.cut) == (1, 1)
    assert (report.finished, report.failed, report.missing) == (3, 0, 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_a_metric_that_gives_no_number_is_named(tmp_path, value) -> None:
    await evaluation.evaluate(questions(2), Fake(), tmp_path / "run")
    with pytest.raises(BadInput, match=f"the metric 'mine' is {value} for question 'q1'"):
        evaluation.score(
            tmp_path / "run", {"mine": lambda run: value if run.question.id == "q1" else 1.0}
        )


def test_recall_counts_titles_where_no_passages_are_annotated(tmp_path) -> None:
    hit = Hit(Passage("p1", "Ulm", "A town."), 1.0)
    question = Question("?", id="a", gold_titles=("ulm", "Inn"))
    steps = (Search("?", (hit,), ("p1",), ("p1",)), Answer("x", "answered"))
    report = scored(tmp_path, Trace(question, "oner", steps=steps))
    assert report.means["title_recall@5"].value == 0.5
    assert "gold_recall" not in report.means
    assert "em" not in report.means  # no gold answer is not a wrong answer


# --- kill -9 --------------------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from multihop.cli import main; main()", *arguments]


@pytest.mark.parametrize("moment", [1, 6, 13])
def test_a_killed_run_finishes_like_an_undisturbed_one(tmp_path, moment) -> None:
    script = tmp_path / "script.json"
    rules = [
        {"prompt": f"Q: What is {n}\\?\\nA:[^\\n]*$", "text": f"So the answer is: {n}."}
        for n in range(16)
    ]
    script.write_text(json.dumps({"delay": 0.02, "rules": rules}))
    asked = tmp_path / "questions.jsonl"
    asked.write_text(
        "".join(
            json.dumps({"id": q.id, "question": q.text, "answers": list(q.answers)}) + "\n"
            for q in questions(16)
        )
    )

    def arguments(folder: str) -> list[str]:
        options = ["--strategy", "nor", "-m", f"scripted:{script}", "--into", folder]
        return command("eval", str(asked), *options, "--concurrency", "2", "--json")

    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    whole = subprocess.run(arguments(str(undisturbed)), capture_output=True, check=True)
    process = subprocess.Popen(
        arguments(str(killed)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    journal = killed / runs.TRACES
    deadline = time.monotonic() + 30
    while not journal.exists() or journal.read_bytes().count(b"\n") < moment:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = journal.read_bytes()
    assert before.count(b"\n") < 16

    resumed = subprocess.run(arguments(str(killed)), capture_output=True, check=True)

    assert journal.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert sorted(kept(killed)) == sorted(kept(undisturbed)) == sorted(q.id for q in questions(16))

    def table(output: bytes) -> object:
        [report] = json.loads(output)
        del report["run"], report["means"]["seconds"]
        return report

    assert table(resumed.stdout) == table(whole.stdout)
    assert table(whole.stdout)["means"]["em"]["mean"] == 1.0


@pytest.mark.slow
def test_ten_thousand_questions_take_no_more_memory_than_a_thousand(tmp_path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"rules": [{"prompt": "", "text": "So the answer is: 1."}]}))
    peaks = []
    for count in (1_000, 10_000):
        asked = tmp_path / f"{count}.jsonl"
        asked.write_text("".join(f'{{"question": "What is {n}?"}}\n' for n in range(count)))
        options = ["-s", "nor", "-m", f"scripted:{script}", "--into", str(tmp_path / f"r{count}")]
        program = (
            "import resource, sys\nfrom multihop.cli import main\n"
            "try:\n    main()\nfinally:\n"
            "    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "    sys.stderr.write(f'\\npeak {peak}')"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, "eval", str(asked), *options, "--concurrency", "16"],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stderr.rpartition("peak ")[2]))
        assert len(kept(tmp_path / f"r{count}")) == count
    # Ids and scores of 9,000 more questions; a trace of each would be 15 MB.
    assert peaks[1] - peaks[0] < 12_000  # kB
