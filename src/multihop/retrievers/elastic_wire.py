"""Talking to Elasticsearch or OpenSearch: plain HTTP, and everything that can go wrong there.

The requests used here are the same in Elasticsearch 7, 8 and 9 and in OpenSearch, which no single
client library is: each refuses the others' servers.
"""

import asyncio
import itertools
import json
import os
import random
import re
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import cast
from urllib.parse import quote

import httpx

from multihop.errors import BadInput, CorpusError, RetrieverError
from multihop.retrievers.endpoint import LONGEST_WAIT, checked
from multihop.text import Json

API_KEY = "MULTIHOP_ELASTIC_API_KEY"
"""Environment variable with an API key, base64 as Elasticsearch gives it out."""

USER = "MULTIHOP_ELASTIC_USER"
"""Environment variable with a user's name, for basic authentication."""

PASSWORD = "MULTIHOP_ELASTIC_PASSWORD"  # noqa: S105 - the name of a variable
"""Environment variable with that user's password."""

SUPPORTED: Mapping[str, tuple[int, ...]] = {"Elasticsearch": (7, 8, 9), "OpenSearch": (1, 2, 3)}
"""Major versions of the servers that are asked."""

_BUSY = (429, 502, 503, 504)
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,200}")


class Cluster:
    """Asks one server, or a cluster behind one address.

    Who asks stands in the environment, and goes into no record: `API_KEY`, or `USER` and
    `PASSWORD`.

    Failed connections and answers that ask to come back (429, 502, 503, 504) are tried again; an
    answer that does not come in time is not.

    Args:
        target: URL/NAME, as "http://localhost:9200/hotpotqa"; a path before the name stays part
            of the address.
        timeout: Seconds that an attempt may take until the server has answered.
        retries: Attempts after the first.
        ca: PEM file of the authority that signed the server's certificate; empty: those that
            Python trusts.
        client_certificate: PEM file with a certificate and its key, for servers that ask for one.
        insecure: Take any certificate. For tests.

    Attributes:
        name: "elastic:URL/NAME".
        url: The address, without the name.
        index: The name: an alias of the index in use.

    Raises:
        BadInput: The target is none; a file cannot be read; a number is out of its range.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float = 30.0,
        retries: int = 2,
        ca: str = "",
        client_certificate: str = "",
        insecure: bool = False,
    ) -> None:
        self.url, _, self.index = target.rstrip("/").rpartition("/")
        if "@" in self.url.partition("://")[2].partition("/")[0]:
            raise BadInput(
                "The address holds a user name or a password, and addresses are kept in records. "
                f"Put them into {USER} and {PASSWORD}."
            )
        if not re.match(r"https?://[^/]", self.url) or not _NAME.fullmatch(self.index):
            raise BadInput(
                f"{target[:200]!r} is no index at a server; expected http://HOST:9200/NAME, the "
                "name in lower-case letters, digits, '-', '_' and '.'."
            )
        checked(self.url, API_KEY)
        self.name = f"elastic:{self.url}/{self.index}"
        if not (timeout > 0 and retries >= 0):
            raise BadInput(
                f"{self.name}: timeout is {timeout} and retries {retries}: above 0, and not below "
                "0."
            )
        self.timeout, self.retries = timeout, retries
        self._headers, self._secrets = _authorization()
        # Loading the trusted certificates takes long, and http has no use for them.
        secure = self.url.startswith("https:")
        trusted = _trusted(ca, client_certificate, insecure=insecure)
        self._verify = trusted if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client: httpx.Client | None = None
        self._async: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def request(
        self,
        method: str,
        path: str,
        body: Json | bytes = None,
        *,
        allowed: tuple[int, ...] = (),
        retries: int | None = None,
        timeout: float | None = None,
    ) -> Json:
        """Send and receive; blocks.

        Args:
            method: GET, PUT, POST or DELETE.
            path: From the address on, with a leading slash.
            body: JSON, or lines of JSON as bytes.
            allowed: Statuses of failure that are an answer: None is returned.
            retries: Instead of the cluster's.
            timeout: Likewise.

        Raises:
            RetrieverError: No answer, a refusal, or no JSON.
        """
        if self._closed:
            raise self.error("it was closed. Open it again.")
        if self._client is None:
            self._client = httpx.Client(verify=self._verify, headers=self._headers)
        for attempt in itertools.count():
            outcome: httpx.Response | httpx.TransportError
            try:
                outcome = self._client.request(
                    method,
                    self.url + path,
                    timeout=timeout or self.timeout,
                    **_content(body),  # type: ignore[arg-type]
                )
            except httpx.TransportError as failure:
                outcome = failure
            most = self.retries if retries is None else retries
            wait = _wait(outcome, attempt) if attempt < most else None
            if wait is None:
                return self._read(outcome, allowed, timeout or self.timeout)
            sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def ask(
        self, method: str, path: str, body: Json | bytes = None, *, allowed: tuple[int, ...] = ()
    ) -> Json:
        """The same as `request`, without blocking. Cancellation ends the request."""
        if self._closed:
            raise self.error("it was closed. Open it again.")
        loop = asyncio.get_running_loop()
        if self._async is None or self._loop is not loop:  # connections belong to their loop
            self._async = httpx.AsyncClient(
                verify=self._verify, headers=self._headers, timeout=self.timeout
            )
            self._loop = loop
        client = self._async
        for attempt in itertools.count():
            outcome: httpx.Response | httpx.TransportError
            try:
                outcome = await client.request(
                    method,
                    self.url + path,
                    **_content(body),  # type: ignore[arg-type]
                )
            except httpx.TransportError as failure:
                outcome = failure
            wait = _wait(outcome, attempt) if attempt < self.retries else None
            if wait is None:
                return self._read(outcome, allowed, self.timeout)
            await pause(wait)
        raise AssertionError("the last attempt returns or raises")

    def check_version(self) -> None:
        """Ask what the server is.

        Raises:
            RetrieverError: No server, no Elasticsearch or OpenSearch, or an unsupported version.
        """
        said = self.request("GET", "/", allowed=(403,))
        if said is None:  # a key may be limited to its index; the index tells enough
            return
        version = said.get("version") if isinstance(said, dict) else None
        number = str(version.get("number", "")) if isinstance(version, dict) else ""
        if not isinstance(version, dict) or not (major := re.match(r"\d+", number)):
            raise self.error("what answers there is neither Elasticsearch nor OpenSearch.")
        opensearch = version.get("distribution") == "opensearch"
        product = "OpenSearch" if opensearch else "Elasticsearch"
        # OpenSearch may be told to call itself 7.10 for the sake of old clients.
        if int(major[0]) not in SUPPORTED[product] and not (opensearch and number == "7.10.2"):
            known = "; ".join(
                f"{name} {', '.join(map(str, majors))}" for name, majors in SUPPORTED.items()
            )
            raise self.error(f"the server is {product} {number}. Supported: {known}.")

    def close(self) -> None:
        """Close the blocking connections. Calling it twice is harmless."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def aclose(self) -> None:
        """Close all connections. Calling it twice is harmless."""
        self._closed = True
        self.close()
        if self._async is not None and self._loop is asyncio.get_running_loop():
            await self._async.aclose()
        self._async = None

    def error(self, what: str) -> RetrieverError:
        """The error that says this, without keys."""
        return RetrieverError(self._clean(f"{self.name}: {what}"))

    def corpus_error(self, what: str) -> CorpusError:
        """The error of an index that cannot be used so."""
        return CorpusError(self._clean(f"{self.name}: {what}"))

    def _read(
        self,
        outcome: httpx.Response | httpx.TransportError,
        allowed: tuple[int, ...],
        timeout: float,
    ) -> Json:
        if isinstance(outcome, httpx.TimeoutException):
            raise self.error(f"no answer within {timeout:g} s.") from outcome
        if isinstance(outcome, httpx.TransportError):
            said = " ".join(str(outcome).split()) or type(outcome).__name__
            hint = "Check the address, and that the server runs."
            if "CERTIFICATE_VERIFY_FAILED" in said:
                hint = "Name the file of the authority that signed its certificate: ca=FILE."
            raise self.error(f"the server cannot be reached ({said[:200]}). {hint}") from outcome
        if outcome.status_code in allowed:
            return None
        if outcome.status_code not in (200, 201):
            raise self._refusal(outcome)
        try:
            return cast(Json, json.loads(outcome.content))
        except (ValueError, RecursionError) as broken:
            raise self.error(f"the answer is no JSON ({beginning(outcome)!r}).") from broken

    def _refusal(self, response: httpx.Response) -> RetrieverError:
        code = response.status_code
        try:
            said = reason(json.loads(response.content))
        except (ValueError, RecursionError):
            said = beginning(response) or response.reason_phrase
        more = ""
        if code in (401, 403):
            more = f" Check {API_KEY}, or {USER} and {PASSWORD}."
        elif code == 413:
            more = " The server takes no request of this size (its http.max_content_length)."
        return self.error(f"the server answers {code}: {said}.{more}")

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


async def pause(seconds: float) -> None:
    """Sleep; tests put another in its place."""
    await asyncio.sleep(seconds)


def sleep(seconds: float) -> None:
    """Sleep; tests put another in its place."""
    time.sleep(seconds)


def back_off(attempt: int) -> float:
    """Seconds before another attempt: doubling, at most `LONGEST_WAIT`, a little at random."""
    return float(min(LONGEST_WAIT, 0.2 * 2**attempt) * random.uniform(0.5, 1))  # noqa: S311


def reason(error: Json) -> str:
    """What an error object of the server says, on one line."""
    if isinstance(error, dict) and isinstance(error.get("error"), (dict, str)):
        error = error["error"]
    if isinstance(error, dict):
        causes = error.get("root_cause")
        if isinstance(causes, list) and causes and isinstance(causes[0], dict):
            error = causes[0]
        error = f"{error.get('type')}: {error.get('reason')}"
    return _line(error if isinstance(error, str) else json.dumps(error))


def beginning(response: httpx.Response) -> str:
    """What the server says, on one line."""
    return _line(response.content[:1000].decode("utf-8", "replace"))


def path_of(*parts: str) -> str:
    """A path of index names and operations."""
    return "".join("/" + quote(part, safe="*,") for part in parts)


def _line(text: str) -> str:
    return re.sub(r"[^\x20-\x7e\xa0-\ud7ff]", "?", " ".join(text.split()))[:200].rstrip(". ")


def _content(body: Json | bytes) -> dict[str, object]:
    if body is None:
        return {}
    lines = isinstance(body, bytes)
    content = body if isinstance(body, bytes) else json.dumps(body, allow_nan=False).encode("ascii")
    kind = "application/x-ndjson" if lines else "application/json"
    return {"content": content, "headers": {"Content-Type": kind}}


def _wait(outcome: httpx.Response | httpx.TransportError, attempt: int) -> float | None:
    """Seconds until the request is sent again; None when that is of no use."""
    if isinstance(outcome, httpx.TimeoutException):
        return None
    if isinstance(outcome, httpx.TransportError):
        # A certificate does not get better by asking again.
        return None if "CERTIFICATE_VERIFY_FAILED" in str(outcome) else back_off(attempt)
    if outcome.status_code not in _BUSY:
        return None
    try:
        asked = float(outcome.headers.get("retry-after", "0"))
    except ValueError:
        asked = 0.0
    return max(back_off(attempt), asked) if asked <= LONGEST_WAIT else None


def credentials() -> str:
    """Who asks, in words and without secrets.

    Raises:
        BadInput: What stands in the environment does not go together.
    """
    headers, _ = _authorization()
    if "Authorization" not in headers:
        return f"nobody: neither {API_KEY} nor {USER} is set"
    return f"the key in {API_KEY}" if os.environ.get(API_KEY, "").strip() else f"the user in {USER}"


def _authorization() -> tuple[dict[str, str], list[str]]:
    """The headers of every request, and what of them is secret."""
    key, user, password = (os.environ.get(name, "").strip() for name in (API_KEY, USER, PASSWORD))
    headers = {"Accept": "application/json"}
    if key and (user or password):
        raise BadInput(f"{API_KEY} and {USER} are both set. Unset one of them.")
    if bool(user) != bool(password):
        raise BadInput(f"{USER} and {PASSWORD} go together; one of them is not set.")
    if not (key.isascii() and key.isprintable()):
        raise BadInput(f"The key in {API_KEY} has characters that no header can hold.")
    if key:
        headers["Authorization"] = f"ApiKey {key}"
    secrets = [key] if key else []
    if user:
        pair = b64encode(f"{user}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
        secrets = [pair, password]
    return headers, [secret for secret in secrets if len(secret) >= 4]


def _trusted(ca: str, client_certificate: str, *, insecure: bool) -> ssl.SSLContext | bool:
    """Which certificates are taken."""
    if insecure and ca:
        raise BadInput("insecure=true takes any certificate; ca names one. Give one of the two.")
    if not (ca or client_certificate or insecure):
        return True
    for path in filter(None, (ca, client_certificate)):
        if not Path(path).is_file():
            raise BadInput(f"{path}: no such file.")
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if client_certificate:
            context.load_cert_chain(client_certificate)
    except (ssl.SSLError, OSError) as broken:
        where = f"{ca}, {client_certificate}".strip(", ")
        raise BadInput(f"{where}: not a PEM file of certificates ({broken}).") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
