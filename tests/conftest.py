"""What every test may use: handed data, and an environment that is the test's own."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import settings

# Wall time says nothing on a busy machine.
settings.register_profile("project", deadline=None)
settings.load_profile("project")

pytest_plugins = ["command_line", "elastic_node"]

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("MULTIHOP_SHARED", ROOT.parent / "shared"))


def shared(name: str) -> Path:
    """A handed file or folder; the test is skipped where there is none, and fails in CI."""
    path = SHARED / name
    if not path.exists():
        reason = f"{name} is not in MULTIHOP_SHARED (default ../shared)"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; in CI its absence is a failure")
        pytest.skip(reason)
    return path


def rows(name: str) -> list[dict]:
    """The rows of a handed JSONL file."""
    with shared(name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(autouse=True)
def own_home(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No test reads or writes the real home, cache, run folder or keys."""
    if request.node.get_closest_marker("embedded"):  # its repacked weights take seconds to write
        weights = tmp_path_factory.getbasetemp() / "weights"
        weights.mkdir(exist_ok=True)
        (tmp_path / "home" / "multihop").mkdir(parents=True)
        (tmp_path / "home" / "multihop" / "weights").symlink_to(weights)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("MULTIHOP_RUNS", str(tmp_path / "runs"))
    for name in list(os.environ):
        ours = name.startswith("MULTIHOP_") and name not in ("MULTIHOP_RUNS", "MULTIHOP_SHARED")
        if ours or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
