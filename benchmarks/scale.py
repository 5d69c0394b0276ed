"""What a number of questions over a number of passages takes: hours, tokens, replicas, shards.

    python benchmarks/scale.py                      the table of docs/scale.md
    python benchmarks/scale.py --write docs/scale.md
    python benchmarks/scale.py --questions 50000 --passages 21e6 [--lm read=9000 write=2500 ...]
    python benchmarks/scale.py --check RUN          a finished run against its prediction

A model of sums, no simulation: per question so many calls, tokens and searches; per call and
search so much time; machines are bought by the share of time that they may be busy. Figures are
either measured, with their source, or assumed; assumed ones are to be replaced by your own.
"""

import argparse
import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from multihop import evaluation, runs
from multihop.cost import Cost
from multihop.trace import searches_of

DAY = 86_400
GB = 1e9


@dataclass(frozen=True, slots=True)
class Work:
    """What one question takes, whatever it runs on.

    Attributes:
        calls: LM calls.
        searches: Queries to the retriever.
        prompt: Prompt tokens sent.
        evaluated: Those of them that a prefix cache does not have.
        generated: Tokens written.
        trace: Bytes of its line in the run folder.
    """

    calls: float
    searches: float
    prompt: float
    evaluated: float
    generated: float
    trace: float


@dataclass(frozen=True, slots=True)
class LM:
    """One replica of a language model, as busy as it can be.

    Attributes:
        read: Prompt tokens evaluated a second.
        write: Tokens written a second, over all sequences together.
        sequences: Sequences at a time.
        weights: Bytes.
        token: Bytes that the cache keeps for a token.
        window: Tokens kept for a sequence.
    """

    read: float
    write: float
    sequences: int
    weights: float
    token: float
    window: int

    def seconds(self, work: Work) -> float:
        """Of a replica's time that a question takes."""
        return work.evaluated / self.read + work.generated / self.write

    @property
    def memory(self) -> float:
        """Bytes of a replica."""
        return self.weights + self.sequences * self.window * self.token


@dataclass(frozen=True, slots=True)
class Search:
    """BM25 on one engine; a query's time grows in proportion to the passages.

    Attributes:
        query: CPU seconds of a query over a million passages.
        build: CPU seconds that indexing a million passages takes.
        size: Bytes on disk a passage, text included; as many in memory keep it fast.
        heap: Bytes of memory a shard beside its index.
    """

    query: float
    build: float
    size: float
    heap: float


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked of the whole.

    Attributes:
        busy: Share of the time that a machine may be busy, so that peaks find room.
        wait: Seconds a search may take, on the clock.
        cores: Of one search machine.
        own: CPU seconds of this package for an LM call.
    """

    busy: float
    wait: float
    cores: int
    own: float


@dataclass(frozen=True, slots=True)
class Need:
    """What it comes to.

    Attributes:
        tokens: A day: prompt tokens sent and tokens written.
        evaluated: A day: of the prompt tokens those that are evaluated.
        lm_hours: A day: of one replica's time.
        replicas: LM replicas.
        lm_memory: Bytes of one replica.
        at_work: Questions at work at the same time.
        shards: Search shards.
        cores: Cores for searching.
        search_memory: Bytes for the whole index in memory, and heaps.
        build_hours: To index all passages with those cores, at least one.
        own_cores: Cores for this package.
        disk: Bytes of traces a day.
    """

    tokens: float
    evaluated: float
    lm_hours: float
    replicas: int
    lm_memory: float
    at_work: float
    shards: int
    cores: int
    search_memory: float
    build_hours: float
    own_cores: float
    disk: float


# --- Figures --------------------------------------------------------------------------------

OFFICIAL_HOTPOTQA = Work(3.5, 3.1, 8543, 679, 65, 40_300)
EMBEDDED = LM(read=245, write=54, sequences=4, weights=0.145e9, token=23e3, window=2048)
SERVED = LM(read=10_000, write=2_500, sequences=64, weights=16e9, token=131_072, window=8192)
TANTIVY = Search(query=0.0247 / 5.2, build=1190.6 / 5.2, size=3.14e9 / 5.2e6, heap=0.5e9)
LUCENE = Search(query=0.0423 / 5.2, build=484.5 / 5.2, size=2.86e9 / 5.2e6, heap=4e9)
TERMS = Terms(busy=0.6, wait=0.25, cores=16, own=0.00155)

SOURCES: tuple[tuple[str, str, str], ...] = (
    (
        "a question: 3.5 calls, 8,543 prompt tokens (679 evaluated), 65 written",
        "measured",
        "results.md, IRCoT on hotpotqa-official, 30 November 2026; 472 of the evaluated by OneR",
    ),
    (
        "a question: 3.1 searches, 40 kB of trace",
        "measured",
        "the same run: 2.1 sentences and the question; its run folder",
    ),
    (
        "embedded LM: reads 245, writes 54 tokens a second; 0.145 GB; 23 kB a token",
        "measured",
        "lms.md, SmolLM2-135M, 2 idle cores, 30 November 2026",
    ),
    (
        "tantivy, 5.2 million passages: 24.7 ms of CPU a query, 1,191 s to build, 3.14 GB",
        "measured",
        "performance.md, queries of 25 words, k = 6, 30 November 2026",
    ),
    (
        "Lucene, the same: 42.3 ms, 485 s, 2.86 GB; taken for Elasticsearch's",
        "measured",
        "performance.md, Lucene 8.3, one thread, warm",
    ),
    (
        "a query's time grows in proportion to the passages",
        "measured to 5.2 million",
        "0.47, 3.1 and 17 ms at 0.1, 1 and 5.2 million; beyond that assumed",
    ),
    ("this package: 1.55 ms of CPU a call", "measured", "performance.md, own time"),
    (
        "served LM, 8 billion parameters on one accelerator of 80 GB: 16 GB, 131 kB a token",
        "assumed",
        "arithmetic: 16 bits; 32 layers, 8 heads of 128 for keys and values",
    ),
    (
        "the same: reads 10,000, writes 2,500 tokens a second with 64 sequences",
        "assumed",
        "no measurement: put in what your server's metrics say",
    ),
    (
        "the larger model needs as many calls and tokens as the small one",
        "assumed",
        "better models write longer chains; the paper's cap is 8 sentences of 15 passages",
    ),
    (
        "machines 60 % busy; a search waits at most 250 ms; 16 cores and 4 GB of heap a shard",
        "assumed",
        "choices, not facts",
    ),
)


# --- The model ------------------------------------------------------------------------------


def predict(  # noqa: PLR0917 - the six things it is a function of
    questions: float, passages: float, work: Work, lm: LM, search: Search, terms: Terms
) -> Need:
    """What so many questions a day over so many passages need.

    Args:
        questions: A day, evenly spread.
        passages: Of the whole corpus.
        work: What one question takes.
        lm: A replica.
        search: The engine.
        terms: What is asked of the whole.
    """
    if questions < 0 or passages < 1:
        raise SystemExit("scale.py: questions are 0 or more, passages 1 or more.")
    rate = questions / DAY
    query = search.query * passages / 1e6  # CPU seconds, over all shards
    shards = max(1, math.ceil(query / (terms.wait * terms.busy)))  # each one core a query
    load = rate * work.searches * query / terms.busy
    cores = max(shards, math.ceil(load))
    lm_load = rate * lm.seconds(work)
    # One after the other: each token waits for its sequence's turn among all of the replica's.
    latency = (
        work.evaluated / lm.read
        + work.generated * lm.sequences / lm.write
        + work.searches * query / shards
        + work.calls * terms.own
    )
    return Need(
        tokens=questions * (work.prompt + work.generated),
        evaluated=questions * work.evaluated,
        lm_hours=questions * lm.seconds(work) / 3600,
        replicas=max(1, math.ceil(max(lm_load, rate * latency / lm.sequences) / terms.busy)),
        lm_memory=lm.memory,
        at_work=rate * latency,
        shards=shards,
        cores=cores,
        search_memory=passages * search.size + shards * search.heap,
        build_hours=search.build * passages / 1e6 / cores / 3600,
        own_cores=rate * work.calls * terms.own,
        disk=questions * work.trace,
    )


def hours(questions: float, passages: float, work: Work, lm: LM, search: Search) -> float:
    """On one machine that does one thing after the other."""
    query = search.query * passages / 1e6
    return questions * (lm.seconds(work) + work.searches * query + work.calls * TERMS.own) / 3600


def measured(folder: Path) -> tuple[Work, float, int]:
    """What the questions of a finished run took: the work, the seconds a question, how many."""
    count = sum(1 for _ in evaluation.finished(folder))
    if not count:
        raise SystemExit(f"scale.py: {folder}: no question of this run is finished.")
    total = dict.fromkeys((field.name for field in fields(Work)), 0.0)
    seconds = 0.0
    for trace in evaluation.finished(folder):
        seconds += trace.seconds
        calls = [call for call in trace.calls if not call.replayed]
        total["calls"] += Cost.of(trace.steps).calls
        total["searches"] += sum(1 for step in trace.steps for _ in searches_of(step))
        total["prompt"] += sum(call.tokens.prompt or 0 for call in calls if not call.fused)
        total["evaluated"] += sum(
            (call.tokens.prompt or 0) - (call.tokens.cached or 0)
            for call in calls
            if not call.fused
        )
        total["generated"] += sum(call.tokens.generated or 0 for call in calls)
        total["trace"] += len(trace.to_json()) + 1
    return Work(**{name: value / count for name, value in total.items()}), seconds / count, count


def check(folder: Path, lm: LM, at_once: int, query: float) -> tuple[float, float]:
    """Predicted and actual seconds of a question, with so many at once on one replica."""
    work, actual, _ = measured(folder)
    return at_once * lm.seconds(work) + work.searches * query + work.calls * TERMS.own, actual


# --- Tables ---------------------------------------------------------------------------------

CORPORA = (5.2e6, 21e6, 1e9)
QUESTIONS = (10_000, 1_000_000)


def markdown() -> str:
    """The tables of the page."""
    lines = ["| questions a day | passages | on | LM replicas | of | questions at work | search |"]
    lines[0] += " memory for it | indexing | tokens a day (evaluated) | own cores | traces a day |"
    lines += ["|" + " --- |" * 12]
    for questions in QUESTIONS:
        for passages in CORPORA:
            for name, lm, search in ENGINES:
                need = predict(questions, passages, OFFICIAL_HOTPOTQA, lm, search, TERMS)
                lines.append(row(questions, passages, name, need))
    lines += [
        "",
        "One machine of two cores, everything embedded, one thing after the other:",
        "",
        "| questions | passages | hours |",
        "| --- | --- | --- |",
    ]
    for questions in (100, 10_000):
        for passages in CORPORA[:2]:
            took = hours(questions, passages, OFFICIAL_HOTPOTQA, EMBEDDED, TANTIVY)
            lines.append(f"| {questions:,} | {million(passages)} | {took:,.1f} |")
    lines += ["", "| figure | | where from |", "| --- | --- | --- |"]
    lines += [f"| {what} | {kind} | {where} |" for what, kind, where in SOURCES]
    return "\n".join(lines) + "\n"


ENGINES = (
    ("embedded LM, tantivy", EMBEDDED, TANTIVY),
    ("served LM, Elasticsearch", SERVED, LUCENE),
)


def row(questions: float, passages: float, name: str, need: Need) -> str:
    cells: Sequence[str] = (
        f"{questions:,.0f}",
        million(passages),
        name,
        f"{need.replicas:,}",
        f"{need.lm_memory / GB:,.1f} GB",
        f"{need.at_work:,.1f}",
        f"{need.shards:,} shards, {need.cores:,} cores",
        f"{need.search_memory / GB:,.0f} GB",
        f"{need.build_hours:,.1f} h",
        f"{need.tokens / 1e6:,.0f} ({need.evaluated / 1e6:,.1f}) million",
        f"{need.own_cores:.3f}",
        f"{need.disk / GB:,.2f} GB",
    )
    return "| " + " | ".join(cells) + " |"


def million(passages: float) -> str:
    """A number of passages in words."""
    return f"{passages / 1e6:,.10g} million" if passages < 1e9 else f"{passages / 1e9:g} billion"


def changed(lm: LM, settings: Iterable[str]) -> LM:
    """A model with other figures, as "read=9000"."""
    given = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in asdict(lm):
            raise SystemExit(f"scale.py: --lm {setting}: known are {', '.join(asdict(lm))}.")
        try:
            given[name] = float(value)
        except ValueError:
            raise SystemExit(f"scale.py: --lm {setting}: expected NAME=NUMBER.") from None
    return replace(lm, **given)


def write(page: Path) -> None:
    """Put the tables into their place on the page."""
    place = re.compile(r"(<!-- scale -->\n).*?(<!-- end -->)", re.DOTALL)
    text = page.read_text(encoding="utf-8")
    page.write_text(place.sub(lambda found: found[1] + markdown() + found[2], text), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--questions", type=float, help="a day")
    parser.add_argument("--passages", type=float, default=5.2e6)
    parser.add_argument("--lm", nargs="*", default=[], help="other figures of the served LM")
    parser.add_argument("--write", type=Path, help="the page that holds the tables")
    parser.add_argument("--check", type=Path, help="a finished run folder")
    parser.add_argument("--at-once", type=int, default=1, help="questions at work in that run")
    parser.add_argument("--read", type=float, default=EMBEDDED.read, help="its tokens a second")
    parser.add_argument("--write-speed", type=float, default=EMBEDDED.write, help="likewise")
    asked = parser.parse_args()
    if asked.check:
        lm = replace(EMBEDDED, read=asked.read, write=asked.write_speed)
        for folder in runs.folders(asked.check):
            told, actual = check(folder, lm, asked.at_once, 0.0)
            print(f"{folder}: predicted {told:.2f} s a question, took {actual:.2f} s")
    elif asked.write:
        write(asked.write)
    elif asked.questions is not None:
        lm = changed(SERVED, asked.lm)
        need = predict(asked.questions, asked.passages, OFFICIAL_HOTPOTQA, lm, LUCENE, TERMS)
        print("\n".join(markdown().splitlines()[:2]))
        print(row(asked.questions, asked.passages, "served LM, Elasticsearch", need))
    else:
        print(markdown(), end="")


if __name__ == "__main__":
    sys.exit(main())
