"""GGUF models inside this process, through xllamacpp (llama.cpp).

The engine opens a port on the loopback interface, guarded by a random key, and is spoken to
over HTTP: only there can a stream be ended early, a slot be chosen and token ids be sent.

Measured traps of the engine that this file works around:

* A slot keeps the keys and values of the last prompt it saw, and slots share nothing, so the
  slot is chosen here: the one that holds most of the new prompt, at least loss to other roles.
* A LoRA id that is not loaded is ignored without a word, and a request that names none gets
  those that were loaded, so names are checked here and every adapter's scale is sent.
* A stream that ends while the engine waits whether a stop string will be completed loses the
  text held back, so it is recovered from the token ids.
* Sampling defaults (top_k 40, min_p 0.05) are not what was asked for, so all are set.
* The same tokens evaluated in another batch give slightly other numbers, and near ties flip.
  Small batches (`BATCH`) make that rare and cost no speed on a CPU.
"""

import asyncio
import importlib.util
import json
import logging
import os
import secrets
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from multihop.errors import (
    BadCompletion,
    BadInput,
    ContextTooLong,
    LMError,
    LMRefused,
    LMUnavailable,
    MissingExtra,
)
from multihop.lms.adapters import Adapter, resolved
from multihop.lms.base import Finish, Piece, Prompt, Request, Turn
from multihop.lms.digest import file_digest
from multihop.lms.gguf import DEFAULT, find_model, trained_window
from multihop.lms.kept import KeptPrefixes
from multihop.lms.repacked import FORMAT, fast_weights
from multihop.lms.thinking import OPEN, ThinkingSplitter
from multihop.text import Json
from multihop.trace import Tokens

BATCH = 64
"""Tokens of a prompt evaluated at a time. With the engine's default of 512 a prompt asked again
from a warm cache was answered otherwise in 2 of 10 cases, with 64 in none."""

KEPT_FROM = 64
"""Fewest tokens of a shared beginning that are worth a file: fewer are evaluated in a second."""

REMEMBERED = 16
"""Prompts whose token ids are remembered."""

log = logging.getLogger(__name__)

_FINISHES: Mapping[str, Finish] = {
    "eos": "stop",
    "word": "stop",
    "none": "stop",
    "limit": "length",
}


@dataclass
class _Slot:
    """One place in the engine that evaluates prompts and keeps the last one's keys and values."""

    number: int
    users: int = 0
    held: Sequence[int] = ()
    role: tuple[str, str | None] | None = None
    adapter: tuple[str | None, ...] = ()  # the last one used, once there was one
    ready: int = 0  # tokens of the prompt at work that were evaluated before
    last_used: int = 0

    def worth(self, ids: Sequence[int], role: tuple[str, str | None]) -> int:
        """Tokens saved by this slot, less those that another role will have to pay again."""
        if self.role is None:
            return 0
        shared = _common_prefix(ids, self.held) if self.role[1] == role[1] else 0
        return shared if self.role == role else 2 * shared - len(self.held)


@dataclass
class _Door:
    """What belongs to one event loop: its client, and its queue for the slots."""

    client: httpx.AsyncClient
    places: asyncio.Semaphore


@dataclass
class _Engine:
    """The running server; dropping the last reference to it stops it."""

    server: Any = None
    url: str = ""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def stop(self) -> None:
        self.server = None


class LocalLM:
    """A GGUF model that runs in this process.

    The engine starts at the first call and stops at `aclose`, when the object is dropped, or
    when Python exits. One object may serve several event loops, one after the other.

    Args:
        model: `SmolLM2-135M-Instruct`, the path of a .gguf file, or a Hugging Face repository
            as `org/repo` or `org/repo:file.gguf` (see `find_model`).
        threads: Cores that compute. None takes MULTIHOP_THREADS, else as many as are idle
            now, at least 1. More threads than idle cores write slower than one, because they
            wait for each other at every layer.
        slots: Prompts evaluated at a time, each with a key-value cache of `window` tokens.
            Two keep the reasoner's and the reader's demonstrations evaluated.
        window: Tokens that a prompt and its completion may take together. None takes what
            the model was trained on, at most 8192.
        adapters: LoRA adapters by the name that requests use: folders with a card, which is
            compared with the model, or bare files in GGUF form.
        chat: Send `prompt.turns` through the model's own chat template. By default
            `prompt.text` is sent even to chat models: small ones keep to a few-shot format
            better when they continue plain text.
        keep: Keep what evaluating a prompt's shared beginning (its demonstrations) gave, in
            the cache folder, and give it to every slot and every later process that needs it:
            some 23 kB a token for the default model, at most 1 GiB in all.
        repack: Load a copy of the weights as Q8_0 where the file's type (Q4_1, Q5_1) has no
            fast kernels, and all computing is done by the CPU. It is written to the cache
            folder once (4 s and 145 MB for the default model, at most 2 GiB in all). Numbers
            differ slightly from the file's own; see docs/lms.md.
        reproducible: Evaluate every prompt afresh, one at a time. A warm key-value cache or a
            shared batch can flip near ties between tokens; this is the only setting whose
            answers were bit-equal from run to run.

    Attributes:
        path: The model file.
        threads: Cores that compute.
        slots: Prompts evaluated at a time.

    Raises:
        BadInput: The model file, an adapter or a number is not usable.
        MissingExtra: xllamacpp is not installed.
    """

    def __init__(
        self,
        model: str = DEFAULT,
        *,
        threads: int | None = None,
        slots: int = 2,
        window: int | None = None,
        adapters: Mapping[str, Path | str | Adapter] | None = None,
        chat: bool = False,
        keep: bool = True,
        repack: bool = True,
        reproducible: bool = False,
    ) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtra("xllamacpp", "local")
        if slots < 1:
            raise BadInput(f"slots is {slots}; a local model needs at least 1.")
        self.name = f"local:{model}"
        self.path = find_model(model)
        self.threads = _threads() if threads is None else threads
        if self.threads < 1:
            raise BadInput(f"threads is {self.threads}; a local model needs at least 1.")
        trained = trained_window(self.path)
        self.window = min(trained, 8192) if window is None else window
        if not 1 <= self.window <= trained:
            raise BadInput(f"window is {window}; {self.path.name} takes 1 to {trained} tokens.")
        self.adapters: dict[str, Path] = {}
        for name, given in resolved(adapters or {}).items():
            path = given.gguf_for(self.path, chat=chat) if isinstance(given, Adapter) else given
            if not path.is_file():
                raise BadInput(f"Adapter {name!r}: {path} is not a file.")
            self.adapters[name] = path
        self.chat = chat
        self.repack = repack
        self._loaded = self.path
        self.reproducible = reproducible
        self._kept = KeptPrefixes() if keep and not reproducible else None
        self.slots = 1 if reproducible else slots
        self._slots = [_Slot(number) for number in range(self.slots)]
        self._clock = 0
        self._engine = _Engine()
        self._starting = threading.Lock()
        self._doors: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Door] = (
            weakref.WeakKeyDictionary()
        )
        self._counts: dict[str, int] = {}
        self._encoded: dict[str, Sequence[int]] = {}
        weakref.finalize(self, self._engine.stop)

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Generate, token by token; samples one after the other in the same slot.

        Each of `n` samples is a call of its own: `tokens` adds up all their prompts, of which
        all but the first are cached. Sample i is seeded with `seed + i`. Log-probabilities
        are the model's own, before temperature and top_p; the engine reports none for a token
        that ends within a character.

        Raises:
            LMRefused: The adapter is not loaded, the prompt is empty, or the engine objects.
            ContextTooLong: Prompt and `max_tokens` exceed the window.
            BadCompletion: The stream broke off.
            LMUnavailable: The engine does not answer.
        """
        lora = self._lora(request.adapter)
        door = await self._door()
        text = await self._templated(door, request.prompt) if self.chat else request.prompt.text
        ids = await self._encode(door, text)
        self._check(request, ids)
        body: dict[str, object] = {
            "prompt": ids,
            "n_predict": request.max_tokens,
            "stop": list(request.stop),
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": 0,
            "min_p": 0.0,
            "samplers": ["temperature", "top_p"],
            "n_probs": int(request.logprobs),
            "cache_prompt": not self.reproducible,
            "return_tokens": True,
            "timings_per_token": True,  # so that a stream closed early has counts too
            "stream": True,
            "lora": lora,
        }
        sent = text if text != request.prompt.text else ""
        async with self._slot(door, ids, (request.role, request.adapter)) as slot:
            body["id_slot"] = slot.number
            total, fresh = Tokens(), 0
            if self._kept and not sent:
                fresh = await self._share(door, slot, request, ids, lora)
            for index in range(request.n):
                if request.seed is not None:
                    body["seed"] = request.seed + index
                slot.adapter = ()  # until the engine has begun with it
                async with aclosing(self._generate(door, body, self._splitter(text))) as pieces:
                    counts = Tokens()
                    async for piece in pieces:
                        slot.adapter = (request.adapter,)
                        counts = _not_cached(piece.tokens, fresh) or counts
                        yield replace(piece, index=index, sent=sent, tokens=total + counts)
                        sent = ""
                    total, fresh = total + counts, 0

    @property
    def identity(self) -> Mapping[str, Json]:
        """Weights, adapters and the settings that change numbers."""
        return {
            "weights": file_digest(self.path)
            + (f" as q8_0-{FORMAT}" if self._weights() != self.path else ""),
            "adapters": {name: file_digest(path) for name, path in self.adapters.items()},
            "engine": version("xllamacpp"),
            "batch": BATCH,
            "window": self.window,  # some models place tokens otherwise in a long one
            "chat": self.chat,
            "reproducible": self.reproducible,
        }

    async def token_ids(self, text: str) -> list[int]:
        """The ids that a prompt of this text is evaluated as."""
        return list(await self._encode(await self._door(), text))

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count with the model's own tokenizer."""
        counts = {text: self._counts[text] for text in texts if text in self._counts}
        new = [text for text in dict.fromkeys(texts) if text not in counts]
        if new:
            door = await self._door()
            for text in new:
                counts[text] = len(await self._encode(door, text, bare=True))
            if len(self._counts) > 20_000:  # a run sees the same passages over and over
                self._counts.clear()
            self._counts.update(counts)
        return [counts[text] for text in texts]

    async def aclose(self) -> None:
        """Stop the engine and free the model. A later call starts it again."""
        door = self._doors.pop(asyncio.get_running_loop(), None)
        if door:
            await door.client.aclose()
        await asyncio.to_thread(self._engine.stop)

    # --- The engine ---------------------------------------------------------------------

    def _weights(self) -> Path:
        """The file to load."""
        return fast_weights(self.path) if self.repack and _only_cpu() else self.path

    async def _door(self) -> _Door:
        if self._engine.server is None:
            await asyncio.to_thread(self._start)
        loop = asyncio.get_running_loop()
        door = self._doors.get(loop)
        if door is None or str(door.client.base_url).rstrip("/") != self._engine.url:
            client = httpx.AsyncClient(
                base_url=self._engine.url,
                headers={"Authorization": f"Bearer {self._engine.key}"},
                # Evaluating a long prompt takes minutes and sends nothing meanwhile.
                timeout=httpx.Timeout(None, connect=10),
                # No connection outlives its call, so none outlives its event loop.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                trust_env=False,  # no proxy stands before the loopback interface
            )
            door = self._doors[loop] = _Door(client, asyncio.Semaphore(len(self._slots)))
        return door

    def _start(self) -> None:
        with self._starting:
            if self._engine.server is not None:
                return
            import xllamacpp  # noqa: PLC0415

            self._loaded = self._weights()
            params = xllamacpp.CommonParams()
            params.model.path = str(self._loaded)
            params.n_ctx = self.window * len(self._slots)  # the engine divides it by slots
            params.n_parallel = len(self._slots)
            params.n_ubatch = BATCH
            params.kv_unified = False
            params.cpuparams.n_threads = self.threads
            params.cpuparams_batch.n_threads = self.threads
            # An answering thread is held by each stream, also by one closed while its prompt
            # is still being evaluated.
            params.n_threads_http = len(self._slots) + 8
            params.port = 0  # any free one
            params.api_keys = [self._engine.key]
            params.ui = False
            params.verbosity = -1  # it would write some 70 lines to stderr
            params.warmup = False
            params.fit_params = False  # it would shrink the window to the memory it finds
            params.cache_ram_mib = 0  # open upstream reports of wrong restores; slots do it
            if self._kept:
                try:
                    self._kept.make()
                    params.slot_save_path = f"{self._kept.folder}/"
                except OSError as failure:
                    log.warning("%s: keeps no evaluated prefixes: %s", self.name, failure)
                    self._kept = None
            params.lora_adapters = [
                xllamacpp.CommonAdapterLoraInfo(str(path), 0.0) for path in self.adapters.values()
            ]
            try:
                server = xllamacpp.Server(params)
            except RuntimeError as failure:
                raise BadInput(
                    f"{self._loaded}: the engine cannot load this model"
                    + (f" with the adapters {', '.join(self.adapters)}" if self.adapters else "")
                    + f" ({failure})"
                ) from failure
            for slot in self._slots:
                slot.held, slot.role, slot.adapter, slot.ready = (), None, (), 0
            self._engine.url = server.listening_address
            self._engine.server = server

    @asynccontextmanager
    async def _slot(
        self, door: _Door, ids: Sequence[int], role: tuple[str, str | None]
    ) -> AsyncIterator[_Slot]:
        """Wait for a free slot and take the one that saves most."""
        async with door.places:
            # All are busy only when another event loop uses them: the engine queues then.
            free = [slot for slot in self._slots if not slot.users] or self._slots
            slot = max(free, key=lambda slot: (slot.worth(ids, role), -slot.last_used))
            self._clock += 1
            slot.users, slot.last_used = slot.users + 1, self._clock
            same = slot.role is not None and slot.role[1] == role[1]
            slot.ready = _common_prefix(ids, slot.held) if same else 0
            slot.held, slot.role = ids, role
            try:
                yield slot
            finally:
                slot.users -= 1

    async def _share(
        self,
        door: _Door,
        slot: _Slot,
        request: Request,
        ids: Sequence[int],
        lora: list[dict[str, object]],
    ) -> int:
        """See that the slot holds the prompt's shared beginning; how many tokens that cost."""
        assert self._kept
        text = request.prompt.text[: request.prompt.shared]
        size = _common_prefix(await self._encode(door, text), ids) if text else 0
        if size < KEPT_FROM or slot.ready >= size or size == len(ids):
            return 0
        block = list(ids[:size])
        adapter = self.adapters.get(request.adapter) if request.adapter else None
        name = self._kept.name(self._loaded, adapter, BATCH, self.window, block)
        address = f"/slots/{slot.number}"
        # A slot drops what it holds when its adapter changes, restored or not.
        settled = not self.adapters or slot.adapter == (request.adapter,)
        if settled and self._kept.touch(name):
            try:
                await self._post(door, f"{address}?action=restore", {"filename": name})
            except LMError as damaged:
                log.warning("%s: %s cannot be read and is made anew: %s", self.name, name, damaged)
                self._kept.remove(name)
            else:
                return 0
        slot.adapter = ()
        reply = await self._post(
            door,
            "/completion",
            {
                "prompt": block,
                "n_predict": 0,
                "id_slot": slot.number,
                "cache_prompt": True,
                "lora": lora,
            },
        )
        slot.adapter = (request.adapter,)
        draft = f"{name}.{secrets.token_hex(8)}"
        try:
            saved = await self._post(door, f"{address}?action=save", {"filename": draft})
            await asyncio.to_thread(self._kept.put, draft, name, saved["n_written"])
        except (LMError, OSError) as failure:  # the slot holds it all the same
            log.warning("%s: an evaluated prefix could not be kept: %s", self.name, failure)
        return int(reply["timings"]["prompt_n"])

    async def _post(self, door: _Door, path: str, body: dict[str, object]) -> dict[str, Any]:
        try:
            response = await door.client.post(path, json=body)
        except httpx.TransportError as failure:
            raise self._gone(failure) from failure
        if response.is_error:
            raise self._refusal(response.status_code, response.content)
        reply: dict[str, Any] = response.json()
        return reply

    async def _encode(self, door: _Door, text: str, *, bare: bool = False) -> Sequence[int]:
        """Token ids; with the model's special tokens around them unless `bare`.

        Text that looks like a special token stays text, unless a chat template wrote it. The
        newest prompts are remembered: their shared beginning comes with every call, and whether
        an open stream can go on is asked of the same texts as the next call.
        """
        if not bare and text in self._encoded:
            return self._encoded[text]
        reply = await self._post(
            door,
            "/tokenize",
            {"content": text, "add_special": not bare, "parse_special": self.chat and not bare},
        )
        ids: list[int] = reply["tokens"]
        if not bare:
            if len(self._encoded) >= REMEMBERED:
                del self._encoded[next(iter(self._encoded))]
            self._encoded[text] = ids
        return ids

    async def _templated(self, door: _Door, prompt: Prompt) -> str:
        turns = prompt.turns or (Turn("user", prompt.text),)
        messages = [{"role": turn.speaker, "content": turn.text} for turn in turns]
        reply = await self._post(door, "/apply-template", {"messages": messages})
        return str(reply["prompt"])

    def _splitter(self, text: str) -> ThinkingSplitter | None:
        # A template may have opened the thinking already.
        return ThinkingSplitter(opened=text.rstrip().endswith(OPEN)) if self.chat else None

    async def _generate(
        self, door: _Door, body: dict[str, object], splitter: ThinkingSplitter | None
    ) -> AsyncGenerator[Piece, None]:
        held: list[int] = []  # ids whose text the engine has not sent yet
        async with aclosing(self._events(door, body)) as events:
            async for reply in events:
                text, finish = str(reply["content"]), None
                held = held + reply["tokens"]
                ids, held = (tuple(held), []) if text else ((), held)
                if reply["stop"]:
                    kind = reply["stop_type"]
                    finish = _FINISHES[kind]
                    if kind == "eos":
                        held = held[:-1]  # the end mark itself
                    if held and kind != "word":
                        text, ids = text + await self._decode(door, held), (*ids, *held)
                thinking = ""
                if splitter:
                    text, thinking = splitter.feed(text)
                    if finish:
                        rest = splitter.finish()
                        text, thinking = text + rest[0], thinking + rest[1]
                logprobs = tuple(p["logprob"] for p in reply.get("completion_probabilities", ()))
                yield Piece(text, 0, finish, logprobs, _tokens(reply), thinking, ids=ids)
                if finish:
                    return
        raise BadCompletion(f"{self.name}: the engine's stream broke off before its last piece.")

    async def _decode(self, door: _Door, ids: list[int]) -> str:
        reply = await self._post(door, "/detokenize", {"tokens": ids})
        # Bytes of a character that was never completed.
        return str(reply["content"]).rstrip("\ufffd")

    async def _events(
        self, door: _Door, body: dict[str, object]
    ) -> AsyncGenerator[dict[str, Any], None]:
        try:
            async with door.client.stream("POST", "/completion", json=body) as response:
                if response.is_error:
                    raise self._refusal(response.status_code, await response.aread())
                # Not aiter_lines: it also breaks lines at U+2028 and its like inside of JSON.
                rest = b""
                async for data in response.aiter_bytes():
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        kind, _, value = line.partition(b": ")
                        if kind == b"error":
                            raise self._refusal(500, value)
                        if kind == b"data":
                            event = json.loads(value)
                            if "error" in event:
                                raise self._refusal(event["error"].get("code", 500), value)
                            yield event
        except httpx.TransportError as failure:
            raise self._gone(failure) from failure

    # --- Refusals -----------------------------------------------------------------------

    def _lora(self, adapter: str | None) -> list[dict[str, object]]:
        if adapter is not None and adapter not in self.adapters:
            known = ", ".join(self.adapters) or "none"
            raise LMRefused(f"{self.name} has no adapter {adapter!r}. Loaded: {known}.")
        return [
            {"id": number, "scale": float(name == adapter)}
            for number, name in enumerate(self.adapters)
        ]

    def _check(self, request: Request, ids: Sequence[int]) -> None:
        if not ids:
            raise LMRefused(f"{self.name}: the prompt is empty.")
        needed = len(ids) + request.max_tokens
        if needed > self.window:
            raise ContextTooLong(
                f"{self.name}: the prompt's {len(ids)} tokens and {request.max_tokens} to "
                f"generate make {needed}; the window is {self.window}. "
                "Shorten the prompt, or open the model with a larger window.",
                needed,
                self.window,
            )

    def _refusal(self, code: int, body: bytes) -> LMRefused | LMUnavailable | ContextTooLong:
        try:
            error = json.loads(body)
            error = error.get("error", error)
        except (ValueError, AttributeError):
            error = {"message": body.decode(errors="replace")[:200]}
        if error.get("type") == "exceed_context_size_error":
            return ContextTooLong(
                f"{self.name}: {error['message']}", error["n_prompt_tokens"], error["n_ctx"]
            )
        kind = LMRefused if code < 500 else LMUnavailable
        return kind(f"{self.name}: the engine answers {code}: {error.get('message')}")

    def _gone(self, failure: httpx.TransportError) -> LMUnavailable:
        return LMUnavailable(
            f"{self.name}: the engine does not answer at {self._engine.url} "
            f"({type(failure).__name__}). It may have run out of memory; try a smaller window."
        )


def _tokens(reply: dict[str, Any]) -> Tokens | None:
    timings = reply.get("timings")
    return timings and Tokens(
        prompt=timings["cache_n"] + timings["prompt_n"],
        cached=timings["cache_n"],
        generated=timings["predicted_n"],
    )


def _not_cached(tokens: Tokens | None, fresh: int) -> Tokens | None:
    """Counts of a call that found `fresh` tokens evaluated just before, for itself."""
    if tokens is None or tokens.cached is None:
        return tokens
    return replace(tokens, cached=max(0, tokens.cached - fresh))


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    for number, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return number
    return min(len(a), len(b))


def _only_cpu() -> bool:
    """Whether the engine has no device but the processor."""
    import xllamacpp  # noqa: PLC0415

    cpu = xllamacpp.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU
    return all(device["type"] == cpu for device in xllamacpp.get_device_info())


def _threads() -> int:
    asked = os.environ.get("MULTIHOP_THREADS", "")
    if asked:
        if not asked.isdecimal() or int(asked) < 1:
            raise BadInput(f"MULTIHOP_THREADS is {asked!r}; give a number of cores, at least 1.")
        return int(asked)
    minute, _, _, running, _ = Path("/proc/loadavg").read_text().split()
    # The average lags behind and the moment is noisy: others are busy when both say so.
    others = min(round(float(minute)), int(running.split("/")[0]) - 1)
    return max(1, len(os.sched_getaffinity(0)) - others)
