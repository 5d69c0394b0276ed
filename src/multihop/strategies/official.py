"""Demonstrations by name: our own, a file's, or those of IRCoT's release."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from multihop.errors import BadInput
from multihop.prompts.demonstrations import Demonstration, read
from multihop.prompts.official import (
    USUAL_DISTRACTORS,
    Family,
    OfficialPrompts,
    choose_set,
    dataset_of,
    main_passage_alone,
)
from multihop.prompts.own import own_demonstrations
from multihop.strategies.writing import Demonstrations

OFFICIAL = "official:"


def open_demonstrations(
    name: str | None = None,
    *,
    number: int | None = None,
    distractors: int | None = None,
    family: Family = "codex",
) -> Demonstrations:
    """All kinds of demonstrations.

    Args:
        name: None for our own; a prompt file of chains with passages, from which the other kinds
            are made; or `official:DIR`, the folder of a data set's prompt files in IRCoT's
            release, such as `official:ircot/prompts/hotpotqa`. What has no file there is made
            from the file of chains.
        number: 1, 2 or 3 for one of the release's sets of 15 questions; None for all examples.
        distractors: M, passages without use in each example: 1, 2 or 3. It chooses among the
            files of `official:DIR`; None is 2.
        family: "codex" or "flan": it chooses among the files of `official:DIR`.

    Raises:
        BadInput: A file is missing or not in the format; it lacks questions of the set; or
            there is nothing to choose among.
    """
    if name is not None and name.startswith(OFFICIAL):
        folder = Path(name.removeprefix(OFFICIAL))
        return official_demonstrations(
            OfficialPrompts(folder, distractors or USUAL_DISTRACTORS, family, number)
        )
    if distractors is not None:
        raise BadInput(
            f"distractors is {distractors}, which chooses among the files of official:DIR; "
            f"{name or 'our own demonstrations'} is one file. Leave it out."
        )
    if name is None:
        if number is not None:
            raise BadInput(
                f"Demonstration set {number} is one of IRCoT's release. Say where it is, as "
                "official:ircot/prompts/hotpotqa."
            )
        return Demonstrations.from_cot(own_demonstrations())
    found = read(Path(name))
    return _made(found if number is None else choose_set(found, number, name), family)


def official_demonstrations(prompts: OfficialPrompts) -> Demonstrations:
    """All kinds out of a data set's released files; what has no file is made from the chains.

    Raises:
        BadInput: A file is missing or not in the format, or lacks questions of the set.
    """
    cot = prompts.read("cot")
    made = _made(cot, prompts.family)
    return Demonstrations(
        cot=cot,
        direct=prompts.read("direct") or made.direct,
        cot_alone=prompts.read("cot_alone") or made.cot_alone,
        direct_alone=prompts.read("direct_alone") or made.direct_alone,
        titles=prompts.read("titles"),
    )


def _made(cot: Sequence[Demonstration], family: Family) -> Demonstrations:
    """All kinds out of the chains; "without passages" leaves IIRC its main passage."""
    made = Demonstrations.from_cot(cot)
    if dataset_of(cot) != "iirc":
        return made
    return replace(
        made,
        cot_alone=tuple(main_passage_alone(d, family) for d in made.cot),
        direct_alone=tuple(main_passage_alone(d, family) for d in made.direct),
    )
