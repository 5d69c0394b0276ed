"""Fits IM-RAG's stop models on runs: small linear models over a question and its monologue.

Every beginning of a monologue is a row. The critic learns whether all gold passages were there by
then (SIM-RAG, 2505.02811, learns so from its own rollouts), predicted progress the newest turn's
1 - d. Scores told are of cross-validation in which a question's rows stay together.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from multihop import __version__
from multihop.errors import BadInput, MissingExtra
from multihop.metrics.progress import Tracker, turns
from multihop.strategies.im_rag.features import features
from multihop.strategies.im_rag.stopping import Linear, Target
from multihop.text import Json
from multihop.trace import Trace


@dataclass(frozen=True, slots=True)
class Row:
    """A beginning of a monologue.

    Attributes:
        question: Its id.
        seen: Its features.
        enough: Whether all gold passages are there.
        gain: The newest turn's progress.
    """

    question: str
    seen: dict[str, float]
    enough: bool
    gain: float


def rows(ran: Sequence[Trace], tracker: Tracker) -> list[Row]:
    """All beginnings of runs with gold passages."""
    found = []
    for run in ran:
        gold = set(run.question.gold_ids)
        if run.error or not gold:
            continue
        made, there = turns(run), set[str]()
        for number, (turn, step) in enumerate(zip(made, tracker.track(run), strict=True), 1):
            there.update(p.id for p in turn.passages)
            seen = features(run.question.text, made[:number])
            found.append(Row(run.question.id, seen, gold <= there, step.gain))
    return found


def fit(found: Sequence[Row], target: Target, *, strength: float = 0.5, folds: int = 5) -> Linear:
    """Fit a model, and tell in its `made` how well it does on questions not seen.

    Args:
        found: Of at least as many questions as folds.
        target: "enough": a logistic regression; "gain": a linear one with a penalty.
        strength: Inverse weight of the penalty.
        folds: Of the cross-validation.

    Raises:
        MissingExtra: scikit-learn is not installed.
        BadInput: There are too few questions, or the rows are all alike.
    """
    try:
        from sklearn.feature_extraction import DictVectorizer  # noqa: PLC0415 - heavy
        from sklearn.linear_model import LogisticRegression, Ridge  # noqa: PLC0415
        from sklearn.metrics import roc_auc_score  # noqa: PLC0415
        from sklearn.model_selection import GroupKFold, cross_val_predict  # noqa: PLC0415
        from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("scikit-learn", "router") from None
    questions = [row.question for row in found]
    wanted: list[Any] = [row.enough if target == "enough" else row.gain for row in found]
    if len(set(questions)) < folds or len(set(wanted)) < 2:
        raise BadInput(
            f"The runs hold {len(set(questions))} questions and {len(set(wanted))} different "
            f"outcomes; a stop model needs at least {folds} and 2. Run more training questions."
        )
    regression = (
        LogisticRegression(C=strength, max_iter=2000)
        if target == "enough"
        else Ridge(alpha=1 / strength)
    )
    model = make_pipeline(DictVectorizer(), regression)
    seen = [row.seen for row in found]
    method = "predict_proba" if target == "enough" else "predict"
    guessed = cross_val_predict(
        model, seen, wanted, groups=questions, cv=GroupKFold(folds), method=method
    )
    model.fit(seen, wanted)
    vectorizer, fitted = model[0], model[-1]
    many = target == "enough"
    row = fitted.coef_[0] if many else fitted.coef_
    bias = float(fitted.intercept_[0] if many else fitted.intercept_)
    weights = {
        str(name): float(row[i]) for i, name in enumerate(vectorizer.get_feature_names_out())
    }
    made: dict[str, Json] = {
        "multihop": __version__,
        "questions": len(set(questions)),
        "rows": len(found),
        "folds": folds,
        "strength": strength,
    }
    if target == "enough":
        chances = [float(each[1]) for each in guessed]
        right = [(c >= 0.5) == w for c, w in zip(chances, wanted, strict=True)]
        share = fmean(map(float, wanted))
        made |= {
            "accuracy": fmean(map(float, right)),
            "accuracy_always": max(share, 1 - share),
            "auc": float(roc_auc_score(wanted, chances)),
        }
    else:
        middle = fmean(wanted)
        off = fmean((float(g) - w) ** 2 for g, w in zip(guessed, wanted, strict=True))
        made["r2"] = 1 - off / fmean((w - middle) ** 2 for w in wanted)
    content = json.dumps([target, bias, sorted(weights.items())]).encode()
    made["digest"] = hashlib.sha256(content).hexdigest()[:16]
    return Linear(target, bias, weights, made)
