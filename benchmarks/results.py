"""The tables of docs/results.md, out of run folders; runs no model.

    multihop eval DATA/hotpotqa_dev.jsonl --index INDEXES/hotpotqa --strategy nor,oner,ircot \
        --into RUNS/hotpotqa-own ...
    python benchmarks/results.py RUNS INDEXES hotpotqa-own hotpotqa-official ...

A run folder is named DATASET-DEMONSTRATIONS and holds one folder a strategy. Gold recall is
measured three ways: of what was collected; of the question's own BM25 ranking cut at as many
passages; and at 15 passages, what was collected filled up from that ranking.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from multihop.evaluation import finished
from multihop.metrics.aggregate import mean
from multihop.metrics.significance import paired_bootstrap
from multihop.metrics.support import recall_at
from multihop.metrics.traces import em, f1
from multihop.retrievers.bm25 import BM25
from multihop.strategies.rules import DEFAULT
from multihop.text import Query
from multihop.trace import Trace

BUDGET = 15
STRATEGIES = ("nor", "oner", "ircot")


def main() -> None:
    runs, indexes = Path(sys.argv[1]), Path(sys.argv[2])
    for name in sys.argv[3:]:
        asyncio.run(table(runs / name, indexes / name.split("-")[0]))


async def table(folder: Path, index: Path) -> None:
    retriever = BM25(index)
    traces = {s: {t.question.id: t for t in finished(folder / s)} for s in STRATEGIES}
    ids = [i for i in traces["ircot"] if all(i in traces[s] for s in STRATEGIES)]
    questions = [traces["ircot"][i].question for i in ids]
    queries = [Query(DEFAULT.question_query(q.text)) for q in questions]
    rankings = await retriever.search(queries, BUDGET)
    one_step = {
        i: [hit.passage.id for hit in ranking] for i, ranking in zip(ids, rankings, strict=True)
    }
    await retriever.aclose()

    print(f"\n### {folder.name}, {len(ids)} questions\n")
    print(
        "| | EM | F1 | passages | gold recall | BM25, as many | at 15 | BM25 at 15 | stated "
        "| sentences | LM calls | prompt tokens (evaluated) | generated | seconds | stops |"
    )
    print("|" + " --- |" * 15)
    for strategy in STRATEGIES:
        row(strategy, [traces[strategy][i] for i in ids], one_step)

    ircot, oner = ([traces[s][i] for i in ids] for s in ("ircot", "oner"))
    print("\nIRCoT less what it is compared with, paired bootstrap (10,000 samples):\n")
    compared("gold recall, BM25 with as many passages", ircot, one_step, recall, equal)
    compared("gold recall at 15, BM25 at 15", ircot, one_step, filled, full)
    bridges(ircot, one_step)
    difference("answer F1, OneR", [f1(t) or 0 for t in ircot], [f1(t) or 0 for t in oner])


def bridges(runs: Sequence[Trace], one_step: dict[str, list[str]]) -> None:
    """Why the loop finds what it finds: does the chain name the passages that are missing?"""
    missing = named = found = 0
    for run in runs:
        question, chain = run.question, " ".join(t.text for t in run.thoughts).lower()
        for gold, title in zip(question.gold_ids, question.gold_titles, strict=False):
            if gold in one_step[question.id]:
                continue
            missing += 1
            found += gold in run.collected
            bare = title.split(" (")[0].lower()
            named += bare in chain and bare not in question.text.lower()
    print(
        f"- gold passages not among the question's BM25 top {BUDGET}: {missing}; "
        f"the chain names the title of {named}, the loop finds {found}"
    )


def recall(run: Trace, _: Sequence[str]) -> float:
    return recall_at(run.collected, run.question.gold_ids)


def equal(run: Trace, ranking: Sequence[str]) -> float:
    return recall_at(ranking, run.question.gold_ids, len(run.collected))


def filled(run: Trace, ranking: Sequence[str]) -> float:
    together = list(dict.fromkeys([*run.collected, *ranking]))
    return recall_at(together, run.question.gold_ids, BUDGET)


def full(run: Trace, ranking: Sequence[str]) -> float:
    return recall_at(ranking, run.question.gold_ids, BUDGET)


def row(strategy: str, runs: Sequence[Trace], one_step: dict[str, list[str]]) -> None:
    def of(measure: Callable[[Trace], float | None], scale: float = 100, digits: int = 1) -> str:
        found = mean([measure(run) for run in runs])
        error = f" ± {scale * found.error:.{digits}f}" if found.error is not None else ""
        return f"{scale * (found.value or 0):.{digits}f}{error}"

    def share(measure: Callable[[Trace, Sequence[str]], float]) -> str:
        return of(lambda run: measure(run, one_step[run.question.id]))

    def stated(run: Trace) -> float:
        return float(bool(run.answer and run.answer.text and not run.answer.forced))

    def evaluated(run: Trace) -> float:
        return (run.tokens.prompt or 0) - (run.tokens.cached or 0)

    stops = Counter(run.answer.stop if run.answer else "failed" for run in runs)
    searched = strategy != "nor"
    cells = [
        strategy,
        of(em),
        of(f1),
        of(lambda run: len(run.collected), 1),
        share(recall) if searched else "",
        share(equal) if searched else "",
        share(filled) if searched else "",
        share(full),
        of(stated, digits=0),
        of(lambda run: len(run.thoughts), 1),
        of(lambda run: len(run.calls), 1),
        f"{of(lambda run: run.tokens.prompt, 1, 0)} ({of(evaluated, 1, 0)})",
        of(lambda run: run.tokens.generated, 1, 0),
        of(lambda run: run.seconds, 1),
        ", ".join(f"{name} {count}" for name, count in stops.most_common()),
    ]
    print("| " + " | ".join(cells) + " |")


def compared(
    name: str,
    runs: Sequence[Trace],
    one_step: dict[str, list[str]],
    ours: Callable[[Trace, Sequence[str]], float],
    theirs: Callable[[Trace, Sequence[str]], float],
) -> None:
    difference(
        name,
        [ours(run, one_step[run.question.id]) for run in runs],
        [theirs(run, one_step[run.question.id]) for run in runs],
    )


def difference(name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    found = paired_bootstrap(ours, theirs)
    print(
        f"- {name}: {100 * found.mean:+.1f} points "
        f"[{100 * found.low:+.1f}, {100 * found.high:+.1f}], p = {found.p:.3f}"
    )


if __name__ == "__main__":
    main()
