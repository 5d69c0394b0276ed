"""A server on the standard library that puts a retriever behind HTTP, or answers as told."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from multihop.errors import BadInput
from multihop.retrievers.base import Retriever
from multihop.retrievers.wire import (
    Identity,
    encoded,
    identity_to_json,
    rankings_to_json,
    request_from_json,
)


@dataclass
class Answer:
    """What the server sends."""

    body: object = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: bool = False  # the connection breaks instead


Respond = Callable[[str, str, dict], Answer]
"""From method, path and body to an answer."""


class Server:
    """Answers by the next of `answers`, or else by `respond`; keeps what it was asked."""

    def __init__(self, respond: Respond | None = None) -> None:
        self.respond = respond or (lambda method, path, body: Answer({}, 404))
        self.answers: list[Answer] = []
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with suppress(ConnectionError):
                    super().handle()

            def do_GET(self) -> None:
                self.reply(outer.respond("GET", self.path, {}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.bodies.append(body)
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                if outer.answers:
                    self.reply(outer.answers.pop(0))
                else:
                    self.reply(outer.respond("POST", self.path, body))

            def reply(self, answer: Answer) -> None:
                time.sleep(answer.delay)
                if answer.cut:
                    self.close_connection = True
                    self.connection.close()
                    return
                raw = (
                    answer.body
                    if isinstance(answer.body, bytes)
                    else json.dumps(answer.body).encode()
                )
                with suppress(OSError):  # the client went away
                    self.send_response(answer.status)
                    for name, value in {"content-length": str(len(raw)), **answer.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(raw)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/search"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def serving(retriever: Retriever, identity: Identity | None = None) -> Respond:
    """Answers with what a retriever finds: the reference for anybody's own server."""

    def respond(method: str, path: str, body: dict) -> Answer:
        if method == "GET":
            if identity is None:
                return Answer({"error": "say what?"}, 405)
            return Answer(identity_to_json(identity))
        try:
            queries, k = request_from_json(body)
        except BadInput as wrong:
            return Answer({"error": str(wrong)}, 400)
        found = asyncio.run(retriever.search(queries, k))
        return Answer(encoded(rankings_to_json(found)))

    return respond
