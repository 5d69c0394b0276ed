"""The page of a run's curves."""

import json
import re
from xml.etree import ElementTree as ET

import pytest

from multihop.errors import BadInput
from multihop.training.curves import page, write

RECORDS = [
    {"step": n, "loss": 2 / n, "skills": {"next": 2 / n, "read": 1 / n}, "lr": 1e-3 / n}
    | {"tokens_per_second": 100.0 + n}
    for n in range(1, 9)
] + [{"step": 8, "valid": {"": 0.3, "next": 0.4, "read": 0.125}, "tokens_per_second": 108.0}]


def test_the_page_shows_losses_by_skill_learning_rate_and_speed(tmp_path) -> None:
    (tmp_path / "curves.jsonl").write_text("".join(json.dumps(r) + "\n" for r in RECORDS))
    path = write(tmp_path, "own & <b>")
    text = path.read_text()
    assert path == tmp_path / "curves.html"
    assert "own &amp; &lt;b&gt;" in text
    assert "<b>" not in text
    charts = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text)]
    assert [len(svg.findall("polyline")) for svg in charts] == [4, 1, 1]
    assert [svg.find("title").text for svg in charts] == [
        "Loss by skill, nats a token",
        "Learning rate",
        "Tokens a second",
    ]
    for svg in charts:
        for line in svg.findall("polyline"):
            for point in line.attrib["points"].split():
                x, y = map(float, point.split(","))
                assert 0 <= x <= 720
                assert 0 <= y <= 260
    assert "<td>0.1250</td>" in text
    assert not re.search(r"<script|src=|href=|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text


def test_values_that_are_no_numbers_leave_a_gap() -> None:
    broken = [{**RECORDS[0], "skills": {"next": float("nan")}}, *RECORDS[1:]]
    text = page(broken, "x")
    assert "nan" not in text


def test_a_run_of_one_step_without_validation_is_drawn() -> None:
    text = page(RECORDS[:1], "x")
    assert text.count("<svg") == 3
    assert "Validation losses" not in text


def test_curves_that_are_missing_or_damaged_are_refused(tmp_path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        write(tmp_path, "x")
    (tmp_path / "curves.jsonl").write_text('{"valid": {"": 1}}\n')
    with pytest.raises(BadInput, match="not the curves of a run"):
        write(tmp_path, "x")
