"""One address that answers JSON with JSON, and everything that can go wrong there."""

import asyncio
import json
import os
import random
import re
from urllib.parse import urlsplit, urlunsplit

import httpx

from multihop.errors import BadInput, RetrieverError
from multihop.retrievers.wire import encoded
from multihop.text import Json

_BUSY = (429, 502, 503, 504)
"""The server asks to come back, or a proxy before it does."""

LONGEST_WAIT = 30.0
"""Seconds that are waited at most before another attempt, whatever the server asks for."""


class Endpoint:
    """Asks one address.

    Failed connections and answers that ask to come back (429, 502, 503, 504) are tried again;
    an answer that does not come in time is not, because the next one would be waited for as long.

    Args:
        name: The part's name in records and messages.
        url: Where, http or https. A key does not belong into it: addresses are kept in records.
        key_env: The environment variable that holds the key, where there is one. It is sent as
            "Authorization: Bearer KEY"; a value of two words ("Basic ...") is sent as it is.
        timeout: Seconds that an attempt may take until the server has answered.
        retries: Attempts after the first.

    Raises:
        BadInput: The address is none, or holds a password; a number is out of its range.
    """

    def __init__(
        self, name: str, url: str, *, key_env: str, timeout: float = 30.0, retries: int = 2
    ) -> None:
        if not (timeout > 0 and retries >= 0):
            raise BadInput(
                f"{name}: timeout is {timeout} and retries {retries}: above 0, and not below 0."
            )
        self.name = name
        self.url = checked(url, key_env)
        self.timeout = timeout
        self.retries = retries
        self._key_env = key_env
        self._at = "" if self.url in name else f" at {self.url}"
        key = os.environ.get(key_env, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise BadInput(f"The key in {key_env} has characters that no header can hold.")
        self._secret = key.split()[-1] if key else ""
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = key if " " in key else f"Bearer {key}"
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def get(self) -> Json:
        """What the address says about itself; None where it does not answer GET (404, 405, 501).

        Blocks, and is tried once: it is for the moment when a part is opened.

        Raises:
            RetrieverError: It cannot be reached, refuses, or answers no JSON.
        """
        try:
            with httpx.Client(timeout=self.timeout, headers=self._headers) as client:
                response = client.get(self.url)
        except httpx.TransportError as failure:
            raise self._failed(failure) from failure
        if response.status_code in (404, 405, 501):
            return None
        return self._read(response)

    async def post(self, body: Json) -> Json:
        """Send and receive.

        Raises:
            RetrieverError: No answer, a refusal, or no JSON. Cancellation ends the request.
        """
        content = encoded(body)
        for attempt in range(self.retries + 1):
            last = attempt == self.retries
            wait = 0.2 * 2**attempt * random.uniform(0.5, 1)  # noqa: S311
            try:
                response = await self._session().post(self.url, content=content)
            except httpx.TimeoutException as failure:
                raise self._failed(failure) from failure
            except httpx.TransportError as failure:
                if last:
                    raise self._failed(failure) from failure
            else:
                asked = _retry_after(response)
                if response.status_code not in _BUSY or last or asked > LONGEST_WAIT:
                    return self._read(response)
                wait = max(wait, asked)
            await pause(wait)
        raise AssertionError("the last attempt returns or raises")

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is harmless."""
        self._closed = True
        if self._client and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = None

    def error(self, what: str) -> RetrieverError:
        """The error that says this; the key is not in it, even when the server repeats it."""
        return RetrieverError(self._clean(f"{self.name}: {what}"))

    def _session(self) -> httpx.AsyncClient:
        """The client of this event loop: connections cannot be shared between loops."""
        if self._closed:
            raise self.error("it was closed. Open it again.")
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client = httpx.AsyncClient(timeout=self.timeout, headers=self._headers)
            self._loop = loop
        return self._client

    def _read(self, response: httpx.Response) -> Json:
        if response.status_code != 200:
            raise self._refusal(response)
        try:
            data: Json = json.loads(response.content)
        except (ValueError, RecursionError) as broken:
            raise self.error(f"the answer is no JSON ({_beginning(response)!r}).") from broken
        return data

    def _refusal(self, response: httpx.Response) -> RetrieverError:
        code = response.status_code
        said = _beginning(response) or response.reason_phrase
        more = ""
        if code in (401, 403):
            more = f" Check the key in {self._key_env}."
        elif code in (404, 405):
            more = " Check the address."
        elif code in _BUSY:
            asked = _retry_after(response)
            tries = "once" if not self.retries else f"{self.retries + 1} times"
            more = f" It was asked {tries}."
            if asked > LONGEST_WAIT:
                more = f" It asks to wait {asked:.0f} s."
        return self.error(f"the server{self._at} answers {code}: {said}.{more}")

    def _failed(self, failure: httpx.TransportError) -> RetrieverError:
        if isinstance(failure, httpx.TimeoutException):
            return self.error(f"no answer{self._at} within {self.timeout:g} s.")
        words = str(failure).strip() or type(failure).__name__
        return self.error(
            f"the server{self._at} cannot be reached ({words}). Check the address, and that the "
            "server runs."
        )

    def _clean(self, text: str) -> str:
        return text.replace(self._secret, "***") if len(self._secret) >= 4 else text


async def pause(seconds: float) -> None:
    """Sleep; tests put another in its place."""
    await asyncio.sleep(seconds)


def checked(url: str, key_env: str) -> str:
    """An address that can be asked and may be kept.

    Raises:
        BadInput: It is none, or holds a password.
    """
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username or parts.password
        _ = parts.port
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL) as broken:
        raise BadInput(f"{url[:200]!r} is no address ({broken}).") from None
    if parts.scheme not in ("http", "https") or not host:
        raise BadInput(f"{url[:200]!r} is no address; expected http://HOST:PORT/PATH.")
    if user:
        bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], *parts[2:]))
        raise BadInput(
            f"The address {bare} holds a user name or a password, and addresses are kept in "
            f"records. Put 'Basic ...' into the environment variable {key_env} instead."
        )
    return url


def _beginning(response: httpx.Response) -> str:
    """What the server says, on one line."""
    text = " ".join(response.content[:1000].decode("utf-8", "replace").split())
    text = re.sub(r"[^\x20-\x7e\xa0-\ud7ff]", "?", text)
    return text[:200].rstrip(". ")


def _retry_after(response: httpx.Response) -> float:
    """Seconds that the server asks to wait; 0 when it does not say, or says a date."""
    try:
        return max(0.0, float(response.headers.get("retry-after", "0")))
    except ValueError:
        return 0.0
