"""Seq2seq and causal models in this process, through Hugging Face transformers.

Flan-T5 is the paper's open model. The engine generates in a thread of its own, one batch after
the other; a watcher that transformers asks after every token streams what is new and keeps each
row's stop strings and limit. A row that is done, or that nobody listens to, leaves: generation
is interrupted, the row is taken out of the key-value cache, and the others go on.

Not by transformers' own continuous batching: it has no models with an encoder, one set of
weights for all requests (adapters are switched per call here), and on a CPU it was slower than
one prompt after the other (figures in docs/performance.md).
"""

import asyncio
import importlib.util
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
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
from multihop.lms.base import Finish, Piece, Prompt, Request, Turn
from multihop.lms.batching import Prepared
from multihop.lms.digest import folder_digests
from multihop.lms.stops import StopCutter
from multihop.lms.thinking import OPEN, ThinkingSplitter
from multihop.text import Json
from multihop.trace import Tokens

_TAIL = 4
"""Tokens of the prompt that are decoded with a continuation: some tokenizers drop the blank
before the first token that they decode."""


_DECISIVE = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")
"""Files of a model's folder that decide what it writes: weights, configurations, tokenizer."""

_SELECTABLE = ("DynamicLayer", "DynamicSlidingWindowLayer")
"""Layers of a key-value cache whose rows can be chosen. Others (recurrent states, fixed sizes)
cannot, or not all of their parts: rows that go on are then evaluated afresh."""


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
        adapters: LoRA adapters in peft's form, by the name that requests use.
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
        adapters: Mapping[str, Path] | None = None,
        window: int | None = None,
        chat: bool = False,
    ) -> None:
        for package in ("transformers", "torch", *(["peft"] if adapters else [])):
            if importlib.util.find_spec(package) is None:
                raise MissingExtra(package, "transformers")
        import torch  # noqa: PLC0415
        from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415

        self.name = f"transformers:{model}" + (f"@{revision}" if revision else "")
        self.adapters = dict(adapters or {})
        for name, path in self.adapters.items():
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
                name: {**folder_digests(path, _DECISIVE)} for name, path in self.adapters.items()
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
        async with aclosing(self.stream_batch([prompt], lambda _: True)) as pieces:
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
        self, batch: Sequence[_Prompt], listening: Callable[[int], bool]
    ) -> AsyncGenerator[tuple[int, Piece], None]:
        """Generate for several requests of one kind; see `BatchingLM`.

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
                    self._generate(batch, give, heard)
            finally:
                give(None)

        unsent = [p.text if p.text != p.request.prompt.text else "" for p in batch]
        copies = [p.request.n if p.request.temperature == 0 else 1 for p in batch]
        future = loop.run_in_executor(self._thread, work)
        try:
            while (pieces := await queue.get()) is not None:
                for place, piece in pieces:
                    for copy in range(copies[place]):
                        sent, unsent[place] = unsent[place], ""
                        yield place, replace(piece, index=piece.index + copy, sent=sent)
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
    ) -> None:
        import torch  # noqa: PLC0415

        model = self._loaded()
        own = model.generation_config
        ends = own.eos_token_id if own.eos_token_id is not None else self._tokenizer.eos_token_id
        ends = [ends] if isinstance(ends, int) else list(ends or ())
        watcher = _Watcher(
            name=self.name,
            tokenizer=self._tokenizer,
            rows=[
                _Row(
                    place,
                    number,
                    prompt.request.max_tokens,
                    StopCutter(prompt.request.stop),
                    self._splitter(prompt),
                    prompt.request.logprobs,
                    [] if self.seq2seq else prompt.ids[-_TAIL:],
                )
                for place, prompt in enumerate(batch)
                for number in range(prompt.rows)
            ],
            ends=frozenset(ends),
            prompts=[prompt.tokens for prompt in batch],
            give=give,
            heard=heard,
        )
        padding = _first(self._tokenizer.pad_token_id, own.pad_token_id, *ends, 0)
        request = batch[0].request  # what decides how tokens are chosen is equal in all
        try:
            with self._as_asked(model, request), torch.inference_mode():
                self._write(model, watcher, batch, self._config(request, ends, padding))
        except torch.cuda.OutOfMemoryError as failure:
            longest = max(prompt.tokens for prompt in batch)
            raise LMUnavailable(
                f"{self.name}: {self._device} has no memory left for {len(watcher.rows)} "
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
        import torch  # noqa: PLC0415

        longest = max(prompt.tokens for prompt in batch)
        ids = torch.full((len(batch), longest), config.pad_token_id)
        mask = torch.zeros((len(batch), longest), dtype=torch.long)
        for place, prompt in enumerate(batch):
            # Encoders count positions from the left; continuations begin at the right.
            part = slice(prompt.tokens) if self.seq2seq else slice(longest - prompt.tokens, None)
            ids[place, part] = torch.tensor(prompt.ids)
            mask[place, part] = 1
        ids, mask = ids.to(self._device), mask.to(self._device)
        places = torch.tensor([row.place for row in watcher.rows], device=self._device)
        encoded, written = None, ids[places]  # (rows, tokens)
        if self.seq2seq:
            encoded = model.get_encoder()(input_ids=ids, attention_mask=mask)[0][places]
            written = None
        cache: dict[str, Any] = {}
        mask = mask[places]
        while watcher.live:
            config.max_new_tokens = max(row.room - len(row.ids) for row in watcher.live)
            out = model.generate(
                **self._inputs(encoded, written, mask),
                **cache,
                generation_config=config,
                logits_processor=[watcher.see],
                stopping_criteria=[watcher.step],
            )
            stay = torch.tensor(watcher.shrink(), dtype=torch.long, device=self._device)
            if not len(stay):
                return
            name = "cache" if "cache" in out else "past_key_values"  # until transformers 5.23
            kept = out.get(name)
            kept = getattr(kept, "self_attention_cache", kept)
            layers = getattr(kept, "layers", None)
            watcher.whole = not layers or any(type(x).__name__ not in _SELECTABLE for x in layers)
            cache = {} if watcher.whole else {name: out[name]}
            for held in cache.values():
                held.batch_select_indices(stay)
            fresh = out.sequences.shape[1] - (0 if written is None else written.shape[1])
            written, mask = out.sequences[stay], mask[stay]
            if encoded is None:
                mask = torch.cat([mask, mask.new_ones((len(stay), fresh))], dim=1)
            else:
                encoded = encoded[stay]

    def _inputs(self, encoded: Any, written: Any, mask: Any) -> dict[str, Any]:
        if encoded is None:
            return {"input_ids": written, "attention_mask": mask}
        import torch  # noqa: PLC0415
        from transformers.modeling_outputs import BaseModelOutput  # noqa: PLC0415

        inputs = {
            "encoder_outputs": BaseModelOutput(last_hidden_state=encoded),
            "attention_mask": mask,
        }
        if written is not None:
            # By the mask's length generate sees that the cache holds all but the last token.
            begun = torch.ones_like(written)
            inputs |= {"decoder_input_ids": written, "decoder_attention_mask": begun}
        return inputs

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
class _Row:
    """One sample while it is written.

    Attributes:
        place: Its request's in the batch.
        number: Its own among that request's samples.
        room: Most tokens.
        tail: The prompt's last tokens; see `_TAIL`.
    """

    place: int
    number: int
    room: int
    cutter: StopCutter
    splitter: ThinkingSplitter | None
    logprobs: bool
    tail: list[int]
    base: int = 0
    ids: list[int] = field(default_factory=list)
    seen: str = ""
    finish: Finish | None = None


@dataclass
class _Watcher:
    """Asked after every token; gives what is new and says which rows are done.

    Attributes:
        prompts: Tokens of each request's prompt.
        live: The rows that the engine has in hand, in its order.
        whole: Rows cannot leave one by one, so the engine goes on until all are done.
    """

    name: str
    tokenizer: Any
    rows: list[_Row]
    ends: frozenset[int]
    prompts: list[int]
    give: Callable[[list[tuple[int, Piece]]], None]
    heard: Callable[[int], bool]
    live: list[_Row] = field(default_factory=list)
    whole: bool = False
    logits: Any = None

    def __post_init__(self) -> None:
        self.live = list(self.rows)
        for row in self.rows:
            row.base = len(self._decode(row.tail))

    def see(self, _ids: Any, logits: Any) -> Any:
        """Keep the logits that the next token is chosen by, before temperature and top_p."""
        if logits.isnan().any():
            raise BadCompletion(
                f"{self.name}: the model's scores are not numbers. Load it with dtype=float32 "
                "or bfloat16; if it then still happens to batches only, it cannot be padded."
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
        self.give(
            [
                (row.place, self._take(row, token, (value,) if row.logprobs else ()))
                for row, token, value in zip(self.live, newest.tolist(), values, strict=True)
                if row.finish is None
            ]
        )
        done = [self._is_done(row) for row in self.live]
        if any(done) and not self.whole:
            done = [True] * len(done)  # an interruption, for those that are done to leave
        return torch.tensor(done, device=ids.device)

    def shrink(self) -> list[int]:
        """Drop the rows that are done; the numbers of those that stay."""
        stay = [number for number, row in enumerate(self.live) if not self._is_done(row)]
        self.live = [self.live[number] for number in stay]
        return stay

    def _is_done(self, row: _Row) -> bool:
        return row.finish is not None or not self.heard(row.place)

    def _take(self, row: _Row, token: int, logprobs: tuple[float, ...]) -> Piece:
        row.ids.append(token)
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
        written = sum(len(one.ids) for one in self.rows if one.place == row.place)
        counts = Tokens(self.prompts[row.place], 0, written)
        return Piece(text, row.number, row.finish, logprobs, counts, thinking)

    def _new(self, row: _Row) -> str:
        """The text that the newest token added."""
        text = self._decode(row.tail + row.ids)[row.base :]
        if text.endswith("\ufffd"):  # bytes of a character that is not complete
            text = text.rstrip("\ufffd") if row.finish else row.seen
        new, row.seen = text[len(row.seen) :], text
        return new

    def _decode(self, ids: list[int]) -> str:
        return str(
            self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
