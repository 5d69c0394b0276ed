"""What an adapter changes: NoR, OneR and IRCoT with and without it, on held-out questions.

    python benchmarks/adapter.py DATA RUNS                      # the packaged adapter
    python benchmarks/adapter.py DATA RUNS --adapter seed1=DIR  # others, beside it

DATA holds `SET_corpus.jsonl` and `SET_dev.jsonl` for each set; RUNS gets the indexes and a run
folder a set, configuration and strategy. What is there already is not run again, so the command
goes on after any end, and `--tables` only prints. Gold recall is measured at equal numbers of
passages: those collected, in the order found, cut at n or filled up to n from the question's own
BM25 ranking, against that ranking cut at n.
"""

import argparse
import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import evals

from multihop.evaluation import finished
from multihop.metrics.aggregate import mean
from multihop.metrics.significance import paired_bootstrap
from multihop.metrics.support import recall_at
from multihop.metrics.traces import em, f1
from multihop.prompts.sentences import light
from multihop.retrievers.bm25 import BM25
from multihop.strategies.collect import Collected
from multihop.strategies.rules import DEFAULT
from multihop.text import Query, Question
from multihop.trace import Trace

SETS = ("2wikimultihopqa", "hotpotqa", "musique")
STRATEGIES = ("nor", "oner", "ircot")
DEPTHS = (8, 12, 15)
UNTRAINED = "untrained"
K = 3
"""Passages per query of the loop, in every configuration."""

Measure = Callable[[Trace], float | None]


@dataclass(frozen=True)
class Runs:
    """The runs of one set.

    Attributes:
        name: The set.
        traces: By configuration and strategy, then by question id.
        rankings: The question's BM25 ranking, by question id.
        control: Gold recall at each depth without an LM, by question id; see `controls`.
    """

    name: str
    traces: dict[tuple[str, str], dict[str, Trace]]
    rankings: dict[str, list[str]]
    control: dict[str, dict[str, dict[int, float]]]

    def of(self, configuration: str, strategy: str) -> list[Trace]:
        """Traces of the questions that all strategies of the configuration have answered."""
        return [self.traces[configuration, strategy][i] for i in self.ids(configuration)]

    def ids(self, *configurations: str) -> list[str]:
        """Questions answered by every strategy of these configurations."""
        have = [t for (name, _), t in self.traces.items() if name in configurations]
        return [i for i in self.rankings if have and all(i in traces for traces in have)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--adapter", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--model", default="local:SmolLM2-135M-Instruct")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--only", default="", help="Configurations to run, parted by commas.")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--tables", action="store_true", help="Run nothing.")
    given = evals.parsed(parser)
    adapters = {"adapter": ""} | dict(each.split("=", 1) for each in given.adapter)
    sets = given.sets.split(",")
    wanted = [name for name in given.only.split(",") if name] or [UNTRAINED, *adapters]
    for name in sets:
        evals.index(given.data, given.runs, name)
        for configuration in [] if given.tables else wanted:
            run(given, name, configuration, adapters.get(configuration))
    found = [asyncio.run(read(given.runs, name, folders(given.runs, name))) for name in sets]
    for each in found:
        tables(each)
    pooled(found)


def run(given: argparse.Namespace, name: str, configuration: str, adapter: str | None) -> None:
    options = ["--strategy-option", "words=70", "-k", str(K), "--max-passages", "12"]
    if adapter is None:  # the untrained model: our own three demonstrations
        options += ["--adapter", "none"]
    elif adapter:
        options += ["--adapter", adapter]
    if given.limit:
        options += ["--limit", str(given.limit)]
    for strategy in given.strategies.split(","):
        # OneR reads as many passages as the loop collects on average, or a few more.
        depth = ["-k", "6"] if strategy == "oner" else []
        evals.call(
            *("eval", str(given.data / f"{name}_dev.jsonl"), "--model", given.model),
            *("--index", str(given.runs / "indexes" / name), "--strategy", strategy),
            *options,
            *depth,
            *given.rest,
            *("--into", str(given.runs / f"{name}-{configuration}-{strategy}")),
        )


def folders(runs: Path, name: str) -> list[Path]:
    found = sorted(runs.glob(f"{name}-*-*"))
    return [
        each / s if (each / (s := each.name.split("-")[2])).exists() else each for each in found
    ]


async def read(runs: Path, name: str, folders: Sequence[Path]) -> Runs:
    traces = {}
    for folder in folders:
        whole = folder if "-" in folder.name else folder.parent
        _, configuration, strategy = whole.name.split("-")
        traces[configuration, strategy] = {t.question.id: t for t in finished(folder)}
    questions = {t.question.id: t.question for found in traces.values() for t in found.values()}
    retriever = BM25(runs / "indexes" / name)
    queries = [Query(DEFAULT.question_query(q.text)) for q in questions.values()]
    rankings = await retriever.search(queries, max(DEPTHS)) if queries else []
    ranked = {
        i: [hit.passage.id for hit in ranking]
        for i, ranking in zip(questions, rankings, strict=True)
    }
    control = {
        "first sentences of the top 4": await controls(retriever, questions, ranked, first),
        "gold titles": await controls(retriever, questions, ranked, titles),
    }
    await retriever.aclose()
    return Runs(name, traces, ranked, control)


# --- What queries find without an LM ----------------------------------------------------------


def first(retriever: BM25, _: Question, ranking: Sequence[str]) -> list[str]:
    """The control: what the best passages say first, as queries."""
    found = [retriever.get(i) for i in ranking[:4]]
    return [light(passage.text)[0] for passage in found if passage and passage.text.strip()]


def titles(retriever: BM25, question: Question, _: Sequence[str]) -> list[str]:
    """About the most that queries can find: the titles of the gold passages."""
    found = [retriever.get(i) for i in question.gold_ids]
    return [passage.title for passage in found if passage]


async def controls(
    retriever: BM25,
    questions: dict[str, Question],
    ranked: dict[str, list[str]],
    queries: Callable[[BM25, Question, Sequence[str]], list[str]],
) -> dict[str, dict[int, float]]:
    found = {}
    for i, question in questions.items():
        collected = Collected(max(DEPTHS), DEFAULT.duplicate)
        asked = [DEFAULT.question_query(question.text), *queries(retriever, question, ranked[i])]
        for hits in await retriever.search([Query(text) for text in asked if text], K):
            collected.add(hits)
        found[i] = {n: at(collected.ids, ranked[i], question, n) for n in DEPTHS}
    return found


def at(collected: Sequence[str], ranking: Sequence[str], question: Question, n: int) -> float:
    """Gold recall of what was collected, cut at n or filled up to n from the ranking."""
    return recall_at(list(dict.fromkeys([*collected, *ranking])), question.gold_ids, n)


# --- Tables -----------------------------------------------------------------------------------


def choice(question: Question) -> bool:
    """Whether the answer is yes or no, or one of those that the question names."""

    def plain(text: str) -> str:
        return " ".join(re.findall(r"\w+", text.lower()))

    answer = plain(question.answers[0])
    return answer in ("yes", "no") or f" {answer} " in f" {plain(question.text)} "


def shown(runs: Sequence[Trace], measure: Measure, scale: float = 100, digits: int = 1) -> str:
    found = mean([measure(run) for run in runs])
    if found.value is None:
        return ""
    error = f" ± {scale * found.error:.{digits}f}" if found.error is not None else ""
    return f"{scale * found.value:.{digits}f}{error}"


def stated(run: Trace) -> float:
    """Whether the chain ended in an answer by itself."""
    return float(bool(run.answer and run.answer.stop == "answered"))


def evaluated(run: Trace) -> float:
    return (run.tokens.prompt or 0) - (run.tokens.cached or 0)


def tables(runs: Runs) -> None:
    print(f"\n### {runs.name}\n")
    head = (
        *("", "questions", "EM", "F1", "F1, open", "F1, choice", "passages", "gold recall"),
        *(f"at {n}" for n in DEPTHS),
        *("chain states an answer", "sentences", "LM calls", "prompt tokens (evaluated)"),
        *("generated", "seconds"),
    )
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for configuration, strategy in runs.traces:
        print("| " + " | ".join(row(runs, configuration, strategy)) + " |")
    ids = list(runs.rankings)
    for name, recalls in [
        ("BM25 alone", {i: bm25(runs, i) for i in ids}),
        *((f"no LM: {name}", found) for name, found in runs.control.items()),
    ]:
        cells = [f"{100 * sum(recalls[i][n] for i in ids) / len(ids):.1f}" for n in DEPTHS]
        print(f"| {name} | {len(ids)} |" + " |" * 6 + " " + " | ".join(cells) + " |" + " |" * 6)
    print("\nPaired bootstrap over questions (10,000 samples):\n")
    for configuration in sorted({name for name, _ in runs.traces} - {UNTRAINED}):
        comparisons(runs, configuration)


def bm25(runs: Runs, i: str) -> dict[int, float]:
    question = next(found[i].question for found in runs.traces.values() if i in found)
    return {n: recall_at(runs.rankings[i], question.gold_ids, n) for n in DEPTHS}


def row(runs: Runs, configuration: str, strategy: str) -> list[str]:
    traces = list(runs.traces[configuration, strategy].values())
    opened = [t for t in traces if not choice(t.question)]
    chosen = [t for t in traces if choice(t.question)]
    searched, looped = strategy != "nor", strategy == "ircot"
    return [
        f"{configuration} {strategy}",
        str(len(traces)),
        shown(traces, em),
        shown(traces, f1),
        f"{shown(opened, f1)} ({len(opened)})",
        f"{shown(chosen, f1)} ({len(chosen)})",
        shown(traces, lambda t: len(t.collected), 1),
        shown(traces, lambda t: recall_at(t.collected, t.question.gold_ids)) if searched else "",
        *(shown(traces, recall_of(runs, n)) if searched else "" for n in DEPTHS),
        shown(traces, stated) if looped else "",
        shown(traces, lambda t: len(t.thoughts), 1) if looped else "",
        shown(traces, lambda t: len(t.calls), 1),
        f"{shown(traces, lambda t: t.tokens.prompt, 1, 0)} ({shown(traces, evaluated, 1, 0)})",
        shown(traces, lambda t: t.tokens.generated, 1, 0),
        shown(traces, lambda t: t.seconds, 1),
    ]


def recall_of(runs: Runs, n: int) -> Measure:
    return lambda t: at(t.collected, runs.rankings[t.question.id], t.question, n)


def comparisons(runs: Runs, configuration: str) -> None:
    ids = runs.ids(configuration)
    if not ids or (configuration, "ircot") not in runs.traces:
        return
    ircot = runs.traces[configuration, "ircot"]
    for n in DEPTHS:
        difference(
            f"{configuration}: gold recall at {n}, IRCoT less BM25",
            [recall_of(runs, n)(ircot[i]) or 0 for i in ids],
            [bm25(runs, i)[n] for i in ids],
        )
    oner = runs.traces.get((configuration, "oner"), {})
    for kind, kept in (("all", ids), ("open", [i for i in ids if not choice(ircot[i].question)])):
        if oner:
            scores = [[f1(found[i]) or 0 for i in kept] for found in (ircot, oner)]
            difference(f"{configuration}: F1 on {kind} questions, IRCoT less OneR", *scores)
    both = runs.ids(configuration, UNTRAINED)
    before = runs.traces.get((UNTRAINED, "ircot"), {})
    if before and both:
        scores = [[f1(found[i]) or 0 for i in both] for found in (ircot, before)]
        difference(f"IRCoT's F1, {configuration} less {UNTRAINED}", *scores)


def pooled(found: Sequence[Runs]) -> None:
    """Open questions of HotpotQA and 2WikiMultihopQA together, and the chains of all sets."""
    print("\n### Together\n")
    configurations = sorted({name for runs in found for name, _ in runs.traces} - {UNTRAINED})
    for configuration in configurations:
        ours, theirs = [], []
        for runs in found:
            both = {(configuration, "ircot"), (configuration, "oner")} <= runs.traces.keys()
            for i in runs.ids(configuration) if both and runs.name != "musique" else []:
                one = runs.traces[configuration, "ircot"][i]
                if not choice(one.question):
                    ours.append(f1(one) or 0)
                    theirs.append(f1(runs.traces[configuration, "oner"][i]) or 0)
        if ours:
            name = f"{configuration}: F1 on open questions of HotpotQA and 2WikiMultihopQA"
            difference(f"{name}, IRCoT less OneR (n = {len(ours)})", ours, theirs)
        chains = [
            t for runs in found for t in runs.traces.get((configuration, "ircot"), {}).values()
        ]
        stops = Counter(t.answer.stop if t.answer else "failed" for t in chains)
        told = ", ".join(f"{name} {number}" for name, number in stops.most_common())
        print(f"- {configuration}: {len(chains)} chains; {told}")


def difference(name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    found = paired_bootstrap(ours, theirs)
    print(
        f"- {name}: {100 * found.mean:+.1f} points "
        f"[{100 * found.low:+.1f}, {100 * found.high:+.1f}], p = {found.p:.4f}"
    )


if __name__ == "__main__":
    main()
