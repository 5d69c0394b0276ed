import json

from conftest import rows, shared
from multihop.datasets.ircot_experiments import Experiment, experiments


def test_all_base_configurations_follow_from_rules():
    table = {
        row["config"]: row
        for row in json.loads(shared("golden/config_table.json").read_text("utf-8"))
    }
    ours = {experiment.config: experiment.describe() for experiment in experiments()}
    assert set(ours) == set(table)
    assert [name for name in ours if ours[name] != table[name]] == []


def test_experiment_names_golden():
    known = {experiment.config: experiment for experiment in experiments()}
    wrong = [
        row["id"]
        for row in rows("golden/experiment_names.jsonl")
        if known[row["input"]["config"]].names(int(row["input"]["prompt_set"]))
        != row["expected"]["experiment_names"]
    ]
    assert wrong == []


def test_there_are_84_and_no_two_share_a_name():
    names = [name for experiment in experiments() for name in experiment.names(1)]
    assert len(experiments()) == 84
    assert len(set(names)) == len(names) == 20 * 12 * 2 + 4 * 1 + 20 * 18 + 20 * 1


def test_grids_run_through_k_before_m():
    points = Experiment("oner_qa", "codex", "musique").settings()
    assert points[0] == {"bm25_retrieval_count": 5, "distractor_count": 1}
    assert points[1] == {"bm25_retrieval_count": 5, "distractor_count": 2}
    assert points[3] == {"bm25_retrieval_count": 7, "distractor_count": 1}
    assert points[-1] == {"bm25_retrieval_count": 15, "distractor_count": 3}
    assert Experiment("nor_qa", "codex", "musique").settings() == [{}]
