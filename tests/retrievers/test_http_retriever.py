"""`http:URL`: what goes over the wire, and every way in which a server can be wrong."""

import json
import re
import threading
import time

import pytest
from search_server import Answer, Server, serving

from conftest import ROOT
from multihop.errors import BadInput, RetrieverError
from multihop.retrievers import endpoint
from multihop.retrievers.http import HttpRetriever
from multihop.retrievers.wire import (
    Identity,
    rankings_from_json,
    rankings_to_json,
    request_from_json,
    request_to_json,
)
from multihop.testing import ScriptedRetriever
from multihop.text import Hit, Passage, Query

ODD = Passage("x\x00", "t \ud800", "\udfff \U0001f600 שלום " + "y" * 1_000_000, {"page": [1, None]})


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    waited = []

    async def pause(seconds):
        waited.append(seconds)

    monkeypatch.setattr(endpoint, "pause", pause)
    return waited


def good(*ids: str) -> dict:
    return {
        "rankings": [[{"id": name, "text": name, "score": 9 - n} for n, name in enumerate(ids)]]
    }


async def test_any_text_goes_there_and_comes_back(server) -> None:
    query = Query("q \x00 \ud800 \U0001f600", titles=("t \ud800",))
    inner = ScriptedRetriever({query.text: [ODD]})
    server.respond = serving(inner, Identity("mine", 7, "abc"))
    retriever = HttpRetriever(server.url)
    assert retriever.manifest == Identity("mine", 7, "abc")
    assert await retriever.search([query], 3) == [[Hit(ODD, 3.0)]]
    assert inner.queries == [query]
    await retriever.aclose()


def test_requests_and_rankings_survive_json() -> None:
    queries = [Query(""), Query("a", ()), Query("\ud800", ("t",), by_title=True)]
    assert request_from_json(json.loads(json.dumps(request_to_json(queries, 3)))) == (queries, 3)
    rankings = [[Hit(ODD, 2.0), Hit(Passage("b", "", ""), -1.0)], [], []]
    data = json.loads(json.dumps(rankings_to_json(rankings)))
    assert rankings_from_json(data, [Query("a")] * 3, 2, "s") == rankings


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "A search is a JSON object"),
        ({"queries": [], "k": 0}, "k is 0"),
        ({"queries": [], "k": True}, "k is true"),
        ({"queries": [{"text": 1}], "k": 1}, r"queries\[0\] is .*\"text\""),
        ({"queries": [{"text": "", "titles": [1]}], "k": 1}, r"queries\[0\].titles is \[1\]"),
        ({"queries": [{"text": "", "by_title": 1}], "k": 1}, r"queries\[0\].by_title is 1"),
    ],
)
def test_a_search_that_is_none_is_refused_with_its_place(body, words) -> None:
    with pytest.raises(BadInput, match=words):
        request_from_json(body)


async def test_nothing_asked_sends_nothing_and_all_queries_go_together(server) -> None:
    server.respond = serving(ScriptedRetriever({}))
    retriever = HttpRetriever(server.url)
    assert retriever.manifest is None  # it does not answer GET
    assert await retriever.search([], 3) == []
    assert await retriever.search([Query("a"), Query("b")], 3) == [[], []]
    assert len(server.bodies) == 1
    with pytest.raises(BadInput, match="k is 0"):
        await retriever.search([Query("a")], 0)
    await retriever.aclose()
    with pytest.raises(RetrieverError, match="was closed"):
        await retriever.search([Query("a")], 3)


async def test_the_key_goes_as_a_header_and_is_never_shown(server, monkeypatch) -> None:
    monkeypatch.setenv("MULTIHOP_RETRIEVER_KEY", "s3cret-key")
    monkeypatch.setenv("OTHER", "Basic dTpw")
    for name, sent in [("MULTIHOP_RETRIEVER_KEY", "Bearer s3cret-key"), ("OTHER", "Basic dTpw")]:
        retriever = HttpRetriever(server.url, key_env=name)
        server.answers = [Answer({"error": f"what is {sent}?"}, 401)]
        with pytest.raises(RetrieverError, match=f"answers 401.*Check the key in {name}") as failed:
            await retriever.search([Query("a")], 1)
        assert server.headers[-1]["authorization"] == sent
        assert sent.split()[1] not in str(failed.value)
        await retriever.aclose()


WRONG = [
    (b"<html>no</html>", "no JSON"),
    (b"[" * 100_000, "no JSON"),
    ([], 'expected {"rankings"'),
    ({"rankings": []}, "0 rankings for 1 queries"),
    ({"rankings": [[], []]}, "2 rankings for 1 queries"),
    ({"rankings": [{}]}, r"rankings\[0\] is \{\}"),
    ({"rankings": [["x"]]}, r"rankings\[0\]\[0\] is \"x\""),
    ({"rankings": [[{"id": 1, "text": "", "score": 1}]]}, "id is 1; expected a text"),
    ({"rankings": [[{"id": "a", "score": 1}]]}, "text is null"),
    ({"rankings": [[{"id": "a", "text": "", "score": True}]]}, "score is true"),
    ({"rankings": [[{"id": "a", "text": ""}]]}, "score is null"),
    (b'{"rankings": [[{"id": "a", "text": "", "score": NaN}]]}', "score is NaN"),
    (b'{"rankings": [[{"id": "a", "text": "", "score": 1e999}]]}', "score is Infinity"),
    (
        b'{"rankings": [[{"id": "a", "text": "", "score": 1' + b"0" * 400 + b"}]]}",
        "expected a finite number",
    ),
    ({"rankings": [[{"id": "a", "text": "", "score": 1, "metadata": []}]]}, "metadata is"),
    ({"rankings": [good("a", "a")["rankings"][0]]}, 'the id "a" is there twice'),
    ({"rankings": [good("a", "b")["rankings"][0][::-1]]}, "higher score than the hit before"),
]


@pytest.mark.parametrize(("body", "words"), WRONG)
async def test_an_answer_that_is_none_is_one_clear_line_never_fewer_hits(
    server, body, words
) -> None:
    retriever = HttpRetriever(server.url)
    server.answers = [Answer(body)]
    with pytest.raises(RetrieverError, match=words) as failed:
        await retriever.search([Query("a")], 5)
    assert str(failed.value).startswith(f"http:{server.url}")
    assert "\n" not in str(failed.value)
    assert len(str(failed.value)) < 500
    await retriever.aclose()


async def test_titles_that_are_not_honoured_are_an_error_and_a_long_ranking_is_cut(server) -> None:
    retriever = HttpRetriever(server.url)
    server.answers = [Answer(good("a", "b", "c")), Answer(good("a"))]
    [hits] = await retriever.search([Query("q")], 2)
    assert [hit.passage.id for hit in hits] == ["a", "b"]
    with pytest.raises(RetrieverError, match="which the query does not allow"):
        await retriever.search([Query("q", titles=("T",))], 2)
    await retriever.aclose()


async def test_broken_connections_and_busy_servers_are_asked_again(server, quick) -> None:
    retriever = HttpRetriever(server.url)
    server.answers = [Answer(cut=True), Answer({}, 503, {"retry-after": "3"}), Answer(good("a"))]
    [hits] = await retriever.search([Query("q")], 2)
    assert len(hits) == 1
    assert len(quick) == 2
    assert quick[1] == 3.0
    await retriever.aclose()


@pytest.mark.parametrize(
    ("answer", "attempts", "words"),
    [
        (Answer({"error": "slow down"}, 429), 3, "answers 429: .*slow down.*asked 3 times"),
        (Answer({}, 429, {"retry-after": "3600"}), 1, "asks to wait 3600 s"),
        (Answer("line\none", 500), 1, "answers 500"),
        (Answer({}, 404), 1, "answers 404.*Check the address"),
        (Answer(cut=True), 3, "cannot be reached"),
        (Answer({}, 302, {"location": "/elsewhere"}), 1, "answers 302"),
    ],
)
async def test_a_server_that_fails_is_one_clear_line(server, answer, attempts, words) -> None:
    retriever = HttpRetriever(server.url)
    server.answers = [answer] * 3
    with pytest.raises(RetrieverError, match=words) as failed:
        await retriever.search([Query("q")], 2)
    assert len(server.bodies) == attempts
    assert "\n" not in str(failed.value)
    await retriever.aclose()


async def test_a_slow_server_is_not_waited_for_twice(server) -> None:
    retriever = HttpRetriever(server.url, timeout=0.3)
    server.answers = [Answer({}, delay=1.0)]
    began = time.perf_counter()
    with pytest.raises(RetrieverError, match=r"no answer within 0.3 s"):
        await retriever.search([Query("q")], 2)
    assert time.perf_counter() - began < 0.9
    assert len(server.bodies) == 1
    await retriever.aclose()


def test_a_server_that_is_down_or_says_nonsense_is_seen_when_it_is_opened(server) -> None:
    server.respond = lambda *_: Answer({"passages": -1})
    with pytest.raises(RetrieverError, match="GET gives"):
        HttpRetriever(server.url)
    with pytest.raises(RetrieverError, match=r"cannot be reached.*Check the address"):
        HttpRetriever("http://127.0.0.1:9/search")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is no address"),
        ("ftp://host/x", "is no address"),
        ("http://", "is no address"),
        ("http://host:port/", "is no address"),
        ("http://u:pw@host/", "holds a user name or a password"),
    ],
)
def test_an_address_that_is_none_or_holds_a_password_is_refused(url, words) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        HttpRetriever(url)
    assert "pw" not in str(refused.value).replace("password", "")


async def test_one_retriever_serves_several_event_loops(server) -> None:
    import asyncio

    retriever = HttpRetriever(server.url)
    server.respond = lambda *_: Answer(good("a"))

    def elsewhere():
        async def ask():
            found = await retriever.search([Query("q")], 1)
            await retriever._endpoint._client.aclose()
            return found

        return asyncio.run(ask())

    assert await asyncio.to_thread(elsewhere) == await retriever.search([Query("q")], 1)
    await retriever.aclose()


async def test_the_server_in_the_docs_serves_as_printed() -> None:
    page = (ROOT / "docs" / "retrieval.md").read_text("utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names: dict = {"__name__": "example"}
    exec(compile(block, "docs/retrieval.md", "exec"), names)
    names["Search"].log_message = lambda *args: None
    with names["serve"](0) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        retriever = HttpRetriever(f"http://127.0.0.1:{running.server_port}/search")
        found = await retriever.search([Query("a city on the Danube."), Query("sea")], 1)
        assert [[hit.passage.id for hit in hits] for hits in found] == [["1"], []]
        with pytest.raises(RetrieverError, match=r"answers 400.*k is"):
            await retriever._endpoint.post({"queries": [], "k": 0})
        await retriever.aclose()
        running.shutdown()
        thread.join()
