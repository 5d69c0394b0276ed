"""The house: floors, light imports, no prints, nothing of the machine it was written on."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT

SOURCE = ROOT / "src" / "multihop"
MODULES = sorted(SOURCE.rglob("*.py"))

FLOORS = {
    "errors": 0,
    "files": 0,
    "places": 0,
    "shown": 0,
    "text": 0,
    "trace": 0,
    "typed_toml": 0,
    "cost": 0,
    "corpus": 1,
    "datasets": 1,
    "lms": 1,
    "metrics": 1,
    "prompts": 1,
    "retrievers": 1,
    "testing": 1,
    "strategies": 2,
    "bridges": 3,
    "names": 3,
    "claims": 3,
    "composed": 3,
    "cluster": 3,
    "evaluation": 3,
    "chain_errors": 3,
    "predictions": 3,
    "runs": 3,
    "comparison": 3,
    "experiments": 3,
    "training": 3,
    "cli": 4,
    "__main__": 5,
}

PROTOCOLS = ("multihop.lms.base", "multihop.lms.stops", "multihop.retrievers.base")
"""What the rooms of floor 1 may know of each other: the protocols, and how a stop string cuts."""

HEAVY = (
    *("tantivy", "aiohttp", "xllamacpp", "spacy", "torch", "transformers", "scipy", "numpy"),
    *("ftfy", "rapidfuzz", "regex", "sentencex", "snowballstemmer", "rich", "click", "httpx"),
    *("pypdf", "docx", "bs4", "fastapi", "ijson"),
)


def room(path: Path) -> str:
    """The first part of a module's name below the package."""
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Every module of ours that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("multihop"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it goes"
            if node.module == "multihop":
                yield from (f"multihop.{name.name}" for name in node.names)
            elif node.module and node.module.startswith("multihop."):
                yield node.module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_only_down(path: Path) -> None:
    here = room(path)
    if here == "__init__":
        return
    assert here in FLOORS, f"{here} has no floor: add it to FLOORS"
    for name in imports(path):
        there = name.split(".")[1] if "." in name else ""
        if there in ("", "__version__", here):
            continue
        down = FLOORS[there] < FLOORS[here]
        beside = FLOORS[there] == FLOORS[here] != 1 or name in PROTOCOLS
        assert down or beside, f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_printed_and_nothing_is_caught_broadly(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"{path}:{node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            reraises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            broad = caught in ("everything", "Exception", "BaseException")
            assert not broad or reraises, f"{path}:{node.lineno} catches {caught}"


def loaded(program: str) -> set[str]:
    """Top-level packages that a program has imported."""
    program += "\nimport json, sys; sys.stdout.write('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout.rpartition("\n")[2])}


def test_every_test_file_has_a_name_of_its_own() -> None:
    """Folders of tests are no packages: two files of one name cannot be collected together."""
    names = [path.name for path in (SOURCE.parent.parent / "tests").rglob("*.py")]
    assert sorted(names) == sorted(set(names))


def test_importing_multihop_imports_nothing_heavy() -> None:
    assert not loaded("import multihop").intersection(HEAVY)


def test_the_floors_below_the_command_line_import_nothing_optional() -> None:
    light = loaded("import multihop.names, multihop.evaluation, multihop.testing")
    assert not light.intersection(HEAVY)


def test_listing_the_commands_imports_none_of_them() -> None:
    program = """
import sys
from multihop.cli import cli
cli.main(["--help"], standalone_mode=False)
assert not [name for name in sys.modules if name.startswith("multihop.cli.")]
"""
    assert loaded(program).intersection(HEAVY) == {"click"}


def test_the_help_of_a_verb_imports_nothing_that_draws_or_runs() -> None:
    program = "from multihop.cli import cli\ncli.main(['eval', '--help'], standalone_mode=False)"
    assert loaded(program).intersection(HEAVY) == {"click"}


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    # Put together here so that this file does not hold what it looks for.
    unwanted = re.compile(
        "|".join(
            [
                r"(?<![\w.])/" + r"work/",
                r"/ro" + r"ot/",
                r"pypi\." + "org",
                "files.python" + "hosted",
                r"registry\." + "npmjs",
                "/opt/" + "pypi",
            ]
        )
    )
    found = []
    for path in tracked():
        if not path.is_file() or path.suffix in (".png", ".gguf"):
            continue
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            if unwanted.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)


def test_every_module_says_what_it_is() -> None:
    for path in MODULES:
        said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert len(said) > 10, f"{path} has no docstring that says what it is"
