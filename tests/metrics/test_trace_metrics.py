from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihop.cost import Price, Prices
from multihop.errors import BadInput
from multihop.metrics import METRICS, metric, money
from multihop.metrics.support import collected_passages
from multihop.text import Hit, Passage, Question
from multihop.trace import Answer, LMCall, Search, Thought, Titles, Tokens, Trace, fold

MILL = Passage("m", "Brask Mill", "The mill was built by Jon Brask.")
BRASK = Passage("b", "Jon Brask", "Jon Brask was born in Lund.")
ODE = Passage("o", "Ode", "A river.")


def call(prompt=None, generated=None, **more):
    tokens = Tokens(prompt=prompt, cached=None, generated=generated)
    return LMCall("reason", "scripted", "Q", ("A",), ("stop",), 0.1, tokens=tokens, **more)


def search(query, *hits, collected):
    return Search(query, tuple(Hit(p, 1.0) for p in hits), tuple(p.id for p in hits), collected)


def question(dataset=None, **more):
    fields = {
        "answers": ("Lund",),
        "gold_ids": ("m", "b"),
        "gold_titles": ("Brask Mill", "Jon Brask"),
    }
    extra = {"dataset": dataset} if dataset else {}
    extra |= more.pop("extra", {})
    return Question("Where was the builder of Brask Mill born?", **(fields | more), extra=extra)


def two_hops(asked=None, answer="Lund", **more):
    return fold(
        asked or question(),
        "ircot",
        [
            search("Where?", ODE, MILL, collected=("o", "m")),
            Thought("Jon Brask built it.", call(10, 5)),
            search("Jon Brask built it.", BRASK, MILL, collected=("o", "m", "b")),
            Thought("So the answer is: Lund.", call(20, 6, fused=True)),
            Answer(answer, "answered", call=call(30, 2), **more),
        ],
    )


def scores(trace, *names):
    return [metric(name)(trace) for name in names]


def test_the_answer_is_scored():
    assert scores(two_hops(), "em", "f1", "precision", "recall") == [1, 1, 1, 1]
    assert scores(two_hops(answer="in Lund"), "em", "precision", "recall") == [0, 0.5, 1]


def test_each_data_set_has_its_own_answer_metric():
    def f1(dataset, gold):
        return metric("f1")(two_hops(question(dataset, answers=(gold,)), answer="yes it is"))

    assert f1("hotpotqa", "yes") == f1("2wikimultihopqa", "yes") == 0
    assert f1("musique", "yes") == f1("bamboogle", "yes") == f1(None, "yes") == 0.5
    assert f1("iirc", "yes yes") == 0.5  # sets: "yes" counts once on both sides


def test_a_list_answer_is_joined_for_text_metrics_and_kept_for_iirc():
    lists = {"answers": ("Lund, Tarn",), "extra": {"answer_parts": ["Lund", "Tarn"]}}
    given_ = {"answer": '["Tarn", "Lund"]', "answers": ("Tarn", "Lund")}
    assert metric("f1")(two_hops(question(**lists), **given_)) == 1
    assert metric("em")(two_hops(question(**lists), **given_)) == 0
    assert metric("em")(two_hops(question("iirc", **lists), **given_)) == 1
    assert metric("drop_em")(two_hops(question(**lists), **given_)) == 1


def test_accepted_answers_are_alternatives_for_drop():
    asked = question(answers=("Lund", "Lund, Sweden"))
    assert metric("drop_f1")(two_hops(asked, answer="Lund Sweden")) == 1


def test_an_empty_answer_is_scored_and_a_failed_run_is_not():
    failed = Trace(question(), "ircot", steps=(Thought("x"),), error="LMUnavailable: gone")
    assert scores(two_hops(answer="", reason="none"), "em", "f1", "failed") == [0, 0, 0]
    assert scores(failed, "em", "f1", "gold_recall", "support_f1", "title_recall") == [None] * 5
    assert metric("failed")(failed) == 1


def test_what_has_no_gold_has_no_score():
    unknown = two_hops(question(answers=(), gold_ids=(), gold_titles=()))
    names = ("em", "drop_f1", "gold_recall", "all_gold@5", "title_recall", "support_em")
    assert scores(unknown, *names) == [None] * 6


def test_gold_recall_is_counted_in_the_order_of_collecting():
    trace = two_hops()
    assert scores(trace, "gold_recall@1", "gold_recall@2", "gold_recall@3") == [0, 0.5, 1]
    assert scores(trace, "gold_recall", "all_gold", "all_gold@2") == [1, 1, 0]
    assert scores(trace, "title_recall@2", "title_recall") == [0.5, 1]


def test_gold_given_as_text_is_found_whatever_the_corpus_calls_it():
    gold = [{"title": "BRASK MILL", "text": MILL.text}, {"title": "Jon Brask", "text": "Else."}]
    trace = two_hops(question(gold_ids=(), extra={"gold_paragraphs": gold}))
    assert scores(trace, "para_recall", "para_recall@1", "gold_recall") == [0.5, 0, None]
    assert metric("para_recall")(two_hops()) is None


def test_support_compares_collected_with_gold():
    assert scores(two_hops(), "support_em", "support_precision", "support_f1") == [
        0,
        pytest.approx(2 / 3),
        pytest.approx(0.8),
    ]


def test_costs_are_counted():
    assert scores(two_hops(), "passages", "steps", "searches", "lm_calls") == [3, 2, 2, 3]
    assert scores(two_hops(), "prompt_tokens", "generated_tokens", "cached_tokens") == [
        60,
        13,
        None,
    ]


def told(*counts):
    """A chain whose calls tell these counts."""
    calls = [replace(call(), tokens=tokens) for tokens in counts]
    return fold(question(), "ircot", [Thought("It is so.", each) for each in calls])


def test_a_sum_over_calls_is_not_told_when_one_of_them_does_not_tell():
    names = ("prompt_tokens", "cached_tokens", "evaluated_tokens", "generated_tokens")
    whole = told(Tokens(30, 10, 2), Tokens(40, 30, 3))
    assert scores(whole, *names) == [70, 40, 30, 5]
    assert scores(told(Tokens(30, 10, 2), Tokens(40, None, 3)), *names) == [70, None, None, 5]
    assert scores(told(Tokens(30, 10, 2), Tokens()), *names) == [None] * 4


def test_a_call_reaches_the_model_when_it_is_neither_fused_nor_replayed():
    calls = [
        call(),
        call(fused=True),
        call(replayed=True),
        call(fused=True, replayed=True),  # a fused call's text, kept in a cache
    ]
    trace = fold(question(), "ircot", [Thought("A.", made) for made in calls])
    assert scores(trace, "lm_calls", "sent_calls", "replayed_calls") == [4, 1, 2]


def test_title_searches_count_and_unasked_ones_do_not():
    mapped = search("Brask", MILL, collected=())
    steps = [Titles(("Brask", "x"), ("Brask Mill",), (mapped, mapped)), search("", collected=())]
    assert metric("searches")(fold(question(), "ircot", steps)) == 2


def test_reading_at_once_takes_no_step():
    trace = fold(question(), "nor", [Answer("Lund", "answered", call=call())])
    assert scores(trace, "steps", "searches", "lm_calls", "gold_recall") == [0, 0, 1, 0]


def test_the_pinned_passage_is_among_the_collected():
    trace = fold(question(pinned=ODE), "ircot", [search("q", MILL, collected=("o", "m"))])
    assert collected_passages(trace) == (ODE, MILL)


def test_a_passage_that_no_search_brought_is_an_error():
    trace = fold(question(id="q7"), "ircot", [search("q", collected=("x",))])
    with pytest.raises(BadInput, match="'q7': passage 'x' was collected"):
        collected_passages(trace)


@pytest.mark.parametrize(
    "name", ["f2", "gold_recal@5", "gold_recall@0", "gold_recall@x", "em@5", "@3"]
)
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(BadInput, match=rf"No metric is named '{name}'.*Known: em, f1, "):
        metric(name)


def test_a_near_miss_is_suggested():
    with pytest.raises(BadInput, match="Did you mean 'gold_recall@N'"):
        metric("gold_recal@N")


def test_every_metric_takes_a_trace_alone_and_survives_its_journey_through_json():
    trace = two_hops()
    again = Trace.from_json(trace.to_json())
    for name in METRICS:
        assert metric(name)(again) == metric(name)(trace), name


@settings(deadline=None)  # the machine may be busy
@given(st.text(max_size=8), st.sampled_from(["hotpotqa", "iirc", "musique", ""]))
def test_every_share_lies_between_0_and_1(answer, dataset):
    trace = two_hops(question(dataset), answer=answer, reason="none")
    for name in ("em", "f1", "precision", "recall", "drop_em", "drop_f1"):
        assert 0 <= metric(name)(trace) <= 1


def test_money_is_what_the_models_that_were_asked_cost_by_the_users_table():
    trace = two_hops()  # 10 + 5, fused 6, 30 + 2
    measure = money(Prices({"scripted": Price(prompt=1e5, generated=1e6, call=100)}))
    assert measure(trace) == pytest.approx((10 + 30) * 0.1 + (5 + 6 + 2) + 2 * 100)
    assert money(Prices({"other": Price(1, 1)}))(trace) is None


def test_money_needs_no_price_of_a_model_that_was_not_asked():
    replayed = replace(call(10, 5), replayed=True)
    trace = fold(question(), "nor", [Answer("Lund", "answered", call=replayed)])
    assert money(Prices({}))(trace) == 0
