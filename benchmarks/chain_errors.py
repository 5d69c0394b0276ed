"""How often the proxy for factual errors is wrong, on chains that people wrote.

    python benchmarks/chain_errors.py DATA

DATA holds `<data set>_demonstrations.jsonl` with `cot_sentences` and `paragraphs` (id, title,
text). Every sentence is true, so each that is not supported by its question's paragraphs is a
false alarm. Then one name or number of each sentence is replaced by one from another chain of
the data set, and each that is still supported was missed.
"""

import json
import random
import sys
from pathlib import Path

from multihop.chain_errors.overlap import check, names_and_numbers
from multihop.prompts.answers import stated
from multihop.text import Passage

DATASETS = ("hotpotqa", "2wikimultihopqa", "musique", "iirc")
SEEDS = 20


def main(folder: Path) -> None:
    """Print a line for each data set, and one for all."""
    lines = [measure(folder / f"{name}_demonstrations.jsonl") for name in DATASETS]
    lines.append(tuple(map(sum, zip(*lines, strict=True))))
    sys.stdout.write("| data set | sentences | false alarms | changed | caught |\n")
    sys.stdout.write("| --- | ---: | ---: | ---: | ---: |\n")
    for name, (sentences, alarms, changed, caught) in zip((*DATASETS, "all"), lines, strict=True):
        sys.stdout.write(
            f"| {name} | {sentences} | {alarms} ({alarms / sentences:.1%}) | {changed} "
            f"| {caught} ({caught / changed:.1%}) |\n"
        )


def measure(path: Path) -> tuple[int, ...]:
    """Sentences, false alarms, changed sentences over all seeds, and those of them caught."""
    chains: list[tuple[list[str], list[Passage]]] = []
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        passages = [Passage(str(p["id"]), p["title"], p["text"]) for p in row["paragraphs"]]
        chains.append(([s for s in row["cot_sentences"] if stated(s) is None], passages))
    every = [sentence for sentences, _ in chains for sentence in sentences]
    pool = [word for sentence in every for word in names_and_numbers(sentence)]
    alarms = changed = caught = 0
    for sentences, passages in chains:
        for sentence in sentences:
            alarms += check(sentence, passages).verdict != "supported"
            own = names_and_numbers(sentence)
            for seed in range(SEEDS):
                draw = random.Random(f"{seed} {sentence}")
                if not own:
                    continue
                word = draw.choice(own)
                others = [w for w in pool if w[0].isdigit() == word[0].isdigit() and w not in own]
                wrong = sentence.replace(word, draw.choice(others), 1)
                changed += 1
                caught += check(wrong, passages).verdict != "supported"
    return len(every), alarms, changed, caught


if __name__ == "__main__":
    main(Path(sys.argv[1]))
