"""Question files: run strategies over them, resumably, and score what was kept.

Running and scoring are apart. `evaluate` writes a line per finished question into a run folder
(`multihop.runs`); after a kill the same call goes on where it was, and the same call elsewhere
at the same time takes a share of the work (`multihop.claims`). `score` reads a run folder and
never runs a model, so another metric costs seconds.
"""

import asyncio
import hashlib
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

from multihop import __version__, runs
from multihop.claims import Claims
from multihop.cost import Prices
from multihop.errors import BadInput, MultihopError
from multihop.metrics import Mean, Metric, mean, metric, money
from multihop.strategies import RunBudget
from multihop.text import Json, Question, json_object
from multihop.trace import Strategy, Trace, route_of, trace

# --- Running --------------------------------------------------------------------------------

LOOK = 1.0
"""Seconds between two looks at what other processes are still at."""

BLOCK = 16
"""Most questions claimed at once; of few questions fewer, so that nobody waits for another's."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an evaluation is.

    Attributes:
        done: Runs with a line on disk, those of earlier sittings included.
        failed: Those of them that ended in an error.
        total: Questions times strategies.
        latest: What was just finished; None at the start of a sitting.
    """

    done: int
    failed: int
    total: int
    latest: Trace | None = None


Ask = Callable[[str, Question], Awaitable[Trace]]
"""Runs the strategy of this name on a question."""


async def evaluate(
    questions: Iterable[Question],
    strategy: Strategy,
    into: Path,
    *,
    concurrency: int = 4,
    record: Mapping[str, Json] | None = None,
    retry_failed: bool = False,
    give_up_after: int = 10,
    budget: RunBudget | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> int:
    """Run one strategy on all questions; see `evaluate_each`."""
    return await evaluate_each(
        questions,
        {"": strategy},
        into,
        concurrency=concurrency,
        record=record,
        retry_failed=retry_failed,
        give_up_after=give_up_after,
        budget=budget,
        on_progress=on_progress,
    )


async def evaluate_each(
    questions: Iterable[Question],
    strategies: Mapping[str, Strategy],
    into: Path,
    *,
    concurrency: int = 4,
    record: Mapping[str, Json] | None = None,
    retry_failed: bool = False,
    give_up_after: int = 10,
    budget: RunBudget | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    ask: Ask | None = None,
) -> int:
    """Run several strategies on all questions; question by question, so that caches are warm.

    Args:
        questions: Each with an id of its own. Read twice and never held together: give a list
            or a `datasets.questions.QuestionFile`, not a generator.
        strategies: By name; each gets the run folder of that name under `into`, and one
            without a name `into` itself.
        into: Where traces go. A folder that holds a part of this very run is completed, by
            several processes and hosts together where they make the same call: none asks what
            another is at, and each ends when all is done.
        concurrency: Questions at work at once.
        record: What else decides the result and stands in no strategy's settings (options of
            its parts, a hash of the corpus): another value is another run.
        retry_failed: Ask again the questions that failed in an earlier sitting.
        give_up_after: Stop after so many failures in a row: then it is not the questions. Each
            process counts its own.
        budget: What all this may cost, earlier sittings and other processes included, as far
            as their questions are done; no part of the run's identity. Once it is used up no
            question is begun; those at work are cut short where their strategies were given
            the same object (`Budget.run`).
        on_progress: Told at the start and after every question.
        ask: Runs the strategy of a name on a question elsewhere, and keeps a failure in the
            trace; see `multihop.cluster`. By default they are run here.

    Returns:
        How many runs, questions times strategies, were left: 0 unless the budget was used up.
        The same call with a larger budget goes on with them.

    Raises:
        BadInput: The questions have no ids, `into` holds another run, or the budget is of
            money and a model has no price; nothing was changed. Or the questions were others
            when they were asked.
        MultihopError: Everything fails. What was finished is kept.
    """
    if concurrency < 1:
        raise BadInput(f"concurrency is {concurrency}; it must be at least 1.")
    asked = fingerprint(questions)
    shares = [_Share(into / name, strategy, name) for name, strategy in strategies.items()]
    identities = {share.folder: identity(share.strategy, asked, record) for share in shares}
    for share in shares:  # all of them before the first folder is made
        runs.check(share.folder, identities[share.folder])
    if budget:
        _check_prices(budget, strategies.values())
    for share in shares:
        share.read_first(budget)
        if retry_failed:
            share.forget_failed()
    for share in shares:
        runs.start(share.folder, identities[share.folder])
    if budget:
        budget.begin()
    with ExitStack() as leaving:
        for share in shares:
            share.join(leaving)
        work = _Work(questions, asked, shares, budget, give_up_after, on_progress, ask)
        await work.run(concurrency)
    return work.total - work.done


@dataclass
class _Work:
    """One process's part of an evaluation; see `evaluate_each` for its parts."""

    questions: Iterable[Question]
    asked: "Fingerprint"
    shares: list["_Share"]
    budget: RunBudget | None
    give_up_after: int
    on_progress: Callable[[Progress], None] | None
    elsewhere: Ask | None
    in_a_row: int = 0
    last: str = ""

    @property
    def total(self) -> int:
        """Questions times strategies."""
        return self.asked.count * len(self.shares)

    @property
    def done(self) -> int:
        """Those with a line on disk, as far as is known."""
        return sum(len(share.done) for share in self.shares)

    def tell(self, latest: Trace | None = None) -> None:
        if self.on_progress:
            failed = sum(len(share.failed) for share in self.shares)
            self.on_progress(Progress(self.done, failed, self.total, latest))

    async def run(self, concurrency: int) -> None:
        """Ask all that nobody else asks, and what others leave undone."""
        self.tell()
        while True:
            waiting = self.hand_out()
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(min(concurrency, self.asked.count)):
                        tasks.create_task(self.ask(waiting))
            except BaseExceptionGroup as group:  # the first failure ended the others
                raise group.exceptions[0] from None
            if not await self.more():
                break
        if self.last and sum(len(share.failed) for share in self.shares) == self.done:
            raise MultihopError(
                f"All {self.done} questions failed, the last with {self.last}. "
                "Mend this, then repeat the command with --retry-failed."
            )

    def hand_out(self) -> Iterator[Question]:
        """The questions that are this process's to ask.

        Raises:
            BadInput: They are not those that were counted, and it was told at the end.
        """
        content, handed = hashlib.sha256(), 0
        asked = islice(self.questions, self.asked.count)
        size = max(1, min(BLOCK, self.asked.count // 100))
        for number in count():
            block = list(islice(asked, size))
            if not block:
                break
            for question in block:
                content.update(_content(question))
            handed += len(block)
            for share in self.shares:
                share.take(number, block)
            yield from (q for q in block if any(q.id in share.taken for share in self.shares))
        if Fingerprint(content.hexdigest(), handed) != self.asked:
            raise BadInput(
                "The questions changed while they were asked: what was kept is of both. "
                "Leave their file alone and run them into another folder."
            )

    async def ask(self, waiting: Iterator[Question]) -> None:
        for question in waiting:
            for share in self.shares:
                if question.id not in share.taken:
                    continue
                if self.budget and self.budget.reached:
                    return
                result = await self.trace(share, question)
                await share.keep(result)
                self.in_a_row = self.in_a_row + 1 if result.error else 0
                if result.error:
                    self.last = result.error.rstrip(".")
                self.tell(result)
                if self.in_a_row >= self.give_up_after:
                    raise MultihopError(
                        f"{self.in_a_row} questions in a row failed, the last with {self.last}. "
                        "Mend this, then repeat the command with --retry-failed."
                    )

    async def trace(self, share: "_Share", question: Question) -> Trace:
        add = self.budget.add if self.budget else None
        if self.elsewhere is None:
            return await trace(share.strategy, question, add, keep_errors=True)
        result = await self.elsewhere(share.name, question)
        if add:
            add(*result.steps)
        return result

    async def more(self) -> bool:
        """Wait until all that others are at is done, or some of it is left undone."""
        known = self.done
        while True:
            for share in self.shares:
                share.look()
            if self.done != known:
                known = self.done
                self.tell()
            if self.budget and self.budget.reached:
                return False
            if any(share.left() for share in self.shares):
                return True
            if not any(share.others for share in self.shares):
                return False
            await asyncio.sleep(LOOK)


class _Share:
    """One strategy's run folder, and this process's share of the work in it.

    Attributes:
        folder: The run folder.
        strategy: What is run.
        name: What `evaluate_each` was told to call it.
        done: Ids of questions with a line on disk.
        failed: Those of them whose lines all tell of failure.
        taken: Questions that are this process's until they are done: the block of each id.
        others: Blocks that somebody else was at, and the ids not done in them.
    """

    def __init__(self, folder: Path, strategy: Strategy, name: str) -> None:
        self.folder = folder
        self.strategy = strategy
        self.name = name
        self.done: set[str] = set()
        self.failed: set[str] = set()
        self.taken: dict[str, int] = {}
        self.others: dict[int, list[str]] = {}
        self._open: dict[int, set[str]] = {}  # of `taken`, by block
        self._reader = runs.Reader(folder)
        self._budget: RunBudget | None = None

    def read_first(self, budget: RunBudget | None) -> None:
        """Read what earlier sittings and other processes have done and spent."""
        lines = self._new()
        if budget:
            spent = (step for line in lines for step in Trace.from_json(*line[::-1]).steps)
            budget.count_once((self.folder / runs.TRACES).resolve(), spent)
        deque(lines, maxlen=0)  # what the budget has counted already
        self._budget = budget

    def forget_failed(self) -> None:
        """Take the failed questions as not asked yet."""
        self.done -= self.failed
        self.failed = set()

    def join(self, leaving: ExitStack) -> None:
        """Become one of the workers of the folder, until the stack is left."""
        self._claims = leaving.enter_context(Claims(self.folder))
        self.look()  # the file has a new writer, so nobody adds to it unseen
        self._reader.skip = self._claims.traces
        self._journal = _Journal(self._claims.traces)

    def take(self, number: int, block: Iterable[Question]) -> None:
        """Claim what is not done of a block of questions, unless somebody else is at it."""
        wanted = [question.id for question in block if question.id not in self.done]
        if not wanted:
            return
        if not self._claims.take(str(number)):
            self.others[number] = wanted
            return
        self.look()  # whoever had it before may have finished it
        if left := {name for name in wanted if name not in self.done}:
            self.taken |= dict.fromkeys(left, number)
            self._open[number] = left
        else:
            self._claims.finish(str(number))

    async def keep(self, result: Trace) -> None:
        """Put the trace of a question that was taken on disk."""
        name = result.question.id
        number = self.taken[name]
        self._claims.check(str(number))
        await self._journal.keep(result)
        self._note(name, failed=bool(result.error))
        del self.taken[name]
        self._open[number].remove(name)
        if not self._open[number]:
            del self._open[number]
            self._claims.finish(str(number))

    def look(self) -> None:
        """Read what other processes have written, and count what they have spent."""
        for where, line in self._new():
            if self._budget:
                self._budget.add(*Trace.from_json(line, where).steps)

    def left(self) -> bool:
        """Whether something that others were at is neither done nor being done."""
        for number, names in [*self.others.items()]:
            self.others[number] = [name for name in names if name not in self.done]
            if not self.others[number]:
                del self.others[number]
        return any([self._claims.free(str(number)) for number in self.others])  # noqa: C419 - look at all

    def _new(self) -> Iterator[tuple[str, str]]:
        for where, line in self._reader.new():
            record = json_object(line, where)
            question = record.get("question")
            if not isinstance(question, dict):
                raise BadInput(f"{where}: not a trace.")
            self._note(str(question.get("id")), failed=bool(record.get("error")))
            yield where, line

    def _note(self, name: str, *, failed: bool) -> None:
        if not failed:
            self.failed.discard(name)
        elif name not in self.done:
            self.failed.add(name)
        self.done.add(name)


def _check_prices(budget: RunBudget, strategies: Iterable[Strategy]) -> None:
    """Refuse models without a price, where the strategies' settings name them."""
    for strategy in strategies:
        if isinstance(lm := strategy.settings.get("lm"), str):
            budget.limits.check(lm)


class _Journal:
    """Appends traces in a thread; those that come while it writes go together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._disk = asyncio.Lock()
        self._group: list[Trace] = []
        self._writing: asyncio.Task[None] | None = None  # of this group, not yet begun

    async def keep(self, result: Trace) -> None:
        """Return when a trace is on disk, and leave none behind that is still being written."""
        self._group.append(result)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(self._group))
        writing = self._writing
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing
            raise

    async def _write(self, group: list[Trace]) -> None:
        async with self._disk:
            self._group, self._writing = [], None  # what comes from now on is the next group's
            await asyncio.to_thread(runs.append, self._path, *group)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Which questions, in which order.

    Attributes:
        sha256: Of all that the questions say, gold included.
        count: How many there are.
    """

    sha256: str
    count: int


def fingerprint(questions: Iterable[Question]) -> Fingerprint:
    """Read all questions once, check them, and hash them.

    Raises:
        BadInput: One has no text, no id or another's id; there are none; or they can be read
            only once.
    """
    if iter(questions) is questions:
        raise BadInput("The questions are read twice: give a list or a QuestionFile.")
    content, ids = hashlib.sha256(), set()
    for number, question in enumerate(questions, 1):
        if not question.id:
            raise BadInput(f"Question {number} has no id: {question.text[:80]!r}.")
        if question.id in ids:
            raise BadInput(f"Question {number} has the id of an earlier one: {question.id!r}.")
        if not question.text.strip():
            raise BadInput(f"Question {number} ({question.id!r}) is empty.")
        ids.add(question.id)
        content.update(_content(question))
    if not ids:
        raise BadInput("There are no questions to ask: the file is empty.")
    return Fingerprint(content.hexdigest(), len(ids))


def _content(question: Question) -> bytes:
    return Trace(question, strategy="").to_json().encode()


def identity(
    strategy: Strategy, questions: Fingerprint, record: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """What must be equal for traces to belong to one run."""
    return {
        "multihop": __version__,
        "strategy": strategy.name,
        "settings": dict(strategy.settings),
        "parts": dict(record or {}),
        "questions": {"sha256": questions.sha256, "count": questions.count},
    }


# --- Scoring --------------------------------------------------------------------------------

ROWS = (
    *("em", "f1", "gold_recall@5", "gold_recall@15", "gold_recall"),
    *("title_recall@5", "title_recall@15", "title_recall"),
    *("steps", "searches", "lm_calls", "sent_calls"),
    *("prompt_tokens", "cached_tokens", "evaluated_tokens", "generated_tokens", "seconds"),
)
"""The rows of every report; a row that applies to no question is left out, and recall of titles
where passages are annotated."""


@dataclass(frozen=True, slots=True)
class Report:
    """A run's scores.

    Attributes:
        run: The run folder's name.
        strategy: The strategy's name.
        questions: How many the run is of.
        finished: Questions that came to an answer, or to a reason for none; means are over
            these.
        failed: Questions that ended in an error; in no mean.
        means: By metric, in the order of the report.
        stops: How often each stop reason occurred.
        without_answer: Finished questions whose answer is empty; they score 0.
        cut: Finished questions with a call that `max_tokens` cut off.
        failures: The first failures: question id and error.
        prices: By model, what the row `money` was reckoned with; None where it was not.
        routes: How often a router chose each strategy; empty where none was asked.
    """

    run: str
    strategy: str
    questions: int
    finished: int
    failed: int
    means: Mapping[str, Mean] = field(hash=False)
    stops: Mapping[str, int] = field(hash=False)
    without_answer: int
    cut: int
    failures: tuple[tuple[str, str], ...] = ()
    prices: Mapping[str, Json] | None = field(default=None, hash=False)
    routes: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def missing(self) -> int:
        """Questions of the run that have not been asked yet."""
        return self.questions - self.finished - self.failed

    def to_dict(self) -> dict[str, Json]:
        """As JSON data."""
        return {
            "run": self.run,
            "strategy": self.strategy,
            "questions": self.questions,
            "finished": self.finished,
            "failed": self.failed,
            "missing": self.missing,
            "means": {
                name: {"mean": m.value, "standard_error": m.error, "n": m.n, "unscored": m.unscored}
                for name, m in self.means.items()
            },
            "stops": dict(self.stops),
            **({"routes": dict(self.routes)} if self.routes else {}),
            "without_answer": self.without_answer,
            "cut": self.cut,
            "failures": [{"id": name, "error": error} for name, error in self.failures],
            **({} if self.prices is None else {"prices": dict(self.prices)}),
        }


def finished(folder: Path) -> Iterator[Trace]:
    """A run's traces, one a question: the first that succeeded, else its last failure."""
    succeeded: set[str] = set()
    failures: dict[str, Trace] = {}
    for _, run in runs.read_folder(folder):
        if run.error:
            failures[run.question.id] = run
        elif run.question.id not in succeeded:
            succeeded.add(run.question.id)
            yield run
    yield from (run for name, run in failures.items() if name not in succeeded)


def score(
    folder: Path,
    more: Mapping[str, Metric] | None = None,
    *,
    prices: Prices | None = None,
    show_failures: int = 10,
) -> Report:
    """Score what a run folder holds.

    Args:
        folder: One run; see `runs.folders` for a folder of several.
        more: Further rows by name, after those of `ROWS`.
        prices: Adds the row `money`, where the models have a price.
        show_failures: How many failures the report lists.

    Raises:
        BadInput: Not a run folder, a damaged one, or a metric of `more` gives no finite number.
    """
    manifest = runs.manifest(folder)
    measures = {name: metric(name) for name in ROWS}
    if prices is not None:
        measures["money"] = money(prices)
    measures.update(more or {})
    values: dict[str, list[float | None]] = {name: [] for name in measures}
    stops: Counter[str] = Counter()
    routes: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []
    models: dict[str, None] = {}
    done = without_answer = cut = failed = 0
    for run in finished(folder):
        answer = run.answer
        if run.error or not answer:
            failed += 1
            if len(failures) < show_failures:
                failures.append((run.question.id, run.error or "ended without an answer"))
            continue
        done += 1
        stops[answer.stop] += 1
        routes.update(route for step in run.steps if (route := route_of(step)))
        without_answer += not answer.text
        cut += any("length" in call.finishes for call in run.calls)
        models.update(dict.fromkeys(call.model for call in run.calls))
        for name, measure in measures.items():
            value = measure(run)
            if value is not None and not math.isfinite(value):
                raise BadInput(
                    f"{folder}: the metric {name!r} is {value} for question {run.question.id!r}. "
                    "A metric is a finite number, or None where it does not apply."
                )
            values[name].append(value)
    means = {name: found for name in measures if (found := mean(values[name])).n}
    if "gold_recall" in means:
        means = {k: m for k, m in means.items() if not k.startswith("title_recall")}
    questions = manifest.get("questions")
    count = questions.get("count") if isinstance(questions, dict) else None
    return Report(
        run=folder.resolve().name,
        strategy=str(manifest.get("strategy")),
        questions=count if isinstance(count, int) else done + failed,
        finished=done,
        failed=failed,
        means=means,
        stops=dict(stops.most_common()),
        routes=dict(routes.most_common()),
        without_answer=without_answer,
        cut=cut,
        failures=tuple(failures),
        prices=None if prices is None else prices.only(*models).to_dict(),
    )
