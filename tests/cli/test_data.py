"""`multihop data`: fetched from a local server or a mirror, indexed, sampled, converted."""

import io
import json
import tarfile
from hashlib import sha256

import pytest

from conftest import shared
from file_server import page, serving, status, whole
from multihop import names
from multihop.datasets import QuestionFile
from multihop.datasets.base import Corpus, Dataset, Published, Split
from multihop.datasets.fetch import at_mirror, wanted
from multihop.errors import BadInput
from multihop.retrievers.bm25 import BM25
from multihop.text import Passage

LINES = b"".join(
    b'{"id": "%d", "question": "Q%d?", "answers": ["a"]}\n' % (number, number)
    for number in range(12)
)


def archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


PAGES = archive({"toy/pages.txt": b"Ulm\nAida\n", "toy/README": b""})


def read_pages(paths):
    [path] = paths
    for number, title in enumerate(path.read_text().splitlines()):
        yield Passage(str(number), title, f"{title} is here.")


@pytest.fixture
def server():
    with serving() as found:
        yield found


@pytest.fixture
def toy(server, monkeypatch, tmp_path):
    """A data set of one question file and a packed corpus, registered as `toy`."""
    toy = Dataset(
        name="toy",
        title="Toy",
        home="http://example.org",
        licence="CC0",
        citation="nobody",
        files=(
            Published("dev.jsonl", f"{server.url}/q", len(LINES), sha256(LINES).hexdigest()),
            Published("pages.tgz", f"{server.url}/pages", members=("pages.txt",)),
            Published("gated.json", note="Fill in the form at http://example.org/form."),
        ),
        splits=(Split("dev", "dev.jsonl", 12), Split("test", "gated.json")),
        read=lambda path: iter(QuestionFile(path)),
        corpus=Corpus(("pages.txt",), read_pages, 3),
    )
    monkeypatch.setitem(names.DATASETS, "toy", f"{__name__}:TOY")
    monkeypatch.setattr(names, "open_dataset", lambda name: toy if name == "toy" else None)
    monkeypatch.setattr(names, "dataset_names", lambda: ["toy"])
    monkeypatch.setenv("MULTIHOP_DATA", str(tmp_path / "data"))
    return toy


def test_everything_of_a_data_set_is_fetched_checked_indexed_and_sampled(
    multihop, toy, server, tmp_path
):
    server.behaviours = [whole(LINES), whole(PAGES)]
    got = multihop("data", "get", "toy", "--split", "dev", "--corpus")
    assert got.code == 0, got.err
    folder = tmp_path / "data" / "toy"
    assert got.err.splitlines() == [
        f"{folder}/dev.jsonl: 0.0 MB, fetched.",
        f"{folder}/pages.txt: 0.0 MB, fetched, no checksum to compare.",
    ]
    again = multihop("data", "get", "toy", "--split", "dev", "--corpus")
    assert (again.code, again.err.count("is here")) == (0, 2)
    assert len(server.requests) == 2

    made = multihop("data", "index", "toy")
    assert made.code == 0
    assert f"{folder}/index: 2 passages." in made.err
    assert "the published corpus has 3 passages" in made.err
    index = BM25(folder / "index")
    assert [passage.title for passage in index] == ["Ulm", "Aida"]
    assert index.manifest.source == {"dataset": "toy", "files": ["pages.txt"]}

    listed = multihop("data", "list")
    assert "here: dev, index" in listed.out
    [record] = map(json.loads, multihop("data", "list", "--json").out.splitlines())
    assert (record["here"], record["passages"]) == (["dev", "index"], 3)

    drawn = multihop("data", "sample", "toy", "--dev", "2", "--test", "5")
    assert drawn.code == 0
    assert f"{folder}/test_sample.jsonl: 5 of 12 questions." in drawn.err
    dev, test = (list(QuestionFile(folder / f"{n}_sample.jsonl")) for n in ("dev", "test"))
    assert (len(dev), len(test), len({q.id for q in dev + test})) == (2, 5, 7)


def test_a_file_put_there_by_hand_is_taken_and_a_wrong_one_is_not(multihop, toy, server, tmp_path):
    path = tmp_path / "data" / "toy" / "dev.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(LINES[:-1])
    refused = multihop("data", "get", "toy", "--split", "dev")
    assert refused.code == 2
    assert f"has {len(LINES) - 1} bytes, the published file has {len(LINES)}" in refused.err
    path.write_bytes(LINES)
    assert multihop("data", "get", "toy", "--split", "dev").code == 0
    assert server.requests == []


@pytest.mark.parametrize("form", ["{}", "file://{}", "{}/"])
def test_a_folder_is_a_mirror(multihop, toy, server, tmp_path, form):
    mirror = tmp_path / "my mirror"
    mirror.mkdir()
    (mirror / "gated.json").write_text("[]")
    where = form.format(str(mirror).replace(" ", "%20") if "file" in form else mirror)
    got = multihop("data", "get", "toy", "--split", "test", "--mirror", where)
    assert got.code == 0, got.err
    assert (toy.folder / "gated.json").read_text() == "[]"
    assert server.requests == []


def test_an_address_is_a_mirror_and_the_folder_can_be_chosen(multihop, toy, server, tmp_path):
    server.default = whole(b"[]")
    mirror = f"{server.url}/mirror/"
    into = tmp_path / "elsewhere"
    got = multihop("data", "get", "toy", "--split", "test", "--mirror", mirror, "--into", str(into))
    assert got.code == 0
    assert (into / "gated.json").read_text() == "[]"
    assert server.requests[0][0] == "/mirror/gated.json"


def test_a_mirror_of_another_kind_is_refused():
    with pytest.raises(BadInput, match="expected an http or file address, or a folder"):
        at_mirror("ftp://host/x", "f")
    assert at_mirror("http://host/x", "a b.json") == "http://host/x/a%20b.json"


@pytest.mark.parametrize(
    "case",
    [
        (
            ("get", "toy", "--split", "test"),
            None,
            "Fill in the form at http://example.org/form. Put it at",
        ),
        (("get", "toy", "--split", "dev"), status(404), "the file is gone (404"),
        (
            ("get", "toy", "--split", "dev"),
            page("<title>Sign in</title>"),
            "a web page ('Sign in')",
        ),
        (("get", "toy", "--split", "train"), None, "Toy has no split 'train'"),
        (("index", "toy"), None, "Run: multihop data get toy --corpus"),
        (("sample", "toy"), None, "Run: multihop data get toy"),
        (("sample", "FILE"), None, "takes 100 and 500 questions, and 12 have an answer"),
        (("convert", "nowhere.jsonl"), None, "nowhere.jsonl: does not exist"),
    ],
)
@pytest.mark.usefixtures("toy")
def test_what_cannot_be_done_is_one_line(multihop, server, tmp_path, case):
    arguments, answer, message = case
    (tmp_path / "q.jsonl").write_bytes(LINES)
    server.default = answer or server.default
    words = [word.replace("FILE", str(tmp_path / "q.jsonl")) for word in arguments]
    result = multihop("data", *words)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_every_part_of_every_data_set_has_a_published_file():
    for name in names.dataset_names():
        dataset = names.open_dataset(name)
        assert wanted(dataset) == list(dataset.files)
        for split in dataset.splits:
            assert wanted(dataset, [split.name])
        if dataset.corpus:
            assert wanted(dataset, corpus=True)


def test_published_questions_are_converted(multihop, tmp_path):
    name = f"hotpotqa:{shared('data/raw/hotpot_dev_distractor_v1.slice.json')}"
    into = tmp_path / "made" / "dev.jsonl"
    result = multihop("data", "convert", name, "--into", str(into))
    assert (result.code, result.err) == (0, f"{into}: 30 questions.\n")
    printed = multihop("data", "convert", name)
    assert printed.out == into.read_text()
    assert len(list(QuestionFile(into))) == 30


def test_a_conversion_that_fails_leaves_the_old_file(multihop, tmp_path):
    into = tmp_path / "dev.jsonl"
    into.write_text("old")
    broken = tmp_path / "broken.json"
    broken.write_text('[{"_id": "1"')
    result = multihop("data", "convert", f"hotpotqa:{broken}", "--into", str(into))
    assert result.code == 2
    assert into.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "broken.json",
        "dev.jsonl",
    ]
