"""The command line.

`multihop QUESTION --index DIR` asks; the other verbs are listed by `multihop --help`. Each
command is a module of its own, imported when it is called. Results go to stdout, all else to
stderr. Exit codes: 0 done; 1 some questions failed; 2 bad input, or a part that cannot be used;
130 interrupted; 141 nobody reads the output any more.
"""

import difflib
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from multihop import __version__
from multihop.errors import MultihopError

COMMANDS: dict[str, tuple[str, str]] = {
    "ask": ("multihop.cli.ask:ask", "Answer a question, or many from standard input."),
    "index": ("multihop.cli.index:index", "Build a BM25 index over files and folders."),
    "data": ("multihop.cli.data:data", "Fetch data sets, build their corpora, draw samples."),
    "search": ("multihop.cli.search:search", "Show what a retriever finds for a query."),
    "eval": ("multihop.cli.evaluate:evaluate", "Run strategies on a question file and score them."),
    "score": ("multihop.cli.score:score", "Score finished runs; no model is run."),
    "compare": (
        "multihop.cli.compare:compare",
        "Compare runs on the same questions, with tests and diagnoses.",
    ),
    "predictions": (
        "multihop.cli.predictions:predictions",
        "Write a run's answers in a data set's own format.",
    ),
    "factcheck": (
        "multihop.cli.factcheck:factcheck",
        "Count factual errors in the chains of finished runs.",
    ),
    "experiment": (
        "multihop.cli.experiment:experiment",
        "Run the paper's protocol from one file: grids, best settings, tables.",
    ),
    "train": ("multihop.cli.train:train", "Teach a model the loop: lessons, adapter, card."),
    "show": ("multihop.cli.show:show", "Replay a kept trace, or list a run's."),
    "cache": ("multihop.cli.cache:cache", "Say how full the reply cache is, or empty it."),
    "doctor": ("multihop.cli.doctor:doctor", "Say what is installed and what is missing."),
    "demo": ("multihop.cli.demo:demo", "Ask the shipped corpus a two-hop question."),
}
"""Each verb's home and one-line help; the help stands here so that listing imports nothing."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
"""Errors of writing; those of an open file name none."""


class _NobodyReads(Exception):
    """The other end of a pipe was closed; click would take it for a failure."""


class Verbs(click.Group):
    """The verbs; whatever is no verb but reads like a question is asked."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """In the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a verb."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the verb `ask` before a question, or before options that are not the group's."""
        if args and args[0] not in COMMANDS:
            first = args[0]
            own = first in ("-h", "--help", "--version")
            option = first.startswith("-") and not own
            if option or " " in first.strip() or first.endswith("?"):
                args = ["ask", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest verb when there is none of this name."""
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(
                f"No command is named {name!r}.{guess} Known: {', '.join(COMMANDS)}. "
                "To ask a question of one word, write: multihop ask QUESTION"
            )
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the command line; help is printed here."""
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:
            raise _NobodyReads from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _NobodyReads from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="multihop")
def cli() -> None:
    """Answer questions whose evidence must be found in several hops.

    multihop QUESTION --index DIR is short for multihop ask QUESTION --index DIR.
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with its exit code."""
    _open_standard_files()
    try:
        code = cli.main(args, prog_name="multihop", standalone_mode=False)
        sys.stdout.flush()
    except MultihopError as failure:
        _say(str(failure))
        sys.exit(2)
    except click.ClickException as misuse:
        misuse.show()
        sys.exit(misuse.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _say("Interrupted.")
        sys.exit(130)
    except (_NobodyReads, BrokenPipeError):  # the reader has seen enough
        _drop_output()
        sys.exit(141)
    except OSError as failure:
        if failure.filename is None and failure.errno not in _FULL:
            raise
        where = "" if failure.filename is None else f"{failure.filename}: "
        _say(f"{where}{failure.strerror}.")
        _drop_output()
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _open_standard_files() -> None:
    """Let what was closed before the start lead to the null device.

    Else the next file that is opened gets its number, and what is printed goes into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _drop_output() -> None:
    """Lose what is still to be printed: Python would try again at its end, and fail again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say(message: str) -> None:
    from multihop.cli.render import visible  # noqa: PLC0415 - not needed where all goes well

    with suppress(OSError):  # stderr may be what cannot be written
        click.echo(f"multihop: {visible(message)}", err=True)
