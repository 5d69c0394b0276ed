"""Seq2seq and causal models in this process, through Hugging Face transformers.

Flan-T5 is the paper's open model. The engine generates in a thread of its own, one batch after
the other; a watcher that transformers asks after every token streams what is new and keeps each
row's stop strings and limit. Rows leave a batch when they are done or when nobody listens, and
others come in: generation is interrupted, the key-value cache is changed, and it goes on.

Not by transformers' own continuous batching: it has no models with an encoder, and on a CPU it
took more time than one prompt after the other.
"""

import asyncio
import importlib.util
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from multihop.errors import (
    BadCompletion,
    BadInput,
    ContextTooLong,
    LMRefused,
    LMUnavailable,
    MissingExtra,
)
from multihop.lms.adapters import CARD, Adapter, resolved
from multihop.lms.base import Finish, Piece, Prompt, Request, Turn
from multihop.lms.batching import Prepared
from multihop.lms.digest import folder_digests
from multihop.lms.stops import StopCutter
from multihop.lms.thinking import OPEN, ThinkingSplitter
from multihop.lms.transformers_rows import Rows
from multihop.text import Json
from multihop.trace import Tokens

_TAIL = 4
"""Tokens of the prompt that are decoded with a continuation: some tokenizers drop the blank
before the first token that they decode."""


_DECISIVE = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")
"""Files of a model's folder that decide what it writes: weights, configurations, tokenizer."""


@dataclass(frozen=True, kw_only=True)
class _Prompt(Prepared):
    """A request as the model reads it."""

    text: str
    ids: list[int]


class TransformersLM:
    """A model that transformers can load.

    The configuration and the tokenizer are read at once, the weights at the first call.

    Args:
        model: A Hugging Face repository or a local folder, as "google/flan-t5-base".
        device: "cpu", "cuda", "cuda:1", ...; None takes the first GPU, else the CPU.
        dtype: "float32", "bfloat16", "float16", or "auto": as the weights were saved.
        revision: Branch, tag or commit of the repository; None is its main branch.
        adapters: LoRA adapters in peft's form, by the name that requests use. A card in the
            folder is compared with the model.
        window: Tokens that prompt and completion may take together. None takes the positions
            that the model has; T5 has relative ones and no limit, so its window is None too.
        chat: Send `prompt.turns` through the tokenizer's chat template instead of
            `prompt.text`.

    Attributes:
        seq2seq: The model reads the prompt with an encoder and writes with a decoder.

    Raises:
        BadInput: There is no such model, or it is not one that generates text.
        MissingExtra: transformers, torch or (for adapters) peft is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str | None = None,
        dtype: str = "auto",
        revision: str | None = None,
        adapters: Mapping[str, Path | str | Adapter] | None = None,
        window: int | None = None,
        chat: bool = False,
    ) -> None:
        for package in ("transformers", "torch", *(["peft"] if adapters else [])):
            if importlib.util.find_spec(package) is None:
                raise MissingExtra(package, "transformers")
        import torch  # noqa: PLC0415
        from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415

        self.name = f"transformers:{model}" + (f"@{revision}" if revision else "")
        self.adapters: dict[str, Path] = {}
        for name, given in resolved(adapters or {}).items():
            path = given.peft_for(model, chat=chat) if isinstance(given, Adapter) else given
            self.adapters[name] = path
            if not (path / "adapter_config.json").is_file():
                raise BadInput(f"Adapter {name!r}: {path} has no adapter_config.json.")
        if dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise BadInput(f"dtype is {dtype!r}; it can be auto, float32, bfloat16, float16.")
        try:
            config = AutoConfig.from_pretrained(model, revision=revision)
            self._tokenizer: Any = AutoTokenizer.from_pretrained(model, revision=revision)
        except (OSError, ValueError) as failure:
            why = str(failure).strip().splitlines()[0]
            raise BadInput(f"{self.name} cannot be read: {why}") from failure
        self.seq2seq = bool(config.is_encoder_decoder)
        positions = getattr(config, "max_position_embeddings", None)
        self.window = window or positions or getattr(config, "n_positions", None)
        if self.seq2seq and config.model_type in ("t5", "mt5", "umt5", "longt5"):
            self.window = window  # its `n_positions` bounds training examples only
        self._model_name, self._revision = model, revision
        self._commit: str | None = getattr(config, "_commit_hash", None)
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._dtype = dtype
        self._chat = chat
        self._model: Any = None
        self._joinable: bool | None = None  # not known before the first call
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="multihop-transformers")

    @property
    def identity(self) -> Mapping[str, Json]:
        """Weights, tokenizer and adapters by content or commit, and what computes with them."""
        folder = Path(self._model_name)
        return {
            "model": {**folder_digests(folder, _DECISIVE)} if folder.is_dir() else self._commit,
            "revision": self._revision,
            "dtype": self._dtype,
            "device": self._device.partition(":")[0],
            "chat": self._chat,
            "adapters": {
                name: _without_card(folder_digests(path, _DECISIVE))
                for name, path in self.adapters.items()
            },
            "versions": {name: version(name) for name in ("transformers", "torch")},
        }

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Generate token by token; samples side by side in one batch.

        Greedy samples are one, given `n` times. Log-probabilities are the model's own, before
        temperature and top_p, and include the end mark's.

        Raises:
            LMRefused: The adapter is not loaded, or the prompt is empty.
            ContextTooLong: Prompt and `max_tokens` exceed the window.
            LMUnavailable: The device has no memory left for the call.
            BadCompletion: The model's scores are not numbers.
        """
        prompt = await self.prepare(request)
        alone = self.stream_batch([prompt], lambda _: True, None)
        async with aclosing(alone) as pieces:
            async for _, piece in pieces:
                yield piece

    async def prepare(self, request: Request) -> _Prompt:
        """Encode and check one request; see `BatchingLM`.

        Greedy requests share batches, and samples of equal temperature and top_p; seeded ones
        go alone, because what is drawn for one row depends on the others.

        Raises:
            LMRefused: The adapter is not loaded, or the prompt is empty.
            ContextTooLong: Prompt and `max_tokens` exceed the window.
        """
        if request.adapter is not None and request.adapter not in self.adapters:
            known = ", ".join(self.adapters) or "none"
            raise LMRefused(f"{self.name} has no adapter {request.adapter!r}. Loaded: {known}.")
        text = self._templated(request.prompt) if self._chat else request.prompt.text
        ids: list[int] = self._tokenizer(text, add_special_tokens=not self._chat)["input_ids"]
        if not text or not ids:
            raise LMRefused(f"{self.name}: the prompt is empty.")
        needed = len(ids) + request.max_tokens
        if self.window is not None and needed > self.window:
            raise ContextTooLong(
                f"{self.name}: the prompt's {len(ids)} tokens and {request.max_tokens} to "
                f"generate make {needed}; the window is {self.window}.",
                needed,
                self.window,
            )
        sampled = request.temperature > 0
        return _Prompt(
            request=request,
            kind=(
                request.adapter,
                (request.temperature, request.top_p) if sampled else None,
                object() if sampled and request.seed is not None else None,
            ),
            tokens=len(ids),
            rows=request.n if sampled else 1,
            text=text,
            ids=ids,
        )

    async def stream_batch(
        self,
        batch: Sequence[_Prompt],
        listening: Callable[[int], bool],
        join: Callable[[int, int], Sequence[_Prompt]] | None,
    ) -> AsyncGenerator[tuple[int, Piece], None]:
        """Generate for several requests of one kind; see `BatchingLM`.

        Models with an encoder, and those whose cache does not keep every column (a sliding
        window, recurrent states), take no more requests once a batch has begun.

        Prompts are padded to the longest. That and the other rows change the order in which
        numbers are added, so a near tie between two tokens can fall otherwise than alone; in
        float32 it was seen in no text, in bfloat16 it happens.

        Raises:
            LMUnavailable: The device has no memory left for the batch.
            BadCompletion: The model's scores are not numbers.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[list[tuple[int, Piece]] | None] = asyncio.Queue()
        closed = threading.Event()

        def give(pieces: list[tuple[int, Piece]] | None) -> None:
            if not closed.is_set():
                loop.call_soon_threadsafe(queue.put_nowait, pieces)

        def heard(place: int) -> bool:
            return not closed.is_set() and listening(place)

        def work() -> None:
            try:
                if any(heard(place) for place in range(len(batch))):
                    self._generate(batch, give, heard, join)
            finally:
                give(None)

        future = loop.run_in_executor(self._thread, work)
        try:
            while (pieces := await queue.get()) is not None:
                for place, piece in pieces:
                    yield place, piece
            await future
        finally:
            closed.set()
            await asyncio.wait([future])

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count with the model's own tokenizer."""
        if not texts:
            return []
        encoded = self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return [len(ids) for ids in encoded]

    async def aclose(self) -> None:
        """Free the weights. A later call loads them again."""

        def drop() -> None:
            self._model = None

        await asyncio.get_running_loop().run_in_executor(self._thread, drop)

    # --- In the engine's thread -------------------------------------------------------------

    def _loaded(self) -> Any:
        if self._model is None:
            import transformers  # noqa: PLC0415

            kind = "AutoModelForSeq2SeqLM" if self.seq2seq else "AutoModelForCausalLM"
            try:
                model = getattr(transformers, kind).from_pretrained(
                    self._model_name, revision=self._revision, dtype=self._dtype
                )
                if self.adapters:
                    model = self._adapted(model)
            except (OSError, ValueError) as failure:
                why = str(failure).strip().splitlines()[0]
                raise BadInput(f"{self.name} cannot be loaded: {why}") from failure
            self._model = model.to(self._device).eval()
        return self._model

    def _adapted(self, model: Any) -> Any:
        import peft  # noqa: PLC0415

        first, *others = self.adapters
        model = peft.PeftModel.from_pretrained(model, str(self.adapters[first]), first)
        for name in others:
            model.load_adapter(str(self.adapters[name]), name)
        return model

    def _generate(
        self,
        batch: Sequence[_Prompt],
        give: Callable[[list[tuple[int, Piece]]], None],
        heard: Callable[[int], bool],
        join: Callable[[int, int], Sequence[_Prompt]] | None,
    ) -> None:
        import torch  # noqa: PLC0415

        model = self._loaded()
        own = model.generation_config
        ends = own.eos_token_id if own.eos_token_id is not None else self._tokenizer.eos_token_id
        ends = [ends] if isinstance(ends, int) else list(ends or ())
        padding = _first(self._tokenizer.pad_token_id, own.pad_token_id, *ends, 0)
        request = batch[0].request  # what decides how tokens are chosen is equal in all
        config = self._config(request, ends, padding)
        watcher = _Watcher(self.name, self._tokenizer, frozenset(ends), give, heard, join)
        try:
            with self._as_asked(model, request), torch.inference_mode():
                self._write(model, watcher, batch, config)
        except torch.cuda.OutOfMemoryError as failure:
            longest = max((row.call.prompt for row in watcher.live), default=0)
            raise LMUnavailable(
                f"{self.name}: {self._device} has no memory left for {len(watcher.live)} "
                f"prompts of up to {longest} tokens. Shorten the prompts, make smaller batches, "
                "or load the model with dtype=bfloat16."
            ) from failure

    @contextmanager
    def _as_asked(self, model: Any, request: Request) -> Iterator[None]:
        """With the request's adapter and seed; the world's random state stays as it was."""
        import torch  # noqa: PLC0415

        plain = bool(self.adapters) and request.adapter is None
        seeded = request.temperature > 0 and request.seed is not None
        gpus = [self._device] if self._device.startswith("cuda") else []
        if request.adapter is not None:
            model.set_adapter(request.adapter)
        with (
            model.disable_adapter() if plain else nullcontext(),
            torch.random.fork_rng(gpus) if seeded else nullcontext(),
        ):
            if seeded:
                torch.manual_seed(request.seed)
            yield

    def _config(self, request: Request, ends: list[int], padding: int) -> Any:
        from transformers import GenerationConfig  # noqa: PLC0415

        sampled = request.temperature > 0
        return GenerationConfig(
            do_sample=sampled,
            eos_token_id=ends or None,
            pad_token_id=padding,
            return_dict_in_generate=True,  # with the cache
            # Whatever a model's own configuration says, only what was asked is done.
            num_beams=1,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            **({"temperature": request.temperature, "top_p": request.top_p} if sampled else {}),
            top_k=0 if sampled else 50,
        )

    def _write(
        self, model: Any, watcher: "_Watcher", batch: Sequence[_Prompt], config: Any
    ) -> None:
        """Generate until every row is done or unheard."""
        rows = self._begin(model, watcher, batch, config)
        while watcher.live or watcher.newcomers:
            if came := watcher.take_newcomers():
                before, watcher.live = watcher.live, []
                others = self._begin(model, watcher, came, config)
                if not before:
                    rows = others
                elif watcher.live:
                    rows.join(others)
                watcher.live = before + watcher.live
            else:
                self._advance(model, watcher, rows, config)

    def _begin(
        self, model: Any, watcher: "_Watcher", batch: Sequence[_Prompt], config: Any
    ) -> Rows:
        """Evaluate prompts and write the first token of each row, or more if none can join."""
        watcher.live = [
            row
            for place, prompt in enumerate(batch, start=watcher.places)
            for row in self._rows_of(place, prompt)
        ]
        places = [row.call.place - watcher.places for row in watcher.live]
        watcher.places += len(batch)
        rows = Rows.of([p.ids for p in batch], places, config.pad_token_id, model)
        # After a token the cache tells whether it is of a kind that others can join.
        alone = watcher.join is None or self.seq2seq or self._joinable is False
        self._advance(model, watcher, rows, config, most=None if alone else 1)
        return rows

    def _advance(
        self,
        model: Any,
        watcher: "_Watcher",
        rows: Rows,
        config: Any,
        most: int | None = None,
    ) -> None:
        """Write `most` tokens, or until a row is done or others want to come in."""
        left = max(row.room - len(row.ids) for row in watcher.live)
        config.max_new_tokens = most or left
        watcher.joinable = rows.joinable and most is None
        out = model.generate(
            **rows.inputs(),
            generation_config=config,
            logits_processor=[watcher.see],
            stopping_criteria=[watcher.step],
        )
        rows.take(out)
        watcher.whole, self._joinable = not rows.cache, rows.joinable
        rows.keep(watcher.shrink())

    def _rows_of(self, place: int, prompt: _Prompt) -> "list[_Row]":
        request = prompt.request
        copies = request.n if request.temperature == 0 else 1
        call = _Call(
            place=place,
            prompt=prompt.tokens,
            copies=copies,
            sent=prompt.text if prompt.text != request.prompt.text else "",
        )
        return [
            _Row(
                call,
                number,
                request.max_tokens,
                StopCutter(request.stop),
                self._splitter(prompt),
                request.logprobs,
                [] if self.seq2seq else prompt.ids[-_TAIL:],
            )
            for number in range(prompt.rows)
        ]

    def _splitter(self, prompt: _Prompt) -> ThinkingSplitter | None:
        if not self._chat:
            return None
        # A template may have opened the thinking already.
        end = self._tokenizer.decode(prompt.ids[-20:]).rstrip()
        return ThinkingSplitter(opened=end.endswith(OPEN))

    def _templated(self, prompt: Prompt) -> str:
        turns = prompt.turns or (Turn("user", prompt.text),)
        continued = turns[-1].speaker == "assistant"
        if not self._tokenizer.chat_template:
            raise LMRefused(f"{self.name} has no chat template. Open it without chat.")
        return str(
            self._tokenizer.apply_chat_template(
                [{"role": turn.speaker, "content": turn.text} for turn in turns],
                tokenize=False,
                continue_final_message=continued,
                add_generation_prompt=not continued,
            )
        )


@dataclass
class _Call:
    """What the rows of one request share.

    Attributes:
        place: The request's in the batch.
        prompt: Tokens of its prompt.
        copies: How many samples a row is.
        sent: What to tell with the first piece.
        written: Tokens of all its rows.
    """

    place: int
    prompt: int
    copies: int
    sent: str
    written: int = 0


@dataclass
class _Row:
    """One sample while it is written.

    Attributes:
        number: Its own among the request's samples.
        room: Most tokens.
        tail: The prompt's last tokens; see `_TAIL`.
    """

    call: _Call
    number: int
    room: int
    cutter: StopCutter
    splitter: ThinkingSplitter | None
    logprobs: bool
    tail: list[int]
    base: int | None = None
    ids: list[int] = field(default_factory=list)
    seen: str = ""
    finish: Finish | None = None


@dataclass
class _Watcher:
    """Asked after every token; gives what is new and says which rows are done.

    Attributes:
        live: The rows that the engine has in hand, in its order.
        places: Requests taken so far.
        whole: Rows cannot leave one by one, so the engine goes on until all are done.
        joinable: Other requests may come in.
    """

    name: str
    tokenizer: Any
    ends: frozenset[int]
    give: Callable[[list[tuple[int, Piece]]], None]
    heard: Callable[[int], bool]
    join: Callable[[int, int], Sequence[_Prompt]] | None
    live: list[_Row] = field(default_factory=list)
    places: int = 0
    whole: bool = False
    joinable: bool = False
    newcomers: Sequence[_Prompt] = ()
    logits: Any = None

    def see(self, _ids: Any, logits: Any) -> Any:
        """Keep the logits that the next token is chosen by, before temperature and top_p."""
        if logits.isnan().any():
            raise BadCompletion(
                f"{self.name}: the model's scores are not numbers. "
                "Load it with dtype=float32 or bfloat16."
            )
        if any(row.logprobs for row in self.live):
            self.logits = logits
        return logits

    def step(self, ids: Any, _scores: Any, **_: Any) -> Any:
        """Take the newest token of every row."""
        import torch  # noqa: PLC0415

        newest = ids[:, -1]
        values = [0.0] * len(self.live)
        if self.logits is not None:
            told = torch.log_softmax(self.logits.float(), dim=-1)
            values, self.logits = told.gather(1, newest[:, None])[:, 0].tolist(), None
        pieces: list[tuple[int, Piece]] = []
        for row, token, value in zip(self.live, newest.tolist(), values, strict=True):
            if row.finish is None:
                pieces += self._take(row, token, (value,) if row.logprobs else ())
        self.give(pieces)
        done = [self._is_done(row) for row in self.live]
        if self.join and self.joinable and not all(done) and not self.newcomers:
            self.newcomers = self.join(done.count(False), ids.shape[1])
        if self.newcomers or (any(done) and not self.whole):
            done = [True] * len(done)  # an interruption, for some to leave and others to come
        return torch.tensor(done, device=ids.device)

    def take_newcomers(self) -> Sequence[_Prompt]:
        """Who has come since."""
        came, self.newcomers = self.newcomers, ()
        return came

    def shrink(self) -> list[int]:
        """Drop the rows that are done; the numbers of those that stay."""
        stay = [number for number, row in enumerate(self.live) if not self._is_done(row)]
        self.live = [self.live[number] for number in stay]
        return stay

    def _is_done(self, row: _Row) -> bool:
        return row.finish is not None or not self.heard(row.call.place)

    def _take(
        self, row: _Row, token: int, logprobs: tuple[float, ...]
    ) -> Iterator[tuple[int, Piece]]:
        row.ids.append(token)
        call = row.call
        call.written += 1
        if token in self.ends:
            row.finish = "stop"
        elif len(row.ids) == row.room:
            row.finish = "length"
        text, thinking = self._new(row), ""
        if row.splitter:
            text, thinking = row.splitter.feed(text)
            if row.finish:
                rest = row.splitter.finish()
                text, thinking = text + rest[0], thinking + rest[1]
        text = row.cutter.feed(text)
        if row.cutter.hit:
            row.finish = "stop"
        elif row.finish:
            text += row.cutter.finish()
        counts = Tokens(call.prompt, 0, call.written)
        for copy in range(call.copies):
            number, sent, call.sent = row.number + copy, call.sent, ""
            piece = Piece(text, number, row.finish, logprobs, counts, thinking, sent)
            yield call.place, piece

    def _new(self, row: _Row) -> str:
        """The text that the newest token added."""
        if row.base is None:
            row.base = len(self._decode(row.tail))
        text = self._decode(row.tail + row.ids)[row.base :]
        if text.endswith("\ufffd"):  # bytes of a character that is not complete
            text = text.rstrip("\ufffd") if row.finish else row.seen
        new, row.seen = text[len(row.seen) :], text
        return new

    def _decode(self, ids: list[int]) -> str:
        return str(
            self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )


def _without_card(digests: Mapping[str, str]) -> dict[str, Json]:
    """What an adapter writes is not decided by what is told of it."""
    return {name: digest for name, digest in digests.items() if name != CARD}


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
