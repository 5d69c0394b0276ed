"""OpenAI's API over HTTP: a request's fields go out, plain JSON data comes back.

At a few hundred calls a second the time that a call takes of our own is what bounds a run. So
nothing is made of the data that a caller would throw away, and the HTTP is aiohttp's, whose
parser is compiled: a call costs about half of what it costs with httpx, a third of what it
costs with the `openai` client.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:
    import aiohttp

_LINGER = 0.1
"""Seconds that a finished stream may take to end in order; its connection then serves again."""

_FIELDS = (b":", b"event:", b"id:", b"retry:")
"""How lines of events begin that hold no data."""


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


class Lost(Exception):
    """The connection failed.

    Attributes:
        unreached: It did not even come about.
    """

    def __init__(self, why: str, *, unreached: bool = False) -> None:
        super().__init__(why)
        self.unreached = unreached


class Connections:
    """Connections to one server; they belong to the running event loop.

    Args:
        url: The server's API. User name and password in it take the key's place; query fields
            are sent along. A proxy for it is taken from the environment.
        key: Sent as the bearer's.
        headers: Sent with every request.
        timeout: Seconds to wait for a connection, at most 10; `ask` has its own.
    """

    def __init__(self, url: str, key: str, headers: Mapping[str, str], timeout: float) -> None:
        import aiohttp  # noqa: PLC0415

        of_openai = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
        named = {name: os.environ[at] for name, at in of_openai.items() if os.environ.get(at)}
        bearer = {} if urlsplit(url).username else {"authorization": f"Bearer {key}"}
        self._url = url
        # Not `trust_env`: aiohttp then reads ~/.netrc at every call, and refuses a call whose
        # host is named there, since it has a key already.
        proxy = None
        if not proxy_bypass(urlsplit(url).netloc.rpartition("@")[2]):
            proxy = getproxies().get(urlsplit(url).scheme)
        if proxy and "://" not in proxy:
            proxy = f"http://{proxy}"
        self._session = aiohttp.ClientSession(
            # The caller bounds the calls. Servers close idle connections after 5 s.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4),
            headers={**bearer, **named, "content-type": "application/json", **headers},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(0.9 * timeout, 10)),
            proxy=proxy,
        )

    async def ask(
        self, path: str, body: Mapping[str, Any], seconds: float
    ) -> AsyncGenerator[Any, None]:
        """Send a request and give the reply's events; the whole of it where none was streamed.

        Args:
            path: The endpoint, "/completions".
            body: The request's fields.
            seconds: Time to wait for the server in all, the caller's own between events aside.

        Raises:
            Refused: The server said no, or wants to be asked elsewhere: a POST cannot be sent on
                as it is, and its headers may be keys.
            Lost: The connection failed.
            TimeoutError: It took longer.
            ValueError: What came is not JSON.
        """
        import aiohttp  # noqa: PLC0415

        parts = urlsplit(self._url)
        url = parts._replace(path=parts.path.rstrip("/") + path).geturl()
        content = json.dumps(body, separators=(",", ":")).encode()
        try:
            began = time.monotonic()
            async with asyncio.timeout(seconds):
                response = await self._session.post(url, data=content, allow_redirects=False)
            try:
                left = seconds - (time.monotonic() - began)
                onward = 300 <= response.status < 400
                if response.ok and not onward and body.get("stream"):
                    async with aclosing(_events(response.content, left)) as events:
                        async for event in events:
                            yield event
                    return
                async with asyncio.timeout(max(left, 0)):
                    content = await response.read()
                if onward:
                    elsewhere = response.headers.get("location", "")
                    place = _shown(url, elsewhere) if elsewhere else "no address"
                    raise Refused(f"it sends us on, to {place}", response.status)
                if not response.ok:
                    raise Refused(_json_or_text(content), response.status, response.headers)
                is_json = "json" in response.content_type
                yield json.loads(content) if is_json else content.decode(errors="replace")
            finally:
                response.close()  # a connection read to its end was given back before
        except aiohttp.ConnectionTimeoutError as failure:
            words = f"no connection within {self._session.timeout.sock_connect:g} s"
            raise Lost(words, unreached=True) from failure
        except TimeoutError:  # some are of the errors below too
            raise
        except (aiohttp.ClientError, OSError) as failure:
            unreached = isinstance(failure, aiohttp.ClientConnectorError)
            raise Lost(str(failure) or type(failure).__name__, unreached=unreached) from failure

    async def aclose(self) -> None:
        """Close them all."""
        await self._session.close()


async def _events(content: "aiohttp.StreamReader", left: float) -> AsyncGenerator[Any, None]:
    """The data of server-sent events, up to [DONE]; what a read brings is taken apart at once.

    What is no event at all, as from a server that does not stream, is given as it is.
    """
    held, data, other, begun = b"", b"", b"", False
    while True:
        since = time.monotonic()
        async with asyncio.timeout(max(left, 0)):
            part = await content.readany()  # empty at the end
        left -= time.monotonic() - since
        # An event ends with an empty line; the last one may have lost it.
        *lines, held = (held + (part or b"\n\n")).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data += line[5:].strip() + b"\n"
            elif data and not line.strip():
                if data.startswith(b"[DONE]"):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LINGER):
                            while await content.readany():
                                pass
                    return
                event = json.loads(data)
                data, begun = b"", True
                _check(event)
                yield event
            elif not begun and line.strip() and not line.startswith(_FIELDS):
                other += line + b"\n"
        if not part:
            if other and not begun:
                event = _json_or_text(other)
                _check(event)
                yield event
            return


def _check(event: object) -> None:
    if isinstance(event, dict) and event.get("error"):
        raise Refused(event)


def _shown(url: str, elsewhere: str) -> str:
    """Where a server sends us, less what may be a key."""
    parts = urlsplit(urljoin(url, elsewhere))
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _json_or_text(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
