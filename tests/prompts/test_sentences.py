"""The first sentence of a text that is still being written."""

import json
import re

import pytest

from conftest import rows, shared
from multihop.prompts.sentences import enough, first_sentence, light, spacy, whole_words

PIECES = [r"(?s).", r"(?s)\s?\w{1,3}|.", r"(?s)\s*\w+|."]
"""A text may come letter by letter, in parts of words, or word by word."""


@pytest.mark.parametrize(
    "text",
    [
        "The book is by J. R. R. Tolkien. It is long.",
        "He lives in Washington, D.C. It is big.",
        "It is a U.S. Navy ship. It sank.",
        "By J. K. Rowling and E. B. White. Both wrote.",
        "Who's Afraid of Virginia Woolf? was written by Albee. It is a play.",
        "東京は首都です。大きいです。終わり。",
        '"The mill was built in 1812. It burnt." was said. It stood.',
        "He said “I came. I saw.” Then he left.",
        "The mill (built in 1812. Burnt in 1820) is gone. Nothing is left.",
        "He called it 'Ode. An end.' and left. Nobody came.",
        "It was built in 1812.[1] It burnt. It is gone.",
        "It is 3.5 miles long. Nobody walks it.",
        "The dog's owner is Mr. Smith Jr. of St. Paul. He is old.",
        "1. The mill was built by Ida Venn. 2. It burnt.",
        "She holds a Ph.D. A. Smith taught her well. She is old.",
        "क ख है। ग घ है।",
        "Кто это? Это Анна. Она дома.",
    ],
)
@pytest.mark.parametrize("piece", PIECES)
def test_a_text_is_never_cut_before_its_first_sentence_is_whole(text, piece):
    first, complete, seen = first_sentence(text), enough(), ""
    for part in re.findall(piece, text):
        seen += part
        if complete(seen):
            break
    else:
        pytest.fail("the second sentence was never seen")
    assert first_sentence(seen).strip() == first.strip()
    assert len(seen) < len(text)


def cut_early(text, splitter, piece):
    """What is kept of a text that is stopped as soon as that is allowed, and how much came."""
    complete, seen = enough(splitter), ""
    for part in re.findall(piece, text):
        seen += part
        if complete(seen):
            return first_sentence(whole_words(seen), splitter).strip(), seen
    return first_sentence(seen, splitter).strip(), seen


def official_chains():
    """All ends of the annotated chains, each begun at a sentence, and the recorded texts."""
    texts = {row["input"]["generation"] for row in rows("golden/sentence_split.jsonl")}
    for name in ("hotpotqa", "2wikimultihopqa", "musique", "iirc"):
        lines = shared(f"data/{name}_demonstrations.jsonl").read_text(encoding="utf-8").splitlines()
        for sentences in (json.loads(line)["cot_sentences"] for line in lines):
            texts |= {" ".join(sentences[at:]) for at in range(len(sentences))}
    return sorted(text for text in texts if text.strip() and "\n" not in text.strip())


@pytest.mark.parametrize("piece", PIECES)
def test_stopping_early_keeps_the_sentence_that_the_whole_chain_gives(piece):
    texts = official_chains()
    assert len(texts) > 300
    for text in texts:
        assert cut_early(text, light, piece)[0] == first_sentence(text, light).strip()


@pytest.mark.spacy
def test_stopping_early_keeps_the_release_s_sentence_too():
    texts = official_chains()
    for text in texts:
        assert cut_early(text, spacy, PIECES[1])[0] == first_sentence(text, spacy).strip()


def test_one_word_after_the_border_is_looked_at():
    kept, seen = cut_early("The ode is by Ulla. It is long. It is old.", light, PIECES[2])
    assert (kept, seen) == ("The ode is by Ulla.", "The ode is by Ulla. It")


@pytest.mark.parametrize("end", ["\n", "\n\n", " ", ".", ""])
def test_only_a_last_word_that_may_go_on_is_left_out(end):
    whole = whole_words(f"So the answer is: Ulm{end}")
    assert whole == ("So the answer is: " if not end else f"So the answer is: Ulm{end}")


@pytest.mark.parametrize("split", [light, pytest.param(spacy, marks=pytest.mark.spacy)])
@pytest.mark.parametrize("half", ["\ud800", "\ude00\ud83d", "a\ud800b", "\ud800\u0301"])
def test_halves_of_surrogate_pairs_end_no_run_and_are_kept(split, half):
    text = f"He wrote {half} here. It is {half}. \U0001f600 {half}{half} End."
    sentences = split(text)
    assert sentences[0].strip() == f"He wrote {half} here."
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert first_sentence(half, split) == half
