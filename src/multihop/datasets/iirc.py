"""IIRC (Ferguson et al., EMNLP 2020): questions that a passage raises and linked pages answer.

    file                   passages   questions
    train.json             4,754      10,839
    dev.json                 430       1,301
    iirc_test.json           514       1,301   published later, with answers
    context_articles.json                      56,550 linked pages

The first two are in `iirc_train_dev.tgz`, the last in `context_articles.tar.gz`. Page:
https://allenai.org/data/iirc. Licence: CC BY 4.0, as a project that uses it says; its own page
was not at hand. The total of questions is the paper's; passages, questions and pages of each file
are as a converter in public counts them (its own notes), the two hashes as a project that
downloaded the archives publishes them. IRCoT has the articles from the bucket `iirc-dataset`,
that project from `jamesf-incomplete-qa`: which bytes the first serves is not known here.

A question file is one JSON array of passages:

    pid, title, text
    links       [{"target": a page's title, "indices"}]
    questions   [{"qid", "question", "question_links",
                  "answer": {"type": "span", "answer_spans": [{"text", ...}]}
                          | {"type": "binary" or "value", "answer_value", "answer_unit"}
                          | {"type": "none"},
                  "context": [{"passage": a title or "main", "text", "indices"}]}]

`context_articles.json` is one JSON object, from titles in lower case to pages in HTML.

Quirks:
- The passage is pinned: shown with the question, never searched for. What a question needs of it
  is no gold paragraph.
- The annotation is snippets. A gold paragraph is the page's paragraph that holds the snippet
  best (`fuzz.partial_ratio`), as in IRCoT's processing; a snippet of a page that is missing or
  has no paragraphs stands for itself. That needs context_articles.json beside the question file;
  without it a question has gold titles and snippets only.
- Paragraphs of a page are its lines of more than ten words; the corpus has them in an order
  shuffled page by page (seed 13370), the first of the page marked as its abstract.
- A few keys of the articles are not in lower case.
- Questions of type "none" have no answer; IRCoT leaves them out before it samples.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from multihop.datasets.arrays import array_records, object_entries
from multihop.datasets.base import Corpus, Dataset, Published, Split
from multihop.datasets.fields import needed, objects_field, text_field
from multihop.datasets.instances import Context, Instance
from multihop.errors import BadInput, MissingExtra
from multihop.text import Json, Passage, Question

NAME = "iirc"
HINT = "IIRC's own files are at https://allenai.org/data/iirc; or run: multihop data get iirc."
ARTICLES = "context_articles.json"
MIN_WORDS = 11
"""Words that make a line of a page a paragraph."""

SEED = 13370
"""Of the order of paragraphs in the corpus: that of IRCoT's release."""

_BUCKET = "https://iirc-dataset.s3.us-west-2.amazonaws.com/"
_MAIN = "main"


def instances(path: Path) -> Iterator[Instance]:
    """The questions of a file; their contexts are the gold paragraphs, distractors it has none."""
    articles = path.parent / ARTICLES
    best = _gold(path, articles) if articles.is_file() else None
    for where, record in array_records(path, HINT):
        yield from _instances(record, where, best)


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file."""
    return (instance.to_question() for instance in instances(path))


# --- Questions ------------------------------------------------------------------------------


def _instances(
    record: dict[str, Json], where: str, best: dict[tuple[str, str], str] | None
) -> Iterator[Instance]:
    title = text_field(record, "title", where, hint=HINT).strip()
    main = Context(title, text_field(record, "text", where, hint=HINT).strip(), supporting=True)
    links = tuple(
        text_field(link, "target", f"{where}: in 'links'", hint=HINT)
        for link in objects_field(record, "links", where, HINT)
    )
    for number, asked in enumerate(objects_field(record, "questions", where, HINT), 1):
        inside = f"{where}: question {number}"
        snippets = _snippets(asked, inside)
        answer, extra = _answer(asked, inside)
        extra["snippets"] = [{"title": page, "text": text} for page, text in snippets]
        if "question_links" in asked:
            extra["question_links"] = asked["question_links"]
        contexts = dict.fromkeys((page, best[page, text]) for page, text in snippets if best)
        titles = tuple(dict.fromkeys(page for page, _ in snippets if page != title))
        yield Instance(
            id=text_field(asked, "qid", inside, f"{title}/{number}", HINT),
            question=text_field(asked, "question", inside, hint=HINT),
            answer=answer,
            contexts=tuple(Context(page, text, supporting=True) for page, text in contexts),
            pinned=(main,),
            valid_titles=links,
            metadata={"type": str(extra["answer_type"])},
            dataset=NAME,
            gold_titles=() if best is not None else titles,
            extra=extra,
        )


def _snippets(asked: dict[str, Json], where: str) -> list[tuple[str, str]]:
    """Page and text of what was annotated, but for the main passage."""
    inside = f"{where}: in 'context'"
    found = [
        (
            text_field(item, "passage", inside, hint=HINT).strip(),
            text_field(item, "text", inside, hint=HINT).strip(),
        )
        for item in objects_field(asked, "context", where, HINT)
    ]
    return [(page, text) for page, text in found if page != _MAIN]


def _answer(asked: dict[str, Json], where: str) -> tuple[tuple[str, ...], dict[str, Json]]:
    answer = needed(asked, "answer", where, HINT)
    if not isinstance(answer, dict):
        raise BadInput(f"{where}: 'answer' must be an object. {HINT}")
    inside = f"{where}: in 'answer'"
    kind = text_field(answer, "type", inside, hint=HINT)
    extra: dict[str, Json] = {"answer_type": kind}
    match kind:
        case "span":
            spans = objects_field(answer, "answer_spans", inside, HINT)
            found = tuple(text_field(span, "text", inside, hint=HINT).strip() for span in spans)
        case "binary" | "value":
            found = (text_field(answer, "answer_value", inside, hint=HINT).strip(),)
            if answer.get("answer_unit"):
                extra["answer_unit"] = answer["answer_unit"]
        case "none":
            found = ()
            extra["answerable"] = False
        case _:
            raise BadInput(
                f"{inside}: unknown type {kind!r} (known: span, binary, value, none). {HINT}"
            )
    return found, extra


# --- Pages ----------------------------------------------------------------------------------


def _gold(path: Path, articles: Path) -> dict[tuple[str, str], str]:
    """For each snippet of a question file, by page and text, the paragraph that it is from."""
    stamps = [file.stat() for file in (path, articles)]
    return _found(path, articles, tuple((s.st_mtime_ns, s.st_size) for s in stamps))


@lru_cache(maxsize=4)  # a run reads its questions twice, and the pages take minutes
def _found(
    path: Path,
    articles: Path,
    stamps: tuple[tuple[int, int], ...],  # noqa: ARG001 - changed files are read anew
) -> dict[tuple[str, str], str]:
    from rapidfuzz import fuzz  # noqa: PLC0415 - takes time, and only this needs it

    wanted: dict[str, set[tuple[str, str]]] = {}
    for where, record in array_records(path, HINT):
        for number, asked in enumerate(objects_field(record, "questions", where, HINT), 1):
            for page, text in _snippets(asked, f"{where}: question {number}"):
                wanted.setdefault(page.lower(), set()).add((page, text))
    found = {snippet: snippet[1] for snippets in wanted.values() for snippet in snippets}
    parse = _parser()
    for where, title, html in object_entries(articles, HINT):
        snippets = wanted.get(title.lower())
        if not snippets:
            continue
        paragraphs = _paragraphs(html, where, parse)
        if paragraphs:
            for page, text in snippets:
                best = max(paragraphs, key=lambda p, t=text: fuzz.partial_ratio(p, t))  # type: ignore[misc]
                found[page, text] = best.strip()
    return found


def _parser() -> Callable[[str], str]:
    """A function that gives the text of a page in HTML."""
    try:
        from bs4 import BeautifulSoup  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtra("beautifulsoup4", "data") from None
    return lambda html: BeautifulSoup(html, "html.parser").text


def _paragraphs(html: Json, where: str, parse: Callable[[str], str]) -> list[str]:
    if not isinstance(html, str):
        raise BadInput(f"{where}: the page must be a string, found {type(html).__name__}. {HINT}")
    return [line for line in parse(html).split("\n") if len(line.split()) >= MIN_WORDS]


def corpus(paths: Sequence[Path]) -> Iterator[Passage]:
    """The paragraphs of all pages.

    Args:
        paths: context_articles.json, alone.
    """
    [path] = paths
    parse = _parser()
    shuffler = random.Random(SEED)  # noqa: S311 - the release's order, no secret
    for where, title, html in object_entries(path, HINT):
        numbered = list(enumerate(_paragraphs(html, where, parse)))
        shuffler.shuffle(numbered)
        for number, text in numbered:
            about: dict[str, Json] = {"paragraph_index": number, "is_abstract": number == 0}
            yield Passage(f"{title}#{number}", title, text, about)


IIRC = Dataset(
    name=NAME,
    title="IIRC",
    home="https://allenai.org/data/iirc",
    licence="CC BY 4.0",
    citation="Ferguson et al., IIRC: A Dataset of Incomplete Information Reading Comprehension "
    "Questions, EMNLP 2020",
    files=(
        Published(
            "iirc_train_dev.tgz",
            f"{_BUCKET}iirc_train_dev.tgz",
            None,
            "adfc34c8180337467105b2f534410c34e4fe43a82e6da03922440387802ca441",
            ("train.json", "dev.json"),
        ),
        Published("iirc_test.json", f"{_BUCKET}iirc_test.json"),
        Published(
            "context_articles.tar.gz", f"{_BUCKET}context_articles.tar.gz", members=(ARTICLES,)
        ),
    ),
    splits=(
        Split("train", "train.json", 10_839),
        Split("dev", "dev.json", 1_301),
        Split("test", "iirc_test.json", 1_301),
    ),
    read=questions,
    instances=instances,
    corpus=Corpus(
        (ARTICLES,), corpus, 1_882_415, "The paragraphs of the pages that the passages link to."
    ),
)
