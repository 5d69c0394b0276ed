"""`multihop predictions`: a run's answers in a data set's own format."""

from pathlib import Path

import click

from multihop import names, runs
from multihop import predictions as files
from multihop.cli.render import visible
from multihop.errors import BadInput


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("into", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(list(files.FORMATS)),
    help="Whose script is to read it. By default that of the questions' data set.",
)
@click.option(
    "--questions",
    metavar="QUESTIONS",
    help="The questions that were asked, as for eval: the file has them in this order. MuSiQue's "
    "script wants that.",
)
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Write it although questions failed or were not asked yet.",
)
def predictions(
    *, run: Path, into: Path, form: str | None, questions: str | None, allow_missing: bool
) -> None:
    """Write the predictions of RUN into FILE, for a data set's official script.

    What a format asks for and no strategy predicts (supporting sentences, evidence triples) is
    left empty so that the script runs, and named.
    """
    [folder, *others] = runs.folders(run)
    if others:
        listed = ", ".join(visible(str(path)) for path in (folder, *others))
        raise BadInput(f"{run}: holds several runs; name one: {listed}.")
    asked = names.open_questions(questions) if questions else None
    done = files.write(folder, into, form, questions=asked, allow_missing=allow_missing)
    click.echo(f"{visible(str(into))}: {done.questions} predictions.", err=True)
    for note in done.notes:
        click.echo(note, err=True)
