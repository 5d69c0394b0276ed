"""What the runs of an experiment are worth: read from their traces, never by running a model.

Two rules. "paper": means of metrics over the questions. "official": the numbers that IRCoT's
release would print for the same predictions, with its rounding (`multihop.metrics.official`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from multihop import names
from multihop.cost import Prices
from multihop.evaluation import finished
from multihop.experiments.config import Kind, Metrics
from multihop.metrics import METRICS, Mean, Metric, mean, money, pid
from multihop.metrics import official as release
from multihop.metrics.support import collected_passages
from multihop.metrics.traces import gold_recall, para_recall, title_recall
from multihop.trace import Trace

BUDGET = 15
"""Passages among which recall is counted: the paper's cap."""

COSTS = (
    *("lm_calls", "sent_calls", "searches", "passages"),
    *("prompt_tokens", "evaluated_tokens", "generated_tokens", "seconds", "money"),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that is reported, or chosen by.

    Attributes:
        name: As shown.
        metric: Of one question.
        whole: Of all questions of a run, where that is not the mean of `metric`.
    """

    name: str
    metric: Metric
    whole: Callable[[Sequence[Trace]], float | None] | None = None


def recall(trace: Trace) -> float | None:
    """Recall of the gold passages among the first 15, by whatever the question names them.

    By text where it has the paragraphs, as in IRCoT's files; else by id; else by title.
    """
    if trace.question.extra.get("gold_paragraphs"):
        return para_recall(trace, BUDGET)
    if trace.question.gold_ids:
        return gold_recall(trace, BUDGET)
    return title_recall(trace, BUDGET)


def reported(kind: Kind, metrics: Metrics) -> Measure:
    """What the tables give."""
    own = metrics.answer if kind == "answer" else metrics.passages
    if own:
        return Measure(own, names.open_metric(own))
    if kind == "answer":
        whole = _official_f1 if metrics.rule == "official" else None
        return Measure("F1", METRICS["f1"], whole)
    whole = _official_recall if metrics.rule == "official" else None
    return Measure(f"recall@{BUDGET}", recall, whole)


def criterion(kind: Kind, metrics: Metrics) -> Measure:
    """What the best setting is chosen by on dev.

    Answers: DROP's F1, whatever the data set, as in the release. Passages: what is reported, by
    the paper; recall of titles, by the release (spec of both: docs/experiments.md).
    """
    own = metrics.choose_answer if kind == "answer" else metrics.choose_passages
    if own:
        return Measure(own, names.open_metric(own))
    official = metrics.rule == "official"
    if kind == "answer":
        return Measure("DROP F1", METRICS["drop_f1"], _official_drop_f1 if official else None)
    if official:
        return Measure(f"title recall@{BUDGET}", _title_recall, _official_title_recall)
    return Measure(f"recall@{BUDGET}", recall)


def _title_recall(trace: Trace) -> float | None:
    return title_recall(trace, BUDGET)


# --- The release's numbers ------------------------------------------------------------------


def _gold(trace: Trace) -> list[str]:
    """The spans of the answer: its parts, else the first accepted answer."""
    parts = trace.question.extra.get("answer_parts")
    return [str(p) for p in parts] if isinstance(parts, list) else [trace.question.answers[0]]


def _spans(trace: Trace) -> list[str]:
    assert trace.answer
    return list(trace.answer.answers) or [trace.answer.text]


def _with_gold(traces: Iterable[Trace]) -> list[Trace]:
    return [t for t in traces if t.question.answers and t.answer]


def _official_drop_f1(traces: Sequence[Trace]) -> float | None:
    known = _with_gold(traces)
    if not known:
        return None
    golds = {t.question.id: _gold(t) for t in known}
    return release.drop_report(golds, {t.question.id: _spans(t) for t in known})["f1"]


def _official_f1(traces: Sequence[Trace]) -> float | None:
    """By the data set's own script; IIRC has the release's own metric, over joined answers."""
    known = _with_gold(traces)
    if not known:
        return None
    dataset = str(known[0].question.extra.get("dataset"))
    texts = {t.question.id: str(release.joined(_spans(t))) for t in known}
    if dataset in release.DATASET_METRICS:
        golds = {t.question.id: t.question.answers for t in known}
        return release.dataset_report(dataset, golds, texts)["f1"]
    if dataset == "iirc":
        spans = {name: [text] for name, text in texts.items()}
        return release.drop_report({t.question.id: _gold(t) for t in known}, spans)["f1"]
    return _rounded(METRICS["f1"], known)


def _rounded(metric: Metric, traces: Iterable[Trace]) -> float | None:
    value = mean(metric(trace) for trace in traces).value
    return None if value is None else round(value, 3)


def _support(traces: Sequence[Trace], name: str, otherwise: Metric) -> float | None:
    pairs = []
    for trace in traces:
        gold = trace.question.extra.get("gold_paragraphs")
        if not isinstance(gold, list):  # texts are unknown: by id or title
            return _rounded(otherwise, traces)
        wanted = [pid(str(g["title"]), str(g["text"])) for g in gold if isinstance(g, dict)]
        found = [pid(p.title, p.text) for p in collected_passages(trace)]
        pairs.append((found[:BUDGET], wanted))
    return release.support_report(pairs)[name] if pairs else None


def _official_title_recall(traces: Sequence[Trace]) -> float | None:
    return _support(traces, "title_recall", _title_recall)


def _official_recall(traces: Sequence[Trace]) -> float | None:
    return _support(traces, "para_recall", recall)


# --- Runs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scores:
    """What one run is worth.

    Attributes:
        finished: Questions that came to an end; all numbers are over these.
        failed: Questions that ended in an error.
        shares: By measure, in [0, 1]; None where it applies to no question.
        each: By measure: each question's value.
        means: Costs and further metrics, as far as they apply.
    """

    finished: int
    failed: int
    shares: Mapping[str, float | None]
    each: Mapping[str, Mapping[str, float | None]]
    means: Mapping[str, Mean]


def score(
    folder: Path,
    measures: Iterable[Measure],
    more: Iterable[str] = (),
    prices: Prices | None = None,
) -> Scores:
    """Score what a run folder holds.

    Args:
        folder: A run's.
        measures: What to count.
        more: Names of further metrics.
        prices: For costs in money.
    """
    measures = list(measures)
    others = {name: METRICS[name] for name in COSTS if name != "money"}
    if prices is not None:
        others["money"] = money(prices)
    others |= {name: names.open_metric(name) for name in more}
    each: dict[str, dict[str, float | None]] = {measure.name: {} for measure in measures}
    values: dict[str, list[float | None]] = {name: [] for name in others}
    whole: list[Trace] = []
    keep = any(measure.whole for measure in measures)
    done = failed = 0
    for trace in finished(folder):
        if trace.error or trace.answer is None:
            failed += 1
            continue
        done += 1
        for measure in measures:
            each[measure.name][trace.question.id] = measure.metric(trace)
        for name, metric in others.items():
            values[name].append(metric(trace))
        if keep:
            whole.append(trace)
    shares = {
        m.name: m.whole(whole) if m.whole else mean(each[m.name].values()).value for m in measures
    }
    means = {name: found for name in others if (found := mean(values[name])).n}
    return Scores(done, failed, shares, each, means)


def over_questions(runs: Sequence[Scores], name: str) -> Mean:
    """A measure's mean over questions, each with its mean over the runs.

    Its standard error is that of the questions: what other questions would have changed.
    """
    values: dict[str, list[float]] = {}
    for run in runs:
        for question, value in run.each[name].items():
            if value is not None:
                values.setdefault(question, []).append(value)
    return mean(sum(known) / len(known) for known in values.values())
