"""Every strategy on the same held-out questions, beside IRCoT.

    python benchmarks/strategies.py DATA RUNS                  # 100 questions of each set
    python benchmarks/strategies.py DATA RUNS --tables         # print what is there

DATA holds `SET_corpus.jsonl`, `SET_dev.jsonl` and `SET_train.jsonl` for each set; RUNS gets the
indexes, a router and a run folder a set and strategy. What is there already is not run again.
With the default model the strategies of IRCoT's prompts use the packaged adapter, the others the
model as it is; `--model` names another for all. DSP makes its demonstrations of the training
questions, whose answers are all that it sees; the router learns from runs over them.
"""

import argparse
import json
from pathlib import Path

import evals

SETS = ("2wikimultihopqa", "hotpotqa", "musique")
STRATEGIES = {
    "ircot": [],
    "oner": [],
    "nor": [],
    "iter-retgen": [],
    "self-ask": [],
    "react": [],
    "decomp": [],
    "self-consistency": ["--strategy-option", "chains=5"],
    "dsp": ["--strategy-option", "queries=3", "--strategy-option", "chains=5"],
    "adaptive-rag": [],
}
"""Options beside a strategy's name: fewer samples than the papers', for a small machine."""

ROUTED = ("nor", "oner", "ircot")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--model", default="local:SmolLM2-135M-Instruct")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--train", type=int, default=100, help="Questions the router learns from.")
    parser.add_argument("--tables", action="store_true", help="Run nothing.")
    given = evals.parsed(parser)
    for name in given.sets.split(","):
        if not given.tables:
            for strategy in given.strategies.split(","):
                run(given, name, strategy)
        tables(given, name)


def run(given: argparse.Namespace, name: str, strategy: str) -> None:
    folder = evals.index(given.data, given.runs, name)
    options = ["--model", given.model, "--index", str(folder), *given.rest]
    special = list(STRATEGIES[strategy])
    if strategy == "dsp":
        demos = given.runs / f"{name}-demonstrations.json"
        special += ["--train", str(given.data / f"{name}_train.jsonl")]
        special += ["--strategy-option", f"demos={demos}"]
    if strategy == "adaptive-rag":
        special += ["--strategy-option", f"router={router(given, name, options)}"]
    call(
        *("eval", str(given.data / f"{name}_dev.jsonl"), "--strategy", strategy, *options),
        *special,
        *("--limit", str(given.limit), "--into", str(given.runs / f"{name}-{strategy}")),
    )


def router(given: argparse.Namespace, name: str, options: list[str]) -> Path:
    """A router for one set, of runs over its training questions."""
    made = given.runs / f"{name}-router.json"
    if not made.exists():
        runs = given.runs / f"{name}-train"
        call(
            *("eval", str(given.data / f"{name}_train.jsonl"), "--strategy", ",".join(ROUTED)),
            *options,
            *("--limit", str(given.train), "--into", str(runs)),
        )
        call("train", "router", str(runs), "--into", str(made))
    return made


def tables(given: argparse.Namespace, name: str) -> None:
    """The table of a set: scores and costs, and each strategy's difference from IRCoT."""
    folders = [given.runs / f"{name}-{s}" for s in STRATEGIES]
    there = [str(folder) for folder in folders if (folder / "run.json").exists()]
    print(f"\n### {name}\n", flush=True)
    if not there:
        print("Nothing was run.")
        return
    call("score", *there, "--markdown", shown=True)
    reference = str(given.runs / f"{name}-ircot")
    if len(there) > 1 and reference in there:
        print("\nDifferences from IRCoT, on the questions that all have finished:\n", flush=True)
        call("compare", *there, "--against", reference, "--markdown", shown=True)
    made = given.runs / f"{name}-router.json"
    if made.exists():
        told = json.loads(made.read_text())["made"]
        print(f"\nRouter: {json.dumps({k: told[k] for k in ('labels', 'confusion', 'accuracy')})}")


def call(*arguments: str, shown: bool = False) -> None:
    """Run `multihop`; some questions may have failed (1), which the tables tell."""
    evals.call(*arguments, shown=shown, fine=(0, 1))


if __name__ == "__main__":
    main()
