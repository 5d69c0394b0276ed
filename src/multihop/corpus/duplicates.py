"""Near-duplicates, by rensa: MinHash with locality-sensitive hashing.

Texts are compared as sets of three words in a row, case aside: two are near-duplicates when the
estimated Jaccard similarity of their sets reaches a threshold (Broder, "On the resemblance and
containment of documents", 1997). 128 permutations; the estimate is off by 0.04 or so.
"""

from collections.abc import Callable, Iterator

from multihop.errors import BadInput, MissingExtra

PERMUTATIONS = 128
SEED = 42
RUN = 3
"""Words that are compared together."""


def first_of_its_kind(threshold: float) -> Callable[[str], bool]:
    """A judge that remembers the texts it has let through.

    Args:
        threshold: Similarity from which a text is a near-duplicate, above 0 and at most 1.

    Returns:
        A function of a text: whether none before was like it. About 3 kB are kept for each
        text that was let through. A text without words is like no other.

    Raises:
        BadInput: The threshold is none.
        MissingExtra: rensa is not installed.
    """
    if not 0 < threshold <= 1:
        raise BadInput(
            f"near-duplicates from a similarity of {threshold}: it is above 0 and at most 1."
        )
    try:
        from rensa import RMinHash, RMinHashDeduplicator  # noqa: PLC0415 - only when asked for
    except ModuleNotFoundError:
        raise MissingExtra("rensa", "documents") from None
    judge = RMinHashDeduplicator(threshold, PERMUTATIONS, use_lsh=True, seed=SEED)
    count = 0

    def is_first(text: str) -> bool:
        nonlocal count
        signature = RMinHash(PERMUTATIONS, SEED)
        runs = list(_runs(text))
        if not runs:
            return True
        signature.update(runs)
        count += 1
        return bool(judge.add(str(count), signature))

    return is_first


def _runs(text: str) -> Iterator[str]:
    sound = text.casefold().encode("utf-8", "replace").decode()
    words = sound.split()
    for start in range(max(len(words) - RUN + 1, min(len(words), 1))):
        yield " ".join(words[start : start + RUN])
