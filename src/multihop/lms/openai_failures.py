"""What goes wrong at an OpenAI-compatible server, in this package's errors."""

import asyncio
import json
import logging
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from multihop.errors import BadCompletion, ContextTooLong, LMError, LMRefused, LMUnavailable

log = logging.getLogger(__name__)

# How servers say that a prompt is too long: OpenAI, vLLM (three wordings), llama.cpp, TGI.
_TOO_LONG = re.compile(
    r"(context|model)[ _](length|window|size)|prompt is too long|too many tokens"
    r"|must be at least 1, got -",
    re.IGNORECASE,
)
_WINDOW = re.compile(
    r"(?:maximum|available) (?:context |model )*(?:length|window|size) ?(?:of |is |\()*(\d+)",
    re.IGNORECASE,
)
_NEEDED = re.compile(r"requested (?:about )?(\d+) tokens", re.IGNORECASE)
_PROMPT = re.compile(
    r"resulted in (\d+) tokens|request \((\d+) tokens|prompt \(length (\d+)\)"
    r"|(\d+) input tokens|(\d+) tokens in the prompt",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Failures:
    """Words the failures of one model at one server.

    Attributes:
        name: The model's name in records.
        url: The server's address.
        key_env: Where its key comes from.
        secrets: Never shown, even when the server repeats them.
        timeout: Seconds that one attempt waits.
        max_retries: Attempts after the first.
    """

    name: str
    url: str
    key_env: str
    secrets: Sequence[str]
    timeout: float
    max_retries: int

    def bad(self, what: str) -> BadCompletion:
        """The reply breaks the protocol."""
        return BadCompletion(self._clean(f"{self.name}: {what}."))

    def broken(self, failure: Exception) -> LMError:
        """A stream that had begun came to no end."""
        if isinstance(failure, TimeoutError):
            return LMUnavailable(
                f"{self.name}: the stream had not ended after {self.timeout:g} s of waiting. "
                "Give the model a longer timeout, or fewer tokens to write."
            )
        return self.bad(f"the stream broke off ({self._said(failure)})")

    def refusal(self, failure: Exception, model: str, room: int) -> LMError | None:
        """The error that no retry would mend, or None.

        Args:
            failure: What was raised, of any kind.
            model: The model's or the adapter's name as it was sent.
            room: Tokens that were to be generated.
        """
        code, words = status(failure), self._said(failure)
        here = f"{self._server} answers {code}: {words}"
        if code in (401, 403):
            return LMRefused(f"{here}. Check the key in {self.key_env}.")
        if code == 404:
            return LMRefused(
                f"{here}. Check the model's name ({model}) and the address, "
                "which usually ends in /v1."
            )
        if is_too_long(failure):
            window, needed = _number(_WINDOW, words), _number(_NEEDED, words)
            prompt = _number(_PROMPT, words)
            if needed is None and prompt is not None:
                needed = prompt + room
            return ContextTooLong(f"{here} ({room} tokens were to be generated)", needed, window)
        if getattr(failure, "code", None) == "insufficient_quota":
            return LMRefused(here)
        if code in (408, 409, 425, 429) or code >= 500:
            return None
        return LMRefused(here)

    async def wait(self, failure: Exception, failed: int, began: float, *, known: bool) -> None:
        """Wait before the next attempt, or give up.

        Args:
            failure: What was raised.
            failed: Attempts that failed so far.
            began: When the first one began, on `time.perf_counter`'s clock.
            known: The server has answered before, so its address is right.

        Raises:
            LMUnavailable: It was the last attempt, or waiting longer would be useless.
        """
        words = self._said(failure)
        if isinstance(failure, TimeoutError) or "Timeout" in type(failure).__name__:
            words = f"no answer within {self.timeout:g} s"
        if getattr(failure, "unreached", False) and not known:
            raise LMUnavailable(
                f"{self._server} cannot be reached: {words}. "
                "Check the address, and that the server runs."
            )
        asked = retry_after(failure)
        if failed > self.max_retries or asked > self.timeout:
            seconds = time.perf_counter() - began
            more = f" It asks to wait {asked:.0f} s more." if asked else ""
            raise LMUnavailable(
                f"{self._server} failed {failed} times in {seconds:.0f} s; last: {words}.{more}"
            )
        delay = min(30.0, 0.5 * 2 ** (failed - 1)) * random.uniform(0.5, 1)  # noqa: S311
        if asked:
            delay = asked + delay / 10  # so that waiting callers do not all come back at once
        log.info("%s failed: %s; attempt %d in %.1f s", self._server, words, failed + 1, delay)
        await pause(delay)

    @property
    def _server(self) -> str:
        address = shown(self.url)
        return f"{self.name}: the server" + ("" if address in self.name else f" at {address}")

    def found(self, reply: object) -> str:
        """The beginning of what came, for a message."""
        return self._clean(repr(reply))[:200]

    def _said(self, failure: Exception) -> str:
        return self._clean(said(failure))[:500].rstrip(".")

    def _clean(self, text: str) -> str:
        for secret in self.secrets:
            if len(secret) >= 4:
                text = text.replace(secret, "***")
        return text


async def pause(seconds: float) -> None:
    """Sleep; tests put another in its place."""
    await asyncio.sleep(seconds)


def shown(url: str) -> str:
    """The address without a user name, a password or query fields: those may be keys."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def in_address(url: str) -> tuple[str, ...]:
    """What may be a key in an address: user name, password, values of query fields."""
    parts = urlsplit(url)
    found = (parts.username, parts.password, *(value for _, value in parse_qsl(parts.query)))
    given = [part for part in found if part]
    return tuple(dict.fromkeys([*given, *map(unquote, given), *map(quote, given)]))


def status(failure: Exception) -> int:
    """The HTTP status; of an error inside a stream the one that it names, else 500."""
    code = str(getattr(failure, "status_code", None) or getattr(failure, "code", None))
    return int(code) if code.isdecimal() else 500


def said(failure: Exception) -> str:
    """What the server, or the connection, had to say."""
    body = getattr(failure, "body", None)
    if isinstance(body, dict):
        body = body.get("message") or body.get("detail") or json.dumps(body)
    if body:
        return str(body).strip().rstrip(".")
    return str(failure).strip() or type(failure).__name__


def is_too_long(failure: Exception) -> bool:
    """Whether the server says that the prompt does not fit."""
    kinds = {getattr(failure, "code", None), getattr(failure, "type", None)}
    known = kinds & {"context_length_exceeded", "exceed_context_size_error"}
    return status(failure) in (400, 413, 422) and bool(known or _TOO_LONG.search(said(failure)))


def retry_after(failure: Exception) -> float:
    """Seconds that the server asks to wait; 0 when it does not say."""
    value = getattr(failure, "headers", {}).get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(next(group for group in found.groups() if group)) if found else None
