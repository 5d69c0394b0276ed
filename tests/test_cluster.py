"""Questions asked by the workers of a Ray cluster, and handed out and written by one process."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from multihop import evaluation, runs
from multihop.cluster import Worker, ray_cluster
from multihop.errors import BadInput, LMUnavailable, MissingExtra, MultihopError
from multihop.text import Question
from multihop.trace import Answer, Trace


def die(when: str) -> bool:
    """Never, always, or once: when a file is not there yet."""
    if when in ("", "always"):
        return bool(when)
    try:
        Path(when).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Own:
    """Answers with the number of its process; dies and fails as told."""

    name = "own"

    def __init__(self, settings: dict[str, object], dies: str = "") -> None:
        self.settings = settings
        self.dies = dies

    async def steps(self, question: Question):
        if question.id == "q3" and die(self.dies):
            os.kill(os.getpid(), signal.SIGKILL)
        if question.id == "q5":
            raise LMUnavailable("Nobody answers.")
        yield Answer(str(os.getpid()), "answered")


@dataclass
class Parts:
    strategies: dict[str, Own]
    record: dict[str, object] = field(default_factory=dict)


def opening(k: int = 4, dies: str = ""):
    @asynccontextmanager
    async def opened():
        yield Parts({"own": Own({"k": k}, dies)}, {"corpus": "abc"})

    return opened


def questions(count: int) -> list[Question]:
    return [Question(f"What is {n}?", id=f"q{n}", answers=(f"{n}",)) for n in range(count)]


async def run(
    address: str, folder: Path, dies: str = "", workers: int = 2, here: int = 4
) -> list[Trace]:
    mine = Own({"k": here})
    async with ray_cluster(
        address, opening(4, dies), {"corpus": "abc"}, {"own": mine}, workers=workers, at_once=3
    ) as cluster:
        left = await evaluation.evaluate_each(
            questions(24), {"own": mine}, folder, concurrency=3 * workers, ask=cluster.ask
        )
    assert left == 0
    return [trace for _, trace in runs.read_folder(folder / "own")]


async def test_a_worker_opens_its_parts_once_and_keeps_failures() -> None:
    opened = 0

    @asynccontextmanager
    async def counted():
        nonlocal opened
        opened += 1
        async with opening()() as parts:
            yield parts

    worker = Worker(counted)
    traces = [await worker.ask("own", question) for question in questions(6)]
    assert [trace.error for trace in traces] == [""] * 5 + ["LMUnavailable: Nobody answers."]
    assert (await worker.record())[1] == {
        "parts": {"corpus": "abc"},
        "settings": {"own": {"k": 4}},
    }
    assert opened == 1


async def test_without_ray_one_line_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"multihop\[ray\]"):
        async with ray_cluster("local", opening(), {}, {}):
            pass


def test_workers_are_ray_s(multihop, tmp_path) -> None:
    asked = tmp_path / "q.jsonl"
    asked.write_text('{"id": "a", "question": "What?"}\n')
    done = multihop("eval", str(asked), "--strategy", "nor", "--workers", "2")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "--workers N is for --ray" in done.err


@pytest.fixture(scope="module")
def ray() -> Iterator[str]:
    """The address of a cluster of one node and three CPUs, which all tests share."""
    pytest.importorskip("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = [
        "start",
        "--head",
        f"--port={port}",
        "--node-ip-address=127.0.0.1",
        "--num-cpus=3",
        "--include-dashboard=false",
    ]
    command = [sys.executable, "-m", "ray.scripts.scripts", *start, "--block"]
    path = str(Path(__file__).parent)  # the workers import this file
    environment = {**os.environ, "PYTHONPATH": path, "RAY_AUTH_MODE": "disabled"}
    process = subprocess.Popen(
        [*command, "--disable-usage-stats"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    assert process.stdout
    for line in process.stdout:
        if b"started" in line:
            break
    else:
        pytest.fail("ray start ended")
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait(60)
    process.stdout.close()


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # Ray's own
class TestRay:
    async def test_workers_share_the_questions_and_one_process_writes(self, ray, tmp_path) -> None:
        traces = await run(ray, tmp_path)
        assert sorted(trace.question.id for trace in traces) == sorted(q.id for q in questions(24))
        processes = {trace.answer.text for trace in traces if trace.answer}
        assert len(processes) == 2
        assert str(os.getpid()) not in processes
        assert [trace.error for trace in traces if trace.error] == [
            "LMUnavailable: Nobody answers."
        ]
        assert [path.name for path in runs.trace_files(tmp_path / "own")] == [runs.TRACES]

    async def test_the_questions_of_a_worker_that_dies_are_asked_again(self, ray, tmp_path) -> None:
        traces = await run(ray, tmp_path / "run", dies=str(tmp_path / "died"))
        assert (tmp_path / "died").exists()
        assert sorted(trace.question.id for trace in traces) == sorted(q.id for q in questions(24))

    async def test_a_question_that_kills_every_worker_ends_the_run(self, ray, tmp_path) -> None:
        with pytest.raises(MultihopError, match="question 'q"):
            await run(ray, tmp_path / "run", dies="always")
        done = [trace.question.id for _, trace in runs.read_folder(tmp_path / "run" / "own")]
        assert "q3" not in done

    async def test_workers_that_open_something_else_are_refused(self, ray, tmp_path) -> None:
        with pytest.raises(BadInput, match="opens something else than is open here"):
            await run(ray, tmp_path / "run", here=6)
        assert not (tmp_path / "run").exists()

    async def test_more_workers_than_the_cluster_has_cpus_are_refused(self, ray, tmp_path) -> None:
        with pytest.raises(BadInput, match="--workers 4: the Ray cluster has 3 CPUs"):
            await run(ray, tmp_path / "run", workers=4)

    def test_eval_over_ray_gives_the_table_and_the_traces_of_one_process(
        self, ray, multihop, index, script, tmp_path
    ) -> None:
        asked = tmp_path / "q.jsonl"
        asked.write_text(
            "".join(
                json.dumps({"id": f"q{n}", "question": f"Where was Lost Gravity {n} made?"}) + "\n"
                for n in range(12)
            )
        )

        def told(folder: str, *more: str) -> tuple[object, object]:
            options = ["--index", index, "-m", script, "--into", str(tmp_path / folder), "--json"]
            done = multihop("eval", str(asked), "--strategy", "oner,ircot", *options, *more)
            assert done.code == 0, done.err
            tables = json.loads(done.out)
            for table in tables:
                table["means"].pop("seconds")
            traces = {
                (name, trace.question.id): [call.prompt for call in trace.calls]
                for name in ("oner", "ircot")
                for _, trace in runs.read_folder(tmp_path / folder / name)
            }
            return tables, traces

        budget = ["--run-budget-calls", "1000"]
        assert told("ray", "--ray", ray, "--workers", "2", *budget) == told("one", *budget)
