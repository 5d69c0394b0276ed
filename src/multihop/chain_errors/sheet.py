"""The CSV file that a person marks, and its way back.

One sentence a row. The column `person` is left empty for the mark: `ok`, `error` or `no claim`
(or one of the judge's words). What it is compared with stands in the columns before it; whoever
marks should not look at them, so hide them.

The file goes through spreadsheet programs, and its texts are a model's and the web's. A cell that
a program would take for a formula (it begins with =, +, -, @, a tab or a line's end) gets a ' in
front, which is taken off again when the file is read. The file is UTF-8 with a byte order mark,
by which Excel knows it; read back it may also be parted by semicolons or tabs, as some save it.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from multihop.chain_errors.chains import Chain
from multihop.chain_errors.overlap import check, ranked
from multihop.chain_errors.verdicts import Key, Verdict
from multihop.errors import BadInput
from multihop.files import write
from multihop.prompts.sentences import light
from multihop.text import Passage

COLUMNS = (
    "run",
    "strategy",
    "question_id",
    "question",
    "sentence_number",
    "sentence",
    "passages",
    "excerpt",
    "not_found",
    "proxy",
    "judge",
    "person",
)
"""`passages`: titles of those that cover the sentence best; `excerpt`: their sentence that
shares most with it; `not_found`: its names and numbers that stand in neither."""

EXCERPT = 300
"""Most characters of an excerpt from one passage."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")

_MARKS: Mapping[str, Verdict] = {
    "ok": "supported",
    "error": "contradicted",
    **{verdict: verdict for verdict in get_args(Verdict) if verdict != "unparsable"},
}


@dataclass(frozen=True, slots=True)
class Row:
    """What a row says when it is read back.

    Attributes:
        key: Which sentence.
        sentence: Its text.
        judge: The judge's verdict; None where there was none.
        person: The person's mark; None where there is none yet.
    """

    key: Key
    sentence: str
    judge: Verdict | None
    person: Verdict | None


def write_sheet(
    path: Path,
    chains: Sequence[Chain],
    proxy: Mapping[Key, Verdict],
    judge: Mapping[Key, Verdict] | None = None,
    person: Mapping[Key, Verdict] | None = None,
) -> int:
    """Write the sentences of chains, one a row.

    Args:
        path: The file; replaced at once when it is complete.
        chains: Whose sentences.
        proxy: The proxy's verdicts.
        judge: The judge's; None leaves the column empty.
        person: Marks that are already there, to be kept.

    Returns:
        How many rows it has.

    Raises:
        BadInput: Its folder is missing.
    """
    if not path.parent.is_dir():
        raise BadInput(f"{path}: the folder {path.parent} does not exist. Make it first.")
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(COLUMNS)
    number = 0
    for chain in chains:
        for sentence in chain.sentences:
            key = (chain.run, chain.question_id, sentence.number)
            covered = check(sentence.text, chain.passages)
            excerpts = (_excerpt(sentence.text, p.title, p.text) for p in covered.passages)
            cells = (
                chain.run,
                chain.strategy,
                chain.question_id,
                chain.question,
                str(sentence.number),
                sentence.text,
                "; ".join(p.title for p in covered.passages),
                " … ".join(excerpts),
                "; ".join(covered.missing) if sentence.claims else "",
                proxy.get(key, ""),
                (judge or {}).get(key, ""),
                (person or {}).get(key, ""),
            )
            rows.writerow([_plain(cell) for cell in cells])
            number += 1
    write(path, "\ufeff" + _written(text.getvalue()))
    return number


def _written(text: str) -> str:
    """A text as the file has it: halves of surrogate pairs have no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def read_sheet(path: Path) -> list[Row]:
    """Read a file that `write_sheet` wrote and a person marked.

    Raises:
        BadInput: Missing, not UTF-8, without a column that is needed, or with a mark or verdict
            that is none; the message names the row.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file.") from None
    except UnicodeDecodeError as broken:
        raise BadInput(
            f"{path}: not UTF-8 ({broken}). Save it as CSV in the encoding UTF-8."
        ) from None
    head = text.partition("\n")[0]
    parted = max(",;\t", key=head.count)
    lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=parted, strict=True)
    found: dict[Key, Row] = {}
    try:
        missing = {"run", "question_id", "sentence_number", "sentence", "person"}.difference(
            lines.fieldnames or ()
        )
        if missing:
            raise BadInput(
                f"{path}: has no column {', '.join(sorted(missing))} (it has: "
                f"{', '.join(lines.fieldnames or ()) or 'none'}). Mark the file that --csv wrote."
            )
        for record in lines:
            where = f"{path}:{lines.line_num}"
            row = _read(record, where)
            if row.key in found:
                raise BadInput(f"{where}: sentence {row.key} stands there twice. Delete one.")
            found[row.key] = row
    except csv.Error as broken:
        raise BadInput(f"{path}:{lines.line_num}: not CSV ({broken}).") from None
    if not found:
        raise BadInput(f"{path}: has no rows. Mark the file that --csv wrote.")
    return list(found.values())


def marks(
    rows: Sequence[Row], chains: Sequence[Chain], path: Path
) -> tuple[dict[Key, Verdict], dict[Key, Verdict] | None]:
    """The person's marks and the judge's verdicts of a file, for these chains.

    Args:
        rows: What the file says.
        chains: What is checked.
        path: The file, for the error message.

    Returns:
        The marks, and the verdicts; None where the file has none.

    Raises:
        BadInput: A row is of no sentence of the chains, or of one that reads otherwise.
    """
    texts = {
        (chain.run, chain.question_id, sentence.number): sentence.text
        for chain in chains
        for sentence in chain.sentences
    }
    for row in rows:
        run, question, number = row.key
        where = f"{path}: sentence {number} of question {question!r} in run {run!r}"
        if row.key not in texts:
            raise BadInput(
                f"{where} is not among those checked. Name the runs, and the --chain, that the "
                "file was made of."
            )
        # Spreadsheet programs may change line ends and blanks, and nothing else.
        if "".join(row.sentence.split()) != "".join(_written(texts[row.key]).split()):
            raise BadInput(
                f"{where} reads {texts[row.key][:80]!r} there and {row.sentence[:80]!r} here. "
                "The run has changed since the file was made; make and mark it anew."
            )
    judged = {row.key: row.judge for row in rows if row.judge}
    return {row.key: row.person for row in rows if row.person}, judged or None


def _read(record: Mapping[str | None, str | None], where: str) -> Row:
    cells = {name: _text(cell or "") for name, cell in record.items() if name is not None}
    number = cells["sentence_number"].strip()
    if not (number.isascii() and number.isdigit()):
        raise BadInput(f"{where}: sentence_number is {number!r}; expected a whole number.")
    judged = cells.get("judge", "").strip().lower()
    if judged and judged not in get_args(Verdict):
        raise BadInput(f"{where}: judge is {judged!r}; known: {', '.join(get_args(Verdict))}.")
    marked = " ".join(cells["person"].lower().split()).removesuffix(".")
    if marked and marked not in _MARKS:
        raise BadInput(
            f"{where}: person is {marked[:80]!r}; known: {', '.join(_MARKS)}, or nothing."
        )
    return Row(
        key=(cells["run"], cells["question_id"], int(number)),
        sentence=cells["sentence"],
        judge=judged or None,  # type: ignore[arg-type]
        person=_MARKS[marked] if marked else None,
    )


def _plain(cell: str) -> str:
    """A cell that no program takes for a formula; a leading ' is doubled, so nothing is lost."""
    return f"'{cell}" if cell.startswith((*_FORMULA, "'")) else cell


def _text(cell: str) -> str:
    return cell.removeprefix("'")


def _excerpt(sentence: str, title: str, text: str) -> str:
    """The sentence of a passage that shares most with another, cut at `EXCERPT` characters."""
    parts = [Passage("", title, part) for part in light(text)]
    best = ranked(sentence, parts, 1)
    shown = " ".join(best[0].text.split()) if best else ""
    return shown if len(shown) <= EXCERPT else shown[:EXCERPT].rstrip() + " …"
