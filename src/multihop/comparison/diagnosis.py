"""Why a wrong answer is wrong, read off its trace and the gold passages; no model is asked.

The rules, in order; the first that fits decides, and docs/compare.md gives the reasons:

    1  label doubt       the answer is the gold one in another writing
    2  format miss       the gold answer stands inside the answer, or the answer is most of it
    3  cannot tell       no answer was asked for, or no gold passage is known
    4  label doubt       no gold passage holds the gold answer, but a passage shown holds ours
    5  stop miss         the chain named every gold passage that is missing, and ended
       hop miss          a gold passage never came back from any search
    6  crowded out       all came back, and one did not reach the reader, or not whole
    7  stop miss         the chain searched on long after everything was there
    8  composition miss  all gold was in front of the reader
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from multihop.comparison.variants import contains, plain, variant
from multihop.metrics import answer_score, pid
from multihop.text import Passage, Question
from multihop.trace import LMCall, Search, Thought, Trace, calls_of

CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "hop miss": "a gold passage never came back from any search",
        "crowded out": "a gold passage came back, but did not reach the reader, or not whole",
        "composition miss": "all gold was in front of the reader, and the answer is wrong",
        "stop miss": "the chain ended with its next hop named, or went on long after it had all",
        "format miss": "the right answer stands inside a longer one, or lacks a word of it",
        "label doubt": "the answer may be right: another writing, or gold that no gold passage has",
        "cannot tell": "no gold passage is known, or no answer was asked for",
    }
)
"""Every wrong answer is sorted into exactly one of these."""

LONG_AFTER = 3
"""Searches after the evidence was complete that make a run too long: as many as end it for want
of anything new (`patience`)."""

ENOUGH_F1 = 0.7
"""F1 from which an answer all of whose words are gold lacks only its form: two words of three
are, one of two is not."""

SEEN_WORDS = 8
"""Words of a passage that must stand in a prompt for the passage to be in it."""

_COMPUTED = frozenset(("yes", "no"))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was wrong with a wrong answer.

    Attributes:
        name: One of `CLASSES`.
        why: The rule that decided, for this trace, in a sentence; may quote the trace.
        missing: Gold passages that never came back: place from 1 in the question's list, title.
        crowded: Gold passages that came back and did not reach the reader, or not whole.
    """

    name: str
    why: str
    missing: tuple[tuple[int, str], ...] = ()
    crowded: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Gold:
    """One gold passage, as far as its question tells it.

    Attributes:
        place: From 1; the order of hops where the data set keeps it, as MuSiQue does.
        id: Its id in the corpus; empty where only titles or texts are known.
        title: Its title; empty where only ids are known.
        digest: `metrics.pid` of its title and text, where gold is given as text.
        text: Its text, where the question tells it.
    """

    place: int
    id: str = ""
    title: str = ""
    digest: str = ""
    text: str = ""

    def is_(self, passage: Passage) -> bool:
        """Whether a passage is this one: by id, else by text, else by title."""
        if self.id:
            return passage.id == self.id
        if self.digest:
            return pid(passage.title, passage.text) == self.digest
        return passage.title.strip().lower() == self.title.strip().lower()


def gold_passages(question: Question) -> tuple[Gold, ...]:
    """The gold passages of a question: by `gold_ids`, else `gold_paragraphs`, else titles."""
    titles = question.gold_titles
    if ids := tuple(dict.fromkeys(question.gold_ids)):
        named = titles if len(titles) == len(ids) else ("",) * len(ids)
        return tuple(
            Gold(n, id=name, title=title)
            for n, (name, title) in enumerate(zip(ids, named, strict=True), 1)
        )
    paragraphs = question.extra.get("gold_paragraphs")
    if isinstance(paragraphs, list) and paragraphs:
        found = [p for p in paragraphs if isinstance(p, dict) and "title" in p and "text" in p]
        return tuple(
            Gold(n, title=title, text=text, digest=pid(title, text))
            for n, (title, text) in enumerate(((str(p["title"]), str(p["text"])) for p in found), 1)
        )
    return tuple(Gold(n, title=title) for n, title in enumerate(dict.fromkeys(titles), 1))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a trace's gold passages went.

    Attributes:
        gold: All of them.
        missing: Those that no search brought.
        lost: Those that came back and did not reach the reader, each with the reason.
        texts: Of those that came back, or are told by the question, title and text; by place.
        complete: After how many searches all were collected; None when they never were.
        shown: What the reader had in front of it: title and as much text as the prompt holds.
    """

    gold: tuple[Gold, ...]
    missing: tuple[Gold, ...]
    lost: tuple[tuple[Gold, str], ...]
    texts: Mapping[int, str]
    complete: int | None
    shown: tuple[tuple[Passage, str], ...]


def evidence(trace: Trace) -> Evidence:
    """Follow a trace's gold passages from the searches to the reader's prompt.

    A question's pinned passage counts as found. Searches over page titles alone (IIRC) bring no
    passages and do not count.
    """
    gold = gold_passages(trace.question)
    searches = [search for search in trace.searches if search.query]
    pinned = (trace.question.pinned,) if trace.question.pinned else ()
    shown = _shown(trace)
    missing, lost, texts = [], [], {}
    places: dict[int, set[str]] = {}
    for each in gold:
        came = [p for p in pinned if each.is_(p)]
        came += [h.passage for search in searches for h in search.hits if each.is_(h.passage)]
        if each.text:
            texts[each.place] = f"{each.title}\n{each.text}"
        if not came:
            missing.append(each)
            continue
        texts[each.place] = f"{came[0].title}\n{came[0].text}"
        places[each.place] = {p.id for p in came}
        if not any(each.is_(passage) for passage, _ in shown):
            lost.append((each, _reason(trace, searches, {p.id for p in came})))
    complete = None
    if gold and not missing:
        here = {p.id for p in pinned}
        for n, search in enumerate(searches, 1):
            if all(ids & (here | set(search.collected)) for ids in places.values()):
                complete = n
                break
    return Evidence(gold, tuple(missing), tuple(lost), texts, complete, shown)


def diagnose(trace: Trace) -> Diagnosis | None:
    """Sort a wrong answer.

    Wrong is an answer whose exact match is 0 by the metric of its data set.

    Returns:
        None when the answer is right, the run failed, or no gold answer is known.
    """
    score, answer = answer_score(trace), trace.answer
    if score is None or answer is None or trace.error or score.em == 1:
        return None
    said = " ".join(answer.answers) or answer.text
    golds = trace.question.answers
    for gold in golds:
        if how := variant(said, gold):
            return Diagnosis("label doubt", f"The answer is {gold!r} in other words: {how}.")
    if why := _format(trace, said, score.f1, score.precision):
        return Diagnosis("format miss", why)
    if not said and not any(call.role != "titles" for call in trace.calls):
        return Diagnosis("cannot tell", "No model was asked for an answer.")
    found = evidence(trace)
    if not found.gold:
        return Diagnosis("cannot tell", "The question names no gold passages.")
    missing = tuple(_named(trace, gold) for gold in found.missing)
    crowded = [_named(trace, gold) for gold, _ in found.lost]
    if why := _doubt(trace, said, found):
        return Diagnosis("label doubt", why)
    if missing:
        if lead := _lead(trace, missing):
            why = f"The chain ended ({answer.stop}) on a sentence that names {lead}, still unread."
            return Diagnosis("stop miss", why, missing, tuple(crowded))
        return Diagnosis("hop miss", _hop(trace, found, missing), missing, tuple(crowded))
    if found.lost:
        why = "; ".join(f"{_named(trace, gold)[1]}: {reason}" for gold, reason in found.lost)
        return Diagnosis("crowded out", f"{why}.", (), tuple(crowded))
    if cut := _cut(golds, found):
        name = _named(trace, cut)
        why = f"{name[1]}: the prompt's part of it ends before the gold answer."
        return Diagnosis("crowded out", why, (), (name,))
    after = sum(bool(s.query) for s in trace.searches) - (found.complete or 0)
    if found.complete is not None and trace.thoughts and after >= LONG_AFTER:
        why = f"All gold was there after search {found.complete}; {after} more were made."
        return Diagnosis("stop miss", why)
    count = len(found.gold)
    all_ = {1: "The gold passage was", 2: "Both gold passages were"}.get(
        count, f"All {count} gold passages were"
    )
    why = f"{all_} in front of the reader"
    if any(contains(plain(t.text), plain(g)) for t in trace.thoughts for g in golds):
        why += ", and a sentence of the chain holds the gold answer"
    return Diagnosis("composition miss", f"{why}.")


# --- The rules ------------------------------------------------------------------------------


def _format(trace: Trace, said: str, f1: float, precision: float) -> str:
    """Why a wrong answer is right but for its form; empty when it is not."""
    ours = plain(said)
    for gold in trace.question.answers:
        theirs = plain(gold)
        if theirs in (("yes",), ("no",)):  # elsewhere in a sentence they say nothing
            if ours[:1] == theirs:
                return f"The answer begins with {gold!r}."
        elif contains(ours, theirs):
            return f"The answer holds {gold!r} and more."
        elif precision == 1 and f1 >= ENOUGH_F1 and _most(ours, theirs):
            return f"The answer is most of {gold!r}."
    if not ours:
        written = _written(trace)
        for gold in trace.question.answers:
            theirs = plain(gold)
            if theirs not in (("yes",), ("no",)) and contains(plain(written), theirs):
                return f"The model wrote {gold!r} and stated no answer."
    return ""


def _most(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether the words are all of this gold answer's, and lack no number of it."""
    numbers = [word for word in theirs if any(c.isdigit() for c in word)]
    return set(ours) <= set(theirs) and set(numbers) <= set(ours)


def _written(trace: Trace) -> str:
    """What the model wrote last: the reader's texts, or the chain where there is no reader."""
    answer = trace.answer
    calls = list(calls_of(answer)) if answer else []
    if calls:
        return " ".join(output for call in calls for output in call.outputs)
    return " ".join(thought.text for thought in trace.thoughts)


def _doubt(trace: Trace, said: str, found: Evidence) -> str:
    """Why the gold answer itself is in doubt; empty when it is not.

    Only where every gold passage's text is known, and for answers that are to be found in texts:
    yes, no and numbers may be reckoned.
    """
    ours, asked = plain(said), plain(trace.question.text)
    golds = [plain(gold) for gold in trace.question.answers]
    computed = any(len(g) == 1 and (g[0] in _COMPUTED or g[0].isdecimal()) for g in golds)
    if computed or not ours or ours in (("yes",), ("no",)) or contains(asked, ours):
        return ""
    if len(found.texts) < len(found.gold):
        return ""
    texts = [plain(text) for text in found.texts.values()]
    if any(not gold or contains(text, gold) for gold in golds for text in texts):
        return ""
    if holds := next(
        (p for p, text in found.shown if contains(plain(f"{p.title}\n{text}"), ours)), None
    ):
        where = holds.title or holds.id
        return f"No gold passage holds the gold answer, and {where!r} holds the one given."
    return ""


def _lead(trace: Trace, missing: Sequence[tuple[int, str]]) -> str:
    """The missing titles, when sentences that were never searched with name them all."""
    last = max((n for n, step in enumerate(trace.steps) if isinstance(step, Search)), default=None)
    if last is None:
        return ""
    unsearched = [step.text for step in trace.steps[last + 1 :] if isinstance(step, Thought)]
    asked = [trace.question.text, *(search.query for search in trace.searches)]
    for _, title in missing:
        words = plain(_page(title))
        if not _telling(words) or any(contains(plain(query), words) for query in asked):
            return ""
        if not any(contains(plain(text), words) for text in unsearched):
            return ""
    return ", ".join(repr(title) for _, title in missing)


def _page(title: str) -> str:
    """A title without what tells it from others of its name: "Veep (TV series)"."""
    return re.sub(r"\s*\([^()]*\)\s*$", "", title) or title


def _telling(words: Sequence[str]) -> bool:
    """Whether a title can be known in a sentence: "It" and "M" cannot."""
    return len("".join(words)) >= 4


def _hop(trace: Trace, found: Evidence, missing: Sequence[tuple[int, str]]) -> str:
    if not any(search.query for search in trace.searches):
        return "Nothing was searched for."
    names = ", ".join(f"{title} (gold passage {place})" for place, title in missing)
    also = f" {len(found.lost)} more came back and did not reach the reader." if found.lost else ""
    return f"Never found: {names}.{also}"


def _cut(golds: Sequence[str], found: Evidence) -> Gold | None:
    """The gold passage whose part in the prompt ends before the answer that stands nowhere else."""
    answers = [words for gold in golds if (words := plain(gold)) not in ((), ("yes",), ("no",))]
    if any(
        contains(plain(f"{p.title}\n{text}"), words) for p, text in found.shown for words in answers
    ):
        return None
    for gold in found.gold:
        if any(contains(plain(found.texts[gold.place]), words) for words in answers):
            return gold
    return None


# --- What the reader saw --------------------------------------------------------------------


def _shown(trace: Trace) -> tuple[tuple[Passage, str], ...]:
    """The passages in front of the reader, each with the part that its prompt holds.

    Where no prompt is known (a strategy that calls no model by itself), all of each.
    """
    answer = trace.answer
    if answer is None:
        return ()
    call = answer.call or _last_reason(trace)
    if call is None or not call.prompt:
        return tuple((passage, passage.text) for passage in answer.passages)
    prompt = " ".join(call.prompt.split())
    seen = ((passage, _part(passage.text, prompt)) for passage in answer.passages)
    return tuple((passage, part) for passage, part in seen if part is not None)


def _last_reason(trace: Trace) -> LMCall | None:
    """Without a reader, the call whose sentence stated the answer."""
    calls = [thought.call for thought in trace.thoughts if thought.call]
    return calls[-1] if calls else None


def _part(text: str, prompt: str) -> str | None:
    """How much of a passage's beginning a prompt holds; None when too little to be it."""
    words = text.split()
    low, high = 0, len(words)
    while low < high:  # a prompt that holds so many words holds fewer, too
        middle = (low + high + 1) // 2
        if " ".join(words[:middle]) in prompt:
            low = middle
        else:
            high = middle - 1
    return " ".join(words[:low]) if low >= min(SEEN_WORDS, len(words)) else None


def _reason(trace: Trace, searches: Sequence[Search], ids: set[str]) -> str:
    """Why a passage that came back is not in front of the reader."""
    answer = trace.answer
    if answer and ids & {p.id for p in answer.passages}:
        return "was collected, but the window had no room for it"
    if ids & {name for search in searches for name in search.kept}:
        return "was collected, and made room for later ones"
    cap, longest = trace.settings.get("max_passages"), trace.settings.get("longest")
    for search in searches:
        for rank, hit in enumerate(search.hits, 1):
            if hit.passage.id not in ids:
                continue
            if isinstance(longest, int) and len(hit.passage.text.split(" ")) > longest:
                return f"came back at rank {rank}, longer than {longest} words"
            if isinstance(cap, int) and len(search.collected) >= cap:
                return f"came back at rank {rank} when {cap} passages were collected"
            return f"came back at rank {rank} and was left out, as a duplicate may be"
    return "is not among what the reader was given"


def _named(trace: Trace, gold: Gold) -> tuple[int, str]:
    """Place and title of a gold passage; its id where no title is known."""
    if gold.title or not gold.id:
        return gold.place, gold.title
    hits = (hit.passage for search in trace.searches for hit in search.hits)
    title = next((p.title for p in hits if p.id == gold.id), "")
    return gold.place, title or gold.id
