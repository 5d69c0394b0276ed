"""Recall of one-step retrieval with BM25 over the data folder's corpora, as a Markdown table.

    python benchmarks/recall.py DATA [--form paper] [--train]

DATA holds `<dataset>_corpus.jsonl` and `<dataset>_dev.jsonl`. The query is the question. For
each k: the mean share of a question's gold passages among the k best, and the share of
questions that have all of theirs there, both in percent.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from multihop.corpus import Reader
from multihop.retrievers.bm25 import BM25, Form
from multihop.retrievers.bm25_index import build_index
from multihop.text import Hit, Query

DATASETS = ("hotpotqa", "2wikimultihopqa", "musique")
DEPTHS = (5, 15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--form", choices=get_args(Form), default="paper")
    parser.add_argument("--train", action="store_true", help="also the questions of *_train")
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    asked = parser.parse_args()

    heads = [f"{name}@{k}" for name in ("recall", "all") for k in DEPTHS]
    print(f"| dataset | questions | passages | {' | '.join(heads)} | passages/s | ms/query |")
    print("| --- " * (len(heads) + 5) + "|")
    for dataset in asked.datasets:
        splits = ["dev", "train"] if asked.train else ["dev"]
        files = [asked.data / f"{dataset}_{split}.jsonl" for split in splits]
        questions = [json.loads(line) for file in files for line in file.open(encoding="utf-8")]
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            manifest = build_index(Reader([asked.data / f"{dataset}_corpus.jsonl"]), folder)
            speed = manifest.passages / (time.perf_counter() - began)
            began = time.perf_counter()
            rankings = asyncio.run(search(folder, asked.form, questions))
            latency = (time.perf_counter() - began) / len(questions) * 1000
        figures = [f"{100 * figure:.1f}" for figure in recall(questions, rankings)]
        print(
            f"| {dataset} | {len(questions)} | {manifest.passages} | {' | '.join(figures)} "
            f"| {speed:.0f} | {latency:.2f} |"
        )


async def search(folder: str, form: Form, questions: Sequence[dict]) -> list[list[Hit]]:
    retriever = BM25(folder, form)
    try:
        return await retriever.search([Query(q["question"]) for q in questions], max(DEPTHS))
    finally:
        await retriever.aclose()


def recall(questions: Sequence[dict], rankings: Sequence[Sequence[Hit]]) -> list[float]:
    """Recall at each depth, then the share of questions with all gold passages there."""
    shares: dict[int, list[float]] = {k: [] for k in DEPTHS}
    for question, hits in zip(questions, rankings, strict=True):
        gold = set(question["gold_paragraph_ids"])
        for k in DEPTHS:
            found = gold.intersection(hit.passage.id for hit in hits[:k])
            shares[k].append(len(found) / len(gold))
    means = [sum(shares[k]) / len(questions) for k in DEPTHS]
    return means + [sum(share == 1 for share in shares[k]) / len(questions) for k in DEPTHS]


if __name__ == "__main__":
    main()
