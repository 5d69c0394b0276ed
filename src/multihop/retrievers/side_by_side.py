"""Jobs at the same time, some at most; what fails ends the others."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def side_by_side(
    jobs: Sequence[Callable[[], Awaitable[T]]], at_once: int | None = None
) -> list[T]:
    """Do all jobs.

    Args:
        jobs: Each is called when its turn comes.
        at_once: Most at a time, at least 1; None is all.

    Returns:
        What they gave, in their order.

    Raises:
        BaseException: What the first one raised that failed; all others have ended by then, as
            they have after a cancellation.
    """
    gate = asyncio.Semaphore(at_once or max(len(jobs), 1))

    async def run(job: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await job()

    tasks = [asyncio.create_task(run(job)) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
