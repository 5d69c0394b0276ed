"""Which corpus a store holds: the same hash for the same passages, in any order and any store.

A corpus's content hash is the sum of its passages' digests; hybrids compare it.
"""

from hashlib import blake2b

HASHES = 1 << 128
"""Sums of digests are taken modulo this number."""


def digest(stored: bytes) -> bytes:
    """The digest of a passage as `bm25_rows.encoded` gives it: 16 bytes."""
    return blake2b(stored, digest_size=16).digest()


def content_hash(total: int) -> str:
    """A sum of digests, read as big-endian numbers, as 32 hexadecimal digits."""
    return f"{total % HASHES:032x}"
