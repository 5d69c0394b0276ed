"""The documentation: its commands are understood, its Python runs, its links lead somewhere."""

import re
import shlex
from pathlib import Path

import click
import pytest

from conftest import ROOT
from multihop.cli import COMMANDS, cli

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "requirements").glob("*.md")),
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )


def commands(page: Path) -> list[list[str]]:
    """Every line of a plain block that calls us, without what the shell does with it."""
    found = []
    for block in blocks(page, "(?:bash|sh|console)?"):
        for line in block.replace("\\\n", " ").splitlines():
            call = re.match(r"(?:\$ )?multihop\b(?!:)(.*)", line)
            if call:
                words = re.split(r"\s(?:2?>|<|\||#)", " " + call[1])[0]
                found.append(shlex.split(words))
    return found


CALLS = [
    pytest.param(words, id=f"{page.name}: {' '.join(words)[:60]}")
    for page in PAGES
    if page.name != "cli.md"
    for words in commands(page)
]


@pytest.mark.parametrize("words", CALLS)
def test_a_command_in_the_docs_is_understood(words, monkeypatch, tmp_path) -> None:
    """Options and their values are parsed; nothing runs."""
    monkeypatch.chdir(tmp_path)
    for word in words:  # the files that the example speaks of
        if "." in word and " " not in word and not word.startswith("-"):
            path = tmp_path / word.replace("*", "x")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        elif word.startswith("run") or word == "RUN":
            (tmp_path / word).mkdir(parents=True, exist_ok=True)
    context = click.Context(cli, info_name="multihop", **cli.context_settings)
    if not any(word in COMMANDS or word.startswith("--") for word in words[:1]):
        words = ["ask", *words]
    if words[0].startswith("--"):
        cli.make_context("multihop", words, resilient_parsing=True)
        return
    command = cli.get_command(context, words[0])
    assert command, words
    arguments = [word.replace("*", "x") for word in words[1:]]
    command.make_context(words[0], arguments, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "quickstart.md"])
def test_python_in_the_docs_compiles(page) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


@pytest.mark.embedded
@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "quickstart.md"])
def test_python_in_the_docs_runs_as_printed(page, monkeypatch, tmp_path, capsys) -> None:
    from multihop.cli.demo import shipped_index

    shipped_index().rename(tmp_path / "my-index")
    monkeypatch.chdir(tmp_path)
    [block] = blocks(page, "python")
    exec(compile(block, str(page), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()
