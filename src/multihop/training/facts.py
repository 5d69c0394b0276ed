"""Facts as the first sentences of encyclopedia articles state them, and how a chain says them.

Rules over text, for English: a fact that no rule is sure of is left out. They turn passages that
nobody annotated into questions of one hop and into comparisons, which a small model has to learn
before it can do either in the middle of a chain.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from multihop.text import Passage

Order = Literal["earlier", "later"]

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MONTH = "|".join(_MONTHS)
_DATE = rf"(?:\d{{1,2}} (?:{_MONTH}) \d{{3,4}}|(?:{_MONTH}) \d{{1,2}}, ?\d{{3,4}}|\d{{4}})"
_UPPER = "[A-ZÀ-ÖØ-ÞĀ-Ž]"
_WORD = rf"(?:{_UPPER}\.(?:{_UPPER}\.)*|(?:St|Jr|Sr|Dr)\.|{_UPPER}[\w'’-]*)"
_NAME = rf"{_WORD}(?: (?:(?:de|von|van|da|di|del|la|bin|al|el|of|the|der|den) ){{0,2}}{_WORD})*"
_BORN = re.compile(rf"\b[Bb]orn (?:[^()\d]{{0,60}}?)({_DATE})")
_LIFE = re.compile(rf"({_DATE})(?:[^()\d–]{{0,60}}?)\s?[–-]\s?(?:[^()\d–]{{0,60}}?)({_DATE})")
_BRACKET = re.compile(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_BIRTHPLACE = re.compile(rf"\b[Bb]orn (?:on {_DATE} )?(?:in|at) ({_NAME}(?:, {_NAME})?)")
_CHILD = re.compile(rf"\b(?:son|daughter) of (?:the )?({_NAME})")
_DIRECTED = re.compile(rf"\b(?:directed|helmed)(?: and \w+)? by ({_NAME})")
_PERFORMED = re.compile(
    rf"\b(?:song|single|album) (?:recorded |performed |written )?(?:by|from)"
    rf"(?: [A-Za-z-]+){{0,4}}? (?:band|group|singer|rapper|duo|artist|musician) ({_NAME})"
)
_MADE = re.compile(
    r"\b(?:is|was) an? (\d{4}) (?:[\w-]+ ){0,5}?"
    r"(?:film|movie|song|album|novel|documentary|drama|comedy)"
)
_IS = re.compile(r"\b(?:is|was) (?:an?|the) ([^.;]{3,80})")

DEMONYMS: Mapping[str, str] = {
    word: country
    for country, words in {
        "United States": "American U.S. US United_States",
        "United Kingdom": "British English Scottish Welsh England Scotland United_Kingdom UK",
        "India": "Indian India",
        "France": "French France",
        "Germany": "German Germany",
        "Italy": "Italian Italy",
        "Spain": "Spanish Spain",
        "Canada": "Canadian Canada",
        "Australia": "Australian Australia",
        "Japan": "Japanese Japan",
        "China": "Chinese China",
        "Russia": "Russian Russia",
        "Soviet Union": "Soviet",
        "Sweden": "Swedish Sweden",
        "Norway": "Norwegian Norway",
        "Denmark": "Danish Denmark",
        "Finland": "Finnish Finland",
        "Netherlands": "Dutch Netherlands",
        "Belgium": "Belgian Belgium",
        "Austria": "Austrian Austria",
        "Switzerland": "Swiss Switzerland",
        "Poland": "Polish Poland",
        "Hungary": "Hungarian Hungary",
        "Romania": "Romanian Romania",
        "Greece": "Greek Greece",
        "Turkey": "Turkish Turkey",
        "Iran": "Iranian Iran",
        "Israel": "Israeli Israel",
        "Egypt": "Egyptian Egypt",
        "Mexico": "Mexican Mexico",
        "Brazil": "Brazilian Brazil",
        "Argentina": "Argentine Argentinian Argentina",
        "Chile": "Chilean Chile",
        "Ireland": "Irish Ireland",
        "Ukraine": "Ukrainian Ukraine",
        "Portugal": "Portuguese Portugal",
        "Pakistan": "Pakistani Pakistan",
        "New Zealand": "New_Zealand",
        "South Korea": "South_Korean South_Korea Korean",
        "South Africa": "South_African South_Africa",
        "Philippines": "Filipino Philippine Philippines",
        "Czech Republic": "Czech",
        "Serbia": "Serbian Serbia",
        "Croatia": "Croatian Croatia",
        "Bulgaria": "Bulgarian Bulgaria",
        "Thailand": "Thai Thailand",
        "Indonesia": "Indonesian Indonesia",
        "Nigeria": "Nigerian Nigeria",
        "Iceland": "Icelandic Iceland",
        "Estonia": "Estonian Estonia",
        "Cuba": "Cuban Cuba",
        "Colombia": "Colombian Colombia",
        "Malaysia": "Malaysian Malaysia",
        "Sri Lanka": "Sri_Lankan Sri_Lanka",
        "Bangladesh": "Bangladeshi Bangladesh",
    }.items()
    for word in (w.replace("_", " ") for w in words.split())
}
"""Country by the words that name it or what comes from it."""

_DEMONYM = re.compile(
    r"\b(" + "|".join(sorted(map(re.escape, DEMONYMS), key=len, reverse=True)) + r")\b"
)

STATEMENTS: Mapping[str, str] = {
    "date of birth": "{s} was born on {v}.",
    "date of death": "{s} died on {v}.",
    "place of birth": "{s} was born in {v}.",
    "place of death": "{s} died in {v}.",
    "director": "{s} was directed by {v}.",
    "performer": "{s} was performed by {v}.",
    "composer": "The music of {s} was composed by {v}.",
    "publication date": "{s} was released in {v}.",
    "country of citizenship": "The nationality of {s} is {v}.",
    "father": "The father of {s} is {v}.",
    "mother": "The mother of {s} is {v}.",
    "spouse": "The spouse of {s} is {v}.",
    "author": "{s} was written by {v}.",
    "located in the administrative territorial entity": "{s} is located in {v}.",
    "located in": "{s} is located in {v}.",
    "shares border with": "{s} shares a border with {v}.",
    "instance of": "{s} is an instance of {v}.",
    "part of": "{s} is part of {v}.",
    "capital of": "{s} is the capital of {v}.",
    "member of sports team": "{s} plays for {v}.",
}
"""How a chain states a relation; one that is not here is "The RELATION of S is V."."""

QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "date of birth": ("When was {s} born?", "What is the date of birth of {s}?"),
    "date of death": ("When did {s} die?", "What is the date of death of {s}?"),
    "place of birth": ("Where was {s} born?", "What is the place of birth of {s}?"),
    "director": ("Who directed {s}?", "Who is the director of {s}?"),
    "father": ("Who is the father of {s}?", "Who is {s}'s father?"),
    "performer": ("Who is the performer of {s}?", "Who performed {s}?"),
    "publication date": ("When was {s} released?", "In which year did {s} come out?"),
    "country of citizenship": ("What nationality is {s}?", "Which country is {s} from?"),
    "country of origin": ("Which country is {s} from?",),
}
"""Questions of one hop by relation."""

COMPARISONS: Mapping[str, tuple[tuple[str, Order], ...]] = {
    "date of birth": (
        ("Who was born first, {a} or {b}?", "earlier"),
        ("Who was born earlier, {a} or {b}?", "earlier"),
        ("Who is older, {a} or {b}?", "earlier"),
        ("Who was born later, {a} or {b}?", "later"),
        ("Who is younger, {a} or {b}?", "later"),
    ),
    "date of death": (
        ("Who died first, {a} or {b}?", "earlier"),
        ("Who died earlier, {a} or {b}?", "earlier"),
        ("Who died later, {a} or {b}?", "later"),
    ),
    "publication date": (
        ("Which film was released first, {a} or {b}?", "earlier"),
        ("Which film came out earlier, {a} or {b}?", "earlier"),
        ("Which film came out first, {a} or {b}?", "earlier"),
        ("Which film was released more recently, {a} or {b}?", "later"),
        ("Which film came out later, {a} or {b}?", "later"),
    ),
}
"""Questions that compare two values in time, and which of the two they want."""

SAME: Mapping[str, tuple[str, ...]] = {
    "country of citizenship": (
        "Are {a} and {b} of the same nationality?",
        "Do {a} and {b} have the same nationality?",
        "Are both {a} and {b} from the same country?",
    ),
    "country of origin": (
        "Are both {a} and {b} from the same country?",
        "Do the films {a} and {b} originate from the same country?",
    ),
}
"""Questions whether two values are the same."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something said of a subject.

    Attributes:
        subject: Whom or what it is about, as the passage's title names it.
        relation: As Wikidata calls it: "date of birth", "director".
        value: As the passage says it.
    """

    subject: str
    relation: str
    value: str

    @property
    def sentence(self) -> str:
        """The fact as a sentence of a chain."""
        pattern = STATEMENTS.get(self.relation, f"The {self.relation} of {{s}} is {{v}}.")
        if "born on" in pattern or "died on" in pattern:
            pattern = pattern.replace(" on ", " in ") if self.value.isdigit() else pattern
        said = pattern.format(s=self.subject, v=self.value)
        return said.removesuffix(".") if said.endswith("..") else said

    @property
    def needed(self) -> str:
        """A sentence that says that the value is to be looked for; it is the next query."""
        return needed(self.relation, self.subject)


def needed(relation: str, subject: str) -> str:
    """The sentence that says what is to be looked for."""
    return f"The {relation} of {subject} is needed."


def bare(title: str) -> str:
    """A title without what tells it from others: "Hypocrite (film)" is "Hypocrite"."""
    return re.sub(r"\s*\([^()]*\)\s*$", "", title).strip() or title


def facts(passage: Passage, words: int) -> list[Fact]:
    """What the shown part of a passage says of the thing that its title names.

    Args:
        passage: Its title is the subject.
        words: Pieces parted by blanks that prompts show of it.
    """
    shown = " ".join(passage.text.split(" ")[:words])
    subject = bare(passage.title)
    found = dict(_of_work(shown)) or dict(_of_person(shown))
    return [Fact(subject, relation, value) for relation, value in found.items() if value]


def _of_work(shown: str) -> Iterator[tuple[str, str]]:
    made = _MADE.search(shown[:300])
    if made:
        yield "publication date", made[1]
        if where := _DEMONYM.search(made[0]):
            yield "country of origin", where[1]
        if by := _DIRECTED.search(shown):
            yield "director", _name(by[1])
        if by := _PERFORMED.search(shown):
            yield "performer", _name(by[1])


def _of_person(shown: str) -> Iterator[tuple[str, str]]:
    bracket = _BRACKET.search(shown[:220])
    if bracket:
        life, born = _LIFE.search(bracket[1]), _BORN.search(bracket[1])
        if life and not bracket[1].lstrip().startswith(("died", "founded", "est")):
            yield "date of birth", life[1]
            yield "date of death", life[2]
        elif born:
            yield "date of birth", born[1]
        if life or born:
            what = _IS.search(shown[bracket.end() :])
            if where := _DEMONYM.search(what[1][:35]) if what else None:
                yield "country of citizenship", where[1]
    if parent := _CHILD.search(shown[:300]):
        yield "father", _name(parent[1])
    place = _BIRTHPLACE.search(shown)
    if place and place[1].split()[0] not in _MONTHS:
        yield "place of birth", _name(place[1])


def _name(text: str) -> str:
    return re.sub(r"'s$|’s$", "", text.strip())


def year(value: str) -> int | None:
    """The year of a date, or None."""
    found = re.findall(r"\b\d{3,4}\b", value)
    return int(found[-1]) if found else None


def date(value: str) -> tuple[int, int, int] | None:
    """A date as (year, month, day), 0 for what it does not say; None for no date."""
    when = year(value)
    if when is None:
        return None
    month = next((n for n, name in enumerate(_MONTHS, 1) if name in value), 0)
    day = re.search(r"\b(\d{1,2})\b", value)
    return when, month, int(day[1]) if day and month else 0


def country(value: str) -> str:
    """The country that a value means, or the value itself."""
    found = _DEMONYM.search(value)
    return DEMONYMS[found[1]] if found else value.strip().lower()


def compared(one: Fact, other: Fact, wanted: Order) -> tuple[str, bool] | None:
    """The sentence that compares two dates, and whether the first is the one wanted.

    It ends in whom it picks, so that the answer is one step from it. None where the dates do not
    differ, or are no dates.
    """
    first, second = date(one.value), date(other.value)
    if not first or not second or first == second:
        return None
    if first[0] != second[0]:
        shown = [str(first[0]), str(second[0])]
    elif all(first) and all(second):
        shown = [one.value, other.value]
    else:
        return None
    picked = (first < second) == (wanted == "earlier")
    if not picked:
        shown.reverse()
    winner = one.subject if picked else other.subject
    return f"Thus, {shown[0]} is {wanted} than {shown[1]}: {winner}.", picked


def same(one: Fact, other: Fact) -> tuple[str, bool]:
    """The sentence that says whether two values are the same, and whether they are."""
    if country(one.value) == country(other.value):
        return f"Thus, {one.value} and {other.value} are the same country.", True
    return f"Thus, {one.value} and {other.value} are not the same country.", False
