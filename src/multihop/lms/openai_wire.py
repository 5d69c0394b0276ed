"""OpenAI's API over HTTP: a request's fields go out, plain JSON data comes back.

Nothing is made of the data that a caller would throw away: at a few hundred calls a second
the time per event is what bounds a run.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, cast

import httpx

_LINGER = 0.1
"""Seconds that a finished stream may take to end in order; its connection then serves again."""


class Refused(Exception):
    """The server said no, by its status or inside a stream.

    Attributes:
        body: Its words: an object with `message`, or a text.
        status_code: The HTTP status; None inside a stream.
        code, type, param: As the body names them.
        headers: Of the reply.
    """

    def __init__(
        self, body: object, status_code: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__("an error without words")
        if isinstance(body, dict):
            body = body.get("error", body)
        named: Mapping[str, object] = body if isinstance(body, dict) else {}
        self.body = body
        self.status_code = status_code
        self.code = named.get("code")
        self.type = named.get("type")
        self.param = named.get("param")
        self.headers = headers or {}


class Connections:
    """Connections to one server; they belong to the running event loop.

    Each has a client of its own, taken for a call and given back after it: one pool of many
    looks through all of its connections, several times a call.

    Args:
        url: The server's API; user name, password and query fields are sent along.
        key: Sent as the bearer's.
        headers: Sent with every request.
        timeout: Seconds to wait for any one read or write.
    """

    def __init__(self, url: str, key: str, headers: Mapping[str, str], timeout: float) -> None:
        of_openai = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
        named = {name: os.environ[at] for name, at in of_openai.items() if os.environ.get(at)}
        self._url = httpx.URL(url)
        self._headers = {"authorization": f"Bearer {key}", **named, **headers}
        self._timeout = httpx.Timeout(timeout, connect=min(timeout, 10))
        self._trust = httpx.create_ssl_context()
        self._clients: list[httpx.AsyncClient] = []
        self._free: list[httpx.AsyncClient] = []

    async def ask(
        self, path: str, body: Mapping[str, Any], seconds: float
    ) -> AsyncGenerator[Any, None]:
        """Send a request and give the reply's events; the whole of it where none was streamed.

        Args:
            path: The endpoint, "/completions".
            body: The request's fields.
            seconds: Time to wait for the server in all, the caller's own between events aside.

        Raises:
            Refused: The server said no.
            TimeoutError: It took longer.
            httpx.HTTPError: The connection failed.
            ValueError: What came is not JSON.
        """
        client = self._free.pop() if self._free else self._client()
        try:
            async with aclosing(_ask(client, self._endpoint(path), body, seconds)) as events:
                async for event in events:
                    yield event
        finally:
            self._free.append(client)

    async def aclose(self) -> None:
        """Close them all."""
        self._free.clear()
        while self._clients:
            await self._clients.pop().aclose()

    def _client(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            headers=self._headers,
            timeout=self._timeout,
            verify=self._trust,
            follow_redirects=True,
        )
        self._clients.append(client)
        return client

    def _endpoint(self, path: str) -> httpx.URL:
        return self._url.copy_with(path=self._url.path.rstrip("/") + path)


async def _ask(
    client: httpx.AsyncClient, url: httpx.URL, body: Mapping[str, Any], seconds: float
) -> AsyncGenerator[Any, None]:
    request = client.build_request(
        "POST",
        url,
        content=json.dumps(body, separators=(",", ":")).encode(),
        headers={"content-type": "application/json"},
    )
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        response = await client.send(request, stream=True)
    try:
        left = seconds - (time.monotonic() - began)
        if response.is_success and body.get("stream"):
            async with aclosing(_events(response, left)) as events:
                async for event in events:
                    yield event
            return
        async with asyncio.timeout(left):
            content = await response.aread()
        if not response.is_success:
            raise Refused(_json_or_text(content), response.status_code, response.headers)
        is_json = "json" in response.headers.get("content-type", "")
        yield json.loads(content) if is_json else response.text
    finally:
        await response.aclose()


async def _events(response: httpx.Response, left: float) -> AsyncGenerator[Any, None]:
    """The data of server-sent events, up to [DONE]; what a read brings is taken apart at once."""
    held, data = b"", b""
    stream = cast(AsyncGenerator[bytes, None], response.aiter_bytes())
    async with aclosing(stream) as parts:
        while True:
            since = time.monotonic()
            async with asyncio.timeout(max(left, 0)):
                part = await anext(parts, None)
            left -= time.monotonic() - since
            # An event ends with an empty line; the last one may have lost it.
            *lines, held = (held + (b"\n\n" if part is None else part)).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    data += line[5:].strip() + b"\n"
                elif data and not line.strip():
                    if data.startswith(b"[DONE]"):
                        with suppress(TimeoutError, httpx.HTTPError):
                            async with asyncio.timeout(_LINGER):
                                async for _ in parts:
                                    pass
                        return
                    event = json.loads(data)
                    data = b""
                    if isinstance(event, dict) and event.get("error"):
                        raise Refused(event)
                    yield event
            if part is None:
                return


def _json_or_text(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
