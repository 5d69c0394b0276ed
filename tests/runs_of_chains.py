"""Small runs with chains that are right and wrong in known places."""

from pathlib import Path

from multihop import runs
from multihop.text import Hit, Passage, Question
from multihop.trace import Answer, LMCall, Search, Thought, Trace

LOST = Passage("lost", "Lost Gravity", "Lost Gravity is a roller coaster built by Mack Rides.")
MACK = Passage("mack", "Mack Rides", "Mack Rides is a company from Waldkirch in Germany.")
WHERE = "Where was Lost Gravity made?"


def search(*passages: Passage) -> Search:
    ids = tuple(p.id for p in passages)
    return Search("q", tuple(Hit(p, 1.0) for p in passages), ids, ids)


def loop(name: str, *sentences: str, passages: tuple[Passage, ...] = (LOST, MACK)) -> Trace:
    return Trace(
        Question(WHERE, id=name, answers=("Germany",)),
        "ircot",
        {"reader": "direct"},
        (search(*passages), *map(Thought, sentences), Answer("Germany", "answered")),
    )


def once(name: str, written: str, reader: str = "cot") -> Trace:
    call = LMCall("read", "scripted", "Q:", (written,), ("stop",), 0.0)
    return Trace(
        Question(WHERE, id=name, answers=("Germany",)),
        "nor",
        {"reader": reader},
        (Answer("Germany", "answered", call=call),),
    )


def folder(path: Path, *traces: Trace) -> Path:
    runs.start(path, {"strategy": traces[0].strategy, "questions": {"count": len(traces)}})
    runs.append(path / runs.TRACES, *traces)
    return path


RIGHT = "Lost Gravity was built by Mack Rides."
WRONG = "Mack Rides is from Italy."
ANSWER = "So the answer is: Germany."


def two_runs(path: Path) -> list[Path]:
    """IRCoT errs in one chain of two, NoR in both; its second chain errs twice."""
    return [
        folder(
            path / "ircot",
            loop("a", RIGHT, "Mack Rides is from Germany.", ANSWER),
            loop("b", RIGHT, WRONG, ANSWER),
        ),
        folder(
            path / "nor",
            once("a", f"{RIGHT} It opened in 1999. {ANSWER}"),
            once("b", f"Lost Gravity is in Ulm. {WRONG} {ANSWER}"),
        ),
    ]
