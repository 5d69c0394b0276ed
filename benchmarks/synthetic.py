"""A made-up corpus of any size with the word statistics of a natural one.

    python benchmarks/synthetic.py 100000 FOLDER

writes FOLDER/corpus.tsv (id, title, text) and FOLDER/queries.txt. What decides the work of a
BM25 engine is kept: word frequencies by Zipf-Mandelbrot with English function words on top,
endings that a stemmer takes off, topics whose words and invented names come together, titles
of one to three words, paragraphs of 40 to 100 words, and queries of 25 words that are about a
paragraph of the corpus. Numpy's PCG64 with a fixed seed makes the same corpus everywhere; a
larger corpus begins with the smaller one.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SEED = 20_231_130
VOCABULARY = 250_000
TOPICS = 40_000
TOPIC_WORDS = 48
NAMES = 1_000_000
TOPIC_NAMES = 36
CHUNK = 10_000
SHORTEST, LONGEST = 40, 100

_FUNCTION = """
the of and in to a was is as for on by with he that at from his it an were are which be this had
also has or its first one their but not who her they after been new two other when during year
into she time most there born all more between school up city world would only later may film
season can over used however three where about team made such will state no these him if second
no then out series""".split()  # noqa: SIM905
_ENDINGS = ("", "", "", "", "s", "s", "ed", "ing", "er", "al", "ly", "ation", "ness", "ity", "ive")
_ONSETS = "b c d f g h j k l m n p r s t v w br ch cl dr fl gr pl qu sh st th tr".split()  # noqa: SIM905
_VOWELS = "a e i o u a e i o u ea ee ia ou".split()  # noqa: SIM905
_CODAS = ["", "", "", "", "", "n", "r", "l", "s", "t", "m", "d", "ck", "nd", "nt", "st"]
_ACCENTS = str.maketrans("aeioucn", "áéíöüçñ")


class Corpus:
    """The vocabulary and topics; makes any number of paragraphs and queries."""

    def __init__(self) -> None:
        rng = random.Random(SEED)
        words = dict.fromkeys(_FUNCTION)
        while len(words) < VOCABULARY:
            # The rarer a word the longer it is, as in natural languages.
            most = 1 + (len(words) > 400) + (len(words) > 40_000)
            words[_invented(rng, most) + rng.choice(_ENDINGS)] = None
        names: dict[str, None] = {}
        while len(names) < NAMES:
            name = _invented(rng, 3).capitalize()
            names[name.translate(_ACCENTS) if rng.random() < 0.02 else name] = None
        self._words = np.array(list(words), dtype=object)
        self._names = np.array(list(names), dtype=object)
        self._cumulated = _zipf(VOCABULARY, 1.12)
        numbers = np.random.Generator(np.random.PCG64(SEED))
        # Topics share words and names, frequent ones more often than rare ones.
        skip = self._cumulated[len(_FUNCTION)]
        drawn = skip + (1 - skip) * numbers.random((TOPICS, TOPIC_WORDS))
        self._topic_words = np.searchsorted(self._cumulated, drawn)
        drawn = numbers.random((TOPICS, TOPIC_NAMES))
        self._topic_names = np.searchsorted(_zipf(NAMES, 1.0), drawn)

    def paragraphs(self, count: int) -> Iterator[tuple[str, str, str]]:
        """Id, title and text of each."""
        for chunk, start in enumerate(range(0, count, CHUNK)):
            rng = np.random.Generator(np.random.PCG64([SEED, 1, chunk]))
            topics = _popular(rng, CHUNK)
            lengths = rng.integers(SHORTEST, LONGEST + 1, size=CHUNK)
            titles = rng.integers(1, 4, size=CHUNK)
            heads = self._drawn(rng, np.repeat(topics, titles), 0.6, 0.4).tolist()
            drawn = self._drawn(rng, np.repeat(topics, lengths), 0.08, 0.25)
            marks = rng.random(len(drawn))
            for mark, low, high in ((",", 0.0, 0.06), (".", 0.06, 0.12)):
                drawn[(marks >= low) & (marks < high)] += mark
            words = drawn.tolist()
            title_ends, text_ends = np.cumsum(titles).tolist(), np.cumsum(lengths).tolist()
            for row in range(min(CHUNK, count - start)):
                title = " ".join(heads[title_ends[row] - titles[row] : title_ends[row]]).title()
                text = " ".join(words[text_ends[row] - lengths[row] : text_ends[row]])
                yield f"p{start + row}", title, text.strip(",.") + "."

    def queries(self, count: int, length: int = 25) -> list[str]:
        """Queries about topics that paragraphs have too."""
        rng = np.random.Generator(np.random.PCG64([SEED, 2]))
        topics = _popular(rng, count)
        words = self._drawn(rng, np.repeat(topics, length), 0.12, 0.25).reshape(count, length)
        return [" ".join(row) + "?" for row in words]

    def _drawn(
        self, rng: np.random.Generator, topics: np.ndarray, names: float, own_words: float
    ) -> np.ndarray:
        """One word a topic: a name or a word of its own, a number, or any word."""
        words = self._words[np.searchsorted(self._cumulated, rng.random(len(topics)))]
        kind = rng.random(len(topics))
        for low, high, of, own in (
            (0, names, self._names, self._topic_names),
            (names, names + own_words, self._words, self._topic_words),
        ):
            here = (kind >= low) & (kind < high)
            # Some words of a topic are used more often than others.
            at = (rng.random(int(here.sum())) ** 2 * own.shape[1]).astype(int)
            words[here] = of[own[topics[here], at]]
        numbers = kind > max(0.985, names + own_words)
        sizes = 10 ** (7 * rng.random(int(numbers.sum())) ** 3)
        words[numbers] = [f"{int(size):,}" for size in sizes]
        years = kind > max(0.99, names + own_words)
        words[years] = rng.integers(1850, 2023, size=int(years.sum())).astype(str)
        return words


def _popular(rng: np.random.Generator, count: int) -> np.ndarray:
    """Topics, some of which are far more common than others."""
    return (TOPICS * rng.random(count) ** 3).astype(int)


def _zipf(count: int, exponent: float) -> np.ndarray:
    """Cumulated shares of ranks by Zipf and Mandelbrot."""
    weights = 1 / (np.arange(count) + 1 + 2.7) ** exponent
    shares = np.cumsum(weights) / weights.sum()
    shares[-1] = 1
    return shares


def _invented(rng: random.Random, most: int) -> str:
    """A word of up to so many syllables, most often of just so many."""
    syllables = rng.choices(range(1, most + 1), (1, 3, 9)[:most])[0]
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables)
    )


def write(count: int, folder: Path, queries: int = 1000) -> None:
    """Write both files, unless they are there already."""
    done = folder / "done"
    if done.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    corpus = Corpus()
    with (folder / "corpus.tsv").open("w", encoding="utf-8") as file:
        file.writelines("\t".join(paragraph) + "\n" for paragraph in corpus.paragraphs(count))
    (folder / "queries.txt").write_text("\n".join(corpus.queries(queries)) + "\n", "utf-8")
    done.touch()


if __name__ == "__main__":
    write(int(sys.argv[1]), Path(sys.argv[2]))
