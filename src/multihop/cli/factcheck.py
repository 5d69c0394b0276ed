"""`multihop factcheck`: factual errors in the chains of finished runs."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import click

from multihop import chain_errors, runs
from multihop.chain_errors import Agreement, Chosen, Contrast, Count, Key, Verdict
from multihop.chain_errors.chains import Evidence, Source
from multihop.chain_errors.judge import MAX_TOKENS
from multihop.cli import parts
from multihop.cli.render import visible
from multihop.lms.cache import CachedLM
from multihop.lms.layers import layered
from multihop.lms.store import ReplyStore

Form = Literal["table", "json", "markdown"]

EVERY = 50
"""Sentences between two lines of progress."""


@click.command()
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    metavar="RUN...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option("--judge", metavar="KIND:TARGET", help="Ask a model too, as openai:MODEL@URL.")
@click.option(
    "--judge-option",
    "judge_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the judge's kind. May repeat.",
)
@click.option(
    "--judge-tokens",
    type=click.IntRange(1),
    default=MAX_TOKENS,
    show_default=True,
    metavar="N",
    help="Most tokens of a verdict; a thinking model needs more.",
)
@click.option(
    "--calls",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    metavar="N",
    help="Most calls of the judge in flight.",
)
@click.option(
    "--cache/--no-cache",
    default=True,
    help="Whether verdicts are kept on disk, so that a repeated command asks nothing twice.",
)
@click.option(
    "--chain",
    "source",
    type=click.Choice(["auto", "loop", "reader"]),
    default="auto",
    show_default=True,
    help="The loop's sentences, what the reader wrote (as in the paper), or the loop's where "
    "there is one.",
)
@click.option(
    "--evidence",
    type=click.Choice(["pooled", "own"]),
    default="pooled",
    show_default=True,
    help="Check against what all these runs collected for a question, or each run against its own.",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="Only N questions, drawn at random (paper: 40 a data set).",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of the draw.")
@click.option(
    "--csv",
    "sheet",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the sentences for a person to mark in the column `person`: ok, error, no claim.",
)
@click.option(
    "--read-back",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read a marked file of these runs, and compare it with proxy and judge. Its questions "
    "are taken, and its judge's verdicts unless --judge is given.",
)
@click.option("--json", "form", flag_value="json", help="Print the report as JSON.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown.")
@click.option("--table", "form", flag_value="table", default=True, hidden=True)
def factcheck(
    *,
    folders: tuple[Path, ...],
    judge: str | None,
    judge_options: tuple[str, ...],
    judge_tokens: int,
    calls: int,
    cache: bool,
    source: Source,
    evidence: Evidence,
    sample: int | None,
    seed: int,
    sheet: Path | None,
    read_back: Path | None,
    form: Form,
) -> None:
    """Count factual errors in the chains of RUN folders, over the same questions.

    Each sentence before the answer is checked against the passages that were collected: by
    looking for its names, numbers and words, by a judge, and by a person.
    """
    every = [run for folder in folders for run in runs.folders(folder)]
    options = parts.pairs("--judge-option", judge_options)
    marked = chain_errors.read_sheet(read_back) if read_back else None
    chosen = chain_errors.choose(
        every,
        source=source,
        evidence=evidence,
        sample=sample,
        seed=seed,
        only=None if marked is None else dict.fromkeys(row.key[1] for row in marked),
    )
    proxy = chain_errors.by_overlap(chosen.chains)
    person: Mapping[Key, Verdict] = {}
    judged: Mapping[Key, Verdict] | None = None
    if marked is not None and read_back is not None:
        person, judged = chain_errors.marks(marked, chosen.chains, read_back)
    if judge:
        judged = asyncio.run(
            _ask(judge, options, chosen, calls=calls, cache=cache, max_tokens=judge_tokens)
        )
    if sheet:
        number = chain_errors.write_sheet(sheet, chosen.chains, proxy, judged, person)
        click.echo(f"{visible(str(sheet))}: {number} sentences to mark.", err=True)
    checkers: list[tuple[str, Mapping[Key, Verdict]]] = [("proxy", proxy)]
    checkers += [("judge", judged)] if judged else []
    checkers += [("person", person)] if person else []
    counts = [
        count
        for name, verdicts in checkers
        for count in chain_errors.count(chosen.chains, verdicts, name)
    ]
    agreements = [
        chain_errors.agreement(first, second)
        for place, first in enumerate(checkers)
        for second in checkers[place + 1 :]
    ]
    contrasts = [
        contrast
        for name, verdicts in checkers
        for contrast in chain_errors.contrast(chosen.chains, verdicts, name)
    ]
    _show(chosen, counts, contrasts, agreements, form)


async def _ask(
    name: str,
    options: Mapping[str, str],
    chosen: Chosen,
    *,
    calls: int,
    cache: bool,
    max_tokens: int,
) -> dict[Key, Verdict]:
    lm = parts.open_lm(name, options)
    store = ReplyStore() if cache else None
    try:
        asked = layered(lm, in_flight=calls, fuse=False, cache=store)
        found = await chain_errors.judge(
            asked, chosen.chains, at_work=calls, max_tokens=max_tokens, on_progress=_progress()
        )
        if isinstance(asked, CachedLM):
            given = asked.hits + asked.joined
            click.echo(
                f"Cache: {given} of {given + asked.misses} verdicts were replayed.", err=True
            )
        await asked.aclose()
        return found
    finally:
        await lm.aclose()
        if store:
            await store.aclose()


def _progress() -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        if done % EVERY == 0 or done == total:
            click.echo(f"{done} of {total} sentences judged", err=True)

    return tell


def _show(
    chosen: Chosen,
    counts: Sequence[Count],
    contrasts: Sequence[Contrast],
    agreements: Sequence[Agreement],
    form: Form,
) -> None:
    if form == "json":
        report = {
            "questions": chosen.questions,
            "left_out": chosen.left_out,
            "counts": [count.to_dict() for count in counts],
            "contrasts": [contrast.to_dict() for contrast in contrasts],
            "agreement": [agreement.to_dict() for agreement in agreements],
        }
        click.echo(json.dumps(report, indent=1))
        return
    several = {c.strategy for c in counts}
    runs_of = {c.run: c.strategy for c in counts}
    # A strategy's name says more than its folder's, where it tells the runs apart.
    shown = runs_of if len(several) == len(runs_of) else {run: run for run in runs_of}
    tables = [_counts(counts, shown)]
    tables += [_contrasts(contrasts, shown)] if contrasts else []
    tables += [_agreements(agreements)] if agreements else []
    show = _markdown if form == "markdown" else _plain
    click.echo("\n\n".join(show(table) for table in tables))
    left_out = (
        f"; {chosen.left_out} are left out, which not every run has finished"
        if chosen.left_out
        else ""
    )
    click.echo(f"{chosen.questions} questions{left_out}.", err=True)


def _counts(counts: Sequence[Count], shown: Mapping[str, str]) -> list[list[str]]:
    """A head and a line for each checker and run."""
    found = [
        [
            *("checked by", "run", "chains", "with an error %", "errors a chain", "undecided"),
            *("sentences", "contradicted", "not mentioned", "no claim", "unparsable"),
        ]
    ]
    for c in counts:
        given = c.verdicts
        found.append(
            [
                c.checker,
                shown[c.run],
                str(c.chains),
                "-" if c.share is None else f"{100 * c.share:.1f}",
                "-" if c.per_chain is None else f"{c.per_chain:.2f}",
                str(c.undecided),
                str(c.sentences),
                str(given.get("contradicted", 0)),
                str(given.get("not mentioned", 0)),
                str(given.get("no claim", 0)),
                str(given.get("unparsable", 0)),
            ]
        )
    return found


def _contrasts(contrasts: Sequence[Contrast], shown: Mapping[str, str]) -> list[list[str]]:
    head = [
        *("checked by", "runs", "questions"),
        *("only the first wrong", "only the second wrong", "p (McNemar, Holm)"),
    ]
    return [
        head,
        *(
            [
                c.checker,
                f"{shown[c.first]}, {shown[c.second]}",
                *(str(n) for n in (c.n, c.only_first, c.only_second)),
                f"{c.p:.2g}",
            ]
            for c in contrasts
        ),
    ]


def _agreements(agreements: Sequence[Agreement]) -> list[list[str]]:
    head = [
        *("agreement", "sentences", "agree %", "kappa"),
        *("both: error", "only the first", "only the second", "neither"),
    ]
    return [
        head,
        *(
            [
                f"{a.first}, {a.second}",
                str(a.n),
                "-" if a.share is None else f"{100 * a.share:.1f}",
                "-" if a.kappa is None else f"{a.kappa:.2f}",
                *(str(n) for n in (a.both, a.only_first, a.only_second, a.neither)),
            ]
            for a in agreements
        ),
    ]


def _plain(table: Sequence[Sequence[str]]) -> str:
    cells = [[visible(cell) for cell in line] for line in table]
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    texts = 2 if cells[0][1].startswith("run") else 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def _markdown(table: Sequence[Sequence[str]]) -> str:
    head, *lines = [[visible(cell).replace("|", "\\|") for cell in line] for line in table]
    texts = 2 if head[1].startswith("run") else 1
    return "\n".join(
        "| " + " | ".join(line) + " |"
        for line in (head, ["---"] * texts + ["---:"] * (len(head) - texts), *lines)
    )
