"""One file over HTTP, from servers that break off, lie, redirect, refuse and change their minds."""

import gzip
import hashlib
import multiprocessing
import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial

import pytest

from file_server import broken, broken_part, elsewhere, page, ranged, serving, status, whole
from multihop.datasets import download as module
from multihop.datasets.download import copy, download, part_of
from multihop.errors import BadInput, DownloadError

BODY = bytes(range(256)) * 40
DIGEST = hashlib.sha256(BODY).hexdigest()
OTHER = BODY[::-1]


@pytest.fixture
def server():
    with serving() as found:
        yield found


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "file.json"


@pytest.fixture
def fetch(server, path):
    """Downloads from the server without waiting; keeps the pauses."""

    def run(**settings) -> list[float]:
        pauses: list[float] = []
        download(f"{server.url}/a/file.json", path, pause=pauses.append, **settings)
        return pauses

    return run


def left(path) -> list[str]:
    return sorted(found.name for found in path.parent.iterdir())


def test_a_file_comes_whole_and_leaves_nothing_beside_it(server, path, fetch):
    server.default = whole(BODY)
    told = []
    fetch(size=len(BODY), sha256=DIGEST.upper(), progress=lambda *now: told.append(now))
    assert path.read_bytes() == BODY
    assert left(path) == ["file.json"]
    assert told[-1] == (len(BODY), len(BODY))
    assert server.requests[0][1]["accept-encoding"] == "identity"


def test_a_file_that_is_there_is_not_asked_for(server, path, fetch):
    path.parent.mkdir()
    path.write_bytes(b"mine")
    assert fetch() == []
    assert server.requests == []


def test_after_a_break_only_the_rest_is_asked_for(server, path, fetch):
    server.behaviours = [broken(BODY, 3000, etag='"1"'), broken_part(BODY, 3000, 7000)]
    server.default = ranged(BODY)
    assert fetch() == [1, 1]  # each brought something new
    assert path.read_bytes() == BODY
    assert server.ranges == [None, "bytes=3000-", "bytes=7000-"]
    assert {headers.get("if-range") for _, headers in server.requests[1:]} == {'"1"'}


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(server, path, fetch):
    server.default = broken(BODY, 4000, etag='"1"')
    with pytest.raises(
        DownloadError, match=r"given up after 2 tries\. The 4,000 bytes that came are kept"
    ):
        fetch(tries=2)
    assert left(path) == [".file.json.json", ".file.json.part"]
    server.default = ranged(BODY)
    fetch()
    assert path.read_bytes() == BODY
    assert server.ranges[-1] == "bytes=4000-"
    assert left(path) == ["file.json"]


def test_a_file_that_changed_between_two_attempts_is_begun_again(server, path, fetch):
    server.behaviours = [broken(OTHER, 3000, etag='"1"')]
    server.default = ranged(BODY, '"2"')
    fetch()
    assert path.read_bytes() == BODY


def test_a_part_of_another_file_is_not_put_together_with_ours(server, path, fetch):
    # This server does not look at the condition.
    server.behaviours = [broken(OTHER, 3000, etag='"1"'), broken_part(BODY, 3000, 9000, '"2"')]
    server.default = ranged(BODY, '"2"')
    fetch()
    assert path.read_bytes() == BODY
    assert server.ranges == [None, "bytes=3000-", None]


def test_a_part_from_another_place_is_not_taken(server, path, fetch):
    server.behaviours = [broken(BODY, 3000, etag='"1"'), broken_part(BODY, 0, 9000)]
    server.default = ranged(BODY)
    fetch()
    assert path.read_bytes() == BODY


def test_a_server_that_ignores_ranges_gives_the_whole_file_again(server, path, fetch):
    server.behaviours = [broken(BODY, 3000, etag='"1"')]
    server.default = whole(BODY)
    fetch()
    assert path.read_bytes() == BODY


def test_without_anything_to_tell_versions_by_a_file_is_begun_again(server, path, fetch):
    server.behaviours = [broken(BODY, 3000)]
    server.default = ranged(BODY)
    fetch()
    assert server.ranges == [None, None]
    assert path.read_bytes() == BODY


def test_with_a_checksum_the_rest_is_asked_for_all_the_same(server, path, fetch):
    server.behaviours = [broken(BODY, 3000)]
    server.default = ranged(BODY)
    fetch(sha256=DIGEST)
    assert server.ranges == [None, "bytes=3000-"]


def test_pieces_that_do_not_fit_are_fetched_once_more_from_the_beginning(server, path, fetch):
    server.behaviours = [broken(OTHER, 3000, etag='"1"')]
    server.default = ranged(BODY)
    fetch(sha256=DIGEST)
    assert path.read_bytes() == BODY
    assert server.ranges == [None, "bytes=3000-", None]


def test_a_date_tells_versions_apart_and_a_weak_tag_does_not(server, path, fetch):
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    server.behaviours = [broken(BODY, 3000, etag='W/"1"', last_modified=date)]
    server.default = ranged(BODY, date)
    fetch()
    assert server.requests[1][1]["if-range"] == date
    assert path.read_bytes() == BODY


def test_a_server_that_promises_more_than_it_has_is_given_up(server, path, fetch):
    server.default = broken(BODY, len(BODY) - 1, etag='"1"')
    pauses = []
    with pytest.raises(DownloadError, match="given up after 3 tries"):
        download(f"{server.url}/f", path, tries=3, pause=pauses.append)
    assert pauses == [1, 2]  # the second try brought nothing new
    assert not path.exists()


def test_a_length_that_is_not_the_published_one_is_refused_before_a_byte_is_written(
    server, path, fetch
):
    server.default = whole(BODY)
    with pytest.raises(DownloadError, match=r"has 10,240 bytes, the published file has 10,241"):
        fetch(size=len(BODY) + 1)
    assert left(path) == []


def test_a_stream_without_a_length_ends_where_the_published_file_does(server, path, fetch):
    def endless(request):
        request.send_response(200)
        request.send_header("connection", "close")
        request.end_headers()
        for _ in range(100):
            request.wfile.write(BODY)
        request.close_connection = True

    server.default = endless
    with pytest.raises(DownloadError, match="sends more than the 10,240 bytes of the file"):
        fetch(size=len(BODY))
    assert left(path) == []


def test_a_stream_without_a_length_that_ends_early_is_broken(server, path, fetch):
    def short(request):
        request.send_response(200)
        request.send_header("connection", "close")
        request.end_headers()
        request.wfile.write(BODY[:500])
        request.close_connection = True

    server.behaviours = [short]
    server.default = whole(BODY)
    assert fetch(size=len(BODY)) == [1]
    assert path.read_bytes() == BODY


def test_another_content_is_refused_and_thrown_away(server, path, fetch):
    server.default = whole(OTHER)
    with pytest.raises(DownloadError, match=f"the published file has {DIGEST}: it was changed"):
        fetch(sha256=DIGEST)
    assert left(path) == []


def test_redirects_are_followed_and_a_circle_of_them_is_not(server, path, fetch):
    server.behaviours = [elsewhere("/b"), elsewhere(f"{server.url}/c")]
    server.default = whole(BODY)
    fetch()
    assert [asked for asked, _ in server.requests] == ["/a/file.json", "/b", "/c"]
    assert path.read_bytes() == BODY
    path.unlink()
    server.default = elsewhere("/a/file.json")
    with pytest.raises(DownloadError, match="redirects more than 10 times"):
        fetch()
    assert left(path) == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_redirect_to_anything_but_http_is_refused(server, path, fetch, location):
    server.default = elsewhere(location)
    with pytest.raises(BadInput, match="not an address to download from"):
        fetch()
    assert left(path) == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (401, "wants a login or a licence to be accepted (401"),
        (403, "wants a login or a licence to be accepted (403"),
        (404, "the file is gone (404"),
        (410, "the file is gone (410"),
        (418, "the server answers 418"),
    ],
)
def test_a_refusal_says_what_to_do_in_one_line(server, path, fetch, code, said):
    server.default = status(code)
    with pytest.raises(DownloadError) as refused:
        fetch()
    message = str(refused.value)
    assert said in message
    assert f"Download it by hand to {path} and run this again" in message
    assert "--mirror" in message
    assert "\n" not in message
    assert len(server.requests) == 1
    assert left(path) == []


@pytest.mark.parametrize(
    ("answer", "called"),
    [
        (
            page("<!DOCTYPE html><html><title>Google Drive -\n Virus scan</title>"),
            "('Google Drive - Virus scan')",
        ),
        (page("<html><body>Log in</body></html>", "application/octet-stream"), ""),
        (page("\n<!-- x --><!doctype HTML>", "application/zip"), ""),
        (page("Please sign in"), ""),
    ],
)
def test_a_web_page_is_not_taken_for_the_file(server, path, fetch, answer, called):
    server.default = answer
    with pytest.raises(DownloadError, match="a web page") as refused:
        fetch()
    assert f"a web page {called}".strip() in str(refused.value)
    assert "\n" not in str(refused.value)
    assert left(path) == []


def test_a_web_page_does_not_cost_what_has_come(server, path, fetch):
    server.default = broken(BODY, 4000, etag='"1"')
    with pytest.raises(DownloadError):
        fetch(tries=1)
    server.default = page("<html>Limit exceeded</html>")
    with pytest.raises(DownloadError, match="a web page"):
        fetch()
    assert part_of(path).stat().st_size == 4000


def test_a_busy_server_is_asked_again_when_it_says(server, path, fetch):
    soon = datetime.now(UTC) + timedelta(seconds=100)
    server.behaviours = [
        status(429, retry_after="7"),
        status(503),
        status(503, retry_after=format_datetime(soon, usegmt=True)),
        status(500, retry_after="soon"),
    ]
    server.default = whole(BODY)
    seven, two, hundred, eight = fetch()
    assert (seven, two, eight) == (7, 2, 8)
    assert 90 < hundred <= 100
    assert path.read_bytes() == BODY


def test_a_server_that_asks_for_an_hour_is_not_waited_for(server, path, fetch):
    server.default = status(429, retry_after="3600")
    with pytest.raises(DownloadError, match="asks to wait 3,600 seconds"):
        fetch()
    assert len(server.requests) == 1


def test_nobody_at_the_address_is_told_after_the_last_try(path):
    with serving() as server:
        url = f"{server.url}/f"
    pauses = []
    with pytest.raises(DownloadError, match="given up after 4 tries"):
        download(url, path, tries=4, pause=pauses.append)
    assert pauses == [1, 2, 4]
    assert left(path) == []


@pytest.mark.parametrize("url", ["no address", "gopher://x/y", "http://"])
def test_what_is_no_address_is_refused(path, url):
    with pytest.raises(BadInput, match="not an address to download from"):
        download(url, path)


def test_too_small_a_disk_is_told_first(server, path, fetch, monkeypatch):
    server.default = whole(BODY)
    monkeypatch.setattr(module, "SPARE", 1 << 62)
    with pytest.raises(DownloadError, match=r"needs 0 MB and .* MB are free.*MULTIHOP_DATA"):
        fetch()
    assert left(path) == []


def test_a_compressed_answer_is_kept_as_the_file_it_stands_for(server, path, fetch):
    server.default = whole(gzip.compress(BODY), content_encoding="gzip")
    fetch(size=len(BODY), sha256=DIGEST)
    assert path.read_bytes() == BODY


def test_a_torn_note_means_beginning_again(server, path, fetch):
    path.parent.mkdir()
    part_of(path).write_bytes(OTHER[:100])
    part_of(path).with_suffix(".json").write_text('{"url": "htt')
    server.default = ranged(BODY)
    fetch()
    assert path.read_bytes() == BODY
    assert server.ranges == [None]


def test_a_part_that_is_complete_is_only_checked(server, path, fetch):
    server.default = broken(BODY, 4000, etag='"1"')
    with pytest.raises(DownloadError):
        fetch(tries=1)
    part_of(path).write_bytes(BODY)  # killed just before the rename
    server.requests.clear()
    fetch(sha256=DIGEST)
    assert server.requests == []
    assert path.read_bytes() == BODY


def test_two_at_once_fetch_it_once(server, path):
    slow = threading.Event()

    def wait(request):
        slow.wait(10)
        request.send(200, BODY)

    server.default = wait
    waits = []
    threads = [
        threading.Thread(
            target=download,
            args=(f"{server.url}/f", path),
            kwargs={"waiting": partial(waits.append, 1)},
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    while not waits:
        time.sleep(0.01)
    slow.set()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == BODY
    assert (len(server.requests), waits) == (1, [1])
    assert left(path) == ["file.json"]


def test_a_killed_download_is_gone_on_with_by_the_next(server, path):
    arrived, forever = threading.Event(), threading.Event()

    def stall(request):
        request.send_response(200)
        request.send_header("content-length", str(len(BODY)))
        request.send_header("etag", '"1"')
        request.end_headers()
        request.wfile.write(BODY[:5000])
        request.wfile.flush()
        arrived.set()
        forever.wait(20)
        request.close_connection = True

    server.behaviours = [stall]
    server.default = ranged(BODY)
    url = f"{server.url}/f"
    child = multiprocessing.get_context("spawn").Process(target=download, args=(url, path))
    child.start()
    part = part_of(path)
    while not (arrived.is_set() and part.exists() and part.stat().st_size):
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    forever.set()
    had = part.stat().st_size
    download(url, path)
    assert path.read_bytes() == BODY
    assert server.ranges == [None, f"bytes={had}-"]


def test_a_file_is_copied_from_a_folder_and_checked(tmp_path, path):
    source = tmp_path / "source"
    source.write_bytes(BODY)
    told = []
    copy(source, path, sha256=DIGEST, progress=lambda *now: told.append(now))
    assert path.read_bytes() == BODY
    assert told == [(len(BODY), len(BODY))]
    path.unlink()
    with pytest.raises(DownloadError, match="source: has sha256"):
        copy(source, path, sha256="0" * 64)
    with pytest.raises(DownloadError, match="nothing: cannot be read"):
        copy(tmp_path / "nothing", path)
    assert left(path) == []
