"""Making demonstrations out of annotated questions, as IRCoT's release made its prompt files.

An annotated question has `reasoning_steps`, each with its sentence (`cot_sent`) and the
passages it rests on, and `contexts` with `is_supporting`. The released files themselves cannot
be made again exactly (its README says so); the rules here are those of its generator.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from multihop.prompts.demonstrations import Demonstration
from multihop.prompts.layout import TITLE, titles_question
from multihop.prompts.sentences import Splitter

Instance = Mapping[str, Any]
"""A question in the release's own annotated form, as read from JSON."""


def make_demonstration(
    instance: Instance,
    *,
    distractors: int,
    kind: Literal["cot", "direct"],
    rng: random.Random,
    splitter: Splitter,
    count: Callable[[str], int],
    longest: int = 250,
    pinned_last: bool = True,
    instruction: str = "",
) -> Demonstration:
    """One worked example.

    Args:
        instance: The annotated question.
        distractors: Passages that support nothing, drawn at random; fewer where there are
            fewer. 0 makes an example without passages but a pinned one.
        kind: End in the chain or in the bare answer.
        rng: Draws and shuffles; the release seeds Python's generator with 13370 once.
        splitter: Cuts distractors at sentence ends; gold passages are never cut.
        count: Tokens of a sentence (the release: spaCy's, see `sentences.spacy_tokens`).
        longest: A distractor keeps whole sentences while it stays under this many tokens.
        pinned_last: IIRC's main passage stands last, else first.
        instruction: Stands before the question, as in the files for Flan-T5; the release's
            generator writes none.
    """
    pinned = [(c["title"], c["paragraph_text"]) for c in instance.get("pinned_contexts") or ()]
    passages = list(pinned)
    if distractors:
        passages = _gold(instance, pinned)
        others = [
            c
            for c in instance["contexts"]
            if not c["is_supporting"] and (c["title"], c["paragraph_text"]) not in passages
        ]
        for other in rng.sample(others, min(distractors, len(others))):
            text = _clipped(other["paragraph_text"], splitter, count, longest)
            passages.append((other["title"], text))
        rng.shuffle(passages)
    if pinned:
        passages.sort(key=lambda passage: (passage in pinned) == pinned_last)
    question = instruction + instance["question_text"]
    answer = _chain(instance) if kind == "cot" else _answer(instance)
    return _demonstration(instance, passages, question, answer)


def make_titles_demonstration(
    instance: Instance, style: Literal["json", "plain"], instruction: str = ""
) -> Demonstration:
    """One worked example of IIRC's title generation.

    Args:
        instance: The annotated question.
        style: How the gold titles are listed: `["A", "B"]` (the codex files) or `A, B` (the
            flan files).
        instruction: Stands before the question.
    """
    pinned = [(c["title"], c["paragraph_text"]) for c in instance.get("pinned_contexts") or ()]
    main = {title for title, _ in pinned}
    titles = list(dict.fromkeys(t for t, _ in _gold(instance, ()) if t not in main))
    question = instruction + titles_question(instance["question_text"], len(titles))
    if style == "json":
        listed = ", ".join('"{}"'.format(t.replace('"', "'")) for t in titles)
        answer = f"[{listed}]"
    else:
        answer = ", ".join(titles)
    return _demonstration(instance, pinned, question, answer)


def _gold(instance: Instance, pinned: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pinned passage and those of the reasoning steps, in order, each once."""
    found = list(pinned)
    for step in instance["reasoning_steps"]:
        for passage in step["paragraphs"]:
            pair = (passage["title"], passage["paragraph_text"])
            if passage["title"] and pair not in found:
                found.append(pair)
    return found


def _clipped(text: str, splitter: Splitter, count: Callable[[str], int], longest: int) -> str:
    end, size = 0, 0
    for sentence in splitter(text):
        size += count(sentence)
        if size >= longest:
            break
        end = text.index(sentence, end) + len(sentence)
    return text[:end]


def _chain(instance: Instance) -> str:
    return re.sub(" +", " ", " ".join(step["cot_sent"] for step in instance["reasoning_steps"]))


def _answer(instance: Instance) -> str:
    return ", ".join(instance["answers_objects"][0]["spans"])


def _demonstration(
    instance: Instance, passages: Sequence[tuple[str, str]], question: str, answer: str
) -> Demonstration:
    shown = [f"{TITLE}{t}\n{text.replace(chr(10), ' ').strip()}" for t, text in passages]
    text = "\n\n".join([*shown, f"Q: {question}\nA: {answer}"])
    return Demonstration(text.strip(), {"qid": instance["question_id"]})
