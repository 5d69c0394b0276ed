"""Steps as a person reads them: the one place that draws a trace in a terminal.

Passages and model output are somebody else's text: shown as they are, never read as markup, with
their control characters made visible (`multihop.shown`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multihop.cost import Prices
from multihop.metrics import money
from multihop.shown import STOPS
from multihop.shown import snippet as snippet  # noqa: PLC0414 - the other verbs take it from here
from multihop.shown import visible as visible  # noqa: PLC0414
from multihop.text import Json, Passage, Question
from multihop.trace import Answer, Kind, LMCall, Search, Step, Thought, Titles, Trace

if TYPE_CHECKING:  # it takes time to import, and help and single lines need none of it
    from rich.console import Console


_LABELS: Mapping[Kind, str] = {"intermediate answer": "answer", "observation": "observed"}
"""Kinds of thoughts by shorter words."""


def terminal(*, stderr: bool = True) -> "Console":
    """A console that reads nothing into what it prints."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


@dataclass
class Drawing:
    """Draws a run while it happens, or again afterwards.

    Attributes:
        console: Where to.
        prompts: Show each LM call's prompt and raw output too.
        prices: Show what the run cost by this table too.
    """

    console: "Console"
    prompts: bool = False
    prices: Prices | None = None
    _numbers: dict[str, int] = field(default_factory=dict)
    _hops: int = 0

    def question(self, question: Question, about: str = "") -> None:
        """Draw the head."""
        self._print(("? ", "bold cyan"), (visible(question.text), "bold"))
        if about:
            self._print(("  " + visible(about), "dim"))
        if question.pinned:
            self._print(("  about ", "dim"), (visible(question.pinned.title), "bold"))

    def step(self, step: Step) -> None:
        """Draw one step."""
        match step:
            case Search():
                self._search(step)
            case Titles():
                self._titles(step)
            case Thought():
                self._thought(step)
            case Answer():
                self._answer(step)

    def trace(self, trace: Trace) -> None:
        """Draw a finished run: head, steps, answer and cost."""
        self.question(trace.question, about(trace.strategy, trace.settings))
        for step in trace.steps:
            self.step(step)
        if trace.error:
            self._print(("  failed   ", "bold red"), (visible(trace.error), ""))
        answer = trace.answer
        if answer and answer.text:
            self._print(("  answer   ", "bold green"), (visible(answer.text), "bold"))
        if trace.question.answers:
            accepted = " | ".join(visible(a) for a in trace.question.answers)
            self._print(("  gold     ", "dim"), (accepted, "dim"))
        if answer:
            self.evidence(answer)
        self.cost(trace)

    def evidence(self, answer: Answer) -> None:
        """Draw what the answer was read from, numbered as in the steps."""
        for place, passage in enumerate(answer.passages):
            number = self._numbers.setdefault(passage.id, len(self._numbers) + 1)
            self._print(
                ("  from     " if place == 0 else "           ", "dim"),
                (f"[{number}] ", "dim"),
                (visible(passage.title) or visible(passage.id), ""),
                (passage.place and f"  {visible(passage.place)}", "dim"),
            )

    def cost(self, trace: Trace) -> None:
        """Draw what the run took, on one line."""
        self._print(("  " + cost(trace, self.prices), "dim"))

    def _search(self, step: Search) -> None:
        self._hops += 1
        if not step.query:
            self._print((f"{self._hops} search   ", "cyan"), ("nothing to ask", "dim"))
            return
        self._print((f"{self._hops} search   ", "cyan"), (visible(step.query), ""))
        if step.titles is not None:
            within = ", ".join(visible(title) for title in step.titles) or "no page"
            self._print(("    within ", "dim"), (within, "dim"))
        found = {hit.passage.id: hit.passage for hit in step.hits}
        for passage_id in step.kept:
            if passage_id in found:
                self._passage(found[passage_id], "    + ")
        rest = len(step.hits) - len(step.kept)
        if not step.hits:
            self._print(("    nothing was found", "yellow"))
        elif not step.kept:
            self._print((f"    nothing new ({rest} known or left out)", "yellow"))
        elif rest:
            self._print((f"    and {rest} known or left out", "dim"))

    def _titles(self, step: Titles) -> None:
        self._call(step.call)
        proposed = "; ".join(visible(title) for title in step.proposed) or "none"
        mapped = "; ".join(visible(title) for title in step.mapped) or "none"
        self._print(("  titles   ", "magenta"), (proposed, ""))
        self._print(("    pages ", "dim"), (mapped, ""))

    def _thought(self, step: Thought) -> None:
        self._call(step.call)
        label = f"  {_LABELS.get(step.kind, step.kind) or 'thought':<8} "
        if not step.text:
            self._print((label, "magenta"), ("(nothing was written)", "yellow"))
        elif step.forced and step.text.startswith(step.forced):
            self._print(
                (label, "magenta"),
                (visible(step.forced), "dim"),
                (visible(step.text[len(step.forced) :]), "italic"),
            )
        else:
            self._print((label, "magenta"), (visible(step.text.strip()), "italic"))

    def _answer(self, step: Answer) -> None:
        self._call(step.call)
        self._call(step.forced)
        self._print(("  stopped  ", "cyan"), (f"{step.stop}: {STOPS[step.stop]}", ""))
        if not step.text:
            self._print(("  no answer", "bold yellow"), (f"  {visible(step.reason)}", ""))

    def _passage(self, passage: Passage, indent: str) -> None:
        number = self._numbers.setdefault(passage.id, len(self._numbers) + 1)
        self._print(
            (f"{indent}[{number}] ", "dim"),
            (visible(passage.title) or visible(passage.id), "bold"),
            ("  " + snippet(passage.text), "dim"),
        )

    def _call(self, call: LMCall | None) -> None:
        if call is None:
            return
        for warning in call.warnings:
            self._print(("    note ", "yellow"), (visible(warning), "dim"))
        if "length" in call.finishes:
            self._print(("    note ", "yellow"), (f"cut off at {call.max_tokens} tokens", "dim"))
        if self.prompts:
            self._print((f"--- {call.role}: prompt to {visible(call.model)}", "dim"))
            self._print((visible(call.prompt, lines=True), ""))
            for output in call.outputs:
                self._print((f"--- {call.role}: output", "dim"))
                self._print((visible(output, lines=True), ""))
            self._print(("---", "dim"))

    def _print(self, *parts: tuple[str, str]) -> None:
        from rich.text import Text  # noqa: PLC0415

        self.console.print(Text.assemble(*parts))


def about(strategy: str, settings: Mapping[str, Json]) -> str:
    """Strategy, preset and parts, where the settings name them."""
    names = (settings.get(key) for key in ("preset", "lm", "adapter", "retriever"))
    return " · ".join([strategy, *(str(name) for name in names if name)])


def cost(trace: Trace, prices: Prices | None = None) -> str:
    """Calls, tokens, time and, where the model has a price, money of a run, in words."""
    calls, tokens = trace.calls, trace.tokens
    parts = [_count(len(trace.searches), "search", "searches"), _count(len(calls), "LM call")]
    spared = {
        "read on": sum(call.fused and not call.replayed for call in calls),
        "replayed": sum(call.replayed for call in calls),
    }
    if words := ", ".join(f"{number} {how}" for how, number in spared.items() if number):
        parts[-1] += f" ({words})"
    if tokens.prompt is not None:
        cached = f" ({tokens.cached} cached)" if tokens.cached is not None else ""
        parts.append(f"{tokens.prompt} prompt tokens{cached}")
    if tokens.generated is not None:
        parts.append(f"{tokens.generated} generated")
    parts.append(f"{trace.seconds:.1f} s")
    spent = money(prices)(trace) if prices else None
    if spent is not None:
        parts.append(f"{spent:.4g} in money")
    return " · ".join(parts)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
