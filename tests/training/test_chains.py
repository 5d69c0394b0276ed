"""Chains out of annotations; questions and passages are made up."""

import pytest

from multihop.text import Json, Passage, Question
from multihop.training.chains import chain, order

FERRY = Passage("f", "The Ferry (1931 film)", "The Ferry is a 1931 film directed by Ada Rao.")
RAO = Passage("r", "Ada Rao", "Ada Rao (born 3 May 1901) was an Indian director, born in Pune.")
KING = Passage("k", "King of Clay", "King of Clay is a 1950 film directed by Bo Lind.")
LIND = Passage("l", "Bo Lind (director)", "Bo Lind (1 June 1899 – 1960) was a Swedish director.")


def sentences(
    text: str, answer: str, gold: list[Passage], kind: str = "", words: int = 70, **extra: Json
) -> list[str] | None:
    found = chain(Question(text, "q", (answer,), kind=kind, extra=extra), gold, words)
    return [*(link.sentence for link in found.links), found.statement] if found else None


def test_triples_become_one_sentence_each() -> None:
    triples: Json = [["The Ferry", "director", "Ada Rao"], ["Ada Rao", "place of birth", "Pune"]]
    assert sentences(
        "Where was the director of The Ferry born?", "Pune", [FERRY, RAO], evidences=triples
    ) == [
        "The Ferry was directed by Ada Rao.",
        "Ada Rao was born in Pune.",
        "So the answer is: Pune.",
    ]


def test_a_comparison_names_both_values_and_then_compares_them() -> None:
    triples: Json = [
        ["The Ferry", "director", "Ada Rao"],
        ["King of Clay", "director", "Bo Lind"],
        ["Ada Rao", "date of birth", "3 May 1901"],
        ["Bo Lind (director)", "date of birth", "1 June 1899"],
    ]
    found = sentences(
        "Which film has the director born first, The Ferry or King Of Clay?",
        "King Of Clay",
        [FERRY, KING, RAO, LIND],
        evidences=triples,
    )
    assert found is not None
    assert found[-2:] == [
        "Thus, 1899 is earlier than 1901: Bo Lind.",
        "So the answer is: King Of Clay.",
    ]


def test_what_a_passage_does_not_show_makes_no_chain_that_says_it() -> None:
    triples: Json = [["Ada Rao", "place of birth", "Pune"]]
    question = "Where was Ada Rao born, who made The Ferry?"
    assert sentences(question, "Pune", [RAO], evidences=triples)
    assert sentences(question, "Pune", [RAO], words=8, evidences=triples) is None


def test_yes_and_no_agree_with_the_values() -> None:
    triples: Json = [
        ["Ada Rao", "country of citizenship", "Indian"],
        ["Bo Lind", "country of citizenship", "Swedish"],
    ]
    text = "Are Ada Rao and Bo Lind of the same nationality?"
    found = sentences(text, "no", [RAO, LIND], evidences=triples)
    assert found is not None
    assert found[-2] == "Thus, Indian and Swedish are not the same country."
    wrong = sentences(text, "yes", [RAO, LIND], evidences=triples)
    assert wrong is not None
    assert not any(sentence.startswith("Thus") for sentence in wrong)


def test_a_decomposition_fills_in_earlier_answers() -> None:
    parts: Json = [
        {"question": "The Ferry >> director", "answer": "Ada Rao"},
        {"question": "Where was #1 born?", "answer": "Pune"},
    ]
    assert sentences("Where?", "Pune", [FERRY, RAO], decomposition=parts) == [
        "The Ferry was directed by Ada Rao.",
        "Where was Ada Rao born: Pune.",
        "So the answer is: Pune.",
    ]


def test_a_written_chain_is_kept_as_it_is() -> None:
    steps: Json = [
        {"cot_sentence": "Ada Rao made The Ferry", "paragraphs": [{"paragraph_id": "f"}]},
        {"cot_sentence": "She is from Pune.", "paragraphs": [{"paragraph_id": "r"}]},
        {"cot_sentence": "So the answer is: Pune.", "paragraphs": []},
    ]
    assert sentences("Where?", "Pune", [FERRY, RAO], reasoning_steps=steps) == [
        "Ada Rao made The Ferry.",
        "She is from Pune.",
        "So the answer is: Pune.",
    ]


def test_without_annotations_the_passages_own_sentences_lead_to_the_answer() -> None:
    found = sentences("Where was the maker of The Ferry born?", "Pune", [RAO, FERRY], kind="bridge")
    assert found == [
        "The Ferry is a 1931 film directed by Ada Rao.",
        "Ada Rao (born 3 May 1901) was an Indian director, born in Pune.",
        "So the answer is: Pune.",
    ]


def test_a_sentence_that_does_not_name_its_subject_gets_its_title() -> None:
    other = Passage("o", "Ada Rao", "Ada Rao made films. After 1940 she lived in Pune.")
    found = sentences("Where did the maker of The Ferry live?", "Pune", [FERRY, other])
    assert found is not None
    assert found[1] == "Ada Rao: After 1940 she lived in Pune."


def test_a_question_without_answer_or_passages_has_no_chain() -> None:
    assert chain(Question("Who?", "q"), [RAO], 70) is None
    assert chain(Question("Who?", "q", ("Ada",)), [], 70) is None
    assert sentences("Who swam?", "Nobody known", [RAO, FERRY]) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Who is younger, A or B?", "later"),
        ("Who was born later, A or B?", "later"),
        ("Which came out first, A or B?", "earlier"),
        ("Who is older, A or B?", "earlier"),
        ("Who directed A?", None),
    ],
)
def test_the_order_that_a_question_wants_is_read_from_its_words(
    text: str, wanted: str | None
) -> None:
    assert order(text) == wanted
