"""The CSV file goes out, through a spreadsheet program, and comes back."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihop.chain_errors import by_overlap, choose, marks, read_sheet, write_sheet
from multihop.chain_errors.sheet import COLUMNS, _plain, _text
from multihop.errors import BadInput
from multihop.text import Passage
from runs_of_chains import ANSWER, RIGHT, WRONG, folder, loop, two_runs


def records(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def rewritten(path, change, delimiter=","):
    found = records(path)
    for row in found:
        row.update(change(row) or {})
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, COLUMNS, delimiter=delimiter)
        out.writeheader()
        out.writerows(found)
    return path


@pytest.fixture
def chains(tmp_path):
    return choose(two_runs(tmp_path)).chains


@pytest.fixture
def sheet(tmp_path, chains):
    path = tmp_path / "marks.csv"
    judged = {("ircot", "b", 2): "contradicted", ("nor", "a", 1): "unparsable"}
    assert write_sheet(path, chains, by_overlap(chains), judged) == 8
    return path


def test_a_sentence_a_row_with_what_speaks_for_it(sheet) -> None:
    rows = records(sheet)
    assert list(rows[0]) == list(COLUMNS)
    wrong = rows[5]
    assert (wrong["run"], wrong["question_id"], wrong["sentence_number"]) == ("ircot", "b", "2")
    assert wrong["sentence"] == WRONG
    assert wrong["passages"] == "Mack Rides"
    assert wrong["excerpt"] == "Mack Rides is a company from Waldkirch in Germany."
    assert (wrong["not_found"], wrong["proxy"], wrong["judge"]) == (
        *("Italy", "not mentioned", "contradicted"),
    )
    assert {row["person"] for row in rows} == {""}


def test_marks_come_back_however_the_file_was_saved(sheet, chains) -> None:
    said = {RIGHT: "OK", WRONG: " Error. "}
    for delimiter in ",;\t":
        rewritten(sheet, lambda row: {"person": said.get(row["sentence"], "")}, ",")
        saved = rewritten(sheet, lambda row: None, delimiter)
        person, judged = marks(read_sheet(saved), chains, saved)
        assert set(person.values()) == {"supported", "contradicted"}
        assert len(person) == 5
        assert judged == {("ircot", "b", 2): "contradicted", ("nor", "a", 1): "unparsable"}
        write_sheet(sheet, chains, by_overlap(chains), judged, person)


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t=", "\r", "\n"])
def test_no_cell_begins_like_a_formula(tmp_path, begin) -> None:
    evil = begin + 'HYPERLINK("http://x","y")'
    trace = loop(evil, evil, f"'{evil}", passages=(Passage("p", evil, evil),))
    chains = choose([folder(tmp_path / "r", trace)]).chains
    path = tmp_path / "m.csv"
    write_sheet(path, chains, by_overlap(chains))
    for row in records(path):
        for cell in row.values():
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    saved = rewritten(path, lambda row: {"person": "no claim"})
    person, _ = marks(read_sheet(saved), chains, saved)
    assert person == {("r", evil, n): "no claim" for n in (1, 2)}


@given(st.text(max_size=20))
def test_escaping_loses_nothing(text) -> None:
    assert _text(_plain(text)) == text
    assert not _plain(text).startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


def test_texts_that_have_no_utf_8_are_written_and_read(tmp_path) -> None:
    chains = choose([folder(tmp_path / "r", loop("a", "Half \ud800 a pair.", ANSWER))]).chains
    path = tmp_path / "m.csv"
    write_sheet(path, chains, by_overlap(chains))
    saved = rewritten(path, lambda row: {"person": "ok"})
    assert marks(read_sheet(saved), chains, saved)[0] == {("r", "a", 1): "supported"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"person": "maybe"}, r":2: person is 'maybe'; known: ok, error"),
        ({"judge": "yes"}, r":2: judge is 'yes'"),
        ({"sentence_number": "1.0"}, r":2: sentence_number is '1.0'"),
        ({"question_id": "a", "sentence_number": "1", "run": "ircot"}, "stands there twice"),
    ],
)
def test_a_wrong_cell_is_named_with_its_row(sheet, change, message) -> None:
    with pytest.raises(BadInput, match=message):
        read_sheet(rewritten(sheet, lambda row: change))


def test_files_that_are_no_sheets_are_refused(tmp_path, sheet) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_sheet(tmp_path / "none.csv")
    odd = tmp_path / "odd.csv"
    odd.write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match=r"has no column person.*\(it has: a, b\)"):
        read_sheet(odd)
    odd.write_bytes(b"")
    with pytest.raises(BadInput, match="it has: none"):
        read_sheet(odd)
    odd.write_bytes(b"run,\xff")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_sheet(odd)
    odd.write_text(",".join(COLUMNS) + "\n")
    with pytest.raises(BadInput, match="has no rows"):
        read_sheet(odd)
    with pytest.raises(BadInput, match="does not exist"):
        write_sheet(tmp_path / "none" / "m.csv", (), {})


def test_marks_of_other_sentences_are_refused(tmp_path, sheet, chains) -> None:
    other = rewritten(sheet, lambda row: {"sentence": "Another."})
    with pytest.raises(BadInput, match="The run has changed since"):
        marks(read_sheet(other), chains, other)
    run = folder(tmp_path / "short", loop("a", RIGHT))
    with pytest.raises(BadInput, match="is not among those checked"):
        marks(read_sheet(other), choose([run]).chains, other)
