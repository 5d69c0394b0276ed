"""What the strategies ask of an LM: the next sentence, an answer, titles of pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from multihop.lms.base import LanguageModel, Prompt, Reply, Request, Turn, complete
from multihop.prompts import answers, layout
from multihop.prompts.demonstrations import CountTokens, Demonstration, drop_to_fit
from multihop.prompts.fit import fit
from multihop.prompts.sentences import enough, first_sentence
from multihop.strategies.rules import Eviction, Preset, Reader
from multihop.text import Json, Passage, Question
from multihop.trace import Answer, LMCall, StopReason, Thought

FORCED_TOKENS = 48
"""Most tokens of an answer that we asked for with the words "So the answer is:"."""


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
    answer = answers.stated(demonstration.answered) or demonstration.answered
    asked = demonstration.asked.replace(
        "by reasoning step-by-step.\n", "\n"
    )  # the direct instruction of the Flan files
    asked = asked.replace("the following question \n", "the following question.\n")
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
        eviction: Which passages go first when a window is too small: the newest ("first")
            or the oldest ("fifo").
        count: Token counter for fitting; None is the LM's own. The release counts GPT-2
            tokens.
        adapter: Name of a LoRA adapter for every call.
    """

    lm: LanguageModel
    preset: Preset
    demonstrations: Demonstrations
    reader: Reader = "cot"
    eviction: Eviction = "first"
    count: CountTokens | None = None
    adapter: str | None = None
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
            "demonstrations": self.demonstrations.digest(),
            "shots": preset.shots,
            "words": preset.words,
            "longest": preset.longest,
            "limit": preset.limit,
            "generation": preset.generation,
            "splitter": preset.splitter,
            "eviction": self.eviction,
        }

    def in_order(self, passages: Sequence[Passage], question: Question) -> tuple[Passage, ...]:
        """Passages in prompt order: as collected, a pinned one in its place."""
        return layout.pin(passages, question.pinned, self.preset.pin)

    async def next_sentence(
        self, question: Question, passages: Sequence[Passage], thoughts: Sequence[str]
    ) -> Thought:
        """The reason step: the model writes on, its first new sentence counts."""
        shown = self.in_order(passages, question)
        prompt, warnings = await self._prompt(
            question.text, shown, self.demonstrations.cot, chain=" ".join(thoughts)
        )
        until = enough(self.preset.split) if self.preset.mended else None
        reply = await self._complete(prompt, "reason", until=until)
        sentence = first_sentence(reply.text, self.preset.split)
        if not self.preset.official_answers:  # the release keeps a trailing blank
            sentence = sentence.strip()
        return Thought(sentence, _warned(reply.call, warnings))

    async def read(
        self, question: Question, passages: Sequence[Passage], stop: StopReason
    ) -> Answer:
        """The reader: answers afresh from what was collected, in the order collected.

        Args:
            question: Its text is stripped, as in the release.
            passages: May be empty (NoR). The question's pinned passage is put among them.
            stop: Why the search ended; goes into the answer.
        """
        kinds = self.demonstrations
        chosen = {
            ("cot", True): kinds.cot,
            ("direct", True): kinds.direct,
            ("cot", False): kinds.cot_alone,
            ("direct", False): kinds.direct_alone,
        }
        alone = not passages
        shown = self.in_order(passages, question)
        # The same examples as the loop's let a backend keep its cached prefix.
        role = "reason" if self.reader == "cot" and not alone else "read"
        prompt, warnings = await self._prompt(
            question.text.strip(),
            shown,
            chosen[self.reader, not alone],
            instruction=self.preset.read_instruction,
            chat=layout.CHAT_COT if self.reader == "cot" else layout.CHAT_DIRECT,
            whole_answer=True,
        )
        until = self._answer_complete if self.preset.mended and self.reader == "cot" else None
        reply = await self._complete(prompt, role, until=until)
        text, parts = self._extract(reply)
        forced = None
        if not text and not parts and self.preset.mended and self.reader == "cot":
            text, forced = await self._force(prompt, reply.text.strip(), role)
        return Answer(
            text=text,
            stop=stop,
            passages=tuple(shown),
            call=_warned(reply.call, warnings),
            forced=forced,
            answers=parts,
            reason="" if text or parts else self._why_nothing(reply),
        )

    async def conclude(
        self, question: Question, passages: Sequence[Passage], thoughts: Sequence[str]
    ) -> Thought:
        """Ask for the answer of a chain that came to none, with "So the answer is:"."""
        chain = " ".join([*(t for t in thoughts if t.strip()), layout.ANSWER])
        shown = self.in_order(passages, question)
        prompt, warnings = await self._prompt(
            question.text, shown, self.demonstrations.cot, chain=chain
        )
        reply = await self._complete(prompt, "reason", max_tokens=FORCED_TOKENS)
        written = first_sentence(reply.text, self.preset.split).strip()
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
        return answers.official_titles(reply.text.strip()), _warned(reply.call, warnings)

    # --- Prompts ----------------------------------------------------------------------------

    def _paragraph(self, passage: Passage) -> str:
        return layout.paragraph(passage.title, passage.text, self.preset.words)

    async def _prompt(
        self,
        question: str,
        passages: Sequence[Passage],
        demonstrations: Sequence[Demonstration],
        *,
        chain: str = "",
        instruction: str | None = None,
        chat: layout.ChatForm = layout.CHAT_COT,
        whole_answer: bool = False,
    ) -> tuple[Prompt, tuple[str, ...]]:
        if instruction is None:
            instruction = self.preset.reason_instruction
        paragraphs = [self._paragraph(p) for p in passages]
        if whole_answer:
            chat = replace(chat, ask_next="")
        if self.preset.limit is None:
            return await self._roomy(
                demonstrations,
                question,
                paragraphs,
                chain=chain,
                instruction=instruction,
                chat=chat,
            )
        test = layout.unfinished(question, paragraphs, chain, instruction)
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
        limit = min(preset.limit or window or 0, window or preset.limit or 0)
        block = tuple(demonstrations[: preset.shots])
        if not limit:  # nothing is known that could be too small
            return layout.prompt(layout.whole(block, test), block, test, chain, chat), ()
        if preset.static_limit is not None and len(block) > 1:
            block = await drop_to_fit(
                block,
                limit=min(preset.static_limit, window or preset.static_limit),
                generation=preset.static_generation,
                count=self._count,
            )
        fitted = await fit(
            layout.whole(block, test),
            limit=limit,
            generation=preset.generation,
            count=self._count,
        )
        warnings = list(fitted.warnings) if block else []
        if fitted.dropped:
            warnings.append(f"{fitted.dropped} of {len(block)} demonstrations did not fit.")
        shown = block[fitted.dropped :]
        return layout.prompt(fitted.text, shown, test, chain, chat), tuple(warnings)

    async def _roomy(
        self,
        demonstrations: Sequence[Demonstration],
        question: str,
        paragraphs: list[str],
        *,
        chain: str,
        instruction: str,
        chat: layout.ChatForm,
    ) -> tuple[Prompt, tuple[str, ...]]:
        """Our way: the demonstrations never change; passages go when a window is too small."""
        block = demonstrations[: self.preset.shots]
        window, all_of_them = self.lm.window, len(paragraphs)
        while True:
            test = layout.unfinished(question, paragraphs, chain, instruction)
            text = layout.whole(block, test)
            if window is None or not paragraphs:
                break
            room = window - self.preset.generation
            # A token is at least a byte: short prompts need no counting.
            if len(text.encode("utf-8", "surrogatepass")) <= room:
                break
            [size] = await self._count([text])
            if size <= room:
                break
            paragraphs.pop(0 if self.eviction == "fifo" else -1)
        left_out = all_of_them - len(paragraphs)
        warnings = (f"{left_out} of {all_of_them} passages did not fit.",) if left_out else ()
        return layout.prompt(text, block, test, chain, chat), warnings

    async def _count(self, texts: Sequence[str]) -> list[int]:
        """Count tokens, each text once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._counts]
        if new:
            sizes = await (self.count or self.lm.count_tokens)(new)
            if len(self._counts) > 10_000:  # whole prompts pass through here
                self._counts.clear()
                return await (self.count or self.lm.count_tokens)(texts)
            self._counts.update(zip(new, sizes, strict=True))
        return [self._counts[text] for text in texts]

    # --- Calls ------------------------------------------------------------------------------

    async def _complete(
        self,
        prompt: Prompt,
        role: str,
        *,
        until: Callable[[str], bool] | None = None,
        max_tokens: int | None = None,
    ) -> Reply:
        request = Request(
            prompt,
            max_tokens or self.preset.generation,
            stop=("\n",),
            adapter=self.adapter,
            role=role,
        )
        return await complete(self.lm, request, until=until)

    def _answer_complete(self, text: str) -> bool:
        sentences = self.preset.split(text.strip())
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
        answer = answers.tidy(first_sentence(reply.text, self.preset.split))
        return answers.stated(answer) or answer, reply.call

    @staticmethod
    def _why_nothing(reply: Reply) -> str:
        if not reply.text.strip():
            return "The reader wrote nothing."
        if reply.samples[0].finish == "length":
            return "The reader's text was cut at its token limit before it stated an answer."
        return "The reader's text states no answer."


def _warned(call: LMCall, warnings: tuple[str, ...]) -> LMCall:
    return replace(call, warnings=(*call.warnings, *warnings)) if warnings else call
