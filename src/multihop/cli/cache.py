"""`multihop cache`: how full the reply cache is, and emptying it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from multihop.cli.render import visible
from multihop.lms.store import MAX_BYTES, DamagedStore, ReplyStore, Usage, default_path, remove


@click.command()
@click.option("--clear", is_flag=True, help="Drop all replies, without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def cache(*, clear: bool, as_json: bool) -> int:
    """Say how full the reply cache is, or empty it.

    The cache is one file in multihop in the user's cache folder, or in MULTIHOP_CACHE_DIR.
    Emptying mends a damaged one, and one that another release wrote.
    """
    path = default_path()
    if clear:
        entries, size = _clear(path)
        if as_json:
            click.echo(json.dumps({"path": str(path), "removed": entries, "bytes": size}))
        else:
            what = "what could not be read" if entries is None else f"{entries:,} replies"
            click.echo(f"{visible(str(path))}: removed {what}, {size:,} bytes.")
        return 0
    usage = asyncio.run(_opened(path, ReplyStore.usage)) if path.exists() else Usage(0, 0)
    if as_json:
        record = {
            "path": str(path),
            "entries": usage.entries,
            "bytes": usage.bytes,
            "limit": MAX_BYTES,
        }
        click.echo(json.dumps(record))
    else:
        click.echo(f"path     {visible(str(path))}")
        click.echo(f"entries  {usage.entries:,}")
        click.echo(f"bytes    {usage.bytes:,}")
        click.echo(f"limit    {MAX_BYTES:,}")
    return 0


def _clear(path: Path) -> tuple[int | None, int]:
    """Empty the store; entries, if they could be counted, and bytes that were removed."""
    if not path.exists():
        return 0, 0
    try:
        held = asyncio.run(_opened(path, ReplyStore.clear))
    except DamagedStore:  # it can only be deleted
        return None, remove(path)
    return held.entries, held.bytes


async def _opened(path: Path, work: Callable[[ReplyStore], Awaitable[Usage]]) -> Usage:
    """What `work` gives on the store at a path, which is closed after it."""
    store = ReplyStore(path)
    try:
        return await work(store)
    finally:
        await store.aclose()
