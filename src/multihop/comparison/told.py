"""One question's traces as HTML: thoughts, searches and what they brought, answer, end, cost.

Everything here is somebody else's text; `text` escapes it.
"""

from collections.abc import Callable

from multihop.comparison.diagnosis import gold_passages
from multihop.comparison.paired import Row
from multihop.comparison.plots import text
from multihop.comparison.wording import count
from multihop.shown import STOPS
from multihop.text import Passage, Question
from multihop.trace import LMCall, Search, Step, Thought, Titles, Trace

Marked = Callable[[Passage], bool]
"""Whether a passage is gold."""

PASSAGE = 600
"""Characters of a passage that are shown."""

WRITTEN = 1000
"""Characters of a model's raw text that are shown."""


def question(asked: Question) -> str:
    """What was asked, and what should have been found."""
    gold = gold_passages(asked)
    answers = " | ".join(text(answer) for answer in asked.answers) or "unknown"
    found = f"<dt>Gold answer</dt><dd>{answers}</dd>"
    if gold:
        names = "".join(f"<li>{text(g.title or g.id)}</li>" for g in gold)
        found += f"<dt>Gold passages</dt><dd><ol>{names}</ol></dd>"
    if asked.pinned:
        found += f"<dt>About</dt><dd>{text(asked.pinned.title)}</dd>"
    if asked.kind:
        found += f"<dt>Type</dt><dd>{text(asked.kind)}</dd>"
    return f"<dl>{found}<dt>Id</dt><dd>{text(asked.id)}</dd></dl>"


def run(name: str, place: int, row: Row, trace: Trace) -> str:
    """One run's trace of the question."""
    gold = gold_passages(trace.question)

    def marked(passage: Passage) -> bool:
        return any(each.is_(passage) for each in gold)

    seen: set[str] = set()
    steps = "".join(_step(step, marked, seen) for step in trace.steps)
    answer = trace.answer
    ended = []
    if trace.error:
        ended.append(f"<p><b>Failed</b> {text(trace.error)}</p>")
    if answer:
        reads = [p.title or p.id for p in answer.passages if marked(p)]
        read = f"{count(len(answer.passages), 'passage')}, {len(reads)} of them gold"
        ended.append(_written(answer.call) + _written(answer.forced))
        said = text(row.answer) if row.answer else f"<em>none</em> ({text(answer.reason)})"
        ended.append(
            f'<p class="answer"><b>Answer</b> {said} {verdict(row)}</p>'
            f"<p><b>Read from</b> {read}. <b>Stopped</b> {text(STOPS[answer.stop])} "
            f"({answer.stop}).</p>"
        )
    if row.diagnosis:
        ended.append(f"<p><b>Diagnosis</b> {row.diagnosis.name}: {text(row.diagnosis.why)}</p>")
    return (
        f'<section class="run"><h4><i class="r{place % 6}"></i>{text(name)}</h4>'
        f'<ol>{steps}</ol>{"".join(ended)}<p class="quiet">{_cost(trace)}</p></section>'
    )


def verdict(row: Row) -> str:
    """Right, or the diagnosis, as a badge."""
    if row.error:
        return '<span class="badge failed">failed</span>'
    if row.right:
        return '<span class="badge right">right</span>'
    if row.diagnosis:
        return f'<span class="badge {slug(row.diagnosis.name)}">{row.diagnosis.name}</span>'
    return '<span class="badge cannot-tell">not scored</span>'


def slug(name: str) -> str:
    """A class of our own as a CSS class."""
    return name.replace(" ", "-").replace("_", "-")


def _step(step: Step, marked: Marked, seen: set[str]) -> str:
    match step:
        case Search():
            return _search(step, marked, seen)
        case Thought():
            words = text(step.text) if step.text else "<em>nothing was written</em>"
            kind = step.kind.capitalize() or "Thought"
            return f'<li class="thought"><b>{kind}</b> {words}</li>'
        case Titles():
            names = ", ".join(text(title) for title in step.mapped) or "none"
            return f'<li class="thought"><b>Pages</b> {names}</li>'
        case _:
            return ""


def _search(step: Search, marked: Marked, seen: set[str]) -> str:
    if not step.query:
        return '<li class="search"><b>Search</b> <em>nothing to ask</em></li>'
    kept = set(step.kept)
    shown, known = [], 0
    for hit in step.hits:
        passage, gold, fresh = hit.passage, marked(hit.passage), hit.passage.id in kept
        if passage.id in seen or not (fresh or gold):
            known += 1
        else:
            seen.add(passage.id)
            shown.append(_passage(passage, gold=gold, kept=fresh))
    rest = f'<li class="quiet">{known} more known or left out</li>' if known else ""
    none = "" if step.hits else '<li class="quiet">nothing was found</li>'
    return (
        f'<li class="search"><b>Search</b> {text(step.query)}'
        f'<ul class="passages">{"".join(shown)}{rest}{none}</ul></li>'
    )


def _passage(passage: Passage, *, gold: bool, kept: bool) -> str:
    cut = " …" if len(passage.text) > PASSAGE else ""
    badge = '<span class="badge gold">gold</span>' if gold else ""
    left = "" if kept else ' <span class="badge failed">left out</span>'
    kind = ' class="gold" open' if gold else ""
    return (
        f"<li><details{kind}><summary>{text(passage.title or passage.id)} {badge}{left}</summary>"
        f"<p>{text(passage.text[:PASSAGE])}{cut}</p></details></li>"
    )


def _written(call: LMCall | None) -> str:
    if call is None or not call.outputs:
        return ""
    words = call.outputs[0].strip()
    cut = " …" if len(words) > WRITTEN else ""
    warned = "".join(f' <span class="quiet">{text(w)}</span>' for w in call.warnings)
    return f"<p><b>Reader wrote</b> {text(words[:WRITTEN])}{cut}{warned}</p>"


def _cost(trace: Trace) -> str:
    searches = sum(bool(s.query) for s in trace.searches)
    tokens = trace.tokens
    parts = [count(searches, "search", "searches"), count(len(trace.calls), "LM call")]
    if tokens.prompt is not None:
        parts.append(f"{tokens.prompt:,} prompt tokens")
    if tokens.generated is not None:
        parts.append(f"{tokens.generated:,} generated")
    return " · ".join([*parts, f"{trace.seconds:.1f} s"])
