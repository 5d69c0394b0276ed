"""A real Elasticsearch node, started once for all tests that ask for it.

MULTIHOP_TEST_ELASTIC=URL names one that runs already, of any supported version.
"""

import importlib.util
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from conftest import shared

CACHE = os.environ.get(
    "ES_NODE_CACHE",
    str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "es-node"),
)
"""Where the node's files are kept; taken before tests get a home of their own."""

HOME = os.environ.get("HOME", "")
"""Where pip keeps its settings, in case the node must be fetched."""

RUNNING = os.environ.get("MULTIHOP_TEST_ELASTIC", "")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node."""
    if RUNNING:
        yield RUNNING.rstrip("/")
        return
    script = shared("tools/es-node/es_node.py")
    if shutil.which("java") is None:
        if os.environ.get("CI"):
            pytest.fail("java is missing; in CI its absence is a failure")
        pytest.skip("java is missing")
    spec = importlib.util.spec_from_file_location("es_node", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ES_NODE_CACHE", CACHE)
        patch.setenv("HOME", HOME)
        started = module.es_node(
            home=str(tmp_path_factory.mktemp("node")),
            flavor="oss",
            # Garbage that waits to be collected would count, and requests be refused for it.
            settings=("indices.breaker.total.use_real_memory=false",),
            wait=300,
        )
        url = started.__enter__()
    try:
        yield url
    finally:
        started.__exit__(None, None, None)


@pytest.fixture
def target(node: str) -> Iterator[str]:
    """URL/NAME of an index that is the test's own."""
    name = f"test-{secrets.token_hex(4)}"
    yield f"{node}/{name}"
    httpx.delete(f"{node}/{name}-*")
