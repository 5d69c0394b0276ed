"""Decoder-only models in this process through torch, many requests at a time.

Every pass of the model takes the next token of each sequence that is being written and a piece
of the prompts that wait, so requests come and go without waiting for each other. A sequence's
keys and values stay in its slot: the next prompt that begins alike goes on from there, as
IRCoT's prompts do. On a CPU this is the fastest way to run a small model over many questions;
see `docs/lms.md` for figures.
"""

import asyncio
import importlib.util
import threading
import warnings
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from multihop.errors import BadInput, ContextTooLong, LMRefused, LMUnavailable, MissingExtra
from multihop.lms.adapters import Adapter, resolved
from multihop.lms.base import Finish, Piece, Prompt, Request
from multihop.lms.digest import file_digest, folder_digests
from multihop.lms.gguf import DEFAULT, find_model
from multihop.lms.stops import StopCutter
from multihop.text import Json
from multihop.trace import Tokens

CHUNK = 256
"""Tokens of prompts evaluated in one pass, beside those being written: few enough that nobody
who writes waits long, enough that the products are large."""

_ALIKE = 16
"""Slots are alike that share up to so many tokens less, or a tenth less, of a prompt."""

_TAIL = 4
"""Tokens of the prompt that are decoded with a continuation: some tokenizers drop the blank
before the first token that they decode."""


@dataclass(eq=False)
class _Sequence:
    """One sample on its way.

    Attributes:
        ids: Prompt, and what was written after it.
        prompt: How many of them are the prompt's.
        number: Of the sample among its request's.
        told: Where pieces go; None is the end.
        slot: Its place; None while it waits.
        done: Tokens evaluated.
        cached: Those that were there before it came.
        open: Somebody listens.
    """

    request: Request
    ids: list[int]
    prompt: int
    number: int
    loop: asyncio.AbstractEventLoop
    told: "asyncio.Queue[Piece | BaseException]"
    cutter: StopCutter
    slot: int | None = None
    done: int = 0
    cached: int = 0
    seen: str = ""
    base: int | None = None
    open: bool = True
    draws: Any = None

    def tell(self, what: "Piece | BaseException") -> None:
        """Give a piece, or a failure, to who listens."""
        if self.open and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.told.put_nowait, what)


@dataclass
class _Slot:
    """What a place holds."""

    held: list[int] = field(default_factory=list)
    adapter: str | None = None
    user: _Sequence | None = None
    last_used: int = 0


class SlottedLM:
    """A decoder-only model, evaluated for many requests at a time.

    The weights are loaded at the first call.

    Args:
        model: `SmolLM2-135M-Instruct` (the embedded model's weights, read from its GGUF file), a
            .gguf file, a folder in Hugging Face form, or a repository.
        slots: Sequences at a time; each keeps the keys and values of its last prompt.
        window: Tokens that prompt and completion may take together. None takes what the model was
            trained on, at most 4096.
        threads: Cores that compute; None is torch's choice.
        device: "cpu", "cuda", ...; None takes the first GPU, else the CPU.
        dtype: "float32", "bfloat16" or "float16"; None is float32 on a CPU, else bfloat16.
        adapters: LoRA adapters in peft's form, by the name that requests use.

    Raises:
        BadInput: There is no such model or adapter, or a number is out of range.
        MissingExtra: transformers, torch or (for adapters) peft is not installed.
    """

    def __init__(
        self,
        model: str = DEFAULT,
        *,
        slots: int = 16,
        window: int | None = None,
        threads: int | None = None,
        device: str | None = None,
        dtype: str | None = None,
        adapters: Mapping[str, Path | str | Adapter] | None = None,
    ) -> None:
        for package in ("transformers", "torch", *(["peft"] if adapters else [])):
            if importlib.util.find_spec(package) is None:
                raise MissingExtra(package, "transformers")
        for option, value in (("slots", slots), ("threads", threads), ("window", window)):
            if value is not None and value < 1:
                raise BadInput(f"{option} is {value}; it must be at least 1.")
        if dtype not in (None, "float64", "float32", "bfloat16", "float16"):
            raise BadInput(f"dtype is {dtype!r}; it can be float64, float32, bfloat16, float16.")
        self.name = f"slotted:{model}"
        self.slots = slots
        self._model_name = model
        self._gguf = find_model(model) if model == DEFAULT or model.endswith(".gguf") else None
        self._device, self._dtype, self._threads = device, dtype, threads
        self.adapters: dict[str, Path] = {}
        for name, given in resolved(adapters or {}).items():
            path = given.peft_for(str(self._gguf or model)) if isinstance(given, Adapter) else given
            if not (path / "adapter_config.json").is_file():
                raise BadInput(f"Adapter {name!r}: {path} has no adapter_config.json.")
            self.adapters[name] = path
        self._tokenizer, longest = self._read()
        self.window = window or min(longest, 4096)
        self._line: list[_Sequence] = []
        self._places = [_Slot() for _ in range(slots)]
        self._given: Any = None
        self._inside: frozenset[str] = frozenset()
        self._model: Any = None
        self._evaluator: Any = None
        self._switched: str | None = ""  # to no adapter yet, nor to the model alone
        self._merged = self._mixed = False
        self._lock = threading.Lock()
        self._running = False
        self._clock = 0

    @classmethod
    def over(
        cls,
        model: Any,
        folder: str,
        *,
        slots: int = 16,
        window: int | None = None,
        adapters: Sequence[str] = (),
    ) -> "SlottedLM":
        """A model that is in memory already, and whose weights may change between calls.

        Args:
            model: Of transformers, loaded with the attention `ragged.NAME`.
            folder: Where its tokenizer is read, named as for the class.
            slots: Sequences at a time.
            window: As for the class.
            adapters: Names that requests may use; the weights are taken to hold them.
        """
        found = cls(folder, slots=slots, window=window)
        found._given = model
        found._inside = frozenset(adapters)
        return found

    async def forget(self) -> None:
        """Drop all keys and values: the weights have changed."""
        await self.aclose()

    @property
    def identity(self) -> Mapping[str, Json]:
        """Weights, adapters and what computes with them."""
        folder = Path(self._model_name)
        weights: Json = self._model_name
        if self._gguf:
            weights = file_digest(self._gguf)
        elif folder.is_dir():
            weights = {**folder_digests(folder, (".safetensors", ".bin", ".json"))}
        return {
            "weights": weights,
            "adapters": {
                name: {**folder_digests(path, (".safetensors", "adapter_config.json"))}
                for name, path in self.adapters.items()
            },
            "dtype": self._dtype,
            "device": self._device,
            "versions": {name: version(name) for name in ("transformers", "torch")},
        }

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Generate token by token; samples side by side.

        Sample i of a seeded request is drawn with `seed + i`. Log-probabilities are the model's
        own, before temperature and top_p.

        Raises:
            LMRefused: The adapter is not loaded, or the prompt is empty.
            ContextTooLong: Prompt and `max_tokens` exceed the window.
            LMUnavailable: The device has no memory left.
        """
        if request.adapter is not None and request.adapter not in {*self.adapters, *self._inside}:
            known = ", ".join((*self.adapters, *self._inside)) or "none"
            raise LMRefused(f"{self.name} has no adapter {request.adapter!r}. Loaded: {known}.")
        ids = self._encoded(request.prompt)
        if not ids:
            raise LMRefused(f"{self.name}: the prompt is empty.")
        needed = len(ids) + request.max_tokens
        if needed > self.window:
            raise ContextTooLong(
                f"{self.name}: the prompt's {len(ids)} tokens and {request.max_tokens} to "
                f"generate make {needed}; the window is {self.window}.",
                needed,
                self.window,
            )
        loop = asyncio.get_running_loop()
        told: asyncio.Queue[Piece | BaseException] = asyncio.Queue()
        samples = [
            _Sequence(request, list(ids), len(ids), n, loop, told, StopCutter(request.stop))
            for n in range(request.n)
        ]
        unfinished, counts = len(samples), [Tokens()] * len(samples)
        self._enter(samples)
        try:
            while unfinished:
                piece = await told.get()
                if isinstance(piece, BaseException):
                    raise piece
                counts[piece.index] = piece.tokens or counts[piece.index]
                unfinished -= piece.finish is not None
                yield replace(piece, tokens=sum(counts, Tokens()))
        finally:
            for sample in samples:
                sample.open = False

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count with the model's own tokenizer."""
        if not texts:
            return []
        encoded = self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return [len(ids) for ids in encoded]

    def _encoded(self, prompt: Prompt) -> list[int]:
        """The prompt's token ids; those that it brings are taken as they are."""
        if not prompt.ids:
            whole: list[int] = self._tokenizer(prompt.text)["input_ids"]
            return whole
        rest = prompt.text[prompt.covered :]
        more = self._tokenizer(rest, add_special_tokens=False)["input_ids"] if rest else []
        return [*prompt.ids, *more]

    def text_of(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """The text that token ids add after others."""
        tail = list(before[-_TAIL:])
        return self._decode(tail + list(ids))[len(self._decode(tail)) :]

    async def token_ids(self, text: str) -> list[int]:
        """The ids that a prompt of this text is evaluated as."""
        ids: list[int] = self._tokenizer(text)["input_ids"]
        return ids

    async def aclose(self) -> None:
        """Free the weights. A later call loads them again."""
        while self._running:
            with self._lock:
                for sequence in self._line:
                    sequence.open = False
            await asyncio.sleep(0.01)
        self._model = self._evaluator = None
        self._places = [_Slot() for _ in range(self.slots)]

    # --- Asked from any thread ----------------------------------------------------------------

    def _read(self) -> tuple[Any, int]:
        from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415

        where = str(self._gguf.parent) if self._gguf else self._model_name
        extra = {"gguf_file": self._gguf.name} if self._gguf else {}
        try:
            config = AutoConfig.from_pretrained(where, **extra)
            tokenizer = AutoTokenizer.from_pretrained(where, **extra)
        except (OSError, ValueError) as failure:
            why = str(failure).strip().splitlines()[0]
            raise BadInput(f"{self.name} cannot be read: {why}") from failure
        if config.is_encoder_decoder:
            raise BadInput(f"{self.name} has an encoder. Open it as transformers:MODEL.")
        return tokenizer, int(getattr(config, "max_position_embeddings", 2048))

    def _enter(self, samples: Sequence[_Sequence]) -> None:
        with self._lock:
            self._line += samples
            if not self._running:
                self._running = True
                threading.Thread(target=self._work, name="multihop-slotted", daemon=True).start()

    # --- In the engine's thread ---------------------------------------------------------------

    def _work(self) -> None:
        """Pass after pass until nobody waits."""
        try:
            self._load()
            while True:
                with self._lock:
                    self._line = [s for s in self._line if self._stays(s)]
                    if not self._line:
                        self._running = False
                        return
                    waiting = list(self._line)
                self._pass(waiting)
        except BaseException as failure:
            with self._lock:
                told, self._line, self._running = self._line, [], False
                self._places = [_Slot() for _ in range(self.slots)]
            wrapped = self._as_ours(failure)
            for sequence in told:
                sequence.tell(wrapped)
            if wrapped is failure and not isinstance(failure, Exception):
                raise

    def _as_ours(self, failure: BaseException) -> BaseException:
        if type(failure).__name__ in ("OutOfMemoryError", "MemoryError"):
            return LMUnavailable(
                f"{self.name}: no memory left for {self.slots} sequences. Use fewer slots."
            )
        return failure

    def _stays(self, sequence: _Sequence) -> bool:
        """Whether it is still wanted; else its slot is free, with all that was evaluated."""
        if sequence.open:
            return True
        if sequence.slot is not None:
            place = self._places[sequence.slot]
            place.user, place.held = None, sequence.ids[: sequence.done]
        return False

    def _load(self) -> None:
        if self._model is not None:
            return
        import torch  # noqa: PLC0415

        from multihop.lms import ragged  # noqa: PLC0415 - imports torch
        from multihop.lms.weights import load_causal  # noqa: PLC0415 - imports transformers

        device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = getattr(torch, self._dtype or ("float32" if device == "cpu" else "bfloat16"))
        if self._threads:
            torch.set_num_threads(self._threads)
        if self._given is not None:
            self._model = self._given.eval()
            self._switched, self._merged, self._mixed = "", False, False
            self._evaluator = ragged.Slots(self._model, self.slots, self.window)
            return
        model, _ = load_causal(self._model_name, dtype, ragged.NAME)
        if self.adapters:
            model = self._adapted(model)
        self._model = model.to(device).eval()
        self._switched, self._merged, self._mixed = "", False, False
        self._evaluator = ragged.Slots(self._model, self.slots, self.window)

    def _adapted(self, model: Any) -> Any:
        import peft  # noqa: PLC0415

        first, *others = self.adapters
        with warnings.catch_warnings():  # peft asks transformers for an old name
            warnings.simplefilter("ignore", FutureWarning)
            model = peft.PeftModel.from_pretrained(model, str(self.adapters[first]), first)
            for name in others:
                model.load_adapter(str(self.adapters[name]), name)
        return model

    def _pass(self, waiting: Sequence[_Sequence]) -> None:
        """One evaluation for all that share the adapter of the oldest."""
        from multihop.lms.ragged import Segment  # noqa: PLC0415 - imports torch

        adapter = waiting[0].request.adapter
        alike = [s for s in waiting if s.request.adapter == adapter]
        for sequence in alike:
            if sequence.slot is None:
                self._seat(sequence)
        seated = [s for s in alike if s.slot is not None]
        room = CHUNK
        taken: list[tuple[_Sequence, int]] = []
        for sequence in sorted(seated, key=lambda s: len(s.ids) - s.done):
            left = len(sequence.ids) - sequence.done
            number = left if left == 1 else min(left, room)
            room -= number if left > 1 else 0
            if number:
                taken.append((sequence, number))
        segments = [
            Segment(s.slot, s.done, s.ids[s.done : s.done + number])  # type: ignore[arg-type]
            for s, number in taken
        ]
        self._switch(adapter)
        logits = self._evaluator.evaluate(segments)
        self._clock += 1
        rows = []
        for row, (sequence, number) in enumerate(taken):
            sequence.done += number
            self._places[sequence.slot].last_used = self._clock  # type: ignore[index]
            if sequence.done == len(sequence.ids):
                rows.append((row, sequence))
        self._write(logits, rows)

    def _seat(self, sequence: _Sequence) -> None:
        """Give it a free slot: of those that hold most of its prompt that used longest ago.

        What differs by a few tokens is alike: every prompt begins with some of the same words,
        and whoever takes a slot for them throws away what its last user comes back for.
        """
        free = [n for n, place in enumerate(self._places) if place.user is None]
        if not free:
            return
        adapter = sequence.request.adapter

        def shared(number: int) -> int:
            place = self._places[number]
            # The last token is evaluated in any case: its logits are wanted.
            limit = min(len(place.held), len(sequence.ids) - 1)
            if place.adapter != adapter:
                return 0
            return next((n for n in range(limit) if place.held[n] != sequence.ids[n]), limit)

        found = {n: shared(n) for n in free}
        most = max(found.values())
        alike = [n for n in free if found[n] >= most - max(_ALIKE, most // 10)]
        best = min(alike, key=lambda n: self._places[n].last_used)
        sequence.slot, sequence.done, sequence.cached = best, found[best], found[best]
        place = self._places[best]
        place.user, place.adapter, place.held = sequence, adapter, []

    def _switch(self, adapter: str | None) -> None:
        """Let the model answer with an adapter, or alone.

        An only adapter is added into the weights as long as nothing else is asked for: its own
        small products would take a third of the time. To be taken out once changes the weights
        by their rounding; to go in and out would let that grow, so it is not added again.
        """
        if not self.adapters or adapter == self._switched:
            return
        if self._merged:
            self._model.unmerge_adapter()
            self._merged, self._mixed = False, True
        if adapter is None:
            self._model.disable_adapter_layers()
            self._mixed = True
        else:
            self._model.enable_adapter_layers()
            self._model.set_adapter(adapter)
            if len(self.adapters) == 1 and not self._mixed:
                self._model.merge_adapter()
                self._merged = True
        self._switched = adapter

    def _write(self, logits: Any, rows: Sequence[tuple[int, _Sequence]]) -> None:
        """Choose the next token of each sequence whose tokens are all evaluated."""
        if not rows:
            return
        import torch  # noqa: PLC0415

        chosen = logits[[row for row, _ in rows]]
        if chosen.isnan().any():
            raise LMUnavailable(f"{self.name}: the model's scores are not numbers.")
        best = chosen.argmax(-1).tolist()
        for number, (_, sequence) in enumerate(rows):
            token = best[number]
            if sequence.request.temperature > 0:
                token = self._draw(sequence, chosen[number])
            told: tuple[float, ...] = ()
            if sequence.request.logprobs:
                told = (float(torch.log_softmax(chosen[number], -1)[token]),)
            self._take(sequence, token, told)

    def _draw(self, sequence: _Sequence, logits: Any) -> int:
        import torch  # noqa: PLC0415

        if sequence.draws is None:
            sequence.draws = torch.Generator()
            seed = sequence.request.seed
            if seed is None:
                sequence.draws.seed()
            else:
                sequence.draws.manual_seed(seed + sequence.number)
        chances = torch.softmax(logits.cpu() / sequence.request.temperature, -1)
        if sequence.request.top_p < 1:
            ordered, places = chances.sort(descending=True)
            # The first token that reaches the sum is still in.
            ordered[ordered.cumsum(-1) - ordered >= sequence.request.top_p] = 0
            chances = torch.zeros_like(chances).scatter_(0, places, ordered)
        return int(torch.multinomial(chances, 1, generator=sequence.draws))

    def _take(self, sequence: _Sequence, token: int, logprobs: tuple[float, ...]) -> None:
        sequence.ids.append(token)
        written = len(sequence.ids) - sequence.prompt
        finish: Finish | None = None
        if token in self._ends():
            finish = "stop"
        elif written == sequence.request.max_tokens:
            finish = "length"
        text = sequence.cutter.feed(self._new(sequence, last=finish is not None))
        if sequence.cutter.hit:
            finish = "stop"
        elif finish:
            text += sequence.cutter.finish()
        counts = Tokens(sequence.prompt, sequence.cached, written)
        first = tuple(sequence.ids[: sequence.prompt]) if written == 1 else ()
        piece = Piece(
            text, sequence.number, finish, logprobs, counts, ids=(token,), prompt_ids=first
        )
        sequence.tell(piece)
        if finish:
            sequence.open = False

    def _ends(self) -> frozenset[int]:
        own = self._model.generation_config.eos_token_id
        ends = own if own is not None else self._tokenizer.eos_token_id
        return frozenset([ends] if isinstance(ends, int) else ends or ())

    def _new(self, sequence: _Sequence, *, last: bool) -> str:
        """The text that the newest token added."""
        tail = sequence.ids[max(0, sequence.prompt - _TAIL) : sequence.prompt]
        if sequence.base is None:
            sequence.base = len(self._decode(tail))
        text = self._decode(tail + sequence.ids[sequence.prompt :])[sequence.base :]
        if text.endswith("\ufffd"):  # bytes of a character that is not complete
            text = text.rstrip("\ufffd") if last else sequence.seen
        new, sequence.seen = text[len(sequence.seen) :], text
        return new

    def _decode(self, ids: list[int]) -> str:
        return str(
            self._tokenizer.decode(
                ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )
