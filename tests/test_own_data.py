"""Our own corpus, questions and demonstrations hold together, and are our own words.

`python tests/test_own_data.py` writes the three prompt files from `demonstrations.jsonl`.
"""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from conftest import shared

DATA = Path(str(files("multihop") / "data"))


def read(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


CORPUS = read("corpus.jsonl")
QUESTIONS = read("questions.jsonl")
DEMONSTRATIONS = read("demonstrations.jsonl")
BY_ID = {passage["id"]: passage for passage in CORPUS}
FORMS = {
    "demonstrations.txt": {"context": True, "chain": True},
    "demonstrations_direct.txt": {"context": True, "chain": False},
    "demonstrations_no_context.txt": {"context": False, "chain": True},
}


def prompt_file(*, context: bool, chain: bool) -> str:
    """The demonstrations as an official prompt file: with passages or not, chain or bare answer."""
    parts = []
    for row in DEMONSTRATIONS:
        blocks = []
        if context:
            blocks = [
                f"Wikipedia Title: {BY_ID[i]['title']}\n{BY_ID[i]['text']}" for i in row["order"]
            ]
        stated = f"{' '.join(row['chain'])} So the answer is: {row['answer']}."
        blocks.append(f"Q: {row['question']}\nA: {stated if chain else row['answer']}")
        metadata = "# METADATA: " + json.dumps({"qid": row["qid"]})
        parts.append(metadata + "\n" + "\n\n".join(blocks))
    return "\n\n\n".join(parts) + "\n"


def says(passage_id: str, value: str) -> bool:
    passage = BY_ID[passage_id]
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", passage["text"]) is not None


def plain(title: str) -> str:
    """A title without what tells it from its namesakes, like "(spacecraft)"."""
    return re.sub(r" \(.*\)$", "", title)


def names(text: str, title: str) -> bool:
    title = plain(title)
    return re.search(rf"(?<!\w){re.escape(title.lower())}(?!\w)", text.lower()) is not None


def shingles(text: str, size: int = 8) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return zip(*(words[start:] for start in range(size)), strict=False)


def test_there_is_enough_of_each() -> None:
    assert len(CORPUS) >= 150
    assert len(QUESTIONS) >= 40
    assert len(DEMONSTRATIONS) >= 12
    kinds = [question["type"] for question in QUESTIONS]
    assert set(kinds) == {"bridge", "comparison", "3hop"}
    assert kinds.count("3hop") >= 8
    assert kinds.count("comparison") >= 8
    assert {question["split"] for question in QUESTIONS} == {"demo", "train"}


def test_ids_and_titles_are_unique() -> None:
    for values in (
        [passage["id"] for passage in CORPUS],
        [passage["title"] for passage in CORPUS],
        [passage["text"] for passage in CORPUS],
        [question["id"] for question in QUESTIONS],
        [question["question"] for question in QUESTIONS],
        [row["qid"] for row in DEMONSTRATIONS],
        [row["question"] for row in DEMONSTRATIONS],
    ):
        assert len(values) == len(set(values))


def test_passages_are_short_clean_and_about_their_titles() -> None:
    for passage in CORPUS:
        assert set(passage) == {"id", "title", "text"}
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", passage["id"])
        title, text = passage["title"], passage["text"]
        assert 40 <= len(text.split()) <= 90, title
        assert (title, text) == (" ".join(title.split()), " ".join(text.split()))
        assert text.endswith("."), title
        assert names(text, title), title


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["id"])
def test_a_question_is_answered_by_its_gold_passages(question: dict) -> None:
    gold, found = question["gold_paragraph_ids"], question["found"]
    assert [BY_ID[i]["title"] for i in gold] == question["gold_titles"]
    assert len(set(gold)) == len(gold) == len(found) == (3 if question["type"] == "3hop" else 2)
    assert question["answers"]
    assert question["question"].endswith("?")
    for passage_id, value in zip(gold, found, strict=True):
        assert says(passage_id, value), f"{passage_id} does not say {value!r}"
    if question["type"] == "comparison":
        # Both are named; the answer is one of them or yes or no.
        assert all(names(question["question"], title) for title in question["gold_titles"])
        assert question["answers"][0] in [*question["gold_titles"], "yes", "no"]
        return
    assert found[-1] in question["answers"]
    # Each hop leads to the next passage, which the question does not give away.
    for value, title in zip(found, question["gold_titles"][1:], strict=False):
        assert value == plain(title)
        assert not names(question["question"], title)
    assert not any(names(question["question"], answer) for answer in question["answers"])


@pytest.mark.parametrize("row", DEMONSTRATIONS, ids=lambda row: row["qid"])
def test_a_demonstration_leads_over_its_gold_passages_to_its_answer(row: dict) -> None:
    gold, distractors = row["gold_ids"], row["distractor_ids"]
    assert len(gold) in {2, 3}
    assert len(distractors) == 1
    assert sorted(row["order"]) == sorted(gold + distractors)
    assert len(row["chain"]) == len(gold)
    for passage_id, sentence in zip(gold, row["chain"], strict=True):
        # One plain sentence a hop: no inner full stop, no pronoun, its own names spelt out.
        assert re.fullmatch(r"[^.!?]+\.", sentence)
        assert not re.search(r"\b(he|she|it|they|his|her|its|their)\b", sentence.lower())
        assert " answer is" not in sentence
        assert plain(BY_ID[passage_id]["title"]) in sentence
    for sentence, passage_id in zip(row["chain"], gold[1:], strict=False):
        title = plain(BY_ID[passage_id]["title"])
        # A hop's sentence names the passage that the next hop needs, unless the question did.
        assert title in sentence or names(row["question"], title)
    assert len(row["hops"]) == len(gold)
    for passage_id, sentence, hop in zip(gold, row["chain"], row["hops"], strict=True):
        # A hop asks for what its sentence tells, and its passage holds the answer.
        assert hop["question"].endswith("?")
        assert hop["answer"] in sentence
        assert hop["answer"] in BY_ID[passage_id]["title"] + " " + BY_ID[passage_id]["text"]
        assert hop["answer"] not in hop["question"]
        assert plain(BY_ID[passage_id]["title"]) in hop["question"]
    if row["answer"] not in {"yes", "no"}:
        assert row["answer"] in " ".join(row["chain"])
        titles_and_texts = [BY_ID[i]["title"] + " " + BY_ID[i]["text"] for i in gold]
        assert row["answer"] in " ".join(titles_and_texts)


def test_the_first_three_demonstrations_are_a_place_a_comparison_and_a_person() -> None:
    first = DEMONSTRATIONS[:3]
    assert not {row["answer"] for row in first} & {"yes", "no"}
    assert first[0]["question"].startswith("Where")
    assert first[1]["answer"] in first[1]["question"]
    assert first[2]["question"].startswith("Who")


def test_no_demonstration_gives_a_question_away() -> None:
    asked = {question["question"].lower() for question in QUESTIONS}
    wanted = {gold for question in QUESTIONS for gold in question["gold_paragraph_ids"]}
    for row in DEMONSTRATIONS:
        assert row["question"].lower() not in asked
        assert not wanted & set(row["gold_ids"])


@pytest.mark.parametrize("name", FORMS)
def test_a_prompt_file_has_not_drifted_from_its_source(name: str) -> None:
    assert (DATA / name).read_text("utf-8") == prompt_file(**FORMS[name])


@pytest.mark.slow
def test_no_eight_words_in_a_row_are_those_of_the_handed_data() -> None:
    own = {}
    for row in CORPUS + QUESTIONS + DEMONSTRATIONS:
        asked = " ".join(hop["question"] for hop in row.get("hops", []))
        for text in (
            *(row.get("text", ""), row.get("question", "")),
            *(" ".join(row.get("chain", [])), asked),
        ):
            own |= dict.fromkeys(shingles(text), row.get("id") or row.get("qid"))
    for path in sorted(shared("data").rglob("*")):
        if path.is_file():
            common = {shingle for shingle in shingles(path.read_text("utf-8")) if shingle in own}
            assert not common, f"{path.name}: {[(own[s], ' '.join(s)) for s in common]}"


if __name__ == "__main__":
    for file_name, form in FORMS.items():
        (DATA / file_name).write_text(prompt_file(**form), encoding="utf-8")
