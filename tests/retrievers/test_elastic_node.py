"""`elastic:` against a real node: the embedded engine's rankings, and builds with accidents."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from conftest import rows, shared
from multihop.errors import CorpusError, RetrieverError
from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import build_index
from multihop.retrievers.elastic import ElasticRetriever
from multihop.retrievers.elastic_index import ElasticStore
from multihop.strategies.rules import without_wh_words
from multihop.text import Hit, Passage, Query

pytestmark = pytest.mark.node

ODD = (
    "".join(map(chr, range(0x20)))
    + "\"'`+-=&|><!(){}[]^~*?:\\/@#$%_.,;\x7f\x85\u00ad\u2019\u2028\ufb01\u0130\u01c5\u0301\u0308"
    + "\u200d\ufe0f\U0001f469\U0001f1e9\U0001f1eaשלום العربية\u202e日本語ไทย한국어Ελ\ud800\udfff\ufffd"
)
TRACES = os.environ.get("MULTIHOP_TEST_TRACES", "")
"""A folder of runs whose queries and sentences are compared too: DATASET*/**/traces.jsonl."""


def corpus(dataset: str) -> list[Passage]:
    with shared(f"data/{dataset}_corpus.jsonl").open(encoding="utf-8") as lines:
        return [Passage(**json.loads(line)) for line in lines]


def handed(name: str) -> Iterator[dict]:
    with shared(f"data/{name}.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def questions(dataset: str) -> list[str]:
    asked = [record["question"] for record in handed(f"{dataset}_dev")]
    return asked + [without_wh_words(question) for question in asked]


def chains(dataset: str) -> list[str]:
    """Sentences of chains: of the demonstrations, of recorded runs, and of runs at hand."""
    found = [s for r in handed(f"{dataset}_demonstrations") for s in r["cot_sentences"]]
    for row in rows("golden/trace.jsonl"):
        for result in row["expected"]["results"]:
            found += result["chain"].splitlines()
    for path in Path(TRACES).glob(f"{dataset}*/**/traces.jsonl") if TRACES else ():
        for line in path.read_text("utf-8").splitlines():
            for step in json.loads(line)["steps"]:
                found += [step[name] for name in ("query", "text") if name in step]
    return list(dict.fromkeys(found))


def odd(passages: list[Passage], count: int = 500) -> list[str]:
    """Words of the corpus with odd characters between and inside them, always the same."""
    draw = random.Random(6)
    made = []
    while len(made) < count:
        passage = draw.choice(passages)
        words = f"{passage.title} {passage.text}".split()
        start = draw.randrange(len(words))
        kept = words[start : start + draw.randrange(1, 30)]
        for _ in range(draw.randrange(1, 8)):
            at = draw.randrange(len(kept))
            place = draw.randrange(len(kept[at]) + 1)
            kept[at] = kept[at][:place] + draw.choice(ODD) + kept[at][place:]
        made.append(draw.choice([" ", "  ", "\t", "\x00", "\u00a0"]).join(kept))
    return made


async def ranked(target: str, queries: list[Query], form: str, k: int = 15) -> list[list[Hit]]:
    retriever = ElasticRetriever(target, form)
    try:
        return await retriever.search(queries, k)
    finally:
        await retriever.aclose()


def assert_same(ours: list[list[Hit]], theirs: list[list[Hit]], queries: list[Query]) -> None:
    """The same passages in the same order, ties included; scores to a float's precision.

    The embedded engine's score of a word that nearly all passages have is less exact: the
    logarithm of a 32-bit number close to 1.
    """
    for query, embedded, real in zip(queries, ours, theirs, strict=True):
        assert [hit.passage for hit in embedded] == [hit.passage for hit in real], query
        scores = pytest.approx([hit.score for hit in real], rel=1e-6, abs=1e-6)
        assert [hit.score for hit in embedded] == scores


def listed(target: str) -> list[Passage]:
    retriever = ElasticRetriever(target)
    found = list(retriever)
    asyncio.run(retriever.aclose())
    return found


# --- The same rankings -----------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["hotpotqa", "2wikimultihopqa", "musique"])
async def test_the_embedded_engine_and_the_node_rank_alike(dataset, target, tmp_path) -> None:
    passages = corpus(dataset)
    build_index(passages, tmp_path)
    ElasticStore(target).build(passages)
    embedded = BM25(tmp_path, "official")
    texts = [*questions(dataset), *chains(dataset), *odd(passages)]
    queries = [Query(text) for text in texts]
    found = await ranked(target, queries, "official")
    assert sum(map(bool, found)) > 0.9 * len(queries)
    assert_same(await embedded.search(queries, 15), found, queries)
    some = queries[::5]
    for form in ("paper", "text"):
        ours = await BM25(tmp_path, form).search(some, 15)
        assert_same(ours, await ranked(target, some, form), some)


async def test_limits_and_title_searches_rank_alike(target, tmp_path) -> None:
    """IIRC's corpus: many passages a page."""
    passages = corpus("iirc")
    build_index(passages, tmp_path)
    titles = list(dict.fromkeys(passage.title for passage in passages))
    draw = random.Random(6)
    queries = []
    for text in odd(passages, 60):
        queries += [
            Query(text),
            Query(text, titles=(draw.choice(titles),)),
            Query(text, titles=tuple(draw.sample(titles, 3))),
            Query(draw.choice(titles), by_title=True),
            Query(text, titles=tuple(draw.sample(titles, 2)), by_title=True),
        ]
    ElasticStore(target).build(passages)
    for form in ("official", "paper", "text"):
        ours = await BM25(tmp_path, form).search(queries, 5)
        assert_same(ours, await ranked(target, queries, form, 5), queries)


async def test_recorded_rankings_of_another_node_are_found_again(target) -> None:
    """es_ranking's plain match of the text, where scores differ."""
    recorded = [row for row in rows("golden/es_ranking.jsonl") if row["dataset"] == "musique"]
    ElasticStore(target).build(corpus("musique"))
    found = await ranked(target, [Query(row["query"]) for row in recorded], "text")
    for row, hits in zip(recorded, found, strict=True):
        theirs = row["text_only_top15"]
        assert [(h.passage.id) for h in hits] == [name for name, _ in theirs]
        assert [h.score for h in hits] == pytest.approx([s for _, s in theirs], rel=1e-6)


# --- Unusual text ----------------------------------------------------------------------------


async def test_unusual_text_is_neither_lost_nor_in_the_way(target) -> None:
    passages = [
        Passage("", "", ""),
        Passage("long", "Long", ("mountain " * 8 + "\n") * 15_000),  # more than 1 MB
        Passage("token", "x" * 40_000, "y" * 1_000_000),
        Passage("nul", "a\x00b", "c\x00d \x00"),
        Passage("half \ud800", "\udfff", "river \ud800\ud800 bank", {"\ud800": ["\udfff", 1e999]}),
        Passage("whole \U0001f469\u200d\U0001f680", "\U0001f1e9\U0001f1ea", "👩‍🚀 flies"),
        Passage("right", "\u202eשלום", "العربية لغة", {"paragraph_index": 10**30, "url": 7}),
        Passage("i" * 70_000, '"\\', "{}", {"": {"a.b": {"": None}}, "url": "http://x", "n": -0.0}),
    ]
    passages += [Passage(f"same {n}", "Same", "Same text of many.") for n in range(5)]
    ElasticStore(target).build(passages)
    assert await asyncio.to_thread(listed, target) == passages
    queries = [
        "mountain",
        "c",
        "river bank",
        "👩‍🚀",
        "שלום",
        "العربية",
        "same text",
        "\ud800 flies",
    ]
    found = await ranked(target, [Query(text) for text in queries], "paper")
    names = [[hit.passage.id for hit in hits] for hits in found]
    assert names == [
        *(["long"], ["nul"], ["half \ud800"], [passages[5].id], ["right"], ["right"]),
        *(["same 0"], [passages[5].id]),
    ]
    [alone] = await ranked(target, [Query("same text")], "official")
    assert [hit.passage.id for hit in alone] == ["same 4"]  # the last one stays
    long = [Query(" ".join(p.text for p in passages[:2])), Query(" ".join(map(str, range(9000))))]
    assert [len(hits) for hits in await ranked(target, long, "official")] == [1, 0]


# --- Accidents -------------------------------------------------------------------------------

MAIN = "from multihop.cli import main; main()"


def test_a_killed_build_goes_on_and_searches_see_the_old_index_until_then(
    multihop, target, tmp_path
) -> None:
    name = f"elastic:{target}"
    old = tmp_path / "old.jsonl"
    old.write_text('{"id": "old", "title": "", "text": "the mountain of old"}\n')
    assert multihop("index", str(old), "--to", name).code == 0

    pipe = tmp_path / "endless.jsonl"
    os.mkfifo(pipe)  # the build can neither end nor fail before it is killed
    command = [sys.executable, "-c", MAIN, "index", str(pipe), "--to", name]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    line = json.dumps({"id": "p%d", "title": "", "text": "mountain %d"})
    with pipe.open("w") as out:
        for number in range(4500):
            out.write(line % (number, number) + "\n")
        out.flush()
        address, _, index = target.rpartition("/")
        until = time.monotonic() + 300
        while time.monotonic() < until:
            httpx.post(f"{address}/{index}-*/_refresh")
            if httpx.get(f"{address}/{index}-*/_count").json()["count"] > 3000:
                break
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert "[old]" in multihop("search", "mountain", "--retriever", name).out

    new = tmp_path / "new.jsonl"
    new.write_text("".join(line % (number, number) + "\n" for number in range(5000)))
    before = written(target)
    assert multihop("index", str(new), "--to", name).err == f"{name}: 5,000 passages.\n"
    assert before > 3000
    assert written(target) - before <= 2000  # not sent again
    assert [p.id for p in listed(target)] == [f"p{n}" for n in range(5000)]


def written(target: str) -> int:
    """How often a document was written to the indexes of this name, the first one's left out."""
    address, _, index = target.rpartition("/")
    stats = httpx.get(f"{address}/{index}-*/_stats/indexing").json()["indices"].values()
    return max(one["primaries"]["indexing"]["index_total"] for one in stats)


def test_a_shorter_corpus_leaves_nothing_of_a_killed_build(target, tmp_path) -> None:
    def broken() -> Iterator[Passage]:
        for number in range(3000):
            yield Passage(str(number), "", f"mountain {number}")
        raise CorpusError("stop")

    with pytest.raises(CorpusError, match="stop"):
        ElasticStore(target).build(broken())
    with pytest.raises(CorpusError, match="no index has this name"):
        ElasticRetriever(target)
    passages = [Passage(str(n), "", f"mountain {n % 5} {n}") for n in range(50)]
    ElasticStore(target).build(passages)
    assert listed(target) == passages
    build_index(passages, tmp_path)
    queries = [Query("mountain"), Query("mountain 3"), Query("49")]
    ours = asyncio.run(BM25(tmp_path).search(queries, 20))
    assert_same(ours, asyncio.run(ranked(target, queries, "paper", 20)), queries)


def test_passages_are_added_deleted_and_replaced(target) -> None:
    store = ElasticStore(target)
    store.build([Passage("a", "A", "one"), Passage("b", "B", "two")], source={"from": "here"})
    changed = store.change([Passage("a", "A", "new"), Passage("c", "C", "three")], delete=["a"])
    assert changed.passages == 3
    assert listed(target) == [
        Passage("b", "B", "two"),
        Passage("a", "A", "new"),
        Passage("c", "C", "three"),
    ]
    retriever = ElasticRetriever(target)
    assert retriever.get("c") == Passage("c", "C", "three")
    assert retriever.get("zzz") is None
    assert retriever.manifest.source == {"from": "here"}
    asyncio.run(retriever.aclose())


async def test_a_replaced_index_is_followed_only_to_the_same_passages(target) -> None:
    passages = [Passage("a", "A", "one"), Passage("b", "B", "two")]
    await asyncio.to_thread(ElasticStore(target).build, passages)
    retriever = ElasticRetriever(target)
    before = await retriever.search([Query("two")], 1)
    await asyncio.to_thread(ElasticStore(target).build, passages)
    assert await retriever.search([Query("two")], 1) == before
    await asyncio.to_thread(ElasticStore(target).build, passages[1:])
    with pytest.raises(RetrieverError, match="replaced by one of other passages"):
        await retriever.search([Query("two")], 1)
    await retriever.aclose()


async def test_an_index_as_the_release_builds_it_is_searched_when_one_says_so(node, target) -> None:
    name = target.rpartition("/")[2]
    english = {"type": "text", "analyzer": "english"}
    fields = {
        **dict.fromkeys(("title", "paragraph_text", "url"), english),
        "paragraph_index": {"type": "integer"},
        "is_abstract": {"type": "boolean"},
    }
    index = f"{node}/{name}-theirs"
    async with httpx.AsyncClient() as client:
        made = await client.put(index, json={"mappings": {"properties": fields}})
        assert made.status_code == 200
        for number, text in enumerate(("a mountain", "a river", "a mountain")):
            document = {"id": f"id {number}", "title": "T", "paragraph_text": text}
            document = {**document, "is_abstract": True}
            await client.put(f"{index}/_doc/{number}?refresh=true", json=document)
    with pytest.raises(CorpusError, match="not made by multihop"):
        ElasticRetriever(index, "official")
    with pytest.raises(CorpusError, match="not made by multihop"):
        ElasticStore(index).build([Passage("a", "", "")])
    retriever = ElasticRetriever(index, "official", unmarked=True, corpus="hotpotqa")
    assert len(retriever) == 3
    [hits, none] = await retriever.search([Query("mountain"), Query("the")], 5)
    assert [(h.passage.id, h.passage.title) for h in hits] == [("id 2", "T")]
    assert none == []
    await retriever.aclose()


def test_the_verbs_build_search_and_try_a_real_index(multihop, target, tmp_path) -> None:
    name = f"elastic:{target}"
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "ulm", "title": "Ulm", "text": "A city on the Danube."}\n')
    assert multihop("index", str(path), "--to", name, "--to-option", "shards=2").code == 0
    found = multihop("search", "city", "--retriever", name, "--form", "official")
    assert "[ulm]" in found.out
    assert f"{name} answers, 1 passages" in multihop("doctor", "--retriever", name).out
