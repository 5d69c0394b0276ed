"""What calls cost: counted where the backend tells, estimated where it does not."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihop.cost import HIGHEST, Cost, Price, Prices
from multihop.errors import BadInput
from multihop.trace import Answer, LMCall, Search, Thought, Titles, Tokens

PRICES = Prices({"m": Price(prompt=2.0, generated=8.0, cached=0.5, call=0.001)})


def call(prompt=1000, generated=100, cached=None, **more):
    tokens = Tokens(prompt, cached, generated)
    return replace(LMCall("reason", "m", "p", ("o",), ("stop",), 0.5, tokens), **more)


def money(*calls, prices=PRICES):
    return sum(Cost.of_call(each, prices).money for each in calls)


# --- Calls ----------------------------------------------------------------------------------


def test_a_call_costs_what_its_tokens_and_the_request_cost():
    cost = Cost.of_call(call(cached=600), PRICES)
    assert (cost.calls, cost.tokens, cost.seconds) == (1, 1100, 0.5)
    assert cost.money == pytest.approx(0.001 + (400 * 2 + 600 * 0.5 + 100 * 8) / 1e6)


def test_cached_tokens_cost_the_full_price_unless_told_and_priced_otherwise():
    plain = Prices({"m": Price(2.0, 8.0)})
    full = (1000 * 2 + 100 * 8) / 1e6
    assert money(call(cached=600), prices=plain) == pytest.approx(full)
    assert money(call(cached=None)) == pytest.approx(0.001 + full)
    free = Prices({"m": Price(2.0, 8.0, cached=0.0)})
    assert money(call(cached=1000), prices=free) == pytest.approx(100 * 8 / 1e6)


def test_more_cached_than_sent_is_never_a_gain():
    assert money(call(prompt=10, cached=50, generated=0)) == pytest.approx(0.001 + 10 * 0.5 / 1e6)


def test_a_count_that_is_not_told_is_estimated_from_the_text_and_never_0():
    silent = replace(call(None, None), prompt="über", outputs=("12345", "1234"), thinking="x")
    assert Cost.of_call(silent).tokens == 2 + (2 + 1 + 1)
    assert Cost.of_call(replace(silent, tokens=Tokens(generated=7))).tokens == 2 + 7
    assert Cost.of_call(replace(silent, tokens=Tokens(prompt=0))).tokens == 4
    assert Cost.of_call(replace(silent, prompt="\ud800")).tokens == 1 + 4  # half a character


def test_a_replayed_call_costs_nothing_but_its_time():
    assert Cost.of_call(call(replayed=True), PRICES) == Cost(seconds=0.5)
    assert Cost.of_call(call(None, None, replayed=True, fused=True)) == Cost(seconds=0.5)


def test_a_fused_call_costs_only_what_it_generated():
    cost = Cost.of_call(call(fused=True), PRICES)
    assert (cost.calls, cost.tokens) == (0, 100)
    assert cost.money == pytest.approx(100 * 8 / 1e6)
    assert Cost.of_call(call(None, None, fused=True, outputs=("12345678",))).tokens == 2


def test_a_replayed_call_needs_no_price():
    assert Cost.of_call(call(replayed=True, model="other"), PRICES).money == 0


# --- Steps ----------------------------------------------------------------------------------


def test_all_calls_and_searches_of_all_steps_count():
    search = Search("q", (), (), (), seconds=2.0)
    steps = [
        Titles(("A",), (), (search, search), call()),
        search,
        Thought("t", call()),
        Thought("t"),
        Answer("a", "answered", call=call(), forced=call()),
    ]
    cost = Cost.of(steps, PRICES)
    assert (cost.calls, cost.tokens, cost.seconds) == (4, 4400, 8.0)
    assert cost.money == pytest.approx(4 * money(call()))
    assert Cost.of(steps).money == 0
    assert Cost.of([]) == Cost()


@given(st.lists(st.builds(call, st.integers(0, 9), st.integers(0, 9)), max_size=6), st.integers(0))
def test_steps_cost_the_same_at_once_and_one_after_another(calls, cut):
    steps = [Thought("t", each) for each in calls]
    whole = Cost.of(steps, PRICES)
    parts = Cost.of(steps[:cut], PRICES) + Cost.of(steps[cut:], PRICES)
    assert (whole.calls, whole.tokens) == (parts.calls, parts.tokens)
    assert whole.money == pytest.approx(parts.money)


# --- Price tables ---------------------------------------------------------------------------

TABLE = """
["openai:gpt-5-mini@https://eu.example/v1"]
prompt = 1
generated = 1

["openai:gpt-5-mini*"]
prompt = 0.25
cached = 0.025
generated = 2.0

["openai:*"]
prompt = 3
generated = 9
call = 0.01

["openai:gpt-5-nano"]
prompt = 0
generated = 0
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize(
    ("model", "prompt"),
    [
        ("openai:gpt-5-mini@https://eu.example/v1", 1),
        ("openai:gpt-5-mini@https://us.example/v1", 0.25),
        ("openai:gpt-5-mini", 0.25),
        ("openai:gpt-5-nano", 3),  # the pattern before it fits too
    ],
)
def test_the_first_entry_that_fits_counts(table, model, prompt):
    assert Prices.read(table).of(model).prompt == prompt


def test_fields_left_out_have_their_defaults(table):
    prices = Prices.read(table)
    assert prices.of("openai:x") == Price(3, 9, None, 0.01)
    assert prices.of("openai:gpt-5-mini") == Price(0.25, 2.0, 0.025, 0.0)


def test_a_name_with_brackets_names_itself():
    prices = Prices({"local:a[1].gguf": Price(1, 1)})
    assert prices.find("local:a[1].gguf")
    assert prices.find("local:a1.gguf")
    assert not prices.find("LOCAL:a1.gguf")  # case counts everywhere


def test_a_model_without_a_price_is_refused_with_its_name_and_the_file(table):
    assert Prices.read(table).find("local:x") is None
    with pytest.raises(BadInput, match=r"prices\.toml: no price for the model 'local:x'"):
        Prices.read(table).of("local:x")
    with pytest.raises(BadInput, match="'local:x'"):
        Cost.of_call(call(model="local:x"), Prices.read(table))


def test_the_table_of_some_models_holds_their_prices_alone(table):
    only = Prices.read(table).only("openai:gpt-5-mini", "local:x")
    assert only.to_dict() == {
        "openai:gpt-5-mini": {"prompt": 0.25, "generated": 2.0, "cached": 0.025, "call": 0.0}
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[openai:x]\nprompt = 1\n", r'not TOML.*quoted, as \["openai:gpt-5\*"\]'),
        ("[gpt-5.5]\nprompt = 1\ngenerated = 1\n", "'gpt-5' has an unknown field '5'"),
        ('["m"]\nprompt = 1\n', "'m' has no field 'generated'"),
        ('["m"]\nprompt = 1\ngenerated = 1\ncache = 1\n', "unknown field 'cache'"),
        ('["m"]\nprompt = -1\ngenerated = 1\n', "'m': The price prompt is -1"),
        ('["m"]\nprompt = 1\ngenerated = "2"\n', "'m': The price generated is '2'"),
        ('["m"]\nprompt = 1\ngenerated = true\n', "'m': The price generated is True"),
        ('["m"]\nprompt = nan\ngenerated = 1\n', "'m': The price prompt is nan"),
        ('["m"]\nprompt = 1\ngenerated = 1\ncached = inf\n', "'m': The price cached is inf"),
        ("prompt = 1\n", "'prompt' is no table of prices"),
        ('["m"]\nprompt = 1e308\ngenerated = 1\n', r"1e\+308; it is a number from 0 to 1e\+12"),
        (f'["m"]\nprompt = {"9" * 400}\ngenerated = 1\n', r"prompt is 9{80}\.\.\.; it is"),
        (f'["m"]\nprompt = {"9" * 5000}\ngenerated = 1\n', "not TOML.*limit"),
        (f'["m"]\nprompt = 0x{"f" * 5000}\ngenerated = 1\n', "prompt is a number of thousands"),
        ('["m"]\nprompt = 2026-02-30\n', "not TOML"),
        ("a = " + "[" * 100_000, "not TOML.*recursion"),
    ],
)
def test_a_table_that_says_something_else_is_refused(tmp_path, content, words):
    path = tmp_path / "prices.toml"
    path.write_text(content)
    with pytest.raises(BadInput, match=words) as refused:
        Prices.read(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_sums_of_the_highest_prices_are_numbers():
    most = Price(*[HIGHEST] * 4)
    assert most.of(calls=10**9, prompt=10**12, cached=0, generated=10**12) < 1e25


def test_a_byte_order_mark_is_no_part_of_a_table(tmp_path):
    (tmp_path / "prices.toml").write_bytes(b'\xef\xbb\xbf["m"]\r\nprompt = 1\r\ngenerated = 2\r\n')
    assert Prices.read(tmp_path / "prices.toml").of("m") == Price(1, 2)


def test_a_missing_table_and_one_that_is_no_text_are_refused(tmp_path):
    with pytest.raises(BadInput, match="there is no such price table"):
        Prices.read(tmp_path / "none.toml")
    (tmp_path / "prices.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="not TOML"):
        Prices.read(tmp_path / "prices.toml")


def test_seconds_of_calls_inside_a_search_are_counted_once():
    call = LMCall("rerank", "m", "p", ("x",), ("stop",), 1.5, Tokens(3, 0, 1))
    search = Search("q", (), (), (), seconds=2.0, calls=(call,))
    assert Cost.of([search]) == Cost(calls=1, tokens=4, seconds=2.0)
    side_by_side = replace(search, calls=(call, call))
    assert Cost.of([side_by_side]) == Cost(calls=2, tokens=8, seconds=3.0)
