"""What the strategies ask of an LM: the next sentence, an answer, titles of pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from multihop.errors import ContextTooLong
from multihop.lms.base import LanguageModel, Prompt, Reply, Request, Turn, chat_text, complete
from multihop.prompts import answers, layout
from multihop.prompts.demonstrations import CountTokens, Demonstration, drop_to_fit
from multihop.prompts.fit import ALONE, fit
from multihop.prompts.sentences import enough, first_sentence, whole_words
from multihop.prompts.window import shrink_max_tokens
from multihop.strategies.collect import Collected
from multihop.strategies.rules import Eviction, Preset, Reader
from multihop.text import Json, Passage, Question
from multihop.trace import Answer, LMCall, StopReason, Thought

FORCED_TOKENS = 48
"""Most tokens of an answer that we asked for with the words "So the answer is:"."""

SPARE_TOKENS = 64
"""Kept free beside prompt and completion: special tokens, and an answer asked for after it."""


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """The few-shot examples of each kind of call.

    Attributes:
        cot: With passages, ending in a chain.
        direct: With passages, ending in the bare answer.
        cot_alone, direct_alone: The same without passages, for NoR.
        titles: For IIRC's title generation.
    """

    cot: tuple[Demonstration, ...] = ()
    direct: tuple[Demonstration, ...] = ()
    cot_alone: tuple[Demonstration, ...] = ()
    direct_alone: tuple[Demonstration, ...] = ()
    titles: tuple[Demonstration, ...] = ()

    @classmethod
    def from_cot(
        cls, cot: Sequence[Demonstration], titles: Sequence[Demonstration] = ()
    ) -> "Demonstrations":
        """All kinds out of one file: chains cut to their answers, passages left out."""
        direct = tuple(_bare_answer(d) for d in cot)
        return cls(
            cot=tuple(cot),
            direct=direct,
            cot_alone=tuple(_without_passages(d) for d in cot),
            direct_alone=tuple(_without_passages(d) for d in direct),
            titles=tuple(titles),
        )

    def digest(self) -> str:
        """A hash of every byte, so that an edited prompt is another run."""
        kinds = (self.cot, self.direct, self.cot_alone, self.direct_alone, self.titles)
        text = "\0".join("\0\0".join(d.text for d in kind) for kind in kinds)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _bare_answer(demonstration: Demonstration) -> Demonstration:
    if not demonstration.answered:
        return demonstration
    answer = answers.stated(demonstration.answered) or demonstration.answered
    # The Flan files ask a direct reader for no steps.
    asked = demonstration.asked.replace(" by reasoning step-by-step.\n", ".\n")
    return Demonstration(f"{asked}\nA: {answer}", demonstration.metadata)


def _without_passages(demonstration: Demonstration) -> Demonstration:
    _, mark, question = demonstration.text.rpartition("\nQ: ")
    text = f"Q: {question}" if mark else demonstration.text
    return Demonstration(text, demonstration.metadata)


@dataclass(frozen=True)
class Writer:
    """Writes prompts by a preset and reads what comes back.

    Attributes:
        lm: Who is asked.
        preset: The rules.
        demonstrations: Few-shot examples.
        reader: "cot", "direct" or "none".
        eviction: Which passages make room at the cap, and in a prompt when a window is too
            small: the newest ("first": what came first stays, as in the paper) or the oldest
            ("fifo").
        count: Token counter for fitting; None is the LM's own. The release counts GPT-2
            tokens.
        adapter: Name of a LoRA adapter for every call.
        adapter_digest: What tells it from others of its name; empty when only a name is known.
    """

    lm: LanguageModel
    preset: Preset
    demonstrations: Demonstrations
    reader: Reader = "cot"
    eviction: Eviction = "first"
    count: CountTokens | None = None
    adapter: str | None = None
    adapter_digest: str = ""
    _counts: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def settings(self) -> dict[str, Json]:
        """What of this decides the result."""
        preset = self.preset
        return {
            "preset": preset.name,
            "instruction": preset.reason_instruction,
            "reader": self.reader,
            "lm": self.lm.name,
            "adapter": self.adapter,
            **({"adapter_digest": self.adapter_digest} if self.adapter_digest else {}),
            "demonstrations": self.demonstrations.digest(),
            "shots": preset.shots,
            "words": preset.words,
            "longest": preset.longest,
            "limit": preset.limit,
            "generation": preset.generation,
            "splitter": preset.splitter,
            "stop_early": preset.stop_early,
            **({"waits": preset.waits} if preset.waits else {}),
            "eviction": self.eviction,
        }

    def collecting(self, cap: int, pinned: Passage | None = None) -> Collected:
        """What a loop collects passages into, by the preset's rules; see `Collected`."""
        preset = self.preset
        return Collected(cap, preset.duplicate, preset.longest, self.eviction, pinned)

    def in_order(self, passages: Sequence[Passage], question: Question) -> tuple[Passage, ...]:
        """Passages in prompt order: as collected, a pinned one in its place."""
        return layout.pin(passages, question.pinned, self.preset.pin)

    async def next_sentence(
        self, question: Question, passages: Sequence[Passage], thoughts: Sequence[str]
    ) -> Thought:
        """The reason step: the model writes on, its first new sentence counts."""
        prompt, warnings = await self._prompt(
            question,
            passages,
            self.demonstrations.cot,
            # The release joins empty sentences too; one that is a wait leaves no blank behind.
            chain=" ".join(t for t in thoughts if t or not self.preset.waits),
            instruction=self.preset.reason_instruction,
        )
        until = enough(self.preset.split) if self.preset.stop_early else None
        reply = await self._complete(
            prompt, "reason", until=until, enough=f"first sentence, {self.preset.splitter}"
        )
        cut = reply.samples[0].finish == "cut"  # its last word may be half
        written = whole_words(reply.text) if cut else reply.text
        sentence = first_sentence(written, self.preset.split)
        if not self.preset.official_answers:  # the release keeps a trailing blank
            sentence = sentence.strip()
        return Thought(sentence, _warned(reply.call, warnings))

    async def read(
        self,
        question: Question,
        passages: Sequence[Passage],
        stop: StopReason,
        *,
        alone: bool = False,
    ) -> Answer:
        """The reader: answers afresh from what was collected, in the order collected.

        Args:
            question: Its text is stripped, as in the release.
            passages: The question's pinned passage is put among them.
            stop: Why the search ended; goes into the answer.
            alone: Nothing was searched for (NoR): demonstrations show no passages either.
        """
        preset, kinds, reasons = self.preset, self.demonstrations, self.reader == "cot"
        if reasons:
            shots, chat = kinds.cot_alone if alone else kinds.cot, layout.CHAT_READ
        else:
            shots, chat = kinds.direct_alone if alone else kinds.direct, layout.CHAT_DIRECT
        stepwise = reasons and not preset.official_answers  # the release asks for no steps
        # The same examples as the loop's let a backend keep its cached prefix.
        role = "reason" if reasons and not alone else "read"
        prompt, warnings = await self._prompt(
            replace(question, text=question.text.strip()),
            passages,
            shots,
            instruction=preset.reason_instruction if stepwise else preset.read_instruction,
            chat=chat,
        )
        mended = preset.mended and reasons
        until = self._answer_complete if mended else None
        reply = await self._complete(
            prompt, role, until=until, enough=f"answer, {preset.name}, {preset.splitter}"
        )
        text, parts = self._extract(reply)
        forced = None
        if not text and mended:
            text, forced = await self._force(prompt, reply.text.strip(), role)
        return Answer(
            text=text,
            stop=stop,
            passages=self.in_order(passages, question),
            call=_warned(reply.call, warnings),
            forced=forced,
            answers=parts,
            reason="" if text else self._why_nothing(reply),
        )

    async def conclude(
        self, question: Question, passages: Sequence[Passage], thoughts: Sequence[str]
    ) -> Thought:
        """Ask for the answer of a chain that came to none, with "So the answer is:"."""
        chain = " ".join([*(t for t in thoughts if t.strip()), layout.ANSWER])
        prompt, warnings = await self._prompt(
            question,
            passages,
            self.demonstrations.cot,
            chain=chain,
            instruction=self.preset.reason_instruction,
        )
        reply = await self._complete(prompt, "reason", max_tokens=FORCED_TOKENS)
        written = first_sentence(reply.text, self.preset.split).strip()
        written = written.removeprefix(layout.ANSWER).strip()
        text = f"{layout.ANSWER} {written}" if written else ""
        return Thought(text, _warned(reply.call, warnings), layout.ANSWER)

    async def titles(self, question: Question, number: int) -> tuple[tuple[str, ...], LMCall]:
        """IIRC: titles of pages that may help, proposed from the main passage."""
        paragraphs = [self._paragraph(question.pinned)] if question.pinned else []
        asked = layout.titles_question(question.text, number)
        test = layout.squeeze(
            layout.unfinished(asked, paragraphs, "", self.preset.read_instruction)
        )
        prompt, warnings = await self._fitted(
            self.demonstrations.titles, test, "", layout.CHAT_DIRECT
        )
        reply = await self._complete(prompt, "titles")
        read = answers.official_titles if self.preset.official_answers else answers.titles
        titles = read(reply.text.strip())
        if not titles:
            warnings = (*warnings, "The model's text names no title.")
        return titles, _warned(reply.call, warnings)

    async def go_on(
        self,
        prompt: Callable[[Sequence[Passage]], Prompt],
        passages: Sequence[Passage] = (),
        *,
        role: str,
        stop: tuple[str, ...] = ("\n",),
        max_tokens: int | None = None,
    ) -> Reply:
        """Let the model go on with a text of another form than IRCoT's.

        Args:
            prompt: Writes the prompt out of the passages that there is room for.
            passages: Shown as far as the window has room; the demonstrations never change.
            role: What the call is for.
            stop: Where the text ends.
            max_tokens: Most tokens; None is the preset's.
        """
        fitting, warnings = await self._roomy(prompt, passages, None)
        reply = await self._complete(fitting, role, stop=stop, max_tokens=max_tokens)
        return replace(reply, call=_warned(reply.call, warnings))

    # --- Prompts ----------------------------------------------------------------------------

    def _paragraph(self, passage: Passage) -> str:
        return layout.paragraph(passage.title, passage.text, self.preset.words)

    async def _prompt(
        self,
        question: Question,
        passages: Sequence[Passage],
        demonstrations: Sequence[Demonstration],
        *,
        instruction: str,
        chain: str = "",
        chat: layout.ChatForm = layout.CHAT_COT,
    ) -> tuple[Prompt, tuple[str, ...]]:
        def test_example(shown: Sequence[Passage]) -> str:
            paragraphs = [self._paragraph(passage) for passage in shown]
            return layout.unfinished(question.text, paragraphs, chain, instruction)

        shown = self.in_order(passages, question)
        if self.preset.limit is None:
            block = demonstrations[: self.preset.shots]

            def prompt(shown: Sequence[Passage]) -> Prompt:
                test = test_example(shown)
                return layout.prompt(layout.whole(block, test), block, test, chain, chat)

            return await self._roomy(prompt, shown, question.pinned)
        test = test_example(shown)
        if not self.preset.official_answers:
            test = layout.squeeze(test)  # two blank lines would part it in fitting
        return await self._fitted(demonstrations, test, chain, chat)

    async def _fitted(
        self,
        demonstrations: Sequence[Demonstration],
        test: str,
        chain: str,
        chat: layout.ChatForm,
    ) -> tuple[Prompt, tuple[str, ...]]:
        """The release's way: drop demonstrations, first from the end, then from the front."""
        preset, window = self.preset, self.lm.window
        given = block = tuple(demonstrations[: preset.shots])
        limits = [limit for limit in (preset.limit, window) if limit is not None]
        if not limits:  # nothing is known that could be too small
            return layout.prompt(layout.whole(block, test), block, test, chain, chat), ()
        if preset.static_limit is not None:
            block = await drop_to_fit(
                block,
                limit=min(preset.static_limit, window or preset.static_limit),
                generation=preset.static_generation,
                count=self._count,
            )
        fitted = await fit(
            layout.whole(block, test),
            limit=min(limits),
            generation=preset.generation,
            count=self._count,
        )
        warnings = [warning for warning in fitted.warnings if warning != ALONE]
        shown = block[fitted.dropped :]
        if len(shown) < len(given):
            left_out = len(given) - len(shown)
            warnings.append(f"{left_out} of {len(given)} demonstrations did not fit.")
        return layout.prompt(fitted.text, shown, test, chain, chat), tuple(warnings)

    async def _roomy(
        self,
        prompt: Callable[[Sequence[Passage]], Prompt],
        passages: Sequence[Passage],
        pinned: Passage | None,
    ) -> tuple[Prompt, tuple[str, ...]]:
        """Our way: the demonstrations never change; passages go when a window is too small."""
        shown = list(passages)
        loose = [passage for passage in shown if passage != pinned]
        written = prompt(shown)
        while loose and not await self._fits(written):
            shown.remove(loose.pop(0 if self.eviction == "fifo" else -1))
            written = prompt(shown)
        left_out = len(passages) - len(shown)
        warnings = (f"{left_out} of {len(passages)} passages did not fit.",) if left_out else ()
        return written, warnings

    async def _fits(self, prompt: Prompt) -> bool:
        if self.lm.window is None:
            return True
        room = self.lm.window - self.preset.generation - SPARE_TOKENS
        longer = chat_text(prompt.turns) + prompt.ask_next  # than the plain text
        # A token is at least a byte: short prompts need no counting.
        if len(longer.encode("utf-8", "surrogatepass")) <= room:
            return True
        [size] = await self._count([longer])
        return size <= room

    async def _count(self, texts: Sequence[str]) -> list[int]:
        """Count tokens, each text once: demonstrations come again with every call."""
        sizes = {text: self._counts[text] for text in texts if text in self._counts}
        new = [text for text in dict.fromkeys(texts) if text not in sizes]
        if new:
            counted = await (self.count or self.lm.count_tokens)(new)
            sizes.update(zip(new, counted, strict=True))
            if len(self._counts) > 1000:  # whole test examples pass through here too
                self._counts.clear()
            self._counts.update(sizes)
        return [sizes[text] for text in texts]

    # --- Calls ------------------------------------------------------------------------------

    async def _complete(
        self,
        prompt: Prompt,
        role: str,
        *,
        until: Callable[[str], bool] | None = None,
        enough: str = "",
        max_tokens: int | None = None,
        stop: tuple[str, ...] = ("\n",),
    ) -> Reply:
        most = self.preset.generation
        request = Request(
            prompt,
            min(max_tokens or most, most),
            stop=stop,
            adapter=self.adapter,
            role=role,
            enough=enough if until else "",
        )
        try:
            return await complete(self.lm, request, until=until)
        except ContextTooLong as refused:
            if self.preset.limit is None or not refused.needed or not refused.window:
                raise
            # The release's fitting may leave no room to write; it then asks for what fits.
            size = refused.needed - request.max_tokens
            left = shrink_max_tokens(size, request.max_tokens, refused.window)
            reply = await complete(self.lm, replace(request, max_tokens=left), until=until)
            warning = f"Only {left} tokens were left to write."
            return replace(reply, call=_warned(reply.call, (warning,)))

    def _answer_complete(self, text: str) -> bool:
        if self.preset.stated is answers.stated and not answers.STATEMENT.search(text):
            return False  # spares the splitter on every piece of a long chain
        sentences = self.preset.split(whole_words(text).strip())
        return any(self.preset.stated(sentence) for sentence in sentences[:-1])

    def _extract(self, reply: Reply) -> tuple[str, tuple[str, ...]]:
        """The answer in a reader's output: a text, or the parts of a list."""
        written = reply.text
        if self.preset.official_answers:
            stored = answers.official_store(written)
            if self.reader == "cot":
                stored = answers.official_extract(stored) or ""
            prediction = answers.official_prediction(stored)
            if isinstance(prediction, list):
                parts = tuple(str(part) for part in prediction)
                return ", ".join(parts), parts
            return prediction, ()
        written = written.strip()
        if self.reader == "direct":
            return answers.tidy(written), ()
        for sentence in self.preset.split(written) if self.preset.mended else [written]:
            stated = self.preset.stated(sentence)
            if stated:
                return stated, ()
        # The paper takes the whole generation; a cut one is no answer.
        if self.preset.mended or reply.samples[0].finish == "length":
            return "", ()
        return answers.tidy(written), ()

    async def _force(self, prompt: Prompt, written: str, role: str) -> tuple[str, LMCall]:
        """Ask on with "So the answer is:" after a chain that states none."""
        chain = f"{written} {layout.ANSWER}".strip()
        turns = (*prompt.turns, Turn("assistant", chain)) if prompt.turns else ()
        longer = Prompt(f"{prompt.text} {chain}", turns, layout.NEXT_SENTENCE)
        reply = await self._complete(longer, role, max_tokens=FORCED_TOKENS)
        written = first_sentence(reply.text, self.preset.split).strip()
        answer = answers.stated(written) or answers.tidy(written.removeprefix(layout.ANSWER))
        return answer, reply.call

    @staticmethod
    def _why_nothing(reply: Reply) -> str:
        if reply.samples[0].finish == "length":
            return "The reader's text was cut at its token limit before it stated an answer."
        if not reply.text.strip():
            return "The reader wrote nothing."
        return "The reader's text states no answer."


def _warned(call: LMCall, warnings: tuple[str, ...]) -> LMCall:
    return replace(call, warnings=(*call.warnings, *warnings)) if warnings else call
