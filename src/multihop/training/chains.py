"""The chain of thought that an annotated question should have.

Out of what the data set gives: a written chain (IRCoT's demonstrations), evidence triples
(2WikiMultihopQA), a decomposition (MuSiQue), or only the gold passages (HotpotQA), whose own
sentences then make the chain. A question for which no rule gives a chain that ends in its answer
has none.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from multihop.prompts.layout import ANSWER
from multihop.prompts.sentences import light
from multihop.text import Passage, Question
from multihop.training import facts
from multihop.training.facts import Fact, Order, bare, compared, same

LONGEST = 45
"""Words of a sentence taken from a passage; a longer one is cut around what it is needed for."""


@dataclass(frozen=True, slots=True)
class Link:
    """One sentence of a chain.

    Attributes:
        sentence: What is written once its passage is there.
        passage: Id of the passage that says it; None for a conclusion.
        needed: What is written while the passage is not there; "" where there is no way to say
            it without knowing it.
    """

    sentence: str
    passage: str | None = None
    needed: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """Links in order, and the answer that they lead to."""

    links: tuple[Link, ...]
    answer: str

    @property
    def statement(self) -> str:
        """Its last sentence."""
        return f"{ANSWER} {self.answer}" + ("" if self.answer.endswith(".") else ".")


def chain(question: Question, gold: Sequence[Passage], words: int) -> Chain | None:
    """The chain of a question, or None where no rule makes one.

    Args:
        question: With answers, and whatever its data set annotates in `extra`.
        gold: Its gold passages, in the order annotated.
        words: Of a passage shown in prompts; a chain says nothing that is not shown.
    """
    if not question.answers or not gold:
        return None
    answer = question.answers[0]
    for rule in (_written, _by_triples, _by_decomposition, _by_relations, _by_sentences):
        links = rule(question, gold, words)
        if links:
            return Chain(tuple(links), answer)
    return None


# --- A chain that somebody wrote -------------------------------------------------------------


def _written(question: Question, gold: Sequence[Passage], _: int) -> list[Link] | None:
    steps = question.extra.get("reasoning_steps")
    if not isinstance(steps, list):
        return None
    known = {passage.id for passage in gold}
    links = []
    for step in steps:
        if not isinstance(step, Mapping):
            return None
        sentence = str(step.get("cot_sentence") or "").strip().rstrip(".") + "."
        if sentence == "." or sentence.startswith(ANSWER):
            continue
        cited = step.get("paragraphs")
        cited = cited if isinstance(cited, list) else []
        ids = [str(p.get("paragraph_id")) for p in cited if isinstance(p, Mapping)]
        links.append(Link(sentence, next((i for i in ids if i in known), None)))
    return links or None


# --- Evidence triples ------------------------------------------------------------------------


def _by_triples(question: Question, gold: Sequence[Passage], words: int) -> list[Link] | None:
    triples = question.extra.get("evidences")
    if not isinstance(triples, list):
        return None
    found: dict[tuple[str, str], Fact] = {}
    for triple in triples:
        if not isinstance(triple, list) or len(triple) != 3:
            return None
        subject, relation, value = map(str, triple)
        found.setdefault((subject, relation), Fact(bare(subject), relation, value))
    return _told(question, list(found.values()), gold, words)


_LOOSE = ("country", "country of citizenship", "country of origin")
"""Relations whose values are often put otherwise: "India" where the passage says "Indian"."""


def _told(
    question: Question, said: Sequence[Fact], gold: Sequence[Passage], words: int
) -> list[Link] | None:
    """Facts in their order as links, and what follows from them.

    None where a passage does not show what it should say: nobody could read it there.
    """
    shown = {p.id: f"{p.title} {' '.join(p.text.split(' ')[:words])}".lower() for p in gold}
    for fact in said:
        text = shown.get(_about(fact.subject, gold) or "", "")
        if (
            fact.relation not in _LOOSE
            and text
            and fact.value.rsplit(maxsplit=1)[-1].lower() not in text
        ):
            return None
    links = [Link(f.sentence, _about(f.subject, gold), f.needed) for f in said]
    last = said[-2:]
    if len(last) < 2 or last[0].relation != last[1].relation or last[0].subject == last[1].subject:
        return links
    conclusion = _conclusion(question, last[0], last[1])
    return [*links, Link(conclusion)] if conclusion else None


def _about(subject: str, gold: Sequence[Passage]) -> str | None:
    wanted = subject.lower()
    for passage in gold:
        if bare(passage.title).lower() == wanted:
            return passage.id
    for passage in gold:
        title = bare(passage.title).lower()
        if wanted in title or title in wanted:
            return passage.id
    return None


def _conclusion(question: Question, one: Fact, other: Fact) -> str | None:
    """What the two last facts of a comparison say together; None when it is not the answer."""
    answer = question.answers[0].strip().lower()
    if answer in ("yes", "no"):
        said, equal = same(one, other)
        return said if equal == (answer == "yes") else None
    wanted = order(question.text)
    if wanted is None:
        return None
    found = compared(one, other, wanted)
    return found[0] if found else None


_LATER = re.compile(
    r"\b(later|younger|youngest|more recently|most recently|last|second)\b", re.IGNORECASE
)
_EARLIER = re.compile(r"\b(earlier|older|oldest|first|earliest|before)\b", re.IGNORECASE)


def order(question: str) -> Order | None:
    """Whether a question wants the earlier or the later of two, if either."""
    if _LATER.search(question):
        return "later"
    return "earlier" if _EARLIER.search(question) else None


# --- A decomposition -------------------------------------------------------------------------


def _by_decomposition(question: Question, gold: Sequence[Passage], words: int) -> list[Link] | None:
    parts = question.extra.get("decomposition")
    if not isinstance(parts, list) or len(parts) != len(gold):
        return None
    answers: list[str] = []
    links = []
    for part, passage in zip(parts, gold, strict=True):
        if not isinstance(part, Mapping):
            return None
        asked = _filled(str(part.get("question", "")), answers).strip().rstrip("?").strip()
        answer = str(part.get("answer", ""))
        text = f"{passage.title} {' '.join(passage.text.split(' ')[:words])}".lower()
        if not asked or not answer or answer.rsplit(maxsplit=1)[-1].lower() not in text:
            return None
        subject, arrow, relation = asked.partition(" >> ")
        if arrow:
            fact = Fact(subject.strip(), relation.strip(), answer)
            links.append(Link(fact.sentence, passage.id, fact.needed))
        else:
            links.append(Link(_declared(asked, answer), passage.id, _missing(asked)))
        answers.append(answer)
    return links


def _filled(asked: str, answers: Sequence[str]) -> str:
    """A sub-question with the answers of earlier ones in place of #1, #2."""

    def earlier(reference: re.Match[str]) -> str:
        number = int(reference[1])
        return answers[number - 1] if 1 <= number <= len(answers) else reference[0]

    return re.sub(r"\s+(?='s)", "", re.sub(r"#(\d+)", earlier, asked))


_IS_IT = re.compile(r"(?:who|what|which) (is|was|are|were) (the .+)", re.IGNORECASE)
_DOES = re.compile(
    r"(?:who|what|which \w+|what \w+) "
    r"((?!is|was|are|were|do|does|did)[a-z]+s|[a-z]+ed|"
    r"wrote|sang|won|made|led|ran|began|founded) (.+)",
    re.IGNORECASE,
)


def _declared(asked: str, answer: str) -> str:
    """A question and its answer as one sentence."""
    if found := _IS_IT.fullmatch(asked):
        said = f"{found[2]} {found[1].lower()} {answer}"
    elif found := _DOES.fullmatch(asked):
        said = f"{answer} {found[1].lower()} {found[2]}"
    else:
        said = f"{asked}: {answer}"
    return said[0].upper() + said[1:] + "."


def _missing(asked: str) -> str:
    return f"It is needed to know {asked[0].lower()}{asked[1:]}."


# --- Only the question's own words -----------------------------------------------------------

_BRIDGES = {
    "director": r"\bdirectors?\b",
    "composer": r"\bcomposer\b",
    "performer": r"\b(?:performer|singer)\b",
    "father": r"\bfather\b",
    "mother": r"\bmother\b",
    "spouse": r"\b(?:husband|wife|spouse)\b",
    "author": r"\bauthor\b",
}
_ASKED = {
    "date of birth": r"\b(?:when .*born|date of birth|born (?:first|earlier|later)|older|younger)",
    "date of death": r"\b(?:when .*\bdie|date of death|died? (?:first|earlier|later))",
    "place of birth": r"\b(?:where .*born|place of birth|birthplace)",
    "place of death": r"\b(?:where .*\bdie|place of death)",
    "country of citizenship": r"\b(?:nationality|which country .* from|same country)",
    "publication date": r"\b(?:released|came out|come out)\b",
    "father": r"\bfather\b",
    "mother": r"\bmother\b",
    "spouse": r"\b(?:husband|wife|spouse)\b",
}

_COMPARED = ("date of birth", "date of death", "publication date", "country of citizenship")


def _named(patterns: Mapping[str, str], question: str) -> str | None:
    """The first relation whose words a question has."""
    return next((r for r, p in patterns.items() if re.search(p, question, re.IGNORECASE)), None)


def _by_relations(question: Question, gold: Sequence[Passage], words: int) -> list[Link] | None:
    """2WikiMultihopQA's questions are made of relations, so their words name them."""
    asked, bridge = _named(_ASKED, question.text), _named(_BRIDGES, question.text)
    titles = [bare(passage.title) for passage in gold]
    if len(gold) == 2 and bridge and asked and asked != bridge:
        if titles[1].lower() in question.text.lower():
            return None
        said = [Fact(titles[0], bridge, titles[1]), Fact(titles[1], asked, question.answers[0])]
        return _told(question, said, gold, words)
    if asked not in (
        "date of birth",
        "date of death",
        "publication date",
        "country of citizenship",
    ):
        return None
    found = [{f.relation: f for f in facts.facts(passage, words)} for passage in gold]
    if len(gold) == 2 and not bridge:
        pair = [
            f.get(asked) or (asked == "country of citizenship" and f.get("country of origin"))
            for f in found
        ]
        said = [fact for fact in pair if fact]
        return _told(question, said, gold, words) if len(said) == 2 else None
    if len(gold) == 4 and bridge:
        values = [f.get(asked) for f in found[2:]]
        if values[0] and values[1]:
            said = [Fact(titles[n], bridge, titles[n + 2]) for n in (0, 1)]
            return _told(question, [*said, values[0], values[1]], gold, words)
    return None


# --- Only the passages -----------------------------------------------------------------------


def _by_sentences(question: Question, gold: Sequence[Passage], words: int) -> list[Link] | None:
    """One sentence of each gold passage: the one that leads on, or that holds the answer."""
    if len(gold) != 2:
        return None
    answer = question.answers[0].strip()
    if answer.lower() in ("yes", "no") or question.kind == "comparison":
        links = [_quoted(passage, _opening(passage, words)) for passage in gold]
        if answer.lower() not in ("yes", "no") and not any(
            answer.lower() in f"{p.title} {p.text}".lower() for p in gold
        ):
            return None
        return links
    for first, second in ((gold[0], gold[1]), (gold[1], gold[0])):
        leading = _sentence_with(first, bare(second.title), words)
        holding = _sentence_with(second, answer, words)
        if leading and holding and bare(second.title).lower() not in question.text.lower():
            return [_quoted(first, leading), _quoted(second, holding)]
    for first, second in ((gold[0], gold[1]), (gold[1], gold[0])):
        holding = _sentence_with(second, answer, words)
        if not holding:
            continue
        leading = _sentence_with(first, bare(second.title), words) or _closest(
            first, question.text, words
        )
        return [_quoted(first, leading), _quoted(second, holding)]
    named = next((p for p in gold if bare(p.title).lower() == answer.lower()), None)
    if named:
        other = next(p for p in gold if p is not named)
        leading = _sentence_with(other, answer, words) or _closest(other, question.text, words)
        return [_quoted(other, leading), _quoted(named, _closest(named, question.text, words))]
    return None


def _shown(passage: Passage, words: int) -> list[str]:
    text = " ".join(passage.text.split(" ")[:words])
    return [s.strip() for s in light(text)]


def _opening(passage: Passage, words: int) -> str:
    return _shown(passage, words)[0]


def _sentence_with(passage: Passage, phrase: str, words: int) -> str | None:
    pattern = re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)", re.IGNORECASE)
    for sentence in _shown(passage, words):
        if found := pattern.search(sentence):
            return _around(sentence, found.start(), found.end())
    return None


def _closest(passage: Passage, question: str, words: int) -> str:
    wanted = set(re.findall(r"\w{4,}", question.lower()))
    sentences = _shown(passage, words)
    best = max(sentences, key=lambda s: len(wanted & set(re.findall(r"\w{4,}", s.lower()))))
    return _around(best, 0, 0)


def _around(sentence: str, begin: int, end: int) -> str:
    """The part of a long sentence that holds what it is needed for, from a border of clauses."""
    if len(sentence.split()) <= LONGEST:
        return sentence
    head = " ".join(sentence.split()[:LONGEST])
    if end <= len(head):
        cut = max(head.rfind(", "), head.rfind("; "))
        return head[:cut] if cut > end else head
    left = max(sentence.rfind(mark, 0, begin) for mark in (", ", "; ", " and ", " who ", " which "))
    return sentence[left + 1 :].strip() if left >= 0 else sentence


def _quoted(passage: Passage, sentence: str) -> Link:
    """A sentence that names its subject: "He was born ..." gets its title before it."""
    said = sentence.strip().rstrip(".") + "."
    title = bare(passage.title)
    if not re.search(rf"(?<!\w){re.escape(title)}", said, re.IGNORECASE):
        last = title.split()[-1]
        said = f"{title}: {said}" if last.lower() not in said.lower() else said
    return Link(said, passage.id, "")
