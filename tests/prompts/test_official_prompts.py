"""The release's prompt files: their names, and the three sets of 15 questions."""

import json
import shutil
from pathlib import Path

import pytest

from conftest import shared
from golden import counter
from multihop.datasets.ircot_experiments import experiments
from multihop.errors import BadInput
from multihop.prompts.demonstrations import Demonstration, read, render
from multihop.prompts.official import (
    DATASETS,
    SETS,
    OfficialPrompts,
    choose_set,
    file_name,
    set_ids,
)
from multihop.strategies import Demonstrations
from multihop.strategies.official import official_demonstrations, open_demonstrations


def released(name: str, folder: Path, *datasets: str) -> Path:
    """The handed prompt files of data sets, under the release's own names."""
    for dataset in datasets or DATASETS:
        (folder / "prompts" / dataset).mkdir(parents=True)
        file = shared(f"data/raw/ircot_prompts/{dataset}_{name}")
        shutil.copy(file, folder / "prompts" / dataset / name)
    return folder / "prompts"


def made(folder: Path, ids: tuple[str, ...], names: tuple[str, ...]) -> Path:
    """Prompt files of examples that say which file they are from."""
    folder.mkdir(parents=True)
    for name in names:
        examples = [
            Demonstration(f"Q: {id_}?\nA: {name}. So the answer is: {id_}.", {"qid": id_})
            for id_ in ids
        ]
        (folder / name).write_text(render(examples))
    return folder


CODEX = "gold_with_3_distractors_context_cot_qa_codex.txt"


def test_the_three_sets_are_the_releases_own_in_its_order():
    known = json.loads(shared("golden/prompt_sets.json").read_text())
    assert {d: {str(n): list(set_ids(d, n)) for n in SETS} for d in DATASETS} == known


def test_each_set_has_15_questions_of_a_pool_of_at_most_20():
    for dataset in DATASETS:
        sets = [set_ids(dataset, number) for number in SETS]
        assert [len(set(ids)) for ids in sets] == [15, 15, 15]
        assert len(set().union(*sets)) <= 20


@pytest.mark.parametrize(
    ("dataset", "number", "message"),
    [
        ("squad", 1, "for data set 'squad'. Known: hotpotqa, 2wiki"),
        ("iirc", 0, "no demonstration set 0"),
        ("iirc", 4, "no demonstration set 4"),
    ],
)
def test_an_unknown_set_is_refused(dataset, number, message):
    with pytest.raises(BadInput, match=message):
        set_ids(dataset, number)


def test_files_are_named_as_the_release_names_them():
    known = {
        stage["demos"]["file"].rpartition("/")[2]
        for experiment in experiments()
        for stage in experiment.describe()["stages"]
        if "demos" in stage
    }
    kinds = ("cot", "direct", "cot_alone", "direct_alone", "titles")
    ours = {file_name(kind, 2, family) for kind in kinds for family in ("codex", "flan")}
    assert known <= ours
    assert ours - known == {
        # The release has these, and no experiment reads them.
        "gold_with_2_distractors_context_direct_qa_codex.txt",
        "no_context_cot_qa_flan_t5.txt",
        "no_context_direct_qa_codex.txt",
    }


def test_released_files_are_written_back_to_the_byte():
    for path in sorted(shared("data/raw/ircot_prompts").glob("*.txt")):
        assert render(read(path)).encode() == path.read_bytes(), path.name


async def test_examples_without_passages_made_from_the_chains_are_as_long_as_the_released(tmp_path):
    counts = json.loads(shared("golden/codex_demo_counts.json").read_text())
    folder, count = released(CODEX, tmp_path), counter("gpt2")
    for dataset in DATASETS:
        for number in SETS:
            name = f"official:{folder / dataset}"
            alone = open_demonstrations(name, number=number, distractors=3).cot_alone
            row = counts[f"{dataset}|no_context_cot_qa_codex|set {number}"]
            sizes = await count([d.text for d in alone])
            assert (len(alone), sum(sizes), max(sizes)) == (
                row["kept"],
                row["tokens"],
                row["longest"],
            ), (dataset, number)


def test_hotpotqa_has_29_examples_of_which_9_are_in_no_set(tmp_path):
    folder = released(CODEX, tmp_path, "hotpotqa") / "hotpotqa"
    every = OfficialPrompts(folder, 3).read("cot")
    ids = [set_ids("hotpotqa", number) for number in SETS]
    assert len(every) == 29
    assert len({d.metadata["qid"] for d in every} - set().union(*ids)) == 9
    third = OfficialPrompts(folder, 3, number=3).read("cot")
    assert tuple(d.metadata["qid"] for d in third) == ids[2]


def test_each_kind_comes_from_its_own_file_and_m_and_family_choose_it(tmp_path):
    ids = set_ids("iirc", 2)
    names = [
        file_name(kind, distractors, family)
        for kind in ("cot", "direct", "cot_alone", "direct_alone", "titles")
        for distractors in (1, 2, 3)
        for family in ("codex", "flan")
    ]
    folder = made(tmp_path / "iirc", ids[::-1], tuple(dict.fromkeys(names)))
    for family, ending in [("codex", "codex"), ("flan", "flan_t5")]:
        found = open_demonstrations(f"official:{folder}", number=2, distractors=1, family=family)
        for kind, name in {
            "cot": f"gold_with_1_distractors_context_cot_qa_{ending}.txt",
            "direct": f"gold_with_1_distractors_context_direct_qa_{ending}.txt",
            "cot_alone": f"no_context_cot_qa_{ending}.txt",
            "direct_alone": f"no_context_direct_qa_{ending}.txt",
            "titles": f"no_context_open_llm_retrieval_{ending}.txt",
        }.items():
            examples = getattr(found, kind)
            assert tuple(d.metadata["qid"] for d in examples) == ids
            assert {d.answered.partition(".txt")[0] + ".txt" for d in examples} == {name}


def test_the_two_released_files_with_odd_names_are_found(tmp_path):
    ids = set_ids("musique", 1)
    odd = ("no_context_cot_qa_for_flan_t5.txt", "no_context_direct_qa.txt")
    folder = made(tmp_path / "musique", ids, odd)
    assert OfficialPrompts(folder, family="flan").read("cot_alone")
    assert OfficialPrompts(folder, family="codex").read("direct_alone")
    assert not OfficialPrompts(folder, family="codex").read("cot_alone")


def test_what_has_no_file_is_made_from_the_chains(tmp_path):
    folder = made(tmp_path / "d", set_ids("iirc", 1), (file_name("cot", 2, "codex"),))
    found = official_demonstrations(OfficialPrompts(folder))
    assert found == Demonstrations.from_cot(found.cot)


def test_a_set_is_chosen_from_any_file_that_holds_it(tmp_path):
    ids = set_ids("2wikimultihopqa", 3)
    folder = made(tmp_path / "d", (*ids[::-1], "other"), ("all.txt",))
    found = open_demonstrations(str(folder / "all.txt"), number=3)
    assert tuple(d.metadata["qid"] for d in found.cot) == ids
    assert tuple(d.metadata["qid"] for d in found.direct_alone) == ids


def test_our_own_demonstrations_are_the_default():
    ours = open_demonstrations()
    assert (len(ours.cot), len(ours.direct_alone), ours.titles) == (16, 16, ())


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (None, {"number": 1}, "Say where it is, as official:"),
        (None, {"distractors": 1}, "our own demonstrations is one file"),
        ("FILE", {"distractors": 1}, "all.txt is one file"),
        (
            "FILE",
            {"number": 2},
            r"all.txt: holds 1 of the 15 questions of demonstration set 2 \(iirc\)",
        ),
        ("FILE", {"number": 5}, "no demonstration set 5"),
        ("official:FOLDER", {"distractors": 4}, "the files have 1, 2 or 3"),
        ("official:FOLDER", {"number": 4}, "there are 1, 2 and 3"),
        ("official:FOLDER", {"family": "gpt"}, "No family is named 'gpt'"),
        ("official:FOLDER", {}, "no gold_with_2_distractors_context_cot_qa_codex.txt is here"),
        ("official:nowhere", {}, "nowhere: no such folder"),
    ],
)
def test_what_cannot_be_chosen_is_refused_in_one_line(tmp_path, name, settings, message):
    folder = made(tmp_path / "d", ("q_10236", "other"), ("all.txt",))
    if name:
        name = name.replace("FILE", str(folder / "all.txt")).replace("FOLDER", str(folder))
    with pytest.raises(BadInput, match=message) as refused:
        open_demonstrations(name, **settings)
    assert "\n" not in str(refused.value)


def test_the_folder_of_all_data_sets_is_answered_with_the_folder_of_one(tmp_path):
    made(tmp_path / "ircot" / "prompts" / "hotpotqa", ("a",), (CODEX,))
    for folder in (tmp_path / "ircot", tmp_path / "ircot" / "prompts"):
        with pytest.raises(
            BadInput, match=r"Name the folder of one data set, such as .*hotpotqa\."
        ):
            open_demonstrations(f"official:{folder}")


def test_a_set_that_is_not_whole_names_what_there_is():
    some = [Demonstration("Q: q?\nA: a.", {"qid": id_}) for id_ in set_ids("musique", 1)[:14]]
    with pytest.raises(
        BadInput, match=r"f\.txt: holds 14 of the 15 questions of demonstration set 1"
    ):
        choose_set(some, 1, "f.txt")
