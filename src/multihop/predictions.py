"""A run's predictions in the formats that the data sets' own scripts read.

    format           file                                           script
    hotpotqa         {"answer": {id: text}, "sp": {id: []}}         hotpot_evaluate_v1.py
    2wikimultihopqa  the same and "evidence": {id: []}              2wikimultihop_evaluate_v1.1.py
    musique          JSON lines: id, predicted_answer,              evaluate_v1.0.py
                     predicted_support_idxs, predicted_answerable
    drop             {id: text or [text, ...]}; reads IIRC too      drop_eval.py (AllenNLP)
    strategyqa       {id: {"answer": bool, "paragraphs": [id]}}     strategyqa-evaluator, eval.py
    fanoutqa         JSON lines: id, answer                         fanoutqa.eval
    ircot            {id: text or [text, ...]}                      IRCoT's evaluate.py
    ircot_pids       {id: [pid, ...]}                               the same, for retrieval

Our strategies predict answers and passages. What else a format asks for is written so that the
script runs, and named in `Format.lacks`: those of its numbers mean nothing.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from multihop import evaluation, files, runs
from multihop.errors import BadInput
from multihop.metrics.support import collected_passages, pid
from multihop.text import Json, Question
from multihop.trace import Trace

Write = Callable[[Mapping[str, Trace | None]], Iterator[str]]
"""A file's text, in parts, out of the traces by question id; None where nothing was predicted."""


@dataclass(frozen=True, slots=True)
class Format:
    """One script's format.

    Attributes:
        write: Writes the file.
        complete: The script wants every question of its gold file; else it scores what is missing
            as wrong.
        ordered: It wants them in the gold file's order.
        lacks: What it asks for and we do not predict, in words; empty when there is nothing.
    """

    write: Write
    complete: bool = False
    ordered: bool = False
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Predictions:
    """What was written.

    Attributes:
        questions: Questions with a prediction, an empty one too.
        missing: Questions without: failed, or not asked yet.
        notes: What to know about the file, a sentence each.
    """

    questions: int
    missing: int
    notes: tuple[str, ...]


def write(
    folder: Path,
    path: Path,
    form: str | None = None,
    *,
    questions: Iterable[Question] | None = None,
    allow_missing: bool = False,
) -> Predictions:
    """Write a run's predictions.

    Args:
        folder: The run.
        path: The file; replaced at once when it is complete.
        form: One of `FORMATS`; None is that of the questions' data set.
        questions: The questions asked, in the order wanted; None is the order in which they were
            finished.
        allow_missing: Write the file although questions have no prediction. They are left out, or
            stand there with an empty answer where the script wants every question.

    Raises:
        BadInput: No such format, or none for the data set; a question has no prediction; the
            format wants an order and `questions` is not given; they are not those of the run.
    """
    found = {trace.question.id: trace for trace in evaluation.finished(folder)}
    chosen = FORMATS[_named(form or _dataset(found, folder))]
    if chosen.ordered and questions is None:
        raise BadInput(
            f"{folder}: this format wants the questions in their file's order. Name the file "
            "with --questions."
        )
    if questions is None:
        names = list(found)
        manifest = runs.manifest(folder).get("questions")
        asked = manifest.get("count") if isinstance(manifest, dict) else None
        unasked = max(0, asked - len(found)) if isinstance(asked, int) else 0
    else:
        names, unasked = [question.id for question in questions], 0
        if strange := next(iter(found.keys() - set(names)), None):
            raise BadInput(
                f"{folder}: has a question {strange!r} that is not among those of --questions. "
                "Name the file that the run was asked."
            )
    predicted = {name: _finished(found.get(name)) for name in names}
    without = [name for name, trace in predicted.items() if trace is None]
    missing = len(without) + unasked
    if missing and not allow_missing:
        first = f", first {without[0]!r}" if without else ""
        raise BadInput(
            f"{folder}: {missing} questions have no prediction{first}: they failed or were not "
            "asked yet. Finish the run (multihop eval --retry-failed), or allow it with "
            "--allow-missing."
        )
    if not chosen.complete:
        predicted = {name: trace for name, trace in predicted.items() if trace}
    if not path.parent.is_dir():
        raise BadInput(f"{path}: the folder {path.parent} does not exist. Make it first.")
    files.write(path, "".join(chosen.write(predicted)))
    notes = [chosen.lacks] if chosen.lacks else []
    if missing:
        how = "stand there with an empty answer" if chosen.complete else "are left out"
        notes.append(f"{missing} questions have no prediction; those known {how}.")
    if chosen is FORMATS["strategyqa"]:
        notes += _strategyqa_notes(predicted)
    return Predictions(len(names) - len(without), missing, tuple(notes))


def _named(form: str) -> str:
    if form not in FORMATS:
        raise BadInput(f"No format is named {form!r}. Known: {', '.join(FORMATS)}.")
    return form


def _dataset(found: Mapping[str, Trace], folder: Path) -> str:
    """The format of the data set that all questions are of."""
    sets = {str(trace.question.extra.get("dataset", "")) for trace in found.values()}
    [name, *others] = sorted(sets) or [""]
    name = {"iirc": "drop"}.get(name, name)
    if others or name not in FORMATS:
        raise BadInput(
            f"{folder}: no format follows from the questions' data set "
            f"({', '.join(filter(None, sorted(sets))) or 'they name none'}). Choose one with "
            f"--format: {', '.join(FORMATS)}."
        )
    return name


def _finished(trace: Trace | None) -> Trace | None:
    return trace if trace and trace.answer and not trace.error else None


# --- What is written of one question ---------------------------------------------------------


def _text(trace: Trace | None) -> str:
    """The answer as one text; parts are joined by blanks, as our metrics do."""
    answer = trace.answer if trace else None
    return (" ".join(answer.answers) or answer.text) if answer else ""


def _parts(trace: Trace | None) -> Json:
    """The answer's parts where it is a list, else its text."""
    answer = trace.answer if trace else None
    if answer is None:
        return ""
    return list(answer.answers) if answer.answers else answer.text


def _yes(trace: Trace | None) -> bool | None:
    """What an answer's first word says: yes or true, no or false; None for anything else."""
    words = _text(trace).lower().replace(",", " ").replace(".", " ").split()
    return {"yes": True, "true": True, "no": False, "false": False}.get(words[0]) if words else None


# --- The files -------------------------------------------------------------------------------


def _hotpotqa(traces: Mapping[str, Trace | None]) -> Iterator[str]:
    yield _object(
        {
            "answer": {name: _text(trace) for name, trace in traces.items()},
            "sp": {name: [] for name in traces},
        }
    )


def _two_wiki(traces: Mapping[str, Trace | None]) -> Iterator[str]:
    yield _object(
        {
            "answer": {name: _text(trace) for name, trace in traces.items()},
            "sp": {name: [] for name in traces},
            "evidence": {name: [] for name in traces},
        }
    )


def _musique(traces: Mapping[str, Trace | None]) -> Iterator[str]:
    for name, trace in traces.items():
        yield _object(
            {
                # Twins of the full files share an id there, and are told apart here.
                "id": name.removesuffix("/unanswerable"),
                "predicted_answer": _text(trace),
                "predicted_support_idxs": [],
                "predicted_answerable": bool(_text(trace)),
            }
        )


def _by_id(of: Callable[[Trace | None], Json]) -> Write:
    def written(traces: Mapping[str, Trace | None]) -> Iterator[str]:
        yield _object({name: of(trace) for name, trace in traces.items()})

    return written


def _strategyqa(traces: Mapping[str, Trace | None]) -> Iterator[str]:
    published = _published_paragraphs(traces)
    found: dict[str, Json] = {}
    for name, trace in traces.items():
        record: dict[str, Json] = {"answer": _yes(trace)}
        if published:  # in all records or in none
            record["paragraphs"] = list(trace.collected) if trace else []
        found[name] = record
    yield _object(found)


def _published_paragraphs(traces: Mapping[str, Trace | None]) -> bool:
    """Whether the passages bear the data set's own ids, "<title>-<number>"."""
    passages = [p for trace in traces.values() if trace for p in collected_passages(trace)]
    return bool(passages) and all(
        p.id.rpartition("-")[0] == p.title and p.id.rpartition("-")[2].isdigit() for p in passages
    )


def _strategyqa_notes(traces: Mapping[str, Trace | None]) -> list[str]:
    notes = []
    if odd := sum(trace is not None and _yes(trace) is None for trace in traces.values()):
        notes.append(f"{odd} answers say neither yes nor no, and are null: wrong to the script.")
    if not _published_paragraphs(traces):
        notes.append(
            'Paragraphs are left out: the passages do not bear the data set\'s ids ("Title-1").'
        )
    return notes


def _fanoutqa(traces: Mapping[str, Trace | None]) -> Iterator[str]:
    for name, trace in traces.items():
        answer = trace.answer if trace else None
        yield _object({"id": name, "answer": answer.text if answer else ""})


def _pids(trace: Trace | None) -> Json:
    return [pid(p.title, p.text) for p in collected_passages(trace)] if trace else []


def _object(value: Mapping[str, Json]) -> str:
    """ASCII, so that halves of surrogate pairs survive, and one line."""
    return json.dumps(value) + "\n"


FORMATS: Mapping[str, Format] = {
    "hotpotqa": Format(
        _hotpotqa,
        lacks="Supporting sentences are not predicted: sp_* and joint_* mean nothing.",
    ),
    "2wikimultihopqa": Format(
        _two_wiki,
        lacks="Supporting sentences and evidence triples are not predicted: sp_*, evi_* and "
        "joint_* mean nothing.",
    ),
    "musique": Format(
        _musique,
        complete=True,
        ordered=True,
        lacks="Supporting paragraphs are not predicted: support_f1 means nothing. Whether a "
        "question is answerable is not judged either: one with an answer is called so.",
    ),
    "drop": Format(_by_id(_parts)),
    "strategyqa": Format(
        _strategyqa, complete=True, lacks="Decompositions are not predicted, and left out."
    ),
    "fanoutqa": Format(_fanoutqa),
    "ircot": Format(_by_id(_parts), complete=True),
    "ircot_pids": Format(_by_id(_pids), complete=True),
}
"""By name; that of a data set is its own."""
