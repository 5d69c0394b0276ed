"""A small index, a script, and the command line run in this process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from multihop.cli import main
from multihop.retrievers.bm25_index import build_index
from multihop.text import Passage

PASSAGES = (
    Passage("lost", "Lost Gravity", "Lost Gravity is a roller coaster built by Mack Rides."),
    Passage("mack", "Mack Rides", "Mack Rides is a company from Waldkirch in Germany."),
    Passage("ulm", "Ulm", "Ulm is a city on the Danube."),
    Passage(
        "evil",
        "[bold]Evil[/bold] \x1b]0;owned\x07",
        "Evil \x1b[2J\x1b[31mwipes\u202e the screen [link=file:///etc/passwd]here[/link] \x9b1m.",
    ),
)
SCRIPT = {
    "rules": [
        {"prompt": "Evil[^\n]*\nA:$", "text": "Evil \x1b[5mblinks [red]. So the answer is: \x07x."},
        {"prompt": "Q: Fail[^\n]*\nA:", "error": "The model fell over."},
        {"prompt": "Q: Where[^\n]*\nA:$", "text": "Lost Gravity was built by Mack Rides. Next."},
        {
            "prompt": "Mack Rides\\.$",
            "text": "Mack Rides is in Germany, so the answer is: Germany.",
        },
        {"prompt": "Q: Silent[^\n]*\nA:", "text": ""},
        {"prompt": "", "text": "So the answer is: Germany."},
    ]
}


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("index") / "small"
    build_index(PASSAGES, folder)
    return str(folder)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return f"scripted:{path}"


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def multihop(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(arguments)
        return Result(int(end.value.code or 0), *capsys.readouterr())

    return run
