"""BM25: Elasticsearch's rankings, its own promises, and indexes that survive accidents."""

import asyncio
import json
import math
import random
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import tantivy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import rows, shared
from multihop.errors import BadInput, CorpusError, IndexMismatch, RetrieverError
from multihop.retrievers.bm25 import BM25, _threads
from multihop.retrievers.bm25_index import build_index, change_index, read_manifest
from multihop.retrievers.english import analyze
from multihop.text import Hit, Passage, Query


def passages(*texts: str, title: str = "") -> list[Passage]:
    return [Passage(f"p{number}", title, text) for number, text in enumerate(texts)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


def found(folder: Path, text: str, k: int = 10, form: str = "paper", **query) -> list[Hit]:
    return BM25(folder, form)._search(Query(text, **query), k)


def ids(hits: list[Hit]) -> list[str]:
    return [hit.passage.id for hit in hits]


# --- Elasticsearch's rankings ----------------------------------------------------------------

COLUMNS = (
    ("text_only_top15", "query", "text"),
    ("title_or_text_wh_removed_top15", "wh_removed", "official"),
)


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param("hotpotqa", marks=pytest.mark.slow),
        pytest.param("2wikimultihopqa", marks=pytest.mark.slow),
        "musique",
        "iirc",
    ],
)
def test_scores_and_rankings_are_elasticsearchs(dataset, tmp_path):
    """All recorded rankings of a real node, but for the order of equal scores.

    Elasticsearch breaks ties by the order in which it merged its segments, we by the order of
    the corpus; and `official` collapses same texts, which the recorded queries did not.
    """
    recorded = [row for row in rows("golden/es_ranking.jsonl") if row["dataset"] == dataset]
    with shared(f"data/{dataset}_corpus.jsonl").open(encoding="utf-8") as lines:
        corpus = [Passage(**json.loads(line)) for line in lines]
    build_index(corpus, tmp_path)
    often = Counter(passage.text.strip().lower() for passage in corpus)
    repeated = {p.id for p in corpus if often[p.text.strip().lower()] > 1}

    for row in recorded:
        for column, words, form in COLUMNS:
            theirs = [(passage, score) for passage, score in row[column]]
            ours = [(h.passage.id, h.score) for h in found(tmp_path, row[words], 15, form)]
            if form == "official" and repeated.intersection(dict(theirs)):
                theirs = [hit for hit in theirs if hit[0] not in repeated]
                ours = [hit for hit in ours if hit[0] not in repeated][: len(theirs)]
            assert_same_ranking(ours, theirs)


def assert_same_ranking(ours: list[tuple[str, float]], theirs: list[tuple[str, float]]) -> None:
    """Same scores to a float's precision; same passages wherever a group of ties is whole."""
    assert [s for _, s in ours] == pytest.approx([s for _, s in theirs], rel=1e-6)
    start = 0
    for end in range(1, len(theirs)):
        if not math.isclose(theirs[end][1], theirs[start][1], rel_tol=1e-6):
            assert {p for p, _ in ours[start:end]} == {p for p, _ in theirs[start:end]}
            start = end


def lucene(corpus: list[Passage], query: str, field: str) -> dict[str, float]:
    """BM25 by its formula, with lengths that Lucene's byte code keeps exact (below 40)."""
    terms = {p.id: analyze(getattr(p, field)) for p in corpus}
    average = sum(map(len, terms.values())) / len(corpus)
    scores: dict[str, float] = {}
    for word in analyze(query):
        holding = [i for i, t in terms.items() if word in t]
        idf = math.log(1 + (len(corpus) - len(holding) + 0.5) / (len(holding) + 0.5))
        for i in holding:
            f = terms[i].count(word)
            norm = 1.2 * (1 - 0.75 + 0.75 * len(terms[i]) / average)
            scores[i] = scores.get(i, 0) + idf * f * 2.2 / (f + norm)
    return scores


WORDS = ["coaster", "rides", "gravity", "lost", "mack", "ulm", "river", "italy"]


def test_scores_follow_the_formula(folder):
    rng = random.Random(1)
    corpus = [
        Passage(str(n), rng.choice(WORDS), " ".join(rng.choices(WORDS, k=rng.randint(1, 30))))
        for n in range(60)
    ]
    build_index(corpus, folder)
    query = "the coaster of coaster lost"
    by_text, by_title = lucene(corpus, query, "text"), lucene(corpus, query, "title")
    for form, expected in (
        ("text", by_text),
        ("official", {i: by_text.get(i, 0) + by_title.get(i, 0) for i in by_text | by_title}),
    ):
        hits = found(folder, query, 60, form)
        assert {h.passage.id: h.score for h in hits} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("weight", [0, 0.3, 1, 2.5])
async def test_words_in_the_title_count_as_they_are_weighted(folder, weight):
    corpus = [
        Passage(str(n), WORDS[n % len(WORDS)], " ".join([*WORDS[n % 5 :], f"word{n}"]))
        for n in range(30)
    ]
    build_index(corpus, folder)
    query = "coaster rides river"
    by_text, by_title = lucene(corpus, query, "text"), lucene(corpus, query, "title")
    expected = {i: by_text.get(i, 0) + weight * by_title.get(i, 0) for i in by_text | by_title}
    [hits] = await BM25(folder, title_weight=weight).search([Query(query)], 60)
    assert {h.passage.id: h.score for h in hits} == pytest.approx(
        {i: score for i, score in expected.items() if score}, rel=1e-5
    )
    limited = [Query(query, titles=("coaster",)), Query("coaster", by_title=True)]
    [allowed, page] = await BM25(folder, title_weight=weight).search(limited, 60)
    assert {h.score for h in allowed} <= {h.score for h in hits}
    assert len(page) == 1


def test_title_weights_that_mean_nothing_are_refused(folder):
    build_index(passages("a b"), folder)
    for weight in (-1, math.nan, math.inf):
        with pytest.raises(BadInput, match="title_weight is"):
            BM25(folder, title_weight=weight)
    for form in ("official", "text"):
        with pytest.raises(BadInput, match=f"the form '{form}' has none"):
            BM25(folder, form, title_weight=2)


# --- Order and duplicates --------------------------------------------------------------------


@pytest.mark.parametrize("form", ["paper", "official", "text"])
def test_equal_scores_stand_in_document_order_across_segments(folder, form):
    texts = [f"coaster number{n}" for n in range(40)]
    build_index(passages(*texts[:10]), folder)
    for start in (10, 20, 30):  # each addition is a segment of its own
        more = [replace(p, id=f"q{start}-{p.id}") for p in passages(*texts[start : start + 10])]
        change_index(folder, more)
    in_order = [passage.id for passage in BM25(folder)]
    for k in (1, 5, 12, 40):
        assert ids(found(folder, "coaster", k, form)) == in_order[:k]


def test_of_the_same_text_the_paper_form_keeps_the_best_and_the_official_one_the_last(folder):
    build_index(
        [
            Passage("best", "Coaster", "A coaster."),
            Passage("middle", "Other", "A coaster in another place."),
            Passage("last", "Else", " a COASTER. "),
        ],
        folder,
    )
    assert ids(found(folder, "coaster")) == ["best", "middle"]
    assert ids(found(folder, "coaster", form="official")) == ["last", "middle"]
    assert ids(found(folder, "coaster", form="text")) == ["best", "last", "middle"]


def test_many_same_texts_do_not_crowd_out_the_others(folder):
    corpus = [Passage(f"same{n}", "", "A coaster.") for n in range(300)]
    build_index([*corpus, Passage("other", "", "A coaster and much else to read.")], folder)
    assert ids(found(folder, "coaster", 2)) == ["same0", "other"]


def test_titles_are_looked_at_after_the_cut_in_the_official_form_and_before_it_in_ours(folder):
    corpus = passages("coaster coaster", "coaster coaster too", title="Big coaster")
    build_index(
        [*corpus, Passage("mine", "Mine, a small thing", "A coaster in a far land.")], folder
    )
    mine = ("Mine, a small thing", "Another")
    assert ids(found(folder, "coaster", 1, titles=mine)) == ["mine"]
    assert ids(found(folder, "big coaster " * 9, 1, "official", titles=mine)) == []


def test_one_title_must_match_even_when_the_query_has_no_words(folder):
    build_index([Passage("a", "Mack Rides", "One."), Passage("b", "Ulm", "Two.")], folder)
    assert ids(found(folder, "of the", form="official", titles=("mack rides",))) == ["a"]
    assert ids(found(folder, "one two", form="official", titles=("The",))) == []


def test_a_title_search_passes_over_what_is_no_abstract(folder):
    build_index(
        [
            Passage("body", "Mack Rides", "Later on.", {"is_abstract": False}),
            Passage("head", "Mack Rides", "First of all.", {"is_abstract": True}),
            Passage("plain", "Mack Rides of Waldkirch", "No word on that."),
        ],
        folder,
    )
    for form in ("paper", "official"):
        assert ids(found(folder, "mack rides", form=form, by_title=True)) == ["head", "plain"]


# --- The engine's shortcuts ------------------------------------------------------------------


@pytest.mark.parametrize("form", ["paper", "official", "text"])
def test_what_the_engine_skips_is_not_among_the_best(folder, form):
    """The k best by the formula, from a corpus of many posting blocks and from two segments."""
    rng = random.Random(2)
    weights = [1 / (n + 1) for n in range(60)]
    words = [f"word{n}" for n in range(60)]
    corpus = [
        Passage(
            str(n),
            " ".join(rng.choices(words, weights, k=2)),
            f"only{n} " + " ".join(rng.choices(words, weights, k=rng.randint(4, 30))),
        )
        for n in range(3000)
    ]
    build_index(corpus[:2000], folder)
    change_index(folder, corpus[2000:])
    place = {passage.id: n for n, passage in enumerate(corpus)}
    for _ in range(12):
        query = " ".join(rng.choices(words, k=12))
        scores = Counter(lucene(corpus, query, "text"))
        if form != "text":
            scores.update(lucene(corpus, query, "title"))
        best = sorted(scores, key=lambda i: (-round(scores[i], 5), place[i]))[:6]
        hits = found(folder, query, 6, form)
        assert ids(hits) == best
        assert [hit.score for hit in hits] == pytest.approx([scores[i] for i in best], rel=1e-5)
        assert [hit.score for hit in hits] == sorted((h.score for h in hits), reverse=True)


def test_passages_with_the_same_words_stand_in_document_order(folder):
    rng = random.Random(3)
    words = [f"word{n}" for n in range(25)]
    others = [" ".join(rng.choices(words, k=rng.randint(5, 20))) for _ in range(1500)]
    texts = [" ".join([*words, f"own{n}"]) for n in range(40)]
    mixed = [text for n in range(40) for text in (texts[n], *others[30 * n : 30 * n + 30])]
    build_index(passages(*mixed), folder)
    expected = [f"p{31 * n}" for n in range(40)]
    for k in (1, 6, 15, 40):
        assert ids(found(folder, " ".join(words), k, "text")) == expected[:k]


# --- Many queries ----------------------------------------------------------------------------


async def test_many_queries_are_answered_in_their_order(folder):
    build_index(passages(*(f"coaster number{n}" for n in range(50))), folder)
    retriever = BM25(folder)
    rankings = await retriever.search([Query(f"number{n % 50}") for n in range(500)], 3)
    assert [ids(hits) for hits in rankings] == [[f"p{n % 50}"] for n in range(500)]
    assert await retriever.search([], 3) == []


async def test_searches_at_once_never_use_more_threads_than_cores(folder, monkeypatch):
    build_index(passages("coaster"), folder)
    monkeypatch.setattr("multihop.retrievers.bm25.cores", lambda: 3)
    _threads.cache_clear()
    retriever, together, running = BM25(folder), [], set()
    answer = retriever._search

    def watched(query, k):
        running.add(threading.get_ident())
        together.append(len(running))
        time.sleep(0.001)
        running.discard(threading.get_ident())
        return answer(query, k)

    monkeypatch.setattr(retriever, "_search", watched)
    try:
        await asyncio.gather(*(retriever.search([Query("coaster")] * 9, 1) for _ in range(9)))
    finally:
        _threads().shutdown()
        _threads.cache_clear()
    assert len(together) == 81
    assert 2 <= max(together) <= 3


async def test_a_search_that_fails_or_is_given_up_leaves_the_rest_unsearched(folder, monkeypatch):
    build_index(passages("coaster"), folder)
    retriever, seen = BM25(folder), []

    def slow(query, k):
        seen.append(query.text)
        time.sleep(0.002)
        if query.text == "5":
            raise RetrieverError("broken")
        return []

    monkeypatch.setattr(retriever, "_search", slow)
    queries = [Query(str(n)) for n in range(1000)]
    with pytest.raises(RetrieverError, match="broken"):
        await retriever.search(queries, 1)
    task = asyncio.create_task(retriever.search(queries[6:], 1))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.02)
    assert len(seen) < 500


# --- Reading ---------------------------------------------------------------------------------


def test_passages_are_counted_found_by_id_and_listed_in_order(folder):
    corpus = [Passage(f"id {n}", f"T{n}", f"text {n}", {"page": n}) for n in range(2500)]
    build_index(corpus, folder)
    retriever = BM25(folder)
    assert len(retriever) == 2500
    assert list(retriever) == corpus
    assert retriever.get("id 77") == corpus[77]
    assert retriever.get("id") is None


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.text(alphabet=st.characters(codec=None)), min_size=1, max_size=6))
def test_any_text_is_kept_as_it_is(tmp_path, texts):
    corpus = [
        Passage(f"{n}{text}", text, text, {"note": text, "list": [text, 1, None]})
        for n, text in enumerate(texts)
    ]
    build_index(corpus, tmp_path)
    retriever = BM25(tmp_path)
    assert list(retriever) == corpus
    assert all(retriever.get(passage.id) == passage for passage in corpus)


def test_a_passage_of_a_megabyte_is_found(folder):
    long = "word " * 200_000 + "needle " + "x" * 100_000
    build_index([Passage("long", "", long), *passages("hay", "straw")], folder)
    assert ids(found(folder, "needle")) == ["long"]
    assert found(folder, "needle")[0].passage.text == long


async def test_a_closed_index_says_so(folder):
    build_index(passages("coaster"), folder)
    retriever = BM25(folder)
    await retriever.aclose()
    with pytest.raises(RetrieverError, match="closed"):
        await retriever.search([Query("coaster")], 1)


async def test_k_below_one_is_refused(folder):
    build_index(passages("coaster"), folder)
    with pytest.raises(BadInput, match="at least 1"):
        await BM25(folder).search([Query("coaster")], 0)


def test_an_unknown_form_is_refused_by_name(folder):
    build_index(passages("coaster"), folder)
    with pytest.raises(BadInput, match="paper, official, text"):
        BM25(folder, "both")


# --- Building and changing -------------------------------------------------------------------


def test_building_again_replaces_the_index_and_leaves_nothing_of_the_old_one(folder):
    build_index(passages("coaster", "river"), folder)
    build_index(passages("mountain"), folder)
    assert found(folder, "coaster") == []
    assert len(found(folder, "mountain")) == 1
    assert len([p for p in folder.iterdir() if p.name.startswith("index-")]) == 1


def test_a_failing_build_leaves_the_old_index(folder):
    build_index(passages("coaster"), folder)
    before = (folder / "manifest.json").read_bytes()

    def broken():
        yield from passages("mountain")
        raise BadInput("file:7: broken")

    with pytest.raises(BadInput, match="file:7"):
        build_index(broken(), folder)
    with pytest.raises(CorpusError, match="no passages"):
        build_index([], folder)
    with pytest.raises(CorpusError, match="there twice"):
        build_index([*passages("a"), *passages("b")], folder)
    assert (folder / "manifest.json").read_bytes() == before
    assert ids(found(folder, "coaster")) == ["p0"]
    assert len([p for p in folder.iterdir() if p.name.startswith("index-")]) == 1


def test_what_a_killed_writer_left_is_removed_by_the_next(folder):
    build_index(passages("coaster"), folder)
    (folder / "index-0badbeef").mkdir()
    (folder / "index-0badbeef" / "part").write_text("x")
    (folder / "manifest.json.new").write_text("{")
    assert ids(found(folder, "coaster")) == ["p0"]
    change_index(folder, delete=["p0"])
    assert not (folder / "index-0badbeef").exists()
    assert not (folder / "manifest.json.new").exists()


def test_passages_are_added_deleted_and_replaced_in_one_go(folder):
    build_index(passages("coaster", "river"), folder)
    manifest = change_index(
        folder, [Passage("p0", "", "mountain"), Passage("new", "", "lake")], delete=["p0", "p0"]
    )
    assert manifest.passages == len(BM25(folder)) == 3
    assert {p.id for p in BM25(folder)} == {"p1", "p0", "new"}
    assert found(folder, "coaster") == []
    assert ids(found(folder, "mountain")) == ["p0"]


def test_a_change_that_fails_changes_nothing(folder):
    build_index(passages("coaster", "river"), folder)
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(BadInput, match="no passage with id 'zzz'"):
        change_index(folder, [Passage("n", "", "lake")], delete=["p0", "zzz"])
    with pytest.raises(CorpusError, match="'p1' is there twice"):
        change_index(folder, [Passage("n", "", "lake"), Passage("p1", "", "sea")])
    assert (folder / "manifest.json").read_bytes() == before
    assert {p.id for p in BM25(folder)} == {"p0", "p1"}


def test_duplicates_can_be_left_out_by_the_caller(folder):
    told: list[str] = []
    corpus = [Passage("a", "", "one"), Passage("a", "", "two"), Passage("b", "", "three")]
    manifest = build_index(corpus, folder, on_duplicate=lambda passage: told.append(passage.text))
    assert (manifest.passages, told) == (2, ["two"])


def test_the_content_hash_depends_on_the_passages_and_on_nothing_else(tmp_path):
    corpus = passages("one", "two", "three")
    whole = build_index(corpus, tmp_path / "a").content_hash
    assert build_index(reversed(corpus), tmp_path / "b").content_hash == whole
    build_index([*corpus[:2], Passage("x", "", "gone")], tmp_path / "c")
    assert change_index(tmp_path / "c", corpus[2:], delete=["x"]).content_hash == whole
    other = [*corpus[:2], replace(corpus[2], metadata={"page": 1})]
    assert build_index(other, tmp_path / "d").content_hash != whole


def test_all_passages_can_be_deleted(folder):
    build_index(passages("coaster"), folder)
    assert change_index(folder, delete=["p0"]).passages == 0
    assert found(folder, "coaster") == []


def test_readers_keep_their_index_while_it_is_rebuilt(folder):
    build_index(passages("coaster one"), folder)
    failures: list[BaseException] = []
    stop = threading.Event()
    old = BM25(folder)

    def read() -> None:
        try:
            while not stop.is_set():
                for retriever in (old, BM25(folder)):
                    assert len(retriever._search(Query("coaster"), 5)) == 1
        except BaseException as failure:  # noqa: BLE001 - shown below
            failures.append(failure)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(8):
        build_index(passages(f"coaster {n}"), folder)
    stop.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert old._search(Query("coaster"), 1)[0].passage.text == "coaster one"


def test_an_index_replaced_while_it_is_opened_is_opened_anew(folder, monkeypatch):
    build_index(passages("coaster one"), folder)
    opened = tantivy.Index.open

    class Slow:
        @staticmethod
        def open(path):
            engine = opened(path)
            if not replaced:  # between the manifest and the last file of its generation
                replaced.append(path)
                build_index(passages("coaster two"), folder)
            return engine

    replaced: list[str] = []
    monkeypatch.setattr("multihop.retrievers.bm25_index.tantivy.Index.open", Slow.open)
    retriever = BM25(folder)
    assert retriever._search(Query("coaster"), 1)[0].passage.text == "coaster two"
    assert replaced


def test_a_second_writer_is_refused(folder):
    build_index(passages("coaster"), folder)

    def slow():
        with pytest.raises(CorpusError, match="another process is writing"):
            change_index(folder, passages("x"))
        yield from passages("mountain")

    build_index(slow(), folder)
    assert ids(found(folder, "mountain")) == ["p0"]


# --- What is no index ------------------------------------------------------------------------


def test_a_folder_without_an_index_says_how_to_make_one(tmp_path):
    with pytest.raises(CorpusError, match="multihop index PATH"):
        BM25(tmp_path)


def test_a_folder_with_other_files_and_a_file_are_not_overwritten(tmp_path):
    (tmp_path / "thesis.docx").write_text("precious")
    with pytest.raises(CorpusError, match=r"thesis\.docx"):
        build_index(passages("x"), tmp_path)
    with pytest.raises(CorpusError, match="is a file"):
        build_index(passages("x"), tmp_path / "thesis.docx")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.docx"]


def edited(folder: Path, /, **fields) -> None:
    record = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(record | fields))


def test_an_index_of_another_version_is_refused_and_can_be_rebuilt(folder):
    build_index(passages("coaster"), folder)
    edited(folder, format=99)
    with pytest.raises(IndexMismatch, match="version 99, this program reads 2"):
        BM25(folder)
    with pytest.raises(IndexMismatch):
        change_index(folder, passages("x"))
    build_index(passages("coaster"), folder)
    assert len(BM25(folder)) == 1


def test_an_index_made_with_another_analyzer_is_refused(folder):
    build_index(passages("coaster"), folder)
    edited(folder, settings={"engine": "tantivy 0.27", "analyzer": "german"})
    with pytest.raises(IndexMismatch, match="analyzer 'german'"):
        BM25(folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: edited(folder, passages=7, next_number=9),
        lambda folder: edited(folder, folder="../elsewhere"),
        lambda folder: edited(folder, content_hash=None),
        lambda folder: edited(folder, unknown=1),
        lambda folder: (folder / "manifest.json").write_text("{"),
        lambda folder: (folder / "manifest.json").write_text("[]"),
        lambda folder: [p.unlink() for p in folder.glob("index-*/*.store")],
        lambda folder: [p.write_bytes(b"") for p in folder.glob("index-*/*.term")],
        lambda folder: [p.unlink() for p in folder.glob("index-*/meta.json")],
    ],
)
def test_a_damaged_index_is_one_clear_line(folder, damage):
    build_index(passages("coaster"), folder)
    damage(folder)
    with pytest.raises(CorpusError) as error:
        BM25(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_the_manifest_says_what_is_there(folder):
    build_index(passages("coaster"), folder, source={"paths": ["x.jsonl"]})
    manifest = read_manifest(folder)
    assert (manifest.passages, manifest.format) == (1, 2)
    assert manifest.source == {"paths": ["x.jsonl"]}
    assert manifest.written.endswith("+00:00")
