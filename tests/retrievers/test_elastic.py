"""`elastic:` against a server in memory: what is sent, and every way in which one can fail."""

import asyncio
import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import rows
from elastic_server import Answer, ElasticServer, good
from multihop import names
from multihop.errors import BadInput, CorpusError, IndexMismatch, RetrieverError
from multihop.retrievers import elastic_index, elastic_wire
from multihop.retrievers.bm25_index import build_index
from multihop.retrievers.elastic import ElasticRetriever, _bounded
from multihop.retrievers.elastic_index import ElasticStore, passage_of
from multihop.text import Passage, Query

CORPUS = (
    Passage("a", "Lost Gravity", "a coaster by Mack Rides"),
    Passage("b", "Mack Rides", "a company in Germany", {"page": 3, "url": "http://x", "n": 1e999}),
    Passage(
        "odd \ud800", "t \x00 \udfff", "\U0001f600 שלום \ud800 gravity", {"is_abstract": False}
    ),
    Passage("long", "", "gravity " * 130_000),
)


@pytest.fixture
def server():
    server = ElasticServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def waited(monkeypatch):
    """Nobody waits; what would have been waited."""
    found = []

    async def pause(seconds):
        found.append(seconds)

    monkeypatch.setattr(elastic_wire, "pause", pause)
    monkeypatch.setattr(elastic_wire, "sleep", found.append)
    monkeypatch.setattr(elastic_index, "sleep", found.append)
    return found


@pytest.fixture
def target(server) -> str:
    ElasticStore(f"{server.url}/corpus").build(CORPUS)
    return f"{server.url}/corpus"


def numbered(*numbers: int) -> list[Passage]:
    return [Passage(f"p{n}", f"Title {n}", f"text of {n}") for n in numbers]


def held(server, name: str) -> list[str]:
    """The ids of all passages that a search of this name may find, in order."""
    docs = server.indexes[server.aliases[name]].seen.values()
    return [passage_of(d, "").id for d in sorted(docs, key=lambda d: d["number"])]


async def failing(server, rule, target, words, **options) -> str:
    """The one line of the error that a search ends with."""
    retriever = ElasticRetriever(target, **options)
    server.rules = [rule]
    try:
        with pytest.raises(RetrieverError, match=words) as failed:
            await retriever.search([Query("gravity")], 3)
    finally:
        await retriever.aclose()
    assert str(failed.value).startswith(f"elastic:{target}: ")
    assert "\n" not in str(failed.value)
    assert len(str(failed.value)) < 500
    return str(failed.value)


def listed(target: str) -> list[Passage]:
    """All passages of an index."""
    retriever = ElasticRetriever(target)
    found = list(retriever)
    asyncio.run(retriever.aclose())
    return found


def on(part: str, *answers: Answer, repeat: bool = False):
    """A rule that gives these answers to requests whose path has this part."""
    left = list(answers)

    def rule(method, path, body):
        if part not in path or not left:
            return None
        return left[0] if repeat else left.pop(0)

    return rule


# --- What is sent ----------------------------------------------------------------------------


async def test_any_passage_goes_there_and_comes_back(target, tmp_path) -> None:
    retriever = ElasticRetriever(target)
    assert list(retriever) == list(CORPUS)
    assert len(retriever) == len(CORPUS)
    assert retriever.get("odd \ud800") == CORPUS[2]
    assert retriever.get("nobody") is None
    [hits] = await retriever.search([Query("gravity \ud800")], 10)
    assert [hit.passage for hit in hits][:1] == [CORPUS[2]]
    embedded = build_index(CORPUS, tmp_path)
    assert retriever.manifest.content_hash == embedded.content_hash
    await retriever.aclose()


def test_the_official_search_is_the_recorded_one_with_three_entries_more(server) -> None:
    recorded = [
        row["input"] | {"body": row["expected"]["body"]}
        for row in rows("golden/es_query.jsonl")
        if "error" not in row["expected"]
        and row["input"].get("document_type") in ("title", "title_paragraph_text")
        and not row["input"].keys()
        & {"paragraph_index", "allowed_paragraph_types", "max_buffer_count"}
    ]
    assert len(recorded) > 4
    for row in recorded:
        target = f"{server.url}/{row['corpus_name']}"
        if row["corpus_name"] not in server.aliases:
            ElasticStore(target).build(CORPUS)
        retriever = ElasticRetriever(target, "official")
        titles = row.get("allowed_titles")
        query = Query(
            row["query_text"],
            None if titles is None else tuple(titles),
            by_title=row["document_type"] == "title",
        )
        body = retriever.body(query, row.get("max_hits_count", 10))
        assert body.pop("sort") == [{"_score": "desc"}, {"number": "asc"}]
        assert body.pop("track_scores") is True
        assert body.pop("track_total_hits") is False
        assert body.pop("_source") == [*row["body"].pop("_source"), "metadata", "exact"]
        assert body == row["body"]


async def test_queries_go_together_and_a_repeat_once(server, target, monkeypatch) -> None:
    retriever = ElasticRetriever(target)
    queries = [Query("gravity"), Query("company"), Query("gravity"), Query("x", ())]
    found = await retriever.search(queries, 3)
    assert server.count("POST", "_msearch") == 1
    assert len(server.searches) == 2
    assert found[0] == found[2] != found[1]
    assert found[3] == []
    assert await retriever.search([], 3) == []
    assert server.count("POST", "_msearch") == 1
    head, _ = server.searches[0]
    assert head["allow_partial_search_results"] is False
    assert "search_type" not in head
    monkeypatch.setattr("multihop.retrievers.elastic.TOGETHER", 2)
    await retriever.search([Query(str(n)) for n in range(5)], 3)
    assert server.count("POST", "_msearch") == 4
    await retriever.aclose()


async def test_an_index_of_several_shards_is_searched_with_the_statistics_of_all(server) -> None:
    ElasticStore(f"{server.url}/wide", shards=3, replicas=2).build(CORPUS)
    [index] = server.indexes.values()
    assert index.settings["number_of_shards"] == 3
    assert index.settings["number_of_replicas"] == 2  # 0 while it was filled
    assert index.settings["refresh_interval"] is None
    retriever = ElasticRetriever(f"{server.url}/wide")
    await retriever.search([Query("gravity")], 3)
    assert server.searches[0][0]["search_type"] == "dfs_query_then_fetch"
    await retriever.aclose()


def test_a_query_of_very_many_words_is_sent_as_counted_terms() -> None:
    short = {"query": {"match": {"title": "x " * 500}}}
    assert _bounded(short) == short
    many = " ".join(f"w{n}" for n in range(700)) + " the" * 9 + " w1" * 2
    made = _bounded({"match": {"title": {"query": many, "boost": 2.0}}})
    first, second = made["bool"]["should"]
    assert len(first["bool"]["should"]) == 500
    assert len(second["bool"]["should"]) == 200
    assert first["bool"]["should"][:2] == [
        {"term": {"title": {"value": "w0", "boost": 2.0}}},
        {"term": {"title": {"value": "w1", "boost": 6.0}}},
    ]


async def test_hits_without_a_word_of_the_query_are_no_hits(server, target) -> None:
    """The server fills up with them where a filter makes the words optional."""
    retriever = ElasticRetriever(target, "official")
    source = {"paragraph_text": "x", "title": "", "id": "z"}
    answer = good([{"_id": "1", "_score": 0.0, "_source": source}])
    server.rules = [on("_msearch", Answer({"responses": [answer]}))]
    assert await retriever.search([Query("the")], 3) == [[]]
    await retriever.aclose()


# --- Servers that fail -----------------------------------------------------------------------

PARTIAL = {
    "timed_out": False,
    "_shards": {
        "total": 5,
        "successful": 4,
        "failed": 1,
        "failures": [{"shard": 2, "reason": {"type": "io", "reason": "disk\nfull"}}],
    },
    "hits": {"hits": []},
}
UNSEEN = {**PARTIAL, "_shards": {"total": 2, "successful": 1, "failed": 0}}
LATE = {**good([]), "timed_out": True}
REFUSED = {"error": {"type": "parse", "reason": "cannot"}, "status": 400}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"responses": [PARTIAL]}, r"1 of 5 shards failed \(io: disk full\)"),
        ({"responses": [UNSEEN]}, "not all of 2 shards failed"),
        ({"responses": [LATE]}, "stopped before it had searched everything"),
        ({"responses": [REFUSED]}, "search for 'gravity' failed: parse: cannot"),
        ({"responses": []}, "expected 1 answers"),
        ({"responses": [{}]}, "an answer without hits"),
        ({"responses": [None]}, "an answer that is none"),
        ({"responses": [good([1])]}, "a hit that is none"),
        ({"responses": [good([{"_id": "1", "_score": None, "_source": {}}])]}, "without a score"),
        ([], "expected 1 answers"),
        (b"<html>", "no JSON"),
        (b"[" * 100_000, "no JSON"),
    ],
)
async def test_an_answer_that_is_not_whole_is_an_error_never_fewer_hits(
    server, target, body, words
) -> None:
    await failing(server, on("_msearch", Answer(body)), target, words)


@pytest.mark.parametrize(
    ("answer", "attempts", "words"),
    [
        (Answer({"error": "busy"}, 429), 3, "answers 429: busy"),
        (Answer({}, 503, {"retry-after": "3600"}), 1, "answers 503"),
        (Answer(b"line\none", 500), 1, "answers 500: line one"),
        (Answer({"error": {"type": "security", "reason": "no"}}, 401), 1, "Check MULTIHOP_ELASTIC"),
        (Answer({}, 413), 1, "no request of this size"),
        (Answer(cut=True), 3, "cannot be reached .*Check the address"),
    ],
)
async def test_a_server_that_fails_is_one_clear_line(
    server, target, answer, attempts, words
) -> None:
    await failing(server, on("_msearch", answer, repeat=True), target, words)
    assert server.count("POST", "_msearch") == attempts


async def test_broken_connections_and_busy_servers_are_asked_again(server, target, waited) -> None:
    retriever = ElasticRetriever(target)
    server.rules = [on("_msearch", Answer(cut=True), Answer({}, 429, {"retry-after": "3"}))]
    [hits] = await retriever.search([Query("company")], 1)
    assert [hit.passage.id for hit in hits] == ["b"]
    assert len(waited) == 2
    assert waited[1] == 3.0
    await retriever.aclose()


async def test_a_slow_server_is_not_waited_for_twice(server, target) -> None:
    began = time.perf_counter()
    slow = on("_msearch", Answer({}, delay=1.5), repeat=True)
    await failing(server, slow, target, "no answer within 0.5 s", timeout=0.5)
    assert time.perf_counter() - began < 1.4
    assert server.count("POST", "_msearch") == 1


def test_a_server_that_is_down_is_seen_when_it_is_opened() -> None:
    with pytest.raises(RetrieverError, match=r"cannot be reached .*Check the address"):
        ElasticRetriever("http://127.0.0.1:9/corpus")
    with pytest.raises(RetrieverError, match="cannot be reached"):
        ElasticStore("http://127.0.0.1:9/corpus").build(CORPUS)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ({"number": "6.8.23"}, "is Elasticsearch 6.8.23. Supported: Elasticsearch 7, 8, 9; Open"),
        ({"number": "10.0.0"}, "is Elasticsearch 10.0.0"),
        ({"number": "4.0.0", "distribution": "opensearch"}, "is OpenSearch 4.0.0"),
        ({}, "neither Elasticsearch nor OpenSearch"),
    ],
)
def test_a_version_that_is_not_supported_is_refused(server, target, version, words) -> None:
    server.version = version
    for act in (lambda: ElasticRetriever(target), lambda: ElasticStore(target).build(CORPUS)):
        with pytest.raises(RetrieverError, match=words):
            act()
    assert len(server.indexes) == 1


@pytest.mark.parametrize(
    "version",
    [
        {"number": "7.0.0", "build_flavor": "oss"},
        {"number": "9.2.1"},
        {"number": "3.3.0", "distribution": "opensearch"},
        {"number": "7.10.2", "distribution": "opensearch"},
    ],
)
def test_supported_versions_are_opened(server, target, version) -> None:
    server.version = version
    assert len(ElasticRetriever(target)) == len(CORPUS)


def test_a_key_that_may_see_only_its_index_is_enough(server, target) -> None:
    server.rules = [
        lambda method, path, body: Answer({"error": "no"}, 403) if path == "/" else None
    ]
    assert len(ElasticRetriever(target)) == len(CORPUS)


def test_indexes_that_cannot_be_searched_are_told_apart(server, target) -> None:
    def refused(kind, words, name="corpus", **options):
        with pytest.raises(kind, match=words):
            ElasticRetriever(f"{server.url}/{name}", **options)

    refused(CorpusError, "no index has this name. Build one with: multihop index", "nothing")
    refused(IndexMismatch, "holds another corpus: content hash", content_hash="0" * 32)
    index = server.indexes[server.aliases["corpus"]]
    marker = index.mappings["_meta"]["multihop"]
    for change, kind, words in (
        ({"format": 0}, IndexMismatch, "format version 0, this program reads 1"),
        ({"settings": {}}, IndexMismatch, "was made with {}"),
        ({"state": "building"}, CorpusError, "still being built"),
        ({"passages": "4"}, CorpusError, "marker was changed"),
        ({"passages": 5}, CorpusError, "marker says 5 passages, the index holds 4"),
    ):
        index.mappings["_meta"] = {"multihop": {**marker, **change}}
        refused(kind, words)
    index.mappings["_meta"] = {}
    refused(CorpusError, "was not made by multihop")
    index.mappings["_meta"] = {"multihop": {**marker, "passages": 0}}
    index.seen.clear()
    refused(CorpusError, "the index is empty")


async def test_a_replaced_index_is_followed_only_to_the_same_passages(server, target) -> None:
    retriever = ElasticRetriever(target)
    before = await retriever.search([Query("company")], 1)
    ElasticStore(target).build(CORPUS[::-1])
    assert await retriever.search([Query("company")], 1) == before
    ElasticStore(target).build(CORPUS[:2])
    with pytest.raises(RetrieverError, match="replaced by one of other passages"):
        await retriever.search([Query("company")], 1)
    await retriever.aclose()


async def test_k_and_options_out_of_range_are_refused(target) -> None:
    retriever = ElasticRetriever(target)
    for k in (0, 10_001):
        with pytest.raises(BadInput, match=f"k is {k}"):
            await retriever.search([Query("x")], k)
    await retriever.aclose()
    with pytest.raises(RetrieverError, match="was closed"):
        await retriever.search([Query("x")], 1)
    for options, words in (
        ({"form": "best"}, "No query form"),
        ({"title_weight": -1}, "title_weight is -1"),
        ({"title_weight": 2, "form": "text"}, "has none"),
        ({"timeout": 0}, "timeout is 0"),
        ({"unmarked": True}, "form=official"),
        ({"ca": "/nowhere.pem"}, "no such file"),
        ({"ca": __file__}, "not a PEM file"),
        ({"ca": __file__, "insecure": True}, "one of the two"),
    ):
        with pytest.raises(BadInput, match=words):
            ElasticRetriever(target, **options)
    for options in ({"shards": 0}, {"replicas": -1}, {"connections": 0}):
        with pytest.raises(BadInput, match="from"):
            ElasticStore(target, **options)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", "is no index at a server"),
        ("corpus", "is no index at a server"),
        ("http://host", "is no index at a server"),
        ("http://host:9200", "is no index at a server"),
        ("http://host:9200/Upper", "lower-case"),
        ("http://host:9200/a*", "lower-case"),
        ("http://host:9200/_all", "lower-case"),
        ("ftp://host/x", "is no index at a server"),
        ("http://host:port/x", "is no address"),
        ("https://u:pw@host/x", "holds a user name or a password"),
    ],
)
def test_a_target_that_is_none_or_holds_a_password_is_refused(target, words) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        ElasticRetriever(target)
    assert "pw" not in str(refused.value)


# --- Who asks --------------------------------------------------------------------------------


async def test_a_key_or_a_password_goes_as_a_header_and_is_never_shown(
    server, target, monkeypatch
) -> None:
    for given, sent in (
        ({"MULTIHOP_ELASTIC_API_KEY": "s3cret=="}, "ApiKey s3cret=="),
        (
            {"MULTIHOP_ELASTIC_USER": "me", "MULTIHOP_ELASTIC_PASSWORD": "pässword"},
            "Basic bWU6cMOkc3N3b3Jk",
        ),
    ):
        with monkeypatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            answer = Answer({"error": f"what is {sent}?"}, 403)
            server.rules = []
            said = await failing(server, on("_msearch", answer), target, "answers 403")
            assert server.headers[-1]["authorization"] == sent
            assert sent.split()[1] not in said
            assert "***" in said


def test_half_a_pair_and_both_kinds_of_keys_are_refused(target, monkeypatch) -> None:
    monkeypatch.setenv("MULTIHOP_ELASTIC_USER", "me")
    with pytest.raises(BadInput, match="go together"):
        ElasticRetriever(target)
    monkeypatch.setenv("MULTIHOP_ELASTIC_API_KEY", "key")
    with pytest.raises(BadInput, match="both set"):
        ElasticRetriever(target)
    monkeypatch.delenv("MULTIHOP_ELASTIC_USER")
    monkeypatch.setenv("MULTIHOP_ELASTIC_API_KEY", "k\u00e9y")
    with pytest.raises(BadInput, match="no header can hold"):
        ElasticRetriever(target)


def test_the_doctor_tells_who_would_ask_and_no_secret(multihop, monkeypatch) -> None:
    def line() -> str:
        [found] = [x for x in multihop("doctor").out.splitlines() if "elasticsearch" in x]
        return found

    assert line().startswith("ok")
    assert "asks as nobody" in line()
    monkeypatch.setenv("MULTIHOP_ELASTIC_PASSWORD", "secret")
    assert line().startswith("--")
    assert "go together" in line()
    monkeypatch.setenv("MULTIHOP_ELASTIC_USER", "me")
    assert "asks as the user in MULTIHOP_ELASTIC_USER" in line()
    assert "secret" not in line()


async def test_certificates_are_checked_unless_one_says_otherwise(tmp_path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    pem = tmp_path / "server.pem"
    make = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    )
    subprocess.run(make.split(), cwd=tmp_path, check=True, capture_output=True)  # noqa: ASYNC221
    pem.write_text((tmp_path / "key.pem").read_text() + (tmp_path / "cert.pem").read_text())
    server = ElasticServer(str(pem))
    try:
        target = f"{server.url}/corpus"
        with pytest.raises(RetrieverError, match=r"authority that signed its certificate: ca=FILE"):
            ElasticStore(target).build(CORPUS[:2])
        ElasticStore(target, ca=str(tmp_path / "cert.pem")).build(CORPUS[:2])
        for options in ({"ca": str(tmp_path / "cert.pem")}, {"insecure": True}):
            retriever = ElasticRetriever(target, **options)
            [hits] = await retriever.search([Query("company")], 1)
            assert len(hits) == 1
            await retriever.aclose()
    finally:
        server.close()


# --- Building --------------------------------------------------------------------------------


def test_searches_see_the_old_index_until_the_new_one_is_whole(server) -> None:
    target = f"{server.url}/corpus"
    ElasticStore(target).build(numbered(0, 1))
    seen = []

    def watching():
        for passage in numbered(*range(5000)):
            if passage.id in ("p1000", "p4999"):
                seen.append(held(server, "corpus"))
            yield passage

    manifest = ElasticStore(target).build(watching())
    assert seen == [["p0", "p1"], ["p0", "p1"]]
    assert manifest.passages == 5000
    assert held(server, "corpus") == [f"p{n}" for n in range(5000)]
    assert len(server.indexes) == 1  # the old one is gone


def test_an_interrupted_build_goes_on_with_what_is_missing_or_different(server, target) -> None:
    def until(stop):
        yield from numbered(*range(stop))
        raise BadInput("line 3001 is bad")

    before = held(server, "corpus")
    with pytest.raises(BadInput, match="line 3001"):
        ElasticStore(target).build(until(3000))
    assert held(server, "corpus") == before
    assert len(server.indexes) == 2

    sent = []
    server.rules = [
        lambda method, path, body: sent.append(body.count(b"\n") // 2) if "_bulk" in path else None
    ]
    corpus = numbered(*range(3100))
    corpus[7] = Passage("p7", "Title 7", "mended")
    ElasticStore(target).build(corpus)
    assert sum(sent) <= 101 + 3000 % elastic_index.BATCH + elastic_index.BATCH
    assert sum(sent) < 1200
    assert listed(target) == corpus
    assert len(server.indexes) == 1

    with pytest.raises(BadInput, match="line 3001"):
        ElasticStore(target).build(until(3000))
    ElasticStore(target).build(numbered(*range(10)))  # a shorter corpus: the rest is deleted
    assert listed(target) == numbered(*range(10))
    assert [index.deleted for index in server.indexes.values()] == [0]  # and merged away


def test_what_was_left_with_other_settings_is_begun_anew(server, target) -> None:
    def broken():
        yield from numbered(0, 1)
        raise BadInput("stop")

    with pytest.raises(BadInput, match="stop"):
        ElasticStore(target, shards=2).build(broken())
    ElasticStore(target, shards=1).build(numbered(0))
    assert len(server.indexes) == 1
    assert held(server, "corpus") == ["p0"]


def test_what_the_server_has_no_room_for_is_sent_again(server, waited) -> None:
    busy = {"type": "es_rejected_execution_exception", "reason": "queue is full"}
    refusals = [3, 1]

    def rule(method, path, body):
        if "_bulk" not in path or not refusals:
            return None
        count = refusals.pop(0)
        done = server.respond(method, path, body).body
        for item in done["items"][:count]:
            server.indexes[path.split("/")[1]].docs.pop(item["index"]["_id"])
            item["index"] = {"_id": item["index"]["_id"], "status": 429, "error": busy}
        return Answer(done)

    server.rules = [rule, on("_bulk", Answer({"error": "slow down"}, 429))]
    manifest = ElasticStore(f"{server.url}/corpus").build(numbered(*range(10)))
    assert manifest.passages == 10
    assert len(waited) == 3
    assert waited[0] < waited[1] * 4


def test_a_server_that_stays_busy_is_an_error_and_the_next_build_goes_on(server) -> None:
    busy = {"items": [{"index": {"status": 429, "error": {"type": "x", "reason": "y"}}}]}
    server.rules = [on("_bulk", Answer(busy), repeat=True)]
    with pytest.raises(RetrieverError, match=r"too busy for 1 passages.*it goes on"):
        ElasticStore(f"{server.url}/corpus").build(numbered(0))
    assert not server.aliases
    server.rules = []
    ElasticStore(f"{server.url}/corpus").build(numbered(0))
    assert len(server.indexes) == 1


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (
            [{"index": {"status": 400, "error": {"type": "mapper", "reason": "bad"}}}],
            r"did not take the passage 'p0' \(mapper: bad\). Nothing was changed",
        ),
        ([{"index": {}}], "did not take the passage 'p0'"),
        ([None], "did not take the passage 'p0'"),
        ([], "expected one item each"),
        (None, "expected one item each"),
    ],
)
def test_a_passage_that_is_not_taken_is_an_error(server, items, words) -> None:
    server.rules = [on("_bulk", Answer({"errors": False, "items": items}))]
    with pytest.raises((CorpusError, RetrieverError), match=words):
        ElasticStore(f"{server.url}/corpus").build(numbered(0))
    assert not server.aliases


def test_passages_that_are_lost_on_the_way_are_noticed(server, target) -> None:
    def losing(method, path, body):
        if "_refresh" in path:
            server.indexes[path.split("/")[1]].docs.popitem()

    server.rules = [losing]
    with pytest.raises(CorpusError, match=r"3 passages were sent, and the index holds 2"):
        ElasticStore(target).build(numbered(0, 1, 2))
    assert held(server, "corpus") == [passage.id for passage in CORPUS]


def test_two_builds_of_one_name_do_not_both_end(server) -> None:
    target = f"{server.url}/corpus"

    def first():
        yield from numbered(0)
        ElasticStore(target).build(numbered(0, 1))
        yield from numbered(1)

    with pytest.raises((CorpusError, RetrieverError)) as failed:
        ElasticStore(target).build(first())
    assert "another process" in str(failed.value)
    assert held(server, "corpus") == ["p0", "p1"]


def test_names_of_others_are_not_replaced(server) -> None:
    index = {"mappings": {}, "settings": {"index": {"number_of_shards": 1}}}
    server.respond("PUT", "/theirs", json.dumps(index).encode())
    server.respond("PUT", "/theirs-2", json.dumps(index).encode())
    server.aliases["alias"] = "theirs-2"
    for name in ("theirs", "alias"):
        with pytest.raises(CorpusError, match="was not made by multihop"):
            ElasticStore(f"{server.url}/{name}").build(CORPUS)
    assert sorted(server.indexes) == ["theirs", "theirs-2"]


def test_passages_are_added_and_deleted_all_or_nothing(server, target) -> None:
    store = ElasticStore(target)
    with pytest.raises(BadInput, match="holds no passage with id 'zzz'"):
        store.change(numbered(0), delete=["a", "zzz"])
    with pytest.raises(CorpusError, match="passage id 'b' is there twice"):
        store.change([Passage("b", "", "")], delete=["a"])
    assert held(server, "corpus") == [passage.id for passage in CORPUS]
    manifest = store.change([Passage("a", "", "new")], delete=["a", "long"], source={"x": "\ud800"})
    assert listed(target) == [CORPUS[1], CORPUS[2], Passage("a", "", "new")]
    assert manifest.source == ElasticRetriever(target).manifest.source == {"x": "\ud800"}
    assert store.change(delete=["a", "b", CORPUS[2].id]).passages == 0
    with pytest.raises(CorpusError, match="the index is empty"):
        ElasticRetriever(target)


def test_no_passages_and_ids_twice_change_nothing(server, target) -> None:
    with pytest.raises(CorpusError, match="no passages to index"):
        ElasticStore(target).build([])
    with pytest.raises(CorpusError, match="passage id 'p1' is there twice"):
        ElasticStore(target).build(numbered(1, 1))
    told = []
    assert held(server, "corpus") == [passage.id for passage in CORPUS]
    ElasticStore(target).build(numbered(1, 2, 1), on_duplicate=told.append)
    assert told == numbered(1)
    assert held(server, "corpus") == ["p1", "p2"]


def test_batches_are_bounded_in_bytes_and_number(server, monkeypatch) -> None:
    monkeypatch.setattr(elastic_index, "BATCH", 10)
    monkeypatch.setattr(elastic_index, "BATCH_BYTES", 10_000)
    sizes = []
    server.rules = [
        lambda method, path, body: (
            sizes.append((len(body), body.count(b"\n") // 2)) if "_bulk" in path else None
        )
    ]
    corpus = [Passage(str(n), "", "x" * (20_000 if n == 30 else 500 * (n % 3))) for n in range(60)]
    ElasticStore(f"{server.url}/corpus").build(corpus)
    assert sum(count for _, count in sizes) == 60
    assert max(count for _, count in sizes) == 10
    assert all(size <= 10_000 or count == 1 for size, count in sizes)


# --- On the command line ---------------------------------------------------------------------


def test_the_verbs_build_search_and_try_an_index(multihop, server, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        '{"id": "ulm", "title": "Ulm", "text": "a city"}\n'
        '{"id": "aida", "title": "Aida", "text": "an opera"}\n'
    )
    name = f"elastic:{server.url}/corpus"
    built = multihop("index", str(corpus), "--to", name, "--to-option", "shards=2")
    assert (built.code, built.out, built.err) == (0, "", f"{name}: 2 passages.\n")
    found = multihop("search", "city", "--retriever", name, "--form", "official")
    assert "[ulm]" in found.out
    assert f"{name} answers, 2 passages" in multihop("doctor", "--retriever", name).out
    changed = multihop("index", "--to", name, "--delete", "ulm", "--to-option", "shards=2")
    assert changed.err == f"{name}: 1 passages.\n"
    taken = multihop("index", str(corpus), "--to", name, "--add")
    assert (taken.code, taken.err.count("\n")) == (2, 1)
    assert "corpus.jsonl:2: the id 'aida' is taken" in taken.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Say where the index goes"),
        (("--into", "x", "--to", "elastic:http://h/x"), "Say where the index goes"),
        (("--into", "x", "--to-option", "shards=2"), "for a store"),
        (("--to", "elastik:x"), "Did you mean 'elastic'?"),
        (("--to", "elastic:http://127.0.0.1:9/x"), "cannot be reached"),
        (("--to", "elastic:http://h/x", "--to-option", "shards=many"), "expected a whole number"),
        (("--to", "elastic:http://h/x", "--to-option", "sharts=2"), "Did you mean 'shards'?"),
    ],
)
def test_what_cannot_be_done_is_one_line(multihop, tmp_path, arguments, words) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "ulm", "title": "Ulm", "text": "a city"}\n')
    failed = multihop("index", str(corpus), *arguments)
    assert (failed.code, failed.err.count("\n")) == (2, 1)
    assert words in failed.err


def test_the_name_opens_the_retriever_with_its_options(target) -> None:
    retriever = names.open_retriever(
        f"elastic:{target}", {"form": "official", "corpus": "hotpotqa", "timeout": "5"}
    )
    assert isinstance(retriever, ElasticRetriever)
    assert retriever.name == f"elastic:{target}"
    asyncio.run(retriever.aclose())
