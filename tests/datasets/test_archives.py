"""Files out of archives that nobody vouches for."""

import io
import stat
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from multihop.datasets import archives
from multihop.datasets.archives import unpack
from multihop.errors import DownloadError

FILES = {"set/data/dev.json": b"[1]", "set/data/train.json": b"[2]", "set/README": b"read me"}


def zipped(path, files=FILES, **settings):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **settings) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(path, files=FILES, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


@pytest.fixture(params=["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"])
def archive(request, tmp_path):
    def make(files=FILES):
        path = tmp_path / f"a.{request.param}"
        if request.param == "zip":
            return zipped(path, files)
        return tarred(path, files, "w:" + request.param.partition(".")[2])

    return make


def test_only_what_is_asked_for_is_taken_and_under_our_names(archive, tmp_path):
    told = []
    into = tmp_path / "into"
    found = unpack(archive(), ["dev.json", "data/train.json"], into, lambda *now: told.append(now))
    assert [path.read_bytes() for path in found] == [b"[1]", b"[2]"]
    there = sorted(str(path.relative_to(into)) for path in into.rglob("*") if path.is_file())
    assert there == ["data/train.json", "dev.json"]
    assert told == [(3, 3), (3, 3)]


def test_what_is_there_already_is_left_as_it_is(archive, tmp_path):
    (tmp_path / "dev.json").write_bytes(b"mine")
    unpack(archive(), ["dev.json", "train.json"], tmp_path)
    assert (tmp_path / "dev.json").read_bytes() == b"mine"
    assert (tmp_path / "train.json").read_bytes() == b"[2]"


def test_a_path_that_leads_out_of_the_archive_leads_nowhere(archive, tmp_path):
    into = tmp_path / "in" / "to"
    unpack(
        archive({"../../../dev.json": b"[1]", "/etc/train.json": b"[2]"}),
        ["dev.json", "train.json"],
        into,
    )
    assert sorted(path.name for path in into.iterdir()) == ["dev.json", "train.json"]
    assert not (tmp_path / "dev.json").exists()


@pytest.mark.parametrize("names", [("../dev.json",), ("/dev.json",)])
def test_names_of_ours_stay_below_the_folder(tmp_path, names):
    with pytest.raises(ValueError, match="not a name of a file below a folder"):
        unpack(zipped(tmp_path / "a.zip"), names, tmp_path)


def test_links_in_a_tar_are_refused(tmp_path):
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
        path = tmp_path / "a.tar"
        with tarfile.open(path, "w") as archive:
            entry = tarfile.TarInfo("data/dev.json")
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
        with pytest.raises(DownloadError, match=r"data/dev\.json is no plain file"):
            unpack(path, ["dev.json"], tmp_path / "into")


def test_links_in_a_zip_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("data/dev.json")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(DownloadError, match=r"data/dev\.json is no plain file"):
        unpack(path, ["dev.json"], tmp_path / "into")
    assert not (tmp_path / "into" / "dev.json").exists()


def test_a_bomb_is_refused(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALLOWANCE", 1000)
    monkeypatch.setattr(archives, "RATIO", 0)
    files = {"dev.json": b"0" * 1001}
    with pytest.raises(DownloadError, match="holds more than"):
        unpack(archive(files), ["dev.json"], tmp_path / "into")
    assert list((tmp_path / "into").glob("*")) == []


def test_a_bomb_beside_what_is_asked_for_is_refused_too(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALLOWANCE", 1000)
    monkeypatch.setattr(archives, "RATIO", 0)
    path = tarred(tmp_path / "a.tgz", {"other": b"0" * 1001, "dev.json": b"[1]"})
    with pytest.raises(DownloadError, match="holds more than"):
        unpack(path, ["dev.json"], tmp_path / "into")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a/README": b""}, r"dev\.json is in it not at all \(it holds"),
        ({"a/dev.json": b"1", "b/dev.json": b"2"}, r"dev\.json is in it twice"),
        ({"a/my_dev.json": b"1"}, "not at all"),
        ({"__MACOSX/a/dev.json": b"1"}, "not at all"),
    ],
)
def test_what_is_missing_or_there_twice_is_told(archive, tmp_path, files, message):
    with pytest.raises(DownloadError, match=message):
        unpack(archive(files), ["dev.json"], tmp_path / "into")


def test_a_damaged_archive_is_told_and_leaves_no_half_file(archive, tmp_path):
    import random

    noise = random.Random(0).randbytes(300_000)
    path = archive({"data/dev.json": noise})
    content = bytearray(path.read_bytes())
    half = len(content) // 2
    path.write_bytes(content[:half])
    with pytest.raises(DownloadError, match="Delete it"):
        unpack(path, ["dev.json"], tmp_path / "into")
    assert list((tmp_path / "into").glob("**/*")) == []


def test_what_is_no_archive_is_told(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(b"<html>no</html>" * 100)
    with pytest.raises(DownloadError, match="not a sound archive"):
        unpack(path, ["dev.json"], tmp_path)


def test_a_tar_that_ends_in_a_zip_is_a_tar(tmp_path):
    inner = zipped(tmp_path / "inner.zip", {"dev.json": b"inner"}).read_bytes()
    path = tarred(tmp_path / "a.tar", {"data/dev.json": b"outer", "inner.zip": inner}, "w:")
    [found] = unpack(path, ["dev.json"], tmp_path / "into")
    assert found.read_bytes() == b"outer"


def test_two_processes_may_unpack_at_once(archive, tmp_path):
    into, path = tmp_path / "into", archive()
    with ThreadPoolExecutor(4) as threads:
        runs = [threads.submit(unpack, path, ["dev.json", "train.json"], into) for _ in range(8)]
    assert {tuple(p.read_bytes() for p in run.result()) for run in runs} == {(b"[1]", b"[2]")}
    assert sorted(p.name for p in into.iterdir()) == ["dev.json", "train.json"]


def test_too_small_a_disk_is_told(archive, tmp_path, monkeypatch):
    from multihop.datasets import download

    monkeypatch.setattr(download, "SPARE", 1 << 62)
    with pytest.raises(DownloadError, match="MB are free"):
        unpack(archive(), ["dev.json"], tmp_path / "into")
