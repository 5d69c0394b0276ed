"""The registry of data sets: what each record says, and how questions are named."""

import json
import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from conftest import ROOT
from multihop import names
from multihop.datasets import QuestionFile
from multihop.datasets.base import Dataset, Split
from multihop.datasets.musique import MUSIQUE
from multihop.errors import BadInput
from multihop.text import Question

ALL = [*names.DATASETS]
CORPORA = {
    "hotpotqa": 5_233_329,
    "2wikimultihopqa": 430_225,
    "musique": 139_416,
    "iirc": 1_882_415,
}


def available(dataset):
    """The names of files that its published files give."""
    return {name for file in dataset.files for name in (file.members or (file.name,))}


@pytest.mark.parametrize("name", ALL)
def test_a_record_says_all_that_a_user_asks(name):
    dataset = names.open_dataset(name)
    assert dataset.name == name
    assert dataset.title
    assert dataset.licence
    assert dataset.citation
    assert dataset.home.startswith("https://")
    assert {split.file for split in dataset.splits} <= available(dataset)
    assert len({split.name for split in dataset.splits}) == len(dataset.splits)
    if dataset.corpus:
        assert {*dataset.corpus.files} <= available(dataset)
        assert dataset.corpus.about
    for file in dataset.files:
        assert re.match("https?://", file.url) or file.note
        assert re.fullmatch("[0-9a-f]{64}", file.sha256 or "0" * 64)


def test_the_corpora_of_the_paper_have_its_sizes():
    assert {name: names.open_dataset(name).corpus.passages for name in CORPORA} == CORPORA


@pytest.mark.parametrize("name", ALL)
def test_each_module_tells_where_when_and_under_which_licence(name):
    module = names.DATASETS[name].partition(":")[0]
    text = (ROOT / "src" / Path(*module.split("."))).with_suffix(".py").read_text("utf-8")
    said = text.split('"""')[1].lower()
    assert "licence" in said
    assert "http" in said or name == "ircot"


def test_every_data_set_stands_in_the_docs():
    page = (ROOT / "docs" / "data.md").read_text("utf-8")
    for name in ALL:
        dataset = names.open_dataset(name)
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert dataset.licence in row
        for split in dataset.splits if name != "ircot" else ():
            counted = "" if split.questions is None else f" {split.questions:,}"
            assert f"`{split.name}`{counted}" in row
        if dataset.corpus:
            assert f"{dataset.corpus.passages:,}" in row


# --- Names ----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    paragraph = {"title": "Ode", "paragraph_text": "A river in Lund.", "is_supporting": True}
    record = {
        "id": "2hop__1_2",
        "question": "Where is the river?",
        "paragraphs": [paragraph | {"idx": 0}],
        "question_decomposition": [],
        "answer": "Lund",
        "answer_aliases": [],
        "answerable": True,
    }
    path = tmp_path / "musique_ans_v1.0_dev.jsonl"
    path.write_text(json.dumps(record))
    return path


def test_a_bare_path_is_a_file_of_our_own(tmp_path, monkeypatch):
    (tmp_path / "q.jsonl").write_text('{"question": "Who?"}')
    (tmp_path / "odd:q.jsonl").write_text('{"question": "Where?"}')
    monkeypatch.chdir(tmp_path)
    assert isinstance(names.open_questions("q.jsonl"), QuestionFile)
    [question] = names.open_questions("odd:q.jsonl")  # no data set is named odd, and it is there
    assert question.text == "Where?"


def test_questions_of_a_kind_can_be_read_again_and_again(file):
    questions = names.open_questions(f"musique:{file}")
    assert list(questions) == list(questions)
    assert [q.id for q in questions] == ["2hop__1_2"]


def test_a_split_is_read_from_the_folder_of_downloads(file, tmp_path, monkeypatch):
    monkeypatch.setenv("MULTIHOP_DATA", str(tmp_path))
    with pytest.raises(BadInput) as refused:
        names.open_questions("musique:dev")
    assert str(refused.value).startswith(f"MuSiQue dev is not here: {tmp_path}/musique/musique_ans")
    assert "multihop data get musique" in str(refused.value)
    (tmp_path / "musique").mkdir()
    file.rename(tmp_path / "musique" / file.name)
    questions = iter(names.open_questions("musique:dev"))
    assert next(questions).id == "2hop__1_2"
    with pytest.raises(BadInput, match=r"1 questions, but MuSiQue dev has 2417: the file is cut"):
        next(questions)


def test_a_file_named_as_a_split_is_meant_by_its_path(file, tmp_path, monkeypatch):
    file.rename(tmp_path / "dev")
    monkeypatch.chdir(tmp_path)
    assert [q.id for q in names.open_questions("musique:./dev")] == ["2hop__1_2"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.jsonl", "none.jsonl: does not exist. Name a file, or KIND:PATH."),
        (".", ".: is a folder. Name a file, or KIND:PATH."),
        ("musiqe:dev", "No data set is named 'musiqe'. Did you mean 'musique'? Known: hotpotqa, "),
        ("musique", "musique is a data set, not a file of questions: write musique:train or mus"),
        ("musique:dve", "MuSiQue has no split 'dve', and there is no such file. Did you mean 'de"),
        ("musique:", "MuSiQue has no split '', and there is no such file. Known: train, dev, "),
        ("musique:.", ".: not a file. Write musique:PATH with a file of questions."),
        ("ircot:iirc/dve", "IRCoT's processed data has no split 'iirc/dve', and there is no suc"),
    ],
)
def test_a_wrong_name_is_refused_with_what_is_right(name, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as refused:
        names.open_questions(name)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_names_in_a_file_are_meant_from_its_folder(tmp_path):
    assert names.located_questions("q.jsonl", tmp_path) == f"{tmp_path}/q.jsonl"
    assert names.located_questions("musique:q.jsonl", tmp_path) == f"musique:{tmp_path}/q.jsonl"
    assert names.located_questions("musique:full_dev", tmp_path) == "musique:full_dev"


def test_processed_files_know_their_data_set_by_their_folder(tmp_path):
    record = {
        "question_id": "q",
        "question_text": "Who?",
        "answers_objects": [{"spans": ["Venn"], "number": "", "date": {}}],
        "contexts": [],
    }
    for folder, dataset in (("iirc", "iirc"), ("other", None)):
        path = tmp_path / folder / "dev_subsampled.jsonl"
        path.parent.mkdir()
        path.write_text(json.dumps(record))
        [question] = names.open_questions(f"ircot:{path}")
        assert question.extra.get("dataset") == dataset


TOY = Dataset(
    name="toy",
    title="Toy",
    home="https://example.org",
    licence="CC0",
    citation="Nobody",
    files=(),
    splits=(Split("dev", "dev.txt"),),
    read=lambda path: (Question(line, id=line) for line in path.read_text().splitlines()),
)


def test_another_package_brings_a_data_set_and_replaces_none(tmp_path, monkeypatch):
    entries = [
        EntryPoint(name, f"{__name__}:TOY", "multihop.datasets") for name in ("toy", "musique")
    ]
    monkeypatch.setattr(
        names, "entry_points", lambda group: [e for e in entries if e.group == group]
    )
    (tmp_path / "q.txt").write_text("Who?\nWhere?\n")
    assert [q.text for q in names.open_questions(f"toy:{tmp_path / 'q.txt'}")] == ["Who?", "Where?"]
    assert names.dataset_names() == [*ALL, "toy"]
    assert names.open_dataset("musique") is MUSIQUE


def test_the_data_set_of_the_docs_is_read_as_printed(tmp_path, monkeypatch):
    """Its file, found by the line that is printed below it."""
    page = (ROOT / "docs" / "adding-parts.md").read_text("utf-8")
    *_, module = re.findall("```python\n(.*?)```", page, re.DOTALL)
    *_, line = re.findall("```toml\n(.*?)```", page, re.DOTALL)
    announced = tomllib.loads(line)["project"]["entry-points"]["multihop.datasets"]
    entries = [EntryPoint(name, value, "multihop.datasets") for name, value in announced.items()]
    monkeypatch.setattr(names, "entry_points", lambda group: entries)
    monkeypatch.setenv("MULTIHOP_DATA", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "multihop_riddles.py").write_text(module, "utf-8")
    path = tmp_path / "riddles" / "riddles.tsv"
    path.parent.mkdir()
    path.write_text(
        "What buzzes?\tBees|a bee\tBee\nWhat hoots?\tOwls\tOwl\nWhat floats up?\tBalloons\tBalloon\n"
    )
    first, *rest = names.open_questions("riddles:test")
    assert (first.id, first.answers, first.gold_titles) == ("1", ("Bees", "a bee"), ("Bee",))
    assert len(rest) == 2
    assert path.stat().st_size == names.open_dataset("riddles").files[0].size
    path.write_text("What buzzes?\tBees\n")
    with pytest.raises(BadInput, match=r"riddles\.tsv:1: 2 fields, expected question, answers and"):
        list(names.open_questions("riddles:test"))


# --- The command line -----------------------------------------------------------------------


def test_eval_takes_questions_by_kind(multihop, file, script, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = multihop("eval", f"musique:{file.name}", "-s", "nor", "-m", script, "--json")
    assert done.code == 0
    [report] = json.loads(done.out)
    assert report["run"].startswith("musique-musique_ans_v1.0_dev-nor-")


@pytest.mark.parametrize("name", ["musique:none.jsonl", "none.jsonl", "musqe:x"])
def test_eval_of_questions_that_are_not_there_is_one_line(multihop, name, script):
    done = multihop("eval", name, "-s", "nor", "-m", script)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
