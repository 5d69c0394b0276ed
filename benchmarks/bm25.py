"""BM25: build, memory, size, opening, latency and threads, beside Lucene and bm25s.

    python benchmarks/bm25.py [--full]

100,000 made-up paragraphs (`synthetic.py`), 5.2 million with --full, as many as HotpotQA's
corpus has. The peers get the same corpus and queries in the same run: Lucene 8.3 in its own
process (Java and the jar of the wheel pyserini 0.7.0.0; MULTIHOP_LUCENE_JAR names another) and
bm25s with numba over our own terms, at most at a million paragraphs, since it holds its
postings in memory. A peer that cannot be had is a row that says why.

Files stand in .bench/ of the checkout, or where MULTIHOP_BENCH says.
"""

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import table
from synthetic import write
from table import Row

from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import build_index, open_index
from multihop.retrievers.english import analyze
from multihop.text import Passage, Query

HERE = Path(__file__).parent
FILES = Path(os.environ.get("MULTIHOP_BENCH", HERE.parent / ".bench"))
QUERIES = 300
WARM = 100
ROUNDS = 3
SIZES = {False: 100_000, True: 5_200_000}
BM25S_SIZES = {False: (100_000,), True: (100_000, 1_000_000)}
BM25S = ("bm25s==0.3.16", "numba==0.68.1", "llvmlite==0.50.0")
ASKED = (("text", 6), ("text", 15), ("paper", 6), ("paper", 15))
NAMES = {"text": "text", "paper": "title and text"}
FIELDS = {"text": "text", "paper": "text,title"}


def rows(full: bool) -> list[Row]:
    size = SIZES[full]
    corpus = FILES / f"corpus-{size}"
    write(size, corpus)
    (corpus / "asked.txt").write_text(
        "".join((corpus / "queries.txt").read_text("utf-8").splitlines(keepends=True)[:QUERIES]),
        "utf-8",
    )
    ours, made = build(corpus, size, full)
    lucene = LuceneOrNot(corpus, size)
    made += lucene.build(ours)
    made += first(ours, full)

    rounds = [(search(ours, corpus), lucene.search()) for _ in range(ROUNDS)]
    for asked in ASKED:
        made += latencies(asked, [(own[asked], peer.get(asked)) for own, peer in rounds], full)
    made += rates(ours, corpus)
    return made + lucene.rows() + bm25s(corpus, full)


# --- Ours ------------------------------------------------------------------------------------


def build(corpus: Path, size: int, full: bool) -> tuple[Path, list[Row]]:
    index = FILES / f"index-{size}"
    shutil.rmtree(index, ignore_errors=True)
    told, peak = child("build", str(corpus), str(index))
    disk = sum(f.stat().st_size for f in index.rglob("*") if f.is_file())
    name = f"build, {size:,} paragraphs"
    return index, [
        Row("bm25", name, told["seconds"], "s", goal="<= 900" if full else ""),
        Row("bm25", "  speed", size / told["seconds"], "paragraphs/s"),
        Row("bm25", "  processor time, all processes", told["cpu"], "s"),
        Row("bm25", "  peak memory, all processes", peak, "GB", goal="<= 4" if full else ""),
        Row("bm25", "  index on disk, with the text", disk / 1e9, "GB"),
        Row("bm25", "  segments", told["segments"], ""),
    ]


def first(index: Path, full: bool) -> list[Row]:
    forget(index)
    told, _ = child("first", str(index))
    return [
        Row("bm25", "open, nothing cached", told["open"], "s", goal="<= 1" if full else ""),
        Row("bm25", "  and first query", told["query"], "s"),
    ]


def rates(index: Path, corpus: Path) -> list[Row]:
    found = {n: child("rate", str(index), str(corpus), str(n))[0]["rate"] for n in (1, 2)}
    return [
        Row("bm25", "queries per second, title and text, k=6, 1 core", found[1], "1/s"),
        Row("bm25", "  2 cores", found[2], "1/s", "1 core", found[2] / found[1]),
    ]


Answers = list[tuple[float, float, list[str]]]
"""Of each query: wall ms, CPU ms, ids found."""


def search(index: Path, corpus: Path) -> dict[tuple[str, int], Answers]:
    told, _ = child("search", str(index), str(corpus))
    return {asked: told[f"{asked[0]} {asked[1]}"] for asked in ASKED}


def latencies(
    asked: tuple[str, int], rounds: Sequence[tuple[Answers, Answers | None]], full: bool
) -> list[Row]:
    """Percentiles, of the least disturbed round of each."""
    form, k = asked
    name = f"query of 25 words, {NAMES[form]}, k={k}"
    own, peers = [a for a, _ in rounds], [b for _, b in rounds if b]
    goal = "<= 1.00" if k == 6 else ""
    made = []
    for what, column, part in (("p50", 0, 0.5), ("p95", 0, 0.95), ("p50 of CPU time", 1, 0.5)):
        mine = min(percentile(answers, column, part) for answers in own)
        if peers:
            theirs = min(percentile(answers, column, part) for answers in peers)
            against = f"Lucene {theirs:.2f} ms"
            ratio = mine / theirs
        else:
            against, ratio = "", None
        wanted = goal if full and what == "p50" and peers else ""
        made.append(Row("bm25", f"{name}, {what}", mine, "ms", against, ratio, wanted))
    if peers:
        same = sum(a[2] == b[2] for a, b in zip(own[0], peers[0], strict=True))
        made.append(Row("bm25", "  same ranking as Lucene", 100 * same / len(own[0]), "%"))
    return made


def percentile(answers: Answers, column: int, part: float) -> float:
    figures = sorted(answer[column] for answer in answers)
    return figures[int(len(figures) * part)]


def forget(folder: Path) -> None:
    """Have the system drop the files from its cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def child(*arguments: str) -> tuple[dict, float]:
    """What this script says when it is run for one measurement, and its peak memory in GB."""
    return watched([sys.executable, str(HERE / "bm25.py"), "--measure", *arguments])


def watched(command: Sequence[str]) -> tuple[dict, float]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, sum(map(resident, family(process.pid))))
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return json.loads(output), peak / 1e9


def family(pid: int) -> Iterator[int]:
    yield pid
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for one in (task / "children").read_text().split():
                yield from family(int(one))
    except OSError:  # it just ended
        return


def resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- One measurement, in a process of its own ------------------------------------------------


def measure(what: str, *arguments: str) -> dict:
    return {"build": _build, "first": _first, "search": _search, "rate": _rate, "bm25s": _bm25s}[
        what
    ](*arguments)


def paragraphs(corpus: str, count: int | None = None) -> Iterator[tuple[str, str, str]]:
    with (Path(corpus) / "corpus.tsv").open(encoding="utf-8") as lines:
        for line in itertools.islice(lines, count):
            passage_id, title, text = line.rstrip("\n").split("\t")
            yield passage_id, title, text


def questions(corpus: str) -> list[str]:
    return (Path(corpus) / "asked.txt").read_text("utf-8").splitlines()


def _build(corpus: str, index: str) -> dict:

    began = time.perf_counter()
    build_index(itertools.starmap(Passage, paragraphs(corpus)), index)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "cpu": sum(os.times()[:4]),
        "segments": open_index(index)[2].num_segments,
    }


def _first(index: str) -> dict:

    began = time.perf_counter()
    retriever = BM25(index)
    opened = time.perf_counter() - began
    asyncio.run(retriever.search([Query("Who was born in the city of the first film?")], 6))
    return {"open": opened, "query": time.perf_counter() - began}


def _search(index: str, corpus: str) -> dict:

    asked = [Query(text) for text in questions(corpus)]
    told = {}
    for form, k in ASKED:
        retriever = BM25(index, form)
        answers = []
        for query in itertools.chain(asked[:WARM], asked):
            wall, cpu = time.perf_counter(), time.thread_time()
            hits = retriever._search(query, k)  # noqa: SLF001 - no event loop in the figure
            wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
            answers.append((1000 * wall, 1000 * cpu, [hit.passage.id for hit in hits]))
        told[f"{form} {k}"] = answers[-len(asked) :]
    return told


def _rate(index: str, corpus: str, cores: str) -> dict:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])

    retriever = BM25(index)
    asked = [Query(text) for text in questions(corpus)]

    async def timed() -> float:
        await retriever.search(asked[:WARM], 6)
        began = time.perf_counter()
        await retriever.search(asked, 6)
        return len(asked) / (time.perf_counter() - began)

    return {"rate": asyncio.run(timed())}


# --- Lucene ----------------------------------------------------------------------------------


class LuceneOrNot:
    """Lucene over the same corpus; without Java or the jar, a row that says so."""

    def __init__(self, corpus: Path, size: int) -> None:
        self._corpus, self._size = corpus, size
        self._index = FILES / f"lucene-{size}"
        self._made: list[Row] = []
        self._classpath = ""
        try:
            if not shutil.which("javac"):
                raise FileNotFoundError("javac is not installed")
            jar = lucene_jar()
            classes = FILES / "classes"
            source = HERE / "lucene" / "LuceneBench.java"
            run("javac", "-nowarn", "-cp", str(jar), "-d", str(classes), str(source))
            self._classpath = f"{jar}{os.pathsep}{classes}"
        except (OSError, subprocess.CalledProcessError) as missing:
            print(f"No Lucene: {missing}", file=sys.stderr)
            self._made.append(Row("bm25", "Lucene: not available here (Java or its jar)", 0, ""))

    def build(self, ours: Path) -> list[Row]:
        """Its build, and as many segments as ours has."""
        if not self._classpath:
            return []

        shutil.rmtree(self._index, ignore_errors=True)
        segments = open_index(ours)[2].num_segments
        began = time.perf_counter()
        report = self._java("build", self._corpus / "corpus.tsv", self._index, segments)
        seconds = time.perf_counter() - began
        disk = sum(f.stat().st_size for f in self._index.iterdir())
        indexed = next(line.split()[2] for line in report if line.startswith("indexed"))
        return [
            Row("bm25", "  Lucene's build, 1 thread, merged to as many segments", seconds, "s"),
            Row("bm25", "  of that before merging", float(indexed), "s"),
            Row("bm25", "  its index on disk", disk / 1e9, "GB"),
        ]

    def search(self) -> dict[tuple[str, int], Answers]:
        """Its answers to all that is asked; none without Lucene."""
        if not self._classpath:
            return {}
        found = {}
        for form, k in ASKED:
            out = FILES / "lucene-answers.tsv"
            self._java(
                "search", self._index, self._corpus / "asked.txt", out, k, FIELDS[form], 3 * WARM
            )
            lines = [line.split("\t") for line in out.read_text("utf-8").splitlines()]
            found[form, k] = [
                (float(wall), float(cpu), [hit.split(":")[0] for hit in hits.split()])
                for wall, cpu, hits in lines
            ]
        return found

    def rows(self) -> list[Row]:
        """What else is to be said of it."""
        return self._made

    def _java(self, *arguments: object) -> list[str]:
        return run(
            "java", "-Xms2g", "-Xmx2g", "-cp", self._classpath, "LuceneBench", *map(str, arguments)
        ).splitlines()


def lucene_jar() -> Path:
    """The jar, fetched once.

    Raises:
        OSError, CalledProcessError: It cannot be had.
    """
    if named := os.environ.get("MULTIHOP_LUCENE_JAR"):
        return Path(named)
    jar = FILES / "pyserini" / "resources" / "jars" / "anserini-0.7.0-fatjar.jar"
    if not jar.exists():
        folder = FILES / "wheels"
        pip("download", "--no-deps", "-d", str(folder), "pyserini==0.7.0.0")
        wheel = next(folder.glob("pyserini-*.whl"))
        run(sys.executable, "-m", "zipfile", "-e", str(wheel), str(FILES))
    return jar


def pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


# --- bm25s -----------------------------------------------------------------------------------


def bm25s(corpus: Path, full: bool) -> list[Row]:
    peers = FILES / "peers"
    try:
        if not (peers / "bm25s").exists():
            pip("install", "--no-deps", "--target", str(peers), *BM25S)
    except (OSError, subprocess.CalledProcessError) as missing:
        print(f"No bm25s: {missing}", file=sys.stderr)
        return [Row("bm25", "bm25s: not available here", 0, "")]
    made = []
    for size in BM25S_SIZES[full]:
        told, peak = child("bm25s", str(corpus), str(size))
        name = f"bm25s over the same terms, {size:,} paragraphs"
        made += [
            Row("bm25", f"{name}: build, text not kept", told["seconds"], "s"),
            Row("bm25", "  peak memory", peak, "GB"),
            Row("bm25", "  first query, with numba's compiling", told["first"], "s"),
            Row("bm25", "  query of 25 words, k=6, p50", told["p50"], "ms"),
        ]
        if size == SIZES[full]:
            continue
        small = FILES / f"corpus-{size}"
        small.mkdir(exist_ok=True)
        with (small / "corpus.tsv").open("w", encoding="utf-8") as file:
            file.writelines("\t".join(p) + "\n" for p in paragraphs(str(corpus), size))
        shutil.copy(corpus / "asked.txt", small)
        index = FILES / f"index-{size}"
        shutil.rmtree(index, ignore_errors=True)
        seconds = child("build", str(small), str(index))[0]["seconds"]
        p50 = percentile(search(index, small)["text", 6], 0, 0.5)
        made += [
            Row("bm25", "  ours there: build", seconds, "s", "bm25s", seconds / told["seconds"]),
            Row("bm25", "  ours there: p50, text, k=6", p50, "ms", "bm25s", p50 / told["p50"]),
        ]
    return made


def _bm25s(corpus: str, size: str) -> dict:
    sys.path.append(str(FILES / "peers"))
    import bm25s as peer  # noqa: PLC0415 - fetched by the benchmark

    began = time.perf_counter()
    terms: dict[str, int] = {}
    numbered: Iterable[list[int]] = [
        [terms.setdefault(term, len(terms)) for term in analyze(text)]
        for _, _, text in paragraphs(corpus, int(size))
    ]
    engine = peer.BM25(method="lucene", k1=1.2, b=0.75, backend="numba")
    engine.index(peer.tokenization.Tokenized(numbered, terms), show_progress=False)
    seconds = time.perf_counter() - began
    walls = []
    for text in questions(corpus):
        began = time.perf_counter()
        engine.retrieve([analyze(text)], k=6, n_threads=1, show_progress=False)
        walls.append(1000 * (time.perf_counter() - began))
    return {"seconds": seconds, "first": walls[0] / 1000, "p50": sorted(walls)[len(walls) // 2]}


if __name__ == "__main__":
    if "--measure" in sys.argv:
        at = sys.argv.index("--measure") + 1
        print(json.dumps(measure(*sys.argv[at:])))
    else:
        table.main(rows)
