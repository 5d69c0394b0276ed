"""`multihop cache`."""

import asyncio
import json

import pytest

from multihop.lms.store import ReplyStore, default_path


@pytest.fixture
def filled():
    store = ReplyStore()
    for name in (b"a", b"b"):
        store.put(name * 32, {"text": ["One. "]})
    usage = asyncio.run(store.usage())
    asyncio.run(store.aclose())
    return usage


def test_how_full_the_cache_is(multihop, filled) -> None:
    shown = multihop("cache")
    assert shown.code == 0
    assert shown.out.splitlines() == [
        f"path     {default_path()}",
        "entries  2",
        f"bytes    {filled.bytes:,}",
        "limit    1,073,741,824",
    ]
    record = json.loads(multihop("cache", "--json").out)
    assert record == {
        "path": str(default_path()),
        "entries": 2,
        "bytes": filled.bytes,
        "limit": 1 << 30,
    }


def test_looking_makes_no_file(multihop) -> None:
    assert "entries  0" in multihop("cache").out
    assert "removed 0 replies" in multihop("cache", "--clear").out
    assert not default_path().exists()


def test_emptying_says_what_it_removed(multihop, filled) -> None:
    done = multihop("cache", "--clear")
    assert (done.code, done.out) == (
        0,
        f"{default_path()}: removed 2 replies, {filled.bytes:,} bytes.\n",
    )
    assert json.loads(multihop("cache", "--clear", "--json").out) == {
        "path": str(default_path()),
        "removed": 0,
        "bytes": 0,
    }


def test_a_damaged_cache_is_told_and_mended_by_emptying_it(multihop) -> None:
    default_path().parent.mkdir(parents=True)
    default_path().write_bytes(b"?" * 5000)
    told = multihop("cache")
    assert (told.code, told.out) == (2, "")
    assert "multihop cache --clear" in told.err
    done = multihop("cache", "--clear")
    assert done.out == f"{default_path()}: removed what could not be read, 5,000 bytes.\n"
    assert "entries  0" in multihop("cache").out
