"""Training Adaptive-RAG's router on runs (Jeong et al., NAACL 2024, section 3.2).

A question's label is the cheapest strategy that answered it right. The paper gives questions that
none answered right the label of their data set's kind; with `unanswered` they get one of the user's
choice, the loop by default, or are left out.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from multihop import __version__, runs
from multihop.errors import BadInput, MissingExtra
from multihop.evaluation import finished
from multihop.metrics.traces import em
from multihop.strategies.router import ROUTES, LinearRouter, features
from multihop.text import Json

FOLDS = 5
"""Parts of the cross-validation that the confusion table is of."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Silver labels.

    Attributes:
        by_question: A question's text and its label, in the order of the first run.
        unanswered: How many no strategy answered right.
        costs: Mean tokens of each strategy on these questions.
    """

    by_question: tuple[tuple[str, str], ...]
    unanswered: int
    costs: Mapping[str, float] = field(hash=False)


def label(folders: Sequence[Path], unanswered: str | None = "ircot") -> Labels:
    """Label the questions that all strategies of some runs have answered.

    Args:
        folders: Run folders, or folders of several; of each strategy at least one.
        unanswered: The label of questions that no strategy got right; None leaves them out.

    Raises:
        BadInput: A strategy has no run, or no question was answered by all.
    """
    right: dict[str, dict[str, bool]] = {}
    spent: dict[str, list[int]] = {}
    texts: dict[str, str] = {}
    for folder in (run for given in folders for run in runs.folders(given)):
        for trace in finished(folder):
            if trace.error or (correct := em(trace)) is None:
                continue
            texts.setdefault(trace.question.id, trace.question.text)
            right.setdefault(trace.strategy, {})[trace.question.id] = correct == 1
            tokens = trace.tokens
            spent.setdefault(trace.strategy, []).append(
                (tokens.prompt or 0) + (tokens.generated or 0)
            )
    missing = [name for name in ROUTES if name not in right]
    if missing:
        raise BadInput(
            f"The runs hold nothing of {', '.join(missing)}. Run `multihop eval --strategy "
            f"{','.join(ROUTES)}` on training questions and give its folder."
        )
    shared = [i for i in texts if all(i in right[name] for name in ROUTES)]
    if not shared:
        raise BadInput("No question was answered by all of nor, oner and ircot.")
    costs = {name: fmean(spent[name]) for name in ROUTES}
    cheapest_first = sorted(ROUTES, key=costs.__getitem__)
    labels, nothing = [], 0
    for name in shared:
        found = next((s for s in cheapest_first if right[s][name]), None)
        nothing += found is None
        if found or unanswered:
            labels.append((texts[name], found or str(unanswered)))
    return Labels(tuple(labels), nothing, costs)


def train(labels: Labels, seed: int = 0) -> LinearRouter:
    """Fit a linear router, and tell by cross-validation how well it chooses.

    Its `made` holds the confusion table (rows: labels, columns: choices), accuracy, and the
    accuracy of always choosing the most frequent label, which is what to compare it with.

    Raises:
        MissingExtra: scikit-learn is not installed.
        BadInput: There is one label only, or one has fewer questions than folds.
    """
    try:
        from sklearn.feature_extraction import DictVectorizer  # noqa: PLC0415 - heavy
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
        from sklearn.model_selection import StratifiedKFold, cross_val_predict  # noqa: PLC0415
        from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("scikit-learn", "router") from None
    counts = Counter(name for _, name in labels.by_question)
    few = [f"{name} {counts[name]}" for name in counts if counts[name] < FOLDS]
    if len(counts) < 2 or few:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise BadInput(
            f"The labels are {told}: a router needs at least two, each of {FOLDS} questions or "
            "more. Run more training questions."
        )
    questions = [features(text) for text, _ in labels.by_question]
    wanted = [name for _, name in labels.by_question]
    model = make_pipeline(
        DictVectorizer(),
        LogisticRegression(C=0.5, class_weight="balanced", max_iter=2000, random_state=seed),
    )
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    chosen = [str(name) for name in cross_val_predict(model, questions, wanted, cv=folds)]
    model.fit(questions, wanted)
    vectorizer, fitted = model[0], model[-1]
    routes = tuple(name for name in ROUTES if name in counts)
    columns = {str(name): n for n, name in enumerate(fitted.classes_)}
    # Two classes have one row of weights: that of the second; the first has its negative.
    rows, bias = fitted.coef_.tolist(), fitted.intercept_.tolist()
    if len(columns) == 2:
        rows, bias = [[0.0] * len(rows[0]), rows[0]], [0.0, bias[0]]
    order = [columns[name] for name in routes]
    weights = {
        str(name): tuple(rows[n][i] for n in order)
        for i, name in enumerate(vectorizer.get_feature_names_out())
    }
    table = {
        name: {
            other: sum(w == name and c == other for w, c in zip(wanted, chosen, strict=True))
            for other in routes
        }
        for name in routes
    }
    most, count = counts.most_common(1)[0]
    made: dict[str, Json] = {
        "multihop": __version__,
        "questions": len(wanted),
        "unanswered": labels.unanswered,
        "labels": {name: counts[name] for name in routes},
        "mean_tokens": {name: round(labels.costs[name], 1) for name in ROUTES},
        "folds": FOLDS,
        "seed": seed,
        "confusion": {name: dict(row) for name, row in table.items()},
        "accuracy": sum(w == c for w, c in zip(wanted, chosen, strict=True)) / len(wanted),
        "always": most,
        "accuracy_always": count / len(wanted),
    }
    found = LinearRouter(routes, tuple(bias[n] for n in order), weights, made)
    content = json.dumps([found.routes, found.bias, sorted(weights.items())]).encode()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return replace(found, made={**made, "digest": digest})
