"""The demonstrations of IRCoT's release: which files hold them, which questions a set has.

The release's `prompts/DATASET` has one file a kind of call, a family of models and M, the number
of distractors shown with each question. Of a data set's annotated questions (20, for HotpotQA 29)
three sets of 15 were used; a set's order is that of its prompt. M chooses a file: distractors
were drawn once, when the files were written (Trivedi et al. 2023, section 4.3 and appendix).
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from multihop.errors import BadInput
from multihop.prompts.demonstrations import Demonstration, read, select
from multihop.prompts.layout import TITLE
from multihop.prompts.making import Instance, make_demonstration, make_titles_demonstration
from multihop.prompts.sentences import Splitter

Family = Literal["codex", "flan"]
"""Whose prompts: those of GPT-3, or those of Flan-T5, which begin with an instruction."""

Kind = Literal["cot", "direct", "cot_alone", "direct_alone", "titles"]
"""What an example shows: passages or none, a chain or the bare answer; or titles (IIRC)."""

DISTRACTORS = (1, 2, 3)
"""M."""

USUAL_DISTRACTORS = 2
"""Taken where no M is named, as in the release's base configurations."""

SETS = (1, 2, 3)
"""Sets of demonstrations. Set 1 chooses hyper-parameters on dev; test runs use all three."""

SEED = 13370
"""Of the release's generator of prompt files."""

INSTRUCTIONS: Mapping[Literal["cot", "direct"], str] = {
    "cot": "Answer the following question by reasoning step-by-step.\n",
    "direct": "Answer the following question.\n",
}
"""Stand before the question in the files for Flan-T5; title generation has the second."""

# A data set's questions, and its three sets as letters: A is the first question, B the second.
_QUESTIONS: Mapping[str, tuple[str, tuple[str, str, str]]] = {
    "hotpotqa": (
        """
        5abb14bd5542992ccd8e7f07 5ac2ada5554299657fa2900d 5a758ea55542992db9473680
        5ae0185b55429942ec259c1b 5a8ed9f355429917b4a5bddd 5abfb3435542990832d3a1c1
        5ab92dba554299131ca422a2 5a835abe5542996488c2e426 5a89c14f5542993b751ca98a
        5a90620755429933b8a20508 5a7bbc50554299042af8f7d0 5a8f44ab5542992414482a25
        5add363c5542990dbb2f7dc8 5a7fc53555429969796c1b55 5a790e7855429970f5fffe3d
        5a88f9d55542995153361218 5a77acab5542992a6e59df76 5a754ab35542993748c89819
        5a89d58755429946c8d6e9d9 5adfad0c554299603e41835a
        """,
        ("ABCDEFGHIJKLMNO", "JPCIFKQNLHBERMA", "SCNKQJIGLDHRBOT"),
    ),
    "2wikimultihopqa": (
        """
        228546780bdd11eba7f7acde48001122 97954d9408b011ebbd84ac1f6bf848b6
        a5995da508ab11ebbd82ac1f6bf848b6 1ceeab380baf11ebab90acde48001122
        35bf3490096d11ebbdafac1f6bf848b6 f86b4a28091711ebbdaeac1f6bf848b6
        f44939100bda11eba7f7acde48001122 e5150a5a0bda11eba7f7acde48001122
        c6805b2908a911ebbd80ac1f6bf848b6 13cda43c09b311ebbdb0ac1f6bf848b6
        f1ccdfee094011ebbdaeac1f6bf848b6 028eaef60bdb11eba7f7acde48001122
        8727d1280bdc11eba7f7acde48001122 79a863dc0bdc11eba7f7acde48001122
        c6f63bfb089e11ebbd78ac1f6bf848b6 5897ec7a086c11ebbd61ac1f6bf848b6
        af8c6722088b11ebbd6fac1f6bf848b6 5811079c0bdc11eba7f7acde48001122
        cdbb82ec0baf11ebab90acde48001122 4724c54e08e011ebbda1ac1f6bf848b6
        """,
        ("ABCDEFGHIJKLMNO", "IPLQDRAHGKJNCSO", "LMNTHECABGDFOQP"),
    ),
    "musique": (
        """
        2hop__804754_52230 2hop__292995_8796 2hop__496817_701819 2hop__154225_727337
        2hop__642271_608104 2hop__439265_539716 2hop__195347_20661 2hop__131516_53573
        2hop__427213_79175 3hop1__443556_763924_573834 2hop__782642_52667 2hop__861128_15822
        4hop3__703974_789671_24078_24137 3hop1__61746_67065_43617
        4hop3__463724_100414_35260_54090 3hop1__753524_742157_573834
        3hop1__858730_386977_851569 2hop__102217_58400 2hop__387702_20661
        """,
        ("ABCDEFGHIJKLMNO", "BDEGNLPCMQAKRSJ", "IPKCJOBAQHSMDNE"),
    ),
    "iirc": (
        """
        q_10344 q_10227 q_9591 q_3283 q_8776 q_8981 q_9518 q_1672 q_9499 q_8173 q_9433
        q_8350 q_3268 q_8736 q_389 q_10236 q_2466 q_10270 q_3290 q_3208
        """,
        ("ABCDEFGHIJKLMNO", "IPQRECBFGSJNAOH", "ABEMDRPNHTKLCFS"),
    ),
}

DATASETS = tuple(_QUESTIONS)


def set_ids(dataset: str, number: int) -> tuple[str, ...]:
    """The 15 questions of a set, in prompt order.

    Args:
        dataset: One of `DATASETS`.
        number: 1, 2 or 3.

    Raises:
        BadInput: No such data set or set.
    """
    if dataset not in _QUESTIONS:
        raise BadInput(
            f"No demonstrations are known for data set {dataset!r}. Known: {', '.join(DATASETS)}."
        )
    if number not in SETS:
        raise BadInput(f"There is no demonstration set {number}. The sets are 1, 2 and 3.")
    questions, sets = _QUESTIONS[dataset]
    ids = questions.split()
    return tuple(ids["ABCDEFGHIJKLMNOPQRST".index(letter)] for letter in sets[number - 1])


def dataset_of(demonstrations: Sequence[Demonstration]) -> str | None:
    """The data set whose questions the examples are; None when it is none of `DATASETS`."""
    there = {str(d.metadata.get("qid")) for d in demonstrations}
    return next((d for d in DATASETS if not there.isdisjoint(_QUESTIONS[d][0].split())), None)


def main_passage_alone(demonstration: Demonstration, family: Family) -> Demonstration:
    """An example of IIRC without passages, which still shows the main one.

    It stands first in the files for Codex and last in those for Flan-T5.
    """
    context, mark, question = demonstration.text.rpartition("\n\nQ: ")
    if not mark:
        return demonstration
    passages = context.split(f"\n\n{TITLE}")
    main = passages[0] if family == "codex" else TITLE + passages[-1].removeprefix(TITLE)
    return Demonstration(f"{main}{mark}{question}", demonstration.metadata)


def choose_set(
    demonstrations: Sequence[Demonstration], number: int, where: str
) -> tuple[Demonstration, ...]:
    """A set's examples out of those of a file, in the set's order.

    Whose set it is shows in the examples: the one data set all of whose questions are there.

    Args:
        demonstrations: All examples of a file.
        number: 1, 2 or 3.
        where: The file, for the error message.

    Raises:
        BadInput: No such set, or the examples are not all there.
    """
    there = {str(d.metadata.get("qid")) for d in demonstrations}
    wanted = {dataset: set_ids(dataset, number) for dataset in DATASETS}
    found = {dataset: sum(id_ in there for id_ in ids) for dataset, ids in wanted.items()}
    dataset = max(found, key=lambda name: found[name])
    if found[dataset] < len(wanted[dataset]):
        raise BadInput(
            f"{where}: holds {found[dataset]} of the {len(wanted[dataset])} questions of "
            f"demonstration set {number} ({dataset}). Sets are chosen from the files of IRCoT's "
            "release; leave the set out to use every example of another file."
        )
    return select(demonstrations, wanted[dataset])[0]


def file_name(kind: Kind, distractors: int, family: Family) -> str:
    """What the release calls the prompt file.

    Args:
        kind: What its examples show.
        distractors: M; matters only where passages are shown.
        family: For whose prompts.
    """
    ending = "flan_t5" if family == "flan" else family
    if kind == "titles":
        return f"no_context_open_llm_retrieval_{ending}.txt"
    shown = "no" if kind.endswith("_alone") else f"gold_with_{distractors}_distractors"
    return f"{shown}_context_{kind.removesuffix('_alone')}_qa_{ending}.txt"


def make_files(
    instances: Sequence[Instance],
    *,
    splitter: Splitter,
    count: Callable[[str], int],
    seed: int = SEED,
) -> Iterator[tuple[str, tuple[Demonstration, ...]]]:
    """All prompt files of a data set, by name, made as the release's generator makes them.

    The files for Flan-T5 have the instructions and the plain lists of titles that the released
    ones have. Distractors are drawn anew for each M and are the same in all files of it, so the
    released files, for which one generator drew on and on, do not come out again.

    Args:
        instances: Annotated questions with their paragraphs, in file order.
        splitter: Cuts distractors at sentence ends.
        count: Tokens of a sentence; a distractor keeps fewer than 250.
        seed: Of the generator that draws and shuffles.
    """
    families: tuple[Family, ...] = get_args(Family)
    for family in families:
        flan = family == "flan"
        for task in ("cot", "direct"):
            for distractors in (0, *DISTRACTORS):
                rng = random.Random(seed + distractors)  # noqa: S311 - a draw, not a secret
                kind: Kind = task if distractors else f"{task}_alone"  # type: ignore[assignment]
                yield (
                    file_name(kind, distractors, family),
                    tuple(
                        make_demonstration(
                            instance,
                            distractors=distractors,
                            kind=task,
                            rng=rng,
                            splitter=splitter,
                            count=count,
                            pinned_last=flan,
                            instruction=INSTRUCTIONS[task] if flan else "",
                        )
                        for instance in instances
                    ),
                )
        if any(instance.get("pinned_contexts") for instance in instances):
            yield (
                file_name("titles", 0, family),
                tuple(
                    make_titles_demonstration(
                        instance,
                        "plain" if flan else "json",
                        INSTRUCTIONS["direct"] if flan else "",
                    )
                    for instance in instances
                ),
            )


@dataclass(frozen=True, slots=True)
class OfficialPrompts:
    """The prompt files of one data set.

    Attributes:
        folder: Such as `prompts/hotpotqa` of the release.
        distractors: M.
        family: Whose prompts.
        number: The set, or None for every example of a file in the file's order.

    Raises:
        BadInput: `distractors`, `family` or `number` is none of the release's.
    """

    folder: Path
    distractors: int = USUAL_DISTRACTORS
    family: Family = "codex"
    number: int | None = None

    def __post_init__(self) -> None:
        if self.distractors not in DISTRACTORS:
            raise BadInput(f"distractors is {self.distractors}; the files have 1, 2 or 3.")
        if self.family not in get_args(Family):
            raise BadInput(f"No family is named {self.family!r}. Known: codex, flan.")
        if self.number is not None and self.number not in SETS:
            raise BadInput(f"There is no demonstration set {self.number}: there are 1, 2 and 3.")

    def path(self, kind: Kind) -> Path | None:
        """The kind's file, or None when it is not there."""
        name = file_name(kind, self.distractors, self.family)
        # Two released files break the rule of their names.
        names = (name, name.replace("_flan_t5", "_for_flan_t5"), name.replace("_qa_codex", "_qa"))
        return next((self.folder / n for n in names if (self.folder / n).is_file()), None)

    def read(self, kind: Kind) -> tuple[Demonstration, ...]:
        """The kind's examples; none where there is no file of the kind.

        Raises:
            BadInput: The file cannot be read or lacks a question of the set; or the file of
                chains with passages, which every data set has, is missing.
        """
        path = self.path(kind)
        if path is None:
            if kind == "cot":
                raise BadInput(self._missing())
            return ()
        found = read(path)
        return found if self.number is None else choose_set(found, self.number, str(path))

    def _missing(self) -> str:
        wanted = file_name("cot", self.distractors, self.family)
        there = f"{self.folder}: no {wanted} is here."
        if not self.folder.is_dir():
            return f"{self.folder}: no such folder. Name one such as ircot/prompts/hotpotqa."
        below = [folder / name for folder in _folders_below(self.folder) for name in DATASETS]
        if inner := next((folder for folder in below if folder.is_dir()), None):
            return f"{there} Name the folder of one data set, such as {inner}."
        return f"{there} IRCoT's release has these files in prompts/DATASET."


def _folders_below(folder: Path) -> Iterator[Path]:
    yield folder
    yield folder / "prompts"
