"""Scores of answers, retrieval and whole traces; means, choices and tests over them.

A metric is a function from a trace to a number (`Metric`); `metric("gold_recall@15")` finds
one by name. What each F1 is, and where it comes from, stands in docs/metrics.md.
"""

from multihop.metrics.aggregate import Mean, OverSets, best, criterion, mean, over_sets, reported
from multihop.metrics.answer import hotpotqa, musique, squad, two_wiki
from multihop.metrics.base import Metric, Score
from multihop.metrics.drop import drop
from multihop.metrics.significance import (
    Difference,
    bootstrap,
    holm,
    mcnemar,
    paired_bootstrap,
)
from multihop.metrics.support import answer_support_recall, pid, recall_at, support
from multihop.metrics.traces import COUNTS, METRICS, answer_score, metric, money

__all__ = [
    "COUNTS",
    "METRICS",
    "Difference",
    "Mean",
    "Metric",
    "OverSets",
    "Score",
    "answer_score",
    "answer_support_recall",
    "best",
    "bootstrap",
    "criterion",
    "drop",
    "holm",
    "hotpotqa",
    "mcnemar",
    "mean",
    "metric",
    "money",
    "musique",
    "over_sets",
    "paired_bootstrap",
    "pid",
    "recall_at",
    "reported",
    "squad",
    "support",
    "two_wiki",
]
