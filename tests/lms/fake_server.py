"""A local server that speaks OpenAI's API as each test wants it."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Answer:
    """What the server sends: a whole body, or events of a stream."""

    body: object = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    events: list[object] | None = None
    done: bool = True  # the stream ends in [DONE]
    delay: float = 0.0  # seconds before the answer, and between the events of a stream
    cut: bool = False  # the connection breaks after the last event


class FakeServer:
    """Answers each request by the next of its answers; keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer | Callable[[dict], Answer]] = []
        self.default: Callable[[str, dict], Answer] | None = None
        self.requests: list[tuple[str, dict]] = []
        self.headers: list[dict[str, str]] = []
        self.sent = 0  # events that went out
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with suppress(ConnectionError):  # the client went away between two requests
                    super().handle()

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length))
                outer.requests.append((self.path, body))
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                if outer.answers:
                    answer = outer.answers.pop(0)
                    answer = answer(body) if callable(answer) else answer
                else:
                    assert outer.default, "the test gave no answer"
                    answer = outer.default(self.path, body)
                try:
                    self.answer(answer)
                except OSError:  # the client went away
                    self.close_connection = True

            def answer(self, answer: Answer) -> None:
                time.sleep(answer.delay)
                streamed = answer.events is not None
                kind = "text/event-stream" if streamed else "application/json"
                raw = answer.body
                if not isinstance(raw, bytes):
                    raw = json.dumps(raw).encode()
                self.send_response(answer.status)
                headers = {"content-type": kind, **answer.headers}
                headers |= (
                    {"transfer-encoding": "chunked"}
                    if streamed
                    else {"content-length": str(len(raw))}
                )
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if not streamed:
                    self.wfile.write(raw)
                    return
                for event in answer.events or ():
                    text = event if isinstance(event, str) else json.dumps(event)
                    self.chunk(f"data: {text}\n\n".encode())
                    outer.sent += 1
                    time.sleep(answer.delay)
                if answer.cut:
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.close()
                    return
                if answer.done:
                    self.chunk(b"data: [DONE]\n\n")
                self.chunk(b"")

            def chunk(self, data: bytes) -> None:
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def error(message: str, status: int = 400, **more: object) -> Answer:
    headers = more.pop("headers", {})
    return Answer({"error": {"message": message, "type": "x", **more}}, status, headers)


def chat(*parts: str, finish: str | None = "stop", index: int = 0, usage=None, **more) -> Answer:
    """A streamed chat completion; `more` goes into Answer."""
    return Answer(events=chat_events(*parts, finish=finish, index=index, usage=usage), **more)


def chat_events(*parts, finish="stop", index=0, usage=None, key="content") -> list[dict]:
    events = [chunk({key: part}, index=index) for part in parts]
    if finish:
        events.append(chunk({}, finish, index))
    if usage:
        events.append({"id": "1", "object": "chat.completion.chunk", "choices": [], "usage": usage})
    return events


def chunk(delta: dict, finish: str | None = None, index: int = 0, **more: object) -> dict:
    choice = {"index": index, "delta": delta, "finish_reason": finish, **more}
    return {"id": "1", "object": "chat.completion.chunk", "choices": [choice]}


def text(*parts: str, finish: str | None = "stop", usage=None, **more) -> Answer:
    """A streamed completion."""
    events = [text_chunk(part) for part in parts]
    if finish:
        events.append(text_chunk("", finish))
    if usage:
        events.append({"id": "1", "object": "text_completion", "choices": [], "usage": usage})
    return Answer(events=events, **more)


def text_chunk(part: str, finish: str | None = None, **more: object) -> dict:
    choice = {"index": 0, "text": part, "finish_reason": finish, "logprobs": None, **more}
    return {"id": "1", "object": "text_completion", "choices": [choice]}


def whole(content: str | None, finish: str = "stop", usage=None, **message: object) -> Answer:
    """A chat completion in one."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content, **message},
        "finish_reason": finish,
    }
    return Answer({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})
