"""Seq2seq and causal models in this process, through Hugging Face transformers.

Flan-T5 is the paper's open model. The engine generates in a thread of its own, one call after
the other; a watcher that transformers asks after every token streams what is new, keeps the
stop strings, and ends generation when nobody listens any more.
"""

import asyncio
import importlib.util
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from multihop.errors import BadInput, ContextTooLong, LMRefused, LMUnavailable, MissingExtra
from multihop.lms.base import Finish, Piece, Prompt, Request, Turn
from multihop.lms.stops import StopCutter
from multihop.lms.thinking import OPEN, ThinkingSplitter
from multihop.trace import Tokens

_TAIL = 4
"""Tokens of the prompt that are decoded with a continuation: some tokenizers drop the blank
before the first token that they decode."""


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
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._dtype = dtype
        self._chat = chat
        self._model: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="multihop-transformers")

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Generate token by token; samples side by side in one batch.

        Greedy samples are one, given `n` times. Log-probabilities are the model's own, before
        temperature and top_p, and include the end mark's.

        Raises:
            LMRefused: The adapter is not loaded, or the prompt is empty.
            ContextTooLong: Prompt and `max_tokens` exceed the window.
            LMUnavailable: The device has no memory left for the call.
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
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Piece | None] = asyncio.Queue()
        closed = threading.Event()

        def give(piece: Piece | None) -> None:
            if not closed.is_set():
                loop.call_soon_threadsafe(queue.put_nowait, piece)

        def work() -> None:
            try:
                if not closed.is_set():
                    self._generate(request, ids, give, closed)
            finally:
                give(None)

        sent = text if text != request.prompt.text else ""
        future = loop.run_in_executor(self._thread, work)
        copies = request.n if request.temperature == 0 else 1
        try:
            while (piece := await queue.get()) is not None:
                for copy in range(copies):
                    yield replace(piece, index=piece.index + copy, sent=sent)
                    sent = ""
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
        request: Request,
        ids: list[int],
        give: Callable[[Piece], None],
        closed: threading.Event,
    ) -> None:
        import torch  # noqa: PLC0415
        from transformers import GenerationConfig  # noqa: PLC0415

        model = self._loaded()
        if request.adapter is not None:
            model.set_adapter(request.adapter)
        plain = self.adapters and request.adapter is None
        own = model.generation_config
        ends = own.eos_token_id if own.eos_token_id is not None else self._tokenizer.eos_token_id
        ends = [ends] if isinstance(ends, int) else list(ends or ())
        sampled = request.temperature > 0
        config = GenerationConfig(
            max_new_tokens=request.max_tokens,
            do_sample=sampled,
            num_return_sequences=request.n if sampled else 1,
            eos_token_id=ends or None,
            pad_token_id=_first(self._tokenizer.pad_token_id, own.pad_token_id, *ends, 0),
            # Whatever a model's own configuration says, only what was asked is done.
            num_beams=1,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            **({"temperature": request.temperature, "top_p": request.top_p} if sampled else {}),
            top_k=0 if sampled else 50,
        )
        # A template may have opened the thinking already.
        opened = self._chat and self._tokenizer.decode(ids[-20:]).rstrip().endswith(OPEN)
        splitters = [
            ThinkingSplitter(opened=opened) if self._chat else None for _ in range(request.n)
        ]
        watcher = _Watcher(
            tokenizer=self._tokenizer,
            rows=[
                _Row(number, StopCutter(request.stop), splitters[number])
                for number in range(config.num_return_sequences)
            ],
            tail=[] if self.seq2seq else ids[-_TAIL:],
            ends=frozenset(ends),
            prompt=len(ids),
            logprobs=request.logprobs,
            give=give,
            closed=closed,
        )
        prompt = torch.tensor([ids], device=self._device)
        gpus = [prompt.device] if prompt.device.type == "cuda" else []
        seeded = sampled and request.seed is not None
        try:
            with (
                # The seed is this call's own; the world's random state stays as it was.
                torch.random.fork_rng(gpus) if seeded else nullcontext(),
                model.disable_adapter() if plain else nullcontext(),
                torch.inference_mode(),
            ):
                if seeded:
                    torch.manual_seed(request.seed)
                model.generate(
                    input_ids=prompt,
                    attention_mask=torch.ones_like(prompt),
                    generation_config=config,
                    logits_processor=[watcher.see],
                    stopping_criteria=[watcher.step],
                )
        except torch.cuda.OutOfMemoryError as failure:
            raise LMUnavailable(
                f"{self.name}: {self._device} has no memory left for a prompt of {len(ids)} "
                "tokens. Shorten the prompt, or load the model with dtype=bfloat16."
            ) from failure
        watcher.finish()

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
    """One sample while it is written."""

    number: int
    cutter: StopCutter
    splitter: ThinkingSplitter | None
    ids: list[int] = field(default_factory=list)
    seen: str = ""
    finish: Finish | None = None


@dataclass
class _Watcher:
    """Asked after every token; gives what is new and says which samples are done."""

    tokenizer: Any
    rows: list[_Row]
    tail: list[int]
    ends: frozenset[int]
    prompt: int
    logprobs: bool
    give: Callable[[Piece], None]
    closed: threading.Event
    logits: Any = None
    base: str = ""

    def __post_init__(self) -> None:
        self.base = self._decode(self.tail)

    def see(self, _ids: Any, logits: Any) -> Any:
        """Keep the logits that the next token is chosen by, before temperature and top_p."""
        if self.logprobs:
            self.logits = logits
        return logits

    def step(self, ids: Any, _scores: Any, **_: Any) -> Any:
        """Take the newest token of every sample."""
        import torch  # noqa: PLC0415

        newest = ids[:, -1]
        values = [0.0] * len(self.rows)
        if self.logprobs:
            told = torch.log_softmax(self.logits.float(), dim=-1)
            values = told.gather(1, newest[:, None])[:, 0].tolist()
        for row, token, value in zip(self.rows, newest.tolist(), values, strict=True):
            if row.finish is None:
                self._take(row, token, (value,) if self.logprobs else ())
        stopped = self.closed.is_set()
        return torch.tensor(
            [stopped or row.finish is not None for row in self.rows], device=ids.device
        )

    def finish(self) -> None:
        """End the samples that ran into the limit."""
        for row in self.rows:
            if row.finish is None:
                row.finish = "length"
                self._give(row, self._new(row, last=True), ())

    def _take(self, row: _Row, token: int, logprobs: tuple[float, ...]) -> None:
        row.ids.append(token)
        if token in self.ends:
            row.finish = "stop"
        self._give(row, self._new(row, last=row.finish is not None), logprobs)

    def _give(self, row: _Row, text: str, logprobs: tuple[float, ...]) -> None:
        thinking = ""
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
        counts = Tokens(self.prompt, 0, sum(len(r.ids) for r in self.rows))
        self.give(Piece(text, row.number, row.finish, logprobs, counts, thinking))

    def _new(self, row: _Row, *, last: bool) -> str:
        """The text that the newest token added."""
        text = self._decode(self.tail + row.ids)[len(self.base) :]
        if text.endswith("\ufffd"):  # bytes of a character that is not complete
            text = text.rstrip("\ufffd") if last else row.seen
        new, row.seen = text[len(row.seen) :], text
        return new

    def _decode(self, ids: list[int]) -> str:
        return str(
            self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
