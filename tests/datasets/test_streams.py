"""Large JSON files: read record by record, refused with the place and in one line."""

import json
import sys
import tracemalloc

import pytest

from multihop import names
from multihop.datasets.arrays import array_records, object_entries
from multihop.datasets.lines import records
from multihop.errors import BadInput, MissingExtra

HINT = "Get it again."


def written(tmp_path, content):
    path = tmp_path / "big.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content", ['[{"a": 1.5}, {"b": ["ü"]}]', '\n [\n{"a":1.5},\n{"b":["\\u00fc"]}\n]\n']
)
def test_an_array_gives_its_objects_with_their_places(tmp_path, content):
    path = written(tmp_path, "\ufeff" + content)
    assert list(array_records(path, HINT)) == [
        (f"{path}: record 1", {"a": 1.5}),
        (f"{path}: record 2", {"b": ["ü"]}),
    ]


def test_an_object_gives_its_entries_with_their_places(tmp_path):
    path = written(tmp_path, '{"a": "x", "b": {"c": [1]}}')
    assert list(object_entries(path, HINT)) == [
        (f"{path}: entry 1", "a", "x"),
        (f"{path}: entry 2", "b", {"c": [1]}),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ": expected a JSON array, found an empty file."),
        (b"  \n", ": expected a JSON array, found an empty file."),
        (b"<!DOCTYPE html>", ": expected a JSON array, found no JSON."),
        (b'{"a": 1}', ": expected a JSON array, found a JSON object."),
        (b'[{"a": 1}, 2]', ": record 2: expected a JSON object, found int."),
        (b"[", ": record 1: the file is cut short here."),
        (b'[{"a": 1}', ": record 2: the file is cut short here."),
        (b'[{"a": 1}, {"b": "x', ": record 2: the file is cut short here."),
        (b'[{"a": 1}}]', ": record 2: not JSON (after array element, I expect ',' or ']')."),
        (b'[{"a": 1}] more', ": record 2: not JSON (trailing garbage)."),
        (b'[{"a": "\xff"}]', ": record 1: not JSON (invalid bytes in UTF8 string)."),
    ],
)
def test_what_is_no_array_of_objects_is_refused_in_one_line(tmp_path, content, said):
    path = written(tmp_path, content)
    with pytest.raises(BadInput) as refused:
        list(array_records(path, HINT))
    assert str(refused.value) == f"{path}{said} {HINT}"


def test_what_is_no_object_of_entries_is_refused(tmp_path):
    with pytest.raises(BadInput, match="expected a JSON object, found a JSON array"):
        list(object_entries(written(tmp_path, "[]"), HINT))
    with pytest.raises(BadInput, match=r"entry 2: the file is cut short here\. Get it"):
        list(object_entries(written(tmp_path, '{"a": 1, "b": 2'), HINT))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"none\.json: cannot be read \(No such file"):
        list(array_records(tmp_path / "none.json", HINT))


def test_without_the_parser_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ijson", None)
    with pytest.raises(MissingExtra, match=r"ijson is not installed.*multihop\[data\]"):
        list(array_records(written(tmp_path, "[]"), HINT))


@pytest.mark.parametrize(
    "end", [b'{"a": "x', b'{"a": "\xc3', b'{"a": [1, 2'], ids=["text", "letter", "list"]
)
def test_lines_that_end_in_the_middle_are_told_as_cut_short(tmp_path, end):
    path = written(tmp_path, b'{"a": 1}\n' + end)
    with pytest.raises(BadInput) as refused:
        list(records(path, HINT))
    assert f"{path}:2: " in str(refused.value)
    assert "the file is cut short here. Get it again." in str(refused.value)


def test_a_whole_last_line_needs_no_end(tmp_path):
    path = written(tmp_path, '{"a": 1}\n{"a": 2}')
    assert [record["a"] for _, record in records(path)] == [1, 2]


CONTEXT = [
    [f"Page {n}", ["A sentence of the page. " * 60, "Another one. " * 60]] for n in range(10)
]


def published(number, kind):
    facts = [["Page 1", 0], ["Page 2", 0]]
    record = {"_id": str(number), "question": "Who?", "answer": "Orla Venn", "type": "bridge"}
    record |= {"context": CONTEXT, "supporting_facts": facts}
    return record | ({"level": "hard"} if kind == "hotpotqa" else {"evidences": []})


@pytest.mark.parametrize("kind", ["hotpotqa", "2wikimultihopqa"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind):
    path = tmp_path / "big.json"
    with path.open("w") as file:
        file.write("[")
        for number in range(400):
            file.write((", " if number else "") + json.dumps(published(number, kind)))
        file.write("]")
    size = path.stat().st_size
    assert size > 8_000_000
    dataset = names.open_dataset(kind)
    tracemalloc.start()
    try:
        count = sum(1 for _ in dataset.read(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 400
    assert peak < 2_000_000 < size / 4
