"""Runs compared on the same questions: means, differences with intervals, corrected p-values.

Only traces on disk are read, one at a time; what is kept of each is a `Row`.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from multihop import runs
from multihop.comparison.diagnosis import Diagnosis, diagnose
from multihop.errors import BadInput
from multihop.evaluation import finished
from multihop.metrics import Difference, Mean, Metric, bootstrap, holm, mcnemar, mean, metric
from multihop.metrics.support import recall_at
from multihop.text import Json, Question
from multihop.trace import Trace

MEASURES = (
    *("em", "f1", "gold_recall", "gold_recall@5", "gold_recall@15"),
    *("title_recall", "title_recall@5", "title_recall@15"),
    *("lm_calls", "prompt_tokens", "generated_tokens", "seconds"),
)
"""What runs are compared by. What applies to no question is left out, and recall of titles where
passages are annotated."""

CURVE = 20
"""Passages up to which recall is followed."""

_GOLD = ("text", "answers", "gold_ids", "gold_titles", "pinned")
_SCORED = ("dataset", "answer_parts", "gold_paragraphs")
"""Fields of `extra` that metrics read."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a run made of one question.

    Attributes:
        question: As asked.
        values: By metric, in the order of `Comparison.metrics`; None where it does not apply.
        answer: The answer's text; empty when there is none, or the run failed.
        stop: Why it ended; empty when it failed.
        error: What it failed with; empty when it did not.
        diagnosis: Of a wrong answer.
        right: Whether the answer matched; None without gold.
        tokens: Prompt and generated tokens together; None where a call does not tell.
        by_passages: Recall among the first 1, 2, ... passages collected, to the last; empty
            without gold.
        by_searches: Recall after 0, 1, 2, ... searches; empty without gold.
    """

    question: Question
    values: tuple[float | None, ...] = ()
    answer: str = ""
    stop: str = ""
    error: str = ""
    diagnosis: Diagnosis | None = None
    right: bool | None = None
    tokens: int | None = None
    by_passages: tuple[float, ...] = ()
    by_searches: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder, read.

    Attributes:
        name: The shortest name that tells it from the others: strategy, or folder.
        folder: Where it lies.
        strategy: The strategy's name.
        settings: What decided the result.
        asked: How many questions the run is of.
        rows: By question id, those with a line on disk, in the order of finishing.
    """

    name: str
    folder: Path
    strategy: str
    settings: Mapping[str, Json] = field(hash=False)
    asked: int
    rows: Mapping[str, Row] = field(hash=False)

    @property
    def failed(self) -> int:
        """Questions that ended in an error."""
        return sum(bool(row.error) for row in self.rows.values())

    @property
    def missing(self) -> int:
        """Questions of the run that have not been asked yet."""
        return self.asked - len(self.rows)


@dataclass(frozen=True, slots=True)
class Measured:
    """One metric of one run, and how it stands to the reference.

    Attributes:
        run: The run's name.
        metric: The metric's name.
        mean: Over the shared questions.
        difference: This run less the reference, over the questions that both have a score for;
            None for the reference itself, and where there is no such question.
        test: "McNemar" or "bootstrap": what `p` is of; empty without a difference.
        p: Two-sided p-value of "no difference"; None without a difference.
        adjusted: `p` corrected by Holm over all differences of the comparison.
        above: Questions on which this run has the higher value.
        below: Questions on which the reference has.
    """

    run: str
    metric: str
    mean: Mean
    difference: Difference | None = None
    test: str = ""
    p: float | None = None
    adjusted: float | None = None
    above: int = 0
    below: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs on the same questions.

    Attributes:
        runs: In the order given.
        reference: The run that all others are compared with.
        metrics: Names, in the order of `Row.values`.
        shared: Ids of the questions that every run has finished: all figures are over these.
        measured: By metric, then by run.
        level: Of the intervals.
        samples: Resamples of the bootstrap.
    """

    runs: tuple[Run, ...]
    reference: Run
    metrics: tuple[str, ...]
    shared: tuple[str, ...]
    measured: tuple[Measured, ...]
    level: float
    samples: int

    @property
    def questions(self) -> int:
        """How many questions there are in all the runs together, finished or not."""
        known = {name for run in self.runs for name in run.rows}
        return max(len(known), *(run.asked for run in self.runs))

    @property
    def comparisons(self) -> int:
        """How many p-values were corrected together."""
        return sum(each.p is not None for each in self.measured)

    def of(self, run: Run, name: str) -> Measured:
        """One metric of one run."""
        return next(m for m in self.measured if m.run == run.name and m.metric == name)

    def rows(self, run: Run) -> Iterator[Row]:
        """A run's rows of the shared questions."""
        return (run.rows[name] for name in self.shared)

    def values(self, run: Run, name: str) -> list[float | None]:
        """A run's values of a metric on the shared questions."""
        place = self.metrics.index(name)
        return [row.values[place] for row in self.rows(run)]


def compare(
    folders: Sequence[Path],
    *,
    against: str | None = None,
    more: Mapping[str, Metric] | None = None,
    samples: int = 10_000,
    level: float = 0.95,
    on_run: Callable[[str], None] | None = None,
) -> Comparison:
    """Compare runs, all figures over the questions that every run has finished.

    Questions that failed in a run, or were not asked yet, are in no figure of any run.

    Args:
        folders: Two run folders at least, each of one run (`runs.folders`).
        against: The reference run, by name or folder; by default the first.
        more: Further metrics by name, after those of `MEASURES`.
        samples: Resamples of the bootstrap; 10,000 take seconds for 1,000 questions.
        level: Of the intervals, in (0, 1).
        on_run: Told the name of each run before it is read.

    Raises:
        BadInput: Fewer than two runs, one of them twice, no reference of that name, a question
            that differs between runs, no question that all have finished, or a metric that gives
            no finite number.
    """
    wanted = {name: metric(name) for name in MEASURES} | dict(more or {})
    places = [folder.resolve() for folder in folders]
    if len(places) < 2:
        raise BadInput("There is one run. Name another to compare it with.")
    if double := next((f for f, p in zip(folders, places, strict=True) if places.count(p) > 1), 0):
        raise BadInput(f"{double}: the run is named twice.")
    manifests = [runs.manifest(folder) for folder in folders]
    names = _names(places, [str(manifest.get("strategy")) for manifest in manifests])
    chosen = _reference(against, names, places)
    found: list[Run] = []
    known: dict[str, tuple[Question, Path]] = {}
    for folder, manifest, name in zip(folders, manifests, names, strict=True):
        if on_run:
            on_run(name)
        rows: dict[str, Row] = {}
        for trace in finished(folder):
            question, first = known.setdefault(trace.question.id, (trace.question, folder))
            _check_same(question, first, trace.question, folder)
            rows[question.id] = _row(trace, question, wanted, folder)
        asked = manifest.get("questions")
        count = asked.get("count") if isinstance(asked, dict) else None
        settings = manifest.get("settings")
        found.append(
            Run(
                name,
                folder,
                str(manifest.get("strategy")),
                settings if isinstance(settings, dict) else {},
                max(count, len(rows)) if isinstance(count, int) else len(rows),
                rows,
            )
        )
    shared = tuple(
        name
        for name in found[0].rows
        if all(name in run.rows and not run.rows[name].error for run in found)
    )
    if not shared:
        finished_counts = ", ".join(f"{r.name} {len(r.rows) - r.failed}" for r in found)
        raise BadInput(
            f"No question was finished by every run (finished: {finished_counts}). "
            "Compare runs of the same questions."
        )
    names_used = _applying(list(wanted), found, shared, asked_for=frozenset(more or ()))
    keep = [list(wanted).index(name) for name in names_used]
    found = [_narrowed(run, keep) for run in found]
    reference = found[chosen]
    comparison = Comparison(tuple(found), reference, names_used, shared, (), level, samples)
    return replace(comparison, measured=_measure(comparison))


def _names(places: Sequence[Path], strategies: Sequence[str]) -> list[str]:
    """The shortest names that differ: the strategies, else ends of the folders' paths."""
    if len(set(strategies)) == len(strategies):
        return list(strategies)
    depth = 1
    while True:
        names = ["/".join(place.parts[-depth:]) for place in places]
        if len(set(names)) == len(names):
            return names
        depth += 1


def _reference(against: str | None, names: Sequence[str], places: Sequence[Path]) -> int:
    if against is None:
        return 0
    if against in names:
        return names.index(against)
    place = Path(against).resolve()
    if place in places:
        return places.index(place)
    raise BadInput(f"No run is named {against!r}. Name one of: {', '.join(names)}; or its folder.")


def _check_same(one: Question, first: Path, other: Question, folder: Path) -> None:
    """Refuse a question that was asked with other words or other gold under the same id."""
    field_ = next((f for f in _GOLD if getattr(one, f) != getattr(other, f)), None) or next(
        (f for f in _SCORED if one.extra.get(f) != other.extra.get(f)), None
    )
    if field_:
        raise BadInput(
            f"{folder}: the question {other.id!r} is not that of {first}: {field_} differs. "
            "Only runs of the same questions and gold can be compared."
        )


def _row(trace: Trace, question: Question, wanted: Mapping[str, Metric], folder: Path) -> Row:
    answer = trace.answer
    if trace.error or answer is None:
        return Row(question, error=trace.error or "ended without an answer")
    values = {name: measure(trace) for name, measure in wanted.items()}
    for name, value in values.items():
        if value is not None and not math.isfinite(value):
            raise BadInput(
                f"{folder}: the metric {name!r} is {value} for question {question.id!r}. "
                "A metric is a finite number, or None where it does not apply."
            )
    prompt, generated = trace.tokens.prompt, trace.tokens.generated
    matched = values["em"]
    return Row(
        question,
        tuple(values.values()),
        answer=" ".join(answer.answers) or answer.text,
        stop=answer.stop,
        diagnosis=diagnose(trace),
        right=None if matched is None else matched == 1,
        tokens=None if prompt is None or generated is None else prompt + generated,
        by_passages=_by_passages(trace),
        by_searches=_by_searches(trace),
    )


def _gold_of(trace: Trace) -> tuple[set[str], Callable[[Sequence[str]], list[str]]]:
    """What is to be found, and how ids of passages become it: ids themselves, else titles."""
    question = trace.question
    if question.gold_ids:
        return set(question.gold_ids), list
    titles = {h.passage.id: h.passage.title for s in trace.searches for h in s.hits}
    if question.pinned:
        titles[question.pinned.id] = question.pinned.title
    gold = {title.strip().lower() for title in question.gold_titles}
    return gold, lambda ids: [titles.get(name, "").strip().lower() for name in ids]


def _by_passages(trace: Trace) -> tuple[float, ...]:
    gold, keys = _gold_of(trace)
    found = keys(trace.collected[:CURVE])
    return tuple(recall_at(found, gold, n) for n in range(len(found) + 1)) if gold else ()


def _by_searches(trace: Trace) -> tuple[float, ...]:
    gold, keys = _gold_of(trace)
    if not gold:
        return ()
    pinned = [trace.question.pinned.id] if trace.question.pinned else []
    asked = [keys(search.collected) for search in trace.searches if search.query]
    return tuple(recall_at(found, gold) for found in [keys(pinned), *asked])


def _applying(
    names: Sequence[str], found: Sequence[Run], shared: Sequence[str], asked_for: Collection[str]
) -> tuple[str, ...]:
    """Metrics that apply to some question and say something of their own.

    Left out, unless asked for: recall of titles where passages are annotated; recall at a budget
    that no run exceeds, which is the whole recall again (and one more comparison to correct for).
    """
    columns = {
        name: [run.rows[each].values[place] for run in found for each in shared]
        for place, name in enumerate(names)
    }
    used = {name: column for name, column in columns.items() if any(v is not None for v in column)}

    def needless(name: str) -> bool:
        base, at, _ = name.partition("@")
        twice = bool(at) and used[name] == used.get(base)
        return twice or ("gold_recall" in used and base == "title_recall")

    return tuple(name for name in used if name in asked_for or not needless(name))


def _narrowed(run: Run, keep: Sequence[int]) -> Run:
    """A run with the values at these places only; failed rows have none."""
    rows = {
        name: row if row.error else replace(row, values=tuple(row.values[place] for place in keep))
        for name, row in run.rows.items()
    }
    return replace(run, rows=rows)


def _measure(comparison: Comparison) -> tuple[Measured, ...]:
    """All metrics of all runs; the bootstrap's draws are shared."""
    tables = {
        (name, run.name): comparison.values(run, name)
        for name in comparison.metrics
        for run in comparison.runs
    }
    pairs: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for (name, run), values in tables.items():
        if run == comparison.reference.name:
            continue
        theirs = tables[name, comparison.reference.name]
        both = [
            (a, b) for a, b in zip(values, theirs, strict=True) if a is not None and b is not None
        ]
        if both:
            pairs[name, run] = [a for a, _ in both], [b for _, b in both]
    differences = bootstrap(
        [[x - y for x, y in zip(a, b, strict=True)] for a, b in pairs.values()],
        samples=comparison.samples,
        level=comparison.level,
    )
    drawn = dict(zip(pairs, differences, strict=True))
    exact = {
        name
        for name in comparison.metrics
        if all(value in (0, 1, None) for (n, _), v in tables.items() if n == name for value in v)
    }
    p = {key: mcnemar(*pair) if key[0] in exact else drawn[key].p for key, pair in pairs.items()}
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))
    return tuple(
        Measured(
            run,
            name,
            mean(values),
            drawn.get((name, run)),
            "" if (name, run) not in p else "McNemar" if name in exact else "bootstrap",
            p.get((name, run)),
            adjusted.get((name, run)),
            sum(a > b for a, b in zip(*pairs[name, run], strict=True)) if (name, run) in p else 0,
            sum(a < b for a, b in zip(*pairs[name, run], strict=True)) if (name, run) in p else 0,
        )
        for (name, run), values in tables.items()
    )
