"""A run folder goes on only with its own configuration."""

from dataclasses import replace

import pytest

from multihop.errors import BadInput
from multihop.training import claim
from multihop.training.config import Config, Train
from tiny_hf import lessons


def test_another_configuration_is_refused_by_the_key_that_differs(tmp_path) -> None:
    config = Config(train=Train(lr=0.5))
    claim.check(config, tmp_path)
    claim.start(config, lessons(2), tmp_path)
    claim.start(config, lessons(2), tmp_path)
    other = replace(config, train=Train(lr=0.25))
    with pytest.raises(BadInput, match=r"train\.lr = 0\.5 \(now: 0\.25\)"):
        claim.check(other, tmp_path)


def test_threads_and_times_of_saving_may_change(tmp_path) -> None:
    claim.start(Config(), lessons(2), tmp_path)
    claim.start(Config(train=Train(threads=3, save_minutes=1)), lessons(2), tmp_path)


def test_other_lessons_are_refused(tmp_path) -> None:
    claim.start(Config(), lessons(2), tmp_path)
    with pytest.raises(BadInput, match="other lessons"):
        claim.start(Config(), lessons(3), tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(BadInput, match="is a file"):
        claim.check(Config(), tmp_path / "run")
