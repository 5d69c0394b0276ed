"""The report in a real browser: its script runs, its links open traces, nothing overflows."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser import CHROMIUM, Browser
from made_traces import CARMEN, MERIMEE, QUESTION, ULM, Written, run_folder
from multihop.comparison import compare, page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed (chromium, google-chrome)"),
]

HOSTILE = "<img src=x onerror='document.title=1'><script>document.title=2</script>"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    places = []
    for seed, name in enumerate(("ircot", "oner", "nor")):
        draw, traces = random.Random(seed), []
        for n in range(12):
            asked = replace(QUESTION, id=f"q{n}", kind=("bridge", "comparison")[n % 2])
            if n == 5:
                asked = replace(asked, text=HOSTILE)
            run = Written(asked, name).search(CARMEN, draw.choice([MERIMEE, ULM])).think(HOSTILE)
            traces.append(run.answer(draw.choice(["Cannes", "Paris", HOSTILE, "x" * 300])))
        places.append(run_folder(folder / name, traces, name))
    into = folder / "report.html"
    page.write(compare(places, samples=100), into)
    return into


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def complaints(browser: Browser) -> list[str]:
    """What the browser has to say against the page: errors, refused scripts, requests."""
    found = []
    for event in browser.events:
        method, params = event.get("method"), event.get("params", {})
        if method in ("Log.entryAdded", "Runtime.exceptionThrown"):
            found.append(str(params))
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith("file:") or not url.partition("#")[0].endswith("report.html"):
                found.append(url)
    return found


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 380])
def test_the_page_fits_its_window_and_asks_for_nothing(browser, report, width, dark) -> None:
    browser.open(report, width=width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.title").startswith("ircot, oner, nor")
    assert browser.run("document.images.length + document.scripts.length") == 1
    shade = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (shade == "rgb(255, 255, 255)") is not dark
    assert complaints(browser) == []


def test_text_stands_out_from_what_is_behind_it(browser, report) -> None:
    script = """
    (() => {
      const light = (c) => {
        const [r, g, b] = c.match(/[\\d.]+/g).map((v) => v / 255)
          .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const behind = (e) => {
        for (; e; e = e.parentElement) {
          const c = getComputedStyle(e).backgroundColor;
          if (!c.endsWith(", 0)")) return c;
        }
        return "rgb(255, 255, 255)";
      };
      const poor = [];
      for (const e of document.querySelectorAll("p, a, th, td, small, .badge, h2, li, button")) {
        const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(e.outerHTML.slice(0, 80));
      }
      return poor;
    })()"""
    for dark in (False, True):
        browser.open(report, dark=dark)
        assert browser.run(script) == []


def test_a_link_opens_its_trace(browser, report) -> None:
    browser.open(report)
    opened = "document.querySelectorAll('details.question[open]').length"
    assert browser.run(opened) == 0
    browser.run("document.querySelector('#questions a').click()")
    browser.run("new Promise((done) => setTimeout(done, 50))")
    assert browser.run(opened) == 1
    assert browser.run("document.querySelector(location.hash).open") is True
    browser.run("document.querySelector('[data-fold=open]').click()")
    assert browser.run(opened) == 12
    browser.run("document.querySelector('[data-fold=close]').click()")
    assert browser.run(opened) == 0


def test_the_table_is_filtered_by_words_type_and_outcome(browser, report) -> None:
    browser.open(report)
    shown = "[...document.querySelectorAll('#all tbody tr')].filter((r) => !r.hidden).length"

    def choose(name: str, value: str) -> int:
        browser.run(
            f"(e => {{ e.value = {value!r}; e.dispatchEvent(new Event('input')) }})"
            f"(document.getElementById({name!r}))"
        )
        return browser.run(shown)

    assert browser.run(shown) == 12
    assert choose("f-words", "onerror") >= 1
    assert choose("f-words", "") == 12
    assert choose("f-kind", "0") == 6
    assert choose("f-kind", "") == 12
    right, wrong = choose("f-outcome", "0-right"), choose("f-outcome", "0-wrong")
    assert (right > 0, right + wrong) == (True, 12)
    assert (
        browser.run("document.getElementById('f-said').textContent") == f"{wrong} of 12 questions"
    )


def test_the_table_is_sorted_with_the_keyboard(browser, report) -> None:
    browser.open(report)
    head = "document.querySelectorAll('#all th button')[1]"
    order = "[...document.querySelectorAll('#all tbody tr')].map((r) => +r.cells[1].dataset.v)"
    browser.run(f"{head}.focus()")
    browser.key("Enter", 13)
    assert browser.run(f"{head}.parentElement.ariaSort") == "ascending"
    assert browser.run(order) == sorted(browser.run(order))
    browser.key("Enter", 13)
    assert browser.run(order) == sorted(browser.run(order), reverse=True)


def test_without_scripts_everything_but_the_controls_is_there(browser, report) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(report)
        assert (
            browser.run("getComputedStyle(document.querySelector('.controls')).display") == "none"
        )
        assert browser.run("document.querySelectorAll('#all tbody tr').length") == 12
        assert browser.run("document.querySelectorAll('details.question').length") == 12
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)


def test_in_print_only_opened_traces_remain(browser, report) -> None:
    browser.open(report)
    browser.send("Emulation.setEmulatedMedia", media="print")
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    closed = "getComputedStyle(document.querySelector('details.question')).display"
    assert browser.run(closed) == "none"
    browser.send("Emulation.setEmulatedMedia", media="")
