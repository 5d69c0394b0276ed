"""The official search as pure functions, against recordings of the released server."""

import pytest

from conftest import rows
from multihop.errors import BadInput
from multihop.retrievers.elastic_form import (
    Found,
    clean_passages,
    clean_titles,
    folded,
    search_body,
)

RENAMED = {"query_text": "text", "corpus_name": "corpus", "max_buffer_count": "buffer"}


def test_every_recorded_request_has_the_same_body():
    recorded = rows("golden/es_query.jsonl")
    assert len(recorded) > 10
    for row in recorded:
        given = {RENAMED.get(k, k): v for k, v in row["input"].items() if k != "max_hits_count"}
        if "error" in row["expected"]:
            with pytest.raises(BadInput):
                search_body(**given)
        else:
            assert search_body(**given) == row["expected"]["body"], row["id"]
            assert given["corpus"] == row["expected"]["index"]


def test_every_recorded_result_is_cleaned_the_same_way():
    recorded = rows("golden/es_postprocess.jsonl")
    assert len(recorded) > 8
    for row in recorded:
        given = row["input"]
        found = [
            Found(
                hit["_source"]["id"],
                hit["_score"],
                folded(hit["_source"]["paragraph_text"]),
                folded(hit["_source"]["title"]),
            )
            for hit in given["hits"]
        ]
        expected = row["expected"]["retrieval"]
        if given["kind"] == "titles":
            kept = clean_titles(found, given["max_hits_count"])
        else:
            allowed = given.get("allowed_titles")
            titles = None if allowed is None else {folded(title) for title in allowed}
            kept = clean_passages(found, given["max_hits_count"], titles)
            assert [hit.score for hit in kept] == [hit["score"] for hit in expected]
        assert [hit.item for hit in kept] == [hit["id"] for hit in expected], row["id"]


def test_no_allowed_title_leaves_nothing():
    assert clean_passages([Found(1, 1.0, "x", "a")], 5, set()) == []


def test_a_repeated_text_takes_the_last_score_and_the_last_record():
    found = [Found(1, 9.0, "same", "a"), Found(2, 5.0, "other", "b"), Found(3, 1.0, "same", "c")]
    assert [hit.item for hit in clean_passages(found, 5)] == [2, 3]


def test_a_repeated_title_takes_the_last_record_at_the_first_place():
    found = [Found(1, 9.0, "x", "a"), Found(2, 5.0, "y", "b"), Found(3, 1.0, "z", "a")]
    assert [hit.item for hit in clean_titles(found, 5)] == [3, 2]


def test_the_clauses_of_several_titles_and_of_a_place_in_the_page():
    body = search_body("x", "iirc", allowed_titles=["A", "B"], paragraph_index=2)
    assert body["query"]["bool"] == {
        "should": [
            {"match": {"paragraph_text": "x"}},
            {"bool": {"must": {"match": {"title": "A"}}}},
            {"bool": {"must": {"match": {"title": "B"}}}},
            {"match": {"paragraph_index": 2}},
        ]
    }
