"""From a configuration to lessons."""

from pathlib import Path

from multihop.training import lessons
from multihop.training.config import Config
from multihop.training.examples import Lesson


def make_lessons(config: Config) -> list[Lesson]:
    """The lessons that a configuration describes.

    Raises:
        BadInput: A file is missing or wrong.
    """
    if config.data.lessons:
        return lessons.read(Path(config.data.lessons))
    from multihop.training import rollouts  # noqa: PLC0415 - the retrievers come with it

    return list(rollouts.lessons(config.data))
