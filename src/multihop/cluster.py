"""A run's questions asked by the workers of a Ray cluster; the extra `ray`.

Each worker is a process somewhere in the cluster that opens its own parts and asks questions. The
process that evaluates hands the questions out and is the only one that writes: nothing but what
the parts themselves need (an index, weights) has to be reachable from the workers. A worker that
dies is started again, and its questions are asked again. When the process that evaluates dies,
Ray ends the workers, and the same call goes on where it was.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from multihop.errors import BadInput, MissingExtra, MultihopError
from multihop.text import Json, Question
from multihop.trace import Strategy, Trace, trace

RETRIES = 3
"""How often a question is asked again because its worker died."""


class Opened(Protocol):
    """What a worker opens.

    Attributes:
        strategies: By name.
        record: What else decides the result; it must be the same everywhere.
    """

    @property
    def strategies(self) -> Mapping[str, Strategy]: ...  # noqa: D102

    @property
    def record(self) -> Mapping[str, Json]: ...  # noqa: D102


Open = Callable[[], AbstractAsyncContextManager[Opened]]


class Worker:
    """What runs in each process of the cluster.

    Args:
        opening: Opens the parts, once; it is sent to the process.
    """

    def __init__(self, opening: Open) -> None:
        self._opening = opening
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._opened: Opened | None = None

    async def record(self) -> tuple[str, Json]:
        """Where this is, and what decides the results here."""
        opened = await self._open()
        made = opened.strategies.items()
        settings: dict[str, Json] = {name: dict(s.settings) for name, s in made}
        return os.uname().nodename, {"parts": dict(opened.record), "settings": settings}

    async def ask(self, strategy: str, question: Question) -> Trace:
        """Run a strategy on a question; a failure is kept in the trace."""
        opened = await self._open()
        return await trace(opened.strategies[strategy], question, keep_errors=True)

    async def _open(self) -> Opened:
        async with self._lock:
            if self._opened is None:
                self._opened = await self._stack.enter_async_context(self._opening())
            return self._opened


class Cluster:
    """Workers that are ready; `ask` is made for `evaluate_each`."""

    def __init__(self, workers: list[Any], nodes: int) -> None:
        self._workers = workers
        self._busy = Counter[int](dict.fromkeys(range(len(workers)), 0))
        self.workers = len(workers)
        self.nodes = nodes

    async def ask(self, strategy: str, question: Question) -> Trace:
        """Ask the worker that has least to do.

        Raises:
            MultihopError: Its process died again and again.
        """
        from ray.exceptions import RayError  # noqa: PLC0415

        number = min(self._busy, key=lambda number: self._busy[number])
        self._busy[number] += 1
        try:
            found: Trace = await self._workers[number].ask.remote(strategy, question)
        except RayError as failure:
            raise MultihopError(
                f"A Ray worker failed at question {question.id!r}, {RETRIES + 1} times where it "
                f"died: {_reason(failure)}. What is finished is kept."
            ) from failure
        finally:
            self._busy[number] -= 1
        return found


@asynccontextmanager
async def ray_cluster(
    address: str,
    opening: Open,
    record: Mapping[str, Json],
    strategies: Mapping[str, Strategy],
    *,
    workers: int | None = None,
    at_once: int = 4,
) -> AsyncGenerator[Cluster, None]:
    """Start workers in a cluster, and end them at the end.

    Args:
        address: `HOST:PORT` of the cluster, "auto" for the one that this machine is part of, or
            "local" to start one here for as long as this takes.
        opening: Opens the parts in each worker.
        record: What it must find there: the record of the parts opened here.
        strategies: Likewise.
        workers: How many processes; by default one a node. Each takes one CPU of the cluster.
        at_once: Most questions at work in each.

    Raises:
        MissingExtra: Ray is not installed.
        BadInput: There is no such cluster, it has too few CPUs, or what is opened there is
            something else.
    """
    try:
        import ray  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("ray", "ray") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if address == "local":
            cpus = max(workers or 1, os.cpu_count() or 1)
            ray.init(num_cpus=cpus, include_dashboard=False, **quiet)
        else:
            ray.init(address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as failure:
        raise BadInput(
            f"--ray {address}: no Ray cluster answers ({_reason(failure)}). Start one with "
            "`ray start --head`, or say --ray local."
        ) from failure
    try:
        nodes = sum(bool(node["Alive"]) for node in ray.nodes())
        count, cpus = workers or nodes, int(ray.cluster_resources().get("CPU", 0))
        if count > cpus:
            raise BadInput(
                f"--workers {count}: the Ray cluster has {cpus} CPUs, one for each worker."
            )
        actor = ray.remote(
            num_cpus=1,
            max_restarts=-1,
            max_task_retries=RETRIES,
            max_concurrency=at_once + 1,  # and one that asks for the record
            scheduling_strategy="SPREAD",
        )(Worker)
        started = [actor.remote(opening) for _ in range(count)]
        settings: dict[str, Json] = {name: dict(s.settings) for name, s in strategies.items()}
        await _check(started, {"parts": dict(record), "settings": settings})
        yield Cluster(started, nodes)
    finally:
        ray.shutdown()


async def _check(workers: list[Any], wanted: Json) -> None:
    """Make sure that all workers have opened the same as we have."""
    from ray.exceptions import RayError  # noqa: PLC0415

    try:
        found = await asyncio.gather(*(worker.record.remote() for worker in workers))
    except RayError as failure:
        raise BadInput(f"A Ray worker cannot open the parts: {_reason(failure)}.") from failure
    for node, there in found:
        if there != wanted:
            raise BadInput(
                f"On the node {node} a Ray worker opens something else than is open here: "
                f"{str(there)[:200]}, here {str(wanted)[:200]}. Give all nodes the same index, "
                "model and package."
            )


def _reason(failure: BaseException) -> str:
    """What went wrong, without the tracebacks that Ray puts before and after it."""
    cause = getattr(failure, "cause", None)
    lines = str(cause or failure).strip().splitlines() or [type(failure).__name__]
    return lines[0 if cause else -1].strip().rstrip(".")
