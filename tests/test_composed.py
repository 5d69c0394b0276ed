"""Names of hybrids and rerankers: lists, files, options, and what is refused."""

import json

import pytest

from multihop import names
from multihop.composed import listed_names
from multihop.errors import BadInput, CorpusError
from multihop.retrievers.base import calls_made
from multihop.retrievers.bm25_index import build_index
from multihop.retrievers.hybrid import Hybrid
from multihop.retrievers.rerank import Reranked
from multihop.text import Passage, Query

PASSAGES = [
    Passage("1", "Ulm", "Ulm is a city on the Danube."),
    Passage("2", "Danube", "The Danube is a river in Europe."),
    Passage("3", "Rhine", "The Rhine is a river too, and no city."),
]


@pytest.fixture
def folder(tmp_path):
    build_index(PASSAGES, tmp_path / "a")
    build_index(PASSAGES[::-1], tmp_path / "b+c")
    build_index(PASSAGES[:2], tmp_path / "other")
    rules = {"rules": [{"prompt": "Order all", "text": "[2] > [1]"}, {"prompt": "", "text": "x"}]}
    (tmp_path / "script.json").write_text(json.dumps(rules))
    return tmp_path


def test_a_name_begins_at_a_plus_before_a_kind_and_a_colon():
    assert listed_names("bm25:a+b+http:http://x/?q=1+2") == ["bm25:a+b", "http:http://x/?q=1+2"]
    assert listed_names("bm25:C++") == ["bm25:C++"]
    assert listed_names("mine.toml") is None
    assert listed_names("dir/bm25:a") is None
    assert listed_names("") is None


async def test_a_hybrid_is_written_as_a_list(folder):
    hybrid = names.open_retriever(
        f"hybrid:bm25:{folder}/a+bm25:{folder}/b+c",
        {"fusion": "convex", "normalise": "zero,minmax", "weights": "3,1", "depth": "7"},
    )
    assert isinstance(hybrid, Hybrid)
    assert hybrid.name == f"hybrid:bm25:{folder}/a+bm25:{folder}/b+c"
    assert hybrid.identity["fusion"] == "convex zero,minmax"
    assert [(m.weight, m.depth) for m in hybrid.members] == [(3.0, 7), (1.0, 7)]
    assert hybrid.manifest.passages == 3
    [hits] = await hybrid.search([Query("Danube river")], 1)
    assert hits[0].passage.id == "2"
    await hybrid.aclose()


async def test_a_hybrid_is_written_as_a_file_in_which_parts_have_options(folder):
    (folder / "hybrid.toml").write_text(f"""
fusion = "combmnz"
depth = 20
normalise = "probabilities"

[[retriever]]
name = "bm25:{folder}/a"
weight = 0.5
options = {{ title_weight = 2.0 }}

[[retriever]]
name = "bm25:{folder}/b+c"
depth = 5
normalise = "zero"
options = {{ form = "text" }}
""")
    hybrid = names.open_retriever(f"hybrid:{folder}/hybrid.toml")
    assert [(m.weight, m.depth) for m in hybrid.members] == [(0.5, 20), (1.0, 5)]
    assert hybrid.identity["fusion"] == "combmnz probabilities,zero"
    assert hybrid.members[0].retriever.title_weight == 2.0
    assert hybrid.members[1].retriever.form == "text"
    again = names.open_retriever(
        f"hybrid:{folder}/hybrid.toml", {"fusion": "rrf", "rrf_k": "10", "weights": "2"}
    )
    assert again.identity["fusion"] == "rrf k=10"
    assert [m.weight for m in again.members] == [2.0, 2.0]


async def test_reranking_is_written_with_by_or_as_a_file(folder):
    lm = f"scripted:{folder}/script.json"
    listed = names.open_retriever(
        f"rerank:hybrid:bm25:{folder}/a+bm25:{folder}/b+c",
        {"by": f"listwise:{lm}", "depth": "2", "window": "4", "stride": "4"},
    )
    assert isinstance(listed, Reranked)
    assert listed.depth == 2
    assert listed.reranker.window == 4
    [hits] = await listed.search([Query("Danube river")], 2)
    assert len(calls_made(hits)) == 1
    await listed.aclose()

    (folder / "rerank.toml").write_text(f"""
depth = 9
[retriever]
name = "bm25:{folder}/a"
options = {{ form = "text" }}
[reranker]
name = "listwise:{lm}"
options = {{ window = 5, stride = 3 }}
""")
    filed = names.open_retriever(f"rerank:{folder}/rerank.toml", {"stride": "2"})
    assert (filed.depth, filed.reranker.window, filed.reranker.stride) == (9, 5, 2)
    assert filed.retriever.form == "text"
    assert filed.name == f"rerank:bm25:{folder}/a by listwise:{lm}"
    other = names.open_retriever(f"rerank:{folder}/rerank.toml", {"by": "endpoint:http://x/rerank"})
    assert other.reranker.name == "endpoint:http://x/rerank"


def test_rerankers_open_by_name(folder):
    lm = f"scripted:{folder}/script.json"
    assert names.open_reranker(f"yes-no:{lm}", {"passage_tokens": "50"}).passage_tokens == 50
    endpoint = names.open_reranker(
        "endpoint:@org/model@https://u.example/v1/rerank?a=@b",
        {"shape": "cohere", "body": '{"x": 1}'},
    )
    assert endpoint.model == "@org/model"
    assert endpoint.body == {"x": 1}
    with pytest.raises(BadInput, match=r"No reranker is named 'listwize'. Did you mean 'listwise'"):
        names.open_reranker("listwize:x")
    with pytest.raises(BadInput, match="expected endpoint:URL or endpoint:MODEL@URL"):
        names.open_reranker("endpoint:model")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("hybrid:nothing.toml", {}, "expected KIND:TARGET of a retriever .*there is no such file"),
        ("hybrid:dense2:x", {}, "there is no such file"),
        ("hybrid", {}, "Write hybrid:TARGET"),
        ("hybrid:bm25:{}/a", {"fusion": "rff"}, "No fusion of .* Did you mean 'rrf'"),
        ("hybrid:bm25:{}/a", {"weights": "1,2"}, "weights: 2 for 1 retrievers"),
        ("hybrid:bm25:{}/a", {"weights": "x"}, "the weight 'x' is no number"),
        ("hybrid:bm25:{}/a", {"weights": "-1"}, "weight -1"),
        ("hybrid:bm25:{}/a", {"normalise": "max"}, "Did you mean 'minmax'"),
        ("hybrid:bm25:{}/a", {"depth": "0"}, "depth is 0; it must be at least 1"),
        ("hybrid:bm25:{}/a", {"form": "text"}, "No option of retriever 'hybrid' is named 'form'"),
        ("rerank:bm25:{}/a", {}, "by whom.*cross-encoder, listwise, yes-no, endpoint"),
        ("rerank:bm25:{}/a", {"by": "x:y"}, "No reranker is named 'x'"),
        ("rerank:bm25:{}/a", {"by": "endpoint:http://x", "window": "3"}, "'window'"),
        ("rerank:bm25:{}/a", {"by": "endpoint:http://x", "depth": "0"}, "depth is 0"),
    ],
)
def test_what_does_not_fit_is_one_line(folder, name, options, words):
    with pytest.raises(BadInput, match=words) as refused:
        names.open_retriever(name.format(folder), options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("fusion = 'rrf'", r"no \[\[retriever\]\]"),
        ("retriever = 3", "must be a list"),
        ("[[retriever]]\nweight = 1", "name missing"),
        ("[[retriever]]\nname = 'bm25:x'\nwidth = 2", "unknown key .*width"),
        ("[[retriever]]\nname = 'bm25:x'\nweight = 'a'", "must be a number"),
        ("x = [", "not TOML"),
        ("[[retriever]]\nname = 'hybrid:self.toml'", "opens itself"),
    ],
)
def test_a_file_that_says_something_else_is_one_line(folder, monkeypatch, content, words):
    monkeypatch.chdir(folder)
    (folder / "self.toml").write_text(content)
    with pytest.raises(BadInput, match=words) as refused:
        names.open_retriever("hybrid:self.toml")
    assert "\n" not in str(refused.value)


def test_different_corpora_are_refused_unless_that_is_wanted(folder):
    name = f"hybrid:bm25:{folder}/a+bm25:{folder}/other"
    with pytest.raises(CorpusError, match="hold different corpora"):
        names.open_retriever(name)
    assert names.open_retriever(name, {"same_corpus": "false"}).manifest.passages == 3


def test_the_command_line_searches_with_them(folder, multihop):
    name = f"hybrid:bm25:{folder}/a+bm25:{folder}/b+c"
    done = multihop("search", "Danube river", "--retriever", name, "-k", "1", "--json")
    assert done.code == 0
    assert json.loads(done.out)["id"] == "2"

    by = f"by=listwise:scripted:{folder}/script.json"
    arguments = ["--retriever", f"rerank:bm25:{folder}/a", "--retriever-option", by]
    done = multihop("search", "Danube river", *arguments)
    assert "LM calls: 1" in done.err
    assert multihop("doctor", *arguments).out.count("answers, 3 passages (0 hit)") == 1

    done = multihop("search", "Danube", "--retriever", name, "--form", "text")
    assert done.code == 2
    assert "No option of retriever 'hybrid' is named 'form'" in done.err
    done = multihop("search", "Danube", "--retriever", "http:http://127.0.0.1:9/x")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "cannot be reached" in done.err
    assert multihop("search", "Danube").code == 2


def test_ask_counts_the_calls_of_a_reranker(folder, multihop):
    by = f"by=listwise:scripted:{folder}/script.json"
    done = multihop(
        *("ask", "Where is the river Danube?", "-m", f"scripted:{folder}/script.json", "--json"),
        *("-s", "oner", "--retriever", f"rerank:bm25:{folder}/a", "--retriever-option", by),
    )
    steps = [json.loads(line) for line in done.out.splitlines()]
    assert "rerank" in done.out, done.err
    assert steps


def test_a_run_records_what_a_file_says_so_that_another_file_is_another_run(folder, multihop):
    script, questions = f"scripted:{folder}/script.json", folder / "questions.jsonl"
    questions.write_text('{"question": "Where is the Danube?", "answers": ["x"]}\n')
    arguments = ("eval", str(questions), "-m", script, "-s", "oner", "--into", str(folder / "run"))
    file = folder / "hybrid.toml"
    for weight, code in (("1", 0), ("1", 0), ("2", 2)):
        file.write_text(f"""
[[retriever]]
name = "bm25:{folder}/a"
options = {{ form = "text" }}
[[retriever]]
name = "bm25:{folder}/b+c"
weight = {weight}
""")
        done = multihop(*arguments, "--retriever", f"hybrid:{file}")
        assert done.code == code, done.err
    assert "parts.retriever.members" in done.err
