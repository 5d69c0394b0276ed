"""Names of parts: what opens, what is refused, and how other packages join."""

import re
import tomllib
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Literal

import pytest

from conftest import ROOT
from multihop import names, strategies
from multihop.errors import BadInput
from multihop.retrievers.base import Retriever
from multihop.testing import ScriptedLM, ScriptedRetriever
from multihop.text import Query
from multihop.trace import Trace


def test_an_unknown_kind_is_refused_with_the_nearest_and_all_known() -> None:
    with pytest.raises(BadInput) as refused:
        names.open_retriever("bm26:somewhere")
    assert str(refused.value) == (
        "No retriever is named 'bm26'. Did you mean 'bm25'? Known: bm25, elastic, http, hybrid, "
        "qdrant, rerank."
    )


def test_every_kind_of_ours_can_be_found() -> None:
    for dotted in [*names.RETRIEVERS.values(), *names.RERANKERS.values(), *names.LMS.values()]:
        module, _, attribute = dotted.partition(":")
        path = ROOT / "src" / Path(*module.split("."))
        assert re.search(
            rf"^(class|def) {attribute}\b", path.with_suffix(".py").read_text("utf-8"), re.MULTILINE
        )


def test_a_kind_without_its_target_says_how_to_write_it() -> None:
    with pytest.raises(BadInput, match=r"'bm25' cannot be opened.*path.* Write bm25:TARGET"):
        names.open_retriever("bm25")


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"option of retriever 'bm25' is named 'from'.*'form'"):
        names.open_retriever("bm25:somewhere", {"from": "paper"})


def bring(monkeypatch: pytest.MonkeyPatch, group: str, **parts: str) -> None:
    entries = [EntryPoint(name, value, f"multihop.{group}") for name, value in parts.items()]
    monkeypatch.setattr(
        names, "entry_points", lambda group: [e for e in entries if e.group == group]
    )


class Typed:
    """A retriever that keeps the options it was given."""

    def __init__(
        self,
        target: str,
        *,
        number: int = 1,
        share: float | None = None,
        on: bool = False,
        word: str = "",
        folder: Path | None = None,
        words: tuple[str, ...] = (),
        fields: Mapping[str, object] | None = None,
        which: Literal["a", "b"] = "a",
    ) -> None:
        self.given = locals()


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("number", "3", 3),
        ("share", "2", 2),
        ("share", "0.5", 0.5),
        ("share", "null", None),
        ("on", "true", True),
        ("word", "3", "3"),
        ("folder", "a b", Path("a b")),
        ("words", "a,b", ("a", "b")),
        ("fields", '{"a": 1}', {"a": 1}),
        ("which", "b", "b"),
    ],
)
def test_options_are_read_as_the_types_that_a_part_declares(
    monkeypatch, option, text, value
) -> None:
    bring(monkeypatch, "retrievers", typed="test_names:Typed")
    part = names.open_retriever("typed:x:y", {option: text})
    assert part.given["target"] == "x:y"
    assert part.given[option] == value
    assert type(part.given[option]) is type(value)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("number", "1.5"),
        ("number", "one"),
        ("number", "null"),
        ("on", "1"),
        ("share", "true"),
        ("fields", "[]"),
        ("fields", "[" * 100_000),
    ],
)
def test_an_option_of_another_type_is_refused(monkeypatch, option, text) -> None:
    bring(monkeypatch, "retrievers", typed="test_names:Typed")
    with pytest.raises(BadInput, match=f"option {option}: expected a? ?.*, found"):
        names.open_retriever("typed:x", {option: text})


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("gpt@http://localhost:8000/v1", ("gpt", "http://localhost:8000/v1")),
        ("org/model", ("org/model",)),
        ("@cf/model", ("@cf/model",)),
        ("@cf/model@https://x/v1", ("@cf/model", "https://x/v1")),
        ("", ()),
    ],
)
def test_a_model_and_its_servers_address_are_told_apart(target, parts) -> None:
    assert names.model_at_url(target) == parts


def test_a_part_that_cannot_be_imported_names_its_package_and_the_fault(monkeypatch) -> None:
    bring(monkeypatch, "lms", broken="no_such_module:LM")
    with pytest.raises(BadInput, match=r"'broken'.*no_such_module:LM.*cannot be imported"):
        names.open_lm("broken:x")


def test_a_kind_of_ours_cannot_be_replaced(monkeypatch, tmp_path) -> None:
    bring(monkeypatch, "lms", scripted="no_such_module:LM")
    (tmp_path / "script.json").write_text('{"rules": []}')
    assert names.open_lm(f"scripted:{tmp_path / 'script.json'}").name.startswith("scripted:")


class Silent:
    """A strategy that another package might bring."""

    name = "silent"

    def __init__(self, retriever, lm, patience: int = 1) -> None:
        self.retriever, self.lm, self.patience = retriever, lm, patience


def test_another_packages_strategy_gets_parts_and_options(monkeypatch) -> None:
    bring(monkeypatch, "strategies", silent="test_names:Silent")
    lm, retriever = ScriptedLM(), ScriptedRetriever({})
    made = names.open_strategy(
        "silent",
        retriever=retriever,
        lm=lm,
        preset=None,
        k=None,
        options={"patience": "4"},
    )
    assert (made.retriever, made.lm, made.patience) == (retriever, lm, 4)
    assert names.strategy_names() == [*strategies.NAMES, *names.STRATEGIES, "silent"]
    with pytest.raises(BadInput, match="option of strategy 'silent' is named 'k'"):
        names.open_strategy("silent", retriever=retriever, lm=lm, k=3)


def test_our_strategies_take_options_by_name() -> None:
    made = names.open_strategy(
        "ircot", retriever=ScriptedRetriever({}), lm=ScriptedLM(), options={"eviction": "fifo"}
    )
    assert made.settings["eviction"] == "fifo"
    with pytest.raises(BadInput, match=r"No strategy is named 'ircod'. Did you mean 'ircot'"):
        names.open_strategy("ircod", retriever=None, lm=ScriptedLM())


def words(trace: Trace) -> float:
    return len(trace.question.text.split())


def test_another_packages_metric_is_found_beside_ours(monkeypatch) -> None:
    bring(monkeypatch, "metrics", words="test_names:words")
    assert names.open_metric("words") is words
    assert names.open_metric("gold_recall@15")
    with pytest.raises(BadInput, match="No metric is named 'word'"):
        names.open_metric("word")


async def test_the_package_in_the_docs_works_as_printed(tmp_path, monkeypatch) -> None:
    """Its two files laid out as an installer would, found through importlib.metadata."""
    page = (ROOT / "docs" / "adding-parts.md").read_text("utf-8")
    code, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    project, *_ = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    described = tomllib.loads(project)["project"]
    info = tmp_path / "site" / "multihop_overlap-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n"
    )
    (info / "entry_points.txt").write_text(
        "\n".join(
            f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in entries.items())
            for group, entries in described["entry-points"].items()
        )
    )
    (info.parent / "multihop_overlap.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(info.parent)
    corpus = tmp_path / "passages.jsonl"
    corpus.write_text(
        '{"id": "1", "title": "Rivers", "text": "The Inn is a river in Tyrol."}\n'
        '{"id": "2", "title": "Towns", "text": "Ulm is a town on a river too."}\n'
    )

    retriever = names.open_retriever(f"overlap:{corpus}", {"shortest": "4"})

    assert isinstance(retriever, Retriever)
    [first, second] = await retriever.search([Query("a river town"), Query("The Inn")], k=5)
    assert [hit.passage.id for hit in first] == ["2", "1"]
    assert second == []
