"""Several processes on one run folder: nothing asked twice, nothing lost, whoever dies."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from multihop import claims, evaluation, runs
from multihop.claims import Claims
from multihop.errors import BadInput, LMUnavailable, MultihopError
from multihop.strategies import RunBudget
from multihop.text import Question
from multihop.trace import Answer, LMCall, Thought, Tokens, Trace


class Slow:
    """Answers after a little while, and notes in which order it was asked."""

    name, settings = "slow", {}

    def __init__(self, asked: list[str], seconds: float = 0.001, calls: int = 0) -> None:
        self.asked = asked
        self.seconds = seconds
        self.calls = calls
        self.failing: set[str] = set()

    async def steps(self, question: Question):
        self.asked.append(question.id)
        await asyncio.sleep(self.seconds)
        for _ in range(self.calls):
            yield Thought("t", LMCall("reason", "m", "", ("",), ("stop",), 0.0, Tokens(1, 0, 1)))
        if question.id in self.failing:
            raise LMUnavailable("Nobody answers.")
        yield Answer(question.text, "answered")


def questions(count: int) -> list[Question]:
    return [Question(f"What is {n}?", id=f"q{n}", answers=(f"{n}",)) for n in range(count)]


def lines(folder: Path) -> list[str]:
    return [run.question.id for _, run in runs.read_folder(folder)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(evaluation, "LOOK", 0.02)


@pytest.mark.parametrize("count", [1, 5, 90, 350])
async def test_workers_share_a_run_and_ask_each_question_once(tmp_path, count) -> None:
    asked: list[list[str]] = [[] for _ in range(3)]
    ends: list[evaluation.Progress] = []
    left = await asyncio.gather(
        *(
            evaluation.evaluate(
                questions(count), Slow(mine), tmp_path, concurrency=3, on_progress=ends.append
            )
            for mine in asked
        )
    )
    assert left == [0, 0, 0]  # each of them waits for what the others are at
    assert (
        sorted(name for mine in asked for name in mine)
        == sorted(lines(tmp_path))
        == sorted(q.id for q in questions(count))
    )
    assert all(mine == sorted(mine, key=lambda name: int(name[1:])) for mine in asked)
    if count > 50:
        assert all(asked)
        assert names(tmp_path) == ["run.json", "traces-1.jsonl", "traces-2.jsonl", "traces.jsonl"]
    assert evaluation.score(tmp_path).finished == count
    assert ends[-1].done == count


async def test_a_worker_that_joins_late_takes_what_is_left(tmp_path) -> None:
    first, second = [], []

    async def late() -> int:
        await asyncio.sleep(0.05)
        return await evaluation.evaluate(questions(60), Slow(second, 0.005), tmp_path)

    await asyncio.gather(evaluation.evaluate(questions(60), Slow(first, 0.005), tmp_path), late())
    assert sorted([*first, *second]) == sorted(q.id for q in questions(60))
    assert second


async def test_strategies_of_one_run_are_shared_too(tmp_path) -> None:
    asked: dict[str, list[str]] = {"a": [], "b": []}

    async def work() -> int:
        return await evaluation.evaluate_each(
            questions(20), {name: Slow(mine) for name, mine in asked.items()}, tmp_path
        )

    assert await asyncio.gather(work(), work()) == [0, 0]
    for name, mine in asked.items():
        assert sorted(mine) == sorted(lines(tmp_path / name)) == sorted(q.id for q in questions(20))


async def test_what_another_worker_gives_up_is_asked_by_who_waits(tmp_path) -> None:
    class Enough(Exception):
        pass

    def stop(progress: evaluation.Progress) -> None:
        if progress.latest and progress.latest.question.id == "q0":
            raise Enough

    class Stuck(Slow):
        async def steps(self, question):
            await asyncio.sleep(0.05 if question.id == "q0" else 60)
            yield Answer(question.text, "answered")

    asked: list[str] = []
    leaving = evaluation.evaluate(
        questions(6), Stuck([]), tmp_path, concurrency=3, on_progress=stop
    )
    staying = evaluation.evaluate(questions(6), Slow(asked), tmp_path, concurrency=3)
    ended, left = await asyncio.gather(leaving, staying, return_exceptions=True)
    assert isinstance(ended, Enough)
    assert left == 0
    assert sorted(lines(tmp_path)) == [q.id for q in questions(6)]
    assert asked == ["q3", "q4", "q5", "q1", "q2"]


async def test_failed_questions_are_asked_again_once_by_workers_that_both_wish_it(tmp_path) -> None:
    failing = Slow([])
    failing.failing = {"q1", "q4", "q7"}
    await evaluation.evaluate(questions(9), failing, tmp_path)
    again: list[str] = []

    async def work() -> int:
        slow = Slow(again)
        slow.failing = {"q4"}
        return await evaluation.evaluate(questions(9), slow, tmp_path, retry_failed=True)

    assert await asyncio.gather(work(), work(), work()) == [0, 0, 0]
    assert sorted(again) == ["q1", "q4", "q7"]
    report = evaluation.score(tmp_path)
    assert (report.finished, report.failed) == (8, 1)


async def test_one_budget_counts_what_all_workers_spend(tmp_path) -> None:
    async def work(budget: RunBudget) -> int:
        return await evaluation.evaluate(
            questions(60), Slow([], calls=2), tmp_path, budget=budget, concurrency=1
        )

    budgets = [RunBudget(calls=40) for _ in range(2)]
    left = await asyncio.gather(*(work(budget) for budget in budgets))
    done = len(lines(tmp_path))
    assert 20 <= done <= 22  # a worker may begin one while another's last is not on disk
    assert 60 - done in left
    assert await work(RunBudget(calls=10_000)) == 0
    assert sorted(lines(tmp_path)) == sorted(q.id for q in questions(60))


async def test_what_others_spent_is_counted_once(tmp_path) -> None:
    await evaluation.evaluate(questions(10), Slow([], calls=2), tmp_path)
    budgets = [RunBudget(calls=10_000) for _ in range(2)]
    await asyncio.gather(
        *(
            evaluation.evaluate(questions(40), Slow([], calls=2), folder, budget=budget)
            for budget in budgets
            for folder in [tmp_path / "run"]
        )
    )
    assert [budget.spent.calls for budget in budgets] == [80, 80]


async def test_a_worker_that_was_taken_for_dead_writes_nothing(tmp_path) -> None:
    def usurp() -> None:
        claim = tmp_path / ".claim-0.0"
        claim.with_name(".claim-0.1").symlink_to("another")

    class Cut(Slow):
        async def steps(self, question):
            usurp()
            async for step in super().steps(question):
                yield step

    with pytest.raises(MultihopError, match="took over what it was at"):
        await evaluation.evaluate(questions(3), Cut([]), tmp_path, concurrency=1)
    assert lines(tmp_path) == []
    asked: list[str] = []
    assert await evaluation.evaluate(questions(3), Slow(asked), tmp_path) == 0
    assert asked == ["q0", "q1", "q2"]
    assert names(tmp_path) == ["run.json", "traces.jsonl"]


async def test_a_folder_of_a_host_that_is_gone_is_finished_after_the_lease(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(claims, "LEASE", 0.3)
    slow = Slow([])
    runs.start(tmp_path, evaluation.identity(slow, evaluation.fingerprint(questions(3))))
    with monkeypatch.context() as other:
        other.setattr(claims, "_host", lambda: "another kernel")
        gone = Claims(tmp_path).__enter__()
    assert gone.take("1")
    gone._end.set()
    began = time.monotonic()
    assert await evaluation.evaluate(questions(3), slow, tmp_path) == 0
    assert time.monotonic() - began > 0.3
    assert slow.asked == ["q0", "q2", "q1"]
    gone._leave()


async def test_a_damaged_line_of_another_worker_is_named(tmp_path) -> None:
    await evaluation.evaluate(questions(2), Slow([]), tmp_path)
    (tmp_path / "traces-1.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match=r"traces-1\.jsonl:1: not a trace"):
        await evaluation.evaluate(questions(2), Slow([]), tmp_path)
    with pytest.raises(BadInput, match=r"traces-1\.jsonl:1"):
        evaluation.score(tmp_path)


# --- Reading --------------------------------------------------------------------------------


def made(name: str) -> Trace:
    return Trace(Question("What?", id=name), "t", steps=(Answer("x", "answered"),))


def test_a_folder_is_read_as_one_run_whoever_wrote_it(tmp_path) -> None:
    for number in (10, 2, 0, 1):
        runs.append(runs.trace_file(tmp_path, number), made(f"a{number}"), made(f"b{number}"))
    (tmp_path / "traces-x.jsonl").write_text("no trace file\n")
    found = [(number, run.question.id) for number, run in runs.read_folder(tmp_path)]
    assert found == [*enumerate([f"{c}{n}" for n in (0, 1, 2, 10) for c in "ab"], 1)]
    assert runs.trace_files(tmp_path / "nowhere") == []


def test_the_line_of_two_workers_counts_once(tmp_path) -> None:
    runs.start(tmp_path, {"strategy": "t", "questions": {"count": 2}})
    failed = Trace(Question("What?", id="b"), "t", error="LMError: gone")
    runs.append(tmp_path / "traces.jsonl", made("a"), failed)
    runs.append(tmp_path / "traces-1.jsonl", made("b"), made("a"))
    report = evaluation.score(tmp_path)
    assert (report.finished, report.failed, report.missing) == (2, 0, 0)


def test_a_reader_gives_each_line_once_when_it_is_whole(tmp_path) -> None:
    reader = runs.Reader(tmp_path)
    path = tmp_path / "traces.jsonl"

    def new() -> list[str]:
        return [f"{Path(where).name} {json.loads(line)['n']}" for where, line in reader.new()]

    assert new() == []
    path.write_text('{"n": 1}\n{"n": 2')
    assert new() == ["traces.jsonl:1 1"]
    assert new() == []
    with path.open("a") as file:
        file.write("}")  # whole but for its end, as `read` has it too
    assert new() == ["traces.jsonl:2 2"]
    with path.open("a") as file:
        file.write('\n{"n": 3}\n')
    (tmp_path / "traces-1.jsonl").write_text('{"n": 9}\n')
    assert new() == ["traces.jsonl:3 3", "traces-1.jsonl:1 9"]
    reader.skip = path
    path.write_text('{"n": 4}\n' * 10)
    assert new() == []


# --- kill -9 --------------------------------------------------------------------------------

WORKER = """
import asyncio, sys
from pathlib import Path
from multihop import evaluation
from multihop.prompts.demonstrations import Demonstration
from multihop.strategies import Demonstrations, make
from multihop.testing import ScriptedLM, TitleRetriever
from multihop.text import Passage, Question

SHOTS = Demonstrations.from_cot([Demonstration("Q: Who wrote Ode?\\nA: So the answer is: Ida.")])
RIDES = [Passage(f"p{n}", f"Ride {n}.", f"Ride {n}. is next to Ride {n + 1}.") for n in range(99)]

def write(request):
    text = request.prompt.text
    number = int(text.rpartition("Q: Is Ride ")[2].partition(".")[0])
    if request.role == "read":
        return f"the answer is: {number % 7}."
    told = text.rpartition("\\nA:")[2].count("next")
    return f"It is next to Ride {number + told + 1}." if told < number % 3 else f"So the answer is: {number % 5}."

folder, count, delay = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
asked = [Question(f"Is Ride {n}. good?", id=f"q{n}", answers=(f"{n % 5}",)) for n in range(count)]
lm = ScriptedLM(respond=write, delay=delay, keep=False)
ircot = make("ircot", lm=lm, retriever=TitleRetriever(*RIDES), reader="cot", demonstrations=SHOTS, max_steps=4)
evaluation.LOOK = 0.05
left = asyncio.run(evaluation.evaluate(asked, ircot, folder, concurrency=3))
raise SystemExit(left)
"""


def worker(folder: Path, count: int, delay: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORKER, str(folder), str(count), str(delay)])


def result(folder: Path) -> dict[str, object]:
    """The table of a run, without its name and its times."""
    table = evaluation.score(folder).to_dict()
    del table["run"]
    table["means"].pop("seconds")
    return table


def said(folder: Path) -> dict[str, object]:
    """What each question's trace tells but for times."""

    def timeless(value: object) -> object:
        if isinstance(value, dict):
            return {k: timeless(v) for k, v in value.items() if k not in ("seconds", "started")}
        return [timeless(item) for item in value] if isinstance(value, list) else value

    return {
        run.question.id: timeless(json.loads(run.to_json())) for _, run in runs.read_folder(folder)
    }


def kill_at_random(tmp_path: Path, seed: int, *, workers: int, kills: int, count: int) -> None:
    """Kill a random worker at random moments, start another each time, and compare the end."""
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    assert worker(undisturbed, count, 0.0).wait() == 0
    delay = 0.02
    chance = random.Random(seed)
    at_work = [worker(disturbed, count, delay) for _ in range(workers)]
    killed_at: list[int] = []
    while not runs.trace_files(disturbed):
        time.sleep(0.01)
    for _ in range(kills):
        time.sleep(chance.uniform(0.0, 0.5))
        number = chance.randrange(workers)
        at_work[number].send_signal(signal.SIGKILL)
        assert at_work[number].wait() == -signal.SIGKILL, "the run was over before the last kill"
        killed_at.append(len(lines(disturbed)))
        at_work[number] = worker(disturbed, count, delay)
    assert [process.wait(120) for process in at_work] == [0] * workers

    assert killed_at[-1] < count
    asked = Counter(lines(disturbed))
    assert asked == Counter(f"q{n}" for n in range(count))  # none twice, none lost
    assert result(disturbed) == result(undisturbed)
    assert said(disturbed) == said(undisturbed)
    files = [path.name for path in runs.trace_files(disturbed)]
    assert names(disturbed) == sorted(["run.json", *files])


def test_a_run_whose_workers_are_killed_ends_like_an_undisturbed_one(tmp_path) -> None:
    kill_at_random(tmp_path, 1, workers=2, kills=2, count=80)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_twenty_kills_of_four_workers_leave_the_undisturbed_table(tmp_path, seed) -> None:
    kill_at_random(tmp_path, seed, workers=4, kills=20, count=900)
