"""What other processes do to a store in `test_cache`; light, so that they start fast."""

import asyncio
import random
import sys
from pathlib import Path

from multihop.lms.store import ReplyStore


def key(name):
    return str(name).encode().ljust(32, b".")


def value(number):
    return {"text": [str(number) * 50]}


def hammer(path, seed):
    """Read and write the same keys as others do, and check everything that is read."""
    chance = random.Random(seed)
    store = ReplyStore(path, max_bytes=20_000)

    async def work():
        for _ in range(150):
            number = chance.randrange(100)
            found = await store.get(key(number))
            assert found in (None, value(number)), found
            if found is None:
                store.put(key(number), value(number))

    asyncio.run(work())
    # No aclose: what was put is written before Python exits.


def write_forever(path, seed):
    store = ReplyStore(path)

    async def work():
        number = 0
        while True:
            number += 1
            store.put(key((seed, number)), value(number))
            await store.flush()

    asyncio.run(work())


def put_and_leave(path, number):
    ReplyStore(path).put(key(number), value(number))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
