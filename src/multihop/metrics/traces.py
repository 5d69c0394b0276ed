"""Metrics of traces, by name: what evaluation reports and training rewards."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

from multihop.cost import Cost, Prices
from multihop.errors import BadInput
from multihop.metrics import answer as answers
from multihop.metrics.base import Metric, Score
from multihop.metrics.drop import drop
from multihop.metrics.support import collected_passages, pid, recall_at, support
from multihop.trace import Trace, searches_of

AnswerMetric = Callable[[str, Sequence[str]], Score]
"""Compares an answer, as one text, with the accepted answers."""

ANSWER_METRICS: Mapping[str, AnswerMetric] = {
    "hotpotqa": answers.hotpotqa,
    "2wikimultihopqa": answers.two_wiki,
    "musique": answers.musique,
}
"""By data set. IIRC has DROP's, over lists; every other data set SQuAD's."""


def answer_score(trace: Trace) -> Score | None:
    """The answer's score by the metric of the question's data set.

    The data set is the question's field `dataset`. An answer of several parts is joined by
    blanks, as in IRCoT's release, but for IIRC, which has DROP's metric over lists. An empty
    answer is scored.

    Returns:
        None when the question has no gold answer or the run failed.
    """
    if trace.answer is None or not trace.question.answers:
        return None
    dataset = trace.question.extra.get("dataset")
    if dataset == "iirc":
        return drop_score(trace)
    text = " ".join(trace.answer.answers) or trace.answer.text
    return ANSWER_METRICS.get(str(dataset), answers.squad)(text, trace.question.answers)


def drop_score(trace: Trace) -> Score | None:
    """The answer's score by DROP's metric, whatever the data set.

    A gold answer of several parts is the question's field `answer_parts`, a list; without it
    each accepted answer is one span. IRCoT chooses hyper-parameters by this F1.

    Returns:
        None when the question has no gold answer or the run failed.
    """
    if trace.answer is None or not trace.question.answers:
        return None
    parts = trace.question.extra.get("answer_parts")
    golds = (
        [[str(part) for part in parts]]
        if isinstance(parts, list)
        else [[answer] for answer in trace.question.answers]
    )
    return drop(trace.answer.answers or (trace.answer.text,), golds)


def em(trace: Trace) -> float | None:
    """Exact match of the answer, 0 or 1."""
    score = answer_score(trace)
    return score.em if score else None


def f1(trace: Trace) -> float | None:
    """F1 of the answer, in [0, 1]."""
    score = answer_score(trace)
    return score.f1 if score else None


def precision(trace: Trace) -> float | None:
    """Precision of the answer, in [0, 1]."""
    score = answer_score(trace)
    return score.precision if score else None


def recall(trace: Trace) -> float | None:
    """Recall of the answer, in [0, 1]."""
    score = answer_score(trace)
    return score.recall if score else None


def novel_f1(trace: Trace) -> float | None:
    """nF1 of a reply in a conversation, in [0, 1]: F1 over words that no earlier turn holds.

    Earlier turns are the question's field `history`, a list of {"question", "answer"}.

    Returns:
        None when there is no such field, no gold answer, or the run failed.
    """
    turns = trace.question.extra.get("history")
    if not isinstance(turns, list) or trace.answer is None or not trace.question.answers:
        return None
    said = [
        str(turn.get(name) or "")
        for turn in turns
        if isinstance(turn, dict)
        for name in ("question", "answer")
    ]
    said.append(trace.question.text)
    return answers.novel(trace.answer.text, trace.question.answers, said).f1


def drop_em(trace: Trace) -> float | None:
    """DROP's exact match of the answer, 0 or 1."""
    score = drop_score(trace)
    return score.em if score else None


def drop_f1(trace: Trace) -> float | None:
    """DROP's F1 of the answer, in [0, 1], two decimals."""
    score = drop_score(trace)
    return score.f1 if score else None


def gold_recall(trace: Trace, budget: int | None = None) -> float | None:
    """Share of the gold passages among the first `budget` collected, in [0, 1].

    Returns:
        None when no gold passage is known or the run failed.
    """
    if not trace.question.gold_ids or trace.answer is None:
        return None
    return recall_at(trace.collected, trace.question.gold_ids, budget)


def all_gold(trace: Trace, budget: int | None = None) -> float | None:
    """1 when every gold passage is among the first `budget` collected, else 0."""
    share = gold_recall(trace, budget)
    return None if share is None else float(share == 1)


def title_recall(trace: Trace, budget: int | None = None) -> float | None:
    """Share of the gold titles among those of the first `budget` collected passages.

    Case and outer blanks do not count. For data sets that name pages, not passages.
    """
    if not trace.question.gold_titles or trace.answer is None:
        return None
    found = [p.title.strip().lower() for p in collected_passages(trace)]
    return recall_at(found, {t.strip().lower() for t in trace.question.gold_titles}, budget)


def para_recall(trace: Trace, budget: int | None = None) -> float | None:
    """Share of the gold paragraphs among the first `budget` collected, compared by `pid`.

    For questions whose gold is given as texts, in the field `gold_paragraphs` (a list of
    {"title", "text"}), because the corpus has other ids: IRCoT's retrieval score.

    Returns:
        None when there is no such field, it is empty, or the run failed.
    """
    gold = trace.question.extra.get("gold_paragraphs")
    if not isinstance(gold, list) or not gold or trace.answer is None:
        return None
    wanted = {pid(str(g["title"]), str(g["text"])) for g in gold if isinstance(g, dict)}
    return recall_at([pid(p.title, p.text) for p in collected_passages(trace)], wanted, budget)


def support_score(trace: Trace) -> Score | None:
    """The collected passages against the gold ones; None as for `gold_recall`."""
    if not trace.question.gold_ids or trace.answer is None:
        return None
    return support(trace.collected, trace.question.gold_ids)


def support_em(trace: Trace) -> float | None:
    """1 when exactly the gold passages were collected, else 0."""
    score = support_score(trace)
    return score.em if score else None


def support_f1(trace: Trace) -> float | None:
    """F1 of the collected passages, in [0, 1]."""
    score = support_score(trace)
    return score.f1 if score else None


def support_precision(trace: Trace) -> float | None:
    """Share of the collected passages that are gold, in [0, 1]."""
    score = support_score(trace)
    return score.precision if score else None


def passages(trace: Trace) -> float:
    """How many passages were collected."""
    return len(trace.collected)


BESIDE = frozenset({"observation", "chain", "vote", "route"})
"""Kinds of thoughts that are no step of reasoning: nothing was asked or decided there."""


def steps(trace: Trace) -> float:
    """How many sentences the chain has, or turns; 0 for strategies that read at once."""
    return sum(thought.kind not in BESIDE for thought in trace.thoughts)


def searches(trace: Trace) -> float:
    """How many queries went out, title searches among them."""
    return sum(bool(search.query) for step in trace.steps for search in searches_of(step))


def lm_calls(trace: Trace) -> float:
    """How many calls the method makes, wherever their texts came from."""
    return len(trace.calls)


def sent_calls(trace: Trace) -> float:
    """How many of the calls reached the model: neither fused nor replayed."""
    return sum(not (call.fused or call.replayed) for call in trace.calls)


def replayed_calls(trace: Trace) -> float:
    """How many of the calls were answered by a cache."""
    return sum(call.replayed for call in trace.calls)


def prompt_tokens(trace: Trace) -> float | None:
    """Tokens of all prompts, cached ones included; None where a call's are not told."""
    return trace.tokens.prompt


def cached_tokens(trace: Trace) -> float | None:
    """Those of the prompt tokens that the backend had evaluated before."""
    return trace.tokens.cached


def evaluated_tokens(trace: Trace) -> float | None:
    """Those of the prompt tokens that the backend had to evaluate."""
    prompt, cached = trace.tokens.prompt, trace.tokens.cached
    return None if prompt is None or cached is None else prompt - cached


def generated_tokens(trace: Trace) -> float | None:
    """Tokens written, thinking included."""
    return trace.tokens.generated


def seconds(trace: Trace) -> float:
    """How long the run took."""
    return trace.seconds


def money(prices: Prices) -> Metric:
    """The metric of what a run has cost by a price table, in its currency.

    Counted as in `multihop.cost`: what was really asked of a model. It has no name of its own,
    for there are no prices but the user's.

    Returns:
        A metric that is None where a model that was asked has no price.
    """

    def of(trace: Trace) -> float | None:
        asked = {call.model for call in trace.calls if not call.replayed}
        if not all(prices.find(model) for model in asked):
            return None
        return Cost.of(trace.steps, prices).money

    return of


def failed(trace: Trace) -> float:
    """1 when the run ended in an error, else 0."""
    return float(bool(trace.error) or trace.answer is None)


METRICS: Mapping[str, Metric] = {
    function.__name__: function
    for function in (
        *(em, f1, precision, recall, novel_f1, drop_em, drop_f1),
        *(gold_recall, all_gold, title_recall, para_recall),
        *(support_em, support_f1, support_precision),
        *(passages, steps, searches, lm_calls, sent_calls, replayed_calls),
        *(prompt_tokens, cached_tokens, evaluated_tokens, generated_tokens, seconds, failed),
    )
}
"""Built-in metrics by name. Those in `AT_BUDGET` also take a budget: "gold_recall@15"."""

COUNTS = frozenset(
    {
        *("steps", "searches", "lm_calls", "sent_calls", "replayed_calls", "passages", "seconds"),
        *("prompt_tokens", "cached_tokens", "evaluated_tokens", "generated_tokens", "money"),
    }
)
"""Counts and times; all other metrics are shares and shown in percent."""

AT_BUDGET: Mapping[str, Callable[[Trace, int], float | None]] = {
    "gold_recall": gold_recall,
    "all_gold": all_gold,
    "title_recall": title_recall,
    "para_recall": para_recall,
}


def metric(name: str) -> Metric:
    """The built-in metric of this name, as "f1" or "gold_recall@15".

    Raises:
        BadInput: There is none.
    """
    if found := METRICS.get(name):
        return found
    base, at, budget = name.partition("@")
    if at and base in AT_BUDGET and re.fullmatch("[1-9][0-9]*", budget):
        function, first = AT_BUDGET[base], int(budget)
        return lambda trace: function(trace, first)
    known = [*METRICS, *(f"{base}@N" for base in AT_BUDGET)]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise BadInput(f"No metric is named {name!r}.{hint} Known: {', '.join(known)}.")
