"""The wrappers of a language model, put on in the order in which they make sense."""

from typing import Any, cast

from multihop.lms.base import LanguageModel
from multihop.lms.batching import BatchedLM, BatchingLM
from multihop.lms.cache import CachedLM
from multihop.lms.fusing import FusingLM
from multihop.lms.pacing import PacedLM, at_work
from multihop.lms.store import ReplyStore
from multihop.lms.wrapper import innermost


def layered(
    lm: LanguageModel,
    *,
    in_flight: int = 64,
    fuse: bool = True,
    cache: ReplyStore | None = None,
) -> LanguageModel:
    """A model that is asked as seldom and as evenly as the method allows.

    From the outside in: what is in the cache is not asked; what an open stream goes on with is
    not asked again; no more calls are in flight than the server bears; calls that wait for a
    backend that profits from batches go to it together.

    Args:
        lm: A backend. One opened with `reproducible` is neither fused nor batched, and asked
            one call after the other.
        in_flight: Most calls at a time. A backend that has an attribute `slots` gets no more than
            that, so that calls wait where it is known who keeps them waiting, and always as
            many: it is no server that others use too.
        fuse: Go on with open streams; see `FusingLM`.
        cache: Where replies are kept; None keeps none.

    Raises:
        BadInput: `in_flight` is below 1.
    """
    exact = bool(getattr(lm, "reproducible", False))
    slots: int | None = getattr(lm, "slots", None)
    if hasattr(lm, "stream_batch") and not exact:
        lm = BatchedLM(cast(BatchingLM[Any], lm))
    most = in_flight if slots is None else min(in_flight, slots)
    lm = PacedLM(lm, 1 if exact else most, adaptive=slots is None)
    fuse = fuse and not exact
    if fuse:
        lm = FusingLM(lm)
    return CachedLM(lm, cache, kind="fused" if fuse else "") if cache else lm


def questions_at_work(lm: LanguageModel, in_flight: int) -> int:
    """How many questions to have at work on a model, so that it is busy and wastes nothing.

    Args:
        lm: A backend, or one with its layers on.
        in_flight: Most calls at a time, as `layered` was told.

    Returns:
        For a server a quarter more than calls in flight: these search, or write their traces.
        For a backend with `slots` no more than it has: each question keeps the slot that holds
        its passages; more of them would take the slots from each other at every step.
    """
    slots: int | None = getattr(innermost(lm), "slots", None)
    return at_work(in_flight) if slots is None else min(in_flight, slots)
