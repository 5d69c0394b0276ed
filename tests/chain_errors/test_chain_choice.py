"""Which chains are checked, and against what."""

from dataclasses import replace

import pytest

from multihop.chain_errors import choose
from multihop.chain_errors.chains import sentences_of
from multihop.errors import BadInput
from multihop.text import Passage
from multihop.trace import Answer, Thought
from runs_of_chains import ANSWER, LOST, MACK, RIGHT, WRONG, folder, loop, once, two_runs


def texts(trace, source="auto"):
    return [sentence.text for sentence in sentences_of(trace, source)]


def test_the_sentences_before_the_stated_answer_are_taken() -> None:
    assert texts(loop("a", RIGHT, WRONG, ANSWER, "After it.")) == [RIGHT, WRONG]
    assert texts(loop("a", RIGHT, "", " ")) == [RIGHT]
    assert texts(loop("a", ANSWER)) == []


def test_the_reader_s_chain_is_cut_into_sentences() -> None:
    assert texts(once("a", f"{RIGHT} {WRONG} {ANSWER}")) == [RIGHT, WRONG]
    assert texts(once("a", "Germany", reader="direct")) == []
    assert texts(once("a", f"{RIGHT} {ANSWER}"), "loop") == []


def test_either_chain_of_a_loop_with_a_reader_can_be_chosen() -> None:
    both = loop("a", RIGHT, ANSWER)
    call = once("a", f"{WRONG} {ANSWER}").answer.call
    both = replace(
        both,
        settings={"reader": "cot"},
        steps=(*both.steps[:-1], Answer("Germany", "answered", call=call)),
    )
    assert texts(both) == texts(both, "loop") == [RIGHT]
    assert texts(both, "reader") == [WRONG]


def test_what_names_a_need_or_says_nothing_claims_nothing() -> None:
    chain = loop(
        "a", "The place of birth of Ida is needed.", "It is needed to know who.", "—", RIGHT
    )
    assert [sentence.claims for sentence in sentences_of(chain)] == [False, False, False, True]


def test_chains_of_all_runs_are_checked_against_what_any_of_them_collected(tmp_path) -> None:
    chosen = choose(two_runs(tmp_path))
    assert chosen.questions == 2
    assert [(c.question_id, c.strategy) for c in chosen.chains] == [
        *(("a", "ircot"), ("a", "nor"), ("b", "ircot"), ("b", "nor"))
    ]
    assert {c.passages for c in chosen.chains} == {(LOST, MACK)}


def test_each_run_s_own_passages_can_be_asked_for(tmp_path) -> None:
    chosen = choose(two_runs(tmp_path), evidence="own")
    assert [c.passages for c in chosen.chains[:2]] == [(LOST, MACK), ()]


def test_pinned_and_gold_texts_are_evidence_too(tmp_path) -> None:
    main = Passage("main", "Ulm", "A city.")
    trace = once("a", RIGHT)
    gold = [{"title": "Bonn", "text": "Another."}]
    asked = replace(trace.question, pinned=main, extra={"gold_paragraphs": gold})
    [chain] = choose([folder(tmp_path / "r", replace(trace, question=asked))]).chains
    assert [p.title for p in chain.passages] == ["Ulm", "Bonn"]


def test_only_questions_that_every_run_finished_are_compared(tmp_path) -> None:
    failed = replace(once("c", ""), steps=(), error="LMError: gone")
    one = folder(tmp_path / "one", loop("a", RIGHT), loop("b", RIGHT), loop("c", RIGHT))
    two = folder(tmp_path / "two", once("b", RIGHT), failed)
    chosen = choose([one, two])
    assert (chosen.questions, chosen.left_out) == (1, 2)
    assert {c.question_id for c in chosen.chains} == {"b"}


def test_a_sample_is_the_same_for_every_run_and_seed_decides_it(tmp_path) -> None:
    names = [f"q{n}" for n in range(20)]
    one = folder(tmp_path / "one", *(loop(name, RIGHT) for name in names))
    two = folder(tmp_path / "two", *(once(name, RIGHT) for name in reversed(names)))

    def drawn(*folders, seed=0):
        return {c.question_id for c in choose(folders, sample=5, seed=seed).chains}

    assert len(drawn(one)) == 5
    assert drawn(one) == drawn(two) == drawn(one, two)
    assert drawn(one, seed=1) != drawn(one)
    assert choose([one], sample=99).questions == 20


def test_runs_without_chains_are_refused_with_the_remedy(tmp_path) -> None:
    bare = folder(tmp_path / "bare", once("a", "Germany", reader="direct"))
    with pytest.raises(BadInput, match=r"bare: no chain has a sentence.*--reader cot"):
        choose([bare])
    other = folder(tmp_path / "other", loop("z", RIGHT))
    with pytest.raises(BadInput, match="No question is finished in all of bare, other"):
        choose([bare, other])
    with pytest.raises(BadInput, match="named twice"):
        choose([other, other])
    with pytest.raises(BadInput, match="'q' is not finished in all of other"):
        choose([other], only=["q"])


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path) -> None:
    same = [folder(tmp_path / place / "ircot", loop("a", RIGHT)) for place in ("x", "y")]
    names = [chain.run for chain in choose(same).chains]
    assert names == [str(path) for path in same]


def test_a_thought_of_several_sentences_is_one(tmp_path) -> None:
    trace = loop("a", f"{RIGHT} {WRONG}")
    assert isinstance(trace.steps[1], Thought)
    assert texts(trace) == [f"{RIGHT} {WRONG}"]
