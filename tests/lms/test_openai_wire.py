"""Requests and replies as they go over the wire, byte by byte."""

import asyncio
import contextlib
import json
import socket
from typing import Self

import pytest

from multihop.lms.openai_wire import Connections, Lost, Refused, _events

pytest.importorskip("aiohttp")

EVENTS = (
    b": a comment\r\n"
    b'data: {"n": 1, "text": "a\xe2\x80\xa8b"}\r\n\r\n'
    b'event: message\nid: 7\ndata:{"n": 2}\n\n'
    b'data: {"n":\ndata: 3}\n\n'
    b"data: [DONE]\n\n"
)


class Parts:
    """A reply's content as it arrives."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)

    async def readany(self) -> bytes:
        return self.parts.pop(0) if self.parts else b""


async def taken_apart(*parts: bytes) -> list[object]:
    return [event async for event in _events(Parts(*parts), 5)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 30, 1000])
async def test_events_are_the_same_however_they_are_cut(size):
    parts = [EVENTS[at : at + size] for at in range(0, len(EVENTS), size)]
    assert await taken_apart(*parts) == [{"n": 1, "text": "a\u2028b"}, {"n": 2}, {"n": 3}]


async def test_what_follows_the_end_mark_is_not_given():
    assert await taken_apart(b'data: [DONE]\n\ndata: {"n": 1}\n\n') == []


async def test_a_last_event_without_its_empty_line_counts():
    assert await taken_apart(b'data: {"n": 1}') == [{"n": 1}]


async def test_an_error_inside_a_stream_is_raised():
    with pytest.raises(Refused) as caught:
        await taken_apart(b'data: {"error": {"message": "out of memory", "code": 500}}\n\n')
    assert caught.value.body == {"message": "out of memory", "code": 500}
    assert (caught.value.code, caught.value.status_code) == (500, None)


class Server:
    """Counts its connections; answers each request with the same bytes."""

    def __init__(self, *parts: bytes, between: float = 0.0) -> None:
        self.parts = parts
        self.between = between
        self.connections = 0
        self.heads: list[bytes] = []
        self.bodies: list[object] = []

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def serve(self, reader, writer) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head)
                lengths = [line for line in head.lower().split(b"\r\n") if b"length:" in line]
                body = await reader.readexactly(int(lengths[0].split(b":")[1]))
                self.bodies.append(json.loads(body))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
                for part in (*self.parts, b""):
                    writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                    await writer.drain()
                    await asyncio.sleep(self.between)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


async def test_a_stream_read_to_its_end_leaves_its_connection_to_the_next():
    async with Server(b'data: {"n": 1}\n\n', b"data: [DONE]\n\n") as server:
        connections = Connections(server.url, "key", {}, 5)
        for _ in range(3):
            asked = connections.ask("/completions", {"stream": True}, 5)
            assert [event async for event in asked] == [{"n": 1}]
        assert server.connections == 1
        await connections.aclose()


@pytest.mark.parametrize(("between", "connections"), [(0.05, 2), (0.0, 1)])
async def test_a_stream_closed_early_ends_its_connection_unless_all_had_come(between, connections):
    parts = (b'data: {"n": 1}\n\n', b'data: {"n": 2}\n\n', b"data: [DONE]\n\n")
    async with Server(*parts, between=between) as server:
        client = Connections(server.url, "key", {}, 5)
        for _ in range(2):
            asked = client.ask("/completions", {"stream": True}, 5)
            assert await anext(asked) == {"n": 1}
            await asyncio.sleep(0.01)
            await asked.aclose()
        assert server.connections == connections
        await client.aclose()


async def test_calls_at_the_same_time_have_connections_of_their_own():
    async with Server(b'data: {"n": 1}\n\n', b"data: [DONE]\n\n") as server:
        connections = Connections(server.url, "key", {}, 5)

        async def one() -> list[object]:
            return [event async for event in connections.ask("/x", {"stream": True}, 5)]

        assert await asyncio.gather(*(one() for _ in range(20))) == [[{"n": 1}]] * 20
        assert server.connections == 20
        assert await asyncio.gather(*(one() for _ in range(20))) == [[{"n": 1}]] * 20
        assert server.connections == 20
        await connections.aclose()


async def test_key_headers_query_and_any_text_are_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-7")
    async with Server(b"data: [DONE]\n\n") as server:
        connections = Connections(f"{server.url}/v1/?version=2", "sk-1", {"X-Team": "hops"}, 5)
        body = {"stream": True, "prompt": "odd \ud800 שלום"}
        assert [event async for event in connections.ask("/completions", body, 5)] == []
        await connections.aclose()
    [head] = server.heads
    assert head.startswith(b"POST /v1/completions?version=2 HTTP/1.1\r\n")
    for line in (b"authorization: bearer sk-1", b"x-team: hops", b"openai-organization: org-7"):
        assert line in head.lower()
    assert server.bodies == [body]


async def test_a_name_and_password_in_the_address_take_the_keys_place():
    async with Server(b"data: [DONE]\n\n") as server:
        connections = Connections(server.url.replace("//", "//ann:secret@"), "none", {}, 5)
        assert [event async for event in connections.ask("/x", {"stream": True}, 5)] == []
        await connections.aclose()
    assert b"authorization: basic yw5uonnly3jlda==" in server.heads[0].lower()


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(
    ("reply", "event"),
    [
        (b'{"n":\n 1}', {"n": 1}),
        (b'\r\n{"n":\r\n 1}\r\n\r\n', {"n": 1}),
        (b"<html>\n</html>", "<html>\n</html>\n"),
        (b": ping\nevent: end\nretry: 3\nid: 4\n\n", None),
        (b"", None),
    ],
)
async def test_what_is_no_stream_of_events_is_given_as_it_is(size, reply, event):
    parts = [reply[at : at + size] for at in range(0, len(reply), size)]
    assert await taken_apart(*parts) == ([] if event is None else [event])


async def test_lines_between_events_are_none():
    assert await taken_apart(b'hello\ndata: {"n": 1}\n\nhello\n') == [{"n": 1}]


@pytest.mark.parametrize("machine", ["machine 127.0.0.1", "default"])
async def test_a_netrc_file_changes_nothing(machine, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text(f"{machine} login ann password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with Server(b"data: [DONE]\n\n") as server:
        connections = Connections(server.url, "sk-1", {}, 5)
        assert [event async for event in connections.ask("/x", {"stream": True}, 5)] == []
        await connections.aclose()
    assert b"authorization: bearer sk-1" in server.heads[0].lower()


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("excepted", ["", "example.org", "example.org:8000", "*"])
async def test_a_proxy_of_the_environment_is_used_unless_it_excepts_the_server(
    bare, excepted, monkeypatch
):
    async with Server(b"data: [DONE]\n\n") as proxy:
        place = proxy.url.replace("//", "//ann:secret@")
        monkeypatch.setenv("http_proxy", place[7:] if bare else place)
        monkeypatch.setenv("no_proxy", excepted)
        connections = Connections("http://example.org:8000/v1", "sk-1", {}, 5)
        if excepted:
            monkeypatch.setattr(connections._session.connector, "_resolve_host", refuse)
            with pytest.raises(Lost):
                await anext(connections.ask("/x", {"stream": True}, 5))
            assert not proxy.heads
        else:
            assert [event async for event in connections.ask("/x", {"stream": True}, 5)] == []
            [head] = proxy.heads
            assert head.startswith(b"POST http://example.org:8000/v1/x HTTP/1.1\r\n")
            assert b"proxy-authorization: basic yw5uonnly3jlda==" in head.lower()
        await connections.aclose()


async def refuse(*_, **__):
    raise OSError("not asked")


async def test_a_server_that_lets_nobody_in_was_not_reached():
    with socket.socket() as deaf, contextlib.ExitStack() as waiting:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):  # fill its queue
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(deaf.getsockname())
        connections = Connections(f"http://127.0.0.1:{deaf.getsockname()[1]}", "k", {}, 0.1)
        with pytest.raises(Lost, match=r"no connection within 0\.09 s") as caught:
            await anext(connections.ask("/x", {}, 5))
        assert caught.value.unreached
        await connections.aclose()


async def test_a_server_that_is_not_there_was_not_reached():
    connections = Connections("http://127.0.0.1:9", "key", {}, 5)
    with pytest.raises(Lost) as caught:
        await anext(connections.ask("/x", {}, 5))
    assert caught.value.unreached
    await connections.aclose()
