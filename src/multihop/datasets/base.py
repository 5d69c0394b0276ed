"""What a data set is: where its files are published, and how they are read.

Each data set is one module with one `Dataset` in it, and one line in `multihop.names.DATASETS`.
The record says where the published files are; fetching them is another's work.
"""

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from multihop import places
from multihop.datasets.instances import Instance
from multihop.errors import BadInput
from multihop.text import Passage, Question


@dataclass(frozen=True, slots=True)
class Published:
    """A file as its publisher offers it.

    Attributes:
        name: What it is kept as, in the data set's folder.
        url: Where it is; empty where no address of it is known.
        size: In bytes; None where it is not known.
        sha256: Of its content, in hexadecimal; None where it is not known.
        members: Of an archive, the files to unpack, each named by the end of its path there and
            kept under that name. Empty: it is used as it is.
        note: What a user has to know to get it: a form to fill in, a server that is gone.
    """

    name: str
    url: str = ""
    size: int | None = None
    sha256: str | None = None
    members: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """A file of questions.

    Attributes:
        name: "train", "dev", "test", ...
        file: Its name in the data set's folder.
        questions: How many the published file holds, read as here; None where it is not known.
        answers: Whether the published file has the answers.
    """

    name: str
    file: str
    questions: int | None = None
    answers: bool = True


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is searched for a data set's questions.

    Attributes:
        files: Names of the files that it is made of, in this order.
        read: Makes the passages from those files, as IRCoT's release does where it knows the
            data set. Memory does not grow with the files, but for the hashes of passages where
            repeats are dropped.
        passages: How many there are of the published files; None where it is not known.
        about: What it is, in a sentence.
    """

    files: tuple[str, ...]
    read: Callable[[Sequence[Path]], Iterator[Passage]]
    passages: int | None = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set.

    Attributes:
        name: As in `KIND:PATH`, and the name that questions bear in the field `dataset`.
        title: As its authors write it.
        home: The address of its own page.
        licence: Of the data.
        citation: The paper.
        files: All published files that are read here, questions and corpora.
        splits: Its files of questions.
        read: The questions of a file in the published format, in its order, with the file and
            the number of the record in every error.
        instances: The same with their contexts, for data sets that come with some.
        corpus: None for a data set without one.
    """

    name: str
    title: str
    home: str
    licence: str
    citation: str
    files: tuple[Published, ...]
    splits: tuple[Split, ...]
    read: Callable[[Path], Iterator[Question]]
    instances: Callable[[Path], Iterator[Instance]] | None = None
    corpus: Corpus | None = None

    @property
    def folder(self) -> Path:
        """Where its files are kept: `places.data_home()/name`."""
        return places.data_home() / self.name

    def split(self, name: str) -> Split:
        """The split of this name.

        Raises:
            BadInput: There is none.
        """
        for split in self.splits:
            if split.name == name:
                return split
        names = [split.name for split in self.splits]
        close = difflib.get_close_matches(name, names, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise BadInput(
            f"{self.title} has no split {name!r}, and there is no such file.{guess} "
            f"Known: {', '.join(names) or 'none'}; or write {self.name}:PATH."
        )

    def questions(self, target: str) -> "Questions":
        """The questions of a split that was downloaded, or of a file.

        Args:
            target: A split's name, else a path. A file that bears a split's name is meant by
                ./NAME.

        Raises:
            BadInput: There is no such split and no such file.
        """
        if any(split.name == target for split in self.splits):
            split = self.split(target)
            path = self.folder / split.file
            if not path.is_file():
                raise BadInput(
                    f"{self.title} {target} is not here: {path} does not exist. Run: multihop "
                    f"data get {self.name}; or name a file of your own, {self.name}:PATH."
                )
            return Questions(self, path, split)
        path = Path(target)
        if not target or not path.exists():
            self.split(target)
        if not path.is_file():
            raise BadInput(f"{path}: not a file. Write {self.name}:PATH with a file of questions.")
        return Questions(self, path)


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of a file; read anew each time it is iterated over.

    Iterating raises `BadInput`, with file and record, for what is not in the published format,
    for an id that came before, and at the end of a downloaded split that has not as many
    questions as the published one.

    Attributes:
        dataset: Whose format the file has.
        path: The file.
        split: What it was asked for as; None for a file of the user's.
    """

    dataset: Dataset
    path: Path
    split: Split | None = None

    def __iter__(self) -> Iterator[Question]:
        """From the beginning."""
        seen: set[str] = set()
        answered = False
        for question in self.dataset.read(self.path):
            if question.id in seen:
                raise BadInput(
                    f"{self.path}: two questions have the id {question.id!r}. "
                    f"{self.dataset.title} as published has each once; leave one of them out."
                )
            seen.add(question.id)
            answered = answered or bool(question.answers)
            yield question
        if self.split:
            self._check(self.split, len(seen), answered=answered)

    def _check(self, split: Split, count: int, *, answered: bool) -> None:
        """Refuse a file that cannot be the split whose name it bears."""
        title, again = self.dataset.title, f"multihop data get {self.dataset.name}"
        if split.answers and not answered:
            raise BadInput(
                f"{self.path}: none of its {count} questions has an answer, but those of {title} "
                f"{split.name} have: it is another split. Delete it and run: {again}."
            )
        if split.questions is not None and count != split.questions:
            raise BadInput(
                f"{self.path}: {count} questions, but {title} {split.name} has "
                f"{split.questions}: the file is cut short, or another split. Delete it and "
                f"run: {again}."
            )
