"""`multihop data demonstrations`: prompt files out of annotated questions."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from multihop import names
from multihop.datasets.base import Questions
from multihop.datasets.instances import Context
from multihop.errors import BadInput
from multihop.prompts import official, sentences
from multihop.prompts.annotations import Find, attach, read_annotations
from multihop.prompts.demonstrations import render
from multihop.text import Query

if TYPE_CHECKING:
    from multihop.retrievers.bm25 import BM25

MOST = 50
"""Paragraphs of a page that are looked at, as in IRCoT's release."""


@click.command()
@click.argument(
    "annotations", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE"
)
@click.option(
    "--contexts",
    metavar="KIND:PATH",
    help="Where the same questions stand with their paragraphs, as hotpotqa:train. Not needed "
    "for a .jsonl file that has them.",
)
@click.option(
    "--index",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Index of the corpus, for paragraphs that no context holds.",
)
@click.option(
    "--into",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the prompt files; files of the same names are replaced.",
)
@click.option(
    "--splitter",
    type=click.Choice(["light", "spacy"]),
    default="light",
    show_default=True,
    help="How distractors are cut; spacy is the release's (extra official).",
)
@click.option("--seed", type=int, default=official.SEED, show_default=True, help="Of the draws.")
def demonstrations(
    *,
    annotations: Path,
    contexts: str | None,
    index: Path | None,
    into: Path,
    splitter: str,
    seed: int,
) -> int:
    """Write prompt files of worked examples out of annotated questions.

    FILE is a list of annotated questions as in IRCoT's release
    (prompt_generator/data_annotations/hotpotqa.jsonnet). One file is written for each kind of
    call, each family of models and each number of distractors, as in the release's prompts folder;
    --demonstrations official:DIR reads them.
    """
    found = read_annotations(annotations)
    instances = _instances(found, contexts, _Pages(index)) if contexts else _ready(found)
    spacy = splitter == "spacy"
    files = official.make_files(
        instances,
        splitter=sentences.spacy if spacy else sentences.light,
        count=sentences.spacy_tokens if spacy else _words,
        seed=seed,
    )
    into.mkdir(parents=True, exist_ok=True)
    written = 0
    for name, examples in files:
        (into / name).write_text(render(examples), encoding="utf-8", newline="\n")
        written += 1
    click.echo(f"{into}: {written} files of {len(instances)} examples.", err=True)
    return 0


def _words(text: str) -> int:
    return len(text.split())


def _ready(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Records that bring their paragraphs."""
    for record in found:
        steps = [
            paragraph for step in record["reasoning_steps"] for paragraph in step["paragraphs"]
        ]
        if "contexts" not in record or not all("paragraph_text" in step for step in steps):
            raise BadInput(
                f"Annotation {record['question_id']} has no paragraphs. Say where the question "
                "stands with them: --contexts hotpotqa:train."
            )
        if not record.get("answers_objects"):
            raise BadInput(f"Annotation {record['question_id']} has no 'answers_objects'.")
    return list(found)


def _instances(
    found: Sequence[Mapping[str, Any]], contexts: str, find: Find
) -> list[Mapping[str, Any]]:
    """Annotations joined with the questions of a data set, in their own order."""
    source = names.open_questions(contexts)
    if not isinstance(source, Questions) or source.dataset.instances is None:
        raise BadInput(f"--contexts {contexts}: these questions come without paragraphs.")
    wanted = {record["question_id"] for record in found}
    known = {}
    for instance in source.dataset.instances(source.path):
        if instance.id in wanted:
            known[instance.id] = {
                "contexts": [_context(context) for context in instance.contexts],
                "pinned_contexts": [_context(context) for context in instance.pinned],
            }
    if missing := [record["question_id"] for record in found if record["question_id"] not in known]:
        raise BadInput(
            f"--contexts {contexts}: {len(missing)} of {len(found)} annotated questions are not "
            f"there, such as {missing[0]!r}. Annotations are of train questions."
        )
    return [attach(record, known[record["question_id"]], find) for record in found]


def _context(context: Context) -> dict[str, object]:
    return {
        "title": context.title,
        "paragraph_text": context.text,
        "is_supporting": context.supporting,
    }


class _Pages:
    """Looks paragraphs up in an index, if there is one; it is opened when it is first needed."""

    def __init__(self, index: Path | None) -> None:
        self._index = index
        self._open: BM25 | None = None

    def __call__(self, title: str, words: str) -> list[tuple[str, str]]:
        if self._index is None:
            return []
        if self._open is None:
            from multihop.retrievers.bm25 import BM25  # noqa: PLC0415 - loads the engine

            self._open = BM25(self._index, "text")
        [hits] = asyncio.run(self._open.search([Query(words, (title,))], MOST))
        return [(hit.passage.title, hit.passage.text) for hit in hits]
