"""Every recording of published code is compared with by some test."""

import re

import pytest

from conftest import ROOT, shared


def test_every_golden_file_is_compared_with() -> None:
    files = sorted(p.stem for p in shared("golden").iterdir() if p.suffix in (".json", ".jsonl"))
    if not files:
        pytest.fail("the folder of recordings is empty")
    text = "\n".join(p.read_text("utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    unused = [name for name in files if not re.search(rf'["/]{name}(?:\.jsonl?)?"', text)]
    assert unused == []
