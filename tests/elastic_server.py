"""Enough of Elasticsearch to build and search an index, and to fail in every way that one can.

It ranks by how many of a query's words a document has; a real node is there for real ranking.
"""

import fnmatch
import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass
class Answer:
    """What the server sends instead."""

    body: object = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: bool = False  # the connection breaks instead


@dataclass
class Index:
    mappings: dict[str, Any]
    settings: dict[str, Any]
    docs: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)  # what a refresh has shown
    deleted: int = 0


Rule = Callable[[str, str, bytes], Answer | None]
"""From method, path and body to an answer; None leaves it to the server."""


class ElasticServer:
    """An in-memory server. `rules` come first; `asked` keeps every method and path."""

    def __init__(self, certificate: str = "") -> None:
        self.indexes: dict[str, Index] = {}
        self.aliases: dict[str, str] = {}
        self.version: dict[str, str] = {"number": "8.19.0"}
        self.rules: list[Rule] = []
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.searches: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # one packet an answer
            disable_nagle_algorithm = True

            def handle(self) -> None:
                with suppress(ConnectionError, ssl.SSLError):
                    super().handle()

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                with outer.lock:
                    outer.asked.append((self.command, self.path))
                    outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                    found = next(
                        (a for rule in outer.rules if (a := rule(self.command, self.path, body))),
                        None,
                    ) or outer.respond(self.command, self.path.partition("?")[0], body)
                time.sleep(found.delay)
                if found.cut:
                    self.close_connection = True
                    self.connection.close()
                    return
                raw = (
                    found.body if isinstance(found.body, bytes) else json.dumps(found.body).encode()
                )
                with suppress(OSError):  # the client went away
                    self.send_response(found.status)
                    for name, value in {"content-length": str(len(raw)), **found.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(raw)

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
            scheme = "https"
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def count(self, method: str, part: str) -> int:
        """How often something was asked."""
        return sum(m == method and part in path for m, path in self.asked)

    def respond(self, method: str, path: str, body: bytes) -> Answer:
        parts = [unquote(part) for part in path.strip("/").split("/") if part]
        if not parts:
            return Answer({"version": self.version, "tagline": "You Know, for Search"})
        if parts == ["_msearch"]:
            return self._msearch(body)
        if parts == ["_aliases"]:
            return self._move(json.loads(body)["actions"])
        name = self.aliases.get(parts[0], parts[0])
        operation = parts[1] if parts[1:] else ""
        if method == "GET" and not operation:
            found = {n: self._record(n) for n in self.indexes if fnmatch.fnmatchcase(n, name)}
            return Answer(found) if found or "*" in name else no_index(name)
        if method == "PUT" and not operation:
            made = json.loads(body)
            self.indexes[name] = Index(made.get("mappings", {}), made["settings"]["index"])
            return Answer({"acknowledged": True})
        if name not in self.indexes:
            return no_index(name)
        index = self.indexes[name]
        if method == "DELETE":
            del self.indexes[name]
        elif operation == "_mapping":
            index.mappings.update(json.loads(body))
        elif operation == "_settings":
            index.settings.update(json.loads(body)["index"])
        elif operation == "_refresh":
            index.seen = dict(index.docs)
        elif operation == "_forcemerge":
            index.deleted = 0
        elif operation == "_stats":
            return Answer({"_all": {"primaries": {"docs": {"deleted": index.deleted}}}})
        elif operation == "_count":
            return Answer({"count": len(index.seen), "_shards": {"total": 1, "failed": 0}})
        elif operation == "_bulk":
            return self._bulk(index, body)
        elif operation == "_search":
            return Answer(self._search(index, json.loads(body)))
        return Answer({"acknowledged": True})

    def _record(self, name: str) -> dict[str, Any]:
        index = self.indexes[name]
        return {
            "aliases": {alias: {} for alias, of in self.aliases.items() if of == name},
            "mappings": index.mappings,
            "settings": {"index": {k: str(v) for k, v in index.settings.items()}},
        }

    def _move(self, actions: list[dict[str, Any]]) -> Answer:
        for action in actions:
            if added := action.get("add"):
                self.aliases[added["alias"]] = added["index"]
            else:
                del self.indexes[action["remove_index"]["index"]]
        return Answer({"acknowledged": True})

    def _bulk(self, index: Index, body: bytes) -> Answer:
        items = []
        lines = iter(body.decode("ascii").splitlines())
        for line in lines:
            [(operation, where)] = json.loads(line).items()
            known = where["_id"] in index.docs
            index.deleted += known
            if operation == "index":
                index.docs[where["_id"]] = json.loads(next(lines))
                items.append({"index": {"_id": where["_id"], "status": 200 if known else 201}})
            else:
                index.docs.pop(where["_id"], None)
                items.append({"delete": {"_id": where["_id"], "status": 200 if known else 404}})
        return Answer({"errors": False, "items": items})

    def _search(self, index: Index, body: dict[str, Any]) -> dict[str, Any]:
        query = body.get("query", {})
        start = query.get("range", {}).get("number", {}).get("gte", 0)
        key = query.get("term", {}).get("key")
        found = [
            (doc["number"], name, doc)
            for name, doc in index.seen.items()
            if doc["number"] >= start and key in (None, doc["key"])
        ]
        found.sort(reverse=body.get("sort") == [{"number": "desc"}])
        return good(
            {
                "_id": name,
                "_source": doc,
                "fields": {"digest": [doc["digest"]]},
                "sort": [number],
            }
            if body.get("_source")
            else {"_id": name, "fields": {"digest": [doc["digest"]]}, "sort": [number]}
            for number, name, doc in found[: body["size"]]
        )

    def _msearch(self, body: bytes) -> Answer:
        lines = [json.loads(line) for line in body.splitlines()]
        answers = []
        for head, search in zip(lines[::2], lines[1::2], strict=True):
            self.searches.append((head, search))
            if head["index"] not in self.indexes:
                answers.append(
                    {**json.loads(json.dumps(no_index(head["index"]).body)), "status": 404}
                )
                continue
            wanted = set(" ".join(texts(search["query"])).lower().split())
            ranked = []
            for name, doc in self.indexes[head["index"]].seen.items():
                has = f"{doc['title']} {doc['paragraph_text']}".lower().split()
                if score := len(wanted.intersection(has)):
                    ranked.append((-score, doc["number"], name, doc))
            ranked.sort(key=lambda hit: hit[:2])
            answers.append(
                good(
                    {"_id": name, "_score": float(-score), "_source": doc}
                    for score, _, name, doc in ranked[: search["size"]]
                )
            )
        return Answer({"took": 1, "responses": answers})


def good(hits: Any) -> dict[str, Any]:
    """An answer of a search that nothing went wrong with."""
    return {
        "timed_out": False,
        "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
        "hits": {"hits": list(hits)},
        "status": 200,
    }


def no_index(name: str) -> Answer:
    error = {"type": "index_not_found_exception", "reason": f"no such index [{name}]"}
    return Answer({"error": {"root_cause": [error], **error}, "status": 404}, 404)


def texts(query: Any) -> list[str]:
    """All texts that a query matches with."""
    if isinstance(query, list):
        return [text for part in query for text in texts(part)]
    if not isinstance(query, dict):
        return []
    if "match" in query:
        [value] = query["match"].values()
        value = value["query"] if isinstance(value, dict) else value
        return [value] if isinstance(value, str) else []
    return [text for part in query.values() for text in texts(part)]
