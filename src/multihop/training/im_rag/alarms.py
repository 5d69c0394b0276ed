"""Stops a reinforcement run that goes wrong, and says why."""

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from multihop.training.im_rag.config import Config

STEEP = 0.5
"""The mean reward of the newest steps below this share of the best ones is a collapse."""

IDLE = 0.9
"""Share of groups without any spread from which on there is nothing to learn."""

FULL = 0.9
"""Share of the most query tokens from which on queries have no end."""


def alarm(records: Sequence[Mapping[str, float]], config: Config) -> str:
    """What is wrong, in a sentence with what may be done; empty when nothing is.

    Args:
        records: Of all steps so far, in order.
        config: Says how many steps are looked at.
    """
    if not records:
        return ""
    last = records[-1]
    for name in ("loss", "norm", "reward"):
        if not math.isfinite(last[name]):
            return f"the {name} is {last[name]}: lower rl.lr (now {config.rl.lr:g}) or rl.clip"
    watch = config.rl.watch
    newest = records[-watch:]
    if len(newest) < watch:
        return ""
    means = [
        fmean(r["reward"] for r in records[at : at + watch])
        for at in range(len(records) - watch + 1)
    ]
    if max(means) > 0 and means[-1] < STEEP * max(means):
        return (
            f"the reward fell from {max(means):.3f} to {means[-1]:.3f} (means over {watch} "
            "steps): lower rl.lr, or raise rl.beta"
        )
    if fmean(r["idle"] for r in newest) >= IDLE:
        return (
            f"in {watch} steps {100 * fmean(r['idle'] for r in newest):.0f} % of the groups had "
            "rollouts of equal reward, which teach nothing: begin with a better cold start, raise "
            "rl.temperature or rl.group, or choose harder questions"
        )
    learned = [r["entropy"] for r in newest if r["tokens_learned"]]
    if learned and max(learned) < config.rl.least_entropy:
        return (
            f"the entropy was at most {max(learned):.4f} for {watch} steps: the policy writes the "
            "same whatever it draws; raise rl.beta or rl.epsilon_high, or lower rl.lr"
        )
    full = FULL * config.loop.max_query_tokens
    if min(r["query_tokens"] for r in newest) >= full:
        return (
            f"queries took at least {full:.0f} tokens on average for {watch} steps: they have no "
            "end; raise reward.format, or begin with a longer cold start"
        )
    return ""


def falling(scores: Sequence[float], patience: int) -> bool:
    """Whether a score fell in each of the last checks, `patience` of them."""
    newest = scores[-patience - 1 :]
    if not patience or len(newest) <= patience:
        return False
    return all(after < before for before, after in itertools.pairwise(newest))
