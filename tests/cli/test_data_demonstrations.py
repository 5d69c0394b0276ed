"""`multihop data demonstrations`, from annotations to prompts that are asked with."""

import json

import pytest

from multihop.retrievers.bm25_index import build_index
from multihop.strategies.official import open_demonstrations
from multihop.text import Passage

STEPS = [
    {"cot_sent": "Ode is by Ida.", "paragraphs": [{"title": "Ode", "text_substring": "Ode is by"}]},
    {"cot_sent": "Ida is of Ulm.", "paragraphs": [{"title": "Ida", "text_substring": "Ida was"}]},
    {"cot_sent": "So the answer is: Ulm.", "paragraphs": [{"title": None, "text_substring": None}]},
]


@pytest.fixture
def annotations(tmp_path):
    path = tmp_path / "a.jsonnet"
    path.write_text(
        json.dumps([{"question_id": "h1", "question_text": "Whence?", "reasoning_steps": STEPS}])
    )
    return path


@pytest.fixture
def train(tmp_path):
    """A file in HotpotQA's own format."""
    path = tmp_path / "train.json"
    record = {
        "_id": "h1",
        "question": "Whence was it?",
        "answer": "Ulm",
        "type": "bridge",
        "level": "easy",
        "context": [["Ode", ["Ode is by Ida."]], ["Lake", ["It is deep."]], ["Hill", ["High."]]],
        "supporting_facts": [["Ode", 0]],
    }
    path.write_text(json.dumps([record]))
    return path


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "index"
    build_index([Passage("1", "Ida", "Ida was of Ulm."), Passage("2", "Ode", "Ode.")], folder)
    return folder


def test_prompt_files_are_written_and_read_as_official_ones(
    multihop, annotations, train, corpus, tmp_path
):
    into = tmp_path / "prompts" / "hotpotqa"
    made = multihop(
        *("data", "demonstrations", str(annotations), "--contexts", f"hotpotqa:{train}"),
        *("--index", str(corpus), "--into", str(into)),
    )
    assert made.code == 0, made.err
    assert made.err == f"{into}: 16 files of 1 examples.\n"
    found = open_demonstrations(f"official:{into}", distractors=1)
    [example] = found.cot
    titles = [line[17:] for line in example.text.splitlines() if line.startswith("Wikipedia")]
    assert len(titles) == 3
    assert {"Ode", "Ida"} < set(titles)
    assert example.answered == "Ode is by Ida. Ida is of Ulm. So the answer is: Ulm."
    assert [d.text for d in found.direct_alone] == ["Q: Whence?\nA: Ulm"]


def test_the_same_seed_writes_the_same_files(multihop, annotations, train, corpus, tmp_path):
    texts = []
    for number in range(2):
        into = tmp_path / str(number)
        multihop(
            *("data", "demonstrations", str(annotations), "--contexts", f"hotpotqa:{train}"),
            *("--index", str(corpus), "--into", str(into)),
        )
        texts.append({path.name: path.read_bytes() for path in into.iterdir()})
    assert texts[0] == texts[1]


def test_annotated_instances_bring_their_paragraphs(multihop, tmp_path):
    def whole(step):
        [paragraph] = step["paragraphs"]
        return {
            **step,
            "paragraphs": [
                {"title": paragraph["title"], "paragraph_text": paragraph["title"] and "Text."}
            ],
        }

    record = {
        "question_id": "h1",
        "question_text": "Whence?",
        "answers_objects": [{"spans": ["Ulm"]}],
        "contexts": [],
        "reasoning_steps": [whole(step) for step in STEPS],
    }
    path = tmp_path / "annotated_only_train.jsonl"
    path.write_text(json.dumps(record) + "\n\n")
    into = tmp_path / "p"
    made = multihop("data", "demonstrations", str(path), "--into", str(into))
    assert made.code == 0, made.err
    assert open_demonstrations(f"official:{into}").cot[0].text.count("Wikipedia Title") == 2


@pytest.mark.parametrize(
    "case",
    [
        ((), "Annotation h1 has no paragraphs. Say where"),
        (("--contexts", "hotpotqa:TRAIN"), "no paragraph of 'Ida' holds 'Ida was'"),
        (("--contexts", "QUESTIONS"), "these questions come without paragraphs"),
        (
            ("--contexts", "hotpotqa:OTHERS"),
            "1 of 1 annotated questions are not there, such as 'h1'",
        ),
    ],
)
def test_what_is_missing_is_one_line_and_nothing_is_written(
    multihop, annotations, train, tmp_path, case
):
    options, message = case
    (tmp_path / "q.jsonl").write_text('{"question": "Q?"}\n')
    (tmp_path / "others.json").write_text(train.read_text().replace("h1", "h2"))
    into = tmp_path / "p"
    words = [
        word.replace("TRAIN", str(train))
        .replace("QUESTIONS", str(tmp_path / "q.jsonl"))
        .replace("OTHERS", str(tmp_path / "others.json"))
        for word in options
    ]
    result = multihop("data", "demonstrations", str(annotations), "--into", str(into), *words)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert not into.exists()
