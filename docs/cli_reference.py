"""Writes docs/cli.md from the commands themselves; run by `make docs`."""  # noqa: INP001

import sys
from pathlib import Path

import click

from multihop.cli import COMMANDS, cli

WIDTH = 96

HEAD = """\
# Command line

<!-- Written by `make docs` from the commands; a test fails when it is out of date. -->

Results go to stdout, all else to stderr. Exit codes: 0 done; 1 some questions failed, have no
answer, or were left because a budget was used up; 2 bad input, a part that cannot be used, or a
full disk; 130 interrupted; 141 nobody reads the output any more.

Environment: `MULTIHOP_INDEX`, `MULTIHOP_MODEL`, `MULTIHOP_PRICES` and `MULTIHOP_CACHE` (1 or 0)
stand for `--index`, `--model`, `--prices` and `--cache`; `MULTIHOP_RUNS` is the folder that runs
and traces are kept in (default: `multihop/runs` in the user's data folder, `~/.local/share`);
`MULTIHOP_DATA` is the folder of data sets and their indexes (default: `multihop/data` there);
`MULTIHOP_CACHE_DIR` is the folder of all that can be made again: the reply cache, evaluated
demonstrations, digests of model files, the demo's index (default: `multihop` in the user's cache
folder, `~/.cache`).
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD]
    root = click.Context(cli, info_name="multihop", **cli.context_settings, **_sizes())
    parts.append(f"## multihop\n\n```\n{cli.get_help(root)}\n```\n")
    for name in COMMANDS:
        command = cli.get_command(root, name)
        if command is None:
            raise SystemExit(f"{name} is listed but is no command")
        context = click.Context(command, info_name=name, parent=root, **_sizes())
        parts.append(f"## multihop {name}\n\n```\n{command.get_help(context)}\n```\n")
        if isinstance(command, click.Group):
            for each, inner in command.commands.items():
                below = click.Context(inner, info_name=each, parent=context, **_sizes())
                text = inner.get_help(below)
                parts.append(f"### multihop {name} {each}\n\n```\n{text}\n```\n")
    return "\n".join(parts)


def _sizes() -> dict[str, int]:
    return {"terminal_width": WIDTH, "max_content_width": WIDTH}


if __name__ == "__main__":
    page = Path(__file__).with_name("cli.md")
    page.write_text(reference(), encoding="utf-8")
    sys.stdout.write(f"Wrote {page}\n")
