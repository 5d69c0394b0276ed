"""Run-level reports under the names and with the rounding of IRCoT's release.

These are for comparing with published figures. Our own tables come from `aggregate.py`.
Spans are what the release scores of a prediction (`prompts.answers.official_evaluated`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from multihop.errors import BadInput
from multihop.metrics import answer as answers
from multihop.metrics.answer import normalize, repair_unicode
from multihop.metrics.base import Score
from multihop.metrics.drop import drop
from multihop.metrics.support import answer_support_recall, support

P = TypeVar("P")
G = TypeVar("G")

Report = dict[str, float]
"""Named numbers of a run, `count` among them."""

DATASET_METRICS: Mapping[str, Callable[[str, Sequence[str]], Score]] = {
    "hotpotqa": answers.hotpotqa,
    "2wikimultihopqa": answers.two_wiki,
    "musique": answers.musique,
}
"""Answer metrics of the data sets' own scripts."""


def drop_report(golds: Mapping[str, Sequence[str]], spans: Mapping[str, Sequence[str]]) -> Report:
    """The release's own answer metric: DROP means, rounded to 3 decimals.

    The `sp_*` numbers treat an answer as a set of titles. They mean nothing, and are here
    because the release prints them; it crashes on answers that begin with "pid" (Pidgin),
    which here are texts like all others.

    Args:
        golds: Per question the spans of its answer; all of them are wanted.
        spans: Per question the predicted spans.

    Raises:
        BadInput: A question has no prediction, or there is no question.
    """
    pairs = _paired(golds, spans)
    scores = [drop(predicted, [gold]) for predicted, gold in pairs]
    titles = support_report(pairs, normalized=True)
    return {
        "em": round(_mean([s.em for s in scores]), 3),
        # The release has these three as NumPy floats, which round the scaled value.
        "f1": _numpy_round(_mean([s.f1 for s in scores]), 3),
        "precision": _numpy_round(_mean([s.precision for s in scores]), 3),
        "recall": _numpy_round(_mean([s.recall for s in scores]), 3),
        "count": len(pairs),
        **{f"sp_{name}": titles[f"title_{name}"] for name in ("em", "f1", "precision", "recall")},
    }


def dataset_report(
    dataset: str, golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str]
) -> Report:
    """Means of a data set's own answer metric, rounded to 3 decimals.

    Args:
        dataset: "hotpotqa", "2wikimultihopqa" or "musique".
        golds: Per question its accepted answers, from the raw files.
        predictions: Per question the answer as one text (see `joined`).

    Raises:
        BadInput: A question has no prediction, there is no question, or no such data set.
    """
    if dataset not in DATASET_METRICS:
        raise BadInput(
            f"No official answer metric for {dataset!r}. Known: {', '.join(DATASET_METRICS)}."
        )
    pairs = _paired(golds, predictions)
    scores = [DATASET_METRICS[dataset](predicted, gold) for predicted, gold in pairs]
    numbers = {
        "f1": _mean([s.f1 for s in scores]),
        "em": _mean([s.em for s in scores]),
        "precision": _mean([s.precision for s in scores]),
        "recall": _mean([s.recall for s in scores]),
    }
    if dataset == "2wikimultihopqa":  # its script prints percent with two decimals
        numbers = {name: round(value * 100, 2) / 100 for name, value in numbers.items()}
    if dataset == "musique":  # its script knows neither
        del numbers["precision"], numbers["recall"]
    return {name: round(value, 3) for name, value in numbers.items()} | {"count": len(pairs)}


def joined(prediction: str | Sequence[object]) -> str | list[object]:
    """A prediction as the release hands it to official scripts: a list's parts as one text.

    Also done before IIRC is scored by DROP, where an answer of several spans loses by it; give
    the unjoined number beside it. An empty list stays.
    """
    if isinstance(prediction, str):
        return prediction
    return " ".join(str(part) for part in prediction) if prediction else []


def support_report(
    pairs: Iterable[tuple[Sequence[str] | None, Sequence[str]]], *, normalized: bool = False
) -> Report:
    """Retrieval as the release reports it: title and paragraph sets, rounded to 3 decimals.

    Items are compared without blanks, in lower case, after `repair_unicode`. A question's
    items are all pids (whose first hash is the title's) or all texts, which count as titles
    and as paragraphs. Without gold, pids are not split. `max_predicted_paras` and
    `min_predicted_paras` are wrong as in the release: the last question's paragraphs against
    the extreme of all questions' titles.

    Args:
        pairs: Per question the predicted and the gold items; None predicts nothing.
        normalized: Items are answers: texts, in SQuAD's normal form.

    Raises:
        BadInput: Pids meet texts, or there is no question.
    """
    titles, paragraphs = [], []
    title_counts, paragraph_counts = [], []
    for number, (predicted, gold) in enumerate(pairs):
        found = [normalize(p) for p in predicted or ()] if normalized else list(predicted or ())
        wanted = [normalize(g) for g in gold] if normalized else list(gold)
        by_pid = not normalized and bool(wanted) and _all_pids(found, wanted, number)
        found_titles = {_title(f) for f in found} if by_pid else set(found)
        wanted_titles = {_title(w) for w in wanted} if by_pid else set(wanted)
        titles.append(support(_clean(found_titles), _clean(wanted_titles)))
        paragraphs.append(support(_clean(found), _clean(wanted)))
        title_counts.append(len(found_titles))
        paragraph_counts.append(len(set(found)))
    if not titles:
        raise BadInput("There is no question to score.")

    report: Report = {}
    for kind, scores in (("title", titles), ("para", paragraphs)):
        for name in ("em", "f1", "precision", "recall"):
            report[f"{kind}_{name}"] = round(_mean([getattr(s, name) for s in scores]), 3)
    return report | {
        "avg_predicted_titles": _mean(title_counts),
        "max_predicted_titles": max(title_counts),
        "min_predicted_titles": min(title_counts),
        "avg_predicted_paras": _mean(paragraph_counts),
        "max_predicted_paras": max(*title_counts, paragraph_counts[-1]),
        "min_predicted_paras": min(*title_counts, paragraph_counts[-1]),
        "count": len(titles),
    }


def answer_support_report(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> Report:
    """Mean `answer_support_recall` and number of paragraphs, rounded to 3 decimals.

    Args:
        pairs: Per question the paragraphs ("title text") and the gold answers.

    Raises:
        BadInput: There is no question.
    """
    every = list(pairs)
    if not every:
        raise BadInput("There is no question to score.")
    return {
        "answer_support_recall": round(
            _mean([answer_support_recall(passages, gold) for passages, gold in every]), 3
        ),
        "avg_predicted_paras": round(_mean([len(passages) for passages, _ in every]), 3),
        "count": len(every),
    }


def _paired(golds: Mapping[str, G], predictions: Mapping[str, P]) -> list[tuple[P, G]]:
    if not golds:
        raise BadInput("There is no question to score.")
    missing = [name for name in golds if name not in predictions]
    if missing:
        raise BadInput(
            f"{len(missing)} of {len(golds)} questions have no prediction, first "
            f"{missing[0]!r}. Finish the run, or score only the questions it answered."
        )
    return [(predictions[name], gold) for name, gold in golds.items()]


def _all_pids(found: Sequence[str], wanted: Sequence[str], number: int) -> bool:
    kinds = {item.count("___") == 2 and item.startswith("pid___") for item in (*found, *wanted)}
    if len(kinds) > 1:
        raise BadInput(
            f"Question {number}: pids are compared with texts. Predict pids where the gold is "
            "pids, and titles where it is titles."
        )
    return kinds == {True}


def _title(name: str) -> str:
    return name.split("___")[1]


def _clean(items: Iterable[str]) -> set[str]:
    return {re.sub(" +", "", repair_unicode(item).lower()) for item in items}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _numpy_round(value: float, digits: int) -> float:
    return round(value * 10.0**digits) / 10.0**digits
