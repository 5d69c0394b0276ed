"""Slices of the published files: counts, first, middle and last record, and what is refused."""

import hashlib
import html
import json

import pytest

from conftest import rows, shared
from multihop import names
from multihop.errors import BadInput
from multihop.metrics import pid

SLICES = {
    "hotpotqa": ("hotpot_dev_distractor_v1.slice.json", "hotpot_train_v1.1.slice.json"),
    "2wikimultihopqa": ("2wikimultihopqa_dev.slice.json",),
    "musique": ("musique_ans_v1.0_dev.slice.jsonl", "musique_ans_v1.0_train.slice.jsonl"),
    "strategyqa": ("strategyqa_dev.slice.json",),
    "fanoutqa": ("fanoutqa_dev.slice.json",),
}
EACH = [(kind, file) for kind, files in SLICES.items() for file in files]


def raw(file):
    return shared(f"data/raw/{file}")


def read(kind, file):
    return list(names.open_questions(f"{kind}:{raw(file)}"))


def digest(*questions):
    """A hash of all that questions say."""
    said = [
        [q.id, q.text, q.answers, q.gold_ids, q.gold_titles, q.kind, dict(q.extra)]
        for q in questions
    ]
    text = json.dumps(said, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


PINS = {
    "hotpot_dev_distractor_v1.slice.json": (
        30,
        [
            ("5a7f6fd75542992e7d278cfa", "60b04954b94e"),
            ("5abae3b05542996606241661", "1d224ca493ce"),
            ("5aba926f55429901930fa83e", "c1c75133cbfd"),
        ],
        "120d7b0233fc",
    ),
    "hotpot_train_v1.1.slice.json": (
        40,
        [
            ("5a77ec115542992a6e59dff7", "9e8ce3c816bb"),
            ("5ae5dab455429929b08079d2", "00c068557e76"),
            ("5a887479554299206df2b278", "28fb0fc713fc"),
        ],
        "62997d22593e",
    ),
    "2wikimultihopqa_dev.slice.json": (
        40,
        [
            ("02ae4663095611ebbdaeac1f6bf848b6", "136b562a0b26"),
            ("5eff227e094e11ebbdaeac1f6bf848b6", "1089384ac1d6"),
            ("9f3beeca08e911ebbda7ac1f6bf848b6", "31181047f89f"),
        ],
        "136f52f7065d",
    ),
    "musique_ans_v1.0_dev.slice.jsonl": (
        30,
        [
            ("2hop__574419_270105", "eac98496cf85"),
            ("2hop__50910_177869", "c06e3333359b"),
            ("2hop__25396_212301", "53ea6920b037"),
        ],
        "047ffe7fe5a9",
    ),
    "musique_ans_v1.0_train.slice.jsonl": (
        20,
        [
            ("2hop__150763_14904", "83c770f47dbd"),
            ("2hop__689512_55369", "a886d3b0960c"),
            ("2hop__269983_646483", "ddf9513b531b"),
        ],
        "be3b1b009082",
    ),
    "strategyqa_dev.slice.json": (
        30,
        [
            ("e0044a7b4d146d611e73", "02ee5ec741da"),
            ("44f54e361e0f46ead5d4", "c2f550bdbe80"),
            ("badd24672a2f951706fe", "156534f0ad7e"),
        ],
        "2b116e0d29c4",
    ),
    "fanoutqa_dev.slice.json": (
        20,
        [
            ("7dcbbbdc7f1120cd", "3b9e0851fdef"),
            ("d65057f597c21114", "8972686a1181"),
            ("95de313fdfef9d01", "81e7f48238fd"),
        ],
        "bae2a6dd7338",
    ),
}
"""Count; id and digest of the first, the middle and the last; digest of all."""


@pytest.mark.parametrize(("kind", "file"), EACH)
def test_each_slice_is_read_as_pinned(kind, file):
    questions = read(kind, file)
    ends = [questions[0], questions[len(questions) // 2], questions[-1]]
    found = (len(questions), [(q.id, digest(q)) for q in ends], digest(*questions))
    assert found == PINS[file]


@pytest.mark.parametrize(("kind", "file"), EACH)
def test_every_question_has_an_answer_gold_and_the_name_of_its_data_set(kind, file):
    for question in read(kind, file):
        assert question.text.strip()
        assert question.answers
        assert question.gold_titles
        assert question.extra["dataset"] == kind


@pytest.mark.parametrize(("kind", "file"), EACH)
def test_slices_agree_with_what_others_made_of_the_same_records(kind, file):
    """The normalised files of the handed data were made of the same releases by other code."""
    made = {row["id"]: row for part in ("dev", "train") for row in normalised(kind, part)}
    compared = 0
    for question in read(kind, file):
        if row := made.get(question.id):
            compared += 1
            assert row["question"].split() == question.text.split()
            assert row["answers"][0] in question.answers
            titles = {html.unescape(title) for title in question.gold_titles}
            assert {title.strip() for title in row["gold_titles"]} == titles
    assert compared >= 10


def normalised(kind, part):
    if kind in ("strategyqa", "fanoutqa") and part == "train":
        return []
    return rows(f"data/{kind}_{part}.jsonl")


@pytest.mark.parametrize("kind", ["hotpotqa", "2wikimultihopqa", "musique"])
def test_gold_paragraphs_are_those_of_the_normalised_corpus(kind):
    corpus = {row["id"]: row for row in rows(f"data/{kind}_corpus.jsonl")}
    wanted = {
        row["id"]: {
            pid(corpus[name]["title"], corpus[name]["text"]) for name in row["gold_paragraph_ids"]
        }
        for part in ("dev", "train")
        for row in rows(f"data/{kind}_{part}.jsonl")
    }
    compared = 0
    for file in SLICES[kind]:
        for question in read(kind, file):
            if question.id in wanted:
                compared += 1
                gold = question.extra["gold_paragraphs"]
                assert {pid(g["title"], g["text"]) for g in gold} == wanted[question.id]
    assert compared >= 20


@pytest.mark.parametrize("kind", ["2wikimultihopqa", "musique"])
def test_gold_ids_name_passages_of_the_corpus_made_of_the_same_file(kind):
    dataset = names.open_dataset(kind)
    file = raw(SLICES[kind][0])
    passages = {passage.id: passage for passage in dataset.corpus.read([file])}
    for question in dataset.questions(str(file)):
        gold = [(g["title"], g["text"]) for g in question.extra["gold_paragraphs"]]
        assert [
            (passages[name].title.strip(), passages[name].text.strip())
            for name in question.gold_ids
        ] == gold


def test_a_corpus_has_each_passage_of_its_files_once():
    dataset = names.open_dataset("musique")
    files = [raw(file) for file in SLICES["musique"]]
    passages = list(dataset.corpus.read([*files, *files]))
    pairs = [(p.title, p.text) for p in passages]
    assert len({p.id for p in passages}) == len(pairs) == len(set(pairs))
    everything = {
        (p["title"], p["paragraph_text"])
        for file in files
        for line in file.read_text("utf-8").splitlines()
        for p in json.loads(line)["paragraphs"]
    }
    assert {*pairs} == everything


@pytest.mark.parametrize("kind", ["hotpotqa", "2wikimultihopqa", "musique"])
def test_instances_keep_the_contexts(kind):
    dataset = names.open_dataset(kind)
    for file in SLICES[kind]:
        for instance in dataset.instances(raw(file)):
            assert len(instance.contexts) >= (20 if kind == "musique" else 2)
            assert 2 <= len(instance.gold) <= 4


def test_hops_of_musique_stand_in_their_order():
    for question in read("musique", "musique_ans_v1.0_dev.slice.jsonl"):
        hops = question.extra["hop_ids"]
        assert {*hops} == {*question.gold_ids}
        assert len(hops) == int(question.kind[0])


# --- What is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "file"), EACH)
def test_a_truncated_file_is_refused_at_the_record_where_it_ends(kind, file, tmp_path):
    content = raw(file).read_bytes()
    records = content.count(b"\n") if file.endswith("l") else len(json.loads(content))
    for share in (0.2, 0.5, 0.999):
        cut = tmp_path / file
        cut.write_bytes(content[: int(len(content) * share)])
        questions = names.open_questions(f"{kind}:{cut}")
        before = []
        with pytest.raises(BadInput) as refused:
            before.extend(questions)
        said = str(refused.value)
        place = f":{len(before) + 1}" if file.endswith("l") else f": record {len(before) + 1}"
        assert said.startswith(f"{cut}{place}: ")
        assert "the file is cut short here" in said
        assert said.endswith(f"multihop data get {kind}.")
        assert "\n" not in said
        assert 0 < len(before) < records


NEEDED = {
    "hotpotqa": ["_id", "question", "answer", "supporting_facts", "context", "type", "level"],
    "2wikimultihopqa": [
        *("_id", "question", "answer", "supporting_facts", "context", "type", "evidences")
    ],
    "musique": [
        *("id", "question", "answer", "paragraphs", "question_decomposition", "answerable")
    ],
    "strategyqa": ["qid", "question", "answer"],
    "fanoutqa": ["id", "question", "answer", "decomposition"],
}


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, field) for kind, fields in NEEDED.items() for field in fields]
)
def test_a_changed_field_name_is_told_with_the_fields_that_are_there(kind, field, tmp_path):
    file = SLICES[kind][0]
    lines = file.endswith("l")
    text = raw(file).read_text("utf-8")
    records = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    records[2] = {name + "_" * (name == field): value for name, value in records[2].items()}
    changed = tmp_path / file
    whole = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
    changed.write_text(whole, "utf-8")
    with pytest.raises(BadInput) as refused:
        list(names.open_questions(f"{kind}:{changed}"))
    said = str(refused.value)
    assert said.startswith(f"{changed}{':3' if lines else ': record 3'}: no {field!r} (its fields")
    assert f"{field}_" in said
    assert said.endswith(f"multihop data get {kind}.")


def test_a_file_of_another_data_set_is_refused_at_its_first_record():
    refused = 0
    for kind, files in SLICES.items():
        for other in SLICES.keys() - {kind}:
            with pytest.raises(BadInput, match=r"^\S+(: record 1|:1)?: "):
                list(names.open_questions(f"{other}:{raw(files[0])}"))
            refused += 1
    assert refused == 20


@pytest.mark.parametrize(
    ("kind", "split", "file"),
    [
        ("hotpotqa", "dev", "hotpot_train_v1.1.slice.json"),
        ("2wikimultihopqa", "train", "2wikimultihopqa_dev.slice.json"),
        ("musique", "full_dev", "musique_ans_v1.0_dev.slice.jsonl"),
    ],
)
def test_another_split_under_a_splits_name_is_refused_at_its_end(
    kind, split, file, tmp_path, monkeypatch
):
    monkeypatch.setenv("MULTIHOP_DATA", str(tmp_path))
    dataset = names.open_dataset(kind)
    place = dataset.folder / dataset.split(split).file
    place.parent.mkdir(parents=True)
    place.write_bytes(raw(file).read_bytes())
    with pytest.raises(BadInput) as refused:
        list(names.open_questions(f"{kind}:{split}"))
    said = str(refused.value)
    count, expected = len(read(kind, file)), dataset.split(split).questions
    assert f"{place}: {count} questions, but {dataset.title} {split} has {expected}: " in said
    assert f"multihop data get {kind}" in said


def test_a_split_without_answers_under_a_labelled_ones_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("MULTIHOP_DATA", str(tmp_path))
    dataset = names.open_dataset("hotpotqa")
    records = json.loads(raw("hotpot_dev_distractor_v1.slice.json").read_bytes())
    for record in records:
        for label in ("answer", "supporting_facts", "type", "level"):
            del record[label]
    place = dataset.folder / dataset.split("dev").file
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(records))
    questions = list(names.open_questions(f"hotpotqa:{place}"))  # by its path it may be read
    assert not any(q.answers or q.gold_titles for q in questions)
    with pytest.raises(BadInput, match=r"none of its 30 questions has an answer.*another split"):
        list(names.open_questions("hotpotqa:dev"))
