"""Examples in one row of tokens: each sees exactly what it would see alone."""

from hypothesis import given
from hypothesis import strategies as st

from multihop.training.examples import Example, Lesson
from multihop.training.packing import Tokens, fits, pack, tokenize

ids = st.lists(st.integers(0, 2), min_size=1, max_size=7).map(tuple)
examples = st.lists(
    st.builds(
        Tokens,
        ids,
        ids,
        st.sampled_from(["next", "read"]),
        st.sampled_from([0.5, 1.0, 2.0]),
    ),
    min_size=1,
    max_size=7,
)


def path(packed, place):
    found = []
    while place >= 0:
        found.append(place)
        place = packed.parents[place]
    return found[::-1]


@given(examples)
def test_each_token_sees_its_own_beginning_and_nothing_else(given_examples) -> None:
    for packed in pack(given_examples, 20):
        mask = packed.mask()
        for place in range(len(packed)):
            seen = path(packed, place)
            assert [at for at in range(len(packed)) if mask[place, at]] == seen
            assert [packed.positions[at] for at in seen] == list(range(len(seen)))


@given(examples, st.integers(1, 30))
def test_each_completion_is_predicted_once_after_its_own_prompt(given_examples, limit) -> None:
    fitting = [e for e in given_examples if fits(e, limit)]
    packs = list(pack(given_examples, limit))
    assert sum(packed.examples for packed in packs) == len(fitting)
    assert all(0 < len(packed) <= limit for packed in packs)
    wanted: dict = {}
    for e in fitting:
        for number, token in enumerate(e.completion):
            key = (e.prompt + e.completion[:number], token, e.skill)
            wanted[key] = wanted.get(key, 0) + e.weight
    found: dict = {}
    for packed in packs:
        for target in packed.targets:
            before = tuple(packed.ids[at] for at in path(packed, target.at))
            key = (before, target.token, target.skill)
            found[key] = found.get(key, 0) + target.weight
    assert found == wanted
    assert sum(packed.plain for packed in packs) == sum(
        len(e.prompt) + len(e.completion) - 1 for e in fitting
    )


@given(examples)
def test_no_two_places_hold_the_same_beginning(given_examples) -> None:
    for packed in pack(given_examples, 1000):
        beginnings = {tuple(packed.ids[at] for at in path(packed, p)) for p in range(len(packed))}
        assert len(beginnings) == len(packed)


def test_the_last_token_is_a_target_only() -> None:
    (packed,) = pack([Tokens((1, 2), (3, 4), "next"), Tokens((1, 2), (5,), "read", 2.0)], 9)
    assert packed.ids == (1, 2, 3)
    assert [(t.at, t.token, t.weight, t.skill) for t in packed.targets] == [
        (1, 3, 1.0, "next"),
        (1, 5, 2.0, "read"),
        (2, 4, 1.0, "next"),
    ]


def test_a_pack_that_is_full_is_followed_by_another_and_what_is_too_long_is_left_out() -> None:
    long = Tokens(tuple(range(10)), (1,), "next")
    short = [Tokens((n, n), (n, n), "next") for n in range(3)]
    packs = list(pack([short[0], long, *short[1:]], 6))
    assert [len(packed) for packed in packs] == [6, 3]
    assert [packed.examples for packed in packs] == [2, 1]


class Words:
    """A tokenizer of words that puts a mark before a text, and joins what is joined."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {"<s>": 0}

    def __call__(self, text, *, add_special_tokens):
        def ids(each: str) -> list[int]:
            words = (["<s>"] if add_special_tokens else []) + each.replace(" ", " _").split()
            return [self.known.setdefault(word, len(self.known)) for word in words]

        return {"input_ids": [ids(each) for each in text]}

    def text(self, ids) -> list[str]:
        names = list(self.known)
        return [names[number] for number in ids]


def test_a_prompt_is_tokenized_as_it_is_when_the_model_is_asked() -> None:
    words = Words()
    lesson = Lesson(
        "q", (Example("Q: a\nA:", " b c", "next", "q"), Example("x", "y z", "read", "q", 3.0))
    )
    agreeing, joined = tokenize(lesson, words)
    assert words.text(agreeing.prompt) == ["<s>", "Q:", "_a", "A:"]
    assert words.text(agreeing.completion) == ["_b", "_c"]
    # "xy" would be one word; the model will have read "x", so "y" must follow it.
    assert words.text(joined.prompt) == ["<s>", "x"]
    assert words.text(joined.completion) == ["y", "_z"]
    assert (joined.skill, joined.weight) == ("read", 3.0)
