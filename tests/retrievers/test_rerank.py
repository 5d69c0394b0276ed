"""Reranking: the wrapper, models that order or answer yes and no, endpoints."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_server import Answer, Server

from multihop.cost import Cost
from multihop.errors import BadCompletion, BadInput, ContextTooLong, LMRefused, RetrieverError
from multihop.lms.base import Piece
from multihop.retrievers import endpoint
from multihop.retrievers.base import Ranking, Reranker, calls_made, warnings_of
from multihop.retrievers.cutting import cut
from multihop.retrievers.rerank import Reranked
from multihop.retrievers.rerank_endpoint import EndpointReranker
from multihop.retrievers.rerank_lm import ListwiseReranker, YesNoReranker, named, order_in
from multihop.strategies.collect import Collected, look_up
from multihop.testing import ScriptedLM, ScriptedRetriever
from multihop.text import Hit, Passage, Query
from multihop.trace import Tokens

Q = Query("Who?")


def passages(count: int) -> list[Passage]:
    return [Passage(str(n), "", f"passage {n}") for n in range(count)]


def hits(count: int) -> list[Hit]:
    return [Hit(p, float(count - n)) for n, p in enumerate(passages(count))]


def ids(ranking) -> list[str]:
    return [hit.passage.id for hit in ranking]


# --- The wrapper ----------------------------------------------------------------------------


class Backwards:
    """Turns rankings round."""

    name = "backwards"

    def __init__(self, change=lambda ranking: ranking):
        self.change = change
        self.asked = []
        self.closed = 0

    async def rerank(self, queries, rankings, k):
        self.asked.append((list(queries), [ids(r) for r in rankings], k))
        return [self.change(Ranking(list(reversed(r))[:k], (), ["turned"])) for r in rankings]

    async def aclose(self):
        self.closed += 1


async def test_more_hits_are_fetched_than_wanted_and_the_best_of_them_stay():
    inner, backwards = ScriptedRetriever({"Who?": passages(9)}), Backwards()
    reranked = Reranked(inner, backwards, depth=4)
    [ranking] = await reranked.search([Q], 2)
    assert ids(ranking) == ["3", "2"]
    assert warnings_of(ranking) == ("turned",)
    [ranking] = await reranked.search([Q], 6)
    assert ids(ranking) == ["5", "4", "3", "2", "1", "0"]
    await reranked.aclose()
    assert backwards.closed == 1
    assert isinstance(backwards, Reranker)


async def test_what_found_nothing_or_looks_for_a_title_is_not_reranked():
    inner, backwards = ScriptedRetriever({"Who?": passages(3)}), Backwards()
    title = replace(Q, by_title=True)
    nothing, found, by_title = await Reranked(inner, backwards).search([Query("x"), Q, title], 2)
    assert (ids(nothing), ids(found), ids(by_title)) == ([], ["2", "1"], ["0", "1"])
    assert backwards.asked == [([Q], [["0", "1", "2"]], 2)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r[:1], "gave 1 different hits, 1 in all, where 2 of 3"),
        (lambda r: [r[0], r[0]], "gave 1 different hits, 2 in all"),
        (lambda r: [r[0], Hit(Passage("new", "", ""), 1.0)], "the passage 'new'"),
    ],
)
async def test_a_reranker_loses_nothing_and_makes_nothing_up(change, words):
    inner = ScriptedRetriever({"Who?": passages(3)})
    with pytest.raises(RetrieverError, match=words):
        await Reranked(inner, Backwards(change)).search([Q], 2)


def test_a_depth_below_one_is_refused():
    with pytest.raises(BadInput, match="depth is 0"):
        Reranked(ScriptedRetriever({}), Backwards(), depth=0)


# --- The order that a text states -----------------------------------------------------------


@given(
    st.text(st.characters(codec=None)) | st.from_regex(r"(\[?[0-9]{1,5}\]?[ >,]*)*"),
    st.integers(0, 30),
)
def test_any_text_states_a_permutation(text, n):
    assert sorted(order_in(text, n)) == list(range(n))
    assert order_in(text, n)[: len(named(text, n))] == named(text, n)


@given(st.permutations(range(12)))
def test_a_permutation_that_was_written_is_read(order):
    for form in ("[{}]", "{}", "**[{}]**", "[ {} ]"):
        text = "Here are the 12: " * ("[" in form) + " > ".join(form.format(n + 1) for n in order)
        assert order_in(text, 12) == order


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("[2] > [9] > [2] > [1]", [1, 0, 2]),
        ("The 3 passages: [2] > [1]", [1, 0, 2]),
        ("3, 1", [2, 0, 1]),
        ("[3, 1, 2]", [2, 0, 1]),
        ("9" * 5000 + " [0] [-1]", [0, 1, 2]),
        ("２ and ٣", [0, 1, 2]),
        ("", [0, 1, 2]),
    ],
)
def test_what_is_no_passage_and_what_is_repeated_is_passed_over(text, order):
    assert order_in(text, 3) == order


# --- A model that orders --------------------------------------------------------------------


def best_last(request) -> str:
    """Orders by the number in the passages, highest first."""
    shown = [line for line in request.prompt.text.splitlines() if line.startswith("[")]
    order = sorted(range(len(shown)), key=lambda n: -int(shown[n].split()[-1]))
    return " > ".join(f"[{n + 1}]" for n in order)


async def test_a_good_passage_rises_through_all_windows():
    lm = ScriptedLM(respond=best_last)
    [ranking] = await ListwiseReranker(lm, window=4, stride=2).rerank([Q], [hits(9)], 3)
    assert ids(ranking)[0] == "8"
    assert [hit.score for hit in ranking] == [1.0, 1 / 2, 1 / 3]
    assert [p.count("\n\n[") for p in lm.prompts] == [4, 4, 4, 3]  # 9, then up by 2 each
    assert "passage 8" in lm.prompts[0]
    assert all(lm.prompts[-1].count(f"passage {n}") == 1 for n in (0, 8))
    assert len(calls_made(ranking)) == 4
    assert {request.role for request in lm.requests} == {"rerank"}
    assert warnings_of(ranking) == ()


async def test_generation_ends_once_every_passage_is_named():
    lm = ScriptedLM("[2] > [1] > [3] and then a long speech " * 9, pieces=3)
    [ranking] = await ListwiseReranker(lm).rerank([Q], [hits(3)], 3)
    assert ids(ranking) == ["1", "0", "2"]
    assert lm.closed_early == 1
    assert calls_made(ranking)[0].finishes == ("cut",)


async def test_a_reply_that_says_nothing_keeps_the_order_and_is_reported():
    lm = ScriptedLM("I cannot.", "[2]")
    reranker = ListwiseReranker(lm, at_once=1)
    one, two = await reranker.rerank([Q, Q], [hits(3), hits(3)], 3)
    assert (ids(one), ids(two)) == (["0", "1", "2"], ["1", "0", "2"])
    for ranking in (one, two):
        [warning] = warnings_of(ranking)
        assert "1 of 1 replies did not name every passage" in warning


async def test_a_single_hit_and_none_take_no_call():
    lm = ScriptedLM()
    one, none = await ListwiseReranker(lm).rerank([Q, Q], [hits(1), []], 3)
    assert (ids(one), ids(none)) == (["0"], [])


async def test_passages_are_cut_by_the_models_own_tokens_and_reported():
    lm = ScriptedLM(respond=lambda request: "[1] [2]")
    long = [Hit(Passage("0", "T", "word " * 1000), 2.0), Hit(Passage("1", "", "short \ud800"), 1.0)]
    [ranking] = await ListwiseReranker(lm, passage_tokens=20).rerank([Q], [long], 2)
    assert [hit.passage for hit in ranking] == [hit.passage for hit in long]
    assert warnings_of(ranking) == ("listwise:scripted: 1 of 2 passages were cut to 20 tokens.",)
    assert 15 <= lm.prompts[0].count("word") <= 19
    assert "\ud800" not in lm.prompts[0]


async def test_a_small_window_shows_less_of_each_passage_or_says_that_it_cannot():
    long = [Hit(Passage(str(n), "", "word " * 1000), 1.0) for n in range(4)]
    lm = ScriptedLM(respond=lambda request: "[1] [2] [3] [4]", window=300)
    [ranking] = await ListwiseReranker(lm).rerank([Q], [long], 2)
    [request] = lm.requests
    assert len(request.prompt.text.split()) + request.max_tokens + 64 <= 300
    assert "4 of 4 passages were cut" in warnings_of(ranking)[0]
    with pytest.raises(ContextTooLong, match="4 passages do not fit the model's window of 160"):
        await ListwiseReranker(ScriptedLM(window=160)).rerank([Q], [long], 2)


async def test_the_failure_of_a_model_is_never_the_old_order():
    with pytest.raises(LMRefused):
        await ListwiseReranker(ScriptedLM(LMRefused("no"))).rerank([Q], [hits(3)], 2)


@pytest.mark.parametrize(
    "settings",
    [
        {"window": 1},
        {"stride": 0},
        {"window": 4, "stride": 5},
        {"passage_tokens": 0},
        {"at_once": 0},
    ],
)
def test_listwise_settings_out_of_range_are_refused(settings):
    with pytest.raises(BadInput):
        ListwiseReranker(ScriptedLM(), **settings)


async def test_calls_and_warnings_stand_in_the_trace_of_whoever_searches():
    inner = ScriptedRetriever({"Who?": passages(3)})
    reranked = Reranked(inner, ListwiseReranker(ScriptedLM("[3]")))
    search = await look_up(reranked, "Who?", 2, Collected(15, lambda passage, others: False))
    assert search.kept == ("2", "0")
    assert [call.role for call in search.calls] == ["rerank"]
    assert len(search.warnings) == 1
    assert Cost.of([search]).calls == 1


# --- A model that says yes or no ------------------------------------------------------------


class Sure:
    """Says one word with a probability, by the passage's text."""

    name = "sure"
    window = None

    def __init__(self, says):
        self.says = says
        self.requests = []

    async def stream(self, request):
        self.requests.append(request)
        text = request.prompt.text.split("Passage: ")[1].split("\n")[0]
        word, p = self.says[text]
        logprobs = () if p is None else (math.log(p),)
        yield Piece(word, finish="length", logprobs=logprobs, tokens=Tokens(5, 0, 1))

    async def count_tokens(self, texts):
        return [len(text.split()) for text in texts]

    async def aclose(self):
        pass


async def test_the_surer_the_model_the_better_the_place():
    says = {"passage 0": ("No", 0.9), "passage 1": (" yes", 0.6), "passage 2": ("Yes", 0.8),
            "passage 3": ("no", 0.5), "passage 4": ("Maybe", 0.9)}  # fmt: skip
    lm = Sure(says)
    [ranking, none] = await YesNoReranker(lm).rerank([Q, Q], [hits(5), []], 5)
    assert ids(ranking) == ["2", "1", "4", "3", "0"]
    assert [hit.score for hit in ranking] == pytest.approx([1.8, 1.6, 1.0, 0.5, 0.1])
    assert warnings_of(ranking) == ("yes-no:sure: 1 of 5 replies said neither yes nor no.",)
    assert len(calls_made(ranking)) == 5
    assert none == []
    assert {(r.max_tokens, r.logprobs, r.temperature) for r in lm.requests} == {(1, True, 0.0)}


async def test_a_model_without_log_probabilities_is_refused_with_what_to_do():
    with pytest.raises(BadCompletion, match=r"no log-probabilities\. Rerank with listwise:"):
        await YesNoReranker(Sure({"passage 0": ("Yes", None)})).rerank([Q], [hits(1)], 1)


# --- Cutting --------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(codec=None), max_size=300), max_size=4), st.integers(1, 40))
async def test_cut_texts_are_beginnings_that_fit(texts, limit):
    async def count(given):
        return [len(text.encode("utf-8", "surrogatepass")) for text in given]

    found, many = await cut(texts, limit, count)
    assert many == sum(a != b for a, b in zip(found, texts, strict=True))
    for short, whole in zip(found, texts, strict=True):
        assert whole.startswith(short)
        assert (await count([short]))[0] <= limit
        if (await count([whole]))[0] <= limit:
            assert short == whole


# --- Endpoints ------------------------------------------------------------------------------


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    async def pause(seconds):
        pass

    monkeypatch.setattr(endpoint, "pause", pause)


def results(*scores, key="relevance_score"):
    return {"results": [{"index": n, key: s} for n, s in enumerate(scores)][::-1]}


async def test_an_endpoint_is_asked_in_the_common_shape(server):
    server.answers = [Answer(results(0.1, 0.9, 0.5))]
    reranker = EndpointReranker(server.url, "m", body={"truncate": True})
    odd = [Hit(Passage("0", "T \ud800", "x\x00"), 1.0), *hits(3)[1:]]
    [ranking] = await reranker.rerank([Q], [odd], 2)
    assert [(hit.passage, hit.score) for hit in ranking] == [
        (odd[1].passage, 0.9),
        (odd[2].passage, 0.5),
    ]
    assert server.bodies == [
        {
            "model": "m",
            "query": "Who?",
            "documents": ["T \ud800\nx\x00", "passage 1", "passage 2"],
            "top_n": 3,
            "return_documents": False,
            "truncate": True,
        }
    ]
    await reranker.aclose()


async def test_text_embeddings_inference_is_asked_in_its_own_shape_and_in_batches(server):
    server.answers = [
        Answer(results(-3.0, 2.0, key="score")["results"]),
        Answer(results(0.0, key="score")["results"]),
    ]
    reranker = EndpointReranker(server.url, shape="tei", batch=2, at_once=1)
    [ranking, none] = await reranker.rerank([Q, Q], [hits(3), []], 3)
    assert [(hit.passage.id, hit.score) for hit in ranking] == [("1", 2.0), ("2", 0.0), ("0", -3.0)]
    assert none == []
    assert server.bodies[0] == {"query": "Who?", "texts": ["passage 0", "passage 1"]}
    await reranker.aclose()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(results(0.1)), "1 results for 2 passages"),
        (Answer(results(0.1, 0.2, 0.3)), "3 results for 2 passages"),
        (Answer({"results": [{"index": 0, "relevance_score": 1}] * 2}), r"results\[1\]: index is 0"),
        (Answer({"results": [{"relevance_score": 1}] * 2}), r"results\[0\]: index is None"),
        (Answer({"results": [{"index": 7, "relevance_score": 1}] * 2}), "index is 7; expected each of 0 to 1"),
        (Answer({"results": [{"index": True, "relevance_score": 1}] * 2}), "index is True"),
        (Answer(results(0.1, "high")), "relevance_score is .high"),
        (Answer(results(0.1, math.nan)), "relevance_score is NaN"),
        (Answer({"results": ["x", "y"]}), r"results\[0\] is no object"),
        (Answer({"data": []}), "no list of results"),
        (Answer([]), "no list of results"),
        (Answer(b"{"), "no JSON"),
        (Answer({"message": "too many"}, 429), "answers 429: .*too many.*asked 3 times"),
        (Answer({}, 401), "Check the key in MULTIHOP_RERANK_KEY"),
        (Answer({}, delay=1.0), "no answer within 0.3 s"),
    ],
)  # fmt: skip
async def test_an_endpoint_that_is_wrong_is_one_clear_line(server, answer, words):
    server.answers = [answer] * 3
    reranker = EndpointReranker(server.url, timeout=0.3)
    with pytest.raises(RetrieverError, match=words) as failed:
        await reranker.rerank([Q], [hits(2)], 2)
    assert str(failed.value).startswith(f"endpoint:{server.url}: ")
    assert "\n" not in str(failed.value)
    await reranker.aclose()


@pytest.mark.parametrize("settings", [{"shape": "jina"}, {"batch": 0}, {"at_once": 0}])
def test_endpoint_settings_out_of_range_are_refused(settings):
    with pytest.raises(BadInput):
        EndpointReranker("http://localhost/rerank", **settings)
