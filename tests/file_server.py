"""A local server of files that behaves as badly as a test wants."""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Request(BaseHTTPRequestHandler):
    """One request; a behaviour answers it."""

    protocol_version = "HTTP/1.1"
    server: "FileServer"

    def log_message(self, *args: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        self.server.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        behaviours = self.server.behaviours
        behaviour = behaviours.pop(0) if behaviours else self.server.default
        try:
            behaviour(self)
        except OSError:  # the client went away
            self.close_connection = True

    def send(self, status: int, body: bytes, *, promise: int | None = None, **headers: str) -> None:
        """Answer; with a promised length that is not kept, the connection ends."""
        self.send_response(status)
        self.send_header("content-length", str(len(body) if promise is None else promise))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        if promise is not None:
            self.close_connection = True


Behaviour = Callable[[Request], None]


class FileServer(ThreadingHTTPServer):
    """Answers each request by the next of its behaviours, and then by the default one."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.behaviours: list[Behaviour] = []
        self.default: Behaviour = gone
        self.requests: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def ranges(self) -> list[str | None]:
        return [headers.get("range") for _, headers in self.requests]


@contextlib.contextmanager
def serving() -> Iterator[FileServer]:
    server = FileServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def whole(body: bytes, **headers: str) -> Behaviour:
    """The file, as a server that knows no ranges gives it."""
    return lambda request: request.send(200, body, **headers)


def ranged(body: bytes, tag: str = '"1"') -> Behaviour:
    """The file, or the part asked for when the condition holds."""

    def answer(request: Request) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
        if not wanted or request.headers.get("if-range", tag) != tag:
            request.send(200, body, etag=tag)
            return
        start = int(wanted[1])
        if start >= len(body):
            request.send(416, b"", content_range=f"bytes */{len(body)}")
            return
        span = f"bytes {start}-{len(body) - 1}/{len(body)}"
        request.send(206, body[start:], etag=tag, content_range=span)

    return answer


def broken(body: bytes, after: int, **headers: str) -> Behaviour:
    """All of the file is promised, and the connection ends early."""
    return lambda request: request.send(200, body[:after], promise=len(body), **headers)


def broken_part(body: bytes, start: int, after: int, tag: str = '"1"') -> Behaviour:
    """The same for a part."""
    span = f"bytes {start}-{len(body) - 1}/{len(body)}"
    return lambda request: request.send(
        206, body[start:after], promise=len(body) - start, etag=tag, content_range=span
    )


def status(code: int, **headers: str) -> Behaviour:
    return lambda request: request.send(code, b"", **headers)


def page(text: str, kind: str = "text/html; charset=utf-8") -> Behaviour:
    return lambda request: request.send(200, text.encode(), content_type=kind)


def elsewhere(location: str) -> Behaviour:
    return lambda request: request.send(302, b"", location=location)


def gone(request: Request) -> None:
    request.send(404, b"")
