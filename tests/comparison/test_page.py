"""The report: everything in one file, everything escaped, no larger than it must be."""

import random
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from made_traces import CARMEN, MERIMEE, QUESTION, TOULON, ULM, Written, failed, run_folder
from multihop.comparison import CLASSES, compare, page, plots, tables
from multihop.comparison.choice import examples
from multihop.comparison.sections import headlines
from multihop.text import Passage
from multihop.trace import Trace

EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;</style></svg>\x1b[2J\u202e\ud800"
)
VOID = {"meta", "input", "br", "img"}


class Parsed(HTMLParser):
    """A page's tags, attributes and text; complains of tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def question(n: int, **changes):
    return replace(QUESTION, id=f"q{n}", kind=("bridge", "comparison")[n % 2], **changes)


def some(strategy: str, count: int, seed: int) -> list[Trace]:
    """Traces of every diagnosis."""
    draw = random.Random(seed)
    found = []
    for n in range(count):
        run = Written(question(n), strategy, max_passages=2)
        match draw.randrange(6):
            case 0:
                trace = run.search(CARMEN, MERIMEE).think("So.").answer("Cannes")
            case 1:
                trace = run.search(CARMEN, ULM).think("By Bizet.").answer("Paris")
            case 2:
                trace = run.search(ULM, TOULON).search(CARMEN, MERIMEE, keep=()).answer("Ulm")
            case 3:
                trace = run.search(CARMEN, MERIMEE).answer("Paris", "max_steps")
            case 4:
                trace = run.search(CARMEN).answer("the town of Cannes", "empty")
            case _:
                trace = run.search(CARMEN).think("Prosper Mérimée wrote it.").answer("Paris")
        found.append(trace)
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    places = [
        run_folder(folder / name, [*some(name, 24, seed), failed(question(90))], name)
        for seed, name in enumerate(("ircot", "oner"))
    ]
    into = folder / "report.html"
    page.write(compare(places, samples=100), into)
    return into.read_text("utf-8"), into


def test_the_page_is_whole_and_asks_nothing_of_anyone(report) -> None:
    text, _ = report
    parsed = Parsed(text)
    for _, attributes in parsed.tags:
        for name in ("src", "action", "data", "xlink:href", "srcset"):
            assert name not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"url\(|@import|https?:", text)
    assert "default-src 'none'" in text
    assert len(parsed.of("script")) == 1


def test_the_only_script_is_the_one_that_the_page_allows(report) -> None:
    import base64
    import hashlib

    text, _ = report
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert not re.search(r"\son\w+=", text.replace(script, ""))


def test_links_and_labels_lead_to_something_that_is_there_once(report) -> None:
    text, _ = report
    parsed = Parsed(text)
    ids = Counter(a["id"] for _, a in parsed.tags if "id" in a)
    assert set(ids.values()) == {1}
    wanted = [a["href"][1:] for a in parsed.of("a") if a.get("href")]
    for _, attributes in parsed.tags:
        for name in ("aria-labelledby", "aria-describedby"):
            wanted += (attributes.get(name) or "").split()
    assert wanted
    assert set(wanted) <= set(ids)


def test_pictures_and_tables_can_be_read_aloud(report) -> None:
    parsed = Parsed(report[0])
    pictures = [a for a in parsed.of("svg") if a.get("role") == "img"]
    assert len(pictures) == 6
    assert all("aria-labelledby" in a for a in pictures)
    assert len(parsed.of("title")) > len(pictures)
    assert len(parsed.of("desc")) == len(pictures)
    assert parsed.of("th")
    assert all(a.get("scope") in ("row", "col") for a in parsed.of("th"))
    assert parsed.of("html") == [{"lang": "en"}]
    regions = [a for _, a in parsed.tags if a.get("tabindex") == "0"]
    assert all(a.get("aria-label") for a in regions)


def test_every_diagnosis_has_a_count_and_up_to_three_examples(report) -> None:
    text, into = report
    places = [into.parent / name for name in ("ircot", "oner")]
    found = compare(places, samples=100)
    for run in found.runs:
        counted = Counter(row.diagnosis.name for row in found.rows(run) if row.diagnosis)
        assert set(counted) >= set(CLASSES) - {"label doubt", "cannot tell"}
        for name, number in counted.items():
            assert len(examples(found, run, name)) == min(3, number)
    for name in ("hop miss", "crowded out", "composition miss", "stop miss", "format miss"):
        assert f"{name}</span> examples" in text


def test_failures_are_counted_and_told(report) -> None:
    text, _ = report
    assert "24 of 25 questions" in text
    assert "LMError: The model fell over." in text


def hostile(tmp_path: Path) -> list[Path]:
    bad = Passage(EVIL, EVIL, f"{EVIL} is here and there, in a text of more than eight words.")
    asked = replace(
        QUESTION,
        id=EVIL,
        text=EVIL,
        answers=(EVIL,),
        gold_ids=(EVIL,),
        gold_titles=(EVIL,),
        kind=EVIL,
    )
    other = replace(asked, id="other", kind="x")
    places = []
    for name in ("one", "two"):
        run = Written(asked, name, lm=EVIL, evil=[EVIL]).search(bad, query=EVIL).think(EVIL)
        wrong = run.answer("Paris", written=EVIL)
        right = Written(other, name).search(bad).answer(EVIL)
        lost = failed(replace(asked, id=f"{EVIL}3"), EVIL)
        folder = run_folder(tmp_path / f"<b>{name}", [wrong, right, lost], f"<i>{name}{EVIL[:40]}")
        places.append(folder)
    return places


def test_hostile_text_is_shown_and_never_obeyed(tmp_path) -> None:
    into = tmp_path / "report.html"
    found = compare(hostile(tmp_path), samples=100)
    page.write(found, into)
    text = into.read_text("utf-8")
    parsed = Parsed(text)
    assert len(parsed.of("script")) == 1
    assert not parsed.of("img")
    assert {tag for tag, _ in parsed.tags} < {
        *("html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section"),
        *("h1", "h2", "h3", "h4", "p", "b", "i", "em", "code", "small", "span", "ul", "ol", "li"),
        *("dl", "dt", "dd", "a", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"),
        *("figure", "figcaption", "svg", "desc", "line", "text", "rect", "circle", "polygon"),
        *("polyline", "div", "label", "input", "select", "option", "optgroup", "button", "script"),
    }
    assert not any(name.startswith("on") for _, a in parsed.tags for name in a)
    for raw in ("\x1b", "\u202e", "\ud800", "<script>alert", "<i>one"):
        assert raw not in text
    assert "<script>alert(1)</script>" in parsed.text
    assert "<U+202E>" in parsed.text


def test_hostile_text_is_harmless_in_markdown_and_csv(tmp_path) -> None:
    import csv
    import io

    asked = replace(QUESTION, id="=1+1", answers=("Cannes",))
    places = [
        run_folder(tmp_path / name, [Written(asked, name).answer(said)], f"{name}|<b>")
        for name, said in (("one", "=cmd|' /C calc'!A0"), ("two", "@x\x1b[2J\ud800"))
    ]
    found = compare(places, samples=100)
    for line in tables.markdown(found).splitlines():
        assert "<b>" not in line
        assert len(re.findall(r"(?<!\\)\|", line)) in (0, 7, 4)
    one, two = csv.DictReader(io.StringIO(tables.questions_csv(found)))
    assert one["id"] == "'=1+1"
    assert one["answer"] == "'=cmd|' /C calc'!A0"
    assert two["answer"] == "'@x␛[2J<U+D800>"
    assert float(one["em"]) == 0
    assert tables.questions_csv(found).encode()


def test_traces_beyond_the_limit_are_left_out_and_the_page_says_so(tmp_path) -> None:
    places = [
        run_folder(tmp_path / name, some(name, 40, seed), name)
        for seed, name in enumerate(("ircot", "oner"))
    ]
    found = compare(places, samples=100)
    into = tmp_path / "report.html"
    assert page.write(found, into, traces=5) == 5
    text = into.read_text("utf-8")
    assert text.count('<details class="question"') == 5
    assert "The traces of 35 other questions are left out" in text
    assert page.write(found, into, traces=1000) == 40
    assert "left out to keep" not in into.read_text("utf-8")
    assert page.write(found, into, traces=0) == 0
    Parsed(into.read_text("utf-8"))


def test_only_so_much_of_a_question_goes_into_the_page(tmp_path) -> None:
    draw = random.Random(1)
    words = [f"word{n}" for n in range(5000)]
    long = [Passage(f"p{n}", f"Title {n}", " ".join(draw.choices(words, k=300))) for n in range(15)]
    places = []
    for name in ("ircot", "oner", "nor"):
        traces = [
            Written(question(n), name).search(*long).think("A thought. " * 20).answer("Paris " * 10)
            for n in range(100)
        ]
        places.append(run_folder(tmp_path / name, traces, name))
    found = compare(places, samples=100)
    into = tmp_path / "report.html"
    page.write(found, into)
    fixed = 60 * 3 * 15 * 800  # passages of the traces shown
    assert into.stat().st_size < fixed + 100 * 2000


def test_the_headlines_say_what_holds_and_what_does_not(tmp_path) -> None:
    right = [
        Written(question(n), "ircot").search(CARMEN, MERIMEE).answer("Cannes") for n in range(30)
    ]
    wrong = [Written(question(n), "oner").search(CARMEN).answer("Ulm") for n in range(30)]
    same = [Written(question(n), "nor").answer("Lyon") for n in range(30)]
    places = [
        run_folder(tmp_path / name, traces, name)
        for name, traces in (("oner", wrong), ("ircot", right), ("nor", same))
    ]
    said = " ".join(headlines(compare(places, samples=1000)))
    assert "All figures are over all 30 questions, which all runs have finished." in said
    assert "<b>ircot</b> has the highest F1 %: 100.0." in said
    assert "<b>ircot</b> is 100.0 points above <b>oner</b>, p &lt; 0.001 after Holm." in said
    assert "<b>nor</b> cannot be told from <b>oner</b> (0.0 points), p = 1 after Holm." in said


def test_ticks_are_round_and_cover_the_range() -> None:
    assert plots.ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert plots.ticks(0, 73)[-1] >= 73
    assert plots.ticks(0, 0.0125) == [0, 0.0025, 0.005, 0.0075, 0.01, 0.0125]
    assert plots.ticks(4, 4) == [4]


def test_a_plot_of_one_value_is_still_a_plot() -> None:
    for value in (0.0, 1e-9, 1.0, 1e12):
        point = plots.Point("a", 0, value, value)
        for drawn in (
            plots.scatter("t", "a", "x", "y", [point]),
            plots.lines("t", "a", "x", "y", [plots.Line("a", 0, [(0.0, value)])]),
            plots.dots("t", "a", "", "y", [("g", [point])]),
            plots.bars("t", "a", "", [plots.Bar("a", [("right", "right", 1)])]),
        ):
            assert "nan" not in drawn
            assert "inf" not in drawn
            Parsed(drawn)
